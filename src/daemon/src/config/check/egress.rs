//! What programs may reach outside of their containers. Names and addresses are read by [`crate::egress`],
//! which says what is wrong with one; this module says where it stands.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::net::IpAddr;
use std::str::FromStr;

use paddock_proto::limits::MAX_LISTEN_PORTS;

use super::{Checker, HOUR, MIB, SECOND, TIB};
use crate::config::error::ConfigError;
use crate::config::raw::{EgressTable, ModelTable};
use crate::config::types::AuthSettings;
use crate::config::value::Secret;
use crate::egress::service::settings::label;
use crate::egress::{
    AskBounds, CaBundle, EgressBounds, EgressRules, EgressSettings, HostName, Pattern, UpstreamProxy,
    UpstreamProxyError,
};

/// Entries of one list: each is compared with each connection.
const ENTRIES: usize = 1024;

impl Checker<'_> {
    pub(super) fn egress(
        &mut self,
        (raw, models): (EgressTable, BTreeMap<String, ModelTable>),
        auth: &AuthSettings,
    ) -> Result<EgressSettings, ConfigError> {
        let EgressTable {
            mode,
            allow,
            deny,
            private,
            own_addresses,
            connections,
            connections_per_token,
            connections_per_run,
            bytes,
            names,
            requests,
            ask,
            prompts,
            prompt_timeout,
            connect_timeout,
            idle_timeout,
            upstream_proxy,
            upstream_resolves,
            ca_bundle,
            listen_ports,
            hosts,
            services,
        } = raw;
        let rules = EgressRules {
            mode,
            allow: self.each("egress.allow", &allow)?,
            deny: self.each("egress.deny", &deny)?,
            private: self.each("egress.private", &private)?,
            own_addresses: self.each("egress.own_addresses", &own_addresses)?,
            ask,
        };
        let connections = self.within("egress.connections", connections, 1..=100_000)?;
        let bounds = EgressBounds {
            connections: to_size(connections),
            connections_per_token: to_size(self.within(
                "egress.connections_per_token",
                connections_per_token,
                1..=100_000,
            )?),
            // Each is a stream of its container's link, which has room for no more of them.
            connections_per_run: to_size(self.within(
                "egress.connections_per_run",
                connections_per_run,
                1..=128,
            )?),
            bytes_per_run: self.size("egress.bytes", bytes, MIB..=TIB)?,
            names_per_run: to_size(self.within("egress.names", names, 1..=100_000)?),
            requests_per_run: u64::from(self.within("egress.requests", requests, 1..=u32::MAX)?),
            connect: self.time("egress.connect_timeout", connect_timeout, SECOND..=HOUR)?,
            idle: self.time("egress.idle_timeout", idle_timeout, SECOND..=24 * HOUR)?,
            ask: AskBounds {
                questions: to_size(self.within("egress.prompts", prompts, 1..=100)?),
                within: self.time("egress.prompt_timeout", prompt_timeout, SECOND..=HOUR)?,
            },
        };
        let hosts = hosts.iter().map(|(name, address)| {
            let key = format!("egress.hosts.{name}");
            let name: HostName = name.parse().map_err(|error| self.fail(&key, format!("{error}")))?;
            if label(&name).is_some() {
                return Err(self.fail(&key, "is never looked up: names below `paddock` are egress.services"));
            }
            let address: IpAddr = address.parse().map_err(|_| {
                self.fail(&key, format!("is {address:?}, takes an address such as \"10.0.0.5\""))
            })?;
            Ok((name, vec![address]))
        });
        let hosts = hosts.collect::<Result<_, _>>()?;
        let upstream_proxy = self.upstream_proxy(&upstream_proxy)?;
        if upstream_resolves {
            self.warn_of_unjudged(upstream_proxy.is_some(), &rules.deny);
        }
        let mut services = self.services(services, auth)?;
        self.models(models, auth, &mut services)?;
        let ca_bundle = self.ca_bundle(&ca_bundle)?;
        let listen_ports = self.listen_ports(&listen_ports)?;
        Ok(EgressSettings {
            rules,
            hosts,
            services,
            bounds,
            upstream_proxy,
            upstream_resolves,
            ca_bundle,
            listen_ports,
        })
    }

    fn listen_ports(&self, given: &[u32]) -> Result<Vec<u16>, ConfigError> {
        const KEY: &str = "egress.listen_ports";
        if given.len() > MAX_LISTEN_PORTS {
            let problem = format!("has {} ports, takes at most {MAX_LISTEN_PORTS}", given.len());
            return Err(self.fail(KEY, problem));
        }
        let port = |given: &u32| {
            let port = u16::try_from(*given).ok().filter(|port| *port != 0);
            port.ok_or_else(|| self.fail(KEY, format!("has {given}, takes ports from 1 to {}", u16::MAX)))
        };
        given.iter().map(port).collect()
    }

    /// The proxy: its URL, or where that stands. No error shows the value, which may have a password.
    fn upstream_proxy(&self, given: &Secret) -> Result<Option<UpstreamProxy>, ConfigError> {
        const KEY: &str = "egress.upstream_proxy";
        let url = self.secret(KEY, given.clone())?;
        if url.expose().is_empty() {
            return Ok(None);
        }
        url.expose().parse().map(Some).map_err(|error: UpstreamProxyError| self.fail(KEY, error.to_string()))
    }

    fn ca_bundle(&self, given: &str) -> Result<Option<CaBundle>, ConfigError> {
        const KEY: &str = "egress.ca_bundle";
        if given.is_empty() {
            return Ok(None);
        }
        let path = self.absolute(KEY, given)?;
        let read = CaBundle::read(&path);
        read.map(Some).map_err(|error| self.fail(KEY, format!("names {}, which {error}", path.display())))
    }

    /// Says what cannot be judged where the proxy resolves names.
    fn warn_of_unjudged(&mut self, has_proxy: bool, deny: &[Pattern]) {
        if !has_proxy {
            self.warn("egress.upstream_resolves has no effect without egress.upstream_proxy".to_owned());
        } else if let Some(address) = deny.iter().find(|denied| denied.is_of_addresses()) {
            self.warn(format!(
                "egress.deny has {address}, which names are not compared with: with egress.upstream_resolves \
                 the proxy must refuse it"
            ));
        }
    }

    /// Reads each entry of a list.
    pub(super) fn each<T: FromStr<Err: Display>>(
        &self,
        key: &str,
        list: &[String],
    ) -> Result<Vec<T>, ConfigError> {
        if list.len() > ENTRIES {
            return Err(self.fail(key, format!("has {} entries, must have at most {ENTRIES}", list.len())));
        }
        let read = |(at, text): (usize, &String)| {
            text.parse().map_err(|error| self.fail(&format!("{key}[{at}]"), format!("is {text:?}: {error}")))
        };
        list.iter().enumerate().map(read).collect()
    }
}

fn to_size(number: u32) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}
