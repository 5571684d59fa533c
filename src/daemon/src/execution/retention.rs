//! How long an execution can be read after its end.
//!
//! It must never remove an execution that is under way, nor any because the machine's clock was set.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use super::Executions;
use super::handle::Execution;
use crate::store::blocking;

/// How often executions that need not be kept are looked for.
const SWEEP: Duration = Duration::from_secs(10);

impl Executions {
    /// Looks now and then for executions that need not be kept any more. Runs until dropped.
    pub async fn sweep(self: Arc<Self>) {
        let mut ticks = tokio::time::interval(SWEEP);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            self.remove_expired().await;
        }
    }

    /// Removes executions that ended long ago, the oldest of an owner beyond the number that is kept, and
    /// those whose session was removed.
    pub(super) async fn remove_expired(&self) {
        let expired = self.take_expired();
        if expired.is_empty() {
            return;
        }
        let removed = blocking(move || {
            expired.iter().for_each(|execution| execution.log.files().remove());
            Ok(())
        });
        if let Err(error) = removed.await {
            tracing::warn!(%error, "files of executions that have expired may be left");
        }
    }

    fn take_expired(&self) -> Vec<Arc<Execution>> {
        let mut all = self.all();
        let mut over: Vec<(Duration, Arc<Execution>)> = all
            .values()
            .filter_map(|execution| Some((execution.since_end(&self.clock)?, execution.clone())))
            .collect();
        over.sort_by_key(|(since, _)| *since);
        // From the newest on, so many of each owner: nobody's go for another's.
        let mut kept: HashMap<&str, usize> = HashMap::new();
        let mut expired = Vec::new();
        for (since, execution) in &over {
            let of_owner = kept.entry(&execution.owner).or_default();
            *of_owner += 1;
            if *of_owner > self.bounds.kept || *since > self.bounds.keep || execution.is_gone() {
                expired.push(execution.clone());
            }
        }
        for execution in &expired {
            all.remove(&execution.id);
        }
        expired
    }
}
