//! What a run has used of models, and the charge of one request: to its run, to its tenant's day, and to the
//! metrics.
//!
//! A charge follows its answer, so that an account is right at any time. It must never forget an answer that
//! nobody waits for any more: dropping a charge settles it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};

use super::dollars::{Dollars, Price, Prices, Tokens};
use super::spending::{Spending, Spent};
use crate::metrics::{Metrics, ModelOutcome};

/// What programs have used of models.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelUsage {
    /// Requests that were sent to a model, errors included.
    pub requests: u64,
    /// Tokens that the models read, without those of the cache.
    pub input_tokens: u64,
    /// Tokens that the models wrote.
    pub output_tokens: u64,
    /// Tokens that were read from the cache.
    pub cache_read_tokens: u64,
    /// Tokens that were written to the cache.
    pub cache_write_tokens: u64,
    /// What all this costs, in dollars, but for requests without a price.
    pub cost_usd: Dollars,
    /// Answers of models that have no price.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unpriced_requests: u64,
    /// Requests whose credential a model refused (401). It is the operator's.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unauthorized_requests: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
fn is_zero(count: &u64) -> bool {
    *count == 0
}

impl ModelUsage {
    /// What of it counts against the budgets of a tenant.
    fn spent(&self) -> Spent {
        let kinds = [self.input_tokens, self.output_tokens, self.cache_read_tokens, self.cache_write_tokens];
        Spent { usd: self.cost_usd, tokens: kinds.into_iter().fold(0, u64::saturating_add) }
    }

    /// Puts one part of it in the place of another.
    fn replace(&mut self, old: &Self, new: &Self) {
        let replaced = |all: u64, old: u64, new: u64| all.saturating_sub(old).saturating_add(new);
        *self = Self {
            requests: replaced(self.requests, old.requests, new.requests),
            input_tokens: replaced(self.input_tokens, old.input_tokens, new.input_tokens),
            output_tokens: replaced(self.output_tokens, old.output_tokens, new.output_tokens),
            cache_read_tokens: replaced(self.cache_read_tokens, old.cache_read_tokens, new.cache_read_tokens),
            cache_write_tokens: replaced(
                self.cache_write_tokens,
                old.cache_write_tokens,
                new.cache_write_tokens,
            ),
            cost_usd: self.cost_usd.minus(old.cost_usd).plus(new.cost_usd),
            unpriced_requests: replaced(self.unpriced_requests, old.unpriced_requests, new.unpriced_requests),
            unauthorized_requests: replaced(
                self.unauthorized_requests,
                old.unauthorized_requests,
                new.unauthorized_requests,
            ),
        };
    }
}

/// The account of one run.
#[derive(Debug, Default)]
pub(in crate::egress) struct ModelAccount(Mutex<ModelUsage>);

impl ModelAccount {
    /// Goes on with what an earlier daemon counted.
    pub(in crate::egress) fn having(earlier: ModelUsage) -> Self {
        Self(Mutex::new(earlier))
    }

    /// What was used so far.
    pub(in crate::egress) fn used(&self) -> ModelUsage {
        *self.lock()
    }

    fn lock(&self) -> MutexGuard<'_, ModelUsage> {
        // No code that can panic runs under this lock, so even a poisoned one holds valid data.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whom a request is charged to.
pub(super) struct Payers {
    pub(super) run: Arc<ModelAccount>,
    pub(super) spending: Arc<Spending>,
    pub(super) metrics: Metrics,
    /// The configured name of the model.
    pub(super) service: String,
    pub(super) tenant: Arc<str>,
    pub(super) prices: Arc<Prices>,
}

/// The charge of one request.
pub(super) struct Charge {
    payers: Payers,
    /// Two prices: of the model that the request names, and of the model that the answer names.
    prices: [Option<Price>; 2],
    charged: ModelUsage,
    outcome: Settlement,
}

/// How a charge is settled when it is dropped.
#[derive(Debug, Clone, Copy)]
enum Settlement {
    /// Nobody waited for the answer: it is taken to cost this much.
    Abandoned(Tokens),
    /// As it stands.
    As(ModelOutcome),
}

impl Charge {
    /// A request is about to be sent. If it is given up before its answer begins, it is taken to cost
    /// `abandoned`.
    pub(super) fn begin(payers: Payers, model: &str, abandoned: Tokens) -> Self {
        let price = payers.prices.find(model);
        let mut charge = Self {
            payers,
            prices: [price, None],
            charged: ModelUsage::default(),
            outcome: Settlement::Abandoned(abandoned),
        };
        charge.set(ModelUsage { requests: 1, ..ModelUsage::default() });
        charge
    }

    /// The model has answered with an error, which costs nothing, or not at all.
    pub(super) fn fail(mut self, outcome: ModelOutcome) {
        self.outcome = Settlement::As(outcome);
    }

    /// The model has refused the daemon's credential.
    pub(super) fn unauthorized(mut self) {
        self.set(ModelUsage { unauthorized_requests: 1, ..self.charged });
        self.fail(ModelOutcome::Error);
    }

    /// The answer has come to these tokens, and this model gives it. Of two prices the higher one counts, so
    /// that neither a name of the program nor one of the provider makes an answer cheap.
    pub(super) fn update(&mut self, tokens: Tokens, model: Option<&str>, is_whole: bool) {
        if self.prices[1].is_none() {
            self.prices[1] = model.and_then(|model| self.payers.prices.find(model));
        }
        let outcome = if is_whole { ModelOutcome::Answered } else { ModelOutcome::Estimated };
        self.outcome = Settlement::As(outcome);
        let costs = self.prices.iter().flatten().map(|price| price.cost(&tokens));
        let cost = costs.max();
        self.set(ModelUsage {
            requests: 1,
            input_tokens: tokens.input,
            output_tokens: tokens.output,
            cache_read_tokens: tokens.cache_read,
            cache_write_tokens: tokens.cache_write,
            cost_usd: cost.unwrap_or(Dollars::ZERO),
            unpriced_requests: u64::from(cost.is_none()),
            unauthorized_requests: 0,
        });
    }

    fn set(&mut self, now: ModelUsage) {
        let before = std::mem::replace(&mut self.charged, now);
        let Payers { run, spending, service, tenant, .. } = &self.payers;
        run.lock().replace(&before, &now);
        let (before, now) = (before.spent(), now.spent());
        if before != now {
            spending.replace(service, tenant, before, now);
        }
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        let outcome = match self.outcome {
            Settlement::As(outcome) => outcome,
            Settlement::Abandoned(tokens) => {
                self.update(tokens, None, false);
                ModelOutcome::Estimated
            }
        };
        let ModelUsage {
            input_tokens, output_tokens, cache_read_tokens, cache_write_tokens, cost_usd, ..
        } = self.charged;
        let kinds = [
            ("input", input_tokens),
            ("output", output_tokens),
            ("cache_read", cache_read_tokens),
            ("cache_write", cache_write_tokens),
        ];
        self.payers.metrics.model_request(&self.payers.service, outcome);
        self.payers.metrics.model_used(&self.payers.service, kinds, cost_usd.as_f64());
        if self.charged.spent() != Spent::default() {
            self.payers.spending.note();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn payers(run: &Arc<ModelAccount>, spending: &Arc<Spending>) -> Payers {
        let of = |dollars| Dollars::of(dollars).unwrap();
        let price = |dollars| Price {
            input: of(dollars),
            output: of(dollars),
            cache_read: of(dollars),
            cache_write: of(dollars),
        };
        let prices = Prices::new([("cheap".to_owned(), price(1.0)), ("dear".to_owned(), price(10.0))]);
        Payers {
            run: run.clone(),
            spending: spending.clone(),
            metrics: Metrics::default(),
            service: "m".to_owned(),
            tenant: "t".into(),
            prices: Arc::new(prices.unwrap()),
        }
    }

    const MILLION: Tokens = Tokens { input: 1_000_000, output: 0, cache_read: 0, cache_write: 0 };

    #[test]
    fn a_charge_follows_its_answer_and_the_higher_price_counts() {
        let (run, spending) = (Arc::<ModelAccount>::default(), Arc::<Spending>::default());
        let cost = || (run.used().cost_usd.as_f64(), spending.spent("m", "t").usd.as_f64());
        let mut charge = Charge::begin(payers(&run, &spending), "cheap", MILLION);
        assert_eq!((run.used().requests, cost()), (1, (0.0, 0.0)));
        charge.update(MILLION, Some("unknown"), false);
        assert_eq!(cost(), (1.0, 1.0));
        charge.update(MILLION, Some("dear"), false);
        assert_eq!(cost(), (10.0, 10.0));
        charge.update(Tokens { input: 500_000, output: 7, ..MILLION }, None, true);
        drop(charge);
        let used = run.used();
        assert_eq!((used.requests, used.input_tokens, used.output_tokens), (1, 500_000, 7));
        assert_eq!(cost(), (5.00007, 5.00007));
        assert_eq!(used.unpriced_requests, 0);
        assert_eq!(spending.spent("m", "t").tokens, 500_007);
    }

    #[test]
    fn what_is_given_up_costs_its_estimate_and_an_error_nothing() {
        let (run, spending) = (Arc::<ModelAccount>::default(), Arc::<Spending>::default());
        drop(Charge::begin(payers(&run, &spending), "cheap", MILLION));
        assert_eq!(run.used().cost_usd.as_f64(), 1.0);
        Charge::begin(payers(&run, &spending), "cheap", MILLION).fail(ModelOutcome::Error);
        assert_eq!((run.used().requests, run.used().cost_usd.as_f64()), (2, 1.0));
        Charge::begin(payers(&run, &spending), "cheap", MILLION).unauthorized();
        assert_eq!((run.used().requests, run.used().unauthorized_requests), (3, 1));
        let mut unpriced = Charge::begin(payers(&run, &spending), "unknown", MILLION);
        unpriced.update(MILLION, None, true);
        drop(unpriced);
        let json = serde_json::to_value(run.used()).unwrap();
        let expected = serde_json::json!({ "requests": 4, "input_tokens": 2_000_000, "output_tokens": 0,
            "cache_read_tokens": 0, "cache_write_tokens": 0, "cost_usd": 1.0, "unpriced_requests": 1,
            "unauthorized_requests": 1 });
        assert_eq!(json, expected);
    }
}
