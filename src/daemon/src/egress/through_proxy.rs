//! Which connections of programs go through the upstream proxy, and what the daemon can judge of them.
//!
//! | destination | by which way |
//! |---|---|
//! | what `egress.private` lists | dialled directly: it is near |
//! | a public address, or a name | its address is judged, and the proxy is told this address |
//! | a name, with `egress.upstream_resolves` | the proxy is told the name: nobody here knows its address |
//!
//! It must never connect a program with the proxy itself: through it a program would pass every rule. With
//! `upstream_resolves` the addresses of names are the proxy's affair, so names that mean a near network by
//! themselves are refused.

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tracing::{info, warn};

use super::address::is_same;
use super::dial::Upstream;
use super::gateway::Egress;
use super::host_name::{Host, HostName};
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
    /// The addresses that its name had when it last had any.
    known: Mutex<Vec<IpAddr>>,
    /// Whether the log says that the proxy does not work.
    is_failing: AtomicBool,
}

impl ProxyWay {
    pub(super) fn new(proxy: UpstreamProxy, resolves: bool) -> Self {
        Self { proxy, resolves, known: Mutex::default(), is_failing: AtomicBool::new(false) }
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
            return self.through(&at, std::slice::from_ref(host), port, egress.bounds.connect).await;
        }
        let mut found = addresses(egress, policy, host, port).await?;
        found.retain(|found| port != self.proxy.port || !at.iter().any(|own| is_same(*own, found.ip())));
        if found.is_empty() {
            return Err(BlockReason::UpstreamProxy.into());
        }
        let is_private = |found: &SocketAddr| policy.is_private(host, found.ip(), port);
        let (near, mut far): (Vec<_>, Vec<_>) = found.into_iter().partition(is_private);
        if !near.is_empty() {
            return directly(policy, host, port, &near).await;
        }
        // Nobody here knows whether the proxy has IPv6.
        far.sort_by_key(SocketAddr::is_ipv6);
        let targets: Vec<Host> = far.iter().take(MAX_TRIES).map(|far| Host::Address(far.ip())).collect();
        self.through(&at, &targets, port, egress.bounds.connect).await
    }

    /// Asks the proxy for one destination after the other.
    async fn through(
        &self,
        at: &[IpAddr],
        targets: &[Host],
        port: u16,
        within: Duration,
    ) -> Result<Upstream, Refusal> {
        let at: Vec<SocketAddr> = at.iter().map(|ip| SocketAddr::new(*ip, self.proxy.port)).collect();
        let asking = async {
            let mut failed = ProxyFailure::NoAddress;
            for target in targets {
                if at.is_empty() {
                    break;
                }
                match self.proxy.connect(&at, (target, port)).await {
                    Ok(upstream) => return Ok(upstream),
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
        made.map_err(Refusal::Proxy)
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

/// Whether a name means something near, whatever a name server far away says of it.
fn is_near(name: &HostName) -> bool {
    let labels = name.as_str().rsplit_once('.');
    labels.is_none_or(|(_, last)| NEAR.contains(&last))
}

#[cfg(test)]
#[path = "through_proxy_tests.rs"]
mod tests;
