//! HTTP as clients use it: one connection for each request, and exactly the headers that the test sets.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http::header::{HOST, HeaderMap};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::SendRequest;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

use super::{PATIENCE, within};

/// A request to send.
#[derive(Clone)]
pub(crate) struct Request {
    addr: SocketAddr,
    method: String,
    path: String,
    headers: Vec<(String, String)>,
    body: Bytes,
}

/// The answer to a request.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

/// Longer than any call takes: two hundred of them may wait for a container each.
const LONG: Duration = Duration::from_secs(300);

impl Request {
    pub(crate) fn new(addr: SocketAddr, method: &str, path: &str) -> Request {
        Request { addr, method: method.into(), path: path.into(), headers: Vec::new(), body: Bytes::new() }
    }

    /// Adds a header; a second one of the same name is added beside the first.
    pub(crate) fn header(mut self, name: &str, value: &str) -> Request {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Replaces a header.
    pub(crate) fn set(self, name: &str, value: &str) -> Request {
        self.without(name).header(name, value)
    }

    pub(crate) fn without(mut self, name: &str) -> Request {
        self.headers.retain(|(known, _)| !known.eq_ignore_ascii_case(name));
        self
    }

    pub(crate) fn bearer(self, token: &str) -> Request {
        self.set("authorization", &format!("Bearer {token}"))
    }

    pub(crate) fn body(mut self, body: impl Into<Bytes>) -> Request {
        self.body = body.into();
        self
    }

    pub(crate) fn json(self, document: &Value) -> Request {
        self.set("content-type", "application/json").body(document.to_string())
    }

    /// Sends it and reads the whole answer.
    pub(crate) async fn send(self) -> Answer {
        let what = format!("an answer to {} {}", self.method, self.path);
        within(LONG, &what, self.exchange()).await.expect("an answer")
    }

    /// Sends it and reads the head of the answer; the body can then be read as it comes.
    pub(crate) async fn open(self) -> Opened {
        let what = format!("the head of an answer to {} {}", self.method, self.path);
        within(PATIENCE, &what, self.begin()).await.expect("an answer")
    }

    /// Sends it; `None` if the connection failed, or ended without an answer.
    pub(crate) async fn try_send(self) -> Option<Answer> {
        let what = format!("an end of {} {}", self.method, self.path);
        within(LONG, &what, self.exchange()).await.ok()
    }

    async fn exchange(self) -> Result<Answer, Box<dyn std::error::Error>> {
        let Opened { status, headers, body, _connection } = self.begin().await?;
        let body = body.collect().await?.to_bytes();
        Ok(Answer { status, headers, body })
    }

    async fn begin(self) -> Result<Opened, Box<dyn std::error::Error>> {
        let socket = TcpStream::connect(self.addr).await?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(socket)).await?;
        let driving = tokio::spawn(connection);
        let mut request = http::Request::builder().method(self.method.as_str()).uri(&self.path);
        if !self.headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("host")) {
            request = request.header(HOST, self.addr.to_string());
        }
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        let request = request.body(Full::new(self.body)).expect("a request");
        let response = sender.send_request(request).await?;
        let (parts, body) = response.into_parts();
        let _connection = Connection { _sender: sender, driving };
        Ok(Opened { status: parts.status.as_u16(), headers: parts.headers, body, _connection })
    }
}

/// An answer whose body is still coming. Dropping it closes the connection.
pub(crate) struct Opened {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    body: Incoming,
    _connection: Connection,
}

struct Connection {
    _sender: SendRequest<Full<Bytes>>,
    driving: JoinHandle<hyper::Result<()>>,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.driving.abort();
    }
}

impl Opened {
    /// The text of an event stream up to the first event that is `wanted`; all of it if none is.
    pub(crate) async fn read_until(&mut self, what: &str, wanted: impl Fn(&str) -> bool) -> String {
        let mut text = String::new();
        let reading = async {
            while !wanted(&text) {
                let Some(frame) = self.body.frame().await else { break };
                let frame = frame.expect("a piece of the stream");
                text.push_str(&String::from_utf8_lossy(frame.data_ref().expect("data")));
            }
        };
        within(PATIENCE, what, reading).await;
        text
    }

    /// Reads to the end of the body, whichever end it is.
    pub(crate) async fn end(&mut self) {
        while let Some(Ok(_)) = self.body.frame().await {}
    }
}

impl Answer {
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|e| panic!("{e}: {}", self.text()))
    }

    #[track_caller]
    pub(crate) fn expect(self, status: u16) -> Answer {
        assert_eq!(self.status, status, "{}", self.text());
        self
    }

    /// The only header of this name.
    #[track_caller]
    pub(crate) fn header(&self, name: &str) -> String {
        let all: Vec<_> = self.headers.get_all(name).iter().collect();
        assert_eq!(all.len(), 1, "{name}: {all:?}");
        all[0].to_str().expect("ASCII").to_owned()
    }
}

/// The JSON messages of an event stream.
pub(crate) fn events(text: &str) -> Vec<Value> {
    let data = text.lines().filter_map(|line| line.strip_prefix("data:"));
    data.filter(|data| !data.trim().is_empty()).filter_map(|data| serde_json::from_str(data).ok()).collect()
}
