//! `GET /health` (does the process work?) and `GET /ready` (would a run be served?). They are open to
//! everybody, so they reveal no name, id or version.

use http::StatusCode;
use serde_json::json;

use super::body::{Answer, json as answer};
use super::tls::ServerTls;
use crate::pool::Pool;
use crate::store::Store;

const OUTDATED: &str = "the new TLS certificate cannot be used, so the previous one is";

/// Always 200 while the process answers; `degraded` lists what does not work.
pub(super) fn health(pool: &Pool, store: &Store, tls: Option<&ServerTls>) -> Answer {
    let mut degraded = reasons(pool, store);
    if tls.is_some_and(ServerTls::is_outdated) {
        degraded.push(OUTDATED);
    }
    if degraded.is_empty() {
        answer(StatusCode::OK, &json!({ "status": "healthy" }))
    } else {
        answer(StatusCode::OK, &json!({ "status": "healthy", "degraded": degraded }))
    }
}

/// 200 if a run of a new session would be served and its files saved, else 503, so that a load balancer sends
/// new sessions elsewhere. Sessions that have a container go on as well as they can in either case.
///
/// A certificate that could not be renewed does not make the daemon unready: the previous one still serves.
pub(super) fn ready(pool: &Pool, store: &Store, tls: Option<&ServerTls>) -> Answer {
    let missing = reasons(pool, store);
    if missing.is_empty() && tls.is_some_and(ServerTls::is_outdated) {
        answer(StatusCode::OK, &json!({ "status": "ready", "degraded": [OUTDATED] }))
    } else if missing.is_empty() {
        answer(StatusCode::OK, &json!({ "status": "ready" }))
    } else {
        answer(StatusCode::SERVICE_UNAVAILABLE, &json!({ "status": "unready", "missing": missing }))
    }
}

fn reasons(pool: &Pool, store: &Store) -> Vec<&'static str> {
    let mut reasons = Vec::new();
    if !pool.engine_up() {
        reasons.push("the container engine does not answer");
    }
    if pool.languages().is_empty() {
        reasons.push("no runner image was found");
    }
    if !store.is_writable() {
        reasons.push("the store cannot be written");
    }
    reasons
}
