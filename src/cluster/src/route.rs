//! What a node does with a call. A call that was passed on once must never be passed on again.

use std::time::Duration;

use crate::placement;
use crate::row::{NodeId, Row};
use crate::terms::Terms;

/// What a node knows about another, from the database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    /// Which node, since which start.
    pub node: NodeId,
    /// How long ago it renewed its lease, by the database's clock.
    pub idle: Duration,
    /// How many more sessions it has room for.
    pub free: u64,
    /// It takes no new sessions.
    pub draining: bool,
}

/// What is to be done with a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Route {
    /// This node claims the session, then serves the call.
    Claim,
    /// The call goes to this node, which is the owner or shall be.
    Pass(NodeId),
    /// Nobody can serve it now: the caller is to try again.
    Later,
}

/// Decides about a call for a session that this node has not in memory.
#[must_use]
pub fn route(
    me: &NodeId,
    session: &str,
    row: Option<&Row>,
    peers: &[Peer],
    passed: bool,
    terms: &Terms,
) -> Route {
    if let Some(owner) = row.and_then(|row| row.owner.as_ref()) {
        if owner == me {
            return Route::Claim;
        }
        let lives = peers.iter().any(|peer| peer.node == *owner && peer.idle <= terms.takeover);
        if lives {
            return if passed { Route::Later } else { Route::Pass(owner.clone()) };
        }
    }
    // The node that passed the call on has chosen this one.
    if passed {
        return Route::Claim;
    }
    let able = |peer: &&Peer| !peer.draining && peer.idle <= terms.lease;
    let able: Vec<&Peer> = peers.iter().filter(able).collect();
    let candidates = placement::candidates(session, able.iter().map(|peer| peer.node.name.as_str()));
    let named = |name: &str| able.iter().find(|peer| peer.node.name == name);
    match placement::freest(&candidates, |name| named(name).map_or(0, |peer| peer.free)).and_then(named) {
        None => Route::Later,
        Some(peer) if peer.node == *me => Route::Claim,
        Some(peer) => Route::Pass(peer.node.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(name: &str, free: u64) -> Peer {
        let node = NodeId { name: name.to_owned(), epoch: 1 };
        Peer { node, idle: Duration::ZERO, free, draining: false }
    }

    fn row(owner: &Peer) -> Row {
        Row { owner: Some(owner.node.clone()), fence: 1, version: 1 }
    }

    #[test]
    fn a_call_goes_to_the_owner_and_no_further() {
        let terms = Terms::new(Duration::from_secs(5), Duration::from_secs(1));
        let peers = [peer("a", 1), peer("b", 9), peer("c", 9)];
        let [a, b, _] = &peers;
        let to_b = route(&a.node, "s", Some(&row(b)), &peers, false, &terms);
        assert_eq!(to_b, Route::Pass(b.node.clone()));
        assert_eq!(route(&a.node, "s", Some(&row(b)), &peers, true, &terms), Route::Later);
        assert_eq!(route(&b.node, "s", Some(&row(b)), &peers, true, &terms), Route::Claim);
    }

    #[test]
    fn a_session_without_owner_goes_to_the_freest_that_is_not_draining() {
        let terms = Terms::new(Duration::from_secs(5), Duration::from_secs(1));
        let mut peers = [peer("a", 1), peer("b", 9), peer("c", 3)];
        let me = peers[0].node.clone();
        assert_eq!(route(&me, "s", None, &peers, false, &terms), Route::Pass(peers[1].node.clone()));
        assert_eq!(route(&me, "s", None, &peers, true, &terms), Route::Claim);
        peers[1].draining = true;
        peers[2].idle = terms.takeover;
        assert_eq!(route(&me, "s", None, &peers, false, &terms), Route::Claim);
        peers[0].draining = true;
        assert_eq!(route(&me, "s", None, &peers, false, &terms), Route::Later);
    }

    #[test]
    fn a_dead_owner_is_replaced() {
        let terms = Terms::new(Duration::from_secs(5), Duration::from_secs(1));
        let mut peers = [peer("a", 1), peer("b", 0)];
        let row = row(&peers[1]);
        peers[1].idle = terms.takeover + Duration::from_millis(1);
        assert_eq!(route(&peers[0].node.clone(), "s", Some(&row), &peers, false, &terms), Route::Claim);
    }
}
