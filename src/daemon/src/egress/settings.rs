//! What an operator decides about the way out, checked. The defaults stand in `config.example.toml`.

use std::net::IpAddr;
use std::time::Duration;

use super::approval::AskBounds;
use super::ca_bundle::CaBundle;
use super::host_name::HostName;
use super::policy::EgressRules;
use super::service::ServiceSettings;
use super::upstream_proxy::UpstreamProxy;

/// The settings of `[egress]`.
#[derive(Debug, Clone)]
#[cfg_attr(test, derive(PartialEq))]
pub struct EgressSettings {
    /// What runs may be given at most.
    pub rules: EgressRules,
    /// Names with addresses of their own, which are looked at before DNS.
    pub hosts: Vec<(HostName, Vec<IpAddr>)>,
    /// What runs may use with credentials that they do not see.
    pub services: Vec<ServiceSettings>,
    /// The bounds of connections.
    pub bounds: EgressBounds,
    /// The proxy by which everything is reached that is not private.
    pub upstream_proxy: Option<UpstreamProxy>,
    /// Whether that proxy resolves names.
    pub upstream_resolves: bool,
    /// What is trusted besides the public authorities.
    pub ca_bundle: Option<CaBundle>,
    /// Ports on which programs reach a name where PID 1 is not told of their connections.
    pub listen_ports: Vec<u16>,
}

/// Bounds of the connections of programs. Whoever reaches one is told so, and the connection is refused or
/// cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EgressBounds {
    /// Connections that one run has at one time, those that are being made included.
    pub connections_per_run: usize,
    /// Connections that all runs of one token have at one time.
    pub connections_per_token: usize,
    /// Connections that all runs of the daemon have at one time.
    pub connections: usize,
    /// The longest time from the request of a program to its connection: resolving and dialling.
    pub connect: Duration,
    /// A connection on which nothing moves for so long is cut.
    pub idle: Duration,
    /// Bytes of all connections of one run, both directions together.
    pub bytes_per_run: u64,
    /// Different names that one run may have resolved: a name that is looked up leaves the machine.
    pub names_per_run: usize,
    /// Requests to services that one run may make.
    pub requests_per_run: u64,
    /// What a run may ask its caller, where [`super::EgressRules::ask`] allows it.
    pub ask: AskBounds,
}
