//! `Prefer: http-status` on a bare call: the HTTP status of the answer then shows a refusal.
//!
//! JSON-RPC over HTTP answers 200 whatever the answer says, and so does this daemon unless the caller asks
//! for more. A workflow tool looks at the status alone: an item whose call was refused stays green, and its
//! result is lost silently. With this header (RFC 7240) a refused call has the status that the raw routes
//! give the same code, `Retry-After` where waiting helps, and `Preference-Applied`; the document is the same.
//!
//! | status | what it means | worth another try |
//! |---|---|---|
//! | 200 | the call was served; `success` says how the program ended | no |
//! | 503, 409, 429 | no container, no engine, a busy session, or a limit of the token; nothing ran | yes |
//! | 400, 403, 404, 413, 507 | the call is wrong, or over a limit; nothing ran | no |
//! | 500 | the daemon failed: what the call did is not known | no |
//!
//! It must never give another status than 200 to a call whose program ran: a client that retries would run it
//! again.

use std::sync::{Arc, OnceLock};

use http::header::{HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use http::{Response, StatusCode};

use crate::api::raw::status_of;
use crate::tools::{CallError, Outcome};

const PREFER: HeaderName = HeaderName::from_static("prefer");
const APPLIED: HeaderName = HeaderName::from_static("preference-applied");
const HTTP_STATUS: &str = "http-status";

/// Seconds after which another try may succeed.
const RETRY: HeaderValue = HeaderValue::from_static("5");

/// Whether the caller prefers a status, and the status of its call. By default it does not.
#[derive(Debug, Clone, Default)]
pub(super) struct Preference(Option<Arc<OnceLock<StatusCode>>>);

impl Preference {
    /// The preference in the headers of a call.
    pub(super) fn of(headers: &HeaderMap) -> Self {
        let values = headers.get_all(PREFER).iter().filter_map(|value| value.to_str().ok());
        let mut tokens = values.flat_map(|value| value.split(','));
        let is_preferred = tokens.any(|token| {
            token.split(';').next().is_some_and(|name| name.trim().eq_ignore_ascii_case(HTTP_STATUS))
        });
        Self(is_preferred.then(Arc::default))
    }

    /// Notes how the call was answered.
    pub(super) fn note(&self, done: &Result<Outcome, CallError>) {
        if let (Some(slot), Some(status)) = (&self.0, status(done)) {
            let _ = slot.set(status);
        }
    }

    /// The answer to a message that could not be read as a call.
    pub(super) fn wrong<B>(&self, answer: Response<B>) -> Response<B> {
        if let Some(slot) = &self.0
            && answer.status() == StatusCode::OK
        {
            let _ = slot.set(StatusCode::BAD_REQUEST);
        }
        self.applied(answer)
    }

    /// The answer with the status that was noted. An answer that streams already keeps its own.
    pub(super) fn applied<B>(&self, mut answer: Response<B>) -> Response<B> {
        let Some(slot) = &self.0 else { return answer };
        if let Some(&status) = slot.get() {
            *answer.status_mut() = status;
            if matches!(status, StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS) {
                answer.headers_mut().insert(RETRY_AFTER, RETRY);
            }
        }
        answer.headers_mut().insert(APPLIED, HeaderValue::from_static(HTTP_STATUS));
        answer
    }
}

/// The status of a call that was not served.
fn status(done: &Result<Outcome, CallError>) -> Option<StatusCode> {
    match done {
        Ok(outcome) => {
            let ran = ["run_id", "execution_id"].iter().any(|id| outcome.document.contains_key(*id));
            outcome.code().filter(|_| outcome.failed && !ran).map(status_of)
        }
        Err(CallError::UnknownTool(..) | CallError::Arguments(_)) => Some(StatusCode::BAD_REQUEST),
        Err(CallError::Internal(_)) => Some(StatusCode::INTERNAL_SERVER_ERROR),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::tools::{Code, Fault};

    fn preferring(values: &[&str]) -> Preference {
        let headers = values.iter().map(|value| (PREFER, value.parse().unwrap()));
        Preference::of(&headers.collect())
    }

    fn answered(preference: &Preference, done: &Result<Outcome, CallError>) -> (u16, bool, bool) {
        preference.note(done);
        let answer = preference.applied(Response::new(()));
        let has = |name: HeaderName| answer.headers().contains_key(name);
        (answer.status().as_u16(), has(RETRY_AFTER), has(APPLIED))
    }

    fn refused(code: Code) -> Result<Outcome, CallError> {
        Ok(Fault::new(code, "no").outcome())
    }

    #[test]
    fn a_refusal_is_seen_by_its_status_where_that_is_preferred() {
        for (code, want) in [
            (Code::MaxSessions, (503, true, true)),
            (Code::QueueFull, (503, true, true)),
            (Code::EngineUnavailable, (503, true, true)),
            (Code::StoreUnavailable, (503, true, true)),
            (Code::SessionBusy, (409, false, true)),
            (Code::UnknownLanguage, (400, false, true)),
            (Code::QuotaExceeded, (507, false, true)),
        ] {
            assert_eq!(answered(&preferring(&["http-status"]), &refused(code)), want, "{code:?}");
            assert_eq!(answered(&Preference::default(), &refused(code)), (200, false, false), "{code:?}");
        }
        let internal = Err(CallError::Internal("x".to_owned()));
        assert_eq!(answered(&preferring(&["http-status"]), &internal), (500, false, true));
        let wrong = preferring(&["http-status"]).wrong(Response::new(()));
        assert_eq!(wrong.status(), StatusCode::BAD_REQUEST);
        assert_eq!(Preference::default().wrong(Response::new(())).status(), StatusCode::OK);
    }

    #[test]
    fn a_program_that_ran_has_200_however_it_ended() {
        for id in ["run_id", "execution_id"] {
            for code in [Code::Lost, Code::QuotaExceeded] {
                let fault = Fault::new(code, "no").with(id, json!("x"));
                let answer = answered(&preferring(&["http-status"]), &Ok(fault.outcome()));
                assert_eq!(answer, (200, false, true), "{code:?} {id}");
            }
        }
        assert_eq!(answered(&preferring(&["http-status"]), &Ok(Outcome::default())), (200, false, true));
    }

    #[test]
    fn the_header_is_read_as_its_rfc_says() {
        let is = |values: &[&str]| preferring(values).0.is_some();
        assert!(is(&["http-status"]) && is(&["wait=10, HTTP-Status;x=1"]) && is(&["wait=10", "http-status"]));
        assert!(!is(&[]) && !is(&["http-statuses"]) && !is(&["x=http-status"]) && !is(&[""]));
    }
}
