//! From a name to addresses: the operator's own list first, then DNS.
//!
//! It must never be asked for a name that the policy of the run does not allow: the question itself leaves
//! the machine. Whether an address may be dialled is not decided here.

use std::net::{IpAddr, Ipv6Addr, UdpSocket};
use std::time::Duration;

use async_trait::async_trait;
use hickory_resolver::TokioResolver;
use hickory_resolver::config::LookupIpStrategy;
use hickory_resolver::proto::rr::Name;
use tracing::{debug, warn};

use super::host_name::HostName;

/// Addresses of one name that are looked at; what comes behind them is ignored.
pub const MAX_ADDRESSES: usize = 16;

/// How long one name server may take for one answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(3);

/// How often a name server is asked.
const ATTEMPTS: usize = 2;

/// An address of the public IPv6 network. Nothing is sent to it.
const PUBLIC_IPV6: Ipv6Addr = Ipv6Addr::new(0x2001, 0x4860, 0x4860, 0, 0, 0, 0, 0x8888);

/// Asks for the addresses of names. Implemented by [`SystemDns`], and by tests.
#[async_trait]
pub trait Lookup: Send + Sync + 'static {
    /// The addresses of a name, both families, in any order; none if it has none or nobody knows it.
    async fn addresses(&self, name: &HostName) -> Vec<IpAddr>;
}

/// The name servers of this host, with its `/etc/hosts` before them.
pub struct SystemDns(Option<TokioResolver>);

impl SystemDns {
    /// As `/etc/resolv.conf` says. If that cannot be read, no name has an address, and the log says why.
    #[must_use]
    pub fn new() -> Self {
        let built = TokioResolver::builder_tokio().and_then(|mut builder| {
            let options = builder.options_mut();
            options.ip_strategy = LookupIpStrategy::Ipv4AndIpv6;
            options.timeout = ANSWER_WITHIN;
            options.attempts = ATTEMPTS;
            builder.build()
        });
        Self(built.inspect_err(|error| warn!(%error, "no name can be resolved for programs")).ok())
    }
}

impl Default for SystemDns {
    fn default() -> Self {
        Self::new()
    }
}

#[async_trait]
impl Lookup for SystemDns {
    async fn addresses(&self, name: &HostName) -> Vec<IpAddr> {
        let (Some(resolver), Ok(mut asked)) = (&self.0, Name::from_ascii(name.as_str())) else {
            return Vec::new();
        };
        // Without search domains: the name that was judged is the one that is asked for.
        asked.set_fqdn(true);
        match resolver.lookup_ip(asked).await {
            Ok(found) => found.iter().collect(),
            Err(error) => {
                debug!(%name, %error, "a name has no address");
                Vec::new()
            }
        }
    }
}

/// Resolves the names of connections.
pub(super) struct Resolver {
    hosts: Vec<(HostName, Vec<IpAddr>)>,
    lookup: Box<dyn Lookup>,
}

impl Resolver {
    pub(super) fn new(hosts: Vec<(HostName, Vec<IpAddr>)>, lookup: impl Lookup) -> Self {
        Self { hosts, lookup: Box::new(lookup) }
    }

    /// Whether the operator gave this name addresses of its own.
    pub(super) fn has(&self, name: &HostName) -> bool {
        self.hosts.iter().any(|(host, _)| host == name)
    }

    /// The name's addresses in the order in which to try them, at most [`MAX_ADDRESSES`].
    pub(super) async fn resolve(&self, name: &HostName) -> Vec<IpAddr> {
        let found = match self.hosts.iter().find(|(host, _)| host == name) {
            Some((_, addresses)) => addresses.clone(),
            None => self.lookup.addresses(name).await,
        };
        let has_both = found.iter().any(IpAddr::is_ipv4) && found.iter().any(IpAddr::is_ipv6);
        in_turn(found, has_both && has_ipv6())
    }
}

/// The two families in turn, so that one without a route costs one failed attempt and not all of them.
fn in_turn(found: Vec<IpAddr>, ipv6_first: bool) -> Vec<IpAddr> {
    let mut known = Vec::new();
    for address in found {
        if !known.contains(&address) && known.len() < MAX_ADDRESSES {
            known.push(address);
        }
    }
    let (first, second): (Vec<_>, Vec<_>) =
        known.into_iter().partition(|address| address.is_ipv6() == ipv6_first);
    let longer = first.len().max(second.len());
    (0..longer).flat_map(|i| [first.get(i), second.get(i)]).flatten().copied().collect()
}

/// Whether this host has a route to the public IPv6 network. Connecting a datagram socket sends nothing.
fn has_ipv6() -> bool {
    let connected = |socket: UdpSocket| socket.connect((PUBLIC_IPV6, 53));
    UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0)).and_then(connected).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses(texts: &[&str]) -> Vec<IpAddr> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn the_families_take_turns_and_nothing_is_dialled_twice() {
        let found = addresses(&["1.1.1.1", "1.1.1.1", "2.2.2.2", "3.3.3.3", "2001:db8::1"]);
        let v4_first = addresses(&["1.1.1.1", "2001:db8::1", "2.2.2.2", "3.3.3.3"]);
        assert_eq!(in_turn(found.clone(), false), v4_first);
        assert_eq!(in_turn(found, true)[..2], addresses(&["2001:db8::1", "1.1.1.1"]));
    }

    #[test]
    fn an_answer_of_thousands_of_addresses_is_cut() {
        let found = (0..5000_u32).map(|n| IpAddr::V4(n.into())).collect();
        assert_eq!(in_turn(found, false).len(), MAX_ADDRESSES);
    }

    struct Nobody;

    #[async_trait]
    impl Lookup for Nobody {
        async fn addresses(&self, name: &HostName) -> Vec<IpAddr> {
            panic!("{name} was looked up");
        }
    }

    #[tokio::test]
    async fn the_operators_own_names_are_not_looked_up() {
        let name: HostName = "db.example".parse().unwrap();
        let resolver = Resolver::new(vec![(name.clone(), addresses(&["10.0.0.5"]))], Nobody);
        assert_eq!(resolver.resolve(&name).await, addresses(&["10.0.0.5"]));
    }
}
