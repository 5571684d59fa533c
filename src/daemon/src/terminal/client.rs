//! The daemon's HTTP, over the socket in its store: one connection for each request.
//!
//! It must never wait for ever for a daemon that is gone, nor take an answer for whole that is not.

use std::io;
use std::path::Path;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::{ACCEPT, CONTENT_TYPE, HOST};
use http::{Method, Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::client::conn::http1::handshake;
use hyper_util::rt::TokioIo;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Value, json};
use tokio::fs::File;
use tokio::io::AsyncWriteExt;
use tokio::net::UnixStream;
use tokio_util::io::ReaderStream;
use tokio_util::task::AbortOnDropHandle;

use super::Failed;
use crate::api::Door;
use crate::nearby::Nearby;

/// What a path segment of a URL takes as it is.
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Bytes of one event: an answer has two streams of at most a few MiB, escaped, and pictures.
const EVENT: usize = 256 << 20;

/// The revision of MCP that is spoken: each call stands alone, and ends with its connection.
const REVISION: &str = "2026-07-28";

type Body = UnsyncBoxBody<Bytes, io::Error>;

/// A daemon that can be asked.
pub(super) struct Client {
    store: std::path::PathBuf,
}

/// What is told of a call.
pub(super) enum Told {
    /// Its program wrote this; `None` is a remark on the output.
    Piece { stream: Option<Stream>, text: String },
    /// It is over: the tool's document, or why there is none.
    Answer(Result<Value, Failed>),
}

/// A stream of the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stream {
    Stdout,
    Stderr,
}

impl Client {
    /// The daemon of the store that is configured, or this process in its place.
    pub(super) async fn reach(nearby: &mut Nearby) -> Result<Self, Failed> {
        nearby.reach(Door::Http, Duration::ZERO).await.map_err(Failed::new)?;
        Ok(Self::of(nearby))
    }

    /// The daemon of the store, if it still lives when it is asked; nothing is started.
    pub(super) fn of(nearby: &Nearby) -> Self {
        Self { store: nearby.store().to_owned() }
    }

    async fn connect(&self) -> Result<UnixStream, Failed> {
        Door::Http.connect(&self.store).await.map_err(Failed::Gone)
    }

    /// One request, and its answer with the body still to be read; the connection ends with what is kept beside it.
    async fn ask(&self, request: Request<Body>) -> Result<(Response<Incoming>, Kept), Failed> {
        let broke = |error| Failed::Said(format!("the daemon broke the connection off: {error}"));
        let (mut sender, connection) = handshake(TokioIo::new(self.connect().await?)).await.map_err(broke)?;
        let driving = AbortOnDropHandle::new(tokio::spawn(connection));
        let response = sender.send_request(request).await.map_err(broke)?;
        Ok((response, Kept { _sender: sender, _driving: driving }))
    }

    /// Puts a file into a session.
    pub(super) async fn put(&self, session: &str, name: &str, path: &Path) -> Result<(), Failed> {
        let unreadable = |error| Failed::Said(format!("cannot read {}: {error}", path.display()));
        let file = File::open(path).await.map_err(unreadable)?;
        let body = StreamBody::new(futures_util::TryStreamExt::map_ok(ReaderStream::new(file), Frame::data));
        let request =
            Request::builder().method(Method::PUT).uri(place(session, name)).header(HOST, "localhost");
        let request = request.body(body.boxed_unsync()).map_err(Failed::new)?;
        let (response, _kept) = self.ask(request).await?;
        let refused = |why| Failed::Said(format!("{} could not be uploaded: {why}", path.display()));
        well(response).await.map(drop).map_err(refused)
    }

    /// Writes a file of a session to this place.
    pub(super) async fn get(&self, session: &str, name: &str, to: &Path) -> Result<(), Failed> {
        let request = Request::builder().uri(place(session, name)).header(HOST, "localhost");
        let request = request.body(empty()).map_err(Failed::new)?;
        let (response, _kept) = self.ask(request).await?;
        let mut body = well(response).await?;
        let unwritable = |error| Failed::Said(format!("cannot write {}: {error}", to.display()));
        let mut file = File::create(to).await.map_err(unwritable)?;
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| Failed::Said(format!("{name} came in part only: {error}")))?;
            if let Ok(data) = frame.into_data() {
                file.write_all(&data).await.map_err(unwritable)?;
            }
        }
        file.flush().await.map_err(unwritable)
    }

    /// A page of the files of a session.
    pub(super) async fn list(&self, session: &str, cursor: Option<&str>) -> Result<Value, Failed> {
        let cursor = cursor.map(|cursor| format!("&cursor={}", utf8_percent_encode(cursor, SEGMENT)));
        let uri = format!("/sessions/{}/files?limit=1000{}", segment(session), cursor.unwrap_or_default());
        let request = Request::builder().uri(uri).header(HOST, "localhost");
        let (response, _kept) = self.ask(request.body(empty()).map_err(Failed::new)?).await?;
        let body = well(response).await?.collect().await.map_err(Failed::new)?.to_bytes();
        serde_json::from_slice(&body).map_err(Failed::new)
    }

    /// Calls a tool.
    pub(super) async fn call(&self, tool: &str, arguments: Value) -> Result<Running, Failed> {
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
        let (response, kept) = self.ask(request).await?;
        let is_stream = response
            .headers()
            .get(CONTENT_TYPE)
            .is_some_and(|kind| kind.to_str().is_ok_and(|kind| kind.starts_with("text/event-stream")));
        Ok(Running { body: response.into_body(), is_stream, read: BytesMut::new(), _kept: kept })
    }
}

/// What a connection lives by.
struct Kept {
    _sender: hyper::client::conn::http1::SendRequest<Body>,
    _driving: AbortOnDropHandle<hyper::Result<()>>,
}

/// A call under way; dropped, it is cancelled.
pub(super) struct Running {
    body: Incoming,
    is_stream: bool,
    read: BytesMut,
    _kept: Kept,
}

impl Running {
    /// What is told next; after the answer nothing is.
    pub(super) async fn next(&mut self) -> Result<Told, Failed> {
        loop {
            if self.is_stream {
                while let Some(event) = take_event(&mut self.read) {
                    if let Some(told) = told(&event) {
                        return Ok(told);
                    }
                }
            }
            match self.body.frame().await {
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        self.read.extend_from_slice(&data);
                    }
                    if self.read.len() > EVENT {
                        return Err(Failed::new("the daemon's answer has no end"));
                    }
                }
                Some(Err(error)) => {
                    return Err(Failed::Said(format!("the daemon broke its answer off: {error}")));
                }
                None if self.is_stream => return Err(Failed::new("the daemon broke its answer off")),
                None => {
                    let message: Value = serde_json::from_slice(&self.read).map_err(Failed::new)?;
                    return Ok(Told::Answer(answer(&message)));
                }
            }
        }
    }
}

/// The data of the first event in `read` that is whole.
fn take_event(read: &mut BytesMut) -> Option<String> {
    let end = memchr::memmem::find(read, b"\n\n")?;
    let event = read.split_to(end + 2);
    let lines = std::str::from_utf8(&event).ok()?.lines();
    Some(lines.filter_map(|line| line.strip_prefix("data:")).map(str::trim_start).collect())
}

/// What an event says, if it says anything.
fn told(event: &str) -> Option<Told> {
    let message: Value = serde_json::from_str(event).ok()?;
    if message["method"] == "notifications/progress" {
        let params = &message["params"];
        let stream = match params["_meta"]["paddock/stream"].as_str() {
            Some("stdout") => Some(Stream::Stdout),
            Some("stderr") => Some(Stream::Stderr),
            // A remark on the output begins so; other words only say that the call goes on.
            _ if params["message"].as_str().is_some_and(|text| text.starts_with('[')) => None,
            _ => return None,
        };
        let text = params["message"].as_str()?.to_owned();
        return Some(Told::Piece { stream, text });
    }
    message.get("id").is_some().then(|| Told::Answer(answer(&message)))
}

fn answer(message: &Value) -> Result<Value, Failed> {
    if let Some(document) = message["result"].get("structuredContent") {
        return Ok(document.clone());
    }
    let why = message["error"]["message"].as_str().or_else(|| message["message"].as_str());
    Err(Failed::new(why.unwrap_or("the daemon's answer is none")))
}

/// The body of an answer that is no refusal.
async fn well(response: Response<Incoming>) -> Result<Incoming, Failed> {
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
    utf8_percent_encode(text, SEGMENT).to_string()
}

fn place(session: &str, name: &str) -> String {
    let name: Vec<_> = name.split('/').map(segment).collect();
    format!("/sessions/{}/files/{}", segment(session), name.join("/"))
}

fn whole(text: String) -> Body {
    Full::new(Bytes::from(text)).map_err(|never| match never {}).boxed_unsync()
}

fn empty() -> Body {
    whole(String::new())
}
