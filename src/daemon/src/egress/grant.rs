//! What a call is granted: its request, and the policy that the configuration makes of it.

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;

use tracing::warn;

use super::approval::Asker;
use super::gateway::Egress;
use super::policy::{EgressRules, NetworkMode, NetworkPolicy, PolicyRefusal};
use super::request::NetworkRequest;
use super::resolve::SystemDns;
use super::service::model::Provider;
use super::settings::EgressSettings;
use crate::cluster::amounts::{AmountsElsewhere, ToldSpending};
use crate::metrics::Metrics;

/// What one run may reach. Clones share the policy.
#[derive(Debug, Clone)]
pub struct NetworkGrant {
    /// What its call asked for: the next daemon makes a policy of it, should this one be killed.
    pub request: NetworkRequest,
    /// What this daemon's configuration allows of it.
    pub policy: Arc<NetworkPolicy>,
    /// The way to the client of its call, for what the policy does not allow.
    pub asker: Option<Asker>,
}

impl Egress {
    /// The way out of a daemon with these settings: names are resolved as this host does, and the addresses
    /// of its interfaces count as its own.
    #[must_use]
    pub fn open(settings: EgressSettings, metrics: Metrics) -> Arc<Self> {
        let mut settings = settings;
        match interface_addresses() {
            Ok(own) => settings.rules.own_addresses.extend(own),
            Err(error) => {
                warn!(%error, "the addresses of this host are unknown: egress.own_addresses must list them");
            }
        }
        Self::new(&settings, SystemDns::new(), metrics)
    }

    /// What a call may have that asks for this. `caller` is the name of its token.
    ///
    /// # Errors
    /// The configuration does not allow it, or an entry is malformed: see [`PolicyRefusal`].
    pub fn grant(&self, request: &NetworkRequest, caller: &str) -> Result<NetworkGrant, PolicyRefusal> {
        let policy = Arc::new(self.rules.policy(request)?);
        self.services.check(&request.services, caller)?;
        Ok(NetworkGrant { request: request.clone(), policy, asker: None })
    }

    /// What fetching packages from these destinations may reach. Where the operator named them for this
    /// purpose, they are reached in every mode, and with an address that is not public; `egress.deny` holds.
    ///
    /// # Errors
    /// The configuration does not allow it: see [`PolicyRefusal`].
    pub fn grant_registry(
        &self,
        destinations: &[String],
        is_named_for_it: bool,
    ) -> Result<Arc<NetworkPolicy>, PolicyRefusal> {
        Ok(Arc::new(self.rules.for_registry(destinations, is_named_for_it)?))
    }

    /// The models that this caller may use, by the names of their services, in alphabetical order. A run has
    /// one if its request lists it in `services`, and a budget by `max_cost_usd`.
    pub fn models<'a>(&'a self, caller: &'a str) -> impl Iterator<Item = (&'a str, Provider)> {
        self.services.models(caller)
    }

    /// Keeps what tenants spend on models in this file, and goes on with what it says.
    pub fn keep_spending(&self, file: PathBuf) {
        self.services.keep_spending(file);
    }

    /// From now on what tenants spend on models at other nodes counts against their limits of a day.
    pub fn add_spending_elsewhere(&self, elsewhere: Arc<AmountsElsewhere>) {
        self.services.models_shared().add_elsewhere(elsewhere);
    }

    /// What each tenant has spent on models today (UTC), at this node.
    pub fn spent_today(&self) -> BTreeMap<String, ToldSpending> {
        self.services.models_shared().spent_today()
    }

    /// Whether callers are asked for what is not allowed: `egress.ask`.
    pub fn asks(&self) -> bool {
        self.rules.ask
    }

    /// What callers may get: `egress.mode`.
    pub fn mode(&self) -> NetworkMode {
        self.rules.mode
    }
}

impl EgressRules {
    /// See [`Egress::grant_registry`].
    ///
    /// # Errors
    /// The same.
    pub fn for_registry(
        &self,
        destinations: &[String],
        is_named_for_it: bool,
    ) -> Result<NetworkPolicy, PolicyRefusal> {
        let mut rules = Self { ask: false, ..self.clone() };
        if is_named_for_it {
            rules.mode = NetworkMode::Open;
            rules.private.extend(destinations.iter().filter_map(|text| text.parse().ok()));
        }
        let request = NetworkRequest { allowed_domains: destinations.to_vec(), ..NetworkRequest::default() };
        rules.policy(&request)
    }
}

/// The addresses of this host's interfaces. Loopback is among them, and is refused for what it is.
///
/// # Errors
/// The system's.
pub fn interface_addresses() -> io::Result<Vec<IpAddr>> {
    Ok(if_addrs::get_if_addrs()?.into_iter().map(|interface| interface.ip()).collect())
}
