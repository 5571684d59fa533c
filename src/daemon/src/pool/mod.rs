//! The pool: containers that stand armed before anyone asks, handed out once and never taken back.
//!
//! ```text
//!  Pool::lease ──► driver ──► core (pure: who gets what, what is started, what goes)
//!                    │ ▲
//!              start │ │ started / failed / died        runner  images found by label
//!                    ▼ │                                spec    what every container is
//!                 container ── engine, link             agent   the volume with the agent
//!                                                       warm    its warm part, asked for
//!                                                       proof   that it is confined
//!                                                       trial   one made and looked at for whoever asks
//!                                                       leftovers  what an earlier daemon left
//!  Lease (RAII) ── drop ──► released ──► destroyed
//! ```
//!
//! Nothing in here may know a tool, a session or HTTP. It must never give a container to two sessions, nor touch
//! one that does not carry its owner's label.

mod agent;
mod container;
pub mod core;
mod driver;
mod leftovers;
mod proof;
mod runner;
mod seccomp;
mod secret;
mod spec;
mod specimen;
pub mod trial;
mod warm;
mod watch;

use std::collections::{BTreeMap, HashMap};
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use paddock_proto::message::Claim;
use tokio::sync::{Semaphore, mpsc, oneshot, watch as latest};

pub use self::agent::AgentError;
pub use self::container::{Armed, StartError};
use self::core::{Core, Event, MemberId, PoolSettings, Refusal, RunnerId, Snapshot, WaiterId};
use self::driver::{Driver, Message};
pub use self::proof::{Aspect, Fault, ProofError};
pub use self::runner::{Runner, is_language};
pub use self::secret::AgentTerms;
pub use self::spec::{Bounds, Plan};
pub use self::specimen::{Specimen, SpecimenError};
use crate::engine::{Engine, EngineError};
use crate::metrics::Metrics;

/// Containers that are removed at one time.
const REMOVALS: usize = 4;

/// The runners that there are, by language.
pub type Runners = BTreeMap<String, (RunnerId, Arc<Runner>)>;

/// Why there is no pool.
#[derive(Debug, thiserror::Error)]
pub enum PoolError {
    /// The engine refused something that everything needs.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The agent could not be put on the engine.
    #[error(transparent)]
    Agent(#[from] AgentError),
    /// Containers are not confined.
    #[error(transparent)]
    Proof(#[from] ProofError),
}

/// What a pool is made of.
pub struct PoolConfig {
    /// How many, how long, how patient.
    pub settings: PoolSettings,
    /// What one container may use.
    pub bounds: Bounds,
    /// Whose they are: the store's random id, hex.
    pub owner: String,
    /// What PID 1 is told.
    pub terms: AgentTerms,
    /// Images chosen by the operator, by language.
    pub images: BTreeMap<String, String>,
    /// Whether the warm parts of images are kept standing.
    pub warm_parts: bool,
    /// Told of leases and starts.
    pub metrics: Metrics,
}

/// A handle on the pool of one engine.
#[derive(Clone)]
pub struct Pool {
    sender: mpsc::UnboundedSender<Message>,
    runners: latest::Receiver<Arc<Runners>>,
    next_waiter: Arc<AtomicU64>,
    done: latest::Receiver<bool>,
    fatal: latest::Receiver<Option<Arc<PoolError>>>,
    engine_up: latest::Receiver<bool>,
    settings: PoolSettings,
}

impl Pool {
    /// Looks for runners, proves the confinement, takes over what an earlier daemon of this owner left (what belongs
    /// to sessions is in the second value) or removes it, and begins to keep containers warm. Without any runner
    /// image it starts all the same and waits for one.
    ///
    /// # Errors
    /// See [`PoolError`].
    pub async fn start(engine: Engine, config: PoolConfig) -> Result<(Self, Vec<Adopted>), PoolError> {
        let (sender, messages) = mpsc::unbounded_channel();
        let (runners, runners_now) = latest::channel(Arc::new(Runners::new()));
        let mut watch = watch::Watch::new(engine.clone(), &config, sender.clone());
        let engine_up = watch.engine_up();
        let fatal = watch.fatal();
        let (blueprint, found, survivors) = watch.first_look().await?;
        let warming = warm::Places::of(&engine).await;
        let settings = config.settings.clone();
        let mut driver = Driver {
            engine,
            blueprint,
            terms: config.terms,
            metrics: config.metrics,
            core: Core::new(config.settings),
            messages,
            sender: sender.clone(),
            runners,
            by_id: HashMap::new(),
            members: HashMap::new(),
            waiters: HashMap::new(),
            removals: Arc::new(Semaphore::new(REMOVALS)),
            warming,
            next_runner: 0,
            closing: false,
        };
        let adopted = driver.found(found, survivors);
        let (finished, done) = latest::channel(false);
        let watching = tokio::spawn(watch.run());
        tokio::spawn(async move {
            driver.run().await;
            watching.abort();
            finished.send_replace(true);
        });
        let pool = Self {
            sender,
            runners: runners_now,
            next_waiter: Arc::default(),
            done,
            fatal,
            engine_up,
            settings,
        };
        Ok((pool, adopted))
    }

    /// Waits for an armed container that runs `language`. Dropping the future gives the place in the queue up.
    ///
    /// # Errors
    /// A [`Refusal`], at the latest when the configured wait is over.
    pub async fn lease(&self, language: &str) -> Result<Lease, Refusal> {
        loop {
            match self.ask(language).await {
                // Its image was replaced meanwhile: there is another, to wait for.
                Err(Refusal::UnknownRunner) if self.runners.borrow().contains_key(language) => {}
                answer => return answer,
            }
        }
    }

    async fn ask(&self, language: &str) -> Result<Lease, Refusal> {
        let waiter = WaiterId(self.next_waiter.fetch_add(1, Ordering::Relaxed));
        let (reply, answer) = oneshot::channel();
        let request = Message::Request { waiter, language: language.to_owned(), reply };
        self.sender.send(request).map_err(|_| Refusal::ShuttingDown)?;
        let mut place = Place { waiter, sender: &self.sender, answered: false };
        let answer = answer.await;
        place.answered = true;
        answer.unwrap_or(Err(Refusal::ShuttingDown))
    }

    /// The runners that there are now.
    pub fn runners(&self) -> Arc<Runners> {
        self.runners.borrow().clone()
    }

    /// How many, how long, how patient.
    pub fn settings(&self) -> &PoolSettings {
        &self.settings
    }

    /// False while the engine does not answer.
    pub fn engine_up(&self) -> bool {
        *self.engine_up.borrow()
    }

    /// How things stand; `None` after the end.
    pub async fn snapshot(&self) -> Option<Snapshot> {
        let (reply, answer) = oneshot::channel();
        self.sender.send(Message::Snapshot(reply)).ok()?;
        answer.await.ok()
    }

    /// Resolves when containers turned out not to be confined: the daemon must end.
    pub async fn fatal(&self) -> Arc<PoolError> {
        let mut fatal = self.fatal.clone();
        let error = fatal.wait_for(Option::is_some).await.ok().and_then(|error| error.clone());
        match error {
            Some(error) => error,
            None => std::future::pending().await,
        }
    }

    /// Refuses everyone from now on, removes every container, and resolves when the last is gone. Leased ones
    /// go when their lease is dropped.
    pub async fn shutdown(&self) {
        let _ = self.sender.send(Message::Event(Event::Shutdown));
        let _ = self.done.clone().wait_for(|done| *done).await;
    }
}

/// A place in the queue: given up when dropped before the answer.
struct Place<'a> {
    waiter: WaiterId,
    sender: &'a mpsc::UnboundedSender<Message>,
    answered: bool,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        if !self.answered {
            let _ = self.sender.send(Message::Event(Event::Abandon { waiter: self.waiter }));
        }
    }
}

/// A container of an earlier daemon that belongs to a session.
pub struct Adopted {
    /// Its lease.
    pub lease: Lease,
    /// The session, as PID 1 was told.
    pub claim: Claim,
    /// Runs that no daemon has heard to their end.
    pub runs: Vec<String>,
}

/// An armed container for one session. Dropping it destroys the container.
pub struct Lease {
    armed: Arc<Armed>,
    member: MemberId,
    sender: mpsc::UnboundedSender<Message>,
}

impl Lease {
    fn new(armed: Arc<Armed>, member: MemberId, sender: mpsc::UnboundedSender<Message>) -> Self {
        Self { armed, member, sender }
    }
}

impl Deref for Lease {
    type Target = Armed;

    fn deref(&self) -> &Armed {
        &self.armed
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let _ = self.sender.send(Message::Event(Event::Released { member: self.member }));
    }
}
