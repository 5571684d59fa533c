//! Models: services whose answers are metered, within budgets of dollars and of tokens.
//!
//! ```text
//!  request ─ route ─ is it one whose cost is told? ─ held: which model? ─ budgets ─► the model
//!                                                                                       │
//!  program ◄──────────────── mask ◄── body ── every byte, as it is ◄────────────────────┘
//!                                       └ meter ─► account of the run, spending of the tenant, metrics
//! ```
//!
//! `dollars`, `scan`, `meter` and `route` are pure. A budget is compared before a request is sent: answers
//! that are under way at that time can overrun it, one for each connection of the run.
//!
//! It must never pass a request whose cost no answer tells, send one to a model without a price within a
//! budget, nor change a byte of an answer.

mod account;
mod body;
mod dollars;
mod meter;
mod route;
mod scan;
mod spending;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use http::request::Parts;
use http::response;
use http::{Method, StatusCode, header};
use http_body::Body;
use serde::Deserialize;
use serde_json::Value;
use tokio::sync::Semaphore;

pub(in crate::egress) use self::account::ModelAccount;
pub use self::account::ModelUsage;
use self::account::{Charge, Payers};
pub(super) use self::body::{HeldBody, MeteredBody};
use self::body::{LONGEST, Metering, Room, Unread};
use self::dollars::Tokens;
pub use self::dollars::{Dollars, Price, Prices};
use self::meter::{Meter, estimate};
pub use self::route::Provider;
use self::route::{Form, Route};
use self::spending::Spending;
use crate::cluster::amounts::{AmountsElsewhere, ToldSpending};
use crate::metrics::{Metrics, ModelOutcome};
use crate::tenants::TenantParts;

/// Tokens that an answer may have whose request does not say how many.
const USUAL_OUTPUT: u64 = 4096;

/// What makes a service a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelSettings {
    /// Whose wire format it speaks.
    pub provider: Provider,
    /// What its tokens cost.
    pub prices: Prices,
    /// What each tenant may spend in a day.
    pub tenant_per_day: Option<Dollars>,
    /// How many tokens, of every kind, each tenant may use in a day.
    pub tenant_tokens_per_day: Option<u64>,
}

/// What all models share.
#[derive(Default)]
pub(in crate::egress) struct Models {
    room: Room,
    spending: Arc<Spending>,
}

impl Models {
    /// Keeps what tenants spend in this file.
    pub(super) fn keep_spending(&self, file: PathBuf) {
        self.spending.keep_in(file);
    }

    /// What tenants spend at other nodes counts too.
    pub(in crate::egress) fn add_elsewhere(&self, elsewhere: Arc<AmountsElsewhere>) {
        self.spending.add_elsewhere(elsewhere);
    }

    /// What each tenant has spent today, at this node.
    pub(in crate::egress) fn spent_today(&self) -> BTreeMap<String, ToldSpending> {
        self.spending.told()
    }

    /// What each tenant may have of the room for requests.
    pub(super) fn parts(&self) -> &TenantParts {
        &self.room.parts
    }
}

/// The run that sends a request to a model, and who pays for it.
pub(super) struct Asking<'a> {
    pub(super) account: &'a Arc<ModelAccount>,
    pub(super) tenant: &'a Arc<str>,
    /// What the run may spend on models.
    pub(super) budget: Option<Dollars>,
    /// What its tenant may spend on all models in a day.
    pub(super) tenant_budget: Option<Dollars>,
    /// How many requests the run may send to models.
    pub(super) requests: Option<u64>,
    /// What its tenant may have of the room for requests; `None` if all of it.
    pub(super) part: Option<Arc<Semaphore>>,
    pub(super) metrics: &'a Metrics,
}

/// One model.
pub(super) struct Model {
    /// The name of its service.
    name: String,
    provider: Provider,
    prices: Arc<Prices>,
    tenant_per_day: Option<Dollars>,
    tenant_tokens_per_day: Option<u64>,
}

/// Why a request is not sent to a model.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ModelRefusal {
    pub(super) status: StatusCode,
    pub(super) code: &'static str,
    pub(super) message: String,
}

/// A request that may be sent.
pub(super) enum Admitted<B> {
    /// As it comes: it costs nothing.
    Free(B),
    /// Held as a whole, and charged.
    Metered(HeldBody, Bill),
}

/// What is known of a metered request until its answer begins.
pub(super) struct Bill {
    form: Form,
    asked: u64,
    charge: Box<Charge>,
}

/// What a request says of itself. Of two equal keys nobody knows which one counts, so they are refused.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Asked {
    model: Option<String>,
    stream: Option<bool>,
    background: Option<bool>,
    max_tokens: Option<u64>,
    max_completion_tokens: Option<u64>,
    max_output_tokens: Option<u64>,
}

impl Model {
    pub(super) fn new(name: &str, settings: &ModelSettings) -> Self {
        Self {
            name: name.to_owned(),
            provider: settings.provider,
            prices: Arc::new(settings.prices.clone()),
            tenant_per_day: settings.tenant_per_day,
            tenant_tokens_per_day: settings.tenant_tokens_per_day,
        }
    }

    pub(super) fn provider(&self) -> Provider {
        self.provider
    }

    /// An error of the daemon's own, in the form of the provider.
    pub(super) fn error(&self, status: StatusCode, code: &str, message: &str) -> Value {
        self.provider.error(status, code, message)
    }

    /// Whether a request may be sent. It is read as a whole, unless it costs nothing.
    ///
    /// # Errors
    /// Why it may not; it is counted.
    pub(super) async fn admit<B: Body<Data = Bytes> + Unpin>(
        &self,
        models: &Models,
        parts: &Parts,
        body: B,
        asking: &Asking<'_>,
    ) -> Result<Admitted<B>, ModelRefusal> {
        let admitted = self.check(models, parts, body, asking).await;
        if admitted.is_err() {
            asking.metrics.model_request(&self.name, ModelOutcome::Refused);
        }
        admitted
    }

    async fn check<B: Body<Data = Bytes> + Unpin>(
        &self,
        models: &Models,
        parts: &Parts,
        body: B,
        asking: &Asking<'_>,
    ) -> Result<Admitted<B>, ModelRefusal> {
        let form = match self.route(&parts.method, parts.uri.path())? {
            Route::Free => return Ok(Admitted::Free(body)),
            Route::Metered(form) => form,
        };
        // Before it is read: a run without money cannot make the daemon hold anything.
        self.check_budgets(&models.spending, asking)?;
        let held = models.room.read(body, asking.part.as_ref()).await.map_err(unread)?;
        let asked: Asked = serde_json::from_slice(&held.bytes).map_err(|error| {
            let message = format!("the body is not a request to a model in JSON: {error}");
            refusal(StatusCode::BAD_REQUEST, "bad_request", message)
        })?;
        if asked.background == Some(true) {
            let message = "`background` is not possible here: nobody would count the tokens of the answer";
            return Err(refusal(StatusCode::BAD_REQUEST, "not_metered", message));
        }
        let model = asked.model.as_deref().unwrap_or_default();
        let has_budget =
            asking.budget.is_some() || asking.tenant_budget.is_some() || self.tenant_per_day.is_some();
        if has_budget && self.prices.find(model).is_none() {
            let message = format!(
                "the model {model:?} has no price on this server, so it cannot be used within a budget of \
                 dollars; models with a price: {}",
                self.prices.names()
            );
            return Err(refusal(StatusCode::BAD_REQUEST, "unpriced_model", message));
        }
        // Others may have spent something while it was read.
        self.check_budgets(&models.spending, asking)?;
        let bytes = u64::try_from(held.len()).unwrap_or(u64::MAX);
        let most = asked.max_tokens.or(asked.max_completion_tokens).or(asked.max_output_tokens);
        // A stream begins before its model has written anything.
        let output = if asked.stream == Some(true) { 0 } else { most.unwrap_or(USUAL_OUTPUT) };
        let abandoned = Tokens { input: estimate(bytes), output, ..Tokens::default() };
        let payers = Payers {
            run: asking.account.clone(),
            spending: models.spending.clone(),
            metrics: asking.metrics.clone(),
            service: self.name.clone(),
            tenant: asking.tenant.clone(),
            prices: self.prices.clone(),
        };
        let charge = Box::new(Charge::begin(payers, model, abandoned));
        Ok(Admitted::Metered(held, Bill { form, asked: bytes, charge }))
    }

    fn route(&self, method: &Method, path: &str) -> Result<Route, ModelRefusal> {
        self.provider.route(method, path).ok_or_else(|| {
            let message =
                format!("this server passes only {} to the model {:?}", self.provider.routes(), self.name);
            refusal(StatusCode::NOT_FOUND, "not_metered", message)
        })
    }

    /// Whether there is anything left to spend, and a request left to send.
    fn check_budgets(&self, spending: &Spending, asking: &Asking<'_>) -> Result<(), ModelRefusal> {
        let used = asking.account.used();
        if let Some(most) = asking.requests.filter(|most| used.requests >= *most) {
            let message = format!(
                "the turns of this task, {most}, are used up: its agent may send no more requests to models \
                 (max_turns)"
            );
            return Err(refusal(StatusCode::FORBIDDEN, "turns_used_up", message));
        }
        let spent = used.cost_usd;
        if let Some(budget) = asking.budget.filter(|budget| spent >= *budget) {
            let message =
                format!("the budget of this run for models, {budget}, is used up: it has spent {spent}");
            return Err(refusal(StatusCode::PAYMENT_REQUIRED, "budget_used_up", message));
        }
        let used_up = asking.tenant_budget.and_then(|budget| {
            let spent = spending.on_all_models(asking.tenant);
            (spent >= budget).then_some((budget, spent))
        });
        if let Some((budget, spent)) = used_up {
            let message = format!(
                "the budget of this caller for all models, {budget} a day (limits.model_usd_per_day), is \
                 used up: {spent} were spent today (UTC)"
            );
            return Err(refusal(StatusCode::PAYMENT_REQUIRED, "budget_used_up", message));
        }
        let spent = spending.spent(&self.name, asking.tenant);
        let used_up = |budget: String, spent: String| {
            let message = format!(
                "the budget of this caller for the model {:?}, {budget} a day, is used up: {spent} were \
                 spent today (UTC)",
                self.name
            );
            Err(refusal(StatusCode::PAYMENT_REQUIRED, "budget_used_up", message))
        };
        if let Some(budget) = self.tenant_per_day.filter(|budget| spent.usd >= *budget) {
            return used_up(budget.to_string(), spent.usd.to_string());
        }
        if let Some(budget) = self.tenant_tokens_per_day.filter(|budget| spent.tokens >= *budget) {
            return used_up(format!("{budget} tokens"), format!("{} tokens", spent.tokens));
        }
        Ok(())
    }
}

impl Bill {
    /// The answer has begun: how its body is metered. An error costs nothing, and is not.
    pub(super) fn answered(self, answer: &response::Parts) -> Option<Metering> {
        if answer.status == StatusCode::UNAUTHORIZED {
            self.charge.unauthorized();
            return None;
        }
        if !answer.status.is_success() {
            self.charge.fail(ModelOutcome::Error);
            return None;
        }
        let kind = answer.headers.get(header::CONTENT_TYPE).map_or(&b""[..], |value| value.as_bytes());
        let is_stream = kind.to_ascii_lowercase().starts_with(b"text/event-stream");
        Some(Metering::new(Meter::new(self.form, is_stream, self.asked), *self.charge))
    }

    /// There is no answer.
    pub(super) fn failed(self) {
        self.charge.fail(ModelOutcome::Failed);
    }
}

fn refusal(status: StatusCode, code: &'static str, message: impl Into<String>) -> ModelRefusal {
    ModelRefusal { status, code, message: message.into() }
}

fn unread(why: Unread) -> ModelRefusal {
    match why {
        Unread::TooLong => {
            let message = format!("a request to a model may have {} MiB", LONGEST >> 20);
            refusal(StatusCode::PAYLOAD_TOO_LARGE, "too_large", message)
        }
        Unread::Full => {
            let message = "too many large requests to models are under way on this server: try again";
            refusal(StatusCode::SERVICE_UNAVAILABLE, "busy", message)
        }
        Unread::Broken => {
            refusal(StatusCode::BAD_REQUEST, "bad_request", "the body of the request broke off")
        }
    }
}

#[cfg(test)]
mod tests;
