//! Executions: commands that go on while nobody waits for them, and a log of each.
//!
//! ```text
//!  start ─► permit ─► session (container, program) ─► sink ─► log (on disk) ─► numbered events ─► readers
//!                                                      └─► backlog ─► the follower of the call that waits
//! ```
//!
//! What is acknowledged to the agent is in the log; what is in the log has its number for good; an execution
//! that a daemon does not follow to its end the next one does. It must never hold more of an execution's
//! output in memory than a bounded tail, give two events one number, nor tell one owner of another's.

mod end;
mod handle;
mod log;
mod permits;
mod publish;
mod recover;
mod retention;
mod sink;
mod start;
mod stored;
mod task_diff;

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use self::end::{ExecutionEnd, ExecutionState};
pub use self::handle::{Execution, InputError};
pub use self::log::LogPosition;
pub use self::log::event::{EventBody, ExecutionEvent, Lifecycle};
pub use self::log::page::Page;
pub use self::permits::ExecutionPermit;
use self::permits::{ExecutionPermits, PermitBounds};
pub use self::start::{ExecutionError, StartRequest};
pub use self::stored::ExecutionSpec;
pub(crate) use self::stored::now_ms;
pub use self::task_diff::TaskDiff;
use crate::cluster::ids::NodeTag;
use crate::notifications::Notifications;
use crate::ports::PortLinks;
use crate::session::{SessionId, Sessions};
use crate::store::StoreClock;

/// The bounds of executions.
#[derive(Debug, Clone)]
pub struct ExecutionBounds {
    /// Executions under way at one time.
    pub max: usize,
    /// Executions of one session under way at one time.
    pub per_session: usize,
    /// For how long an execution that is over can be read.
    pub keep: Duration,
    /// Executions of one owner that are over and can be read; the oldest goes when there are more.
    pub kept: usize,
}

/// All executions of one daemon.
pub struct Executions {
    sessions: Arc<Sessions>,
    bounds: ExecutionBounds,
    all: Mutex<HashMap<String, Arc<Execution>>>,
    permits: Arc<ExecutionPermits>,
    notifications: Arc<Notifications>,
    /// Links to the ports that they listen on.
    links: Arc<PortLinks>,
    clock: StoreClock,
    tasks: TaskTracker,
    /// This node, where there are others.
    node: OnceLock<NodeTag>,
    /// Ends all executions, and begins none any more.
    ending: CancellationToken,
}

impl Executions {
    /// None yet.
    pub fn new(
        sessions: Arc<Sessions>,
        bounds: ExecutionBounds,
        notifications: Arc<Notifications>,
        links: Arc<PortLinks>,
    ) -> Arc<Self> {
        let bounds_of_permits = PermitBounds {
            max: bounds.max,
            per_session: bounds.per_session,
            queue: sessions.bounds().waiting,
            wait: sessions.bounds().wait,
        };
        let permits = ExecutionPermits::new(bounds_of_permits, sessions.bounds().tenants.clone());
        Arc::new(Self {
            sessions,
            bounds,
            all: Mutex::default(),
            permits,
            notifications,
            links,
            clock: StoreClock::new(),
            tasks: TaskTracker::new(),
            node: OnceLock::new(),
            ending: CancellationToken::new(),
        })
    }

    /// From now on the ids of executions say that this node made them.
    pub fn name_node(&self, node: NodeTag) {
        let _ = self.node.set(node);
    }

    /// An id for an execution.
    fn new_id(&self) -> String {
        self.node.get().map_or_else(|| uuid::Uuid::new_v4().to_string(), |node| node.execution_id())
    }

    fn all(&self) -> MutexGuard<'_, HashMap<String, Arc<Execution>>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An execution of this owner.
    pub fn get(&self, owner: &str, id: &str) -> Option<Arc<Execution>> {
        let found = self.all().get(id).cloned()?;
        (found.owner == owner && !found.is_gone()).then_some(found)
    }

    /// The executions of a session that can be read, the oldest first.
    pub fn list(&self, owner: &str, session: &SessionId) -> Vec<Arc<Execution>> {
        let is_of = |one: &&Arc<Execution>| one.owner == owner && one.session == *session && !one.is_gone();
        let mut found: Vec<_> = self.all().values().filter(is_of).cloned().collect();
        found.sort_by(|a, b| (a.spec.started_ms, &a.id).cmp(&(b.spec.started_ms, &b.id)));
        found
    }

    /// The executions of an owner that can be read, the newest first.
    pub fn newest(&self, owner: &str, most: usize) -> Vec<Arc<Execution>> {
        let is_of = |one: &&Arc<Execution>| one.owner == owner && !one.is_gone();
        let mut found: Vec<_> = self.all().values().filter(is_of).cloned().collect();
        found.sort_by_key(|one| std::cmp::Reverse(one.spec.started_ms));
        found.truncate(most);
        found
    }

    /// How many can be read, those under way included.
    pub fn kept(&self) -> usize {
        self.all().len()
    }

    /// How many are under way, and how many may be.
    pub fn under_way(&self) -> (usize, usize) {
        self.permits.under_way()
    }

    /// How many of each owner are under way.
    pub fn by_owner(&self) -> BTreeMap<String, usize> {
        self.permits.by_owner()
    }

    /// Of each owner: how many are under way, and how many calls wait to begin one.
    pub fn use_by_owner(&self) -> BTreeMap<String, (usize, usize)> {
        self.permits.use_by_owner()
    }

    /// An owner may have more or fewer of them at this node: calls that wait have their turn.
    pub fn limit_changed(&self, owner: &str) {
        self.permits.limit_changed(owner);
    }

    /// Cancels all of an owner that are under way.
    pub fn end_owner(&self, owner: &str) {
        self.all().values().filter(|one| one.owner == owner).for_each(|one| one.cancel.cancel());
    }

    /// Ends all that are under way, and resolves when their ends are kept. None begins any more: calls that
    /// wait for a permit are refused.
    pub async fn close(&self) {
        self.ending.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }
}

#[cfg(test)]
mod tests;
