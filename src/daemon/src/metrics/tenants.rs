//! Metrics of tenants. Their label is the name of a token, which is the operator's own word; only a bounded
//! number of names have series of their own, the others share the name `other`.

use std::time::Duration;

use prometheus::{GaugeVec, HistogramVec, IntCounterVec, IntGauge};

use super::{Make, Metrics};

/// What a tenant uses at the moment of a scrape.
#[derive(Debug, Clone, Default)]
pub struct TenantState {
    /// Its name in metrics.
    pub tenant: String,
    /// Sessions with containers.
    pub sessions: usize,
    /// Executions under way.
    pub executions: usize,
    /// Runs of code under way.
    pub runs: usize,
    /// Calls that wait for a run of their own tenant to end.
    pub waiting: usize,
    /// Programs that do not begin yet, since the processors are short.
    pub held_back: usize,
    /// Requests in flight.
    pub requests: usize,
    /// Bytes of its stored files.
    pub stored_bytes: u64,
    /// Bytes that its programs moved in the last hour.
    pub moved_bytes: u64,
}

pub(super) struct TenantMetrics {
    requests: IntCounterVec,
    refused: IntCounterVec,
    calls: IntCounterVec,
    took: HistogramVec,
    in_use: GaugeVec,
    stored: GaugeVec,
    moved: GaugeVec,
    tokens: IntGauge,
    file: IntGauge,
}

impl TenantMetrics {
    pub(super) fn new(make: &Make) -> Self {
        let tenants = Self {
            requests: make.counters(
                "paddock_tenant_requests_total",
                "Requests with a token that were let in, by the token's name; the first 50 names, the rest \
                 are other.",
                &["tenant"],
            ),
            refused: make.counters(
                "paddock_tenant_limits_hit_total",
                "What was refused because a limit of the token's name was reached, by limit.",
                &["tenant", "limit"],
            ),
            calls: make.counters(
                "paddock_tenant_tool_calls_total",
                "Tool calls by outcome: ok, failed (the program failed), refused (any error code).",
                &["tenant", "outcome"],
            ),
            took: make.histograms(
                "paddock_tenant_tool_call_duration_seconds",
                "Time of a tool call, with all its waiting.",
                &["tenant"],
            ),
            in_use: make.gauges(
                "paddock_tenant_in_use",
                "What a token's name uses now, by kind: sessions (with a container), executions, runs, \
                 waiting (for one of its own runs to end), held_back (from beginning, since the processors \
                 are short), requests.",
                &["tenant", "kind"],
            ),
            stored: make.gauges(
                "paddock_tenant_stored_bytes",
                "Bytes of the stored files of a token's name.",
                &["tenant"],
            ),
            moved: make.gauges(
                "paddock_tenant_egress_hour_bytes",
                "Bytes that the programs of a token's name moved in the last hour.",
                &["tenant"],
            ),
            tokens: make.gauge("paddock_tokens", "Tokens that are good now."),
            file: make.gauge(
                "paddock_tokens_file_good",
                "1 while the file of tokens is good or there never was one, 0 while what it said before is \
                 in use.",
            ),
        };
        tenants.file.set(1);
        tenants
    }

    pub(super) fn set(&self, now: &[TenantState]) {
        self.in_use.reset();
        self.stored.reset();
        self.moved.reset();
        for one in now {
            let tenant = one.tenant.as_str();
            let kinds = [
                ("sessions", one.sessions),
                ("executions", one.executions),
                ("runs", one.runs),
                ("waiting", one.waiting),
                ("held_back", one.held_back),
                ("requests", one.requests),
            ];
            for (kind, n) in kinds {
                self.in_use.with_label_values(&[tenant, kind]).add(real(n as u64)); // `other` is a sum
            }
            self.stored.with_label_values(&[tenant]).add(real(one.stored_bytes));
            self.moved.with_label_values(&[tenant]).add(real(one.moved_bytes));
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "Prometheus has nothing but floats")]
fn real(n: u64) -> f64 {
    n as f64
}

impl Metrics {
    /// There is a tenant with a name of its own: its series begin at 0.
    pub fn know_tenant(&self, tenant: &str, limits: &[&str]) {
        let tenants = &self.0.tenants;
        tenants.requests.with_label_values(&[tenant]);
        for outcome in ["ok", "failed", "refused"] {
            tenants.calls.with_label_values(&[tenant, outcome]);
        }
        for limit in limits {
            tenants.refused.with_label_values(&[tenant, limit]);
        }
    }

    /// A request of a tenant was let in.
    pub fn tenant_request(&self, tenant: &str) {
        self.0.tenants.requests.with_label_values(&[tenant]).inc();
    }

    /// A tenant has reached one of its limits.
    pub fn tenant_limited(&self, tenant: &str, limit: &'static str) {
        self.0.tenants.refused.with_label_values(&[tenant, limit]).inc();
    }

    /// A tenant called a tool.
    pub fn tenant_called(&self, tenant: &str, outcome: &'static str, took: Duration) {
        self.0.tenants.calls.with_label_values(&[tenant, outcome]).inc();
        self.0.tenants.took.with_label_values(&[tenant]).observe(took.as_secs_f64());
    }

    /// So many tokens are good.
    pub fn tokens(&self, good: usize) {
        self.0.tenants.tokens.set(i64::try_from(good).unwrap_or(i64::MAX));
    }

    /// Whether the file of tokens is good.
    pub fn tokens_file(&self, is_good: bool) {
        self.0.tenants.file.set(i64::from(is_good));
    }
}
