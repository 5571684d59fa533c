//! The doing half of the gate: it tells the core what happens and does what the core says.
//!
//! ```text
//!  a call, a drop, the timer, an upkeep task
//!      │ event
//!      ▼
//!  ┌─ one mutex ─────────────────────────────────────────┐      outside of it:
//!  │ core.on(event, now) ──► actions ──► orders           │ ──►  answer the calls, cancel, and the upkeep
//!  └──────────────────────────────────────────────────────┘
//! ```
//!
//! A call that need not wait has its turn from its own first event: one mutex, no task and no channel in
//! between. It must never decide anything that the core could, nor drop a turn, a permit or a session while
//! it holds the mutex.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use tokio::runtime::Handle;
use tokio::sync::{Notify, oneshot, watch};
use tokio_util::sync::CancellationToken;

use super::core::{Core, GateCounts};
use super::message::{Action, CallId, Denial, Event, GateBounds, SessionKey};
use super::order::{GateAnswer, Order};
use super::turn::{Pass, Turn};
use crate::metrics::Metrics;
use crate::session::SessionsInUse;
use crate::session::lease::Permit;
use crate::session::registry::{Registry, Session};
use crate::session::workspaces::Workspaces;
use crate::store::{Store, StoreClock, StoreError};
use crate::tenants::TenantShare;

/// The one driver of a daemon's gate.
pub(super) struct GateDriver {
    state: Mutex<GateState>,
    pub(super) store: Arc<Store>,
    pub(super) retention: Option<Duration>,
    pub(super) workspaces: Arc<Workspaces>,
    pub(super) metrics: Metrics,
    pub(super) clock: StoreClock,
    pub(super) runtime: Handle,
    /// Told when the next deadline comes earlier than the timer knows.
    earlier: Arc<Notify>,
    quiet: watch::Sender<bool>,
    /// See [`Core::rests`].
    rests: watch::Sender<u64>,
}

struct GateState {
    core: Core,
    registry: Registry,
    /// The calls that wait for an answer.
    replies: HashMap<CallId, oneshot::Sender<GateAnswer>>,
    /// What cancels the calls that are in.
    cancels: HashMap<CallId, CancellationToken>,
    last_call: u64,
    /// When the timer is due.
    alarm: Option<Instant>,
}

impl GateDriver {
    pub(super) fn start(
        store: Arc<Store>,
        terms: GateBounds,
        retention: Option<Duration>,
        workspaces: Arc<Workspaces>,
        metrics: Metrics,
    ) -> Arc<Self> {
        let state = GateState {
            core: Core::new(terms),
            registry: Registry::default(),
            replies: HashMap::new(),
            cancels: HashMap::new(),
            last_call: 0,
            alarm: None,
        };
        let earlier = Arc::new(Notify::new());
        let driver = Arc::new(Self {
            state: Mutex::new(state),
            store,
            retention,
            workspaces,
            metrics,
            clock: StoreClock::new(),
            runtime: Handle::current(),
            earlier: earlier.clone(),
            quiet: watch::channel(false).0,
            rests: watch::channel(0).0,
        });
        driver.runtime.spawn(keep_time(Arc::downgrade(&driver), earlier));
        driver
    }

    fn state(&self) -> MutexGuard<'_, GateState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn counts(&self) -> GateCounts {
        self.state().core.counts()
    }

    /// Why a program of this session certainly gets no permit.
    pub(super) fn refuses(&self, key: &SessionKey, tenant: TenantShare) -> Option<Denial> {
        self.state().core.refuses(key, tenant, tokio::time::Instant::now().into_std())
    }

    /// Whether this session has a permit.
    pub(super) fn is_live(&self, key: &SessionKey) -> bool {
        self.state().core.is_live(key)
    }

    /// The sessions of an owner that are in memory.
    pub(super) fn of_owner(&self, owner: &str) -> Vec<SessionKey> {
        self.state().registry.of_owner(owner)
    }

    /// Permits of each owner.
    pub(super) fn permits_by_owner(&self) -> BTreeMap<String, usize> {
        self.state().core.permits_by_owner()
    }

    /// What each owner uses.
    pub(super) fn use_by_owner(&self) -> BTreeMap<String, SessionsInUse> {
        self.state().core.use_by_owner()
    }

    /// Tells the core what happened, and does what it says.
    pub(super) fn tell(self: &Arc<Self>, event: Event) {
        let (_, orders) = self.take_in(&mut self.state(), event, None, None);
        self.carry_out(orders);
    }

    /// The same of an event that the store's failure made.
    pub(super) fn tell_failed(self: &Arc<Self>, event: Event, error: StoreError) {
        let (_, orders) = self.take_in(&mut self.state(), event, Some(error), None);
        self.carry_out(orders);
    }

    /// Tells the core that the pool is full; whether a session gives its containers up.
    pub(super) fn evict_for_pool(self: &Arc<Self>) -> bool {
        let (_, orders) = self.take_in(&mut self.state(), Event::PoolFull, None, None);
        let gives_up = orders.iter().any(|order| matches!(order, Order::Release(..)));
        self.carry_out(orders);
        gives_up
    }

    /// Changes whenever a session that can be evicted comes to rest.
    pub(super) fn rests(&self) -> watch::Receiver<u64> {
        self.rests.subscribe()
    }

    /// Whether a call that is in has the session to itself from now on.
    pub(super) fn claim(&self, key: &SessionKey, call: CallId) -> bool {
        self.state().core.claim(key, call)
    }

    /// A turn was dropped.
    pub(super) fn leave(self: &Arc<Self>, key: &SessionKey, call: CallId) {
        let orders = {
            let mut state = self.state();
            state.cancels.remove(&call);
            self.take_in(&mut state, Event::Leave { key: key.clone(), call }, None, None).1
        };
        self.carry_out(orders);
    }

    /// Asks the core for something, as a new call. Dropping the future takes the question back.
    pub(super) async fn ask(
        self: &Arc<Self>,
        key: &SessionKey,
        event: impl FnOnce(SessionKey, CallId) -> Event,
    ) -> GateAnswer {
        let call = {
            let mut state = self.state();
            state.last_call += 1;
            CallId(state.last_call)
        };
        self.ask_as(call, key, event).await
    }

    /// Asks the core for something, as a call that it may know.
    pub(super) async fn ask_as(
        self: &Arc<Self>,
        call: CallId,
        key: &SessionKey,
        event: impl FnOnce(SessionKey, CallId) -> Event,
    ) -> GateAnswer {
        let (answer, orders, receiver) = {
            let mut state = self.state();
            let (answer, orders) = self.take_in(&mut state, event(key.clone(), call), None, Some(call));
            let mut waiting = None;
            if answer.is_none() {
                let (reply, receiver) = oneshot::channel();
                state.replies.insert(call, reply);
                waiting = Some(receiver);
            }
            (answer, orders, waiting)
        };
        self.carry_out(orders);
        match (answer, receiver) {
            (Some(answer), _) => answer,
            (None, Some(receiver)) => {
                PendingCall { driver: self, key, call, receiver, is_answered: false }.answer().await
            }
            (None, None) => GateAnswer::Denied(Denial::ShuttingDown, None),
        }
    }

    /// What the core says to an event, as orders; and the answer to the call `own`, if it has one already.
    /// `error` goes to the call that is denied because of it.
    fn take_in(
        self: &Arc<Self>,
        state: &mut GateState,
        event: Event,
        mut error: Option<StoreError>,
        own: Option<CallId>,
    ) -> (Option<GateAnswer>, Vec<Order>) {
        let actions = state.core.on(event, tokio::time::Instant::now().into_std());
        let (mut own_answer, mut orders) = (None, Vec::new());
        for action in actions {
            let (call, answer) = match action {
                Action::Enter { key, call, since, note } => {
                    let pass = Pass::new(self.clone(), key.clone(), call);
                    let Some(session) = state.registry.get(&key) else {
                        // The core lets calls only into sessions that are loaded.
                        orders.push(Order::DropPass { _pass: pass });
                        continue;
                    };
                    let closing = CancellationToken::new();
                    state.cancels.insert(call, closing.clone());
                    (call, GateAnswer::Turn { turn: Turn::new(session, since, closing, pass), note })
                }
                Action::Grant { key, call } => (call, GateAnswer::Permit(self.permit(key))),
                Action::Opened { key, call } => (call, GateAnswer::Session(state.registry.get(&key))),
                Action::NotFound { call, .. } => (call, GateAnswer::Session(None)),
                Action::Closed { call, found, .. } => (call, GateAnswer::Closed { found }),
                Action::Deny { call, why, .. } => {
                    let error = if why == Denial::StoreFailed { error.take() } else { None };
                    (call, GateAnswer::Denied(why, error))
                }
                chore @ (Action::Cancel { .. }
                | Action::Load { .. }
                | Action::Release { .. }
                | Action::DropLost { .. }
                | Action::Delete { .. }
                | Action::KeepClosed { .. }
                | Action::Forget { .. }
                | Action::AskHolders
                | Action::LookForUnused) => {
                    orders.extend(state.order(chore));
                    continue;
                }
            };
            if own == Some(call) {
                own_answer = Some(answer);
            } else if let Some(reply) = state.replies.remove(&call) {
                orders.push(Order::Answer(reply, answer));
            } else {
                orders.push(Order::DropAnswer { _answer: answer });
            }
        }
        self.set_alarm(state);
        let rests = state.core.rests();
        self.rests.send_if_modified(|known| std::mem::replace(known, rests) != rests);
        if state.core.is_quiet() {
            self.quiet.send_replace(true);
        }
        (own_answer, orders)
    }

    /// A permit that tells the core when it is given back. It does not keep the driver, which has its
    /// session.
    fn permit(self: &Arc<Self>, key: SessionKey) -> Permit {
        let driver = Arc::downgrade(self);
        Permit::new(move || {
            if let Some(driver) = driver.upgrade() {
                driver.tell(Event::Return { key });
            }
        })
    }

    fn set_alarm(&self, state: &mut GateState) {
        let due = state.core.next_deadline();
        if due.is_some_and(|due| state.alarm.is_none_or(|alarm| due < alarm)) {
            state.alarm = due;
            self.earlier.notify_one();
        }
    }

    /// A loaded session goes into the registry before the core hears of it.
    pub(super) fn loaded(self: &Arc<Self>, key: SessionKey, session: Session, found: bool) {
        let closed = session.space.is_closed();
        let orders = {
            let mut state = self.state();
            let before = state.registry.insert(key.clone(), Arc::new(session));
            let (_, mut orders) = self.take_in(&mut state, Event::Loaded { key, found, closed }, None, None);
            orders.extend(before.map(|session| Order::DropSession { _session: session }));
            orders
        };
        self.carry_out(orders);
    }

    /// Says which sessions must stay in memory; the core forgets others at once.
    pub(super) fn count_holders(self: &Arc<Self>) {
        let orders = {
            let mut state = self.state();
            let (held, untold) = state.registry.holders();
            self.take_in(&mut state, Event::Holders { held, untold }, None, None).1
        };
        self.carry_out(orders);
    }

    /// Resolves once the gate is shut down and no session has containers.
    pub(super) async fn quiet(&self) {
        let _ = self.quiet.subscribe().wait_for(|quiet| *quiet).await;
    }
}

impl GateState {
    /// What is to be done for an action that answers no call.
    fn order(&mut self, action: Action) -> Option<Order> {
        Some(match action {
            Action::Cancel { call, .. } => Order::Cancel(self.cancels.get(&call)?.clone()),
            Action::Load { key } => Order::Load(key),
            Action::Release { key, why } => {
                let session = self.registry.get(&key);
                Order::Release(key, session, why)
            }
            Action::DropLost { key } => {
                let session = self.registry.get(&key);
                Order::DropLost(key, session)
            }
            Action::KeepClosed { key } => {
                let session = self.registry.get(&key);
                Order::KeepClosed(key, session)
            }
            Action::Delete { key, call } => Order::Delete { key, by_call: call.is_some() },
            Action::Forget { key } => Order::DropSession { _session: self.registry.remove(&key)? },
            Action::AskHolders => Order::AskHolders,
            Action::LookForUnused => Order::LookForUnused,
            Action::Enter { .. }
            | Action::Grant { .. }
            | Action::Opened { .. }
            | Action::NotFound { .. }
            | Action::Closed { .. }
            | Action::Deny { .. } => return None,
        })
    }
}

/// A call that waits for its answer: it is taken back when dropped before.
struct PendingCall<'a> {
    driver: &'a Arc<GateDriver>,
    key: &'a SessionKey,
    call: CallId,
    receiver: oneshot::Receiver<GateAnswer>,
    is_answered: bool,
}

impl PendingCall<'_> {
    async fn answer(mut self) -> GateAnswer {
        let answer = (&mut self.receiver).await;
        self.is_answered = true;
        answer.unwrap_or(GateAnswer::Denied(Denial::ShuttingDown, None))
    }
}

impl Drop for PendingCall<'_> {
    fn drop(&mut self) {
        if !self.is_answered {
            // An answer that is under way comes to nothing: with it a turn is dropped, or a permit.
            self.driver.state().replies.remove(&self.call);
            self.driver.tell(Event::Abandon { key: self.key.clone(), call: self.call });
        }
    }
}

/// Tells the core that time has passed, whenever it asked for that. Ends with the driver.
async fn keep_time(driver: Weak<GateDriver>, earlier: Arc<Notify>) {
    loop {
        let alarm = {
            let Some(driver) = driver.upgrade() else { return };
            let mut state = driver.state();
            state.alarm = state.core.next_deadline();
            state.alarm
        };
        let due = async {
            match alarm {
                Some(at) => tokio::time::sleep_until(at.into()).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = earlier.notified() => {}
            () = due => match driver.upgrade() {
                Some(driver) => driver.tell(Event::Tick),
                None => return,
            },
        }
    }
}

impl Drop for GateDriver {
    fn drop(&mut self) {
        self.earlier.notify_one();
    }
}
