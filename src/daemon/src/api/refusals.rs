//! Requests that are refused before they do anything: a bound on what they cost.
//!
//! They come from whoever can reach the daemon, as quickly as they like. So the log has a line a second of them at most, with
//! the number of those that it does not show; and a peer that is refused again and again is told to wait (429). Its requests
//! are looked at all the same: what carries a right token or link is served, so that nobody can lock out those who share an
//! address with him, behind a proxy say.
//!
//! It must never hold more of a peer than a moment in time, nor of more peers than [`PEERS`].

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use http::StatusCode;
use http::header::{HeaderValue, RETRY_AFTER};
use tracing::warn;

use super::body::{Answer, error};

/// Refusals in a row whose reason a peer is told. A page of expired pictures, or many users behind one proxy, have some.
const BURST: u32 = 100;

/// The time after which a peer is told the reason of one refusal more.
const EACH: Duration = Duration::from_millis(100);

/// Peers that are remembered. One more, and the one that was refused least of late is forgotten.
const PEERS: usize = 4096;

/// Between two lines of the log.
const LINE: Duration = Duration::from_secs(1);

/// What is remembered of the requests that were refused.
#[derive(Default)]
pub(super) struct Refusals {
    /// When each peer has paid for what it was refused, at one in [`EACH`].
    peers: Mutex<HashMap<IpAddr, Instant>>,
    log: Arc<Mutex<Log>>,
}

#[derive(Default)]
struct Log {
    last: Option<Instant>,
    /// Refusals since then, that have no line.
    untold: u64,
}

/// When a refusal is told in the log.
#[derive(Debug, PartialEq, Eq)]
enum Told {
    /// In a line of its own, now.
    Now,
    /// With others, in a line that is due already.
    Later,
    /// With others, in a line that is due at this time.
    At(Instant),
}

impl Log {
    fn tell(&mut self, now: Instant) -> Told {
        // A line that is due has the others with it, however late it is.
        let is_due = self.untold > 0;
        let is_close = |last: &Instant| is_due || now.saturating_duration_since(*last) < LINE;
        let Some(last) = self.last.filter(is_close) else {
            self.last = Some(now);
            return Told::Now;
        };
        self.untold += 1;
        if self.untold == 1 { Told::At(last + LINE) } else { Told::Later }
    }

    /// How many the line that is due tells of.
    fn rest(&mut self, now: Instant) -> u64 {
        self.last = Some(now);
        std::mem::take(&mut self.untold)
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Refusals {
    /// One more of this peer; how long it is to wait, if it was too many.
    pub(super) fn count(&self, peer: IpAddr, now: Instant) -> Option<Duration> {
        let (peer, most) = (network(peer), EACH * BURST);
        let mut peers = locked(&self.peers);
        if peers.len() >= PEERS && !peers.contains_key(&peer) {
            peers.retain(|_, paid| *paid > now);
            if peers.len() >= PEERS
                && let Some(least) = peers.iter().min_by_key(|(_, paid)| **paid).map(|(peer, _)| *peer)
            {
                peers.remove(&least);
            }
        }
        let paid = peers.entry(peer).or_insert(now);
        let next = (*paid).max(now) + EACH;
        *paid = next.min(now + most);
        let over = next.saturating_duration_since(now + most);
        (!over.is_zero()).then_some(over)
    }

    /// Says it in the log, or counts it for a line that comes later.
    pub(super) fn tell(&self, say: impl FnOnce()) {
        let now = Instant::now();
        let told = locked(&self.log).tell(now);
        match told {
            Told::Now => say(),
            Told::Later => {}
            Told::At(time) => {
                let log = self.log.clone();
                tokio::spawn(async move {
                    tokio::time::sleep_until(time.into()).await;
                    let count = locked(&log).rest(Instant::now());
                    warn!(count, "more requests were refused");
                });
            }
        }
    }
}

/// What to answer to a peer that was refused too often.
pub(super) fn wait(time: Duration) -> Answer {
    let seconds = time.as_secs() + u64::from(time.subsec_nanos() > 0);
    let message = format!(
        "too many requests from this address were refused: wait {seconds} s; one with a valid token or link is served"
    );
    let mut answer = error(StatusCode::TOO_MANY_REQUESTS, "rate_limited", &message);
    answer.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
    answer
}

/// What one subscriber has: an IPv4 address, or the first half of an IPv6 one.
fn network(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        IpAddr::V6(ip) => Ipv6Addr::from_bits(ip.to_bits() & !u128::from(u64::MAX)).into(),
        ip @ IpAddr::V4(_) => ip,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(n: u32) -> IpAddr {
        std::net::Ipv4Addr::from_bits(n).into()
    }

    #[test]
    fn a_peer_is_told_why_some_times_and_then_to_wait() {
        let (refusals, now) = (Refusals::default(), Instant::now());
        for n in 0..BURST {
            assert_eq!(refusals.count(peer(1), now), None, "{n}");
        }
        for _ in 0..10_000 {
            assert_eq!(refusals.count(peer(1), now), Some(EACH), "however often it asks, it waits no longer");
        }
        assert_eq!(refusals.count(peer(2), now), None, "another peer is another");
        let later = now + EACH;
        assert_eq!((refusals.count(peer(1), later), refusals.count(peer(1), later)), (None, Some(EACH)));
        assert_eq!(refusals.count(peer(1), later + EACH * BURST), None);
    }

    #[test]
    fn peers_are_bounded_and_the_worst_are_remembered() {
        let (refusals, now) = (Refusals::default(), Instant::now());
        for _ in 0..=BURST {
            refusals.count(peer(0), now);
        }
        for n in 1..3 * u32::try_from(PEERS).unwrap() {
            refusals.count(peer(n), now);
        }
        assert_eq!(locked(&refusals.peers).len(), PEERS);
        assert!(refusals.count(peer(0), now).is_some());
        // One subscriber has as many of these addresses as it likes.
        let [a, b] = ["2001:db8::1", "2001:db8::ffff:1"].map(|ip| network(ip.parse().unwrap()));
        assert_eq!(a, b);
        assert_eq!(network("::ffff:10.0.0.1".parse().unwrap()), network("10.0.0.1".parse().unwrap()));
    }

    #[test]
    fn the_log_has_a_line_a_second() {
        let (mut log, now) = (Log::default(), Instant::now());
        assert_eq!(log.tell(now), Told::Now);
        assert_eq!(log.tell(now), Told::At(now + LINE));
        for _ in 0..998 {
            assert_eq!(log.tell(now + LINE / 2), Told::Later);
        }
        assert_eq!(log.tell(now + 2 * LINE), Told::Later, "the line is due, and late");
        assert_eq!(log.rest(now + LINE), 1000);
        assert_eq!(log.tell(now + LINE), Told::At(now + 2 * LINE), "that was a line too");
        assert_eq!(log.rest(now + 2 * LINE), 1);
        assert_eq!(log.tell(now + 3 * LINE), Told::Now);
    }
}
