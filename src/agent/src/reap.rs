//! PID 1's first duty: every orphan of the container ends here, and each job's death is told to its run.
//!
//! It must never leave a zombie, whoever's child it was.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeSet, HashMap};
use std::rc::Rc;
use std::time::{Duration, Instant};

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Notify;

use crate::spawn;
use crate::tree::{self, Tree};
use crate::warm::Forker;

/// How long PID 1 tries to kill what no job owns, before it says that some survive (and the daemon kills the
/// container).
const SWEEP_PATIENCE: Duration = Duration::from_secs(5);

/// Between two looks at what has not died yet.
const SWEEP_PAUSE: Duration = Duration::from_millis(2);

/// Knows the jobs that are alive.
#[derive(Default)]
pub(crate) struct Reaper {
    jobs: RefCell<HashMap<i32, Rc<Death>>>,
}

/// The end of a job, for any number that wait for it.
#[derive(Default)]
pub(crate) struct Death {
    is: Cell<bool>,
    told: Notify,
}

impl Death {
    pub(crate) async fn wait(&self) {
        // Single-threaded: nothing runs between the look and the wait.
        while !self.is.get() {
            self.told.notified().await;
        }
    }
}

impl Reaper {
    /// Reaps for as long as the container lives.
    pub(crate) async fn serve(self: Rc<Self>) -> std::io::Result<()> {
        let mut deaths = signal(SignalKind::child())?;
        loop {
            while let Some(pid) = spawn::reap_one() {
                if let Some(death) = self.jobs.borrow_mut().remove(&pid) {
                    death.is.set(true);
                    death.told.notify_waiters();
                }
            }
            deaths.recv().await;
        }
    }

    /// To be called right after the fork, before anything else can run.
    pub(crate) fn watch(&self, job: i32) -> Rc<Death> {
        self.jobs.borrow_mut().entry(job).or_default().clone()
    }

    /// Kills what no job owns, and what the last run of `forker` left, until nothing is there; how many that were, and
    /// how many would not die. The code may have stopped the bridge, which nobody here is the parent of.
    pub(crate) async fn sweep(&self, bridge: Option<i32>, forker: Option<&Forker>) -> (u32, u32) {
        let begun = Instant::now();
        let mut seen = BTreeSet::new();
        if let Some(bridge) = bridge {
            spawn::wake(bridge);
        }
        loop {
            let alone = self.is_alone() && forker.is_none_or(Forker::is_alone);
            if alone {
                return (count(seen.len()), 0);
            }
            let tree = Tree::look();
            let mut left = tree.below(1, |pid| self.jobs.borrow().contains_key(&pid));
            left.extend(forker.into_iter().flat_map(|forker| forker.living(&tree, Some(begun))));
            let settled = forker.is_none_or(|forker| forker.are_its_own(tree.children(forker.part())));
            if (left.is_empty() && settled) || begun.elapsed() > SWEEP_PATIENCE {
                return (count(seen.len()), count(left.len()));
            }
            seen.extend(left.iter().copied());
            tree::kill(&left);
            let news = async {
                match forker {
                    Some(forker) => forker.news().await,
                    None => std::future::pending().await,
                }
            };
            let _ = tokio::time::timeout(SWEEP_PAUSE, news).await;
        }
    }

    /// Whether PID 1 is known to have no child but jobs: nobody else reaps its children.
    fn is_alone(&self) -> bool {
        let jobs = self.jobs.borrow();
        tree::children(1).is_some_and(|children| children.iter().all(|pid| jobs.contains_key(pid)))
    }
}

fn count(processes: usize) -> u32 {
    u32::try_from(processes).unwrap_or(u32::MAX)
}
