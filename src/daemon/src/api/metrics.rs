//! `GET /metrics`: how things stand is asked for, then all is written down.
//!
//! On the daemon's own address any token opens it, or `metrics.token` where that is set; on `metrics.addr`, a listener of its
//! own, nothing is asked: who may reach that address is its operator's choice. It must never serve anything else there.

use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use http::{Method, Response, StatusCode};

use super::body::{Answer, error, full};
use crate::metrics::{RunnerStanding, Standing};
use crate::store::Store;
use crate::tools::Tools;

/// Prometheus' text format.
const TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// All figures as they are now.
pub(super) async fn metrics(tools: &Tools, store: &Store) -> Answer {
    let mut answer = Response::new(full(tools.metrics.text(&standing(tools, store).await)));
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(TEXT));
    answer.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    answer
}

/// What the listener of its own answers.
pub(super) async fn alone(tools: &Tools, store: &Store, method: &Method, path: &str) -> Answer {
    match (path, method) {
        ("/metrics", &Method::GET | &Method::HEAD) => metrics(tools, store).await,
        ("/metrics", _) => {
            error(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", "/metrics takes GET and HEAD")
        }
        _ => error(StatusCode::NOT_FOUND, "not_found", "there is nothing here but /metrics"),
    }
}

async fn standing(tools: &Tools, store: &Store) -> Standing {
    let snapshot = tools.pool.snapshot().await;
    let now = |id| snapshot.as_ref().and_then(|all| all.runners.get(id)).copied().unwrap_or_default();
    let runners = tools.pool.runners();
    let runners = runners.iter().map(|(language, (id, _))| {
        let now = now(id);
        RunnerStanding {
            language: language.clone(),
            starting: now.starting,
            idle: now.idle,
            leased: now.leased,
            removing: now.destroying,
            waiting: now.waiters,
        }
    });
    let settings = tools.pool.settings();
    let (sessions_known, calls_waiting) = tools.sessions.known();
    Standing {
        engine_up: tools.pool.engine_up(),
        runners: runners.collect(),
        idle_target: settings.idle_per_runner as usize,
        containers_max: settings.max_members as usize,
        sessions: (tools.sessions.live(), tools.sessions.bounds().max),
        sessions_known,
        calls_waiting,
        executions: tools.executions.under_way(),
        executions_kept: tools.executions.kept(),
        store_writable: store.is_writable(),
        store: store.used(),
        watchers: tools.feed.watchers(),
    }
}
