//! The one place where requests leave and answers come in: pool, deadlines, caps, and errors told apart.
//!
//! Ordinary calls share a keep-alive pool; a hijack takes a connection of its own, so that it can never meet a
//! stale one. A call that is dropped, fails, or leaves part of its body unread closes its connection.
//!
//! It must never log or keep a body, never wait without a deadline, never read without a cap, and never send a
//! request a second time that may have had an effect: hyper repeats only what it had not begun to send, and
//! [`Transport::ask`] repeats only a `GET` or `HEAD`, once, when a kept connection turned out to be dead.

use std::error::Error as StdError;
use std::io;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::BodyExt;
use hyper::body::{Body, Incoming};
use hyper_util::client::legacy::{Client, Error as ClientError};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use serde::de::DeserializeOwned;
use tokio::time::{Instant, timeout_at};
use tokio_util::task::AbortOnDropHandle;

use super::call::{Call, SendBody};
use super::connect::{Connector, EngineStream};
use super::error::{BoxError, EngineError};
use super::host::{Address, EngineHost};
use super::limits::{ERROR_BYTES, EngineLimits, HEAD_BYTES, IDLE_CONNECTION};
use super::op::Op;
use super::tls;
use super::version::ApiVersion;
use crate::metrics::Metrics;

/// What stands in a request's target before origin form removes it; the connector ignores it.
const STAND_IN: &str = "http://engine";

pub(super) struct Transport {
    pub(super) host: EngineHost,
    pub(super) limits: EngineLimits,
    /// Unknown until negotiated; requests then have no version in their path.
    pub(super) version: Option<ApiVersion>,
    metrics: Metrics,
    connector: Connector,
    client: Client<Connector, SendBody>,
    host_header: HeaderValue,
}

impl Transport {
    pub(super) fn new(
        host: &EngineHost,
        limits: EngineLimits,
        metrics: Metrics,
    ) -> Result<Transport, EngineError> {
        let unreachable = |source: BoxError| EngineError::Unreachable { host: host.clone(), source };
        let connector = Connector::new(host, limits.connect).map_err(unreachable)?;
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_CONNECTION)
            .pool_max_idle_per_host(limits.idle_connections)
            .http1_max_buf_size(HEAD_BYTES)
            .set_host(false)
            .build(connector.clone());
        let host_header = match host.address() {
            // A socket's path is no host name; this is what Docker's own client sends.
            Address::Unix(_) => HeaderValue::from_static("api.moby.localhost"),
            Address::Tcp { .. } => HeaderValue::from_str(host.to_string().trim_start_matches("tcp://"))
                .map_err(|source| unreachable(source.into()))?,
        };
        Ok(Transport { host: host.clone(), limits, version: None, metrics, connector, client, host_header })
    }

    /// Sends `call` and gives its successful answer with the body still to be read; the call's deadline goes on
    /// running over that body.
    pub(super) async fn ask(&self, call: Call) -> Result<Answer, EngineError> {
        self.counted(call.op, self.ask_uncounted(call)).await
    }

    /// Counts a call, and how it went.
    async fn counted<T>(
        &self,
        op: Op,
        call: impl Future<Output = Result<T, EngineError>>,
    ) -> Result<T, EngineError> {
        let begun = Instant::now();
        let done = call.await;
        let outcome = done.as_ref().map_or_else(EngineError::outcome, |_| "ok");
        self.metrics.engine_called(op.as_str(), outcome, begun.elapsed());
        done
    }

    async fn ask_uncounted(&self, call: Call) -> Result<Answer, EngineError> {
        let (op, after, cap) = (call.op, call.within, call.cap);
        let until = Instant::now() + after;
        let again = (call.method == Method::GET || call.method == Method::HEAD)
            .then(|| Call::new(op, call.method.clone(), call.target.clone(), after, cap));
        let request = self.request(STAND_IN, call)?;

        let asked = async {
            match (self.client.request(request).await, again) {
                (Err(error), Some(again)) if went_stale(&error) => {
                    let request = self.request(STAND_IN, again)?;
                    self.client.request(request).await.map_err(|error| self.failed(op, error))
                }
                (Err(error), _) => Err(self.failed(op, error)),
                (Ok(response), _) => Ok(response),
            }
        };
        let response = timeout_at(until, asked).await.map_err(|_| EngineError::Deadline { op, after })??;
        let answer = Answer { op, until, after, cap, response };
        let status = answer.response.status();
        if status.is_success() || status == StatusCode::NOT_MODIFIED {
            return Ok(answer);
        }
        if status.is_informational() {
            return Err(EngineError::protocol(op, format!("{status} that nobody asked for")));
        }
        Err(answer.refusal().await)
    }

    /// Sends `call` on a connection of its own and asks for the connection itself.
    ///
    /// Gives the answer's Content-Type, the connection, and what the engine had sent after its answer's head.
    pub(super) async fn hijack(
        &self,
        call: Call,
    ) -> Result<(Option<String>, EngineStream, Bytes), EngineError> {
        let (op, after) = (call.op, call.within);
        let bounded = async {
            let hijack = timeout_at(Instant::now() + after, self.hijack_unbounded(call));
            hijack.await.map_err(|_| EngineError::Deadline { op, after })?
        };
        self.counted(op, bounded).await
    }

    async fn hijack_unbounded(
        &self,
        call: Call,
    ) -> Result<(Option<String>, EngineStream, Bytes), EngineError> {
        let (op, after, cap) = (call.op, call.within, call.cap);
        let until = Instant::now() + after;
        let mut request = self.request("", call)?;
        let headers = request.headers_mut();
        headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
        headers.insert(header::UPGRADE, HeaderValue::from_static("tcp"));

        let stream = self
            .connector
            .open()
            .await
            .map_err(|source| EngineError::Unreachable { host: self.host.clone(), source })?;
        let lost = |error: hyper::Error| from_hyper(op, error);
        let (mut sender, connection) = hyper::client::conn::http1::Builder::new()
            .max_buf_size(HEAD_BYTES)
            .handshake::<_, SendBody>(stream)
            .await
            .map_err(lost)?;
        let _driver = AbortOnDropHandle::new(tokio::spawn(connection.with_upgrades()));
        let response = sender.send_request(request).await.map_err(lost)?;

        let status = response.status();
        if status == StatusCode::SWITCHING_PROTOCOLS {
            let content_type = content_type(&response).map(str::to_owned);
            let upgraded = hyper::upgrade::on(response).await.map_err(lost)?;
            let parts = upgraded
                .downcast::<EngineStream>()
                .map_err(|_| EngineError::protocol(op, "the connection is not the one that was opened"))?;
            return Ok((content_type, parts.io, parts.read_buf));
        }
        if status.is_success() || status.is_informational() {
            return Err(EngineError::protocol(op, format!("{status} where 101 hands the connection over")));
        }
        Err(Answer { op, until, after, cap, response }.refusal().await)
    }

    /// The request of `call`, its target in the form that `base` begins: absolute for the pool, bare for a
    /// connection of one's own.
    fn request(&self, base: &str, call: Call) -> Result<Request<SendBody>, EngineError> {
        let version = match self.version {
            Some(version) => format!("/v{version}"),
            None => String::new(),
        };
        let mut request = Request::builder()
            .method(call.method)
            .uri(format!("{base}{version}{}", call.target))
            .header(header::HOST, &self.host_header);
        if let Some(content_type) = call.content_type {
            request = request.header(header::CONTENT_TYPE, content_type);
        }
        request.body(call.body).map_err(|source| EngineError::Upload { op: call.op, source: source.into() })
    }

    fn failed(&self, op: Op, error: ClientError) -> EngineError {
        if error.is_connect() {
            return EngineError::Unreachable { host: self.host.clone(), source: error.into() };
        }
        match error.source().and_then(|cause| cause.downcast_ref::<hyper::Error>()) {
            Some(cause) => match Verdict::on(cause) {
                Verdict::Lost => EngineError::Lost { op, source: error.into() },
                Verdict::Upload => EngineError::Upload { op, source: error.into() },
                Verdict::NotHttp => EngineError::protocol(op, cause.to_string()),
            },
            None => EngineError::Lost { op, source: error.into() },
        }
    }
}

/// A successful answer: its head, and its body still to be read within the call's deadline.
pub(super) struct Answer {
    pub(super) op: Op,
    until: Instant,
    after: Duration,
    cap: usize,
    response: Response<Incoming>,
}

impl Answer {
    pub(super) fn header(&self, name: &str) -> Option<&HeaderValue> {
        self.response.headers().get(name)
    }

    /// The media type of the body, without its parameters.
    pub(super) fn content_type(&self) -> Option<&str> {
        content_type(&self.response)
    }

    /// Reads the body as JSON. Refuses another Content-Type: that is some other server's page.
    pub(super) async fn json<T: DeserializeOwned>(self) -> Result<T, EngineError> {
        let op = self.op;
        if self.content_type() != Some("application/json") {
            let found = self.content_type().unwrap_or("no type");
            return Err(EngineError::protocol(op, format!("{found} where application/json is due")));
        }
        let body = self.whole().await?;
        parse(op, &body)
    }

    /// Reads the body to its end and forgets it, so that the connection can be used again.
    pub(super) async fn discard(self) -> Result<(), EngineError> {
        self.whole().await.map(drop)
    }

    /// The body as it comes, from here on without the call's deadline: for those who set bounds of their own.
    pub(super) fn into_body(self) -> Incoming {
        self.response.into_body()
    }

    async fn whole(self) -> Result<Bytes, EngineError> {
        let Answer { op, until, after, cap, response } = self;
        let mut body = response.into_body();
        let too_large = || EngineError::TooLarge { op, cap: cap as u64 };
        if body.size_hint().lower() > cap as u64 {
            return Err(too_large());
        }
        let mut bytes = BytesMut::new();
        loop {
            let next = timeout_at(until, next_data(op, &mut body)).await;
            match next.map_err(|_| EngineError::Deadline { op, after })?? {
                Some(data) if bytes.len() + data.len() > cap => return Err(too_large()),
                Some(data) => bytes.extend_from_slice(&data),
                None => return Ok(bytes.freeze()),
            }
        }
    }

    /// The error that a failing answer is: its status counts even when its body is cut, late or endless.
    async fn refusal(self) -> EngineError {
        let Answer { op, until, response, .. } = self;
        let status = response.status();
        let mut body = response.into_body();
        let mut said = BytesMut::new();
        while said.len() < ERROR_BYTES {
            match timeout_at(until, next_data(op, &mut body)).await {
                Ok(Ok(Some(data))) => said.extend_from_slice(&data),
                Ok(Ok(None) | Err(_)) | Err(_) => break,
            }
        }
        said.truncate(ERROR_BYTES);
        EngineError::refused(op, status, &said)
    }
}

/// The next piece of a body; `None` at its proper end. Cancel safe.
pub(super) async fn next_data(op: Op, body: &mut Incoming) -> Result<Option<Bytes>, EngineError> {
    loop {
        match body.frame().await {
            None => return Ok(None),
            Some(Err(error)) => return Err(from_hyper(op, error)),
            // What is no data is a trailer, of which the Engine API has none.
            Some(Ok(frame)) => match frame.into_data() {
                Ok(data) => return Ok(Some(data)),
                Err(_) => continue,
            },
        }
    }
}

/// Reads `json` into `T`; the error says where it is wrong, never what stands there.
pub(super) fn parse<T: DeserializeOwned>(op: Op, json: &[u8]) -> Result<T, EngineError> {
    let mut reader = serde_json::Deserializer::from_slice(json);
    let parsed = serde_path_to_error::deserialize(&mut reader).map_err(|error| {
        let (path, inner) = (error.path().to_string(), error.inner());
        let kind = match inner.classify() {
            serde_json::error::Category::Data => "JSON of another shape",
            serde_json::error::Category::Eof => "JSON that ends too early",
            serde_json::error::Category::Io | serde_json::error::Category::Syntax => "no JSON",
        };
        EngineError::protocol(
            op,
            format!("{kind} at `{path}`, line {} column {}", inner.line(), inner.column()),
        )
    })?;
    reader.end().map_err(|_| EngineError::protocol(op, "more after the end of the JSON"))?;
    Ok(parsed)
}

fn content_type(response: &Response<Incoming>) -> Option<&str> {
    let value = response.headers().get(header::CONTENT_TYPE)?.to_str().ok()?;
    Some(value.split(';').next().unwrap_or(value).trim())
}

/// What a failure of hyper's means here.
enum Verdict {
    Lost,
    NotHttp,
    Upload,
}

impl Verdict {
    fn on(error: &hyper::Error) -> Verdict {
        // A malformed chunk comes as an I/O error of these kinds; a cut one as an unexpected end of file. What TLS says, such
        // as that the engine does not believe our certificate, has the same kind and ends the connection.
        let malformed =
            error.source().and_then(|cause| cause.downcast_ref::<io::Error>()).is_some_and(|cause| {
                matches!(cause.kind(), io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput)
                    && tls::inside(cause).is_none()
            });
        if error.is_parse() || malformed {
            Verdict::NotHttp
        } else if error.is_user() {
            Verdict::Upload
        } else {
            Verdict::Lost
        }
    }
}

fn from_hyper(op: Op, error: hyper::Error) -> EngineError {
    match Verdict::on(&error) {
        Verdict::Lost => EngineError::Lost { op, source: error.into() },
        Verdict::NotHttp => EngineError::protocol(op, error.to_string()),
        Verdict::Upload => EngineError::Upload { op, source: error.into() },
    }
}

/// Whether a request failed as one does on a kept connection that the engine had already closed: an engine that
/// was restarted leaves such connections in the pool.
fn went_stale(error: &ClientError) -> bool {
    if error.is_connect() {
        return false;
    }
    let mut cause = error.source();
    while let Some(error) = cause {
        let ended =
            |hyper: &hyper::Error| hyper.is_incomplete_message() || hyper.is_closed() || hyper.is_canceled();
        if error.downcast_ref().is_some_and(ended) {
            return true;
        }
        if let Some(io) = error.downcast_ref::<io::Error>() {
            return matches!(io.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset);
        }
        cause = error.source();
    }
    false
}
