//! Why the ledger could not do something, in words for callers.
//!
//! An error must never say that something was not saved when it may have been.

/// Why the ledger could not do something.
#[derive(Debug, thiserror::Error)]
pub enum LedgerError {
    /// Another node owns the session.
    #[error("the session is on the node {node}")]
    Elsewhere {
        /// Its name.
        node: String,
    },
    /// The session was this node's, and is not any more: another claim came after it.
    #[error("another node has taken the session meanwhile; nothing of this call was saved")]
    Fenced,
    /// This node's lease has ended: it cannot reach the database, or could not for too long.
    #[error(
        "this node has not reached the database (store.url) for too long, and may not answer for sessions; \
         nothing of this call was saved; call again"
    )]
    NoLease,
    /// The database does not answer; nothing was changed.
    #[error(
        "the database (store.url) cannot be used at present ({0}); nothing of this call was saved; \
         call again"
    )]
    DatabaseAway(String),
    /// S3 does not answer; nothing was changed.
    #[error(
        "the contents (store.objects) cannot be used at present ({0}); nothing of this call was saved; \
         call again"
    )]
    ObjectsAway(String),
    /// The connection to the database broke while a change was being recorded.
    #[error(
        "the connection to the database (store.url) broke while the change was being recorded: it may \
         be saved, or not; look before you call again ({0})"
    )]
    Unsettled(String),
    /// A node that lives has this node's name.
    #[error(
        "another paddock with the name {0:?} uses this database, and is alive: each node needs its own name"
    )]
    NameTaken(String),
    /// A setting cannot be used.
    #[error("{setting}: {problem}")]
    Setting {
        /// Its key.
        setting: &'static str,
        /// What is wrong.
        problem: String,
    },
    /// A content is missing or is not what its name says.
    #[error("a content of the session is damaged: {0}")]
    Damaged(String),
    /// The database refused a statement.
    #[error("the database (store.url) refuses: {0}")]
    Refused(String),
    /// A file of this machine could not be read or written.
    #[error("{0}")]
    Local(std::io::Error),
}

impl LedgerError {
    /// Whether the same call can succeed later, without anybody changing anything.
    #[must_use]
    pub fn is_passing(&self) -> bool {
        match self {
            Self::NoLease | Self::DatabaseAway(_) | Self::ObjectsAway(_) | Self::Fenced => true,
            Self::Elsewhere { .. }
            | Self::Unsettled(_)
            | Self::NameTaken(_)
            | Self::Setting { .. }
            | Self::Damaged(_)
            | Self::Refused(_)
            | Self::Local(_) => false,
        }
    }
}
