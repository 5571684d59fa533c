//! Amounts of tenants that are limited over a time for all nodes together: bytes that programs move in an
//! hour, and dollars that they spend on models in a day. Pure: time is an argument.
//!
//! ```text
//!  each node counts its own ─► tells it with every answer to a peer ─► hear: by tenant and node
//!  a call ─► what this node has counted + what the others have told ─► admitted, or refused
//! ```
//!
//! What a node told last counts until its window is over, also if the node is silent or was started again:
//! a node that dies gives no tenant anything back. Clocks of nodes differ, so bytes are told with the time
//! that is left to them, and dollars with their day.
//!
//! It must never ask a peer for a call, nor forget what still counts. It keeps two days of dollars and a
//! bounded number of minutes for each tenant and node.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

/// What a node tells: the amounts of each tenant that has a limit of them, and has used some.
pub type ToldAmounts = BTreeMap<String, ToldAmount>;

/// What one tenant has used at one node.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ToldAmount {
    /// Bytes that its programs moved in the last hour.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub moved: Option<ToldBytes>,
    /// Dollars that they spent on models today.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spent: Option<ToldSpending>,
}

/// Bytes of the last hour.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToldBytes {
    /// How many.
    pub bytes: u64,
    /// Seconds until the first of them are an hour old.
    pub frees_s: u64,
    /// Seconds until all of them are.
    pub ends_s: u64,
}

/// Dollars of one day.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToldSpending {
    /// Days since 1970 (UTC).
    pub day: u64,
    /// Billionths of a dollar.
    pub nanodollars: u64,
}

/// No byte counts for longer.
const HOUR: Duration = Duration::from_secs(3600);

/// Bytes of processes that have ended are kept together if their times differ by no more than this.
const GRAIN: Duration = Duration::from_secs(60);

/// What a tenant has moved at other nodes in the last hour.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BytesElsewhere {
    /// How many bytes.
    pub bytes: u64,
    /// After how long some of them are forgotten; `None` if there are none.
    pub frees_in: Option<Duration>,
}

/// What other nodes have told. See the module documentation.
#[derive(Debug, Default)]
pub struct AmountsElsewhere(Mutex<HashMap<String, OfTenant>>);

/// What other nodes have told of one tenant.
#[derive(Debug, Default)]
struct OfTenant {
    nodes: BTreeMap<String, OfNode>,
    /// Bytes that processes told which have ended, by the time at which the last of them is an hour old.
    ended: BTreeMap<Instant, u64>,
}

/// What one node has told of a tenant.
#[derive(Debug, Default)]
struct OfNode {
    /// The process that told it.
    instance: String,
    moved: Option<Moved>,
    /// By day: a node whose clock is ahead may be at the next one.
    spent: BTreeMap<u64, Spent>,
}

#[derive(Debug, Clone, Copy)]
struct Moved {
    bytes: u64,
    frees: Instant,
    ends: Instant,
}

/// Billionths of a dollar of one day. A node goes on with its day after a restart, unless its store is gone.
#[derive(Debug, Clone, Copy, Default)]
struct Spent {
    /// What its process told last.
    told: u64,
    /// The most that earlier processes of the node told last.
    earlier: u64,
}

impl AmountsElsewhere {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, OfTenant>> {
        // No code that can panic runs under this lock, so even a poisoned one holds valid data.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The process `instance` of `node` has told this; `today` is the day by the clock of this node.
    pub fn hear(&self, (node, instance): (&str, &str), told: &ToldAmounts, today: u64, now: Instant) {
        let mut tenants = self.lock();
        for (tenant, amount) in told {
            let of = tenants.entry(tenant.clone()).or_default();
            of.hear((node, instance), *amount, now);
        }
        tenants.retain(|tenant, of| {
            // Whatever it does not tell, it has none of any more.
            if !told.contains_key(tenant) && of.nodes.contains_key(node) {
                of.hear((node, instance), ToldAmount::default(), now);
            }
            of.forget(today, now)
        });
    }

    /// What a tenant has moved at other nodes in the last hour.
    pub fn moved(&self, tenant: &str, now: Instant) -> BytesElsewhere {
        let tenants = self.lock();
        let Some(of) = tenants.get(tenant) else { return BytesElsewhere::default() };
        let live = of.nodes.values().filter_map(|node| node.moved).filter(|moved| moved.ends > now);
        // Of a silent node nobody knows what else is forgotten before its end.
        let live = live.map(|moved| (moved.bytes, if moved.frees > now { moved.frees } else { moved.ends }));
        let ended = of.ended.iter().filter(|(ends, _)| **ends > now).map(|(ends, bytes)| (*bytes, *ends));
        live.chain(ended).fold(BytesElsewhere::default(), |sum, (bytes, frees)| {
            let frees_in = frees.saturating_duration_since(now);
            BytesElsewhere {
                bytes: sum.bytes.saturating_add(bytes),
                frees_in: Some(sum.frees_in.map_or(frees_in, |earlier| earlier.min(frees_in))),
            }
        })
    }

    /// What a tenant has spent on models at other nodes on this day, in billionths of a dollar.
    pub fn spent(&self, tenant: &str, day: u64) -> u64 {
        let tenants = self.lock();
        let Some(of) = tenants.get(tenant) else { return 0 };
        let spent = of.nodes.values().filter_map(|node| node.spent.get(&day));
        spent.fold(0, |sum, spent| sum.saturating_add(spent.told.max(spent.earlier)))
    }
}

impl OfTenant {
    fn hear(&mut self, (node, instance): (&str, &str), told: ToldAmount, now: Instant) {
        let known = self.nodes.entry(node.to_owned()).or_default();
        if known.instance != instance {
            // It was started again, and counts its bytes from nothing.
            if let Some(moved) = known.moved.take() {
                let ends = moved.ends;
                let near = self.ended.range_mut(ends..=ends + GRAIN).next();
                match near {
                    Some((_, bytes)) => *bytes = bytes.saturating_add(moved.bytes),
                    None => drop(self.ended.insert(ends + GRAIN, moved.bytes)),
                }
            }
            for spent in known.spent.values_mut() {
                *spent = Spent { told: 0, earlier: spent.told.max(spent.earlier) };
            }
            instance.clone_into(&mut known.instance);
        }
        let left = |seconds: u64| now + Duration::from_secs(seconds).min(HOUR);
        known.moved = told.moved.map(|moved| Moved {
            bytes: moved.bytes,
            frees: left(moved.frees_s),
            ends: left(moved.ends_s),
        });
        if let Some(spent) = told.spent {
            known.spent.entry(spent.day).or_default().told = spent.nanodollars;
        }
    }

    /// Forgets what does not count any more; whether anything is left.
    fn forget(&mut self, today: u64, now: Instant) -> bool {
        self.ended.retain(|ends, _| *ends > now);
        self.nodes.retain(|_, node| {
            node.moved = node.moved.filter(|moved| moved.ends > now);
            node.spent.retain(|day, _| (today..=today.saturating_add(1)).contains(day));
            node.moved.is_some() || !node.spent.is_empty()
        });
        !self.nodes.is_empty() || !self.ended.is_empty()
    }
}

#[cfg(test)]
#[path = "amounts_tests.rs"]
mod tests;
