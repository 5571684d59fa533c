//! The bounds of sessions, as the configuration sets them.

use std::sync::Arc;
use std::time::Duration;

use super::sync::DataBounds;
use crate::config::{KeptWorkspaces, WhenFull};
use crate::tenants::Tenants;

/// The bounds of sessions.
#[derive(Clone)]
pub struct SessionBounds {
    /// Containers of a session that is idle for this long are removed.
    pub ttl: Duration,
    /// Sessions with a live container at one time.
    pub max: usize,
    /// How often idle ones are looked for.
    pub sweep: Duration,
    /// What to do when there are `max`.
    pub when_full: WhenFull,
    /// Calls that may wait for their turn in one session.
    pub queue: usize,
    /// Calls that may wait for a container, in all sessions together.
    pub waiting: usize,
    /// How long one call may wait for a container.
    pub wait: Duration,
    /// Bytes of each output stream that an answer has.
    pub output: usize,
    /// Bytes of both streams together that a model is shown.
    pub shown: usize,
    /// Bytes of each output stream that are accepted at all; a program that writes more is ended.
    pub max_log: u64,
    /// What `/data` may hold; also bounds what is taken out of a container.
    pub data: u64,
    /// Entries of `/data`.
    pub data_inodes: u64,
    /// Stored files of a session unused for this long are deleted; `None`: never.
    pub retention: Option<Duration>,
    /// How long, and how many, workspaces of coding agents outlive their containers; `None`: they do not.
    pub kept: Option<KeptWorkspaces>,
    /// The longest wall time that a run can have.
    pub longest: Duration,
    /// What each tenant may have of all this.
    pub tenants: Arc<Tenants>,
}

impl SessionBounds {
    /// The bound of each stream, and of what a model is shown of both.
    pub(in crate::session) fn shown(&self) -> (usize, usize) {
        (self.output, self.shown)
    }

    /// What `/data` may hold.
    pub(in crate::session) fn data_bounds(&self) -> DataBounds {
        DataBounds { bytes: self.data, entries: self.data_inodes }
    }
}

/// Sessions of one owner.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SessionsInUse {
    /// Those that have a container, or are about to.
    pub live: usize,
    /// Those among them that rest: no call is in them, or waits for them.
    pub resting: usize,
    /// Those that wait for a container.
    pub waiting: usize,
}
