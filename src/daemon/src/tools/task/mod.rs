//! The tool set `task`: a coding agent takes a task, works in `/workspace` of a session and hands back
//! files.
//!
//! ```text
//!  ExecuteTask ─► check ─► files ─► agents: its command ─► an execution ─► report: what came of it
//!  GetSandboxStatus ─► report of the last task · DownloadFiles, CleanupSandbox ─► the session
//! ```
//!
//! A task is an execution: it goes on while no call waits for it and survives the daemon. `exec` reads, waits
//! for and cancels it by its id. Two tasks of one session would change the same files, so the second is
//! refused.

mod agent;
mod check;
mod cleanup_sandbox;
mod download_files;
mod execute_task;
mod get_sandbox_status;
mod progress;
mod report;
mod shown;

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::json;

pub(super) use self::agent::agents_of;
pub(super) use self::cleanup_sandbox::CleanupSandbox;
pub(super) use self::download_files::DownloadFiles;
pub(super) use self::execute_task::ExecuteTask;
pub(super) use self::get_sandbox_status::GetSandboxStatus;
pub(super) use self::shown::put_task_page;
use super::{Code, Fault};
use crate::egress::NetworkRequest;
use crate::execution::{Execution, Executions};
use crate::pool::Pool;
use crate::services::Services;
use crate::session::{SessionId, SessionKey};

/// The service by which Claude Code reaches its model. An operator can configure it as a service that is no
/// model.
const USUAL_MODEL: &str = "anthropic";

/// Whether there is an image of some agent.
pub(super) fn has_agent(pool: &Pool) -> bool {
    !agents_of(&pool.runners()).is_empty()
}

/// The coding agents that there are an image of, by name, and whether this owner has a model that they could
/// use.
pub(super) fn agents(services: &Services, owner: &str) -> Vec<(String, bool)> {
    let usual = NetworkRequest { services: vec![USUAL_MODEL.to_owned()], ..NetworkRequest::default() };
    let has_model =
        services.egress.models(owner).next().is_some() || services.egress.grant(&usual, owner).is_ok();
    let runners = services.pool.runners();
    let agents = runners.iter().filter(|(_, (_, runner))| runner.coding_agent);
    agents.map(|(name, _)| (name.clone(), has_model)).collect()
}

/// The tasks of a session that can be read, the oldest first.
fn tasks_of(executions: &Executions, owner: &str, session: &SessionId) -> Vec<Arc<Execution>> {
    let mut all = executions.list(owner, session);
    all.retain(|one| one.spec.task.is_some());
    all
}

/// The sessions in which a task starts at this moment.
#[derive(Debug, Clone, Default)]
pub struct TaskPermits(Arc<Mutex<HashSet<SessionKey>>>);

/// The right to start a task in one session. It is given back once the task is among the executions.
struct TaskPermit {
    permits: TaskPermits,
    session: SessionKey,
}

impl TaskPermits {
    /// The right to start a task in a session where none starts and none runs.
    fn enter(&self, executions: &Executions, owner: &str, session: &SessionId) -> Result<TaskPermit, Fault> {
        let key = SessionKey::new(owner, session);
        let mut starting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let running = tasks_of(executions, owner, session).into_iter().find(|one| one.end().is_none());
        let refused = |what: &str| {
            let message = format!(
                "{what} in this session, and two would change the same files; wait for its end, end it with \
                 cancel_execution, or use another session_id"
            );
            Fault::new(Code::SessionBusy, message)
        };
        if let Some(running) = running {
            return Err(refused("a task is running").with("execution_id", json!(running.id)));
        }
        if !starting.insert(key.clone()) {
            return Err(refused("a task is about to start"));
        }
        Ok(TaskPermit { permits: self.clone(), session: key })
    }
}

impl Drop for TaskPermit {
    fn drop(&mut self) {
        self.permits.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.session);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::execution::ExecutionBounds;
    use crate::session::test_world::World;

    #[tokio::test(start_paused = true)]
    async fn one_task_of_a_session_starts_at_a_time() {
        let world = World::without_containers().await;
        let bounds = ExecutionBounds { max: 1, per_session: 1, keep: Duration::from_secs(3600), kept: 1 };
        let links = crate::ports::PortLinks::for_tests();
        let executions = Executions::new(world.sessions.clone(), bounds, Arc::default(), links);
        let (permits, session) = (TaskPermits::default(), &world.session);
        let enter = |id: &SessionId| permits.enter(&executions, &session.owner, id);
        let first = enter(&session.id).expect("the first");
        let refused = enter(&session.id).err().expect("the second is refused");
        assert!(refused.code == Code::SessionBusy && refused.message.contains("about to start"));
        assert!(enter(&"another".parse().unwrap()).is_ok());
        drop(first);
        assert!(enter(&session.id).is_ok());
    }
}
