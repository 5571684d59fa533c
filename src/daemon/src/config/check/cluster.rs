//! Many machines: who the peers are, and what all of them share.

use std::collections::BTreeSet;

use super::{Checker, SHORT_SECRET};
use crate::config::error::ConfigError;
use crate::config::raw::ClusterTable;
use crate::config::types::{ClusterSettings, FilesSettings, UrlStyle};
use crate::config::value::Secret;

/// Bytes of a node's name: that of a host is no longer.
const NAME: usize = 64;
/// Entries of the list.
const PEERS: usize = 10_000;

impl Checker<'_> {
    pub(super) fn cluster(
        &mut self,
        raw: ClusterTable,
        files: &FilesSettings,
    ) -> Result<Option<ClusterSettings>, ConfigError> {
        let ClusterTable { peers, key, name, addr } = raw;
        if peers.is_empty() {
            if !key.expose().is_empty() {
                self.warn("cluster.key is set but has no effect: cluster.peers names no peers".into());
            }
            return Ok(None);
        }
        if peers.len() > PEERS {
            let problem = format!("has {} entries, must have at most {PEERS}", peers.len());
            return Err(self.fail("cluster.peers", problem));
        }
        if let Some(wrong) = peers.iter().find(|peer| !is_peer(peer)) {
            let takes = "takes a DNS name or an address with the port of cluster.addr, such as \
                         \"tasks.paddock:7946\" or \"10.0.0.2:7946\"";
            return Err(self.fail("cluster.peers", format!("has {wrong:?}, {takes}")));
        }
        if peers.iter().collect::<BTreeSet<_>>().len() < peers.len() {
            return Err(self.fail("cluster.peers", "names a peer twice"));
        }
        let Some(addr) = self.addr_or_none("cluster.addr", &addr)? else {
            let problem = "is empty, while cluster.peers names peers: name the address at which they reach \
                           this node, such as \":7946\"";
            return Err(self.fail("cluster.addr", problem));
        };
        if files.url_style == UrlStyle::Hashed {
            let problem =
                "is \"hashed\", while cluster.peers names peers: only signed links open at every node";
            return Err(self.fail("files.url_style", problem));
        }
        let key = self.cluster_key(key)?;
        let name = self.node_name(name)?;
        Ok(Some(ClusterSettings { peers, key, name, addr }))
    }

    fn cluster_key(&self, given: Secret) -> Result<Secret, ConfigError> {
        const KEY: &str = "cluster.key";
        let key = self.secret(KEY, given)?;
        if key.expose().len() < SHORT_SECRET {
            let problem = format!(
                "has {} bytes, must have at least {SHORT_SECRET}: whoever guesses it is a node of the \
                 cluster; openssl rand -hex 32 makes one, the same for all nodes",
                key.expose().len()
            );
            return Err(self.fail(KEY, problem));
        }
        Ok(key)
    }

    fn node_name(&self, given: String) -> Result<String, ConfigError> {
        let of_host = || rustix::system::uname().nodename().to_string_lossy().into_owned();
        let name = if given.is_empty() { of_host() } else { given };
        let is_good = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
        if (1..=NAME).contains(&name.len()) && name.bytes().all(is_good) {
            return Ok(name);
        }
        let problem = format!(
            "is {name:?}, takes 1 to {NAME} letters, digits, full stops, hyphens and underscores, different \
             on each node"
        );
        Err(self.fail("cluster.name", problem))
    }
}

/// Whether this is a host and a port.
fn is_peer(text: &str) -> bool {
    let Some((host, port)) = text.rsplit_once(':') else { return false };
    let is_port = port.parse::<u16>().is_ok_and(|port| port > 0);
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let is_host = match bare {
        Some(bare) => bare.parse::<std::net::Ipv6Addr>().is_ok(),
        None => {
            let is_good = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
            !host.is_empty() && host.len() <= 253 && host.bytes().all(is_good)
        }
    };
    is_host && is_port
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_is_a_host_with_a_port() {
        for good in ["tasks.paddock:7946", "10.0.0.2:1", "[::1]:65535", "localhost:80"] {
            assert!(is_peer(good), "{good}");
        }
        for wrong in
            ["", "a", ":80", "a:0", "a:65536", "a:b", "::1:80", "[::1:80", "http://a:80", "a b:1", "[a]:1"]
        {
            assert!(!is_peer(wrong), "{wrong}");
        }
    }
}
