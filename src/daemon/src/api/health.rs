//! `GET /health` (does the process work?) and `GET /ready` (would a run be served?). They are open to
//! everybody, so they reveal no name, id or version.

use http::StatusCode;
use serde_json::json;

use super::body::{Answer, json as answer};
use super::tls::ServerTls;
use crate::services::Services;

const CERTIFICATE_OUTDATED: &str = "the new TLS certificate cannot be used, so the previous one is";
const NOT_NOTED: &str = "the audit log cannot be written: calls are not noted";
const JOURNAL_KEPT: &str = "a write to the store's disk failed: check the disk, then restart the daemon";
const TOKENS_OUTDATED: &str = "the file of tokens cannot be used: what it said before is good";

/// Always 200 while the process answers; `degraded` lists what does not work.
pub(super) fn health(services: &Services, tls: Option<&ServerTls>) -> Answer {
    let mut degraded = reasons(services);
    degraded.extend(warnings(services, tls));
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
pub(super) fn ready(services: &Services, tls: Option<&ServerTls>) -> Answer {
    let (missing, degraded) = (reasons(services), warnings(services, tls));
    if missing.is_empty() && degraded.is_empty() {
        answer(StatusCode::OK, &json!({ "status": "ready" }))
    } else if missing.is_empty() {
        answer(StatusCode::OK, &json!({ "status": "ready", "degraded": degraded }))
    } else {
        answer(StatusCode::SERVICE_UNAVAILABLE, &json!({ "status": "unready", "missing": missing }))
    }
}

/// What does not work, and does not keep a run from being served.
fn warnings(services: &Services, tls: Option<&ServerTls>) -> Vec<&'static str> {
    let tokens = services.tenants.fault().map(|_| TOKENS_OUTDATED);
    let certificate = tls.filter(|tls| tls.is_outdated()).map(|_| CERTIFICATE_OUTDATED);
    let audit = &services.audit;
    let unnoted = (audit.is_failing() && !audit.refuses()).then_some(NOT_NOTED);
    let journal = services.store.keeps_journal().then_some(JOURNAL_KEPT);
    tokens.into_iter().chain(certificate).chain(unnoted).chain(journal).collect()
}

fn reasons(services: &Services) -> Vec<&'static str> {
    let (pool, store) = (&services.pool, &services.store);
    let mut reasons = Vec::new();
    if !pool.engine_up() {
        reasons.push("the container engine does not answer");
    }
    if pool.languages().is_empty() {
        reasons.push("no runner image was found");
    }
    if services.audit.refuses() {
        reasons.push("the audit log cannot be written (audit.required)");
    }
    if !store.is_writable() {
        reasons.push("the store cannot be written");
    }
    reasons
}
