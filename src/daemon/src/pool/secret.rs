//! The secrets by which a daemon identifies itself to the agents of its containers: one for each container.
//!
//! A container's agent learns its secret with the first hello. The secret is derived from the store's key and
//! the container's name, so the next daemon of that store can derive it again and nothing needs to be stored.
//! If a secret ever leaked out of its container, it would open no other. A secret must never be sent to a
//! container of another name, and the key to none.

use std::time::Duration;

use crate::engine::VolumeName;
use crate::link::HelloTerms;
use crate::sign::mac;

/// The prefix of what is signed: no other use of the key begins with it.
const PURPOSE: &[u8] = b"paddock: the secret of the agent in the container ";

/// The terms of all links to a daemon's containers.
#[derive(Clone)]
pub struct AgentTerms {
    /// The key of this store, which only its daemons know.
    pub key: [u8; 32],
    /// PID 1 ends itself after this long without a daemon.
    pub orphan_after: Duration,
    /// Ports on which PID 1 listens for each name, where it is not told of connections.
    pub listen_ports: Vec<u16>,
}

impl AgentTerms {
    /// The terms of the link to the container of this name.
    pub fn of(&self, name: &VolumeName) -> HelloTerms {
        let secret = mac(&self.key, &[PURPOSE, name.to_string().as_bytes()].concat());
        HelloTerms { secret, orphan_after: self.orphan_after, listen_ports: self.listen_ports.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(key: u8, name: &str) -> [u8; 32] {
        let terms = AgentTerms { key: [key; 32], orphan_after: Duration::from_secs(1), listen_ports: vec![] };
        terms.of(&name.parse().expect("a name")).secret
    }

    #[test]
    fn each_container_has_a_secret_of_its_own_that_the_next_daemon_knows() {
        assert_eq!(secret(1, "paddock-a-20000-b"), secret(1, "paddock-a-20000-b"));
        let all = [secret(1, "paddock-a"), secret(1, "paddock-b"), secret(2, "paddock-a"), [1; 32], [2; 32]];
        for (n, one) in all.iter().enumerate() {
            assert!(all[n + 1..].iter().all(|other| one != other));
        }
    }

    #[test]
    fn the_secret_is_the_hmac_of_the_name() {
        // printf '%s' 'paddock: the secret of the agent in the container paddock-a' |
        //   openssl dgst -sha256 -mac HMAC -macopt hexkey:0101…01
        assert_eq!(
            crate::id::hex(&secret(1, "paddock-a")),
            "16dd6c52a339765d123658e3cb45bd939272c73e8273482d6328c970e457756e"
        );
    }
}
