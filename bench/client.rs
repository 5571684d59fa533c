//! A client of the daemon: bare MCP calls over one kept-alive connection, as n8n and curl make them.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Method, Request};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpStream;

use crate::Result;
use crate::daemon::Daemon;

const JSON: &str = "application/json";
const TAR: &str = "application/x-tar";

pub(crate) struct Client {
    sender: SendRequest<Full<Bytes>>,
    addr: SocketAddr,
    token: String,
}

impl Client {
    pub(crate) async fn connect(daemon: &Daemon) -> Result<Self> {
        let sender = connection(daemon.addr).await?;
        Ok(Self { sender, addr: daemon.addr, token: daemon.token.clone() })
    }

    /// Calls a tool: its answer, and the time from the first byte sent to the last received.
    pub(crate) async fn call(&mut self, tool: &str, arguments: Value) -> Result<(Value, Duration)> {
        let params = json!({ "name": tool, "arguments": arguments });
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params });
        let (answer, taken) = self.send(Method::POST, "/mcp", JSON, Bytes::from(body.to_string())).await?;
        let mut answer: Value = serde_json::from_slice(&answer)?;
        let document = answer["result"]["structuredContent"].take();
        if answer["result"]["isError"] == false {
            Ok((document, taken))
        } else {
            Err(format!("{tool}: {answer} {document}").into())
        }
    }

    /// Runs code that must print just this.
    pub(crate) async fn run(
        &mut self,
        language: &str,
        session: &str,
        code: &str,
        prints: &str,
    ) -> Result<(Value, Duration)> {
        let arguments = json!({ "language": language, "session_id": session, "code": code });
        let (document, taken) = self.call("run_code", arguments).await?;
        if document["stdout"] == prints {
            Ok((document, taken))
        } else {
            Err(format!("unexpected: {document}").into())
        }
    }

    /// Gets what is at a path or a link.
    pub(crate) async fn get(&mut self, url: &str) -> Result<(Bytes, Duration)> {
        let path = url.split_once("://").and_then(|(_, rest)| Some(&rest[rest.find('/')?..])).unwrap_or(url);
        self.send(Method::GET, path, JSON, Bytes::new()).await
    }

    /// Puts a file of a session, or with no name all files of a tar.
    pub(crate) async fn put(&mut self, session: &str, name: Option<&str>, body: Bytes) -> Result<Duration> {
        let (path, kind) = match name {
            Some(name) => (format!("/sessions/{session}/files/{name}"), "application/octet-stream"),
            None => (format!("/sessions/{session}/files"), TAR),
        };
        Ok(self.send(Method::PUT, &path, kind, body).await?.1)
    }

    /// All files of a session as a tar.
    pub(crate) async fn all(&mut self, session: &str) -> Result<(Bytes, Duration)> {
        self.send(Method::GET, &format!("/sessions/{session}/files"), TAR, Bytes::new()).await
    }

    /// `kind` is what is sent, and what is wanted.
    async fn send(
        &mut self,
        method: Method,
        path: &str,
        kind: &str,
        body: Bytes,
    ) -> Result<(Bytes, Duration)> {
        let accept = if method == Method::PUT { JSON } else { kind };
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("Host", self.addr.to_string())
            .header("Authorization", format!("Bearer {}", self.token))
            .header("Content-Type", kind)
            .header("Accept", accept)
            .body(Full::new(body))?;
        // The daemon closes connections that are idle for long, as during the rows that are not its own.
        if self.sender.ready().await.is_err() {
            self.sender = connection(self.addr).await?;
        }
        let begun = Instant::now();
        let answer = self.sender.send_request(request).await?;
        let status = answer.status();
        let body = answer.into_body().collect().await?.to_bytes();
        let taken = begun.elapsed();
        if status.is_success() {
            Ok((body, taken))
        } else {
            Err(format!("{path}: {status} {}", String::from_utf8_lossy(&body)).into())
        }
    }
}

async fn connection(addr: SocketAddr) -> Result<SendRequest<Full<Bytes>>> {
    let stream = TcpStream::connect(addr).await?;
    stream.set_nodelay(true)?;
    let (mut sender, connection) = handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    sender.ready().await?;
    Ok(sender)
}
