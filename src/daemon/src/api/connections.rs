//! Permits for connections: which new connection gets one, and which old connection is cut when all are in
//! use.
//!
//! ```text
//!            open ─► silent ─► busy ─► idle ─► busy …      silent: it sent no request; idle: it was answered
//!                       │                │
//!                       └─── cut, when all permits are in use and another connection comes
//! ```
//!
//! A listener has a number of regular permits, and a few spare ones. When all regular permits are in use, a
//! new connection takes the permit of the least valuable connection ([`CutRank`]). The daemon first cuts a
//! connection that has sent no request, then an idle one, then one whose client does not read its answer.
//! Among equals it cuts the oldest connection of the peer that has most of them. So neither silent
//! connections nor slow readers can keep other callers out. The request of a new connection is on its way, so
//! the connection is not cut for a moment ([`FRESH`]): in a burst the newcomers wait in the kernel's queue
//! for that long, where otherwise each of them would cut the one before it.
//!
//! If every regular permit belongs to a busy connection, the new one gets a spare permit. On a spare permit
//! the daemon answers only probes (`/health`, `/ready`, the metrics, the status) at once; other requests wait
//! for a regular permit, only a few at a time and not for long. So the daemon answers probes whatever its
//! callers do.
//!
//! There is no limit for each peer, since behind a reverse proxy all connections come from one peer. The
//! daemon must never cut a connection whose caller has shown a valid token or link and reads its answer.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{Notify, Semaphore};
use tokio_util::sync::CancellationToken;

use super::stall::Stall;
use crate::metrics::Metrics;
use crate::tenants::TenantShare;

/// A connection may be cut after its other end has read nothing for so long. A reader may pause for longer
/// while no other connection needs a permit.
const STALLED: Duration = Duration::from_secs(1);

/// A new connection that has sent no request is not cut before this time.
const FRESH: Duration = Duration::from_millis(100);

/// A connection without a valid token or link gets only short answers, so it may be cut if one takes this
/// long.
const STRANGER: Duration = Duration::from_secs(10);

/// How long a request on a spare permit waits for a regular one.
const PATIENCE: Duration = Duration::from_secs(10);

/// If there is no permit, the next look for one comes at most so much later, since no event reports a stalled
/// reader, nor that a connection is not new any more.
const LOOK: Duration = Duration::from_millis(100);

/// How valuable a connection is, the least valuable first. Connections lose their permits in this order when
/// all are in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum CutRank {
    /// It has sent no request yet.
    Silent,
    /// It was answered, and has shown no valid token or link.
    IdleStranger,
    /// It is being answered, has shown no valid token or link, and either does not read or has taken
    /// [`STRANGER`].
    SlowStranger,
    /// It was answered. A client that keeps connections connects again.
    Idle,
    /// It does not read its answer.
    Slow,
}

impl CutRank {
    /// The reason for the metrics.
    fn reason(self) -> &'static str {
        match self {
            Self::Silent => "silent",
            Self::IdleStranger | Self::Idle => "idle",
            Self::SlowStranger | Self::Slow => "slow",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Activity {
    /// It has sent no request yet.
    Silent,
    /// A request is being answered.
    Busy,
    /// Its last answer was sent.
    Idle,
}

#[derive(Debug)]
struct Connection {
    peer: Option<IpAddr>,
    activity: Activity,
    since: Instant,
    /// It has shown a valid token or link.
    is_known: bool,
    /// Cancelled when what its latest request has shown is not good any more.
    credential: Option<CancellationToken>,
    is_spare: bool,
    stall: Stall,
    cut: CancellationToken,
}

impl Connection {
    /// Its rank, if it may be cut.
    fn rank(&self, now: Instant) -> Option<CutRank> {
        let is_stalled = || self.stall.lasts().is_some_and(|lasts| lasts >= STALLED);
        match (self.activity, self.is_known) {
            (Activity::Silent, _) if now.saturating_duration_since(self.since) < FRESH => None,
            (Activity::Silent, _) => Some(CutRank::Silent),
            (Activity::Idle, false) => Some(CutRank::IdleStranger),
            (Activity::Idle, true) => Some(CutRank::Idle),
            (Activity::Busy, false) if is_stalled() || now.duration_since(self.since) >= STRANGER => {
                Some(CutRank::SlowStranger)
            }
            (Activity::Busy, true) if is_stalled() => Some(CutRank::Slow),
            (Activity::Busy, _) => None,
        }
    }
}

#[derive(Debug, Default)]
struct OpenConnections {
    connections: HashMap<u64, Connection>,
    regular: usize,
    next: u64,
}

impl OpenConnections {
    /// The connection to cut, out of all that `may` accepts, and its rank.
    fn victim(&self, now: Instant, may: impl Fn(&Connection) -> bool) -> Option<(u64, CutRank)> {
        let candidates = || self.connections.iter().filter(|(_, one)| may(one));
        let ranked = || candidates().filter_map(|(id, one)| Some((one.rank(now)?, id, one)));
        let lowest = ranked().map(|(rank, ..)| rank).min()?;
        let mut of_peer: HashMap<Option<IpAddr>, usize> = HashMap::new();
        for (_, _, one) in ranked().filter(|(rank, ..)| *rank == lowest) {
            *of_peer.entry(one.peer).or_default() += 1;
        }
        let equals = ranked().filter(|(rank, ..)| *rank == lowest);
        let worst =
            equals.max_by_key(|(_, _, one)| (of_peer.get(&one.peer), std::cmp::Reverse(one.since)))?;
        Some((*worst.1, lowest))
    }

    fn remove(&mut self, id: u64) -> Option<Connection> {
        let gone = self.connections.remove(&id)?;
        self.regular -= usize::from(!gone.is_spare);
        Some(gone)
    }
}

/// The permits of one listener.
pub(super) struct ConnectionPermits {
    regular: usize,
    spare: usize,
    open: Mutex<OpenConnections>,
    /// Notifies that a permit was returned, or that a connection may be cut from now on.
    changed: Notify,
    /// One permit for each request that may wait on a spare one.
    waiting: Semaphore,
    metrics: Metrics,
}

/// The permit of one connection. Dropping it returns it.
pub(super) struct ConnectionPermit {
    permits: Arc<ConnectionPermits>,
    id: u64,
    /// Cancelled when the permit goes to another connection.
    pub(super) cut: CancellationToken,
    /// Set by the connection's stream while the other end does not read.
    pub(super) stall: Stall,
    /// Whose polls its own are, where there are several tenants; and whether there is such a tenant.
    paced: Mutex<Option<TenantShare>>,
    is_paced: AtomicBool,
}

/// Marks the connection as busy, until it is dropped.
pub(super) struct RequestInProgress(Arc<ConnectionPermit>);

impl ConnectionPermits {
    pub(super) fn new(regular: usize, spare: usize, metrics: Metrics) -> Arc<Self> {
        Arc::new(Self {
            regular,
            spare,
            open: Mutex::default(),
            changed: Notify::new(),
            waiting: Semaphore::new(spare / 2),
            metrics,
        })
    }

    fn open(&self) -> MutexGuard<'_, OpenConnections> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a permit for a new connection: a free one, that of a connection that is cut for it, or a
    /// spare one.
    pub(super) async fn take(self: &Arc<Self>, peer: Option<IpAddr>) -> ConnectionPermit {
        loop {
            let changed = self.changed.notified();
            if let Some(permit) = self.try_take(peer, Instant::now()) {
                return permit;
            }
            let _ = tokio::time::timeout(LOOK, changed).await;
        }
    }

    fn try_take(self: &Arc<Self>, peer: Option<IpAddr>, now: Instant) -> Option<ConnectionPermit> {
        let mut open = self.open();
        let is_spare = if open.regular < self.regular {
            false
        } else if let Some(was_spare) = self.cut_one(&mut open, now, |_| true) {
            was_spare
        } else if open.connections.len() < self.regular + self.spare {
            true
        } else {
            return None;
        };
        let (id, cut, stall) = (open.next, CancellationToken::new(), Stall::default());
        open.next += 1;
        open.regular += usize::from(!is_spare);
        let (activity, since) = (Activity::Silent, now);
        let one = Connection {
            peer,
            activity,
            since,
            is_known: false,
            credential: None,
            is_spare,
            stall: stall.clone(),
            cut: cut.clone(),
        };
        open.connections.insert(id, one);
        Some(ConnectionPermit {
            permits: self.clone(),
            id,
            cut,
            stall,
            paced: Mutex::default(),
            is_paced: AtomicBool::new(false),
        })
    }

    /// Cuts every connection whose token or link is not good any more, whatever it is doing.
    pub(super) fn cut_ended(&self) {
        let mut open = self.open();
        let has_ended =
            |one: &Connection| one.credential.as_ref().is_some_and(CancellationToken::is_cancelled);
        let ended: Vec<u64> =
            open.connections.iter().filter(|(_, one)| has_ended(one)).map(|(id, _)| *id).collect();
        for gone in ended.into_iter().filter_map(|id| open.remove(id)) {
            gone.cut.cancel();
            self.metrics.connection_cut("revoked");
        }
    }

    /// Cuts the least valuable connection out of all that `may` accepts, if there is one. Returns whether its
    /// permit was a spare one.
    fn cut_one(
        &self,
        open: &mut OpenConnections,
        now: Instant,
        may: impl Fn(&Connection) -> bool,
    ) -> Option<bool> {
        let (id, rank) = open.victim(now, may)?;
        let gone = open.remove(id)?;
        gone.cut.cancel();
        self.metrics.connection_cut(rank.reason());
        Some(gone.is_spare)
    }
}

impl ConnectionPermit {
    fn change(&self, what: impl FnOnce(&mut Connection)) -> bool {
        let mut open = self.permits.open();
        let Some(one) = open.connections.get_mut(&self.id) else { return false };
        what(one);
        true
    }

    /// Begins a request; `None` if the permit has just gone to another connection.
    pub(super) fn begin(self: &Arc<Self>) -> Option<RequestInProgress> {
        let begun = self.change(|one| (one.activity, one.since) = (Activity::Busy, Instant::now()));
        begun.then(|| RequestInProgress(self.clone()))
    }

    /// Notes that the caller has shown a valid token or link, which ends when `over` is cancelled. False if
    /// it has ended already.
    pub(super) fn set_known(&self, over: &CancellationToken) -> bool {
        self.change(|one| (one.is_known, one.credential) = (true, Some(over.clone())));
        // After it was noted: if it ends from now on, `cut_ended` finds it.
        !over.is_cancelled()
    }

    /// From now on the polls of this connection are those of this tenant; `None`: they are not paced.
    pub(super) fn pace(&self, tenant: Option<TenantShare>) {
        if tenant.is_none() && !self.is_paced.load(Ordering::Acquire) {
            return;
        }
        *self.paced.lock().unwrap_or_else(PoisonError::into_inner) = tenant;
        self.is_paced.store(tenant.is_some(), Ordering::Release);
    }

    /// See [`Self::pace`].
    pub(super) fn paced(&self) -> Option<TenantShare> {
        if !self.is_paced.load(Ordering::Acquire) {
            return None;
        }
        *self.paced.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether its requests must wait for a regular permit.
    pub(super) fn is_spare(&self) -> bool {
        let open = self.permits.open();
        open.connections.get(&self.id).is_some_and(|one| one.is_spare)
    }

    /// Waits for a regular permit; false if there was none in time, or if too many requests wait already.
    pub(super) async fn promoted(&self) -> bool {
        let Ok(_waiting) = self.permits.waiting.try_acquire() else { return false };
        let promoted = async {
            loop {
                let changed = self.permits.changed.notified();
                if self.promote() {
                    return;
                }
                let _ = tokio::time::timeout(LOOK, changed).await;
            }
        };
        tokio::time::timeout(PATIENCE, promoted).await.is_ok()
    }

    fn promote(&self) -> bool {
        let permits = &self.permits;
        let mut open = permits.open();
        let is_regular = |one: &Connection| !one.is_spare;
        if open.regular >= permits.regular && permits.cut_one(&mut open, Instant::now(), is_regular).is_none()
        {
            return false;
        }
        let Some(one) = open.connections.get_mut(&self.id) else { return false };
        one.is_spare = false;
        open.regular += 1;
        true
    }
}

impl Drop for RequestInProgress {
    fn drop(&mut self) {
        self.0.change(|one| (one.activity, one.since) = (Activity::Idle, Instant::now()));
        self.0.permits.changed.notify_waiters();
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        self.permits.open().remove(self.id);
        self.permits.changed.notify_waiters();
    }
}

#[cfg(test)]
mod tests;
