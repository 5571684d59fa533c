//! Which connections go through the upstream proxy, and what the daemon can judge of them.
//!
//! | destination | by which way |
//! |---|---|
//! | what `egress.private` lists | dialled directly: it is near |
//! | a public address, or a name | its address is judged, and the proxy is told this address |
//! | a name, with `egress.upstream_resolves` | the proxy is told the name: nobody here knows its address |
//!
//! A service ([`super::service`]) is reached in the same way. An operator wrote its URL, so its addresses are
//! not judged. An address that is not public is dialled directly, and needs no entry in `private`.
//!
//! It must never connect a program with the proxy itself: through it a program would pass every rule. With
//! `upstream_resolves` the addresses of names are the proxy's affair, so names that mean a near network by
//! themselves are refused.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::net::TcpStream;
use tracing::{info, warn};

use super::address::{is_global, is_same};
use super::connection::sentence;
use super::dial::{self, Upstream};
use super::gateway::Egress;
use super::host_name::{Host, HostName};
use super::pattern::Pattern;
use super::policy::{BlockReason, NetworkPolicy};
use super::reach::{Refusal, addresses, directly};
use super::resolve::Resolver;
use super::upstream_proxy::{ProxyFailure, UpstreamProxy};

/// Addresses of one name that the proxy is asked for, one after the other.
const MAX_TRIES: usize = 4;

/// Ends of names that mean something else in each network, or nothing (RFC 6761, RFC 6762 with its appendix
/// G, RFC 7686, RFC 8375, and what companies use).
const NEAR: [&str; 14] = [
    "localhost",
    "localdomain",
    "local",
    "internal",
    "intranet",
    "private",
    "corp",
    "home",
    "lan",
    "arpa",
    "onion",
    "test",
    "invalid",
    "workgroup",
];

/// What a program is told of such a name.
const NEAR_NAME: &str = "a name of a near network, whose address only the upstream proxy knows";

/// The way through the proxy.
pub(super) struct ProxyWay {
    proxy: UpstreamProxy,
    /// Whether the proxy resolves names: `egress.upstream_resolves`.
    resolves: bool,
    /// What `egress.private` lists.
    private: Vec<Pattern>,
    /// The addresses that its name had when it last had any.
    known: Mutex<Vec<IpAddr>>,
    /// Whether the log says that the proxy does not work.
    is_failing: AtomicBool,
}

impl ProxyWay {
    pub(super) fn new(proxy: UpstreamProxy, resolves: bool, private: Vec<Pattern>) -> Self {
        Self { proxy, resolves, private, known: Mutex::default(), is_failing: AtomicBool::new(false) }
    }

    /// Connects to a destination that the policy allows by name.
    ///
    /// # Errors
    /// Why there is no connection.
    pub(super) async fn reach(
        &self,
        egress: &Egress,
        policy: &NetworkPolicy,
        host: &Host,
        port: u16,
    ) -> Result<Upstream, Refusal> {
        let at = self.addresses(&egress.resolver).await;
        if self.proxy.port == port && self.proxy.host == *host {
            return Err(BlockReason::UpstreamProxy.into());
        }
        if let Host::Name(name) = host
            && self.resolves
            && !egress.resolver.has(name)
            && !policy.is_private_name(host, port)
        {
            if is_near(name) {
                return Err(BlockReason::NotGlobal(NEAR_NAME).into());
            }
            let asked = self.through(&at, std::slice::from_ref(host), port, egress.bounds.connect).await;
            return asked.map(Upstream::new).map_err(Refusal::Proxy);
        }
        let mut found = addresses(egress, policy, host, port).await?;
        found.retain(|found| port != self.proxy.port || !at.iter().any(|own| is_same(*own, found.ip())));
        if found.is_empty() {
            return Err(BlockReason::UpstreamProxy.into());
        }
        let is_private = |found: &SocketAddr| policy.is_private(host, found.ip(), port);
        let (near, far): (Vec<_>, Vec<_>) = found.into_iter().partition(is_private);
        if !near.is_empty() {
            return directly(policy, host, port, &near).await;
        }
        let targets = targets(far.iter().map(SocketAddr::ip).collect());
        let asked = self.through(&at, &targets, port, egress.bounds.connect).await;
        asked.map(Upstream::new).map_err(Refusal::Proxy)
    }

    /// Connects to a service.
    ///
    /// # Errors
    /// Why there is no connection, in a sentence for the log.
    pub(super) async fn reach_service(
        &self,
        resolver: &Resolver,
        host: &Host,
        port: u16,
        within: Duration,
    ) -> io::Result<TcpStream> {
        let at = self.addresses(resolver).await;
        let is_private = |host: &Host| self.private.iter().any(|own| own.matches(host, port));
        let targets = match host {
            Host::Name(name)
                if self.resolves && !resolver.has(name) && !is_near(name) && !is_private(host) =>
            {
                vec![host.clone()]
            }
            Host::Name(_) | Host::Address(_) => {
                let is_near = |found: &IpAddr| {
                    !is_global(*found) || is_private(host) || is_private(&Host::Address(*found))
                };
                let (near, far): (Vec<_>, Vec<_>) =
                    service_addresses(resolver, host).await?.into_iter().partition(is_near);
                if !near.is_empty() {
                    return dial_service(&near, port).await;
                }
                targets(far)
            }
        };
        self.through(&at, &targets, port, within)
            .await
            .map_err(|failure| io::Error::other(failure.to_string()))
    }

    /// Asks the proxy for one destination after the other.
    async fn through(
        &self,
        at: &[IpAddr],
        targets: &[Host],
        port: u16,
        within: Duration,
    ) -> Result<TcpStream, ProxyFailure> {
        let at: Vec<SocketAddr> = at.iter().map(|ip| SocketAddr::new(*ip, self.proxy.port)).collect();
        let asking = async {
            let mut failed = ProxyFailure::NoAddress;
            for target in targets {
                if at.is_empty() {
                    break;
                }
                match self.proxy.connect(&at, (target, port)).await {
                    Ok(socket) => return Ok(socket),
                    Err(failure @ ProxyFailure::NotReached(_)) => failed = failure,
                    Err(failure) => return Err(failure),
                }
            }
            Err(failed)
        };
        // A little less than the whole time, so that the reason can be told.
        let asked = tokio::time::timeout(within.mul_f32(0.95), asking).await;
        let made = asked.unwrap_or(Err(ProxyFailure::Silent));
        self.note(made.as_ref().err());
        made
    }

    /// Tells the log when the proxy stops to work, and when it works again.
    fn note(&self, failure: Option<&ProxyFailure>) {
        match failure.filter(|failure| failure.is_of_the_proxy()) {
            Some(failure) if !self.is_failing.swap(true, Relaxed) => {
                warn!(proxy = %self.proxy, %failure, "the upstream proxy does not work");
            }
            None if self.is_failing.swap(false, Relaxed) => {
                info!(proxy = %self.proxy, "the upstream proxy works again");
            }
            Some(_) | None => {}
        }
    }

    /// The addresses of the proxy; those that it had before, if its name has none now.
    async fn addresses(&self, resolver: &Resolver) -> Vec<IpAddr> {
        let found = match &self.proxy.host {
            Host::Address(address) => return vec![*address],
            Host::Name(name) => resolver.resolve(name).await,
        };
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if !found.is_empty() {
            known.clone_from(&found);
        }
        known.clone()
    }
}

/// What the proxy is asked for, in turn. Nobody here knows whether it has IPv6.
fn targets(mut far: Vec<IpAddr>) -> Vec<Host> {
    far.sort_by_key(IpAddr::is_ipv6);
    far.into_iter().take(MAX_TRIES).map(Host::Address).collect()
}

/// The addresses of a service's host: `egress.hosts` first, then DNS.
///
/// # Errors
/// It has none.
pub(super) async fn service_addresses(resolver: &Resolver, host: &Host) -> io::Result<Vec<IpAddr>> {
    let found = match host {
        Host::Address(address) => vec![*address],
        Host::Name(name) => resolver.resolve(name).await,
    };
    if found.is_empty() { Err(io::Error::other("its name has no address")) } else { Ok(found) }
}

/// Dials a service, each address in turn.
///
/// # Errors
/// What says most about the other side.
pub(super) async fn dial_service(addresses: &[IpAddr], port: u16) -> io::Result<TcpStream> {
    let addresses: Vec<_> = addresses.iter().map(|address| SocketAddr::new(*address, port)).collect();
    dial::connect(&addresses).await.map_err(|failure| io::Error::other(sentence(failure)))
}

/// Whether a name means something near, whatever a name server far away says of it.
fn is_near(name: &HostName) -> bool {
    let labels = name.as_str().rsplit_once('.');
    labels.is_none_or(|(_, last)| NEAR.contains(&last))
}

#[cfg(test)]
#[path = "through_proxy_tests.rs"]
mod tests;
