//! Ids that say which node made them: of executions, of MCP sessions, and of calls that wait for their
//! client's answer. So any node finds the right one without asking.
//!
//! ```text
//!  execution                  a UUID of version 8 (RFC 9562): 90 random bits, and the tag of its node as the
//!                             last 32 bits
//!  MCP session, requestState  the tag in hex, a full stop, and the node's own id
//! ```
//!
//! A tag is a hash of a name, so that it reveals no host name to a client. It must never be taken for a
//! right: it only says where to ask. A client that writes another tag into an id has its request passed to
//! another node, which checks the token, and does not know the id.

use std::fmt;

use uuid::Uuid;
use xxhash_rust::xxh3::xxh3_64;

/// A node's name as 32 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct NodeTag(u32);

impl NodeTag {
    /// The tag of a node.
    #[must_use]
    pub fn of(node: &str) -> Self {
        let [.., a, b, c, d] = xxh3_64(node.as_bytes()).to_be_bytes();
        Self(u32::from_be_bytes([a, b, c, d]))
    }

    /// A new id for an execution of this node. It cannot be guessed.
    #[must_use]
    pub fn execution_id(self) -> String {
        let mut bytes = *Uuid::new_v4().as_bytes();
        bytes[12..].copy_from_slice(&self.0.to_be_bytes());
        uuid::Builder::from_custom_bytes(bytes).into_uuid().to_string()
    }

    /// The tag in an execution's id; `None` for an id that no node of a cluster made.
    #[must_use]
    pub fn of_execution(id: &str) -> Option<Self> {
        let id = Uuid::try_parse(id).ok().filter(|id| id.get_version_num() == 8)?;
        let [.., a, b, c, d] = *id.as_bytes();
        Some(Self(u32::from_be_bytes([a, b, c, d])))
    }

    /// A node's own id as clients get it.
    #[must_use]
    pub fn mark(self, id: &str) -> String {
        format!("{self}.{id}")
    }

    /// The tag and the node's own id in an id that a client names; `None` for one without a tag.
    #[must_use]
    pub fn of_marked(id: &str) -> Option<(Self, &str)> {
        let (tag, id) = id.split_once('.')?;
        let is_tag = tag.len() == 8 && tag.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        let tag = u32::from_str_radix(tag, 16).ok().filter(|_| is_tag)?;
        Some((Self(tag), id))
    }
}

impl fmt::Display for NodeTag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_execution_says_its_node_and_is_a_uuid() {
        let tag = NodeTag::of("node-a");
        let (one, another) = (tag.execution_id(), tag.execution_id());
        assert_ne!(one, another);
        let uuid = Uuid::parse_str(&one).unwrap();
        assert_eq!((uuid.get_version_num(), uuid.get_variant()), (8, uuid::Variant::RFC4122));
        assert_eq!(NodeTag::of_execution(&one), Some(tag));
        assert_ne!(tag, NodeTag::of("node-b"));
        assert_eq!(NodeTag::of_execution(&Uuid::new_v4().to_string()), None);
        for other in ["", "x", "4f", &one[1..]] {
            assert_eq!(NodeTag::of_execution(other), None, "{other}");
        }
    }

    #[test]
    fn an_mcp_session_says_its_node_and_keeps_its_own_id() {
        let tag = NodeTag::of("node-a");
        let id = tag.mark("8a.b");
        assert_eq!(NodeTag::of_marked(&id), Some((tag, "8a.b")));
        for other in ["", "abc", "0123456.x", "0123456g.x", "+1234567.x", "0123456789", "ABCDEF01.x"] {
            assert_eq!(NodeTag::of_marked(other), None, "{other}");
        }
    }
}
