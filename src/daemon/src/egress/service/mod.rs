//! Services: what an operator lets runs use with credentials that the runs never see.
//!
//! ```text
//!  program ─ http://NAME.paddock/path ─► PID 1 ═ a stream of the link ═► serve    the HTTP server on it
//!                                                                        │ target   below the URL?
//!                                                                        │ header   drop, add the credential
//!                                                                        │ client   the daemon's connection
//!                                                                        ▼
//!                                                     mask ◄── answer ── https://api.example/v1/path
//!                                                       └ credential: the values, and when to read them
//! ```
//!
//! A run has the services that its call asks for by name, if the configuration lists its caller (`tenants`).
//! `target`, `header` and `mask` are pure. A service that is a [`model`] has its answers metered.
//!
//! It must never send anything to another place than below the URL of the service, nor let a configured value
//! into a container, a log line, an error or an answer. The masks are a net below that: they find a value as
//! it is and in its usual escapes. They do not find a value that the other side has encrypted or taken apart.

mod answer;
mod body;
mod client;
pub mod connection;
mod credential;
#[cfg(test)]
mod fuzz_tests;
mod header;
mod mask;
pub mod model;
mod pump;
mod serve;
pub mod settings;
mod target;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub(super) use self::client::RunClients;
use self::client::{Dial, ServiceClient, Upstreams};
use self::credential::Credentials;
use self::model::{Model, Models, Provider};
pub use self::settings::{BaseUrl, HeaderSource, SecretText, ServiceHeader, ServiceSettings};
use super::policy::PolicyRefusal;
use super::resolve::Resolver;
use super::settings::EgressSettings;
use super::through_proxy::ProxyWay;
use crate::metrics::Metrics;

/// One service.
pub(super) struct Service {
    name: String,
    url: BaseUrl,
    tenants: Vec<String>,
    credentials: Credentials,
    /// What it is beside that, if it is a model.
    model: Option<Model>,
}

/// The services of the daemon.
pub(super) struct Services {
    all: BTreeMap<String, Arc<Service>>,
    models: Models,
    upstreams: Upstreams,
}

impl Services {
    pub(super) fn new(
        settings: &EgressSettings,
        resolver: Arc<Resolver>,
        proxy: Option<Arc<ProxyWay>>,
        metrics: &Metrics,
    ) -> Self {
        let service = |settings: &ServiceSettings| {
            if settings.model.is_some() {
                metrics.model_known(&settings.name);
            }
            let service = Service {
                name: settings.name.clone(),
                url: settings.url.clone(),
                tenants: settings.tenants.clone(),
                credentials: Credentials::new(&settings.headers),
                model: settings.model.as_ref().map(|model| Model::new(&settings.name, model)),
            };
            (settings.name.clone(), Arc::new(service))
        };
        let is_encrypted = settings.services.iter().any(|service| service.url.is_https());
        let (bundle, within) = (settings.ca_bundle.as_ref(), settings.bounds.connect);
        Self {
            all: settings.services.iter().map(service).collect(),
            models: Models::default(),
            upstreams: Upstreams::new(Dial { resolver, proxy, within }, is_encrypted, bundle),
        }
    }

    /// Whether a caller may use all of these.
    ///
    /// # Errors
    /// Names the first service that the caller may not use, and all that it may use. It names no others, so
    /// that a caller does not learn which services exist.
    pub(super) fn check(&self, asked: &[String], caller: &str) -> Result<(), PolicyRefusal> {
        let own: Vec<&str> =
            self.all.values().filter(|one| one.serves(caller)).map(|one| &*one.name).collect();
        let Some(other) = asked.iter().find(|name| !own.contains(&name.as_str())) else { return Ok(()) };
        let reason = if own.is_empty() {
            "is no service that this caller may use; it may use none".to_owned()
        } else {
            format!("is no service that this caller may use; it may use {}", own.join(", "))
        };
        Err(PolicyRefusal::Malformed { list: "services", pattern: other.clone(), reason })
    }

    /// The models that a caller may use, by the names of their services.
    pub(super) fn models<'a>(&'a self, caller: &'a str) -> impl Iterator<Item = (&'a str, Provider)> {
        let own = self.all.values().filter(move |service| service.serves(caller));
        own.filter_map(|service| Some((service.name.as_str(), service.model.as_ref()?.provider())))
    }

    /// Keeps what tenants spend on models in this file.
    pub(super) fn keep_spending(&self, file: PathBuf) {
        self.models.keep_spending(file);
    }

    /// What all models share.
    pub(in crate::egress) fn models_shared(&self) -> &Models {
        &self.models
    }

    pub(super) fn find(&self, name: &str) -> Option<Arc<Service>> {
        self.all.get(name).cloned()
    }

    /// The client by which a run reaches a service. No two runs share a connection to the other side.
    fn client(&self, run: &RunClients, service: &Service) -> ServiceClient {
        run.client(&self.upstreams, &service.name)
    }
}

/// Whether an operator may set this header, whose name is in lower case.
pub fn is_configurable(header: &str) -> bool {
    header::is_configurable(header)
}

/// Reads a credential from a file.
///
/// # Errors
/// What is wrong with the file, which begins with its path.
pub fn read_credential(path: &Path) -> Result<SecretText, String> {
    credential::read_file(path).map_err(|error| error.to_string())
}

impl Service {
    fn serves(&self, caller: &str) -> bool {
        self.tenants.iter().any(|tenant| tenant == caller || tenant == settings::EVERYBODY)
    }
}

#[cfg(test)]
mod tests;
