//! How long an execution can be read after its end.
//!
//! It must never remove an execution that is under way.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use super::Executions;
use super::handle::Execution;
use super::stored::now_ms;
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
        let expired = self.take_expired(now_ms());
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

    fn take_expired(&self, now: u64) -> Vec<Arc<Execution>> {
        let keep_ms = u64::try_from(self.bounds.keep.as_millis()).unwrap_or(u64::MAX);
        let mut all = self.all();
        let mut over: Vec<(u64, Arc<Execution>)> = all
            .values()
            .filter_map(|execution| Some((execution.end()?.completed_ms, execution.clone())))
            .collect();
        over.sort_by_key(|(completed, _)| *completed);
        // From the newest on, so many of each owner: nobody's go for another's.
        let mut kept: HashMap<&str, usize> = HashMap::new();
        let mut expired = Vec::new();
        for (completed, execution) in over.iter().rev() {
            let of_owner = kept.entry(&execution.owner).or_default();
            *of_owner += 1;
            let is_old = now.saturating_sub(*completed) > keep_ms;
            if *of_owner > self.bounds.kept || is_old || execution.is_gone() {
                expired.push(execution.clone());
            }
        }
        for execution in &expired {
            all.remove(&execution.id);
        }
        expired
    }
}
