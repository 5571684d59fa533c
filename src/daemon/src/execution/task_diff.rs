//! What a task changed: the session's files are kept as they are before it begins, and compared at its end.
//!
//! ```text
//!  turn ─► keep: the files before ─► the agent works ─► make: the diff, on disk ─► the end is noted
//!       ─► forget: the files before
//! ```
//!
//! The diff is made while the task still has its turn, so that it shows no change of another call. Only for a
//! task that ended with an error, or that an earlier daemon began, a call can come between its end and its
//! diff. A daemon that is killed
//! at any of these steps leaves the files before: the next one makes the diff when it ends the task. It must
//! never make a task fail.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use tracing::warn;

use super::handle::Execution;
use crate::diff::{DiffBounds, DiffSummary, TreeState, compare, is_compared};
use crate::store::{StoreError, blocking};

/// The diff of a task.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskDiff {
    /// What is in it.
    #[serde(flatten)]
    pub summary: DiffSummary,
    /// Why there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missing: Option<String>,
}

impl TaskDiff {
    fn missing(why: impl std::fmt::Display) -> Self {
        Self { summary: DiffSummary::default(), missing: Some(format!("there is no diff: {why}")) }
    }
}

/// Keeps the files of the session as they are. Otherwise says why they are not kept.
pub(super) async fn keep(execution: &Execution) -> Option<TaskDiff> {
    execution.spec.task.as_ref()?;
    let log = execution.log.clone();
    let kept = blocking(move || log.files().keep_before(is_compared)).await;
    kept.err().map(|error| {
        warn!(execution_id = execution.id, %error, "the files before a task could not be kept");
        TaskDiff::missing(error)
    })
}

/// Makes the diff of a task that is over, and saves it. `None` for a command, and for a task that did not
/// begin.
pub(super) async fn make(execution: &Execution) -> Option<TaskDiff> {
    execution.spec.task.as_ref()?;
    let log = execution.log.clone();
    let made = blocking(move || {
        let files = log.files();
        let Some(before) = files.before()? else { return Ok(None) };
        let now = files.entries_now()?.into_iter();
        let state = |entries: &mut dyn Iterator<Item = paddock_proto::message::Entry>| -> BTreeMap<_, _> {
            entries.map(|entry| (entry.path.clone(), entry)).collect()
        };
        let old = TreeState {
            entries: state(&mut before.entries().iter().cloned()),
            open: Box::new(|path| before.open(path)),
        };
        let new = TreeState {
            entries: state(&mut now.filter(|entry| is_compared(&entry.path))),
            open: Box::new(|path| files.open_now(path)),
        };
        let (diff, summary) = compare(&old, &new, DiffBounds::OF_A_TASK);
        files.write_diff(&diff)?;
        Ok(Some(summary))
    });
    match made.await {
        Ok(Some(summary)) => Some(TaskDiff { summary, missing: None }),
        Ok(None) if execution.last_event() > 0 => {
            Some(TaskDiff::missing("the files before it were not kept"))
        }
        Ok(None) | Err(StoreError::Gone) => None,
        Err(error) => {
            warn!(execution_id = execution.id, %error, "the diff of a task could not be made");
            Some(TaskDiff::missing(error))
        }
    }
}

/// Removes what was kept for the diff.
pub(super) async fn forget(execution: &Execution) {
    if execution.spec.task.is_some() {
        let log = execution.log.clone();
        let _ = blocking(move || {
            log.files().forget_before();
            Ok(())
        })
        .await;
    }
}
