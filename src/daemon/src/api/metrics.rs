//! `GET /metrics`: gathers the daemon's state, and answers with all metrics.
//!
//! On the daemon's own address it requires a token: any of the daemon's, or `metrics.token` if that is set.
//! On `metrics.addr`, a listener of its own, it requires none: the operator chooses who can reach that
//! address. That listener must never serve anything else.

use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use http::{Method, Response, StatusCode};

use super::body::{Answer, error, full};
use crate::metrics::{DaemonState, RunnerContainers, SnapshotGauge, TenantState};
use crate::pool::SnapshotState;
use crate::services::Services;
use crate::store::Store;
use crate::tenants::TenantInUse;

/// Prometheus' text format.
const TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// All metrics at this moment.
pub(super) async fn metrics(services: &Services, store: &Store) -> Answer {
    let mut answer = Response::new(full(services.metrics.text(&daemon_state(services, store).await)));
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(TEXT));
    answer.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    answer
}

/// The answer of the separate listener.
pub(super) async fn alone(services: &Services, store: &Store, method: &Method, path: &str) -> Answer {
    match (path, method) {
        ("/metrics", &Method::GET | &Method::HEAD) => metrics(services, store).await,
        ("/metrics", _) => {
            error(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", "/metrics takes GET and HEAD")
        }
        _ => error(StatusCode::NOT_FOUND, "not_found", "this address serves only /metrics"),
    }
}

/// What each tenant uses now.
fn tenants(services: &Services, store: &Store) -> Vec<TenantState> {
    let (sessions, executions) = (services.sessions.live_by_owner(), services.executions.by_owner());
    let state = |one: TenantInUse| TenantState {
        sessions: sessions.get(&*one.name).copied().unwrap_or(0),
        executions: executions.get(&*one.name).copied().unwrap_or(0),
        runs: one.runs,
        waiting: one.waiting,
        held_back: one.held_back,
        requests: one.requests,
        stored_bytes: store.used_by(&one.name).bytes,
        moved_bytes: one.moved,
        tenant: one.label.to_string(),
    };
    services.tenants.in_use().into_iter().map(state).collect()
}

/// `None` where there is nothing to watch: no snapshot works on this machine.
fn gauge((language, state): (String, SnapshotState)) -> Option<SnapshotGauge> {
    let used = match state {
        SnapshotState::Used(snapshot) => Some((snapshot.age().as_secs_f64(), snapshot.bytes)),
        SnapshotState::Checking { .. } | SnapshotState::Without(_) => None,
        SnapshotState::Unsupported(_) => return None,
    };
    Some(SnapshotGauge { language, used })
}

async fn daemon_state(services: &Services, store: &Store) -> DaemonState {
    let snapshot = services.pool.snapshot().await;
    let now = |id| snapshot.as_ref().and_then(|all| all.runners.get(id)).copied().unwrap_or_default();
    let runners = services.pool.runners();
    let runners = runners.iter().map(|(language, (id, runner))| {
        let now = now(id);
        RunnerContainers {
            language: language.clone(),
            starting: now.starting,
            idle: now.idle,
            leased: now.leased,
            removing: now.destroying,
            waiting: now.waiters,
            idle_target: runner.idle as usize,
        }
    });
    let settings = services.pool.settings();
    let (sessions_known, calls_waiting) = services.sessions.known();
    DaemonState {
        engine_up: services.pool.engine_up(),
        runners: runners.collect(),
        containers_max: settings.max_members as usize,
        sessions: (services.sessions.live(), services.sessions.bounds().max),
        workspaces: services.sessions.kept_workspaces(),
        sessions_known,
        calls_waiting,
        executions: services.executions.under_way(),
        executions_kept: services.executions.kept(),
        store_writable: store.is_writable(),
        store: store.used(),
        snapshots: services.pool.snapshots().into_iter().filter_map(gauge).collect(),
        watchers: services.notifications.subscribers(),
        tenants: tenants(services, store),
        degraded: super::health::degraded(services),
    }
}
