//! Whose a session is: the table of owners as the rest of the cluster sees it.
//!
//! ```text
//!  call ─► owner_of ─┬─ Of(node)  ─► serve it, if that is this node; else pass the call on
//!                    ├─ Nobody    ─► its owner is gone: placement, then claim
//!                    └─ Unknown   ─► no node ever had it: a call that makes it is placed, others are local
//! ```
//!
//! An implementation must never answer two nodes that each owns the same session at the same time, and must
//! stop answering when it cannot know: a call is refused rather than served by the wrong node.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;

use super::placement::session_number;
use crate::session::SessionId;

/// A session among all tenants.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SessionKey {
    /// The tenant: the name of a token.
    pub tenant: Arc<str>,
    /// Its name of the session.
    pub session: SessionId,
}

impl SessionKey {
    /// The session of this tenant.
    pub fn new(tenant: &str, session: SessionId) -> Self {
        Self { tenant: Arc::from(tenant), session }
    }

    /// The number that placement hashes on.
    #[must_use]
    pub fn number(&self) -> u64 {
        session_number(&self.tenant, self.session.as_str())
    }
}

impl fmt::Display for SessionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "session {} of {}", self.session, self.tenant)
    }
}

/// A node that has a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// `cluster.name` of the node.
    pub name: String,
    /// `host:port` at which its peers reach it, if the table has it: used where no peer list names the node
    /// yet.
    pub address: Option<String>,
}

/// What the table says of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ownership {
    /// This node has it.
    Of(Node),
    /// It exists, and the node that had it is gone for good or has given it up.
    Nobody,
    /// There is no such session.
    Unknown,
}

/// Why the table does not answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the table of owners does not answer: {0}")]
pub struct OwnersError(pub String);

/// The table of owners.
#[async_trait]
pub trait Owners: Send + Sync + 'static {
    /// Whose a session is. It is asked for every call, so an implementation keeps what it may keep.
    ///
    /// # Errors
    /// The table cannot be read.
    async fn owner_of(&self, key: &SessionKey) -> Result<Ownership, OwnersError>;

    /// Makes this node the owner of a session that has none; returns the node that has it afterwards, which
    /// is another one if that was quicker.
    ///
    /// # Errors
    /// The table cannot be written.
    async fn claim(&self, key: &SessionKey) -> Result<Node, OwnersError>;

    /// The sessions that this node owns.
    ///
    /// # Errors
    /// The table cannot be read.
    async fn all_owned(&self) -> Result<Vec<SessionKey>, OwnersError>;

    /// Gives a session of this node that nobody uses to another node, files and all.
    ///
    /// # Errors
    /// The table cannot be written, or the other node does not live: the session stays here.
    async fn give(&self, key: &SessionKey, to: &str) -> Result<(), OwnersError>;

    /// Whether another node has ended, as the table sees it: its lease is over, and it acknowledges nothing
    /// any more. Nobody needs to wait for its answers. A node that the table does not know has not ended.
    ///
    /// # Errors
    /// The table cannot be read.
    async fn has_ended(&self, node: &str) -> Result<bool, OwnersError>;

    /// How many sessions this node owns.
    fn owned(&self) -> usize;
}
