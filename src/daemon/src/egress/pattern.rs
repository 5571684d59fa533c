//! One entry of a list of destinations: names, addresses, ports.
//!
//! ```text
//! example.com   *.example.com   *          each with :port or without: then any port
//! 10.0.0.5   10.0.0.0/8   2001:db8::1      an address or CIDR; IPv6 with a port: [2001:db8::1]:443
//! ```
//!
//! A pattern about names never matches an address, nor the other way round; `*` matches both. This file must
//! never guess: what is none of these forms is refused.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use ipnet::{IpNet, Ipv4Net};
use serde::{Deserialize, Serialize};

use super::address;
use super::host_name::{Host, HostName, HostNameProblem, beginning};

/// Destinations: hosts and their ports.
///
/// `Display` writes the normalised form, which parses to the same pattern.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Pattern {
    target: Target,
    /// `None` for every port.
    port: Option<u16>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Target {
    /// `*`: every name and every address.
    Everything,
    /// This name only.
    Name(HostName),
    /// Every name below this one, at any depth, but not the name itself.
    Below(HostName),
    /// These addresses. IPv4-mapped ones are IPv4 here.
    Network(IpNet),
}

impl Pattern {
    /// `*`: every host and every port.
    pub const EVERYTHING: Pattern = Pattern { target: Target::Everything, port: None };

    /// `*:port`: every host, on this port.
    pub(in crate::egress) fn everything_on(port: u16) -> Pattern {
        Pattern { target: Target::Everything, port: Some(port) }
    }

    /// Whether a destination is one of these. An IPv4 address inside of an IPv6 one (IPv4-mapped, NAT64)
    /// counts as that IPv4 address too.
    pub fn matches(&self, host: &Host, port: u16) -> bool {
        let is_host = match host {
            Host::Name(name) => self.matches_name(name),
            Host::Address(ip) => self.matches_address(*ip),
        };
        is_host && self.port.is_none_or(|own| own == port)
    }

    /// Whether a name is one of these, with any port.
    pub fn matches_name(&self, name: &HostName) -> bool {
        match &self.target {
            Target::Everything => true,
            Target::Name(own) => own == name,
            Target::Below(parent) => name.is_below(parent),
            Target::Network(_) => false,
        }
    }

    fn matches_address(&self, ip: IpAddr) -> bool {
        match &self.target {
            Target::Everything => true,
            Target::Name(_) | Target::Below(_) => false,
            Target::Network(network) => {
                let inner = address::embedded(ip).map(IpAddr::V4);
                network.contains(&ip) || inner.is_some_and(|inner| network.contains(&inner))
            }
        }
    }

    /// Whether every destination of another pattern is one of these.
    pub fn covers(&self, other: &Pattern) -> bool {
        let is_target = match (&self.target, &other.target) {
            (Target::Everything, _) => true,
            (Target::Network(own), Target::Network(network)) => own.contains(network),
            (_, Target::Name(name)) => self.matches_name(name),
            (Target::Below(own), Target::Below(parent)) => own == parent || parent.is_below(own),
            (Target::Name(_), Target::Below(_) | Target::Network(_))
            | (Target::Below(_), Target::Network(_))
            | (Target::Network(_), Target::Below(_))
            | (Target::Name(_) | Target::Below(_) | Target::Network(_), Target::Everything) => false,
        };
        is_target && self.port.is_none_or(|own| other.port == Some(own))
    }

    /// Whether this is `*` without a port.
    pub fn is_everything(&self) -> bool {
        *self == Pattern::EVERYTHING
    }

    /// Whether this is `*`, with a port or without: it names no host.
    pub fn is_any_host(&self) -> bool {
        self.target == Target::Everything
    }

    /// Whether this is about addresses, and no names.
    pub fn is_of_addresses(&self) -> bool {
        matches!(self.target, Target::Network(_))
    }

    /// The name, if this is about a single one.
    pub fn name(&self) -> Option<&HostName> {
        match &self.target {
            Target::Name(name) => Some(name),
            Target::Everything | Target::Below(_) | Target::Network(_) => None,
        }
    }

    /// The port; `None` for every port.
    pub fn port(&self) -> Option<u16> {
        self.port
    }
}

/// Why a text is not a pattern.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the pattern {pattern:?} {problem}")]
pub struct PatternError {
    /// The beginning of the text.
    pub pattern: String,
    /// What is wrong with it.
    pub problem: PatternProblem,
}

/// What is wrong with a pattern. The text follows the pattern in a sentence.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PatternProblem {
    /// There is nothing.
    #[error("is empty; expected for example example.com, *.example.com, * or 192.0.2.0/24")]
    Empty,
    /// There is a scheme.
    #[error("has a scheme; write only the host, and the port where it matters: example.com:443")]
    Scheme,
    /// There is a `/` that is not a CIDR's.
    #[error("has a path; write only the host: what is below a host cannot be told apart")]
    Path,
    /// A `*` is not the whole host, and not its first label.
    #[error("has a * in another place than the beginning; write *.example.com, or * for every host")]
    Wildcard,
    /// The port is no port.
    #[error("has a port that is not a number from 1 to 65535")]
    Port,
    /// An IPv6 address is not told apart from its port, or what is in brackets is none.
    #[error("is not an address; an IPv6 address with a port is written [2001:db8::1]:443")]
    Brackets,
    /// What stands behind the `/` is not the length of a prefix.
    #[error("has a prefix that is not a number from 0 to {0}")]
    Prefix(u8),
    /// A CIDR has bits behind its prefix.
    #[error("has bits behind its prefix; write {0}, or the address alone")]
    HostBits(IpNet),
    /// The name is none.
    #[error(transparent)]
    Name(HostNameProblem),
}

impl FromStr for Pattern {
    type Err = PatternError;

    fn from_str(text: &str) -> Result<Pattern, PatternError> {
        parse(text).map_err(|problem| PatternError { pattern: beginning(text), problem })
    }
}

impl TryFrom<String> for Pattern {
    type Error = PatternError;

    fn try_from(text: String) -> Result<Pattern, PatternError> {
        text.parse()
    }
}

fn parse(text: &str) -> Result<Pattern, PatternProblem> {
    if text.is_empty() {
        return Err(PatternProblem::Empty);
    }
    if text.contains("://") {
        return Err(PatternProblem::Scheme);
    }
    // An IPv6 address is full of colons: without brackets it has no port.
    if let Some(network) = network(text)? {
        return Ok(Pattern { target: Target::Network(network), port: None });
    }
    if let Some(rest) = text.strip_prefix('[') {
        let (inner, rest) = rest.split_once(']').ok_or(PatternProblem::Brackets)?;
        let network = network(inner)?.filter(|_| inner.contains(':')).ok_or(PatternProblem::Brackets)?;
        let port = match rest.strip_prefix(':') {
            Some(port) => Some(parse_port(port)?),
            None if rest.is_empty() => None,
            None => return Err(PatternProblem::Brackets),
        };
        return Ok(Pattern { target: Target::Network(network), port });
    }
    let (host, port) = match text.split_once(':') {
        Some((_, port)) if port.contains(':') => return Err(PatternProblem::Brackets),
        Some((_, port)) if port.contains('/') => return Err(PatternProblem::Path),
        Some((host, port)) => (host, Some(parse_port(port)?)),
        None => (text, None),
    };
    Ok(Pattern { target: parse_target(host)?, port })
}

fn parse_target(host: &str) -> Result<Target, PatternProblem> {
    if let Some(network) = network(host)? {
        return Ok(Target::Network(network));
    }
    if host.contains('/') {
        return Err(PatternProblem::Path);
    }
    if host == "*" {
        return Ok(Target::Everything);
    }
    let parent = host.strip_prefix("*.");
    let name = parent.unwrap_or(host);
    if name.contains('*') {
        return Err(PatternProblem::Wildcard);
    }
    let name = name.parse::<HostName>().map_err(|error| PatternProblem::Name(error.problem))?;
    Ok(if parent.is_some() { Target::Below(name) } else { Target::Name(name) })
}

/// Digits only: `u16::from_str` would take a leading `+`.
fn parse_port(text: &str) -> Result<u16, PatternProblem> {
    let is_number = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let port = text.parse().ok().filter(|port| is_number && *port > 0);
    port.ok_or(PatternProblem::Port)
}

/// An address or CIDR; `None` if the text does not begin with an address. The address is read by the standard
/// library, which takes no leading zeros (some read those as octal), not by `ipnet`.
fn network(text: &str) -> Result<Option<IpNet>, PatternProblem> {
    let (ip, prefix) = text.split_once('/').map_or((text, None), |(ip, prefix)| (ip, Some(prefix)));
    let Ok(ip) = ip.parse::<IpAddr>() else { return Ok(None) };
    // A port belongs to somebody else: `10.0.0.0/8:443`.
    if prefix.is_some_and(|prefix| prefix.contains(':')) {
        return Ok(None);
    }
    let Some(prefix) = prefix else { return Ok(Some(unmapped(IpNet::from(ip)))) };
    let most = IpNet::from(ip).max_prefix_len();
    let is_number = !prefix.is_empty() && prefix.bytes().all(|b| b.is_ascii_digit());
    let length = prefix.parse().ok().filter(|_| is_number);
    let network =
        length.and_then(|length| IpNet::new(ip, length).ok()).ok_or(PatternProblem::Prefix(most))?;
    if network.trunc() != network {
        return Err(PatternProblem::HostBits(network.trunc()));
    }
    Ok(Some(unmapped(network)))
}

/// Addresses that are all IPv4-mapped, as IPv4: they are dialled so.
fn unmapped(network: IpNet) -> IpNet {
    const MAPPED: u8 = 96;
    let inner = match network {
        IpNet::V4(_) => None,
        IpNet::V6(v6) => v6.addr().to_ipv4_mapped().zip(v6.prefix_len().checked_sub(MAPPED)),
    };
    inner.and_then(|(ip, bits)| Ipv4Net::new(ip, bits).ok()).map_or(network, IpNet::V4)
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let host = match &self.target {
            Target::Everything => "*".to_owned(),
            Target::Name(name) => name.to_string(),
            Target::Below(name) => format!("*.{name}"),
            Target::Network(net) if net.prefix_len() == net.max_prefix_len() => net.addr().to_string(),
            Target::Network(net) => net.to_string(),
        };
        match self.port {
            None => f.write_str(&host),
            Some(port) if host.contains(':') => write!(f, "[{host}]:{port}"),
            Some(port) => write!(f, "{host}:{port}"),
        }
    }
}

impl From<Pattern> for String {
    fn from(pattern: Pattern) -> String {
        pattern.to_string()
    }
}

#[cfg(test)]
mod tests;
