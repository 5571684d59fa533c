//! A program's connection to a service, from its ask to its end.

use paddock_proto::message::{ConnectFailure, Reply};
use tokio::time::Instant;
use tracing::debug;

use super::super::connection::refused;
use super::super::gateway::Egress;
use super::super::host_name::HostName;
use super::super::reach::{Permits, Refusal, permits};
use super::super::relay::{Account, Cut};
use super::super::run::Run;
use super::answer::Exchange;
use super::{Service, serve};
use crate::link::{AskStream, LinkError};

/// The port of services, inside of containers.
pub(in crate::egress) const HTTP: u16 = 80;

/// Serves a connection to a name of the zone of services, and tells the run what came of it.
pub(in crate::egress) async fn connect(
    egress: &Egress,
    run: &Run,
    stream: &AskStream,
    host: &HostName,
    port: u16,
) -> Result<(), LinkError> {
    let asked = Instant::now();
    let (service, _permits) = match open(egress, run, host, port) {
        Ok(opened) => opened,
        Err(refusal) => return refused(egress, run, stream, (host.as_str(), port), refusal).await,
    };
    let _is_open = egress.metrics.egress_connected(asked.elapsed());
    let traffic = run.ledger.connected(host.as_str(), port);
    stream.reply(Reply::Connected).await?;
    let account = Account::new(run, &traffic, &egress.metrics);
    let client = egress.services.client(&run.clients, &service);
    let (models, metrics) = (egress.services.models_shared(), &egress.metrics);
    let exchange = Exchange { service: &service, models, client, run, host: host.as_str(), metrics };
    match serve::serve(&exchange, stream, &account, egress.bounds.idle).await {
        Ok(()) => {}
        Err(Cut::Blocked(reason)) => {
            egress.metrics.egress_blocked(reason.label());
            run.blocked(host.as_str(), port, &reason);
        }
        Err(cut) => debug!(run_id = run.id, service = service.name, %cut, "a connection was cut short"),
    }
    Ok(())
}

/// The service, if this run may have it now.
fn open(
    egress: &Egress,
    run: &Run,
    host: &HostName,
    port: u16,
) -> Result<(std::sync::Arc<Service>, Permits), Refusal> {
    let name = run.policy.judge_service(host, port)?;
    let service = egress.services.find(name).ok_or(Refusal::Failed(ConnectFailure::NoAddress))?;
    run.has_bytes_left()?;
    Ok((service, permits(egress, run)?))
}
