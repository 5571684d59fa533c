//! Places for connections: who gets one, and who gives one up when there are none left.
//!
//! ```text
//!            taken ─► silent ─► busy ─► idle ─► busy …        silent: it never asked; idle: it was answered
//!                       │                │
//!                       └─── cut, when all places are taken and another connection comes
//! ```
//!
//! A listener has so many regular places, and a few spare ones. When the regular places are all taken, a connection that
//! comes takes the place of the least valuable one there is ([`Rank`]): one that has asked nothing, then one that is idle, then
//! one that does not read its answer. Among equals it is one of the peer that has most of them, the oldest first. So neither
//! connections that say nothing nor readers that do not read keep anybody out, whoever they are.
//!
//! If every regular place is at work, the newcomer gets a spare place. There only probes (`/health`, `/ready`, the metrics, the
//! status) are answered at once; other requests wait for a regular place, a few of them at one time and not for long. So the
//! daemon answers probes whatever its callers do.
//!
//! There is no fixed number for each peer: behind a reverse proxy all connections are of one peer. It must never cut a
//! connection whose caller showed a valid token or link and reads what it is sent.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{Notify, Semaphore};
use tokio_util::sync::CancellationToken;

use super::stall::Stall;
use crate::metrics::Metrics;

/// A connection may be cut after it has read nothing for so long: readers pause, but not when others wait.
const STALLED: Duration = Duration::from_secs(1);

/// Without a valid token or link only short answers can be had; one that takes this long may be cut.
const STRANGER: Duration = Duration::from_secs(10);

/// How long a request in a spare place waits for a regular one.
const PATIENCE: Duration = Duration::from_secs(10);

/// If no place can be had, the next look is at most so much later: that a reader has stalled is nobody's event.
const LOOK: Duration = Duration::from_millis(100);

/// What a connection is worth, the least first: its place goes to another when all are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    /// It has asked nothing yet.
    Silent,
    /// It was answered, and showed no token or link.
    IdleStranger,
    /// It is being answered, shows no token or link, and does not read, or has not for long.
    SlowStranger,
    /// It was answered. A client that keeps a connection connects again.
    Idle,
    /// It does not read its answer.
    Slow,
}

impl Rank {
    /// Why it was cut, for the metrics.
    fn reason(self) -> &'static str {
        match self {
            Self::Silent => "silent",
            Self::IdleStranger | Self::Idle => "idle",
            Self::SlowStranger | Self::Slow => "slow",
        }
    }
}

/// What a connection does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Doing {
    /// It has asked nothing yet.
    Silent,
    /// It asked, and its answer is not over.
    Busy,
    /// Its last answer is over.
    Idle,
}

#[derive(Debug)]
struct Connection {
    peer: Option<IpAddr>,
    doing: Doing,
    since: Instant,
    /// It showed a valid token or link once.
    is_known: bool,
    is_spare: bool,
    stall: Stall,
    cut: CancellationToken,
}

impl Connection {
    /// Its rank, if it may be cut.
    fn rank(&self, now: Instant) -> Option<Rank> {
        let is_stalled = || self.stall.lasts().is_some_and(|lasts| lasts >= STALLED);
        match (self.doing, self.is_known) {
            (Doing::Silent, _) => Some(Rank::Silent),
            (Doing::Idle, false) => Some(Rank::IdleStranger),
            (Doing::Idle, true) => Some(Rank::Idle),
            (Doing::Busy, false) if is_stalled() || now.duration_since(self.since) >= STRANGER => {
                Some(Rank::SlowStranger)
            }
            (Doing::Busy, true) if is_stalled() => Some(Rank::Slow),
            (Doing::Busy, _) => None,
        }
    }
}

#[derive(Debug, Default)]
struct Taken {
    connections: HashMap<u64, Connection>,
    regular: usize,
    next: u64,
}

impl Taken {
    /// The connection to cut, of those that `may` be, and its rank.
    fn victim(&self, now: Instant, may: impl Fn(&Connection) -> bool) -> Option<(u64, Rank)> {
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

/// The places of one listener.
pub(super) struct Places {
    regular: usize,
    spare: usize,
    taken: Mutex<Taken>,
    /// A place was given up, or its connection may be cut now.
    changed: Notify,
    /// Requests in spare places that may wait.
    waiting: Semaphore,
    metrics: Metrics,
}

/// A connection's place, until it is dropped.
pub(super) struct Seat {
    places: Arc<Places>,
    id: u64,
    /// Cancelled when the place goes to another connection.
    pub(super) cut: CancellationToken,
    /// To be told when the other end does not read.
    pub(super) stall: Stall,
}

/// A request is at work on this connection, until it is dropped.
pub(super) struct AtWork(Arc<Seat>);

impl Places {
    pub(super) fn new(regular: usize, spare: usize, metrics: Metrics) -> Arc<Self> {
        Arc::new(Self {
            regular,
            spare,
            taken: Mutex::default(),
            changed: Notify::new(),
            waiting: Semaphore::new(spare / 2),
            metrics,
        })
    }

    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place for a connection that has come: a free one, another connection's, a spare one, or the next of these to be had.
    pub(super) async fn take(self: &Arc<Self>, peer: Option<IpAddr>) -> Seat {
        loop {
            let changed = self.changed.notified();
            if let Some(seat) = self.try_take(peer, Instant::now()) {
                return seat;
            }
            let _ = tokio::time::timeout(LOOK, changed).await;
        }
    }

    fn try_take(self: &Arc<Self>, peer: Option<IpAddr>, now: Instant) -> Option<Seat> {
        let mut taken = self.taken();
        let is_spare = if taken.regular < self.regular {
            false
        } else if let Some(was_spare) = self.cut_one(&mut taken, now, |_| true) {
            was_spare
        } else if taken.connections.len() < self.regular + self.spare {
            true
        } else {
            return None;
        };
        let (id, cut, stall) = (taken.next, CancellationToken::new(), Stall::default());
        taken.next += 1;
        taken.regular += usize::from(!is_spare);
        let (doing, since) = (Doing::Silent, now);
        let one = Connection {
            peer,
            doing,
            since,
            is_known: false,
            is_spare,
            stall: stall.clone(),
            cut: cut.clone(),
        };
        taken.connections.insert(id, one);
        Some(Seat { places: self.clone(), id, cut, stall })
    }

    /// Cuts the least valuable connection of those that `may` be, if there is one; whether it had a spare place.
    fn cut_one(&self, taken: &mut Taken, now: Instant, may: impl Fn(&Connection) -> bool) -> Option<bool> {
        let (id, rank) = taken.victim(now, may)?;
        let gone = taken.remove(id)?;
        gone.cut.cancel();
        self.metrics.connection_cut(rank.reason());
        Some(gone.is_spare)
    }
}

impl Seat {
    fn change(&self, what: impl FnOnce(&mut Connection)) -> bool {
        let mut taken = self.places.taken();
        let Some(one) = taken.connections.get_mut(&self.id) else { return false };
        what(one);
        true
    }

    /// A request has come; `None` if the place has gone to another connection just now.
    pub(super) fn begin(self: &Arc<Self>) -> Option<AtWork> {
        let begun = self.change(|one| (one.doing, one.since) = (Doing::Busy, Instant::now()));
        begun.then(|| AtWork(self.clone()))
    }

    /// Its caller showed a valid token or link.
    pub(super) fn is_known(&self) {
        self.change(|one| one.is_known = true);
    }

    /// Whether its requests must wait for a regular place.
    pub(super) fn is_spare(&self) -> bool {
        let taken = self.places.taken();
        taken.connections.get(&self.id).is_some_and(|one| one.is_spare)
    }

    /// Waits for a regular place; false if there was none in time, or if too many wait already.
    pub(super) async fn promoted(&self) -> bool {
        let Ok(_waiting) = self.places.waiting.try_acquire() else { return false };
        let promoted = async {
            loop {
                let changed = self.places.changed.notified();
                if self.promote() {
                    return;
                }
                let _ = tokio::time::timeout(LOOK, changed).await;
            }
        };
        tokio::time::timeout(PATIENCE, promoted).await.is_ok()
    }

    fn promote(&self) -> bool {
        let places = &self.places;
        let mut taken = places.taken();
        let is_regular = |one: &Connection| !one.is_spare;
        if taken.regular >= places.regular && places.cut_one(&mut taken, Instant::now(), is_regular).is_none()
        {
            return false;
        }
        let Some(one) = taken.connections.get_mut(&self.id) else { return false };
        one.is_spare = false;
        taken.regular += 1;
        true
    }
}

impl Drop for AtWork {
    fn drop(&mut self) {
        self.0.change(|one| (one.doing, one.since) = (Doing::Idle, Instant::now()));
        self.0.places.changed.notify_waiters();
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.places.taken().remove(self.id);
        self.places.changed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Polls once.
    async fn poll<F: Future + Unpin>(mut future: F) -> std::task::Poll<F::Output> {
        std::future::poll_fn(|context| std::task::Poll::Ready(std::pin::Pin::new(&mut future).poll(context)))
            .await
    }

    fn peer(n: u8) -> Option<IpAddr> {
        Some(IpAddr::from([10, 0, 0, n]))
    }

    fn places(regular: usize, spare: usize) -> Arc<Places> {
        Places::new(regular, spare, Metrics::default())
    }

    fn take(places: &Arc<Places>, n: u8) -> Arc<Seat> {
        Arc::new(places.try_take(peer(n), Instant::now()).unwrap())
    }

    /// One that is being answered, to a caller who showed a token.
    fn busy(places: &Arc<Places>, n: u8) -> (Arc<Seat>, AtWork) {
        let seat = take(places, n);
        let at_work = seat.begin().unwrap();
        seat.is_known();
        (seat, at_work)
    }

    #[test]
    fn a_connection_that_asked_nothing_goes_first_and_one_at_work_never() {
        let places = places(4, 0);
        let (working, _at_work) = busy(&places, 1);
        let (rests, at_work) = busy(&places, 1);
        drop(at_work);
        let stranger = take(&places, 2);
        drop(stranger.begin());
        let silent = take(&places, 3);
        let order = [&silent, &stranger, &rests];
        let mut newcomers = Vec::new();
        for (at, gone) in order.iter().enumerate() {
            newcomers.push(busy(&places, 4));
            assert!(gone.cut.is_cancelled(), "{at}");
            assert!(order[at + 1..].iter().all(|later| !later.cut.is_cancelled()), "{at}");
            assert!(gone.begin().is_none(), "a request that comes now is not begun");
        }
        assert!(places.try_take(peer(5), Instant::now()).is_none() && !working.cut.is_cancelled());
        newcomers.clear();
        assert_eq!(places.taken().regular, 1, "what was cut is not counted twice");
    }

    #[test]
    fn the_peer_with_most_of_them_gives_one_up_and_its_oldest() {
        let places = places(5, 0);
        let now = Instant::now();
        let later = |n: u32| now + Duration::from_secs(n.into());
        let seats: Vec<_> = [1, 2, 2, 2, 3]
            .into_iter()
            .zip(0..)
            .map(|(n, at)| places.try_take(peer(n), later(at)).unwrap())
            .collect();
        let _newcomer = places.try_take(peer(4), later(9)).unwrap();
        let cut: Vec<_> = seats.iter().map(|seat| seat.cut.is_cancelled()).collect();
        assert_eq!(cut, [false, true, false, false, false]);
    }

    #[test]
    fn strangers_are_given_a_short_time_and_known_callers_all_of_it() {
        let places = places(2, 0);
        let (known, _at_work) = busy(&places, 1);
        let stranger = take(&places, 2);
        let _begun = stranger.begin().unwrap();
        let now = Instant::now();
        assert!(places.try_take(peer(3), now).is_none());
        let newcomer = places.try_take(peer(3), now + STRANGER);
        assert!(newcomer.is_some() && stranger.cut.is_cancelled() && !known.cut.is_cancelled());
    }

    #[tokio::test]
    async fn a_spare_place_is_for_probes_and_others_wait_for_a_regular_one() {
        let places = places(1, 4);
        let (seat, at_work) = busy(&places, 1);
        assert!(!seat.is_spare());
        let spare: Vec<_> = (0..4).map(|_| busy(&places, 2)).collect();
        assert!(spare.iter().all(|(seat, _)| seat.is_spare()));
        assert!(places.try_take(peer(3), Instant::now()).is_none());
        // Two may wait, the third is told so at once.
        let mut waiting: Vec<_> = spare[..2].iter().map(|(seat, _)| Box::pin(seat.promoted())).collect();
        for one in &mut waiting {
            assert!(poll(one).await.is_pending());
        }
        assert!(!spare[2].0.promoted().await);
        drop((at_work, seat));
        assert!(waiting.remove(0).await);
        assert!(!spare[0].0.is_spare() && spare[1].0.is_spare());
        assert!(poll(&mut waiting[0]).await.is_pending(), "there was one place");
    }

    #[tokio::test]
    async fn a_connection_that_comes_waits_until_there_is_a_place() {
        let places = places(1, 0);
        let (seat, at_work) = busy(&places, 1);
        let mut coming = Box::pin(places.take(peer(2)));
        assert!(poll(&mut coming).await.is_pending());
        drop(at_work); // idle now: it may be cut
        let newcomer = coming.await;
        assert!(seat.cut.is_cancelled() && !newcomer.cut.is_cancelled());
    }
}
