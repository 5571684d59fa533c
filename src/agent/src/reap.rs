//! PID 1's first duty: every orphan of the container ends here, and each job's death is told to its run.
//!
//! It must never leave a zombie, whoever's child it was.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;

use crate::{spawn, tree};

/// Knows the jobs that are alive.
#[derive(Default)]
pub(crate) struct Reaper {
    jobs: RefCell<HashMap<i32, oneshot::Sender<()>>>,
}

impl Reaper {
    /// Reaps for as long as the container lives.
    pub(crate) async fn serve(self: Rc<Self>) -> std::io::Result<()> {
        let mut deaths = signal(SignalKind::child())?;
        loop {
            while let Some(pid) = spawn::reap_one() {
                if let Some(run) = self.jobs.borrow_mut().remove(&pid) {
                    let _ = run.send(());
                }
            }
            deaths.recv().await;
        }
    }

    /// To be called right after the fork, before anything else can run: resolves when the job is dead.
    pub(crate) fn watch(&self, job: i32) -> oneshot::Receiver<()> {
        let (tell, told) = oneshot::channel();
        self.jobs.borrow_mut().insert(job, tell);
        told
    }

    /// Processes that belong to no living job: what a job left behind when something killed it.
    pub(crate) fn strays(&self) -> Vec<i32> {
        let mut strays = tree::descendants(1);
        for job in self.jobs.borrow().keys() {
            let theirs = tree::descendants(*job);
            strays.retain(|pid| pid != job && !theirs.contains(pid));
        }
        strays
    }
}
