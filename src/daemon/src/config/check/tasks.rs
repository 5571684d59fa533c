//! Checks the settings of tasks, and of the workspaces that they leave.

use std::time::Duration;

use super::{Checker, HOUR};
use crate::config::error::ConfigError;
use crate::config::raw::TasksTable;
use crate::config::types::{Config, KeptWorkspaces, TaskSettings};

/// Each takes gigabytes of a disk.
const MAX_WORKSPACES: u32 = 10_000;

impl Checker<'_> {
    pub(super) fn tasks(&self, raw: TasksTable) -> Result<TaskSettings, ConfigError> {
        let TasksTable { agent, level, timeout, retention, workspaces } = raw;
        if agent.trim().is_empty() {
            return Err(self.fail("tasks.agent", "is empty, takes the name of a coding agent: claude-code"));
        }
        let retention = self.time_or_never("tasks.retention", retention)?;
        let most = self.within("tasks.workspaces", workspaces, 0..=MAX_WORKSPACES)?;
        Ok(TaskSettings {
            agent,
            level: self.within("tasks.level", level, 1..=4)?,
            timeout: self.time("tasks.timeout", timeout, Duration::from_secs(60)..=HOUR / 2)?,
            kept: retention.filter(|_| most > 0).map(|retention| KeptWorkspaces { retention, most }),
        })
    }

    /// Each workspace keeps the user id of its container.
    pub(super) fn uids_for_workspaces(&self, config: &Config) -> Result<(), ConfigError> {
        let kept = config.tasks.kept.map_or(0, |kept| kept.most);
        let (uids, containers) = (&config.pool.uid_range, config.pool.max_members);
        let ids = u64::from(uids.end() - uids.start()) + 1;
        if ids >= u64::from(containers) + u64::from(kept) {
            return Ok(());
        }
        let problem = format!(
            "has {ids} ids for {containers} containers (pool.max_containers) and {kept} workspaces \
             (tasks.workspaces), must have one for each"
        );
        Err(self.fail("pool.uids", problem))
    }
}
