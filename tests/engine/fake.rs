//! A fake engine that answers as a test says: byte for byte, in part, late, or not at all.
//!
//! It knows just enough HTTP to tell requests apart, shares no code with the client, and reports every
//! request and the end of every connection, so that tests wait for those instead of for time to pass.

use std::sync::Arc;
use std::time::Duration;

use paddock::engine::{Engine, EngineError, EngineHost, EngineLimits};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::mpsc;
use tokio_util::task::AbortOnDropHandle;

/// One thing that the fake does on a connection.
#[derive(Debug, Clone)]
pub(crate) enum Step {
    /// Sends these bytes.
    Send(Vec<u8>),
    /// Sends these bytes again and again until the client disconnects.
    Flood(Vec<u8>),
    /// Does nothing more until the client disconnects.
    Hang,
    /// Sends back what it receives, until the client stops sending.
    Echo,
    /// Closes the connection.
    Close,
}

/// An observation of the fake.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Seen {
    /// A request: its connection, and `METHOD TARGET`.
    Request(usize, String),
    /// The end of a connection.
    Gone(usize),
}

type Script = Arc<dyn Fn(&str, usize) -> Vec<Step> + Send + Sync>;

pub(crate) struct Fake {
    pub(crate) host: EngineHost,
    seen: mpsc::UnboundedReceiver<Seen>,
    _accepting: AbortOnDropHandle<()>,
    _folder: Option<tempfile::TempDir>,
}

pub(crate) const TRANSPORTS: [&str; 2] = ["unix", "tcp"];

impl Fake {
    /// A fake on `transport` that answers by `script(request, n)`; `n` counts requests with the same first
    /// word of their path from 0. An empty list of steps means the answer of a good engine.
    pub(crate) async fn on(
        transport: &str,
        script: impl Fn(&str, usize) -> Vec<Step> + Send + Sync + 'static,
    ) -> Fake {
        let (tell, seen) = mpsc::unbounded_channel();
        let script: Script = Arc::new(script);
        let counts = Arc::new(std::sync::Mutex::new(std::collections::HashMap::new()));
        if transport == "tcp" {
            let listener = TcpListener::bind("127.0.0.1:0").await.expect("bind");
            let host = format!("tcp://{}", listener.local_addr().expect("an address"));
            let accepting = tokio::spawn(async move {
                for number in 0.. {
                    let (stream, _) = listener.accept().await.expect("accept");
                    tokio::spawn(serve(stream, number, script.clone(), counts.clone(), tell.clone()));
                }
            });
            let _accepting = AbortOnDropHandle::new(accepting);
            return Fake { host: host.parse().expect("a host"), seen, _accepting, _folder: None };
        }
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("engine.sock");
        let listener = UnixListener::bind(&path).expect("bind");
        let host = format!("unix://{}", path.display());
        let accepting = tokio::spawn(async move {
            for number in 0.. {
                let (stream, _) = listener.accept().await.expect("accept");
                tokio::spawn(serve(stream, number, script.clone(), counts.clone(), tell.clone()));
            }
        });
        let _accepting = AbortOnDropHandle::new(accepting);
        Fake { host: host.parse().expect("a host"), seen, _accepting, _folder: Some(folder) }
    }

    /// A client of this fake whose deadlines are short.
    pub(crate) async fn engine(&self) -> Result<Engine, EngineError> {
        Engine::connect(&self.host, short_limits()).await
    }

    /// The next observation.
    pub(crate) async fn next(&mut self) -> Seen {
        let next = tokio::time::timeout(Duration::from_secs(10), self.seen.recv()).await;
        next.expect("nothing more was seen").expect("the fake is there")
    }

    /// Waits for a request that contains `text`; returns its connection and the request.
    pub(crate) async fn request(&mut self, text: &str) -> (usize, String) {
        loop {
            match self.next().await {
                Seen::Request(connection, request) if request.contains(text) => return (connection, request),
                Seen::Request(..) | Seen::Gone(_) => {}
            }
        }
    }

    /// Waits for the end of a connection, which `what` should cause.
    pub(crate) async fn gone(&mut self, connection: usize, what: &str) {
        let gone = async { while self.next().await != Seen::Gone(connection) {} };
        let gone = tokio::time::timeout(Duration::from_secs(5), gone).await;
        gone.unwrap_or_else(|_| panic!("{what}: connection {connection} stays open"));
    }

    /// The observations that no test has asked for yet.
    pub(crate) fn rest(&mut self) -> Vec<Seen> {
        std::iter::from_fn(|| self.seen.try_recv().ok()).collect()
    }
}

/// Deadlines that a test can wait for, and that even a busy machine meets where it must.
pub(crate) fn short_limits() -> EngineLimits {
    EngineLimits {
        read: Duration::from_millis(400),
        change: Duration::from_millis(400),
        archive: Duration::from_millis(800),
        archive_idle: Duration::from_millis(300),
        stream_head: Duration::from_millis(400),
        answer_bytes: 100_000,
        event_bytes: 2_000,
        events_longest_wait: Duration::from_millis(20),
        ..EngineLimits::default()
    }
}

/// A complete answer with a Content-Length.
pub(crate) fn answer(status: &str, content_type: &str, body: &str) -> Step {
    let length = body.len();
    let head =
        format!("HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {length}\r\n\r\n");
    Step::Send([head.as_bytes(), body.as_bytes()].concat())
}

/// A complete, valid JSON answer.
pub(crate) fn json(body: &str) -> Step {
    answer("200 OK", "application/json", body)
}

pub(crate) fn bytes(bytes: impl AsRef<[u8]>) -> Step {
    Step::Send(bytes.as_ref().to_vec())
}

/// The answers of a good engine to the other requests of these tests.
fn good(request: &str) -> Vec<Step> {
    if request.contains("/version") {
        return vec![json(&version("1.12", "1.41"))];
    }
    if request.contains("/info") {
        return vec![json(r#"{"SystemTime":"2026-01-01T00:00:00.000000005Z"}"#)];
    }
    vec![answer("200 OK", "text/plain", "OK")]
}

pub(crate) fn version(oldest: &str, newest: &str) -> String {
    format!(
        r#"{{"Version":"x","ApiVersion":"{newest}","MinAPIVersion":"{oldest}","Os":"linux","Arch":"amd64"}}"#
    )
}

type Counts = Arc<std::sync::Mutex<std::collections::HashMap<String, usize>>>;

async fn serve(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    number: usize,
    script: Script,
    counts: Counts,
    tell: mpsc::UnboundedSender<Seen>,
) {
    while let Some(request) = read_request(&mut stream).await {
        let _ = tell.send(Seen::Request(number, request.clone()));
        let count = {
            let kind = request.split('?').next().unwrap_or_default().to_owned();
            let mut counts = counts.lock().expect("no panic");
            let count = counts.entry(kind).or_insert(0);
            *count += 1;
            *count - 1
        };
        let mut steps = script(&request, count);
        if steps.is_empty() {
            steps = good(&request);
        }
        if !act(&mut stream, steps).await {
            break;
        }
    }
    drop(stream);
    let _ = tell.send(Seen::Gone(number));
}

/// Performs the steps; whether the connection serves another request.
async fn act(stream: &mut (impl AsyncRead + AsyncWrite + Unpin), steps: Vec<Step>) -> bool {
    for step in steps {
        match step {
            Step::Send(bytes) => {
                if stream.write_all(&bytes).await.is_err() {
                    return false;
                }
            }
            Step::Flood(bytes) => while stream.write_all(&bytes).await.is_ok() {},
            Step::Hang => {
                // Only the client's disconnect matters, not what it sends.
                let mut sink = [0; 4096];
                while matches!(stream.read(&mut sink).await, Ok(read) if read > 0) {}
                return false;
            }
            Step::Echo => {
                let mut buffer = [0; 4096];
                while let Ok(read @ 1..) = stream.read(&mut buffer).await {
                    if stream.write_all(&buffer[..read]).await.is_err() {
                        return false;
                    }
                }
                return false;
            }
            Step::Close => return false,
        }
    }
    true
}

/// Reads a request's head, and its body if it has a Content-Length; `Hang` reads a chunked body.
async fn read_request(stream: &mut (impl AsyncRead + Unpin)) -> Option<String> {
    let mut head = vec![];
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.ok()?);
    }
    let head = String::from_utf8(head).expect("a request's head is text");
    let length = head
        .lines()
        .find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length:")?.trim().parse().ok());
    let mut body = vec![0; length.unwrap_or(0)];
    stream.read_exact(&mut body).await.ok()?;
    let line = head.lines().next().expect("a request line");
    Some(line.trim_end_matches(" HTTP/1.1").to_owned())
}
