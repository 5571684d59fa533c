//! The rules under test, and the faults that can be put into them. Each rule is the function of the crate;
//! a mutation spoils what goes into it or what comes out.

use std::time::Duration;

use paddock_cluster::ownership::{self, Claimed, Fence, Found, Grant, Owner, OwnerLease, Start, Terms};
use paddock_cluster::placement::{self, NodeLoad};

use super::route::{self, Route};

/// A fault in a rule, which the simulation must find.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mutation {
    /// A write does not compare the fence: only the name of the owner.
    FenceLeftOut,
    /// A write compares nothing.
    OwnerLeftOut,
    /// A session is taken over while its owner can hold its lease.
    TakeoverTooEarly,
    /// A takeover waits as long as a lease, and no longer.
    NoMargin,
    /// The lease counts from the arrival of its answer.
    LeaseFromAnswer,
    /// The lease is not looked at before a session is served.
    LeaseIgnored,
    /// Containers go on when the lease has ended.
    ContainersLeft,
    /// What was claimed in an earlier lease is still served in a later one.
    EpochIgnored,
    /// A write is acknowledged when its object is stored.
    AcknowledgedBeforeRow,
    /// A row names an object that may not be stored.
    RowBeforeObject,
    /// A content counts as stored as soon as somebody begins to store it.
    StoredTooEarly,
    /// After a write whose outcome is unknown, the owner goes on with the same fence.
    UnknownIsForgotten,
    /// Contents that no row names are buried at once.
    NoGrace,
    /// The name of an object is made of its contents alone, so that a deleted one can come again.
    KeysComeAgain,
    /// A call that was passed on is passed on again.
    SecondHop,
    /// The hash alone says who owns a session, so that a node that joins takes sessions away.
    JoiningMoves,
    /// A node that is drained hands a session over before its containers have ended.
    HandedOverTooEarly,
    /// What an earlier start of a node said of itself counts for the present one: a goodbye, too.
    StartIgnored,
}

impl Mutation {
    pub(crate) const ALL: [Mutation; 18] = [
        Mutation::FenceLeftOut,
        Mutation::OwnerLeftOut,
        Mutation::TakeoverTooEarly,
        Mutation::NoMargin,
        Mutation::LeaseFromAnswer,
        Mutation::LeaseIgnored,
        Mutation::ContainersLeft,
        Mutation::EpochIgnored,
        Mutation::AcknowledgedBeforeRow,
        Mutation::RowBeforeObject,
        Mutation::StoredTooEarly,
        Mutation::UnknownIsForgotten,
        Mutation::NoGrace,
        Mutation::KeysComeAgain,
        Mutation::SecondHop,
        Mutation::JoiningMoves,
        Mutation::HandedOverTooEarly,
        Mutation::StartIgnored,
    ];
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Rules {
    pub(crate) terms: Terms,
    /// How long a content that no row names is kept, before it is marked and again before it is buried. A day
    /// in the daemon; here twice this is just longer than the slowest write.
    pub(crate) grace: Duration,
    mutation: Option<Mutation>,
}

impl Rules {
    pub(crate) fn new(mutation: Option<Mutation>) -> Rules {
        let mut terms = Terms::default();
        if mutation == Some(Mutation::TakeoverTooEarly) {
            terms.margin = Duration::ZERO;
        }
        let grace = if mutation == Some(Mutation::NoGrace) { 0 } else { 9 };
        Rules { terms, grace: Duration::from_secs(grace), mutation }
    }

    pub(crate) fn is(&self, mutation: Mutation) -> bool {
        self.mutation == Some(mutation)
    }

    /// The terms by which the database judges the age of a lease.
    fn judging(&self) -> Terms {
        match self.mutation {
            Some(Mutation::TakeoverTooEarly) => Terms { lease: self.terms.lease / 2, margin: Duration::ZERO },
            Some(Mutation::NoMargin) => Terms { margin: Duration::ZERO, ..self.terms },
            _ => self.terms,
        }
    }

    /// Whether a new epoch has begun.
    pub(crate) fn renewed(&self, lease: &mut OwnerLease, asked: Duration, now: Duration) -> bool {
        let asked = if self.is(Mutation::LeaseFromAnswer) { now } else { asked };
        lease.renewed(asked, now)
    }

    pub(crate) fn owns(&self, lease: &OwnerLease, grant: Grant, now: Duration) -> bool {
        match self.mutation {
            Some(Mutation::LeaseIgnored) => true,
            Some(Mutation::EpochIgnored) => lease.may_acknowledge(now),
            _ => lease.owns(grant, now),
        }
    }

    pub(crate) fn claim(
        &self,
        session: u64,
        found: &Found,
        nodes: &[NodeLoad],
        me: &str,
        may_judge: bool,
    ) -> Claimed {
        let best = || placement::order(session, nodes).first().map(|node| node.name.as_str());
        if let Found::Row { owner, .. } = found
            && self.is(Mutation::JoiningMoves)
            && best() == Some(me)
        {
            return Claimed::Mine(owner.fence.next());
        }
        ownership::claim(found, me, may_judge, self.judging())
    }

    /// Whether a start may take a node's row, in which this start is.
    pub(crate) fn may_join(&self, row: Option<Start>, start: Start) -> bool {
        self.is(Mutation::StartIgnored) || start.may_join(row)
    }

    /// Whether what a start says of itself may change a node's row, in which this start is.
    pub(crate) fn is_of(&self, row: Start, start: Start) -> bool {
        self.is(Mutation::StartIgnored) || row == start
    }

    pub(crate) fn allows(&self, owner: &Owner, node: &str, fence: Fence) -> bool {
        match self.mutation {
            Some(Mutation::FenceLeftOut) => owner.node == node,
            Some(Mutation::OwnerLeftOut) => true,
            _ => owner.allows(node, fence),
        }
    }

    pub(crate) fn route<'a>(
        &self,
        me: &str,
        session: u64,
        found: &'a Found,
        nodes: &'a [NodeLoad],
        passed: bool,
    ) -> Route<'a> {
        let best = || placement::order(session, nodes).first().map(|node| node.name.as_str());
        if self.is(Mutation::JoiningMoves) && best() == Some(me) {
            return Route::Claim;
        }
        let passed = passed && !self.is(Mutation::SecondHop);
        route::route(me, session, found, nodes, passed, self.judging())
    }
}
