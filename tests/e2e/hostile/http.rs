//! Requests that attack, one a line: `tests/hostile/http.jsonl` has what is sent to the daemon's address, as
//! bytes or as a request with a method, headers and a body, and what must be answered.

use std::time::Duration;

use serde::Deserialize;
use serde_json::{Map, Value};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::rows;
use super::watch::{SECRET, Watch, bytes, expect_none};
use crate::support::{Daemon, TOKEN};

/// A request, and its answer.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    id: String,
    attempt: String,
    /// Sent as it is, in place of the four that follow.
    raw: Option<Vec<Piece>>,
    method: Option<String>,
    path: Option<Piece>,
    /// Beside `Host`, the token, `Content-Type: application/json` and `Connection: close`; null removes one.
    #[serde(default)]
    headers: Map<String, Value>,
    body: Option<Body>,
    /// Ends its half after sending.
    #[serde(default)]
    ends: bool,
    expect: Expected,
}

/// A text, in which `<HOST>` and `<TOKEN>` are replaced, or one that comes many times.
#[derive(Deserialize)]
#[serde(untagged)]
enum Piece {
    Text(String),
    Many { text: String, times: usize },
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Body {
    Pieces(Vec<Piece>),
    Text(String),
    /// A JSON-RPC message.
    Message(Map<String, Value>),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Expected {
    /// One of these; 0 is the end of the connection without an answer.
    status: Vec<u16>,
    /// The code of a JSON-RPC error.
    code: Option<i64>,
    /// The code of a tool's refusal.
    error: Option<String>,
    #[serde(default)]
    contains: Vec<String>,
    #[serde(default)]
    without: Vec<String>,
    /// Seconds in which the answer is complete.
    within: Option<u64>,
}

impl Piece {
    fn bytes(&self, d: &Daemon) -> Vec<u8> {
        let fill = |text: &str| bytes(&text.replace("<HOST>", &d.addr.to_string()).replace("<TOKEN>", TOKEN));
        match self {
            Piece::Text(text) => fill(text),
            Piece::Many { text, times } => fill(text).repeat(*times),
        }
    }
}

impl Row {
    fn request(&self, d: &Daemon) -> Vec<u8> {
        if let Some(raw) = &self.raw {
            return raw.iter().flat_map(|piece| piece.bytes(d)).collect();
        }
        let body = match &self.body {
            None => Vec::new(),
            Some(Body::Text(text)) => bytes(text),
            Some(Body::Pieces(pieces)) => pieces.iter().flat_map(|piece| piece.bytes(d)).collect(),
            Some(Body::Message(message)) => Value::Object(message.clone()).to_string().into_bytes(),
        };
        let mut headers = vec![
            ("host".to_owned(), d.addr.to_string()),
            ("authorization".to_owned(), format!("Bearer {TOKEN}")),
            ("connection".to_owned(), "close".to_owned()),
            ("content-length".to_owned(), body.len().to_string()),
        ];
        if !body.is_empty() {
            headers.push(("content-type".to_owned(), "application/json".to_owned()));
        }
        for (name, value) in &self.headers {
            headers.retain(|(known, _)| !known.eq_ignore_ascii_case(name));
            if let Some(value) = value.as_str() {
                headers.push((name.clone(), value.to_owned()));
            }
        }
        let path = self.path.as_ref().map_or_else(|| b"/mcp".to_vec(), |path| path.bytes(d));
        let mut all =
            [self.method.as_deref().unwrap_or("POST").as_bytes(), b" ", &path, b" HTTP/1.1\r\n"].concat();
        for (name, value) in headers {
            let value = Piece::Text(value).bytes(d);
            all.extend([name.as_bytes(), b": ", &value, b"\r\n"].concat());
        }
        all.extend_from_slice(b"\r\n");
        all.extend(body);
        all
    }

    async fn attack(&self, d: &Daemon) -> Result<(), String> {
        let within = Duration::from_secs(self.expect.within.unwrap_or(20));
        let exchange = async {
            let stream = TcpStream::connect(d.addr).await.expect("a connection");
            let (mut from, mut to) = stream.into_split();
            let request = self.request(d);
            let ends = self.ends;
            // A daemon that refuses may close before it has read all.
            let sending = tokio::spawn(async move {
                let _ = to.write_all(&request).await;
                if ends {
                    let _ = to.shutdown().await;
                }
                to
            });
            let mut answer = Vec::new();
            let _ = from.read_to_end(&mut answer).await;
            sending.abort();
            String::from_utf8_lossy(&answer).into_owned()
        };
        let Ok(answer) = tokio::time::timeout(within, exchange).await else {
            return Err(format!("the connection is open after {within:?}"));
        };
        self.judge(&answer)
    }

    fn judge(&self, answer: &str) -> Result<(), String> {
        let expect = &self.expect;
        let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
        let (_, body) = answer.split_once("\r\n\r\n").unwrap_or_default();
        // One message, whole or in chunks, or the first event of a stream.
        let line = |line: &&str| line.starts_with('{') || line.starts_with("data: {");
        let message = body.lines().find(line).unwrap_or_default().trim_start_matches("data: ");
        let document: Value = serde_json::from_str(message).unwrap_or_default();
        let error = &document["result"]["structuredContent"]["error"];
        let checks = [
            (!expect.status.contains(&status), "another status"),
            (expect.code.is_some_and(|code| document["error"]["code"] != code), "another code"),
            (expect.error.as_ref().is_some_and(|code| error != code), "another refusal"),
            (expect.contains.iter().any(|text| !answer.contains(text)), "something is missing"),
            (expect.without.iter().any(|text| answer.contains(text)), "something must not be there"),
            (answer.contains(TOKEN) || answer.contains(SECRET), "a secret"),
            (answer.contains("panicked"), "a panic"),
        ];
        match checks.into_iter().find(|(wrong, _)| *wrong) {
            None => Ok(()),
            Some((_, what)) => Err(format!("{what}: {}", answer.chars().take(600).collect::<String>())),
        }
    }
}

#[tokio::test]
async fn requests_that_attack_harm_nobody() {
    let d = Daemon::with().env("FILE_SECRET", SECRET).set("http.body_timeout", "3s").start().await;
    let watch = Watch::over(&d).await;
    let rows: Vec<Row> = rows("http.jsonl");
    let mut faults = Vec::new();
    for row in &rows {
        faults.extend(watch.judge((&row.id, &row.attempt), row.attack(&d).await).await);
    }
    expect_none(&faults, rows.len());
    watch.end().await;
    d.stop().await;
}
