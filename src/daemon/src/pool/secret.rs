//! What the agents of one daemon's containers demand of whoever talks to them: of each container a secret of its own.
//!
//! A container's agent learns its secret with the first hello. Should it ever be got out of there, it opens nothing
//! else: it is derived from the store's key and the container's name, so that the next daemon of that store knows it as
//! well and nothing has to be kept. It must never be given to a container of another name, and the key to none.

use std::time::Duration;

use crate::engine::VolumeName;
use crate::link::Terms;
use crate::sign::mac;

/// What a derived secret is for: the key signs nothing else.
const PURPOSE: &[u8] = b"paddock: the secret of the agent in the container ";

/// What the links to a daemon's containers are made with.
#[derive(Clone)]
pub struct AgentTerms {
    /// Known to daemons of this store alone.
    pub key: [u8; 32],
    /// PID 1 ends itself after this long without a daemon.
    pub orphan_after: Duration,
}

impl AgentTerms {
    /// The terms of the container of this name.
    pub fn of(&self, name: &VolumeName) -> Terms {
        let secret = mac(&self.key, &[PURPOSE, name.to_string().as_bytes()].concat());
        Terms { secret, orphan_after: self.orphan_after }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(key: u8, name: &str) -> [u8; 32] {
        let terms = AgentTerms { key: [key; 32], orphan_after: Duration::from_secs(1) };
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
    fn it_is_what_it_says() {
        // printf '%s' 'paddock: the secret of the agent in the container paddock-a' |
        //   openssl dgst -sha256 -mac HMAC -macopt hexkey:0101…01
        assert_eq!(
            crate::id::hex(&secret(1, "paddock-a")),
            "16dd6c52a339765d123658e3cb45bd939272c73e8273482d6328c970e457756e"
        );
    }
}
