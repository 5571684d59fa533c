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
//! * `pages` takes up changes of the tokens, `measured` says to metrics what tenants use.
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
mod measured;
mod overall;
pub(crate) mod pace;
mod pages;
mod part;
mod places;
mod token;
pub mod turns;
mod watched;
pub mod weigh;
mod window;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};
use std::time::{Duration, Instant, SystemTime};

use tokio::sync::watch;

pub use self::book::{LiveToken, Tenant, TokenBook};
use self::core::TenantEvent;
use self::credits::Credits;
pub use self::credits::ProgramCredit;
use self::ease::Ease;
pub use self::fair::{TenantId, TenantShare};
pub use self::file::TokensFile;
pub(crate) use self::file::is_there;
pub use self::limited::Limited;
use self::measured::Names;
pub use self::measured::TenantInUse;
pub use self::part::TenantParts;
use self::places::Places;
pub use self::places::RunPlace;
pub(crate) use self::token::TokenTable;
pub use self::token::{KnownToken, MAX_TOKENS, TenantLimits, TenantTerms};
use self::watched::Watched;
use crate::cluster::limits::LimitParts;
use crate::metrics::Metrics;
use crate::processors;
use crate::store::StoreClock;

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
            credits: Credits::on(processors::count()),
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

#[cfg(test)]
mod tests;
