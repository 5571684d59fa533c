//! Why a raw request is refused, and the HTTP status for it: the closed codes of the tools, each with its
//! status.

use http::StatusCode;
use http::header::{HeaderValue, RETRY_AFTER};
use serde_json::json;

use crate::api::body::{Answer, BodyError, error, json as answer};
use crate::tools::{CallError, Code, Failure};

/// Why a request is refused.
pub(in crate::api) enum RawRefusal {
    Body(BodyError),
    Failure(Failure),
    /// 412
    Exists(String),
    Status(StatusCode, &'static str, String),
}

impl From<BodyError> for RawRefusal {
    fn from(error: BodyError) -> Self {
        Self::Body(error)
    }
}

impl<T: Into<Failure>> From<T> for RawRefusal {
    fn from(failure: T) -> Self {
        Self::Failure(failure.into())
    }
}

impl RawRefusal {
    pub(super) fn answer(self) -> Answer {
        match self {
            Self::Body(body) => body.answer(),
            Self::Exists(message) => {
                error(StatusCode::PRECONDITION_FAILED, Code::FileExists.as_str(), &message)
            }
            Self::Status(status, code, message) => error(status, code, &message),
            Self::Failure(Failure::Call(CallError::Internal(message))) => {
                error(StatusCode::INTERNAL_SERVER_ERROR, "internal", &message)
            }
            Self::Failure(Failure::Call(call @ (CallError::UnknownTool(..) | CallError::Arguments(_)))) => {
                error(StatusCode::BAD_REQUEST, Code::InvalidArgument.as_str(), &call.to_string())
            }
            Self::Failure(Failure::Fault(fault)) => {
                let status = status_of(fault.code);
                let mut document = json!({ "error": fault.code.as_str(), "message": fault.message });
                if let Some(document) = document.as_object_mut() {
                    document.extend(fault.details);
                }
                let retry = document.get("retry_after_ms").and_then(serde_json::Value::as_u64);
                let mut answer = answer(status, &document);
                if let Some(ms) = retry {
                    answer.headers_mut().insert(RETRY_AFTER, HeaderValue::from(ms.div_ceil(1000).max(1)));
                } else if status == StatusCode::SERVICE_UNAVAILABLE {
                    answer.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("5"));
                }
                answer
            }
        }
    }
}

/// The status of a refusal with this code.
pub(in crate::api) fn status_of(code: Code) -> StatusCode {
    match code {
        Code::InvalidArgument | Code::UnknownLanguage => StatusCode::BAD_REQUEST,
        Code::TooLarge | Code::ArtifactTooLarge => StatusCode::PAYLOAD_TOO_LARGE,
        Code::FileExists | Code::SessionBusy | Code::ExecutionFinished | Code::NotInteractive => {
            StatusCode::CONFLICT
        }
        Code::NotFound | Code::SessionNotFound | Code::ExecutionNotFound => StatusCode::NOT_FOUND,
        Code::NetworkUnavailable | Code::UnsupportedPolicy => StatusCode::FORBIDDEN,
        Code::QuotaExceeded => StatusCode::INSUFFICIENT_STORAGE,
        Code::RateLimited => StatusCode::TOO_MANY_REQUESTS,
        Code::MaxSessions
        | Code::QueueFull
        | Code::EngineUnavailable
        | Code::StoreUnavailable
        | Code::PackagesUnavailable => StatusCode::SERVICE_UNAVAILABLE,
        Code::Lost | Code::FileUnreadable => StatusCode::INTERNAL_SERVER_ERROR,
    }
}
