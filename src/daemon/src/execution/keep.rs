//! How long executions that are over can be read.
//!
//! It must never let go of one that is under way.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use super::Executions;
use super::about::now_ms;
use super::execution::Execution;

/// Between two looks.
const LOOK: Duration = Duration::from_secs(10);

impl Executions {
    /// Looks now and then what need not be kept any more. Runs until dropped.
    pub async fn sweep(self: Arc<Self>) {
        let mut ticks = tokio::time::interval(LOOK);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            self.tidy();
        }
    }

    /// Lets go of what is over for long, of the oldest beyond the number that is kept, and of what went with its session.
    pub(super) fn tidy(&self) {
        let keep_ms = u64::try_from(self.bounds.keep.as_millis()).unwrap_or(u64::MAX);
        let now = now_ms();
        let mut all = self.all();
        let mut over: Vec<(u64, Arc<Execution>)> = all
            .values()
            .filter_map(|execution| Some((execution.end()?.completed_ms, execution.clone())))
            .collect();
        over.sort_by_key(|(completed, _)| *completed);
        // From the newest on, so many of each owner: nobody's go for another's.
        let mut kept: HashMap<&str, usize> = HashMap::new();
        let gone = over.iter().rev().filter(|(completed, execution)| {
            let of_owner = kept.entry(&execution.owner).or_default();
            *of_owner += 1;
            *of_owner > self.bounds.kept
                || now.saturating_sub(*completed) > keep_ms
                || execution.space.is_gone()
        });
        let gone: Vec<_> = gone.map(|(_, execution)| execution.clone()).collect();
        for execution in &gone {
            all.remove(&execution.id);
        }
        drop(all);
        for execution in gone {
            execution.space.drop_recording(&execution.id);
        }
    }
}
