//! A client of the daemon: bare MCP calls over one kept-alive connection, as n8n and curl make them.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Method, Request};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::net::TcpStream;

use crate::Result;
use crate::daemon::Daemon;
use crate::load::LoadTarget;
use crate::programs::Program;

const JSON: &str = "application/json";
const TAR: &str = "application/x-tar";
const STREAM: &str = "text/event-stream";

pub(crate) struct Client {
    sender: SendRequest<Full<Bytes>>,
    addr: SocketAddr,
    token: String,
}

impl Client {
    pub(crate) async fn connect(daemon: &Daemon) -> Result<Self> {
        Self::new(daemon.addr, &daemon.token).await
    }

    /// A client with this token.
    pub(crate) async fn new(addr: SocketAddr, token: &str) -> Result<Self> {
        Ok(Self { sender: connection(addr).await?, addr, token: token.to_owned() })
    }

    /// Calls a tool: its answer, and the time from the first byte sent to the last received.
    pub(crate) async fn call(&mut self, tool: &str, arguments: Value) -> Result<(Value, Duration)> {
        let (answer, taken) = self.send(Method::POST, "/mcp", JSON, message(tool, &arguments)).await?;
        let mut answer: Value = serde_json::from_slice(&answer)?;
        let document = answer["result"]["structuredContent"].take();
        if answer["result"]["isError"] == false {
            Ok((document, taken))
        } else {
            Err(format!("{tool}: {answer} {document}").into())
        }
    }

    /// A client of the same daemon with a connection of its own.
    pub(crate) async fn another(&self) -> Result<Self> {
        let sender = connection(self.addr).await?;
        Ok(Self { sender, addr: self.addr, token: self.token.clone() })
    }

    /// Subscribes to the events of this caller's runs and executions, over a connection of its own.
    pub(crate) async fn watch(&self) -> Result<EventStream> {
        let mut sender = connection(self.addr).await?;
        let answer = sender
            .send_request(self.request(Method::GET, "/mcp/events", JSON, STREAM, Bytes::new())?)
            .await?;
        if answer.status().is_success() {
            Ok(EventStream { body: answer.into_body(), read: Vec::new() })
        } else {
            Err(format!("/mcp/events: {}", answer.status()).into())
        }
    }

    /// Runs code that must print exactly this.
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

    /// Gets a path, or a link's path.
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

    /// Sends a request. `kind` is the content type of the body and, except for a PUT, of the answer.
    async fn send(
        &mut self,
        method: Method,
        path: &str,
        kind: &str,
        body: Bytes,
    ) -> Result<(Bytes, Duration)> {
        let accept = if method == Method::PUT { JSON } else { kind };
        let request = self.request(method, path, kind, accept, body)?;
        // The daemon closes idle connections, as during the rows of others.
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

    fn request(
        &self,
        method: Method,
        path: &str,
        kind: &str,
        accept: &str,
        body: Bytes,
    ) -> Result<Request<Full<Bytes>>> {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("Host", self.addr.to_string())
            .header("Authorization", format!("Bearer {}", self.token))
            .header("Content-Type", kind)
            .header("Accept", accept);
        Ok(request.body(Full::new(body))?)
    }
}

/// An event stream.
pub(crate) struct EventStream {
    body: Incoming,
    read: Vec<u8>,
}

impl EventStream {
    /// The next message; comments are skipped.
    pub(crate) async fn next(&mut self) -> Result<Value> {
        loop {
            if let Some(end) = self.read.windows(2).position(|pair| pair == b"\n\n") {
                let event: Vec<u8> = self.read.drain(..end + 2).collect();
                if let Some(data) = event.strip_prefix(b"data: ") {
                    return Ok(serde_json::from_slice(data)?);
                }
                continue;
            }
            let frame = self.body.frame().await.ok_or("the event stream ended")??;
            self.read.extend_from_slice(&frame.into_data().unwrap_or_default());
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

/// Runs the same code in the same session again and again, over a connection of its own.
pub(crate) struct LoadSession {
    client: Client,
    session: String,
    program: Program,
    body: Bytes,
}

/// The part of an answer that is read. Reading more would load the generator.
#[derive(Deserialize)]
struct RunAnswer {
    result: AnswerResult,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct AnswerResult {
    structured_content: AnswerDocument,
}

#[derive(Deserialize)]
struct AnswerDocument {
    stdout: String,
    exit_code: Option<i64>,
}

impl LoadSession {
    pub(crate) async fn new(client: &Client, session: String, program: Program) -> Result<Self> {
        let client = client.another().await?;
        let arguments = json!({ "language": program.language, "session_id": session, "code": program.code });
        Ok(Self { client, session, program, body: message("run_code", &arguments) })
    }

    /// Ends the session and its container.
    pub(crate) async fn close(&mut self) -> Result<()> {
        let arguments = json!({ "session_id": self.session, "delete_files": true });
        self.client.call("close_session", arguments).await?;
        Ok(())
    }
}

impl LoadTarget for LoadSession {
    async fn run(&mut self) -> Result<Duration> {
        let (answer, taken) = self.client.send(Method::POST, "/mcp", JSON, self.body.clone()).await?;
        let document =
            serde_json::from_slice::<RunAnswer>(&answer).map(|answer| answer.result.structured_content);
        match document {
            Ok(document) if document.stdout == self.program.prints && document.exit_code == Some(0) => {
                Ok(taken)
            }
            _ => Err(format!("unexpected: {}", String::from_utf8_lossy(&answer)).into()),
        }
    }
}

fn message(tool: &str, arguments: &Value) -> Bytes {
    let params = json!({ "name": tool, "arguments": arguments });
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params });
    body.to_string().into()
}
