//! Makes the connection that a program asks for: its policy, the bounds, its name, each address, and the
//! dial.
//!
//! It must never dial an address that was not judged here, nor resolve a name before its policy allows it.

use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use paddock_proto::message::{ConnectFailure, Reply};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::dial::{self, Upstream};
use super::gateway::Egress;
use super::host_name::{Host, HostName, HostNameError};
use super::policy::{BlockReason, NetworkPolicy};
use super::run::{ALL_CONNECTIONS, CONNECTIONS, CONTAINER_CONNECTIONS, Run, Share, TOKEN_CONNECTIONS};
use super::upstream_proxy::ProxyFailure;
use crate::link::{AskStream, LinkError};

/// Why there is no connection.
pub(super) enum Refusal {
    Blocked(BlockReason),
    /// As many connections as there may be.
    TooMany(BlockReason),
    /// What the program asks for is no name.
    BadName(HostNameError),
    /// It was allowed, and could not be made.
    Failed(ConnectFailure),
    /// The upstream proxy gave no connection.
    Proxy(ProxyFailure),
    /// The program does not wait for it any more.
    Gone,
}

impl From<BlockReason> for Refusal {
    fn from(reason: BlockReason) -> Self {
        Self::Blocked(reason)
    }
}

impl From<LinkError> for Refusal {
    fn from(_: LinkError) -> Self {
        Self::Gone
    }
}

/// The right to one of the connections that there may be: of the run, of its token, of all runs; and of the
/// streams of its container.
pub(super) struct Permits {
    _bounds: [OwnedSemaphorePermit; 3],
    _share: Share,
}

/// A connection that was made, and what it holds as long as it is open.
pub(super) struct Open {
    pub(super) upstream: Upstream,
    /// The name that the TLS hello must have.
    pub(super) tls_name: Option<HostName>,
    pub(super) _permits: Permits,
}

/// Judges, resolves and dials.
pub(super) async fn open(
    egress: &Egress,
    run: &Run,
    stream: &AskStream,
    host: &Host,
    port: u16,
) -> Result<Open, Refusal> {
    let policy = tokio::select! {
        policy = run.policy_for(host, port) => policy?,
        _ = stream.abandoned() => return Err(Refusal::Gone),
    };
    let judged = policy.judge(host, port)?;
    if let Host::Address(address) = host {
        // A program that does not wait for its connection is told now, and not by a reset later on.
        policy.judge_address(host, *address, port)?;
    }
    run.has_bytes_left()?;
    let permits = permits(egress, run)?;
    if let Host::Name(name) = host {
        run.count_name(name)?;
    }
    let reach = async {
        match &egress.upstream {
            Some(proxy) => proxy.reach(egress, &policy, host, port).await,
            None => {
                let found = addresses(egress, &policy, host, port).await?;
                directly(&policy, host, port, &found).await
            }
        }
    };
    let mut reach = pin!(tokio::time::timeout(egress.bounds.connect, reach));
    // What is made at once needs no word before: each one wakes PID 1.
    let made = match poll_fn(|context| Poll::Ready(reach.as_mut().poll(context))).await {
        Poll::Ready(made) => made,
        Poll::Pending => {
            stream.reply(Reply::Allowed).await?;
            tokio::select! {
                made = reach => made,
                _ = stream.abandoned() => return Err(Refusal::Gone),
            }
        }
    };
    let upstream = made.unwrap_or(Err(Refusal::Failed(ConnectFailure::TimedOut)))?;
    Ok(Open { upstream, tls_name: judged.tls_name, _permits: permits })
}

/// Takes a connection of the bounds.
pub(super) fn permits(egress: &Egress, run: &Run) -> Result<Permits, Refusal> {
    let permit = |semaphore: &Arc<Semaphore>, bound| {
        let taken = semaphore.clone().try_acquire_owned();
        taken.map_err(|_| Refusal::TooMany(BlockReason::Limit(bound)))
    };
    let _bounds = [
        permit(&run.connections, CONNECTIONS)?,
        permit(&run.of_token, TOKEN_CONNECTIONS)?,
        permit(&egress.connections, ALL_CONNECTIONS)?,
    ];
    let _share = run.share().ok_or(Refusal::TooMany(BlockReason::Limit(CONTAINER_CONNECTIONS)))?;
    Ok(Permits { _bounds, _share })
}

/// Dials addresses that were judged.
pub(super) async fn directly(
    policy: &NetworkPolicy,
    host: &Host,
    port: u16,
    addresses: &[SocketAddr],
) -> Result<Upstream, Refusal> {
    let upstream = dial::dial(addresses).await.map_err(Refusal::Failed)?;
    // Nothing was sent yet.
    if let Some(own) = upstream.own_address() {
        policy.judge_own_address(host, own, port)?;
    }
    Ok(upstream)
}

/// The addresses that may be dialled, in the order in which to try them. Each is judged here, and what is
/// judged here is what is dialled.
pub(super) async fn addresses(
    egress: &Egress,
    policy: &NetworkPolicy,
    host: &Host,
    port: u16,
) -> Result<Vec<SocketAddr>, Refusal> {
    let found = match host {
        Host::Address(address) => vec![*address],
        Host::Name(name) => egress.resolver.resolve(name).await,
    };
    let mut first_reason = None;
    let mut allowed = Vec::new();
    for address in found {
        match policy.judge_address(host, address, port) {
            Ok(()) => allowed.push(SocketAddr::new(address, port)),
            Err(reason) => {
                first_reason.get_or_insert(reason);
            }
        }
    }
    match first_reason {
        _ if !allowed.is_empty() => Ok(allowed),
        Some(reason) => Err(reason.into()),
        None => Err(Refusal::Failed(ConnectFailure::NoAddress)),
    }
}
