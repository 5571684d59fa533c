//! Checks `[engine]`: how the engine is reached, and its runtime.

use std::path::PathBuf;

use super::{Checker, access};
use crate::config::env;
use crate::config::error::ConfigError;
use crate::config::raw::EngineTable;
use crate::config::types::EngineSettings;

impl Checker<'_> {
    pub(super) fn engine(&mut self, raw: EngineTable) -> Result<EngineSettings, ConfigError> {
        let EngineTable { host, certificates, allow_plain, runtime } = raw;
        let socket = host.strip_prefix("unix://").is_some_and(|path| path.starts_with('/'));
        let tcp = host.strip_prefix("tcp://").filter(|authority| !authority.is_empty());
        let ssh = host.strip_prefix("ssh://").is_some_and(|rest| !rest.is_empty());
        if !socket && !ssh && tcp.is_none() {
            let takes = "takes unix:///path, tcp://host:port or ssh://user@host";
            return Err(self.fail("engine.host", format!("is {host:?}, {takes}")));
        }
        let certificates = self.certificates(&certificates, tcp.is_none())?;
        if certificates.is_none() && tcp.is_some_and(|authority| !access::is_loopback(authority)) {
            let danger = "anyone on the network in between can become root on its machine";
            if !allow_plain {
                let problem = format!(
                    "is {host}, which is reached without TLS: {danger}; set engine.certificates \
                     (DOCKER_CERT_PATH), or engine.allow_plain where the network is trusted"
                );
                return Err(self.fail("engine.host", problem));
            }
            self.warn(format!("engine.host is reached without TLS: {danger}"));
        }
        let runtime = self.runtime("engine.runtime", runtime)?;
        Ok(EngineSettings { host, certificates, runtime })
    }

    /// The name of a runtime; `None` where it is empty. Whether the engine has it, only the engine knows.
    pub(super) fn runtime(&self, key: &str, name: String) -> Result<Option<String>, ConfigError> {
        if name.contains(|c: char| c.is_whitespace() || c.is_control()) {
            return Err(self.fail(key, format!("is {name:?}, takes a runtime's name such as runsc")));
        }
        Ok(Some(name).filter(|name| !name.is_empty()))
    }

    /// The folder of the certificates: the configured one, or that of Docker's own client if it is told to
    /// verify.
    fn certificates(&mut self, given: &str, has_no_tls: bool) -> Result<Option<PathBuf>, ConfigError> {
        const KEY: &str = "engine.certificates";
        let verify = self.env.get(env::TLS_VERIFY).is_some_and(|text| !text.is_empty());
        if has_no_tls && (verify || !given.is_empty()) {
            let name = if given.is_empty() { env::TLS_VERIFY } else { KEY };
            self.warn(format!(
                "{name} is set but has no effect: engine.host is no tcp:// address, so it uses no TLS"
            ));
        }
        if !given.is_empty() {
            return self.absolute(KEY, given).map(Some);
        }
        if !verify || has_no_tls {
            return Ok(None);
        }
        match self.env.get("HOME").filter(|home| home.starts_with('/')) {
            Some(home) => Ok(Some(PathBuf::from(home).join(".docker"))),
            None => {
                let problem = format!(
                    "is empty, while {} asks for TLS and HOME is not set: name the folder that has ca.pem, \
                     cert.pem and key.pem (DOCKER_CERT_PATH)",
                    env::TLS_VERIFY
                );
                Err(self.fail(KEY, problem))
            }
        }
    }
}
