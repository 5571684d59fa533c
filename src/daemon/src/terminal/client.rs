//! The daemon's HTTP API, over the socket in its store: one connection for each request.
//!
//! It must never wait for ever for a daemon that is gone, nor take an incomplete answer for a complete one.

use std::io;
use std::path::Path;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::{ACCEPT, CONTENT_TYPE, HOST};
use http::{Method, Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, Limited, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::client::conn::http1::handshake;
use hyper_util::rt::TokioIo;
use percent_encoding::utf8_percent_encode;
use serde_json::{Value, json};
use tokio::fs::File;
use tokio::io::{AsyncRead, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio_util::io::ReaderStream;
use tokio_util::task::AbortOnDropHandle;

use super::Failed;
use crate::api::SocketKind;
use crate::local_daemon::LocalDaemon;
use crate::sign::UNRESERVED;

/// Bytes of one event: an answer has two streams of at most a few MiB each, escaped, and images.
const EVENT: usize = 256 << 20;

/// Bytes of an answer about the daemon's state, which has a few sentences, and a line for each node.
const STATE: usize = 4 << 20;

/// The type of an archive.
const TAR: &str = "application/x-tar";

/// The MCP revision in use: each call stands alone, and ends with its connection.
const REVISION: &str = "2026-07-28";

type Body = UnsyncBoxBody<Bytes, io::Error>;

/// A daemon that accepts requests.
pub(super) struct Client {
    store: std::path::PathBuf,
}

/// One event of a call.
pub(super) enum CallEvent {
    /// A piece of the program's output; without a stream it is a note about the output.
    Output { stream: Option<ProgramStream>, text: String },
    /// The end: the tool's document, or why there is none.
    Answer(Result<Value, Failed>),
}

/// An output stream of the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ProgramStream {
    Stdout,
    Stderr,
}

impl Client {
    /// Connects to the daemon of the configured store, or starts it in this process.
    pub(super) async fn reach(local: &mut LocalDaemon) -> Result<Self, Failed> {
        local.reach(SocketKind::Http, Duration::ZERO).await.map_err(Failed::new)?;
        Ok(Self::of(local))
    }

    /// The daemon of the store, if it still runs when it is used; starts nothing.
    pub(super) fn of(local: &LocalDaemon) -> Self {
        Self { store: local.store().to_owned() }
    }

    async fn connect(&self) -> Result<UnixStream, Failed> {
        SocketKind::Http.connect(&self.store).await.map_err(Failed::Gone)
    }

    /// Sends one request; returns the response, whose body is still to be read, and the connection that it
    /// needs.
    async fn ask(&self, request: Request<Body>) -> Result<(Response<Incoming>, OpenConnection), Failed> {
        let broke = |error| Failed::Message(format!("the connection to the daemon broke: {error}"));
        let (mut sender, connection) = handshake(TokioIo::new(self.connect().await?)).await.map_err(broke)?;
        let driving = AbortOnDropHandle::new(tokio::spawn(connection));
        let response = sender.send_request(request).await.map_err(broke)?;
        Ok((response, OpenConnection { _sender: sender, _driving: driving }))
    }

    /// Puts a file into a session.
    pub(super) async fn put(&self, session: &str, name: &str, path: &Path) -> Result<(), Failed> {
        let unreadable = |error| Failed::Message(format!("cannot read {}: {error}", path.display()));
        let file = File::open(path).await.map_err(unreadable)?;
        let body = StreamBody::new(futures_util::TryStreamExt::map_ok(ReaderStream::new(file), Frame::data));
        let request =
            Request::builder().method(Method::PUT).uri(file_uri(session, name)).header(HOST, "localhost");
        let request = request.body(body.boxed_unsync()).map_err(Failed::new)?;
        let (response, _connection) = self.ask(request).await?;
        let refused = |why| Failed::Message(format!("{} could not be uploaded: {why}", path.display()));
        successful(response).await.map(drop).map_err(refused)
    }

    /// Puts all files of an archive into a session, as one change.
    pub(super) async fn unpack(
        &self,
        session: &str,
        archive: impl AsyncRead + Send + 'static,
    ) -> Result<(), Failed> {
        let body =
            StreamBody::new(futures_util::TryStreamExt::map_ok(ReaderStream::new(archive), Frame::data));
        let request = Request::builder()
            .method(Method::PUT)
            .uri(format!("/sessions/{}/files", segment(session)))
            .header(HOST, "localhost")
            .header(CONTENT_TYPE, TAR);
        let request = request.body(body.boxed_unsync()).map_err(Failed::new)?;
        let (response, _connection) = self.ask(request).await?;
        let refused = |why| Failed::Message(format!("the files could not be sent: {why}"));
        successful(response).await.map(drop).map_err(refused)
    }

    /// What a link below `/logs/` leads to.
    pub(super) async fn log(&self, path: &str) -> Result<Vec<u8>, Failed> {
        let request = Request::builder().uri(path).header(HOST, "localhost");
        let (response, _connection) = self.ask(request.body(empty()).map_err(Failed::new)?).await?;
        let body = Limited::new(successful(response).await?, EVENT).collect().await;
        body.map(|body| body.to_bytes().to_vec()).map_err(Failed::new)
    }

    /// Writes a file of a session to this path.
    pub(super) async fn get(&self, session: &str, name: &str, to: &Path) -> Result<(), Failed> {
        let unwritable = |error| Failed::Message(format!("cannot write {}: {error}", to.display()));
        let (body, _connection) = self.file(session, name).await?;
        // Only now: an older file stays as it is where there is none to take its place.
        let mut file = File::create(to).await.map_err(unwritable)?;
        copy(body, name, &mut file).await
    }

    /// Writes a file of a session to this one.
    pub(super) async fn read(&self, session: &str, name: &str, file: &mut File) -> Result<(), Failed> {
        let (body, _connection) = self.file(session, name).await?;
        copy(body, name, file).await
    }

    /// The content of a file of a session, as it arrives.
    async fn file(&self, session: &str, name: &str) -> Result<(Incoming, OpenConnection), Failed> {
        let request = Request::builder().uri(file_uri(session, name)).header(HOST, "localhost");
        let request = request.body(empty()).map_err(Failed::new)?;
        let (response, connection) = self.ask(request).await?;
        Ok((successful(response).await?, connection))
    }

    /// The answer of `GET /health` or `GET /ready`, whatever its status.
    pub(super) async fn state(&self, path: &'static str) -> Result<(StatusCode, Value), Failed> {
        self.ask_for(Method::GET, path).await
    }

    /// The short document with which the daemon answers a request without a body, whatever its status.
    pub(super) async fn ask_for(
        &self,
        method: Method,
        path: &'static str,
    ) -> Result<(StatusCode, Value), Failed> {
        let request = Request::builder().method(method).uri(path).header(HOST, "localhost");
        let (response, _connection) = self.ask(request.body(empty()).map_err(Failed::new)?).await?;
        let status = response.status();
        let body = Limited::new(response.into_body(), STATE).collect().await.map_err(Failed::new)?;
        Ok((status, serde_json::from_slice(&body.to_bytes()).map_err(Failed::new)?))
    }

    /// A page of the list of a session's files.
    pub(super) async fn list(&self, session: &str, cursor: Option<&str>) -> Result<Value, Failed> {
        let cursor = cursor.map(|cursor| format!("&cursor={}", utf8_percent_encode(cursor, UNRESERVED)));
        let uri = format!("/sessions/{}/files?limit=1000{}", segment(session), cursor.unwrap_or_default());
        let request = Request::builder().uri(uri).header(HOST, "localhost");
        let (response, _connection) = self.ask(request.body(empty()).map_err(Failed::new)?).await?;
        let body = successful(response).await?.collect().await.map_err(Failed::new)?.to_bytes();
        serde_json::from_slice(&body).map_err(Failed::new)
    }

    /// Calls a tool.
    pub(super) async fn call(&self, tool: &str, arguments: Value) -> Result<RunningCall, Failed> {
        let meta = json!({
            "progressToken": 1,
            "paddock/output": "whole",
            "io.modelcontextprotocol/protocolVersion": REVISION,
            "io.modelcontextprotocol/clientInfo": { "name": "paddock run", "version": crate::build::VERSION },
            "io.modelcontextprotocol/clientCapabilities": {},
        });
        let message = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call",
            "params": { "name": tool, "arguments": arguments, "_meta": meta } });
        let request = Request::post("/mcp")
            .header(HOST, "localhost")
            .header(CONTENT_TYPE, "application/json")
            .header(ACCEPT, "application/json, text/event-stream")
            .header("mcp-protocol-version", REVISION)
            .header("mcp-method", "tools/call")
            .header("mcp-name", tool)
            .body(whole(message.to_string()))
            .map_err(Failed::new)?;
        let (response, connection) = self.ask(request).await?;
        let is_stream = response
            .headers()
            .get(CONTENT_TYPE)
            .is_some_and(|kind| kind.to_str().is_ok_and(|kind| kind.starts_with("text/event-stream")));
        Ok(RunningCall {
            body: response.into_body(),
            is_stream,
            read: BytesMut::new(),
            _connection: connection,
        })
    }
}

/// A connection; dropped, it is closed.
struct OpenConnection {
    _sender: hyper::client::conn::http1::SendRequest<Body>,
    _driving: AbortOnDropHandle<hyper::Result<()>>,
}

/// A call in progress; dropped, it is cancelled.
pub(super) struct RunningCall {
    body: Incoming,
    is_stream: bool,
    read: BytesMut,
    _connection: OpenConnection,
}

impl RunningCall {
    /// The next event; there is none after the answer.
    pub(super) async fn next(&mut self) -> Result<CallEvent, Failed> {
        loop {
            if self.is_stream {
                while let Some(event) = take_event(&mut self.read) {
                    if let Some(event) = call_event(&event) {
                        return Ok(event);
                    }
                }
            }
            match self.body.frame().await {
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        self.read.extend_from_slice(&data);
                    }
                    if self.read.len() > EVENT {
                        return Err(Failed::new("the daemon's answer is larger than 256 MiB"));
                    }
                }
                Some(Err(error)) => {
                    return Err(Failed::Message(format!("the daemon's answer broke off: {error}")));
                }
                None if self.is_stream => return Err(Failed::new("the daemon's answer broke off")),
                None => {
                    let message: Value = serde_json::from_slice(&self.read).map_err(Failed::new)?;
                    return Ok(CallEvent::Answer(answer(&message)));
                }
            }
        }
    }
}

/// The data of the first complete event in `read`.
fn take_event(read: &mut BytesMut) -> Option<String> {
    let end = memchr::memmem::find(read, b"\n\n")?;
    let event = read.split_to(end + 2);
    let lines = std::str::from_utf8(&event).ok()?.lines();
    Some(lines.filter_map(|line| line.strip_prefix("data:")).map(str::trim_start).collect())
}

/// The event in a message, if it has one.
fn call_event(event: &str) -> Option<CallEvent> {
    let message: Value = serde_json::from_str(event).ok()?;
    if message["method"] == "notifications/progress" {
        let params = &message["params"];
        let stream = match params["_meta"]["paddock/stream"].as_str() {
            Some("stdout") => Some(ProgramStream::Stdout),
            Some("stderr") => Some(ProgramStream::Stderr),
            // A note about the output begins so; other messages only report that the call continues.
            _ if params["message"].as_str().is_some_and(|text| text.starts_with('[')) => None,
            _ => return None,
        };
        let text = params["message"].as_str()?.to_owned();
        return Some(CallEvent::Output { stream, text });
    }
    message.get("id").is_some().then(|| CallEvent::Answer(answer(&message)))
}

fn answer(message: &Value) -> Result<Value, Failed> {
    if let Some(document) = message["result"].get("structuredContent") {
        return Ok(document.clone());
    }
    let why = message["error"]["message"].as_str().or_else(|| message["message"].as_str());
    Err(Failed::new(why.unwrap_or("the daemon's answer is not one of MCP")))
}

/// Writes the content of a file as it arrives.
async fn copy(mut body: Incoming, name: &str, file: &mut File) -> Result<(), Failed> {
    let unwritable = |error| Failed::Message(format!("cannot write {name}: {error}"));
    while let Some(frame) = body.frame().await {
        let frame =
            frame.map_err(|error| Failed::Message(format!("only a part of {name} arrived: {error}")))?;
        if let Ok(data) = frame.into_data() {
            file.write_all(&data).await.map_err(unwritable)?;
        }
    }
    file.flush().await.map_err(unwritable)
}

/// The body of a successful response; the error of any other.
async fn successful(response: Response<Incoming>) -> Result<Incoming, Failed> {
    let status = response.status();
    if status.is_success() {
        return Ok(response.into_body());
    }
    let body = response.into_body().collect().await.map(|body| body.to_bytes()).unwrap_or_default();
    let said: Option<Value> = serde_json::from_slice(&body).ok();
    let said = said.as_ref().and_then(|said| said["message"].as_str());
    Err(Failed::new(said.map_or_else(|| refusal(status), str::to_owned)))
}

fn refusal(status: StatusCode) -> String {
    format!("the daemon answered {status}")
}

fn segment(text: &str) -> String {
    utf8_percent_encode(text, UNRESERVED).to_string()
}

fn file_uri(session: &str, name: &str) -> String {
    let name: Vec<_> = name.split('/').map(segment).collect();
    format!("/sessions/{}/files/{}", segment(session), name.join("/"))
}

fn whole(text: String) -> Body {
    Full::new(Bytes::from(text)).map_err(|never| match never {}).boxed_unsync()
}

fn empty() -> Body {
    whole(String::new())
}
