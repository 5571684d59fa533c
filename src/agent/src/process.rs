//! A program under way, however it was started.

use std::os::fd::OwnedFd;
use std::rc::Rc;

use crate::reap::Death;
use crate::report::Reports;
use crate::tree::{self, Tree};
use crate::warm::forker::Forker;

/// A program under way.
pub(crate) struct Process {
    /// The process that its own processes descend from. It is killed when they can be reached in no other
    /// way.
    pub(crate) job: i32,
    pub(crate) reports: Reports,
    /// The job's end, where the job ends with the program.
    pub(crate) dead: Option<Rc<Death>>,
    /// Whether a warm part took the run.
    pub(crate) warm: bool,
    /// The warm part that forked it and goes on.
    pub(crate) forker: Option<Rc<Forker>>,
    /// The reading ends of its standard output and standard error.
    pub(crate) outputs: Option<[OwnedFd; 2]>,
}

impl Process {
    /// The PIDs of its processes.
    pub(crate) fn living(&self) -> Vec<i32> {
        match &self.forker {
            None => tree::descendants(self.job),
            Some(forker) => forker.living(&Tree::look(), None),
        }
    }
}
