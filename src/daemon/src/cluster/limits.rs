//! The limits of tenants that hold for all nodes together: what this node may use of each, by the rules of
//! [`paddock_cluster::shares`]. A call asks nobody: it looks into a map.
//!
//! ```text
//!  every second, or when callers wait:  measure ─► publish ─► ask all peers (as ever) ─► settle ─► changed
//!                                                     └► told with every answer to a peer ◄┘
//!  a call ─► part of its limit at this node ─► admitted, or waits as on a single machine
//! ```
//!
//! Only limits that somebody uses are told: a node that says nothing of one holds nothing of it. It must
//! never ask a peer or the database for a call.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use paddock_cluster::shares::{self, Holding};
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

use super::amounts::{AmountsElsewhere, ToldAmounts};

/// A limit of a tenant that is divided between the nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SharedLimit {
    /// Sessions with containers.
    Sessions,
    /// Executions under way.
    Executions,
    /// Runs under way.
    Runs,
    /// Requests, in thousandths of one a second.
    Requests,
}

impl SharedLimit {
    /// What a node may use whatever its part is, while the others leave it: one.
    fn least(self) -> u64 {
        match self {
            Self::Sessions | Self::Executions | Self::Runs => 1,
            Self::Requests => 1000,
        }
    }
}

/// What a tenant uses of one limit at this node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LimitUse {
    /// The tenant.
    pub tenant: Arc<str>,
    /// The limit.
    pub limit: SharedLimit,
    /// What it allows at all nodes together.
    pub allowed: u64,
    /// What is in use here. Requests are counted by [`LimitParts::count_request`] instead.
    pub used: u64,
    /// Sessions among it that rest.
    pub idle: u64,
    /// How many callers wait here.
    pub wants: u64,
}

/// What a node tells of limits: `[held, used, idle, wants]` by tenant and limit.
pub type ToldLimits = BTreeMap<String, BTreeMap<SharedLimit, [u64; 4]>>;

/// Another node that lives, and what it told.
#[derive(Debug, Clone)]
pub struct OtherNode {
    /// Its name.
    pub name: String,
    /// What it told last.
    pub told: ToldLimits,
    /// Whether it told that in this round, after this node had published its claims.
    pub is_fresh: bool,
}

/// A limit of which this node may use more or less than before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChangedPart {
    /// The tenant.
    pub tenant: Arc<str>,
    /// The limit.
    pub limit: SharedLimit,
    /// How many sessions that rest are to lose their containers, since another node needs them.
    pub gives_up: u64,
}

/// How limits are used at this node, and what follows when its parts change.
pub trait LimitedUse: Send + Sync {
    /// What each tenant uses of each limit that it has.
    fn measure(&self) -> Vec<LimitUse>;
    /// What each tenant has used here of amounts over an hour and a day, if it has a limit of them.
    fn amounts(&self) -> ToldAmounts;
    /// Callers that wait may have their turn now.
    fn changed(&self, parts: &[ChangedPart]);
}

/// Requests are counted for so long at least, to tell a rate. In a tenth of a second one request would be ten
/// a second, and a whole limit.
const WINDOW: Duration = Duration::from_secs(1);

/// After so many rounds without any use, nothing is held of a limit.
const FORGET: u32 = 60;

/// The parts of this node.
#[derive(Default)]
pub struct LimitParts {
    parts: Mutex<HashMap<(Arc<str>, SharedLimit), LimitPart>>,
    requests: Mutex<HashMap<Arc<str>, CountedRequests>>,
    /// For how long requests were counted.
    counted_for: Mutex<Duration>,
    wanted: Notify,
    amounts: Arc<AmountsElsewhere>,
}

#[derive(Debug, Default)]
struct LimitPart {
    allowed: u64,
    part: u64,
    claim: u64,
    own: Holding,
    /// The most that was used in the last rounds.
    lately: u64,
    others_use: u64,
    gives_up: u64,
    /// Rounds without any use.
    quiet: u32,
}

impl LimitPart {
    fn holding(&self) -> Holding {
        Holding { held: self.part.max(self.claim).max(self.own.used), ..self.own }
    }
}

/// Requests of a tenant since the last round.
#[derive(Debug, Default)]
struct CountedRequests {
    taken: u64,
    refused: u64,
}

impl LimitParts {
    fn parts(&self) -> MutexGuard<'_, HashMap<(Arc<str>, SharedLimit), LimitPart>> {
        // No code that can panic runs under this lock, so even a poisoned one holds valid data.
        self.parts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn requests(&self) -> MutexGuard<'_, HashMap<Arc<str>, CountedRequests>> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How much this node may use of a limit that allows so much at all nodes together.
    pub fn part(&self, tenant: &Arc<str>, limit: SharedLimit, allowed: u64) -> u64 {
        let parts = self.parts();
        let known = parts.get(&(tenant.clone(), limit));
        let (part, others_use) = known.map_or((0, 0), |known| (known.part, known.others_use));
        shares::may_use(part, others_use, allowed, limit.least()).min(allowed)
    }

    /// How much all other nodes used when they were asked last.
    pub fn others_use(&self, tenant: &Arc<str>, limit: SharedLimit) -> u64 {
        self.parts().get(&(tenant.clone(), limit)).map_or(0, |known| known.others_use)
    }

    /// What tenants have used at other nodes of amounts, which are not divided.
    pub fn amounts(&self) -> &Arc<AmountsElsewhere> {
        &self.amounts
    }

    /// Callers wait: the next round comes sooner.
    pub fn ask_soon(&self) {
        self.wanted.notify_one();
    }

    /// Resolves when callers wait.
    pub(crate) async fn wanted(&self) {
        self.wanted.notified().await;
    }

    /// Counts a request of a tenant that has a limit of requests.
    pub fn count_request(&self, tenant: &Arc<str>, is_taken: bool) {
        let mut requests = self.requests();
        let counted = requests.entry(tenant.clone()).or_default();
        if is_taken {
            counted.taken += 1;
        } else {
            counted.refused += 1;
        }
    }

    /// The time for which requests were counted, if it is long enough; the next window begins then.
    fn window(&self, since: Duration) -> Option<Duration> {
        let mut counted_for = self.counted_for.lock().unwrap_or_else(PoisonError::into_inner);
        *counted_for += since;
        (*counted_for >= WINDOW).then(|| std::mem::take(&mut *counted_for))
    }

    /// What this node holds, for a peer that asks.
    pub fn told(&self) -> ToldLimits {
        let mut told = ToldLimits::new();
        for ((tenant, limit), part) in &*self.parts() {
            let Holding { held, used, idle, wants } = part.holding();
            told.entry(tenant.to_string()).or_default().insert(*limit, [held, used, idle, wants]);
        }
        told
    }

    /// Begins a round of the node that is called `name`, `since` the last one: plans what it wants to hold,
    /// which peers that ask are told from now on.
    pub fn publish(&self, name: &str, measured: Vec<LimitUse>, others: &[OtherNode], since: Duration) {
        let window = self.window(since);
        let mut requests = window.map(|_| std::mem::take(&mut *self.requests())).unwrap_or_default();
        let mut parts = self.parts();
        let mut present = std::collections::HashSet::new();
        for mut used in measured {
            let key = (used.tenant.clone(), used.limit);
            if used.limit == SharedLimit::Requests {
                let known = parts.get(&key);
                (used.used, used.wants) = match window {
                    Some(window) => {
                        let counted = requests.remove(&used.tenant).unwrap_or_default();
                        // What was saved up before is spent once, and is no rate.
                        let of_others = others.iter().map(|other| other.holding(&key.0, key.1).used);
                        let left = used.allowed.saturating_sub(of_others.fold(0, u64::saturating_add));
                        let most = known.map_or(0, |known| known.part).max(left).max(used.limit.least());
                        (a_second(counted.taken, window).min(most), a_second(counted.refused, window))
                    }
                    None => known.map_or((0, 0), |known| (known.own.used, known.own.wants)),
                };
            }
            let in_use = used.used > 0 || used.wants > 0;
            if !in_use && !parts.contains_key(&key) {
                continue;
            }
            let known = parts.entry(key.clone()).or_default();
            known.quiet = if in_use { 0 } else { known.quiet + 1 };
            if known.quiet > FORGET {
                continue;
            }
            known.allowed = used.allowed;
            known.own = Holding {
                held: 0,
                used: used.used,
                idle: used.idle.min(used.used),
                wants: used.wants.min(used.allowed),
            };
            known.own.held = known.part.max(used.used);
            known.lately = used.used.max(known.lately - known.lately.div_ceil(4));
            let heard: Vec<(&str, Holding)> =
                others.iter().map(|other| (&*other.name, other.holding(&key.0, key.1))).collect();
            let plan = shares::plan(name, known.own, known.lately, &heard, known.allowed);
            (known.claim, known.gives_up) = (plan.claim, plan.gives_up);
            known.part = known.part.min(plan.claim);
            present.insert(key);
        }
        parts.retain(|key, _| present.contains(key));
    }

    /// Ends a round: takes what the others leave. Returns what changed.
    pub fn settle(&self, others: &[OtherNode]) -> Vec<ChangedPart> {
        let has_answers = others.iter().all(|other| other.is_fresh);
        let mut changed = Vec::new();
        for ((tenant, limit), known) in &mut *self.parts() {
            let heard = others.iter().map(|other| other.holding(tenant, *limit));
            let (hold, use_) = heard.fold((0_u64, 0_u64), |(hold, used), other| {
                (hold.saturating_add(other.held), used.saturating_add(other.used))
            });
            let part = shares::settle(known.claim, known.part, hold, known.allowed, has_answers);
            let gives_up = std::mem::take(&mut known.gives_up);
            if part != known.part || use_ != known.others_use || gives_up > 0 || known.own.wants > 0 {
                changed.push(ChangedPart { tenant: tenant.clone(), limit: *limit, gives_up });
            }
            (known.part, known.claim, known.others_use) = (part, part, use_);
            if known.own.wants > 0 && known.own.used.saturating_add(use_) < known.allowed {
                self.ask_soon(); // the others are about to give some up
            }
        }
        changed
    }
}

impl OtherNode {
    fn holding(&self, tenant: &str, limit: SharedLimit) -> Holding {
        let told = self.told.get(tenant).and_then(|limits| limits.get(&limit));
        told.map_or_else(Holding::default, |&[held, used, idle, wants]| Holding { held, used, idle, wants })
    }
}

/// So many in this time, in thousandths of one a second.
fn a_second(count: u64, since: Duration) -> u64 {
    let ms = u64::try_from(since.as_millis()).unwrap_or(u64::MAX).max(1);
    count.saturating_mul(1_000_000) / ms
}

/// The time between two rounds.
#[derive(Debug)]
pub(super) struct RoundClock(Instant);

impl RoundClock {
    pub(super) fn new() -> Self {
        Self(Instant::now())
    }

    /// The time since the last call.
    pub(super) fn turn(&mut self) -> Duration {
        let now = Instant::now();
        now.saturating_duration_since(std::mem::replace(&mut self.0, now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn runs(used: u64, wants: u64) -> Vec<LimitUse> {
        vec![LimitUse { tenant: "t".into(), limit: SharedLimit::Runs, allowed: 6, used, idle: 0, wants }]
    }

    fn other(parts: &LimitParts, is_fresh: bool) -> [OtherNode; 1] {
        [OtherNode { name: "other".to_owned(), told: parts.told(), is_fresh }]
    }

    #[test]
    fn two_nodes_divide_a_limit_and_one_gets_what_the_other_does_not_use() {
        let (a, b) = (LimitParts::default(), LimitParts::default());
        let t: Arc<str> = "t".into();
        let round = |one: &LimitParts, another: &LimitParts, measured| {
            one.publish("x", measured, &other(another, false), SECOND);
            one.settle(&other(another, true))
        };
        let part = |of: &LimitParts| of.part(&t, SharedLimit::Runs, 6);
        assert_eq!((part(&a), a.part(&t, SharedLimit::Requests, 5000)), (1, 1000), "at once, unasked");
        round(&a, &b, runs(1, 0));
        round(&b, &a, runs(1, 0));
        assert_eq!((part(&a), part(&b)), (3, 3));
        for _ in 0..2 {
            round(&b, &a, runs(1, 0));
            round(&a, &b, runs(3, 5));
        }
        assert_eq!((part(&a), part(&b), b.others_use(&t, SharedLimit::Runs)), (5, 1, 3));
        // A peer that does not answer keeps what it held, and nothing grows.
        a.publish("x", runs(0, 0), &other(&b, false), SECOND);
        a.settle(&[]);
        a.publish("x", runs(0, 6), &[], SECOND);
        assert_eq!(a.settle(&other(&b, false)).len(), 1);
        assert!(part(&a) <= 6);
        for _ in 0..=FORGET {
            round(&b, &a, runs(0, 0));
        }
        assert!(b.told().is_empty(), "what nobody uses is not told");
    }

    #[test]
    fn one_request_in_a_short_round_is_no_rate_and_neither_is_what_was_saved_up() {
        let (parts, t): (_, Arc<str>) = (LimitParts::default(), "t".into());
        let limit = SharedLimit::Requests;
        let measured =
            || vec![LimitUse { tenant: t.clone(), limit, allowed: 8000, used: 0, idle: 0, wants: 0 }];
        let told = |parts: &LimitParts| parts.told().get("t").map(|limits| limits[&limit]);
        let told_by_other =
            ToldLimits::from([("t".to_owned(), BTreeMap::from([(limit, [3000, 3000, 0, 0])]))]);
        let others = [OtherNode { name: "other".to_owned(), told: told_by_other, is_fresh: true }];
        let round = |since| {
            parts.publish("x", measured(), &others, since);
            parts.settle(&others);
        };
        parts.count_request(&t, true);
        round(SECOND / 10);
        assert_eq!(told(&parts), None, "nothing is known of it yet");
        round(SECOND * 9 / 10);
        assert_eq!(told(&parts).map(|[_, used, ..]| used), Some(1000));
        // Sixteen at once, of a limit of eight a second, of which another node uses three.
        (0..16).for_each(|_| parts.count_request(&t, true));
        parts.count_request(&t, false);
        round(SECOND);
        assert_eq!(told(&parts), Some([5000, 5000, 0, 1000]));
        // A short round keeps what was known.
        round(SECOND / 10);
        assert_eq!(told(&parts), Some([5000, 5000, 0, 1000]));
    }

    #[test]
    fn a_node_that_has_all_and_wants_more_shares_with_another_that_wants_some() {
        let (a, b) = (LimitParts::default(), LimitParts::default());
        let t: Arc<str> = "t".into();
        let round = |one: &LimitParts, another: &LimitParts, measured| {
            one.publish("x", measured, &other(another, false), SECOND);
            one.settle(&other(another, true))
        };
        round(&a, &b, runs(6, 9));
        assert_eq!(a.part(&t, SharedLimit::Runs, 6), 6);
        for _ in 0..5 {
            let used = a.part(&t, SharedLimit::Runs, 6);
            round(&b, &a, runs(6 - used, 9));
            round(&a, &b, runs(used, 9));
        }
        assert_eq!([&a, &b].map(|of| of.part(&t, SharedLimit::Runs, 6)), [3, 3]);
    }

    #[test]
    fn requests_are_counted_by_the_second() {
        let parts = LimitParts::default();
        let t: Arc<str> = "t".into();
        (0..4).for_each(|n| parts.count_request(&t, n < 3));
        let limit = SharedLimit::Requests;
        let measured = LimitUse { tenant: t.clone(), limit, allowed: 10_000, used: 0, idle: 0, wants: 0 };
        parts.publish("a", vec![measured], &[], 2 * SECOND);
        assert_eq!(parts.told()["t"][&limit][1..], [1500, 0, 500]);
        parts.settle(&[]);
        assert_eq!(parts.part(&t, limit, 10_000), 2000, "what it used and what it was refused");
    }
}
