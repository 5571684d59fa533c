//! Metrics of models: requests of programs, and what their answers cost. The label is the configured name of
//! a model, so it is the operator's own word.

use prometheus::{CounterVec, IntCounterVec};

use super::{Make, Metrics};

/// What came of a request to a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ModelOutcome {
    /// The model has answered and told all its tokens.
    Answered,
    /// The model has answered, and some of its tokens are estimated: it broke off, or did not tell them.
    Estimated,
    /// The model has answered with an error.
    Error,
    /// It was not sent.
    Refused,
    /// There is no answer that can be passed on.
    Failed,
}

impl ModelOutcome {
    const ALL: [Self; 5] = [Self::Answered, Self::Estimated, Self::Error, Self::Refused, Self::Failed];

    fn label(self) -> &'static str {
        match self {
            Self::Answered => "answered",
            Self::Estimated => "estimated",
            Self::Error => "error",
            Self::Refused => "refused",
            Self::Failed => "failed",
        }
    }
}

pub(super) struct ModelMetrics {
    requests: IntCounterVec,
    tokens: IntCounterVec,
    cost: CounterVec,
}

impl ModelMetrics {
    pub(super) fn new(make: &Make) -> Self {
        Self {
            requests: make.counters(
                "paddock_model_requests_total",
                "Requests of programs to models, by the model's configured name and by outcome: answered, \
                 estimated (some tokens are), error (of the model), refused (not sent), failed (no answer \
                 that can be passed on).",
                &["model", "outcome"],
            ),
            tokens: make.counters(
                "paddock_model_tokens_total",
                "Tokens of models, by kind: input, output, cache_read, cache_write.",
                &["model", "kind"],
            ),
            cost: make.amounts(
                "paddock_model_cost_dollars_total",
                "What the tokens of models cost, by the configured prices; those without a price cost \
                 nothing.",
                &["model"],
            ),
        }
    }
}

impl Metrics {
    /// There is a model of this name: its series begin at 0.
    pub fn model_known(&self, model: &str) {
        for outcome in ModelOutcome::ALL {
            self.0.models.requests.with_label_values(&[model, outcome.label()]);
        }
        self.0.models.cost.with_label_values(&[model]);
    }

    /// A request of a program to a model has come to its end.
    pub fn model_request(&self, model: &str, outcome: ModelOutcome) {
        self.0.models.requests.with_label_values(&[model, outcome.label()]).inc();
    }

    /// An answer had so many tokens of each kind, and cost so many dollars.
    pub fn model_used(&self, model: &str, kinds: [(&'static str, u64); 4], dollars: f64) {
        for (kind, tokens) in kinds {
            self.0.models.tokens.with_label_values(&[model, kind]).inc_by(tokens);
        }
        self.0.models.cost.with_label_values(&[model]).inc_by(dollars);
    }
}
