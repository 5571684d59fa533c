//! Which requests go to a model, and how a refusal looks to its client. Pure.
//!
//! It must never let a request pass whose cost no answer tells: batches, stored conversations that run in the
//! background, and everything that is not known here.

use http::{Method, StatusCode};
use serde::Deserialize;
use serde_json::{Value, json};

/// Whose wire format a model speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Provider {
    /// Anthropic's Messages API.
    Anthropic,
    /// OpenAI's APIs, which many other servers speak too.
    OpenAi,
}

/// The form of a metered answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// Anthropic's Messages.
    Messages,
    /// OpenAI's Chat Completions and embeddings.
    Completions,
    /// OpenAI's Responses.
    Responses,
}

impl Form {
    /// Whether a usage of a stream, at this place of an event, is the whole one.
    pub(super) fn is_whole_at(self, slot: super::scan::Slot) -> bool {
        let is_inner = slot == super::scan::Slot::InnerUsage;
        is_inner == (self == Form::Responses)
    }
}

/// A request that goes to a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Route {
    /// It costs what its answer says.
    Metered(Form),
    /// It costs nothing.
    Free,
}

impl Provider {
    /// What a request is; `None` if it does not pass. The path has no query, and is that of the program.
    pub(super) fn route(self, method: &Method, path: &str) -> Option<Route> {
        let path = path.strip_prefix("/v1").unwrap_or(path);
        let names_model =
            path.strip_prefix("/models/").is_some_and(|name| !name.is_empty() && !name.contains('/'));
        match (self, method.as_str(), path) {
            (Provider::Anthropic, "POST", "/messages") => Some(Route::Metered(Form::Messages)),
            (Provider::Anthropic, "POST", "/messages/count_tokens") => Some(Route::Free),
            (Provider::OpenAi, "POST", "/chat/completions" | "/embeddings") => {
                Some(Route::Metered(Form::Completions))
            }
            (Provider::OpenAi, "POST", "/responses") => Some(Route::Metered(Form::Responses)),
            (_, "GET", "/models") => Some(Route::Free),
            (_, "GET", _) if names_model => Some(Route::Free),
            _ => None,
        }
    }

    /// The requests that pass, for an error.
    pub(super) fn routes(self) -> &'static str {
        match self {
            Provider::Anthropic => "POST /v1/messages, POST /v1/messages/count_tokens and GET /v1/models",
            Provider::OpenAi => {
                "POST /v1/chat/completions, POST /v1/responses, POST /v1/embeddings and GET /v1/models"
            }
        }
    }

    /// The URL of the provider itself, to which the paths of programs are added.
    #[must_use]
    pub fn url(self) -> &'static str {
        match self {
            Provider::Anthropic => "https://api.anthropic.com",
            Provider::OpenAi => "https://api.openai.com",
        }
    }

    /// The variable that has the provider's key, by the name that its own clients use.
    #[must_use]
    pub fn variable(self) -> &'static str {
        match self {
            Provider::Anthropic => "ANTHROPIC_API_KEY",
            Provider::OpenAi => "OPENAI_API_KEY",
        }
    }

    /// The header that carries the key, and what stands before the key.
    #[must_use]
    pub fn key_header(self) -> (&'static str, &'static str) {
        match self {
            Provider::Anthropic => ("x-api-key", ""),
            Provider::OpenAi => ("authorization", "Bearer "),
        }
    }

    /// An error of the daemon's own, in the provider's form: agents show its message.
    pub(super) fn error(self, status: StatusCode, code: &str, message: &str) -> Value {
        let kind = match status {
            StatusCode::PAYMENT_REQUIRED if self == Provider::OpenAi => "insufficient_quota",
            StatusCode::PAYMENT_REQUIRED => "billing_error",
            StatusCode::NOT_FOUND => "not_found_error",
            StatusCode::PAYLOAD_TOO_LARGE => "request_too_large",
            StatusCode::TOO_MANY_REQUESTS => "rate_limit_error",
            StatusCode::SERVICE_UNAVAILABLE => "overloaded_error",
            status if status.is_client_error() => "invalid_request_error",
            _ => "api_error",
        };
        match self {
            Provider::Anthropic => json!({ "type": "error", "error": { "type": kind, "message": message } }),
            Provider::OpenAi => {
                json!({ "error": { "message": message, "type": kind, "param": null, "code": code } })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_requests_whose_cost_is_told_pass() {
        use Provider::{Anthropic, OpenAi};
        for (provider, method, path, expected) in [
            (Anthropic, "POST", "/v1/messages", Some(Route::Metered(Form::Messages))),
            (Anthropic, "POST", "/messages", Some(Route::Metered(Form::Messages))),
            (Anthropic, "POST", "/v1/messages/count_tokens", Some(Route::Free)),
            (Anthropic, "GET", "/v1/models/claude-x", Some(Route::Free)),
            (OpenAi, "POST", "/v1/chat/completions", Some(Route::Metered(Form::Completions))),
            (OpenAi, "POST", "/v1/embeddings", Some(Route::Metered(Form::Completions))),
            (OpenAi, "POST", "/v1/responses", Some(Route::Metered(Form::Responses))),
            (OpenAi, "GET", "/models", Some(Route::Free)),
            (Anthropic, "POST", "/v1/messages/batches", None),
            (Anthropic, "POST", "/v1/messages/", None),
            (Anthropic, "POST", "/v1/Messages", None),
            (Anthropic, "POST", "/v1/m%65ssages", None),
            (Anthropic, "GET", "/v1/messages", None),
            (Anthropic, "POST", "/v1/chat/completions", None),
            (Anthropic, "POST", "/v1/v1/messages", None),
            (OpenAi, "POST", "/v1/messages", None),
            (OpenAi, "POST", "/v1/images/generations", None),
            (OpenAi, "POST", "/v1/batches", None),
            (OpenAi, "GET", "/v1/responses/resp_1", None),
            (OpenAi, "DELETE", "/v1/models/x", None),
            (OpenAi, "GET", "/v1/models/x/y", None),
            (OpenAi, "GET", "/", None),
        ] {
            let method: Method = method.parse().unwrap();
            assert_eq!(provider.route(&method, path), expected, "{provider:?} {method} {path}");
        }
    }

    #[test]
    fn an_error_has_the_form_of_its_provider() {
        let of = |provider: Provider, status| provider.error(status, "budget_used_up", "It is used up.");
        assert_eq!(
            of(Provider::Anthropic, StatusCode::PAYMENT_REQUIRED),
            json!({ "type": "error", "error": { "type": "billing_error", "message": "It is used up." } })
        );
        let error = of(Provider::OpenAi, StatusCode::PAYMENT_REQUIRED);
        assert_eq!(error["error"]["type"], "insufficient_quota");
        assert_eq!(error["error"]["code"], "budget_used_up");
        let error = of(Provider::Anthropic, StatusCode::BAD_REQUEST);
        assert_eq!(error["error"]["type"], "invalid_request_error");
        assert_eq!(of(Provider::OpenAi, StatusCode::BAD_GATEWAY)["error"]["type"], "api_error");
    }
}
