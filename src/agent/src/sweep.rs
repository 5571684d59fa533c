//! Kills the last processes of a run: processes without a job, and children of a forking warm part that are
//! not the part's own.
//!
//! It must never report that nothing is left while a process of the run lives.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use crate::reap::Reaper;
use crate::tree::{self, Tree};
use crate::warm::forker::Forker;

/// How long PID 1 tries to kill, before it reports that some survive and the daemon kills the container.
const PATIENCE: Duration = Duration::from_secs(5);

/// Between two looks at what has not died yet.
const PAUSE: Duration = Duration::from_millis(2);

/// What a sweep found.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Swept {
    /// Processes that were killed.
    pub(crate) killed: u32,
    /// Processes that would not die.
    pub(crate) survivors: u32,
}

/// Kills what no job owns, and what the last run of `forker` left, until nothing is there. The code may have
/// stopped the bridge, whose parent is outside of the container, so it is resumed first.
pub(crate) async fn sweep(reaper: &Reaper, bridge: Option<i32>, forker: Option<&Forker>) -> Swept {
    let begun = Instant::now();
    let mut seen = BTreeSet::new();
    if let Some(bridge) = bridge {
        tree::resume(&[bridge]);
    }
    loop {
        if reaper.has_jobs_only() && forker.is_none_or(Forker::is_alone) {
            return Swept { killed: count(seen.len()), survivors: 0 };
        }
        let tree = Tree::look();
        let mut left = tree.below(1, |pid| reaper.is_job(pid));
        left.extend(forker.into_iter().flat_map(|forker| forker.living(&tree, Some(begun))));
        let settled = forker.is_none_or(|forker| forker.are_its_own(tree.children(forker.part())));
        if (left.is_empty() && settled) || begun.elapsed() > PATIENCE {
            return Swept { killed: count(seen.len()), survivors: count(left.len()) };
        }
        seen.extend(left.iter().copied());
        tree::kill(&left);
        let news = async {
            match forker {
                Some(forker) => forker.news().await,
                None => std::future::pending().await,
            }
        };
        let _ = tokio::time::timeout(PAUSE, news).await;
    }
}

fn count(processes: usize) -> u32 {
    u32::try_from(processes).unwrap_or(u32::MAX)
}
