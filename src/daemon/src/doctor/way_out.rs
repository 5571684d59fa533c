//! How programs reach outside: what the configuration allows, and whether this host can provide it.
//!
//! It must never send anything to what a program may reach: it asks the name servers for one name that the
//! configuration itself allows, and it connects to nothing but the upstream proxy.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use paddock_proto::message::ProbeReport;
use tokio::net::TcpStream;

use super::check::{Check, Checks, Group};
use super::configuration::{AddressState, address_state, judge_address};
use crate::config::Config;
use crate::egress::resolve::Lookup;
use crate::egress::{
    EgressSettings, Host, HostName, NetworkMode, SystemDns, UpstreamProxy, interface_addresses, system_roots,
};

/// Time for the name servers: two attempts of three seconds at each, and some more.
const ANSWER: Duration = Duration::from_secs(10);
/// Time for a connection to the proxy.
const CONNECT: Duration = Duration::from_secs(5);
/// Files that engines put into their containers.
const IN_CONTAINERS: [&str; 2] = ["/.dockerenv", "/run/.containerenv"];

/// What was found outside of containers.
#[derive(Debug, Clone)]
pub(super) struct WayOutFacts {
    mode: NetworkMode,
    /// Entries of `egress.allow`.
    allowed: usize,
    services: usize,
    /// `egress.listen_ports`.
    listen_ports: Vec<u16>,
    names: Names,
    /// The proxy, and why no connection to it can be made.
    proxy: Option<(String, Result<(), String>)>,
    /// Certificates of `egress.ca_bundle`, and public ones of this host.
    certificates: Option<(usize, usize)>,
    /// Addresses of this host's interfaces.
    own: Result<usize, io::ErrorKind>,
    /// Entries of `egress.own_addresses`.
    told: usize,
    is_in_container: bool,
    ports: Option<(SocketAddr, AddressState)>,
}

/// Who knows the addresses of names.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Names {
    /// No name has to be known.
    Unneeded,
    /// The proxy does.
    OfProxy,
    /// The name servers were asked for this name, and gave so many addresses.
    Asked(String, usize),
}

pub(super) async fn look(config: &Config) -> WayOutFacts {
    let egress = &config.egress;
    let lock = config.store.root.join("lock");
    let (names, proxy) = tokio::join!(names(egress), async {
        match &egress.upstream_proxy {
            Some(proxy) => Some((proxy.to_string(), reach(egress, proxy).await)),
            None => None,
        }
    });
    WayOutFacts {
        mode: egress.rules.mode,
        allowed: egress.rules.allow.len(),
        services: egress.services.len(),
        listen_ports: egress.listen_ports.clone(),
        names,
        proxy,
        certificates: egress
            .ca_bundle
            .as_ref()
            .map(|bundle| (bundle.certificates().len(), system_roots().len())),
        own: interface_addresses().map(|all| all.len()).map_err(|error| error.kind()),
        told: egress.rules.own_addresses.len(),
        is_in_container: IN_CONTAINERS.iter().any(|path| Path::new(path).exists()),
        ports: config.ports.addr.map(|addr| (addr, address_state(addr, &lock))),
    }
}

async fn names(egress: &EgressSettings) -> Names {
    let is_known = |name: &HostName| egress.hosts.iter().any(|(host, _)| host == name);
    let name = egress.rules.allow.iter().filter_map(|pattern| pattern.name()).find(|name| !is_known(name));
    match name {
        Some(_) if egress.rules.mode == NetworkMode::None => Names::Unneeded,
        None => Names::Unneeded,
        Some(_) if egress.upstream_proxy.is_some() && egress.upstream_resolves => Names::OfProxy,
        Some(name) => Names::Asked(name.to_string(), resolve(name).await.len()),
    }
}

async fn resolve(name: &HostName) -> Vec<IpAddr> {
    tokio::time::timeout(ANSWER, SystemDns::new().addresses(name)).await.unwrap_or_default()
}

async fn reach(egress: &EgressSettings, proxy: &UpstreamProxy) -> Result<(), String> {
    let (host, port) = proxy.address();
    let addresses = match host {
        Host::Address(address) => vec![*address],
        Host::Name(name) => match egress.hosts.iter().find(|(host, _)| host == name) {
            Some((_, addresses)) => addresses.clone(),
            None => resolve(name).await,
        },
    };
    let mut why = "its name has no address".to_owned();
    for address in addresses {
        match tokio::time::timeout(CONNECT, TcpStream::connect((address, port))).await {
            Ok(Ok(_)) => return Ok(()),
            Ok(Err(error)) => why = error.kind().to_string(),
            Err(_) => why = format!("it does not answer within {CONNECT:?}"),
        }
    }
    Err(why)
}

/// `inside` is what a process in a container saw, if there was one.
pub(super) fn judge(facts: &WayOutFacts, inside: Option<&ProbeReport>) -> Vec<Check> {
    let mut checks = Checks::of(Group::WayOut);
    let has_network = facts.mode != NetworkMode::None;
    checks.ok("mode", mode(facts));
    names_answered(facts, &mut checks);
    match &facts.proxy {
        None => {}
        Some((proxy, Ok(()))) => checks.ok("upstream proxy", format!("the upstream proxy {proxy} is there")),
        Some((proxy, Err(why))) => checks.warn(
            "upstream proxy",
            format!("the upstream proxy {proxy} cannot be reached: {why}"),
            "programs reach nothing but what egress.private lists: correct egress.upstream_proxy, or start \
             the proxy",
        ),
    }
    match facts.certificates {
        None => {}
        Some((own, 0)) => checks.warn(
            "certificates",
            format!(
                "programs trust only the certificates of egress.ca_bundle, {own}: this host has no others"
            ),
            "they reach no public server over TLS, unless a proxy opens it: install ca-certificates",
        ),
        Some((own, public)) => checks.ok(
            "certificates",
            format!("programs trust {own} of egress.ca_bundle beside {public} public ones of this host"),
        ),
    }
    if let Some(seen) = inside.filter(|_| has_network || facts.services > 0) {
        captured(facts, seen, &mut checks);
    }
    if has_network {
        own_addresses(facts, &mut checks);
    }
    if let Some((addr, place)) = &facts.ports {
        const OTHER: &str = "choose another address by ports.addr, or none: then there are no links to ports";
        judge_address("ports address", *addr, place, OTHER, &mut checks);
    }
    checks.done()
}

fn mode(facts: &WayOutFacts) -> String {
    let entries = |n: usize| if n == 1 { "1 entry".to_owned() } else { format!("{n} entries") };
    let what = match facts.mode {
        NetworkMode::None => "no program has a network".to_owned(),
        NetworkMode::Restricted => {
            format!("a call reaches at most what egress.allow lists, {}", entries(facts.allowed))
        }
        NetworkMode::Open => "a call reaches what it lists, or every public address".to_owned(),
    };
    let services = match facts.services {
        0 => String::new(),
        1 => "; 1 service can be used".to_owned(),
        n => format!("; {n} services can be used"),
    };
    format!("egress.mode is {}: {what}{services}", facts.mode.as_str())
}

fn names_answered(facts: &WayOutFacts, checks: &mut Checks) {
    match &facts.names {
        Names::Unneeded => {}
        Names::OfProxy => checks.ok("names", "names are resolved by the upstream proxy"),
        Names::Asked(name, 0) => checks.warn(
            "names",
            format!("{name}, which egress.allow lists, has no address here"),
            "programs cannot reach it by its name: check /etc/resolv.conf and the name servers in it. Where \
             only a proxy knows public names, set egress.upstream_proxy and egress.upstream_resolves; \
             egress.hosts gives a name an address",
        ),
        Names::Asked(name, 1) => checks.ok("names", format!("{name} has an address")),
        Names::Asked(name, n) => checks.ok("names", format!("{name} has {n} addresses")),
    }
}

/// How PID 1 captures the connections of programs, and whether it can keep runs apart.
fn captured(facts: &WayOutFacts, seen: &ProbeReport, checks: &mut Checks) {
    // Both need it, and another check reports that it is missing.
    if !seen.no_new_privs {
        return;
    }
    match &seen.connects_lack {
        None => checks.ok("programs", "every connection of a program is captured (user notification)"),
        Some(what) => {
            let ports: Vec<String> = facts.listen_ports.iter().map(u16::to_string).collect();
            let names = match ports.as_slice() {
                [] => "no connection is captured".to_owned(),
                ports => format!("captured by listeners: names, on the ports {}", ports.join(", ")),
            };
            checks.warn(
                "programs",
                format!("{names}; programs reach all else by proxy variables only (it lacks {what})"),
                "while several runs are under way in one session, only proxy variables serve. For all ports \
                 and addresses it needs a runtime that allows user notification, and a \
                 kernel.yama.ptrace_scope below 2; egress.listen_ports has the ports",
            );
        }
    }
    match seen.separates {
        true => checks.ok("runs", format!("Landlock {} keeps the runs of a session apart", seen.landlock)),
        false => checks.warn(
            "runs",
            format!("nothing keeps the runs of a session apart (Landlock {})", seen.landlock),
            "a run that has a network takes turns with all other runs of its session. To run them beside \
             each other it needs Linux 5.19 with landlock among its security modules (cat \
             /sys/kernel/security/lsm), and a runtime that allows its system calls",
        ),
    }
}

fn own_addresses(facts: &WayOutFacts, checks: &mut Checks) {
    const TELL: &str = "programs might reach this host by an address that it does not know: list its public \
                        addresses in egress.own_addresses";
    match facts.own {
        Err(kind) => checks.warn(
            "own addresses",
            format!("the addresses of this host's interfaces cannot be read: {kind}"),
            TELL,
        ),
        Ok(_) if facts.is_in_container && facts.told == 0 => checks.warn(
            "own addresses",
            "paddock runs in a container, so it sees the container's addresses, and not its host's",
            TELL,
        ),
        Ok(seen) => checks.ok(
            "own addresses",
            format!("{} addresses of this host are refused to programs", seen + facts.told),
        ),
    }
}

#[cfg(test)]
#[path = "way_out_tests.rs"]
mod tests;
