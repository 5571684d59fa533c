//! PID 1's first duty: it reaps every orphan of the container, and reports the death of each job to the task
//! that waits for it.
//!
//! It must never leave a zombie, no matter which process was its parent.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Notify;

use crate::{sys, tree};

/// Knows the jobs that are alive.
#[derive(Default)]
pub(crate) struct Reaper {
    jobs: RefCell<HashMap<i32, Rc<Death>>>,
}

/// The end of a job, for any number of waiters.
#[derive(Default)]
pub(crate) struct Death {
    happened: Cell<bool>,
    news: Notify,
}

impl Death {
    pub(crate) async fn wait(&self) {
        // Single-threaded: nothing runs between the look and the wait.
        while !self.happened.get() {
            self.news.notified().await;
        }
    }
}

impl Reaper {
    /// Reaps for as long as the container lives.
    pub(crate) async fn serve(self: Rc<Self>) -> std::io::Result<()> {
        let mut deaths = signal(SignalKind::child())?;
        loop {
            self.reap();
            deaths.recv().await;
        }
    }

    /// Reaps every child that is dead by now.
    pub(crate) fn reap(&self) {
        while let Some(pid) = sys::reap_one() {
            if let Some(death) = self.jobs.borrow_mut().remove(&pid) {
                death.happened.set(true);
                death.news.notify_waiters();
            }
        }
    }

    /// Call this right after the fork, before anything else can run.
    pub(crate) fn watch(&self, job: i32) -> Rc<Death> {
        self.jobs.borrow_mut().entry(job).or_default().clone()
    }

    /// Whether this is a job that is alive.
    pub(crate) fn is_job(&self, pid: i32) -> bool {
        self.jobs.borrow().contains_key(&pid)
    }

    /// Whether PID 1 is known to have no child but jobs: nobody else reaps its children.
    pub(crate) fn has_jobs_only(&self) -> bool {
        tree::children(1).is_some_and(|children| children.iter().all(|pid| self.is_job(*pid)))
    }
}
