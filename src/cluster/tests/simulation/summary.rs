//! What happened in a world, in numbers.

use super::message::Micros;

/// What happened in a world, for figures and to see that the simulation does what it is for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Summary {
    pub(crate) events: u64,
    pub(crate) acknowledged: u64,
    pub(crate) done: u64,
    pub(crate) later: u64,
    pub(crate) unknown: u64,
    pub(crate) passed: u64,
    pub(crate) claims: u64,
    /// Claims of a session that another node owned.
    pub(crate) takeovers: u64,
    /// Nodes that were drained and have handed everything over.
    pub(crate) left: u64,
    pub(crate) statements: u64,
    pub(crate) rows_changed: u64,
    pub(crate) requests: u64,
    pub(crate) deleted: u64,
    /// The longest time from the end of the faults until a session answered.
    pub(crate) longest_wait: Micros,
}

impl Summary {
    /// Adds what happened in another world.
    pub(crate) fn add(&mut self, other: &Summary) {
        self.events += other.events;
        self.acknowledged += other.acknowledged;
        self.done += other.done;
        self.later += other.later;
        self.unknown += other.unknown;
        self.passed += other.passed;
        self.claims += other.claims;
        self.takeovers += other.takeovers;
        self.left += other.left;
        self.statements += other.statements;
        self.rows_changed += other.rows_changed;
        self.requests += other.requests;
        self.deleted += other.deleted;
        self.longest_wait = self.longest_wait.max(other.longest_wait);
    }
}
