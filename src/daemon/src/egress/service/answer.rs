//! One request of a program to a service, and its answer.
//!
//! It must never send a request that was not checked, follow a redirect, nor tell a program more of a failure
//! than its kind: an error of the other side could have anything in it.

use std::error::Error as StdError;
use std::io;

use bytes::Bytes;
use http::header::{self, HeaderName, HeaderValue};
use http::request::Parts;
use http::{Request, Response, StatusCode};
use http_body::Body;
use http_body_util::{Either, Full};
use hyper::body::Incoming;
use serde_json::{Value, json};
use tracing::{info, warn};

use super::body::{MaskedBody, RequestBody};
use super::client::ServiceClient;
use super::model::{Admitted, Asking, Bill, MeteredBody, ModelRefusal, Models};
use super::{Service, header as headers, target};
use crate::egress::run::Run;
use crate::metrics::{Metrics, ServiceOutcome};

/// What Anthropic's and OpenAI's clients obey: they repeat a 401 for minutes otherwise.
const SHOULD_RETRY: HeaderName = HeaderName::from_static("x-should-retry");

/// The body of an answer: the other side's, masked, or the daemon's own.
pub(super) type AnswerBody = Either<MaskedBody<MeteredBody<Incoming>>, Full<Bytes>>;

/// What the requests of one connection need.
pub(super) struct Exchange<'a> {
    pub(super) service: &'a Service,
    pub(super) models: &'a Models,
    pub(super) client: ServiceClient,
    pub(super) run: &'a Run,
    pub(super) host: &'a str,
    pub(super) metrics: &'a Metrics,
}

/// Why a request has no answer of the other side.
struct Problem {
    status: StatusCode,
    code: &'static str,
    message: String,
    outcome: ServiceOutcome,
}

impl Problem {
    fn refused(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        Self { status, code, message: message.into(), outcome: ServiceOutcome::Refused }
    }

    /// A model does not take it; a budget is a bound.
    fn of_model(refusal: ModelRefusal) -> Self {
        let ModelRefusal { status, code, message } = refusal;
        let is_limit = status == StatusCode::PAYMENT_REQUIRED;
        let outcome = if is_limit { ServiceOutcome::Limited } else { ServiceOutcome::Refused };
        Self { status, code, message, outcome }
    }

    fn failed(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        Self { status, code, message: message.into(), outcome: ServiceOutcome::Failed }
    }
}

impl Exchange<'_> {
    /// Answers a request.
    pub(super) async fn answer(&self, request: Request<Incoming>) -> Response<AnswerBody> {
        let method = request.method().clone();
        match self.pass(request).await {
            Ok(answer) => {
                self.metrics.service_request(ServiceOutcome::Answered);
                answer
            }
            Err(problem) => {
                self.metrics.service_request(problem.outcome);
                let (service, code) = (&self.service.name, problem.code);
                // Never the path: a program can write into it what it likes, and so can a caller.
                info!(run_id = self.run.id, service, %method, code, "a request to a service has no answer");
                let document = match &self.service.model {
                    Some(model) => model.error(problem.status, code, &problem.message),
                    None => json!({ "error": code, "message": problem.message }),
                };
                own(problem.status, &document)
            }
        }
    }

    /// Passes a request on, and its answer back.
    async fn pass(&self, request: Request<Incoming>) -> Result<Response<AnswerBody>, Problem> {
        let service = self.service;
        let (parts, body) = request.into_parts();
        let uri = target::target(&service.url, &service.name, &parts.method, &parts.uri, &parts.headers)
            .map_err(|error| Problem::refused(StatusCode::BAD_REQUEST, "bad_request", error.to_string()))?;
        self.run.count_request().map_err(|reason| {
            self.run.blocked(self.host, super::connection::HTTP, &reason);
            Problem {
                status: StatusCode::TOO_MANY_REQUESTS,
                code: "too_many_requests",
                message: reason.to_string(),
                outcome: ServiceOutcome::Limited,
            }
        })?;
        let current = service.credentials.current().await.map_err(|error| {
            warn!(service = service.name, %error, "a service has no credential");
            let message = format!("the server has no credential for the service {:?} now", service.name);
            Problem::failed(StatusCode::BAD_GATEWAY, "no_credential", message)
        })?;
        let asked = uri.to_string();
        let (body, bill) = self.admit(&parts, body).await?;
        let mut sent = Request::new(body);
        *sent.method_mut() = parts.method;
        *sent.uri_mut() = uri;
        *sent.headers_mut() = headers::request(&parts.headers, &current.headers);
        // Of a body of no bytes too: some servers want the length of every POST.
        if parts.headers.contains_key(header::CONTENT_LENGTH)
            && let Some(length) = sent.body().size_hint().exact()
        {
            sent.headers_mut().insert(header::CONTENT_LENGTH, HeaderValue::from(length));
        }
        let answer = match self.client.request(sent).await {
            Ok(answer) => answer,
            Err(error) => {
                bill.into_iter().for_each(Bill::failed);
                return Err(self.unreached(&error));
            }
        };
        let is_whole =
            !matches!(answer.status(), StatusCode::SWITCHING_PROTOCOLS | StatusCode::PARTIAL_CONTENT);
        if !is_whole || !headers::is_plain(answer.headers()) {
            bill.into_iter().for_each(Bill::failed);
            let message = format!(
                "the service {:?} answered in a form that cannot be searched for credentials (a part, \
                 a compressed body, or another protocol), so its answer is not passed on",
                service.name
            );
            return Err(Problem::failed(StatusCode::BAD_GATEWAY, "unreadable_answer", message));
        }
        let (parts, body) = answer.into_parts();
        let body = MeteredBody::new(body, bill.and_then(|bill| bill.answered(&parts)));
        let patterns = current.patterns.clone();
        let mut passed = Response::new(Either::Left(MaskedBody::new(body, patterns)));
        *passed.status_mut() = parts.status;
        let own = (&service.url, service.name.as_str());
        *passed.headers_mut() = headers::answer(&parts.headers, own, &asked, &current.patterns);
        if parts.status == StatusCode::UNAUTHORIZED && service.model.is_some() {
            // The credential is the daemon's: a program that repeats its request changes nothing.
            warn!(service = service.name, "a model refuses the credential that is configured for it");
            passed.headers_mut().insert(SHOULD_RETRY, HeaderValue::from_static("false"));
        }
        Ok(passed)
    }

    /// The body of a request as it is sent: a model's is looked at before.
    async fn admit(&self, parts: &Parts, body: Incoming) -> Result<(RequestBody, Option<Bill>), Problem> {
        let Some(model) = &self.service.model else { return Ok((RequestBody::Passing(body), None)) };
        let run = self.run;
        let asking = Asking {
            account: &run.models,
            tenant: &run.owner,
            budget: run.policy.model_budget(),
            tenant_budget: run.tenant_budget(),
            requests: run.policy.model_requests(),
            part: run.tenant_part(self.models.parts()),
            metrics: self.metrics,
        };
        match model.admit(self.models, parts, body, &asking).await.map_err(Problem::of_model)? {
            Admitted::Free(body) => Ok((RequestBody::Passing(body), None)),
            Admitted::Metered(held, bill) => Ok((RequestBody::Held(held), Some(bill))),
        }
    }

    /// The kind of a failure, for the program; the log has more of it.
    fn unreached(&self, error: &hyper_util::client::legacy::Error) -> Problem {
        let name = &self.service.name;
        let cause = causes(error).last().map(ToString::to_string).unwrap_or_default();
        warn!(run_id = self.run.id, service = name, cause, "a service was not reached");
        let io_errors = causes(error).filter_map(|error| error.downcast_ref::<io::Error>());
        if io_errors.into_iter().any(|error| error.kind() == io::ErrorKind::TimedOut) {
            let message = format!("the service {name:?} did not answer in time");
            return Problem::failed(StatusCode::GATEWAY_TIMEOUT, "service_timeout", message);
        }
        let message = if error.is_connect() {
            format!("the service {name:?} cannot be reached; the server's log says why")
        } else {
            format!("the service {name:?} broke off without an answer")
        };
        Problem::failed(StatusCode::BAD_GATEWAY, "service_unreachable", message)
    }
}

/// An error, and the causes below it.
fn causes<'a>(error: &'a (dyn StdError + 'static)) -> impl Iterator<Item = &'a (dyn StdError + 'static)> {
    let mut next = Some(error);
    std::iter::from_fn(move || {
        let error = next?;
        next = error.source();
        Some(error)
    })
}

/// An answer of the daemon's own.
fn own(status: StatusCode, document: &Value) -> Response<AnswerBody> {
    let mut answer = Response::new(Either::Right(Full::from(document.to_string())));
    *answer.status_mut() = status;
    answer.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    answer
}
