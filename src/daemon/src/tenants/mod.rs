//! Tenants: who may call, and how much of the daemon each may use. A tenant is the name of a token.
//!
//! ```text
//!  auth.tokens ──┐
//!                ├─► book (pure): tokens that are good, their tenants ──► guard, signer, queues: share()
//!  tokens_file ──┘        ▲ a look every 250 ms: changed, ended            │
//!                         └── gone: streams, executions and sessions end   ▼
//!                            core (pure): requests, runs, bytes  ◄── begin_request, begin_run, move_bytes
//! ```
//!
//! * Where calls of several tenants wait, [`fair`] says who is next. Sessions, executions and containers are
//!   counted where their queues are; [`turns`] has places for whatever has no queue of its own.
//! * Where the daemon's own threads work for several tenants, `pace` says whose connections go on, and `ease`
//!   how much of the threads they have while the processors are short. When programs begin then is up to
//!   `credit`.
//! * Where programs of several tenants compute, [`weigh`](weigh::weigh) says how much each container weighs.
//! * The store counts the bytes and files of each owner, egress what a model costs; both ask here for the
//!   limit.
//!
//! Where there are many nodes, limits hold for all of them (`overall`): this module sees the part of its
//! node.
//!
//! It must never hold a token, let a token that is revoked or has ended do anything, nor tell a tenant of
//! another.

mod book;
pub mod command;
pub mod confine;
mod core;
mod credit;
mod credits;
pub(crate) mod ease;
pub mod fair;
mod file;
mod limited;
mod overall;
pub(crate) mod pace;
mod part;
mod places;
mod token;
pub mod turns;
mod watched;
pub mod weigh;
mod window;

use std::collections::{BTreeSet, HashMap};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock};
use std::time::{Duration, Instant, SystemTime};

use tokio::sync::watch;
use tracing::{info, warn};

pub use self::book::{LiveToken, Tenant, TokenBook};
use self::core::TenantEvent;
use self::credits::Credits;
pub use self::credits::ProgramCredit;
use self::ease::Ease;
pub use self::fair::{TenantId, TenantShare};
pub use self::file::TokensFile;
pub(crate) use self::file::is_there;
pub use self::limited::Limited;
pub use self::part::TenantParts;
use self::places::Places;
pub use self::places::RunPlace;
pub(crate) use self::token::TokenTable;
pub use self::token::{KnownToken, MAX_TOKENS, TenantLimits, TenantTerms};
use self::watched::Watched;
use crate::cluster::limits::LimitParts;
use crate::metrics::Metrics;
use crate::store::StoreClock;

/// How often the file of tokens is looked at. A revoked token ends this much later, and a little more.
const LOOK: Duration = Duration::from_millis(250);

/// Names that have series of their own in metrics, in the order in which they were first seen; the rest are
/// `other`. Names come from the operator, but a thousand of them would be a million series.
const NAMED: usize = 50;

/// The limits that refuse a tool call, as its answer names them.
const LIMITS: [&str; 6] =
    ["sessions", "executions", "runs", "stored_bytes", "stored_files", limited::CPU_CREDITS];

/// The name in metrics of tenants beyond [`NAMED`].
const OTHER: &str = "other";

/// The tenants of one daemon.
pub struct Tenants {
    configured: Vec<KnownToken>,
    file: Option<TokensFile>,
    book: RwLock<Arc<TokenBook>>,
    places: Arc<Places>,
    credits: Arc<Credits>,
    names: Mutex<Names>,
    watched: Mutex<Watched>,
    /// Counts the pages of the book: changes once what is not good any more has ended.
    pages: watch::Sender<u64>,
    /// Tenants that are gone, until somebody takes them.
    gone: Mutex<Vec<Arc<Tenant>>>,
    /// What this node may use of limits that hold for all nodes; not set on a single machine.
    parts: OnceLock<Arc<LimitParts>>,
    metrics: Metrics,
}

/// Every name that was ever seen, and its number: no more than an operator has written.
#[derive(Default)]
struct Names {
    ids: HashMap<Arc<str>, TenantId>,
    named: Vec<Arc<str>>,
}

/// A request in flight. Dropping it ends it.
pub struct RequestPlace {
    places: Arc<Places>,
    tenant: TenantId,
}

impl Drop for RequestPlace {
    fn drop(&mut self) {
        let mut state = self.places.state();
        let _ = state.core.on(self.tenant, TenantEvent::Answered, &TenantLimits::default(), Instant::now());
    }
}

/// The processors of this machine that the daemon may use.
pub(crate) fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

impl Default for Tenants {
    /// No tokens: everybody is `default`, without limits.
    fn default() -> Self {
        Self::new(Vec::new(), None, Metrics::default())
    }
}

impl Tenants {
    /// The tenants of these tokens, and of those in `file` if there is such a file; it may come later.
    /// Callers need a token if there are any, if the file is there, or if the operator has named it.
    ///
    /// # Errors
    /// Why the file cannot be used.
    pub fn open(
        configured: Vec<KnownToken>,
        file: Option<TokensFile>,
        metrics: Metrics,
    ) -> Result<Arc<Self>, String> {
        let tenants = Self::new(configured, file, metrics);
        tenants.look(StoreClock::new().for_expiry());
        match tenants.fault() {
            Some(why) => Err(why),
            None => Ok(Arc::new(tenants)),
        }
    }

    fn new(configured: Vec<KnownToken>, file: Option<TokensFile>, metrics: Metrics) -> Self {
        let tenants = Self {
            configured,
            file,
            book: RwLock::default(),
            places: Arc::default(),
            credits: Credits::on(processors()),
            names: Mutex::default(),
            watched: Mutex::default(),
            pages: watch::channel(0).0,
            gone: Mutex::default(),
            parts: OnceLock::new(),
            metrics,
        };
        tenants.turn_page(&[], false, StoreClock::new().for_expiry());
        tenants
    }

    /// The tokens that are good now.
    pub fn book(&self) -> Arc<TokenBook> {
        self.book.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What queues must know of a tenant.
    pub fn share(&self, name: &str) -> TenantShare {
        let share = self.book.read().unwrap_or_else(PoisonError::into_inner).share(name);
        self.share_here(name, share)
    }

    /// Whether a tenant has spent its CPU credits, or programs of it wait for some.
    pub fn owes(&self, tenant: TenantId) -> bool {
        self.credits.owes(tenant)
    }

    /// The parts that tenants which owe CPU credits have together, of 1, among all tenants at work; `None`
    /// unless another one is at work that owes none.
    pub fn parts(&self, owing: &BTreeSet<TenantId>) -> Option<f64> {
        self.credits.parts(owing)
    }

    /// The limits of a tenant: none for one that has no token any more, whose work ends anyway.
    pub fn limits(&self, name: &str) -> TenantLimits {
        let book = self.book.read().unwrap_or_else(PoisonError::into_inner);
        book.tenant(name).map(|tenant| tenant.terms.limits.clone()).unwrap_or_default()
    }

    /// One more request of a tenant, which may have `most` in flight. A request that another node passed on
    /// was counted there against the limit of requests a second.
    ///
    /// # Errors
    /// The limit that it has reached.
    pub fn begin_request(
        &self,
        tenant: &Tenant,
        most: usize,
        is_passed_on: bool,
    ) -> Result<RequestPlace, Limited> {
        let begun = match self.parts.get() {
            None => self.request(tenant, most, &tenant.terms.limits),
            Some(parts) => self.request_here(parts, tenant, most, is_passed_on),
        };
        let label = self.label(&tenant.name);
        match begun {
            Ok(()) => {
                self.metrics.tenant_request(&label);
                Ok(RequestPlace { places: self.places.clone(), tenant: tenant.id })
            }
            Err(limited) => {
                self.metrics.tenant_limited(&label, limited.limit);
                Err(limited)
            }
        }
    }

    /// The place of one more run of a tenant, within `wait`.
    ///
    /// # Errors
    /// The limit that it has reached.
    pub async fn begin_run(&self, name: &str, wait: Duration) -> Result<RunPlace, Limited> {
        let book = self.book();
        let Some(tenant) = book.tenant(name) else {
            let nothing = TenantLimits::default();
            return self.places.enter(TenantId::default(), &nothing, wait).await;
        };
        match self.parts.get() {
            None => self.places.enter(tenant.id, &tenant.terms.limits, wait).await,
            Some(parts) => self.run_here(parts, tenant, wait).await,
        }
    }

    /// Waits until one more program of this tenant may begin.
    ///
    /// # Errors
    /// It still may not after `patience`: the tenant has spent its CPU credits.
    pub(crate) async fn begin_program(
        &self,
        share: TenantShare,
        needs_container: bool,
        patience: Duration,
    ) -> Result<ProgramCredit, Limited> {
        self.credits.begin(share, needs_container, patience).await
    }

    /// A program of this tenant is under way that an earlier daemon let begin.
    pub(crate) fn resume_program(&self, share: TenantShare) -> ProgramCredit {
        self.credits.resume(share)
    }

    /// The daemon begins work of its own that this tenant asked for: it is charged for it, and it does not
    /// wait for credits.
    pub(crate) fn begin_work(&self, share: TenantShare) -> ProgramCredit {
        self.credits.work(share)
    }

    /// Whether programs of several tenants are at work.
    pub(crate) fn is_shared(&self) -> bool {
        self.credits.is_shared()
    }

    /// How far tenants are held back from now on, and who is at work, whether programs of theirs run or not.
    pub(crate) fn hold_back(&self, ease: Ease, at_work: &[TenantShare]) {
        self.credits.look(ease, at_work);
    }

    /// Admits a request by these limits.
    fn request(&self, tenant: &Tenant, most: usize, limits: &TenantLimits) -> Result<(), Limited> {
        self.places.state().core.on(tenant.id, TenantEvent::Request { most }, limits, Instant::now())
    }

    /// A tenant's programs move bytes.
    ///
    /// # Errors
    /// The limit that it has reached.
    pub fn move_bytes(&self, name: &str, bytes: u64) -> Result<(), Limited> {
        let book = self.book();
        let Some(tenant) = book.tenant(name) else { return Ok(()) };
        let (now, limits) = (Instant::now(), &tenant.terms.limits);
        let moved = match self.parts.get() {
            None => self.moves(tenant, bytes, limits, now),
            Some(parts) => self.moves_here(parts, tenant, bytes, now),
        };
        moved.inspect_err(|limited| self.metrics.tenant_limited(&self.label(name), limited.limit))
    }

    /// Admits bytes by these limits.
    fn moves(&self, tenant: &Tenant, bytes: u64, limits: &TenantLimits, now: Instant) -> Result<(), Limited> {
        self.places.state().core.on(tenant.id, TenantEvent::Moves(bytes), limits, now)
    }

    /// Counts a tool call of a tenant: how it came out, how long it took, and the limit that refused it.
    pub fn called(&self, name: &str, outcome: &'static str, took: Duration, limit: Option<&str>) {
        let label = self.label(name);
        self.metrics.tenant_called(&label, outcome, took);
        if let Some(limit) = limit.and_then(|limit| LIMITS.into_iter().find(|known| *known == limit)) {
            self.metrics.tenant_limited(&label, limit);
        }
    }

    /// The name of a tenant in metrics.
    pub fn label(&self, name: &str) -> Arc<str> {
        let names = self.names();
        let known = names.named.iter().find(|known| ***known == *name);
        known.cloned().unwrap_or_else(|| Arc::from(OTHER))
    }

    /// What each tenant uses now, by its name in metrics: runs, those that wait for one, requests, and bytes
    /// that moved in the last hour.
    pub fn in_use(&self) -> Vec<TenantInUse> {
        let (book, now) = (self.book(), Instant::now());
        let of = |tenant: &Arc<Tenant>| {
            let waiting = self.places.waiting(tenant.id);
            let held_back = self.credits.waiting(tenant.id);
            let mut state = self.places.state();
            TenantInUse {
                name: tenant.name.clone(),
                label: self.label(&tenant.name),
                runs: state.core.runs(tenant.id),
                waiting,
                held_back,
                requests: state.core.requests(tenant.id),
                moved: state.core.moved(tenant.id, now),
            }
        };
        book.tenants().map(of).collect()
    }

    /// Changes whenever tokens come or go, once those that are gone have ended.
    pub fn pages(&self) -> watch::Receiver<u64> {
        self.pages.subscribe()
    }

    /// The tenants that are gone since the last call.
    pub fn take_gone(&self) -> Vec<Arc<Tenant>> {
        std::mem::take(&mut self.gone.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// What is wrong with the file of tokens; what it said before is still good.
    pub fn fault(&self) -> Option<String> {
        self.watched().fault.clone()
    }

    /// Takes up changes of the file, and ends tokens at their time, until the future is dropped.
    pub async fn watch(self: Arc<Self>) {
        let mut tick = tokio::time::interval(LOOK);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tick.tick().await;
            let this = self.clone();
            // A file system can hang, and must not hang anybody else.
            let looked = tokio::task::spawn_blocking(move || this.look(StoreClock::new().for_expiry()));
            if looked.await.is_err() {
                warn!("the file of tokens could not be looked at");
            }
        }
    }

    /// Takes up what has changed since the last look.
    fn look(&self, now: SystemTime) {
        let stamped = self.file.as_ref().map(|file| (file, file::stamp(&file.path)));
        let (has_changed, went_back) = {
            let mut watched = self.watched();
            let changed = stamped.is_some_and(|(file, stamp)| watched.look(file, stamp, &self.metrics));
            (changed, watched.went_back(now))
        };
        let ends = self.book().next_end().is_some_and(|end| end <= now);
        if has_changed || ends || went_back {
            let (tokens, is_known) = {
                let watched = self.watched();
                (watched.tokens.clone(), watched.is_known)
            };
            self.turn_page(&tokens, is_known, now);
        }
    }

    /// A new page of the book: what is not on it ends at once.
    fn turn_page(&self, of_file: &[KnownToken], has_file: bool, now: SystemTime) {
        let earlier = self.book();
        let tokens = self.configured.iter().chain(of_file);
        let is_named = self.file.as_ref().is_some_and(|file| file.mark.is_none());
        let is_guarded = is_named || has_file || !self.configured.is_empty();
        let next = Arc::new(earlier.next(tokens, is_guarded, now, |name| self.number(name)));
        *self.book.write().unwrap_or_else(PoisonError::into_inner) = next.clone();
        let gone = next.end_what_is_not_in(&earlier);
        for tenant in &gone {
            info!(token = %tenant.name, "every token of this name is revoked or over: what it had is ended");
            self.places.state().core.forget(tenant.id);
        }
        self.metrics.tokens(next.len());
        self.gone.lock().unwrap_or_else(PoisonError::into_inner).extend(gone);
        self.pages.send_modify(|page| *page += 1);
    }

    /// The number of a name, and its place among those that metrics name.
    fn number(&self, name: &str) -> TenantId {
        let mut names = self.names();
        if let Some(id) = names.ids.get(name) {
            return *id;
        }
        let (id, name) =
            (TenantId(u32::try_from(names.ids.len()).unwrap_or(u32::MAX)), Arc::<str>::from(name));
        names.ids.insert(name.clone(), id);
        if names.named.len() < NAMED {
            self.metrics.know_tenant(&name, &LIMITS);
            names.named.push(name);
        }
        id
    }

    fn names(&self) -> MutexGuard<'_, Names> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn watched(&self) -> MutexGuard<'_, Watched> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How many tokens a file has: none if there is no file, or it is not good.
pub(crate) fn tokens_in(path: &Path) -> usize {
    file::read(path).map_or(0, |tokens| tokens.len())
}

/// How many tenants have a token that is good now: one of these, or one of the file.
pub(crate) fn tenants_of(known: &[KnownToken], path: &Path) -> usize {
    let now = SystemTime::now();
    let of_file = file::read(path).unwrap_or_default();
    let all = known.iter().chain(&of_file).filter(|token| token.expires.is_none_or(|end| end > now));
    all.map(|token| token.name.as_str()).collect::<BTreeSet<_>>().len()
}

/// What a tenant uses at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TenantInUse {
    /// Its name.
    pub name: Arc<str>,
    /// Its name in metrics.
    pub label: Arc<str>,
    /// Runs of code under way.
    pub runs: usize,
    /// Calls that wait for a run of its own to end.
    pub waiting: usize,
    /// Programs that do not begin yet, since the processors are short.
    pub held_back: usize,
    /// Requests in flight.
    pub requests: usize,
    /// Bytes that its programs moved in the last hour.
    pub moved: u64,
}

#[cfg(test)]
mod tests;
