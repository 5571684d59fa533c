//! What the pool looks like from outside, for metrics, health and tests. Reading it changes nothing.

use std::collections::BTreeMap;

use super::member::State;
use super::{Core, RunnerId};

/// The whole pool at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// Every runner that exists, and every removed one of which members are left.
    pub runners: BTreeMap<RunnerId, RunnerSnapshot>,
    /// Whether the engine is taken to be up.
    pub engine_up: bool,
    /// Whether the pool is closing.
    pub shutting_down: bool,
}

impl Snapshot {
    /// All members of all runners. After a shutdown, 0 says that the pool has closed.
    #[must_use]
    pub fn members(&self) -> usize {
        self.runners.values().map(RunnerSnapshot::members).sum()
    }
}

/// One runner at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RunnerSnapshot {
    /// Members whose start is under way.
    pub starting: usize,
    /// Armed members that nobody has had.
    pub idle: usize,
    /// Members in someone's hands.
    pub leased: usize,
    /// Members on their way out, those included that wait for the engine.
    pub destroying: usize,
    /// Callers that wait.
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

impl Core {
    /// The pool as it is.
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
                State::Starting { .. } => entry.starting += 1,
                State::Idle { .. } => entry.idle += 1,
                State::Leased => entry.leased += 1,
                State::Destroying { .. } => entry.destroying += 1,
            }
        }
        Snapshot { runners, engine_up: self.engine_up, shutting_down: self.shutting_down }
    }
}
