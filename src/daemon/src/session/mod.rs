//! Sessions: one `/data` each, whichever languages it uses, and the containers it has at the moment.
//!
//! ```text
//!  Sessions ── get(owner, id) ──► Session ── turn (who may be in, bounded queue) ──► Work
//!     │ ttl, sweep; admission (max)                                         │ leases, by language
//!     └─ evicts sessions that rest ◄────────────────────────────────────────┘ what each container has
//!
//!  run: turn → container → bring in what it lacks → program → collect what changed → store → answer
//!
//!  code goes by run, which captures its output; commands by execute, whose hearer keeps it (see `execution`)
//!
//!  journal   whose each container is, for the daemon that comes after a kill;  recover: that daemon's first work
//! ```
//!
//! The store is the truth and a container a cache (`known` says of what): a lease can be dropped between any two
//! calls and nothing is lost. It must never run programs of two languages of one session at a time, nor change its
//! files under one that runs, nor let a container of one session see another.

mod admission;
mod bulk;
mod carry;
mod close;
mod crowd;
mod hear;
mod id;
mod journal;
mod leases;
mod live;
mod output;
mod recover;
mod report;
mod request;
mod room;
mod run;
mod salvage;
mod settle;
mod turn;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;
use tracing::info;

pub use hear::{Control, Hearer};
pub use id::{IdError, SessionId};
pub use live::{Listener, Live, Piece};
pub(crate) use output::excerpt;
pub use output::{Heard, Output, Shown};
pub use recover::{Flying, Recovered};
pub use report::{Phases, RunEnd, RunReport, limit_name};
pub use request::{Program, RunRequest, new_run_id};
pub use turn::Turn;

use self::admission::{Admission, Evict, Refused, Terms};
use self::crowd::Crowd;
use self::journal::Journal;
use self::leases::Work;
use self::turn::Places;
use crate::config::WhenFull;
use crate::link::LinkError;
use crate::metrics::Metrics;
use crate::pool::Pool;
use crate::pool::core::Refusal;
use crate::store::{Space, Store, StoreError};

/// The bounds of sessions.
#[derive(Debug, Clone)]
pub struct SessionBounds {
    /// Containers of a session that is idle for this long are removed.
    pub ttl: Duration,
    /// Sessions with a live container at one time.
    pub max: usize,
    /// How often idle ones are looked for.
    pub sweep: Duration,
    /// What to do when there are `max`.
    pub when_full: WhenFull,
    /// Calls that may wait for their turn in one session.
    pub queue: usize,
    /// Calls that may wait for a container, in all sessions together.
    pub waiting: usize,
    /// How long one call may wait for a container.
    pub wait: Duration,
    /// Bytes of each output stream that an answer has.
    pub output: usize,
    /// Bytes of both streams together that a model is shown.
    pub shown: usize,
    /// Bytes of each output stream that are taken at all; one that writes more is ended.
    pub max_log: u64,
    /// What `/data` may hold; also bounds what is taken out of a container.
    pub data: u64,
    /// Entries of `/data`.
    pub data_inodes: u64,
    /// Stored files of a session unused for this long are deleted; `None`: never.
    pub retention: Option<Duration>,
    /// The longest wall time that a run can have.
    pub longest: Duration,
}

impl SessionBounds {
    /// The bound of each stream, and of what a model is shown of both.
    fn shown(&self) -> (usize, usize) {
        (self.output, self.shown)
    }
}

/// Why a call on a session could not be done.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// As many calls of this session wait as may wait.
    #[error("{0} calls of this session are waiting already; wait for some to end")]
    QueueFull(usize),
    /// The calls before this one in its session took longer than a call may wait.
    #[error(
        "the calls before this one in its session did not end within the {} s that a call may wait (pool.wait); wait for \
         them, or end what runs there",
        .0.as_secs_f64()
    )]
    TurnTooLate(Duration),
    /// Another call has the turn, and this one does not wait.
    #[error("A run is already in progress for this session. Wait for it to complete.")]
    Busy,
    /// As many calls of all sessions wait for a container as may wait.
    #[error(
        "{0} calls wait for a container already, which is the most at one time (pool.queue); try again later"
    )]
    TooManyWait(usize),
    /// As many sessions as allowed have a container, and none gave its up for this call for as long as it may wait.
    #[error(
        "{max} sessions have a container, which is the most at one time (sessions.max, SANDBOX_MAX_SESSIONS), and none \
         came free for this call within the {} s that it may wait (pool.wait); try again later",
        wait.as_secs_f64()
    )]
    MaxSessions {
        /// How many may have one.
        max: usize,
        /// How long a call may wait.
        wait: Duration,
    },
    /// As many sessions as allowed have a container, and none is evicted, by configuration.
    #[error(
        "{0} sessions have a container, which is the most at one time (sessions.max, SANDBOX_MAX_SESSIONS), and none is \
         evicted for another (sessions.when_full); close one or try again later"
    )]
    NoEviction(usize),
    /// No container of this language.
    #[error(transparent)]
    NoContainer(#[from] Refusal),
    /// The store failed: nothing of this call was acknowledged.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The container was lost before any code ran, twice.
    #[error("no container could be prepared: {0}")]
    Link(#[from] LinkError),
    /// The caller went away, or took the call back, before any code ran.
    #[error("the call was cancelled before any code ran")]
    Cancelled,
    /// The session was closed while the call waited.
    #[error("the session was closed while this call waited for its turn; no code ran")]
    Closed,
    /// A policy cannot be enforced in this container, and nothing ran.
    #[error("the file policy cannot be enforced here, so nothing was run: {0}")]
    Unsupported(String),
    /// The container would not take the session's files.
    #[error("the container would not take the session's files: {0}")]
    BringIn(String),
}

/// All sessions of one daemon.
pub struct Sessions {
    store: Arc<Store>,
    pool: Pool,
    journal: Journal,
    bounds: SessionBounds,
    all: Mutex<HashMap<(String, SessionId), Arc<Session>>>,
    /// Which sessions have a container, or wait for one.
    admission: Arc<Admission<Session>>,
    /// Ends what is followed without a caller.
    ending: CancellationToken,
    /// Those that write as fast as they can.
    crowd: Crowd,
    pub(crate) metrics: Metrics,
}

/// One conversation.
pub struct Session {
    /// Whose it is: the name of a token.
    pub owner: String,
    /// Its id.
    pub id: SessionId,
    /// Its files.
    pub space: Arc<Space>,
    places: Places,
    admission: Arc<Admission<Session>>,
    used: Mutex<Instant>,
    /// When the disk was told last that it is used.
    noted: Mutex<Option<Instant>>,
    closing: close::Closing,
    /// What the next call is to be told.
    news: Mutex<Vec<Recovered>>,
}

/// Between two words to the disk that a session is used: little beside any `sessions.retention`.
const NOTE_USE: Duration = Duration::from_secs(1);

impl Sessions {
    /// No sessions yet; what the store has of them is loaded when they are asked for.
    ///
    /// # Errors
    /// The store's.
    pub fn new(
        store: Arc<Store>,
        pool: Pool,
        bounds: SessionBounds,
        metrics: Metrics,
    ) -> Result<Arc<Self>, StoreError> {
        let evicts = bounds.when_full == WhenFull::Evict;
        let terms = Terms { max: bounds.max, queue: bounds.waiting, evicts };
        let admission = Admission::new(terms, metrics.clone());
        let journal = Journal::new(store.folder("leases")?);
        let ending = CancellationToken::new();
        Ok(Arc::new(Self {
            store,
            pool,
            journal,
            bounds,
            all: Mutex::default(),
            admission,
            ending,
            crowd: Crowd::default(),
            metrics,
        }))
    }

    /// The session of this owner and id, new or not.
    ///
    /// # Errors
    /// The store's.
    pub async fn get(&self, owner: &str, id: &SessionId) -> Result<Arc<Session>, StoreError> {
        let key = (owner.to_owned(), id.clone());
        loop {
            if let Some(session) = self.all().get(&key) {
                return Ok(session.clone());
            }
            let space = self.store.space(owner, id.as_str()).await?;
            let mut all = self.all();
            if let Some(session) = all.get(&key) {
                return Ok(session.clone());
            }
            // Whoever deletes a session marks its space before it gives up its place here.
            if space.is_gone() {
                continue;
            }
            let session = Arc::new(Session {
                owner: owner.to_owned(),
                id: id.clone(),
                space,
                places: Places::default(),
                admission: self.admission.clone(),
                used: Mutex::new(Instant::now()),
                noted: Mutex::default(),
                closing: close::Closing::default(),
                news: Mutex::default(),
            });
            return Ok(all.entry(key).or_insert(session).clone());
        }
    }

    fn all(&self) -> MutexGuard<'_, HashMap<(String, SessionId), Arc<Session>>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The bounds.
    pub fn bounds(&self) -> &SessionBounds {
        &self.bounds
    }

    /// Sessions that have a container, or are about to.
    pub fn live(&self) -> usize {
        self.admission.live()
    }

    /// Sessions in memory, and calls that wait for their turn in one, or for a container.
    pub fn known(&self) -> (usize, usize) {
        let all = self.all();
        let in_turn: usize = all.values().map(|session| session.places.waiting()).sum();
        (all.len(), in_turn + self.admission.waiting())
    }

    /// Makes sure that a session may have a container: it waits for that until `deadline`.
    async fn admit(
        &self,
        session: &Arc<Session>,
        work: &mut Work,
        deadline: Instant,
    ) -> Result<(), SessionError> {
        if work.permit.is_none() {
            let admitted = self.admission.admit(session, deadline.into()).await;
            work.permit = Some(admitted.map_err(|refused| match refused {
                Refused::Full => SessionError::NoEviction(self.bounds.max),
                Refused::QueueFull(waiting) => SessionError::TooManyWait(waiting),
                Refused::TooLong => {
                    SessionError::MaxSessions { max: self.bounds.max, wait: self.bounds.wait }
                }
            })?);
        }
        Ok(())
    }

    /// Removes the containers of sessions idle for longer than the TTL, and forgets sessions that have none.
    /// Runs until dropped.
    pub async fn sweep(self: Arc<Self>) {
        let clock = close::Clock::new();
        let mut ticks = tokio::time::interval(self.bounds.sweep.min(self.bounds.ttl));
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let sessions: Vec<_> = self.all().values().cloned().collect();
            for session in sessions {
                if session.last_used().elapsed() >= self.bounds.ttl && session.release("idle") {
                    self.metrics.released("idle");
                }
            }
            self.all().retain(|_, session| {
                let unheard = session.has_news() && session.last_used().elapsed() < self.bounds.ttl;
                let busy = unheard || Arc::strong_count(session) > 1 || session.places.waiting() > 0;
                let bare = session.places.resting().is_some_and(|(_, work)| work.leases.is_empty());
                busy || !bare
            });
            self.expire(&clock).await;
        }
    }

    /// Takes every container back, once its session's turn is over.
    pub async fn close_all(&self) {
        self.ending.cancel();
        let sessions: Vec<_> = self.all().drain().map(|(_, session)| session).collect();
        for session in sessions {
            let _alone = session.places.emptied().await;
            *session.places.work().await = Work::default();
        }
    }
}

impl Evict for Session {
    fn last_used(&self) -> Instant {
        Self::last_used(self)
    }

    fn has_waiting_calls(&self) -> bool {
        self.places.waiting() > 0
    }

    fn evict(&self) -> bool {
        self.release("evicted for another")
    }
}

impl Session {
    fn last_used(&self) -> Instant {
        *self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn touch(&self) {
        *self.used.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    /// Whether the disk is to be told that it is used: that is not for every call to wait for.
    fn is_to_be_noted(&self) -> bool {
        let mut noted = self.noted.lock().unwrap_or_else(PoisonError::into_inner);
        let due = noted.is_none_or(|noted| noted.elapsed() > NOTE_USE) || self.space.is_closed();
        if due {
            *noted = Some(Instant::now());
        }
        due
    }

    /// Gives its containers up, if it has some and is not at work.
    fn release(&self, why: &str) -> bool {
        let Some((_alone, mut work)) = self.places.resting() else { return false };
        if work.permit.is_none() {
            return false;
        }
        info!(session_id = %self.id, why, "containers released");
        *work = Work::default();
        true
    }
}
