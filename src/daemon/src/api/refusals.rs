//! Bounds the cost of requests that are refused before they do anything.
//!
//! Anybody who can reach the daemon can send them, as quickly as they like. So the log has at most one line a
//! second for them, with the number of refusals that it leaves out; and a peer that is refused again and
//! again is told to wait (429). Its requests are still checked, and one with a valid token or link is served,
//! so that nobody can lock out other callers of the same address, for example behind a proxy.
//!
//! It must never remember more of a peer than one instant, nor more than [`PEERS`] peers.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use http::StatusCode;
use http::header::{HeaderValue, RETRY_AFTER};
use tracing::warn;

use super::body::{Answer, error};

/// So many refusals in a row tell a peer their reason. A page of expired pictures, or many users behind one
/// proxy, can cause some.
const BURST: u32 = 100;

/// After this time, one more refusal tells a peer its reason.
const EACH: Duration = Duration::from_millis(100);

/// The most peers that are remembered. Beyond it the daemon forgets the peer that it has refused least
/// recently.
const PEERS: usize = 4096;

/// The time between two lines of the log.
const LINE: Duration = Duration::from_secs(1);

/// The refused requests of each peer, and their lines in the log.
#[derive(Default)]
pub(super) struct Refusals {
    /// For each peer the instant at which it is no longer in debt, if each refusal costs [`EACH`].
    peers: Mutex<HashMap<IpAddr, Instant>>,
    log: Arc<Mutex<RefusalLog>>,
}

#[derive(Default)]
struct RefusalLog {
    last: Option<Instant>,
    /// Refusals since the last line, which have no line of their own.
    unlogged: u64,
}

/// When a refusal is logged.
#[derive(Debug, PartialEq, Eq)]
enum LogDecision {
    /// Now, in a line of its own.
    Now,
    /// With others, in a line that is planned already.
    Later,
    /// With others, in a line to be written at this time.
    At(Instant),
}

impl RefusalLog {
    fn decide(&mut self, now: Instant) -> LogDecision {
        // A planned line counts this refusal too, however late the line is.
        let is_planned = self.unlogged > 0;
        let is_close = |last: &Instant| is_planned || now.saturating_duration_since(*last) < LINE;
        let Some(last) = self.last.filter(is_close) else {
            self.last = Some(now);
            return LogDecision::Now;
        };
        self.unlogged += 1;
        if self.unlogged == 1 { LogDecision::At(last + LINE) } else { LogDecision::Later }
    }

    /// Takes the number of refusals for the planned line.
    fn take_unlogged(&mut self, now: Instant) -> u64 {
        self.last = Some(now);
        std::mem::take(&mut self.unlogged)
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Refusals {
    /// Counts one more refusal of this peer. If there were too many, the result is how long the peer must
    /// wait.
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

    /// Logs a refusal now, or counts it for a later line.
    pub(super) fn tell(&self, log_line: impl FnOnce()) {
        let now = Instant::now();
        let decision = locked(&self.log).decide(now);
        match decision {
            LogDecision::Now => log_line(),
            LogDecision::Later => {}
            LogDecision::At(time) => {
                let log = self.log.clone();
                tokio::spawn(async move {
                    tokio::time::sleep_until(time.into()).await;
                    let count = locked(&log).take_unlogged(Instant::now());
                    warn!(count, "more requests were refused");
                });
            }
        }
    }
}

/// The answer to a peer that was refused too often.
pub(super) fn wait(time: Duration) -> Answer {
    let seconds = time.as_secs() + u64::from(time.subsec_nanos() > 0);
    let message = format!(
        "too many requests from this address were refused: wait {seconds} s; a request with a valid token or \
         link is served at once"
    );
    let mut answer = error(StatusCode::TOO_MANY_REQUESTS, "rate_limited", &message);
    answer.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
    answer
}

/// The network of one subscriber: an IPv4 address, or the first half of an IPv6 address.
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
    fn a_peer_is_told_the_reason_some_times_and_then_to_wait() {
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
        // One subscriber can use as many of these addresses as it likes.
        let [a, b] = ["2001:db8::1", "2001:db8::ffff:1"].map(|ip| network(ip.parse().unwrap()));
        assert_eq!(a, b);
        assert_eq!(network("::ffff:10.0.0.1".parse().unwrap()), network("10.0.0.1".parse().unwrap()));
    }

    #[test]
    fn the_log_has_a_line_a_second() {
        let (mut log, now) = (RefusalLog::default(), Instant::now());
        assert_eq!(log.decide(now), LogDecision::Now);
        assert_eq!(log.decide(now), LogDecision::At(now + LINE));
        for _ in 0..998 {
            assert_eq!(log.decide(now + LINE / 2), LogDecision::Later);
        }
        assert_eq!(log.decide(now + 2 * LINE), LogDecision::Later, "the line is due, and late");
        assert_eq!(log.take_unlogged(now + LINE), 1000);
        assert_eq!(log.decide(now + LINE), LogDecision::At(now + 2 * LINE), "that was a line too");
        assert_eq!(log.take_unlogged(now + 2 * LINE), 1);
        assert_eq!(log.decide(now + 3 * LINE), LogDecision::Now);
    }
}
