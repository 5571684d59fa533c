//! The rules of ownership, without a clock and without I/O, so that a simulation can drive them.
//!
//! ```text
//!  node            asks ──────────────► database: renewed = its now      ──────► answer
//!                  │ own clock starts                                            │ renewed(asked, now)
//!                  ├──────── lease ────────┤  may acknowledge only in here
//!  another node                             ... age of `renewed` > lease + margin ─► may take
//! ```
//!
//! A node measures its lease on its own monotonic clock, from before it asked; the database's clock can only
//! have started later. So the lease ends at the node before anybody may take over, as long as the two clocks
//! do not drift apart by more than the margin within a lease. If they do, the fence still guards every write:
//! a takeover raises it, and a write that names another one changes nothing.
//!
//! A lease that ended and is granted again is another *epoch*: what the node owned in an earlier epoch may
//! have been taken in between, so it must ask for each session again. A node that has just got its lease back
//! knows nothing about others either: after an outage of the database all of them look dead. So it takes
//! nothing over before its own lease has held for as long as a takeover waits.
//!
//! All times here are durations since any fixed moment of one clock. This module must never look at a clock.

use std::time::Duration;

/// How long a lease holds, and how much longer a takeover waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Terms {
    /// A node may acknowledge for this long after it asked for its lease.
    pub lease: Duration,
    /// What a takeover waits beyond that: the most that two clocks may drift apart within a lease.
    pub margin: Duration,
}

impl Default for Terms {
    /// A node that dies is replaced within six seconds, and what a claim takes.
    fn default() -> Self {
        Self { lease: Duration::from_secs(4), margin: Duration::from_secs(2) }
    }
}

impl Terms {
    /// How often a node renews its lease: one lost renewal, or two, must not end it.
    #[must_use]
    pub fn renew_every(&self) -> Duration {
        self.lease / 5
    }

    /// How long ago a node must have renewed before another may take its sessions.
    #[must_use]
    pub fn takeover_after(&self) -> Duration {
        self.lease + self.margin
    }
}

/// The number of an owner's claim to one session: each claim has a larger one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fence(pub i64);

impl Fence {
    /// That of a session's first claim.
    pub const FIRST: Self = Self(1);

    /// That of the next claim.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

/// The number of one start of a daemon, drawn from a sequence before it joins: each start has a larger one
/// than those before it. A statement about a node names it, because one of an earlier start may still be
/// under way: otherwise its goodbye would free the sessions of the daemon that took its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Start(pub i64);

impl Start {
    /// Whether this start may take a node's row, which another one has: only from one before it. Everything
    /// else may change the row only if it names the same start.
    #[must_use]
    pub fn may_join(self, row: Option<Self>) -> bool {
        row.is_none_or(|row| row <= self)
    }
}

/// Counts the leases of a node: what was claimed in one epoch is not owned in another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Epoch(pub u64);

/// A session in the hands of this node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grant {
    /// Must be in every write.
    pub fence: Fence,
    /// The node's epoch when it asked for the session, not when the answer came.
    pub epoch: Epoch,
}

/// What a node knows of its own lease.
#[derive(Debug, Clone)]
pub struct OwnerLease {
    terms: Terms,
    epoch: Epoch,
    /// When the latest renewal that was answered had been asked for, and when the first of this epoch was.
    held: Option<Held>,
    is_given_up: bool,
}

#[derive(Debug, Clone, Copy)]
struct Held {
    since: Duration,
    asked: Duration,
}

impl OwnerLease {
    /// No lease yet.
    #[must_use]
    pub fn new(terms: Terms) -> Self {
        Self { terms, epoch: Epoch::default(), held: None, is_given_up: false }
    }

    /// The database has noted at some moment after `asked` that this node lives, and its answer came at
    /// `now`. Whether a new epoch began: nothing of an earlier one is owned any more.
    pub fn renewed(&mut self, asked: Duration, now: Duration) -> bool {
        if self.may_acknowledge(now)
            && let Some(held) = &mut self.held
        {
            held.asked = held.asked.max(asked); // answers may come in another order
            return false;
        }
        if self.is_given_up || now >= asked.saturating_add(self.terms.lease) {
            return false; // or it came too late to be a lease
        }
        self.granted(asked);
        true
    }

    /// The first lease, or the first after a gap: begins an epoch.
    pub fn granted(&mut self, asked: Duration) {
        self.epoch = Epoch(self.epoch.0 + 1);
        self.held = Some(Held { since: asked, asked });
    }

    /// Gives the lease up for good: nothing is acknowledged from now on.
    pub fn give_up(&mut self) {
        self.held = None;
        self.is_given_up = true;
    }

    /// Whether it was given up.
    #[must_use]
    pub fn is_given_up(&self) -> bool {
        self.is_given_up
    }

    /// Whether this node may acknowledge anything at `now`.
    #[must_use]
    pub fn may_acknowledge(&self, now: Duration) -> bool {
        self.ends().is_some_and(|ends| now < ends)
    }

    /// Whether a session is this node's at `now`: its claim is of this epoch, and the lease holds.
    #[must_use]
    pub fn owns(&self, grant: Grant, now: Duration) -> bool {
        grant.epoch == self.epoch && self.may_acknowledge(now)
    }

    /// When the lease ends, unless it is renewed.
    #[must_use]
    pub fn ends(&self) -> Option<Duration> {
        self.held.map(|held| held.asked.saturating_add(self.terms.lease))
    }

    /// The epoch of the last lease.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Whether this node may judge others at `now`: its own lease has held without a gap for so long that
    /// each node that lives has had the time to renew its own.
    #[must_use]
    pub fn may_judge(&self, now: Duration) -> bool {
        let held_for = |held: Held| now.saturating_sub(held.since);
        self.may_acknowledge(now)
            && self.held.is_some_and(|held| held_for(held) > self.terms.takeover_after())
    }
}

/// Whether the sessions of a node that renewed its lease `row_age` ago, by the database's clock, may be
/// taken.
#[must_use]
pub fn may_take(row_age: Duration, terms: Terms) -> bool {
    row_age > terms.takeover_after()
}

/// Who owns a session, as its row says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owner {
    /// The node's name.
    pub node: String,
    /// That of its claim.
    pub fence: Fence,
}

impl Owner {
    /// Whether a write of this node with this fence may change the session: both must be those of the row.
    #[must_use]
    pub fn allows(&self, node: &str, fence: Fence) -> bool {
        self.node == node && self.fence == fence
    }
}

/// What the database says of a session when a node asks for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    /// There is no row.
    Nobody,
    /// This row.
    Row {
        /// Who owns it.
        owner: Owner,
        /// How long ago its node renewed its lease, by the database's clock; `None` if that node has left.
        row_age: Option<Duration>,
    },
}

/// What a node that asks for a session gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Claimed {
    /// The session, with this fence or a larger one: the row must be changed to it in the same step.
    Mine(Fence),
    /// Another node has it.
    Elsewhere,
}

/// What the claim of `node` leads to. `may_judge` is [`OwnerLease::may_judge`] of that node. The database
/// must decide and change the row in one step.
#[must_use]
pub fn claim(found: &Found, node: &str, may_judge: bool, terms: Terms) -> Claimed {
    match found {
        Found::Nobody => Claimed::Mine(Fence::FIRST),
        Found::Row { owner, row_age } => {
            let is_free = match row_age {
                None => true,
                Some(age) => may_judge && may_take(*age, terms),
            };
            if owner.node == node || is_free { Claimed::Mine(owner.fence.next()) } else { Claimed::Elsewhere }
        }
    }
}

#[cfg(test)]
mod tests;
