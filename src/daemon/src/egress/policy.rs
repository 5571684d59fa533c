//! What one run may reach: the configuration's rules and the caller's request, made into one policy.
//!
//! ```text
//!               EgressRules (configuration)
//!  NetworkRequest ──► policy() ──► NetworkPolicy ──► judge()           by name or address, before resolving
//!                        │                           may_look_up()     whether the resolver inside answers
//!                        ▼                           judge_address()   each address that a name resolved to
//!                  PolicyRefusal
//! ```
//!
//! | mode | a list | `network: true` |
//! |---|---|---|
//! | `none` | refused | refused |
//! | `restricted` | what it lists, if `allow` covers it | exactly `allow` |
//! | `open` | what it lists | every public address |
//!
//! Four rules hold in every mode. What a deny list matches is refused, the configuration's or the caller's,
//! by name or by the address that a name resolved to. An address must be public, and none of the host's own.
//! `private` lifts that rule, and no other, for a destination that a pattern of the policy names; `*` names
//! nothing, and so neither `*` nor `network: true` in mode `open` reaches a private address.
//!
//! A coding agent's level gives it public addresses on ports 80 and 443 in mode `restricted`, whatever
//! `allow` lists, and in mode `open`, where level 4 has every port; in mode `none` it has its model alone.
//!
//! Names below `paddock` are services. No list speaks of them, neither to allow nor to deny: a run has those
//! that it asks for, in every mode, `none` included. Whether they exist, and for its caller, is checked by
//! [`super::service`].
//!
//! Special-use names (`localhost`, `*.local`, `*.internal`, `*.onion`, `*.test` …) have no rule of their own:
//! they are judged as any other name, and then by the address that they resolve to.
//!
//! Nothing here resolves or waits. A policy must never allow what its request did not ask for, nor more than
//! the configuration allows.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::address;
use super::host_name::{Host, HostName};
use super::pattern::Pattern;
use super::request::{MAX_ENTRIES, NetworkRequest, TaskNetwork};
use super::service::connection::HTTP;
use super::service::model::Dollars;
use super::service::settings as service;

mod reason;
mod refusal;

pub use reason::BlockReason;
pub use refusal::{PolicyRefusal, RefusalKind};

/// The port of HTTPS: there, the name in the TLS hello must be the one that was asked for.
const HTTPS: u16 = 443;

/// What callers may get: `egress.mode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NetworkMode {
    /// No network.
    None,
    /// At most what `egress.allow` lists.
    Restricted,
    /// What a caller lists, or every public address.
    Open,
}

impl NetworkMode {
    /// The mode as it stands in the configuration.
    pub fn as_str(self) -> &'static str {
        match self {
            NetworkMode::None => "none",
            NetworkMode::Restricted => "restricted",
            NetworkMode::Open => "open",
        }
    }
}

impl fmt::Display for NetworkMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The text is no mode.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no network mode; expected none, restricted or open")]
pub struct ModeError(String);

impl FromStr for NetworkMode {
    type Err = ModeError;

    fn from_str(text: &str) -> Result<NetworkMode, ModeError> {
        let all = [NetworkMode::None, NetworkMode::Restricted, NetworkMode::Open];
        let mode = all.into_iter().find(|mode| mode.as_str() == text);
        mode.ok_or_else(|| ModeError(super::host_name::beginning(text)))
    }
}

/// The configuration's part of every policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EgressRules {
    /// What callers may get.
    pub mode: NetworkMode,
    /// The most that a caller may get in mode `restricted`; the other modes do not look at it.
    pub allow: Vec<Pattern>,
    /// What no caller gets, in any mode.
    pub deny: Vec<Pattern>,
    /// What may be reached although its address is not public or is the host's own: addresses and CIDRs, or
    /// names, which then count whatever they resolve to.
    pub private: Vec<Pattern>,
    /// The addresses of the host, those of its containers' networks included.
    pub own_addresses: Vec<IpAddr>,
    /// Whether a destination that is not allowed may be put to the caller ([`super::Asker`]).
    pub ask: bool,
}

impl EgressRules {
    /// The policy of one run.
    ///
    /// # Errors
    /// The mode does not allow the request, or an entry is malformed.
    pub fn policy(&self, request: &NetworkRequest) -> Result<NetworkPolicy, PolicyRefusal> {
        let asks_for_network = request.everything || !request.allowed_domains.is_empty();
        if self.mode == NetworkMode::None && asks_for_network {
            return Err(PolicyRefusal::Unavailable);
        }
        check_count(request)?;
        let listed = parse("allowed_domains", &request.allowed_domains)?;
        let denied = parse("denied_domains", &request.denied_domains)?;
        request.services.iter().try_for_each(|name| check_service(name))?;
        let mut allow = match (self.mode, request.everything) {
            (NetworkMode::Restricted, is_everything) => {
                let escapes = |pattern: &&Pattern| !self.allow.iter().any(|own| own.covers(pattern));
                let asked: Vec<_> = listed.iter().filter(escapes).map(Pattern::to_string).collect();
                if !asked.is_empty() {
                    let allow = self.allow.iter().map(Pattern::to_string).collect();
                    return Err(PolicyRefusal::Unsupported { asked, allow });
                }
                if is_everything { self.allow.clone() } else { listed }
            }
            (NetworkMode::Open, true) => [listed, vec![Pattern::EVERYTHING]].concat(),
            (NetworkMode::Open, false) | (NetworkMode::None, _) => listed,
        };
        allow.extend(request.task.map_or_else(Vec::new, |task| self.of_task(task)));
        let unlisted = match (self.mode, request.everything) {
            (NetworkMode::None, _) => BlockReason::Mode,
            (NetworkMode::Restricted, true) => BlockReason::Restricted,
            (NetworkMode::Restricted, false) | (NetworkMode::Open, _) => BlockReason::NotAllowed,
        };
        let askable = match self.mode {
            _ if !self.ask || !asks_for_network => Vec::new(),
            NetworkMode::None => Vec::new(),
            NetworkMode::Restricted => self.allow.clone(),
            NetworkMode::Open => vec![Pattern::EVERYTHING],
        };
        Ok(NetworkPolicy {
            allow,
            askable,
            approved: Vec::new(),
            unlisted,
            denied,
            deny: self.deny.clone(),
            private: self.private.clone(),
            own_addresses: self.own_addresses.clone(),
            services: request.services.clone(),
            model_budget: request.max_cost_usd,
            model_requests: request.max_model_requests,
        })
    }

    /// What a coding agent's level adds.
    fn of_task(&self, task: TaskNetwork) -> Vec<Pattern> {
        match (self.mode, task) {
            (NetworkMode::None, _) => Vec::new(),
            (NetworkMode::Open, TaskNetwork::Everything) => vec![Pattern::EVERYTHING],
            (NetworkMode::Restricted | NetworkMode::Open, _) => {
                [HTTP, HTTPS].map(Pattern::everything_on).to_vec()
            }
        }
    }
}

fn malformed(list: &'static str, pattern: &str, reason: impl fmt::Display) -> PolicyRefusal {
    let pattern = super::host_name::beginning(pattern);
    PolicyRefusal::Malformed { list, pattern, reason: reason.to_string() }
}

fn check_count(request: &NetworkRequest) -> Result<(), PolicyRefusal> {
    let lists = [
        ("allowed_domains", &request.allowed_domains),
        ("denied_domains", &request.denied_domains),
        ("services", &request.services),
    ];
    let entries = lists.into_iter().flat_map(|(name, list)| list.iter().map(move |entry| (name, entry)));
    match entries.into_iter().nth(MAX_ENTRIES) {
        Some((list, entry)) => {
            let reason = format!("is one more than the {MAX_ENTRIES} that all lists together may have");
            Err(malformed(list, entry, reason))
        }
        None => Ok(()),
    }
}

fn parse(list: &'static str, texts: &[String]) -> Result<Vec<Pattern>, PolicyRefusal> {
    let parse = |text: &String| text.parse::<Pattern>().map_err(|error| malformed(list, text, error.problem));
    texts.iter().map(parse).collect()
}

/// A service's name is a label: it stands in `http://NAME.paddock/`.
fn check_service(name: &str) -> Result<(), PolicyRefusal> {
    let label = name.parse::<HostName>().map_err(|error| malformed("services", name, error.problem))?;
    if label.as_str() != name || name.contains('.') {
        return Err(malformed("services", name, "is not the name of a service: lower case, without dots"));
    }
    Ok(())
}

/// What one run may reach.
#[derive(Debug, Clone)]
pub struct NetworkPolicy {
    allow: Vec<Pattern>,
    /// What may be put to the caller.
    askable: Vec<Pattern>,
    /// What the caller has allowed beyond `allow`.
    approved: Vec<(Host, u16)>,
    /// Why a destination is refused that `allow` does not match.
    unlisted: BlockReason,
    /// The caller's.
    denied: Vec<Pattern>,
    /// The configuration's.
    deny: Vec<Pattern>,
    private: Vec<Pattern>,
    own_addresses: Vec<IpAddr>,
    services: Vec<String>,
    model_budget: Option<Dollars>,
    model_requests: Option<u64>,
}

/// A destination that may be reached, as far as that can be said before it is resolved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Judged {
    /// The name that the TLS hello must have. `None` where none is asked for: the port is not 443, or the
    /// destination is allowed as an address or by `*`. Deny lists do not look into TLS: a run that is allowed
    /// `*` may send a hello with a denied name to an address that is not denied.
    pub tls_name: Option<HostName>,
}

impl NetworkPolicy {
    /// Judges a destination as it is asked for, before anything is resolved. A name is allowed by patterns
    /// about names only, an address by patterns about addresses, both by `*`.
    ///
    /// # Errors
    /// Why it is blocked. An address that is allowed here is still to be judged by
    /// [`NetworkPolicy::judge_address`].
    pub fn judge(&self, host: &Host, port: u16) -> Result<Judged, BlockReason> {
        if matches!(host, Host::Name(name) if service::label(name).is_some()) {
            return Err(BlockReason::NoService);
        }
        self.check_denied(host, port)?;
        let matching: Vec<&Pattern> = self.allow.iter().filter(|own| own.matches(host, port)).collect();
        let is_approved = self.approved.iter().any(|(own, at)| (own, *at) == (host, port));
        // Nothing listens on port 0.
        if (matching.is_empty() && !is_approved) || port == 0 {
            return Err(self.unlisted);
        }
        let is_free = port != HTTPS || matching.iter().any(|own| own.is_any_host());
        let tls_name = match host {
            Host::Name(name) if !is_free => Some(name.clone()),
            Host::Name(_) | Host::Address(_) => None,
        };
        Ok(Judged { tls_name })
    }

    /// Whether a name may be looked up: [`NetworkPolicy::judge`] would allow it with some port.
    pub fn may_look_up(&self, name: &HostName) -> bool {
        match service::label(name) {
            Some(label) => self.services.iter().any(|own| own == label),
            None => self.may_look_up_in(&self.allow, name),
        }
    }

    /// The same for a name that may be put to the caller, with some port.
    pub fn may_look_up_to_ask(&self, name: &HostName) -> bool {
        service::label(name).is_none() && self.may_look_up_in(&self.askable, name)
    }

    fn may_look_up_in(&self, patterns: &[Pattern], name: &HostName) -> bool {
        let host = Host::Name(name.clone());
        let is_denied = |own: &Pattern| own.port().is_none() && own.matches_name(name);
        patterns.iter().filter(|own| own.matches_name(name)).any(|own| match own.port() {
            Some(port) => self.check_denied(&host, port).is_ok(),
            // Patterns with a port deny single ports, of which there are more than patterns.
            None => !self.denied.iter().chain(&self.deny).any(is_denied),
        })
    }

    /// Whether a destination that [`NetworkPolicy::judge`] refuses may be put to the caller: a yes could
    /// allow it. An address that is not public is never asked for, nor what a deny list has.
    pub fn may_ask(&self, host: &Host, port: u16) -> bool {
        let is_service = matches!(host, Host::Name(name) if service::label(name).is_some());
        let is_far = match host {
            Host::Name(_) => true,
            Host::Address(address) => self.judge_public(*address).is_ok(),
        };
        let is_askable = self.askable.iter().any(|own| own.matches(host, port));
        port != 0 && !is_service && is_far && is_askable && self.check_denied(host, port).is_ok()
    }

    /// The same policy for a run whose caller has allowed one destination more. It lifts no other rule:
    /// deny lists hold, and its addresses must be public.
    #[must_use]
    pub fn with_approved(&self, host: &Host, port: u16) -> Self {
        let mut policy = self.clone();
        policy.approved.push((host.clone(), port));
        policy
    }

    /// Judges the address to be dialled: what a name resolved to, or the address that was asked for. It
    /// includes what [`NetworkPolicy::judge`] checks.
    ///
    /// # Errors
    /// Why it is blocked. Another address of the same name may still be allowed.
    pub fn judge_address(&self, host: &Host, address: IpAddr, port: u16) -> Result<(), BlockReason> {
        self.judge(host, port)?;
        match host {
            Host::Address(asked) if !address::is_same(*asked, address) => return Err(self.unlisted),
            Host::Name(_) | Host::Address(_) => {}
        }
        let dialled = Host::Address(address);
        self.check_denied(&dialled, port)?;
        self.judge_public(address)
            .or_else(|reason| if self.is_private(host, address, port) { Ok(()) } else { Err(reason) })
    }

    /// Whether an address is public, and none of the host's own.
    fn judge_public(&self, address: IpAddr) -> Result<(), BlockReason> {
        match address::special_range(address) {
            Some(special) => Err(BlockReason::NotGlobal(special)),
            None if self.own_addresses.iter().any(|own| address::is_same(*own, address)) => {
                Err(BlockReason::OwnAddress)
            }
            None => Ok(()),
        }
    }

    /// Judges an address that has turned out to be this host's own: its addresses change while the daemon
    /// runs.
    ///
    /// # Errors
    /// [`BlockReason::OwnAddress`], unless `private` lists it for a destination that the policy names.
    pub fn judge_own_address(&self, host: &Host, address: IpAddr, port: u16) -> Result<(), BlockReason> {
        if self.is_private(host, address, port) { Ok(()) } else { Err(BlockReason::OwnAddress) }
    }

    /// The service that a name below `paddock` means, if this run has asked for it.
    ///
    /// # Errors
    /// Why it is blocked.
    pub fn judge_service(&self, name: &HostName, port: u16) -> Result<&str, BlockReason> {
        let label = service::label(name);
        let own = self.services.iter().find(|own| Some(own.as_str()) == label);
        match (own, port) {
            (None, _) => Err(BlockReason::NoService),
            (Some(own), HTTP) => Ok(own),
            (Some(_), HTTPS) => Err(BlockReason::ServiceTls),
            (Some(_), _) => Err(BlockReason::ServicePort),
        }
    }

    /// Whether an address may be reached although it is not public or is the host's own: `private` lists it,
    /// or its name, and the policy names the destination.
    pub(super) fn is_private(&self, host: &Host, address: IpAddr, port: u16) -> bool {
        let dialled = Host::Address(address);
        let is_private = |own: &Pattern| own.matches(&dialled, port) || own.matches(host, port);
        self.names(host, port) && self.private.iter().any(is_private)
    }

    /// The same for a name that may be reached whatever its address is.
    pub(super) fn is_private_name(&self, host: &Host, port: u16) -> bool {
        self.names(host, port) && self.private.iter().any(|own| own.matches(host, port))
    }

    /// Whether the policy allows the destination by more than `*`.
    fn names(&self, host: &Host, port: u16) -> bool {
        self.allow.iter().any(|own| !own.is_any_host() && own.matches(host, port))
    }

    /// What the run may spend on models.
    pub(super) fn model_budget(&self) -> Option<Dollars> {
        self.model_budget
    }

    /// How many requests the run may send to models.
    pub(super) fn model_requests(&self) -> Option<u64> {
        self.model_requests
    }

    /// The services that the run asked for. Whether they exist, and for its tenant, is not checked.
    pub fn services(&self) -> &[String] {
        &self.services
    }

    fn check_denied(&self, host: &Host, port: u16) -> Result<(), BlockReason> {
        if self.deny.iter().any(|own| own.matches(host, port)) {
            return Err(BlockReason::Denied);
        }
        if self.denied.iter().any(|own| own.matches(host, port)) {
            return Err(BlockReason::DeniedByCaller);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
