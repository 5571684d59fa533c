//! The state of the pool in numbers, for metrics, health and tests. Reading it changes nothing.

use std::collections::BTreeMap;

use super::member::MemberState;
use super::{PoolCore, RunnerId};

/// The whole pool at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// Every runner that exists, and every removed runner that still has members.
    pub runners: BTreeMap<RunnerId, RunnerSnapshot>,
    /// Requests that wait, and that nothing can be started for before a lease is released.
    pub starved: usize,
    /// Whether the engine counts as up.
    pub engine_up: bool,
    /// Whether the pool is closing.
    pub shutting_down: bool,
}

impl Snapshot {
    /// All members of all runners. After a shutdown, 0 means that the pool has closed.
    #[must_use]
    pub fn members(&self) -> usize {
        self.runners.values().map(RunnerSnapshot::members).sum()
    }

    /// Counts what is of the runner `from` as of `to`.
    pub(in crate::pool) fn fold(&mut self, from: RunnerId, to: RunnerId) {
        if let Some(more) = self.runners.remove(&from) {
            let of = self.runners.entry(to).or_default();
            of.starting += more.starting;
            of.idle += more.idle;
            of.leased += more.leased;
            of.destroying += more.destroying;
            of.waiters += more.waiters;
        }
    }
}

/// One runner at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RunnerSnapshot {
    /// Members whose start is under way.
    pub starting: usize,
    /// Armed members that were never leased.
    pub idle: usize,
    /// Leased members.
    pub leased: usize,
    /// Members that are being removed, or whose removal waits for the engine.
    pub destroying: usize,
    /// Requests that wait.
    pub waiters: usize,
    /// Failed starts since the last success.
    pub consecutive_failures: u32,
}

impl RunnerSnapshot {
    /// All members of this runner.
    #[must_use]
    pub fn members(&self) -> usize {
        self.starting + self.idle + self.leased + self.destroying
    }
}

impl PoolCore {
    /// The pool at this moment.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        let mut runners: BTreeMap<RunnerId, RunnerSnapshot> = BTreeMap::new();
        for (&id, runner) in &self.runners {
            let entry = runners.entry(id).or_default();
            entry.waiters = runner.waiters.len();
            entry.consecutive_failures = runner.consecutive_failures();
        }
        for member in self.members.values() {
            let entry = runners.entry(member.runner).or_default();
            match member.state {
                MemberState::Starting { .. } => entry.starting += 1,
                MemberState::Idle { .. } => entry.idle += 1,
                MemberState::Leased => entry.leased += 1,
                MemberState::Destroying { .. } => entry.destroying += 1,
            }
        }
        let (engine_up, shutting_down) = (self.engine_up, self.shutting_down);
        Snapshot { runners, starved: self.starved(), engine_up, shutting_down }
    }
}
