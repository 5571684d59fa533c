//! What a caller asks for: the argument `network` of tools, and the request that comes of it.
//!
//! Nothing here decides anything; see [`super::policy`].

use std::fmt;

use super::service::model::Dollars;
use schemars::JsonSchema;
use serde::de::value::MapAccessDeserializer;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

/// Entries that the lists of one request may have together: each is compared with each connection.
pub const MAX_ENTRIES: usize = 256;

/// What one run asks to reach. Its texts are as the caller wrote them; [`super::policy::EgressRules::policy`]
/// parses and checks them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NetworkRequest {
    /// Patterns of what it may reach.
    pub allowed_domains: Vec<String>,
    /// Patterns of what it may not reach, whatever else is said.
    pub denied_domains: Vec<String>,
    /// Names of services that the configuration has.
    pub services: Vec<String>,
    /// All that the configuration gives without a list: `network: true`.
    pub everything: bool,
    /// What it may spend on models, in dollars; `None`: as much as the configuration allows.
    pub max_cost_usd: Option<Dollars>,
    /// How many requests it may send to models; `None`: any number. No call can ask for it by itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_model_requests: Option<u64>,
    /// What a coding agent's level gives it, whatever the lists say. No call can ask for it by itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task: Option<TaskNetwork>,
}

/// What a coding agent may reach beside its model. Addresses are public in any case, and `egress.deny` holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TaskNetwork {
    /// Ports 80 and 443.
    Web,
    /// Every port where `egress.mode` is `open`; ports 80 and 443 where it is `restricted`.
    Everything,
}

impl NetworkRequest {
    /// What `network: true` asks for.
    pub fn open() -> Self {
        Self { everything: true, ..Self::default() }
    }
}

/// The argument `network` of a tool: a bool, or lists. Keys are taken in snake_case and in camelCase.
#[derive(Clone, Debug, PartialEq, Eq, JsonSchema)]
#[schemars(untagged, deny_unknown_fields)]
pub enum NetworkArgument {
    /// true: what this server allows to every program. false: no network.
    Bool(bool),
    /// Only what is listed. An entry is a host name, *.example.com (everything below it, but not the name
    /// itself), *, an IP address or a CIDR; each may end in :port.
    Lists {
        /// What the program may reach. Empty or left out: nothing.
        #[schemars(default)]
        allowed_domains: Vec<String>,
        /// What it may not reach, even if it is allowed.
        #[schemars(default)]
        denied_domains: Vec<String>,
        /// Names of services that the operator has set up. The program reaches each as
        /// `http://NAME.paddock/`, and the server adds the credentials.
        #[schemars(default)]
        services: Vec<String>,
        /// What the program may spend on models among these services, in dollars, as their operator has set
        /// the prices. The next request after that is refused.
        #[schemars(with = "Option<f64>", default, range(min = 0, max = 1_000_000))]
        max_cost_usd: Option<Dollars>,
    },
}

impl NetworkArgument {
    /// The request; `None` where the program has no network: `false`, or neither an allowed destination nor a
    /// service.
    pub fn into_request(self) -> Option<NetworkRequest> {
        match self {
            NetworkArgument::Bool(is_open) => is_open.then(NetworkRequest::open),
            NetworkArgument::Lists { allowed_domains, denied_domains, services, max_cost_usd } => {
                let is_nothing = allowed_domains.is_empty() && services.is_empty();
                let request = NetworkRequest {
                    allowed_domains,
                    denied_domains,
                    services,
                    max_cost_usd,
                    ..NetworkRequest::default()
                };
                Some(request).filter(|_| !is_nothing)
            }
        }
    }
}

/// The lists as they are read. `null` is the same as nothing.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Lists {
    #[serde(alias = "allowedDomains")]
    allowed_domains: Option<Vec<String>>,
    #[serde(alias = "deniedDomains")]
    denied_domains: Option<Vec<String>>,
    services: Option<Vec<String>>,
    #[serde(alias = "maxCostUsd")]
    max_cost_usd: Option<Dollars>,
}

/// By hand: what serde derives for an untagged enum says neither which key is unknown nor which entry is no
/// text.
impl<'de> Deserialize<'de> for NetworkArgument {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ArgumentVisitor)
    }
}

struct ArgumentVisitor;

impl<'de> Visitor<'de> for ArgumentVisitor {
    type Value = NetworkArgument;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "true, false, or an object with allowed_domains, denied_domains, services and max_cost_usd",
        )
    }

    fn visit_bool<E>(self, is_open: bool) -> Result<NetworkArgument, E> {
        Ok(NetworkArgument::Bool(is_open))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<NetworkArgument, A::Error> {
        let lists = Lists::deserialize(MapAccessDeserializer::new(map))?;
        Ok(NetworkArgument::Lists {
            allowed_domains: lists.allowed_domains.unwrap_or_default(),
            denied_domains: lists.denied_domains.unwrap_or_default(),
            services: lists.services.unwrap_or_default(),
            max_cost_usd: lists.max_cost_usd,
        })
    }
}

#[cfg(test)]
mod tests;
