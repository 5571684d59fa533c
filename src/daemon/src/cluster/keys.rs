//! The keys of a cluster, all of them derived from `cluster.key`: nothing else has to be the same on all
//! nodes for links and sessions to be good everywhere.
//!
//! Each use has a key of its own, so that what one reveals opens nothing else. No key may reach a log.

use crate::sign::mac;

/// The keys.
#[derive(Clone)]
pub struct ClusterKeys {
    /// Proves that a request comes from a node ([`super::hop`]).
    pub(super) hop: [u8; 32],
    /// The seed of the key pair that every node shows in TLS ([`super::tls`]).
    pub(super) tls: [u8; 32],
    /// Signs links to files and logs where `files.secret` is not set.
    pub files: [u8; 32],
    /// Signs links to ports.
    pub ports: [u8; 32],
    /// Derives the sessions of MCP clients that name none.
    pub mcp: [u8; 32],
}

impl std::fmt::Debug for ClusterKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ClusterKeys")
    }
}

impl ClusterKeys {
    /// The keys of the cluster that has this secret.
    #[must_use]
    pub fn derive(secret: &[u8]) -> Self {
        let key = |use_of_it: &str| mac(secret, format!("paddock cluster: {use_of_it}").as_bytes());
        Self { hop: key("hop"), tls: key("tls"), files: key("files"), ports: key("ports"), mcp: key("mcp") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_use_has_a_key_of_its_own() {
        let ClusterKeys { hop, tls, files, ports, mcp } = ClusterKeys::derive(b"k");
        let all = [hop, tls, files, ports, mcp];
        for (n, one) in all.iter().enumerate() {
            assert!(all.iter().skip(n + 1).all(|other| one != other));
        }
        assert_ne!(hop, ClusterKeys::derive(b"l").hop);
    }
}
