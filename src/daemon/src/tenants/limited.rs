//! A limit of a tenant that is reached: which one, what it allows, what is used, and when it is worth another
//! try. It must never say anything of another tenant.

use std::fmt;
use std::time::Duration;

use serde_json::{Map, Value, json};

/// The limit of a tenant whose programs have used more than its part of the processors while they are short.
/// In seconds of a processor.
pub(super) const CPU_CREDITS: &str = "cpu_credits";

/// How soon another try is worth it where nobody can know: a run or a session of the tenant must end before.
const AGAIN: Duration = Duration::from_secs(1);

/// A limit of a tenant that is reached.
#[derive(Debug, Clone, PartialEq)]
pub struct Limited {
    /// Its name: a key of `limits`; or `requests_in_flight` or `cpu_credits`, which nobody sets.
    pub limit: &'static str,
    /// What it allows.
    pub allowed: f64,
    /// What is used.
    pub used: f64,
    /// When another try can succeed; `None` where waiting does not help.
    pub retry_after: Option<Duration>,
}

impl Limited {
    /// A limit of places that come free when something of the tenant ends.
    pub fn places(limit: &'static str, allowed: usize, used: usize) -> Self {
        Self { limit, allowed: number(allowed as u64), used: number(used as u64), retry_after: Some(AGAIN) }
    }

    /// A limit of an amount.
    pub fn amount(limit: &'static str, allowed: u64, used: u64, retry_after: Option<Duration>) -> Self {
        Self { limit, allowed: number(allowed), used: number(used), retry_after }
    }

    /// What an answer has of it beside its text.
    pub fn details(&self) -> Map<String, Value> {
        let mut details = Map::new();
        let (allowed, used) = (plain(self.allowed), plain(self.used));
        details.insert("limit".into(), json!({ "name": self.limit, "allowed": allowed, "used": used }));
        if let Some(wait) = self.retry_after {
            details.insert("retry_after_ms".into(), json!(milliseconds(wait)));
        }
        details
    }

    /// Seconds for a header `Retry-After`, at least 1.
    pub fn retry_seconds(&self) -> Option<u64> {
        self.retry_after.map(|wait| milliseconds(wait).div_ceil(1000).max(1))
    }
}

impl fmt::Display for Limited {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (limit, allowed, used) = (self.limit, plain(self.allowed), plain(self.used));
        if limit == CPU_CREDITS {
            write!(
                f,
                "the processors are short, and programs of this token have used more than its part of them \
                 ({limit}: {allowed} s saved at most, {used} s spent)"
            )?;
        } else {
            write!(f, "this token has reached its limit {limit}: {allowed} allowed, {used} in use")?;
        }
        match self.retry_after {
            Some(wait) => write!(f, "; try again in {} s", seconds(wait)),
            None => f.write_str("; delete something, or ask the operator for a higher limit"),
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "it is shown to people; 53 bits are precise enough")]
fn number(n: u64) -> f64 {
    n as f64
}

/// A whole number without a point.
fn plain(n: f64) -> Value {
    #[expect(clippy::cast_possible_truncation, reason = "checked to be whole, and within 53 bits")]
    let whole = n as i64;
    if n.fract() == 0.0 && n.abs() < 9e15 { json!(whole) } else { json!(n) }
}

fn milliseconds(wait: Duration) -> u64 {
    u64::try_from(wait.as_micros().div_ceil(1000)).unwrap_or(u64::MAX)
}

fn seconds(wait: Duration) -> Value {
    plain((wait.as_secs_f64() * 10.0).ceil() / 10.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_says_what_is_allowed_and_used_and_when_to_come_back() {
        let runs = Limited::places("runs", 4, 4);
        assert_eq!(
            runs.to_string(),
            "this token has reached its limit runs: 4 allowed, 4 in use; try again in 1 s"
        );
        let details = Value::Object(runs.details());
        let expected =
            json!({ "limit": { "name": "runs", "allowed": 4, "used": 4 }, "retry_after_ms": 1000 });
        assert_eq!((details, runs.retry_seconds()), (expected, Some(1)));
        let bytes = Limited::amount("stored_bytes", 10, 12, None);
        assert!(
            bytes
                .to_string()
                .ends_with("12 in use; delete something, or ask the operator for a higher limit")
        );
        assert_eq!((bytes.retry_seconds(), bytes.details().len()), (None, 1));
        let credits = Limited { limit: CPU_CREDITS, allowed: 2.0, used: 3.5, ..runs };
        assert!(
            credits.to_string().ends_with("(cpu_credits: 2 s saved at most, 3.5 s spent); try again in 1 s")
        );
        let rate = Limited {
            limit: "requests_per_second",
            allowed: 2.5,
            used: 2.5,
            retry_after: Some(Duration::from_millis(1001)),
        };
        assert_eq!((rate.retry_seconds(), plain(rate.allowed)), (Some(2), json!(2.5)));
    }
}
