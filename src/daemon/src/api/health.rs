//! `GET /health` (is the process well) and `GET /ready` (would a run be served). Open to all, so they say no
//! name, id or version.

use http::StatusCode;
use serde_json::json;

use super::body::{Answer, json as answer};
use crate::pool::Pool;

/// Always 200 while the process answers; what does not work is listed.
pub(super) fn health(pool: &Pool) -> Answer {
    let degraded = reasons(pool);
    if degraded.is_empty() {
        answer(StatusCode::OK, &json!({ "status": "healthy" }))
    } else {
        answer(StatusCode::OK, &json!({ "status": "healthy", "degraded": degraded }))
    }
}

/// 200 when runs would be served, else 503.
pub(super) fn ready(pool: &Pool) -> Answer {
    let missing = reasons(pool);
    if missing.is_empty() {
        answer(StatusCode::OK, &json!({ "status": "ready" }))
    } else {
        answer(StatusCode::SERVICE_UNAVAILABLE, &json!({ "status": "unready", "missing": missing }))
    }
}

fn reasons(pool: &Pool) -> Vec<&'static str> {
    let mut reasons = Vec::new();
    if !pool.engine_up() {
        reasons.push("the container engine does not answer");
    }
    if pool.runners().is_empty() {
        reasons.push("no runner image was found");
    }
    reasons
}
