//! Executions: commands that go on while nobody waits for them, and what was heard of each.
//!
//! ```text
//!  start ─► a place among those that may run ─► session (place, container, program) ─► recorder
//!                                                                                       │
//!  agent ── bytes, end ──► record (on disk, as they came) ──► events (numbered) ◄───────┘ ──► whoever asks, since any
//! ```
//!
//! What is acknowledged to the agent is in the record; what is in the record has its number for good; what a daemon does not
//! hear to its end the next one does. It must never hold more of an execution's output in memory than a bounded tail, give
//! two events one number, nor tell one owner of another's.

mod about;
mod ending;
mod event;
#[expect(clippy::module_inception, reason = "it is the one thing that all others are about")]
mod execution;
mod keep;
mod lines;
mod places;
mod record;
mod recorder;
mod recording;
mod recover;
mod start;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use self::about::{About, End, State};
pub use self::event::{Event, Mark, What};
pub use self::execution::{Execution, Progress, TellError};
pub use self::places::Place;
use self::places::{Places, Terms};
pub use self::recording::Page;
use self::recording::Told;
pub use self::start::{Start, StartError};
use crate::feed::Feed;
use crate::session::{SessionId, Sessions};

/// The notification that tells of events.
const METHOD: &str = "notifications/execution";

/// The bounds of executions.
#[derive(Debug, Clone)]
pub struct ExecutionBounds {
    /// Under way at one time.
    pub max: usize,
    /// Of one session.
    pub per_session: usize,
    /// For how long one that is over can be read.
    pub keep: Duration,
    /// How many of an owner's that are over can be read; the oldest goes when there are more.
    pub kept: usize,
}

/// Tells whoever watches.
#[derive(Clone)]
struct Teller(Arc<Feed>);

impl Teller {
    fn is_wanted(&self, execution: &Execution) -> bool {
        self.0.is_watched(&execution.owner)
    }

    fn tell(&self, execution: &Execution, told: &Told) {
        if !told.is_empty() {
            self.0.tell(&execution.owner, METHOD, || note(execution, told));
        }
    }
}

/// All executions of one daemon.
pub struct Executions {
    sessions: Arc<Sessions>,
    bounds: ExecutionBounds,
    all: Mutex<HashMap<String, Arc<Execution>>>,
    /// How many are under way, and who waits.
    places: Arc<Places>,
    teller: Teller,
    tasks: TaskTracker,
    /// Ends what is heard for nobody.
    ending: CancellationToken,
}

impl Executions {
    /// None yet.
    pub fn new(sessions: Arc<Sessions>, bounds: ExecutionBounds, feed: Arc<Feed>) -> Arc<Self> {
        let (all, teller) = (Mutex::default(), Teller(feed));
        let (max, per_session) = (bounds.max, bounds.per_session);
        let (queue, wait) = (sessions.bounds().waiting, sessions.bounds().wait);
        let places = Places::new(Terms { max, per_session, queue, wait });
        Arc::new(Self {
            sessions,
            bounds,
            all,
            places,
            teller,
            tasks: TaskTracker::new(),
            ending: CancellationToken::new(),
        })
    }

    fn all(&self) -> MutexGuard<'_, HashMap<String, Arc<Execution>>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An execution of this owner.
    pub fn get(&self, owner: &str, id: &str) -> Option<Arc<Execution>> {
        let found = self.all().get(id).cloned()?;
        (found.owner == owner && !found.space.is_gone()).then_some(found)
    }

    /// The executions of a session that can be read, the oldest first.
    pub fn list(&self, owner: &str, session: &SessionId) -> Vec<Arc<Execution>> {
        let is_of =
            |one: &&Arc<Execution>| one.owner == owner && one.session == *session && !one.space.is_gone();
        let mut found: Vec<_> = self.all().values().filter(is_of).cloned().collect();
        found.sort_by(|a, b| (a.about.started_ms, &a.id).cmp(&(b.about.started_ms, &b.id)));
        found
    }

    /// The executions of an owner that can be read, the newest first.
    pub fn newest(&self, owner: &str, most: usize) -> Vec<Arc<Execution>> {
        let is_of = |one: &&Arc<Execution>| one.owner == owner && !one.space.is_gone();
        let mut found: Vec<_> = self.all().values().filter(is_of).cloned().collect();
        found.sort_by_key(|one| std::cmp::Reverse(one.about.started_ms));
        found.truncate(most);
        found
    }

    /// How many can be read of, those under way included.
    pub fn kept(&self) -> usize {
        self.all().len()
    }

    /// How many are under way, and how many may be.
    pub fn under_way(&self) -> (usize, usize) {
        self.places.under_way()
    }

    /// Ends all that are under way, and resolves when their ends are kept.
    pub async fn close(&self) {
        self.ending.cancel();
        self.all().values().for_each(|execution| execution.cancel.cancel());
        self.tasks.close();
        self.tasks.wait().await;
    }
}

/// What is told of events: those of a flood are not in it, and can be read.
fn note(execution: &Execution, told: &Told) -> Value {
    json!({
        "execution_id": execution.id,
        "session_id": execution.session.as_str(),
        "first_seq": told.first,
        "last_seq": told.last,
        "events": told.events.iter().map(Event::json).collect::<Vec<_>>(),
    })
}
