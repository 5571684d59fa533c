//! How much of a tenant's limit each node may use, so that the limit holds for all nodes together and no call
//! asks another node: pure.
//!
//! Each node has a part of the limit and admits up to that by itself. Once a second it plans what it wants to
//! have, says so, asks all others what they hold, and only then takes it:
//!
//! ```text
//!  plan    claim = what it uses and wants │ its even share, and what it used lately │ what it uses, if
//!          others want more or all use too much; then it also gives up what is idle
//!  publish held = the larger of claim and use; from now on every node that asks is told this
//!  ask     what does each other node hold?
//!  settle  part = claim, but no more than the limit leaves beside what the others hold
//! ```
//!
//! # What holds
//!
//! * **The parts of all nodes together never exceed the limit.** A node first says what it
//!   claims, and then asks the others. So of two nodes, the one that says it later hears of the claim of the
//!   other, and takes only what is left beside it. If a node that lives does not answer, a part may shrink,
//!   and does not grow.
//! * **At most `nodes - 1` more than the limit is in use.** Whatever its part is, a node may use one as long
//!   as the others used less than the limit when it last asked: so the first call of a tenant at a node never
//!   waits for the others. Two nodes can do that at one time.
//! * **What is wanted somewhere comes there within three rounds** if it is not in use elsewhere: the others
//!   give up what they do not use when they hear of it.
//!
//! These hold for nodes that see each other. Parts of a cluster that cannot reach each other take each other
//! for lost, and each of them admits the whole limit. Nothing here may depend on how long a message takes.

/// What a node says of one limit of one tenant.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Holding {
    /// What nobody else may use: its part, or what it uses, if that is more.
    pub held: u64,
    /// What it uses.
    pub used: u64,
    /// How much of that it can give up for another node: sessions that rest.
    pub idle: u64,
    /// How much more its callers want.
    pub wants: u64,
}

/// What a node wants to do in this round.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Plan {
    /// The part that it would like to have.
    pub claim: u64,
    /// How much of what is idle it should give up.
    pub gives_up: u64,
}

/// What a node plans that is called `name`, and holds `own`; it used up to `lately` in the last rounds.
/// `others` are the other nodes that live, and what they said last.
#[must_use]
pub fn plan(name: &str, own: Holding, lately: u64, others: &[(&str, Holding)], limit: u64) -> Plan {
    if own.wants > 0 {
        return Plan { claim: claim_of_a_taker(name, own, others, limit), gives_up: 0 };
    }
    let wanted = total(others, |other| other.wants);
    let in_use = total(others, |other| other.used).saturating_add(own.used);
    let over = in_use.saturating_sub(limit);
    if wanted > 0 || over > 0 {
        let missing = wanted.saturating_sub(limit.saturating_sub(in_use)).saturating_add(over);
        let gives_up = gives_up(name, own, others, missing);
        return Plan { claim: own.used - gives_up, gives_up };
    }
    // One more than it used, so that a node whose part is just enough gets more before anybody waits.
    let nodes = others.len() as u64 + 1;
    let claim = limit.div_ceil(nodes).max(lately.saturating_add(1)).min(limit).max(own.used.min(limit));
    Plan { claim, gives_up: 0 }
}

/// The part that a node has from now on: what it claimed, as far as the limit leaves it beside what the
/// others `hold` since. `has_answers` says whether every other node that lives has told that after this one
/// published its claim; if not, the part is no larger than `before`.
#[must_use]
pub fn settle(claim: u64, before: u64, hold: u64, limit: u64, has_answers: bool) -> u64 {
    let part = claim.min(limit.saturating_sub(hold));
    if has_answers { part } else { part.min(before) }
}

/// How much a node may use whose part is this, while the others use `others_use` as far as it knows: `least`,
/// which is one, whatever its part is.
#[must_use]
pub fn may_use(part: u64, others_use: u64, limit: u64, least: u64) -> u64 {
    part.max(limit.saturating_sub(others_use).min(least))
}

fn total(others: &[(&str, Holding)], of: impl Fn(&Holding) -> u64) -> u64 {
    others.iter().fold(0, |sum, (_, other)| sum.saturating_add(of(other)))
}

/// What a node claims whose callers want more: what it needs, or as much as every other that wants more.
fn claim_of_a_taker(name: &str, own: Holding, others: &[(&str, Holding)], limit: u64) -> u64 {
    let kept = others.iter().filter(|(_, other)| other.wants == 0);
    let kept =
        kept.fold(0_u64, |sum, (_, other)| sum.saturating_add(other.used - other.idle.min(other.used)));
    let need = |holding: &Holding| holding.used.saturating_add(holding.wants);
    let mut takers: Vec<(u64, &str)> = others
        .iter()
        .filter(|(_, other)| other.wants > 0)
        .map(|(name, other)| (need(other), *name))
        .chain([(need(&own), name)])
        .collect();
    takers.sort_unstable();
    let (mut rest, mut left) = (limit.saturating_sub(kept), takers.len() as u64);
    for (need, taker) in takers {
        // What cannot be divided goes to the last of them.
        let part = need.min(rest / left);
        if taker == name {
            return part;
        }
        (rest, left) = (rest - part, left - 1);
    }
    0
}

/// How much of the `missing` sessions this node gives up. The node that has the most idle ones gives first.
fn gives_up(name: &str, own: Holding, others: &[(&str, Holding)], mut missing: u64) -> u64 {
    let mut givers: Vec<(std::cmp::Reverse<u64>, &str)> = others
        .iter()
        .filter(|(_, other)| other.wants == 0)
        .map(|(name, other)| (std::cmp::Reverse(other.idle), *name))
        .chain([(std::cmp::Reverse(own.idle), name)])
        .collect();
    givers.sort_unstable();
    for (std::cmp::Reverse(idle), giver) in givers {
        let gives = idle.min(missing);
        if giver == name {
            return gives.min(own.used);
        }
        missing -= gives;
    }
    0
}

#[cfg(test)]
mod tests;
