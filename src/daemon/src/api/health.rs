//! `GET /health` (does the process work?) and `GET /ready` (would a run be served?). They are open to
//! everybody, so they reveal no name, id or version.

use http::StatusCode;
use serde_json::json;

use super::body::{Answer, json as answer};
use crate::degradation::Degradation;
use crate::services::Services;

const DRAINING: &str = "the node drains: it takes no new sessions (paddock cluster drain)";

/// Always 200 while the process answers; `degraded` lists what does not work.
pub(super) fn health(services: &Services) -> Answer {
    let degraded: Vec<_> = degraded(services).into_iter().map(Degradation::sentence).collect();
    if degraded.is_empty() {
        answer(StatusCode::OK, &json!({ "status": "healthy" }))
    } else {
        answer(StatusCode::OK, &json!({ "status": "healthy", "degraded": degraded }))
    }
}

/// 200 if a run of a new session would be served and its files saved, else 503, so that a load balancer sends
/// new sessions elsewhere. Sessions that have a container go on as well as they can in either case.
///
/// What fails besides does not make the daemon unready: a certificate that could not be renewed, for example,
/// leaves the previous one, which still serves.
pub(super) fn ready(services: &Services) -> Answer {
    let (missing, degraded): (Vec<_>, Vec<_>) =
        degraded(services).into_iter().partition(|what| what.prevents_runs());
    let sentences = |all: Vec<Degradation>| all.into_iter().map(Degradation::sentence).collect::<Vec<_>>();
    let is_draining = services.cluster.as_ref().is_some_and(|cluster| cluster.is_draining());
    let missing: Vec<_> = sentences(missing).into_iter().chain(is_draining.then_some(DRAINING)).collect();
    if missing.is_empty() && degraded.is_empty() {
        answer(StatusCode::OK, &json!({ "status": "ready" }))
    } else if missing.is_empty() {
        answer(StatusCode::OK, &json!({ "status": "ready", "degraded": sentences(degraded) }))
    } else {
        answer(StatusCode::SERVICE_UNAVAILABLE, &json!({ "status": "unready", "missing": missing }))
    }
}

/// Whether a run of a new session would be served, apart from draining.
pub(super) fn serves_runs(services: &Services) -> bool {
    !degraded(services).into_iter().any(Degradation::prevents_runs)
}

/// What does not work at the moment, in the order of [`Degradation::ALL`].
pub(super) fn degraded(services: &Services) -> Vec<Degradation> {
    Degradation::ALL.into_iter().filter(|what| fails(*what, services)).collect()
}

fn fails(what: Degradation, services: &Services) -> bool {
    let audit = &services.audit;
    match what {
        Degradation::EngineDown => !services.pool.engine_up(),
        Degradation::NoRunner => services.pool.languages().is_empty(),
        Degradation::CallsRefusedForAudit => audit.refuses(),
        Degradation::CallsNotNoted => audit.is_failing() && !audit.refuses(),
        Degradation::StoreNotWritable => !services.store.is_writable(),
        Degradation::TokensOutdated => services.tenants.fault().is_some(),
        Degradation::StartsFailing
        | Degradation::ImageRefused
        | Degradation::SnapshotMissing
        | Degradation::JournalKept
        | Degradation::CertificateOutdated
        | Degradation::LogFailing
        | Degradation::SpansLost => services.metrics.degradations().fails(what),
    }
}
