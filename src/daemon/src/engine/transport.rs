//! The only place that sends requests and reads answers: connections, deadlines, caps, and the kinds of
//! errors.
//!
//! Ordinary calls share a keep-alive pool; a hijack opens a connection of its own, so that it can never get a
//! stale one. A call that is dropped, fails, or leaves part of its body unread closes its connection.
//!
//! It must never log or keep a body, never wait without a deadline, never read without a cap, and never send
//! a request twice that may have had an effect: hyper repeats only requests that it has not begun to send,
//! and [`Transport::ask`] repeats only a `GET` or `HEAD`, once, if a kept connection turned out to be dead.

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

use super::call::{EngineCall, SendBody};
use super::connect::{Connector, EngineStream};
use super::error::{BoxError, EngineError};
use super::host::{Address, EngineHost};
use super::limits::{ERROR_BYTES, EngineLimits, HEAD_BYTES, IDLE_CONNECTION};
use super::op::EngineOp;
use super::ssh;
use super::tls;
use super::version::ApiVersion;
use crate::metrics::Metrics;

/// The placeholder authority in a request's target. The connector ignores it, and the origin form removes it.
const STAND_IN: &str = "http://engine";

pub(super) struct Transport {
    pub(super) host: EngineHost,
    pub(super) limits: EngineLimits,
    /// `None` until it is negotiated; requests then have no version in their path.
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
        let idle = if matches!(host.address(), Address::Ssh(_)) { ssh::IDLE } else { IDLE_CONNECTION };
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(idle)
            .pool_max_idle_per_host(limits.idle_connections)
            .http1_max_buf_size(HEAD_BYTES)
            .set_host(false)
            .build(connector.clone());
        let host_header = match host.address() {
            // A socket's path is not a host name; Docker's own client sends this one.
            Address::Unix(_) | Address::Ssh(_) => HeaderValue::from_static("api.moby.localhost"),
            Address::Tcp { .. } => HeaderValue::from_str(host.to_string().trim_start_matches("tcp://"))
                .map_err(|source| unreachable(source.into()))?,
        };
        Ok(Transport { host: host.clone(), limits, version: None, metrics, connector, client, host_header })
    }

    /// Sends `call` and returns its successful answer, with the body still to be read. The call's deadline
    /// includes the reading of that body.
    pub(super) async fn ask(&self, call: EngineCall) -> Result<EngineResponse, EngineError> {
        self.counted(call.op, self.ask_uncounted(call)).await
    }

    /// Counts a call and its outcome.
    async fn counted<T>(
        &self,
        op: EngineOp,
        call: impl Future<Output = Result<T, EngineError>>,
    ) -> Result<T, EngineError> {
        let begun = Instant::now();
        let done = call.await;
        let outcome = done.as_ref().map_or_else(EngineError::outcome, |_| "ok");
        self.metrics.engine_called(op.as_str(), outcome, begun.elapsed());
        done
    }

    async fn ask_uncounted(&self, call: EngineCall) -> Result<EngineResponse, EngineError> {
        let (op, after, cap) = (call.op, call.within, call.cap);
        let until = Instant::now() + after;
        let again = (call.method == Method::GET || call.method == Method::HEAD)
            .then(|| EngineCall::new(op, call.target.clone(), after, cap));
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
        let answer = EngineResponse { op, until, after, cap, response };
        let status = answer.response.status();
        if status.is_success() || status == StatusCode::NOT_MODIFIED {
            return Ok(answer);
        }
        if status.is_informational() {
            return Err(EngineError::protocol(
                op,
                format!("status {status}, which the call did not ask for"),
            ));
        }
        Err(answer.refusal().await)
    }

    /// Sends `call` on a connection of its own, and takes that connection over.
    ///
    /// Returns the answer's Content-Type, the connection, and the bytes that the engine sent behind its
    /// answer's head.
    pub(super) async fn hijack(
        &self,
        call: EngineCall,
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
        call: EngineCall,
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
                .map_err(|_| EngineError::protocol(op, "the upgraded connection is not the opened one"))?;
            return Ok((content_type, parts.io, parts.read_buf));
        }
        if status.is_success() || status.is_informational() {
            let what = format!("status {status}; it must be 101 to hand the connection over");
            return Err(EngineError::protocol(op, what));
        }
        Err(EngineResponse { op, until, after, cap, response }.refusal().await)
    }

    /// The request of `call`. `base` begins its target: an authority for the pool, nothing for a connection
    /// of its own.
    fn request(&self, base: &str, call: EngineCall) -> Result<Request<SendBody>, EngineError> {
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

    fn failed(&self, op: EngineOp, error: ClientError) -> EngineError {
        if error.is_connect() {
            return EngineError::Unreachable { host: self.host.clone(), source: error.into() };
        }
        match error.source().and_then(|cause| cause.downcast_ref::<hyper::Error>()) {
            Some(cause) => match FailureKind::on(cause) {
                FailureKind::Lost => EngineError::Lost { op, source: error.into() },
                FailureKind::Upload => EngineError::Upload { op, source: error.into() },
                FailureKind::NotHttp => EngineError::protocol(op, cause.to_string()),
            },
            None => EngineError::Lost { op, source: error.into() },
        }
    }
}

/// An answer: its head, and its body still to be read within the call's deadline.
pub(super) struct EngineResponse {
    pub(super) op: EngineOp,
    until: Instant,
    after: Duration,
    cap: usize,
    response: Response<Incoming>,
}

impl EngineResponse {
    pub(super) fn header(&self, name: &str) -> Option<&HeaderValue> {
        self.response.headers().get(name)
    }

    /// The media type of the body, without its parameters.
    pub(super) fn content_type(&self) -> Option<&str> {
        content_type(&self.response)
    }

    /// Reads the body as JSON. Refuses any other Content-Type, which means that another kind of server
    /// answered.
    pub(super) async fn json<T: DeserializeOwned>(self) -> Result<T, EngineError> {
        let op = self.op;
        if self.content_type() != Some("application/json") {
            let found = self.content_type().unwrap_or("no type");
            return Err(EngineError::protocol(
                op,
                format!("its content type is {found}, not application/json"),
            ));
        }
        let body = self.whole().await?;
        parse(op, &body)
    }

    /// Reads the body to its end and drops it, so that the connection can be used again.
    pub(super) async fn discard(self) -> Result<(), EngineError> {
        self.whole().await.map(drop)
    }

    /// The body as a stream, from here on without the call's deadline: the caller must set bounds of its own.
    pub(super) fn into_body(self) -> Incoming {
        self.response.into_body()
    }

    async fn whole(self) -> Result<Bytes, EngineError> {
        let EngineResponse { op, until, after, cap, response } = self;
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

    /// The error of a failing answer. Its status counts even if its body is cut, late or endless.
    async fn refusal(self) -> EngineError {
        let EngineResponse { op, until, response, .. } = self;
        let status = response.status();
        let mut body = response.into_body();
        let mut message = BytesMut::new();
        while message.len() < ERROR_BYTES {
            match timeout_at(until, next_data(op, &mut body)).await {
                Ok(Ok(Some(data))) => message.extend_from_slice(&data),
                Ok(Ok(None) | Err(_)) | Err(_) => break,
            }
        }
        message.truncate(ERROR_BYTES);
        EngineError::refused(op, status, &message)
    }
}

/// The next piece of a body; `None` at its proper end. Cancel safe.
pub(super) async fn next_data(op: EngineOp, body: &mut Incoming) -> Result<Option<Bytes>, EngineError> {
    loop {
        match body.frame().await {
            None => return Ok(None),
            Some(Err(error)) => return Err(from_hyper(op, error)),
            // Any other frame is a trailer, which the Engine API does not use.
            Some(Ok(frame)) => match frame.into_data() {
                Ok(data) => return Ok(Some(data)),
                Err(_) => continue,
            },
        }
    }
}

/// Reads `json` into `T`. The error names the position of the mistake, never the content.
pub(super) fn parse<T: DeserializeOwned>(op: EngineOp, json: &[u8]) -> Result<T, EngineError> {
    let mut reader = serde_json::Deserializer::from_slice(json);
    let parsed = serde_path_to_error::deserialize(&mut reader).map_err(|error| {
        let (path, inner) = (error.path().to_string(), error.inner());
        let kind = match inner.classify() {
            serde_json::error::Category::Data => "JSON of another shape",
            serde_json::error::Category::Eof => "JSON that ends too early",
            serde_json::error::Category::Io | serde_json::error::Category::Syntax => "invalid JSON",
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

/// The meaning of an error of hyper.
enum FailureKind {
    Lost,
    NotHttp,
    Upload,
}

impl FailureKind {
    fn on(error: &hyper::Error) -> FailureKind {
        // A malformed chunk is an I/O error of these kinds; a cut one is an unexpected end of file. An error
        // of TLS, for example that the engine does not trust our certificate, has the same kind, but ends the
        // connection.
        let malformed =
            error.source().and_then(|cause| cause.downcast_ref::<io::Error>()).is_some_and(|cause| {
                matches!(cause.kind(), io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput)
                    && tls::inside(cause).is_none()
            });
        if error.is_parse() || malformed {
            FailureKind::NotHttp
        } else if error.is_user() {
            FailureKind::Upload
        } else {
            FailureKind::Lost
        }
    }
}

fn from_hyper(op: EngineOp, error: hyper::Error) -> EngineError {
    match FailureKind::on(&error) {
        FailureKind::Lost => EngineError::Lost { op, source: error.into() },
        FailureKind::NotHttp => EngineError::protocol(op, error.to_string()),
        FailureKind::Upload => EngineError::Upload { op, source: error.into() },
    }
}

/// Whether a request failed because the engine had already closed the kept connection: a restart of the
/// engine leaves such connections in the pool.
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
