//! The way in to servers that programs run.

use super::{Checker, HOUR, SECOND};
use crate::config::error::ConfigError;
use crate::config::raw::PortsTable;
use crate::config::types::PortsSettings;
use crate::ports::PortBounds;

impl Checker<'_> {
    pub(super) fn ports(&mut self, raw: PortsTable) -> Result<PortsSettings, ConfigError> {
        let PortsTable { addr, public_url, connections, connect_timeout, answer_timeout, idle_timeout } = raw;
        let addr = self.addr_or_none("ports.addr", &addr)?;
        let public_url = match public_url.as_str() {
            "" => None,
            text => Some(self.public_url("ports.public_url", text)?),
        };
        match (addr, &public_url) {
            (None, Some(_)) => {
                self.warn("ports.public_url is set but has no effect: ports.addr is not set".into());
            }
            (Some(addr), None) if addr.ip().is_unspecified() => {
                self.warn(
                    "ports.public_url is not set: links to ports will only work on this machine".into(),
                );
            }
            (None | Some(_), _) => {}
        }
        let connections = self.within("ports.connections", connections, 1..=100_000)?;
        let bounds = PortBounds {
            connections: usize::try_from(connections).unwrap_or(usize::MAX),
            connect: self.time("ports.connect_timeout", connect_timeout, SECOND..=HOUR)?,
            answer: self.time("ports.answer_timeout", answer_timeout, SECOND..=HOUR)?,
            idle: self.time("ports.idle_timeout", idle_timeout, SECOND..=24 * HOUR)?,
        };
        Ok(PortsSettings { addr, public_url, bounds })
    }
}
