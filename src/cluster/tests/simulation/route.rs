//! What a node does with a call for a session that it does not hold, as `Cluster::locate` of the daemon does
//! it: that one asks the database in between. A call that was passed on once must never be passed on again.

use std::time::Duration;

use paddock_cluster::ownership::{Found, Terms};
use paddock_cluster::placement::{self, NodeLoad};

/// What is to be done with a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Route<'a> {
    /// This node claims the session, then serves the call.
    Claim,
    /// The call goes to this node, which owns the session or shall.
    Pass(&'a str),
    /// Nobody can serve it now: the caller is to try again.
    Later,
}

/// Whether a node whose lease was renewed this long ago counts as living: so long nobody may take it over.
#[must_use]
pub(crate) fn lives(row_age: Option<Duration>, terms: Terms) -> bool {
    row_age.is_some_and(|age| age <= terms.takeover_after())
}

/// Decides about a call for a session that this node, `me`, does not hold. `passed`: another node has passed
/// the call on.
#[must_use]
pub(crate) fn route<'a>(
    me: &str,
    session: u64,
    found: &'a Found,
    nodes: &'a [NodeLoad],
    passed: bool,
    terms: Terms,
) -> Route<'a> {
    if let Found::Row { owner, row_age } = found {
        if owner.node == me {
            return Route::Claim;
        }
        if lives(*row_age, terms) {
            return if passed { Route::Later } else { Route::Pass(&owner.node) };
        }
    }
    let takes = |name: &str| nodes.iter().any(|node| node.name == name && node.takes_new);
    // The node that passed the call on has chosen this one.
    if passed {
        return if takes(me) { Route::Claim } else { Route::Later };
    }
    match placement::place(session, nodes) {
        None => Route::Later,
        Some(node) if node.name == me => Route::Claim,
        Some(node) => Route::Pass(&node.name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use paddock_cluster::ownership::{Fence, Owner};

    fn node(name: &str, free: u32) -> NodeLoad {
        NodeLoad { name: name.to_owned(), free, takes_new: true }
    }

    fn owned_by(node: &str, age: Duration) -> Found {
        Found::Row { owner: Owner { node: node.to_owned(), fence: Fence(1) }, row_age: Some(age) }
    }

    const NOW: Duration = Duration::ZERO;

    #[test]
    fn a_call_goes_to_the_owner_and_no_further() {
        let (terms, nodes, of_b) = (Terms::default(), [node("a", 1), node("b", 0)], owned_by("b", NOW));
        assert_eq!(route("a", 1, &of_b, &nodes, false, terms), Route::Pass("b"));
        assert_eq!(route("a", 1, &of_b, &nodes, true, terms), Route::Later);
        assert_eq!(route("b", 1, &of_b, &nodes, true, terms), Route::Claim);
    }

    #[test]
    fn a_session_without_owner_goes_to_the_freest_that_takes_new_ones() {
        let (terms, mut nodes) = (Terms::default(), [node("a", 1), node("b", 9)]);
        assert_eq!(route("a", 1, &Found::Nobody, &nodes, false, terms), Route::Pass("b"));
        assert_eq!(route("a", 1, &Found::Nobody, &nodes, true, terms), Route::Claim);
        nodes[1].takes_new = false;
        assert_eq!(route("a", 1, &Found::Nobody, &nodes, false, terms), Route::Claim);
        assert_eq!(route("b", 1, &Found::Nobody, &nodes, true, terms), Route::Later);
        nodes[0].takes_new = false;
        assert_eq!(route("a", 1, &Found::Nobody, &nodes, false, terms), Route::Later);
    }

    #[test]
    fn the_session_of_a_dead_owner_is_placed_again() {
        let (terms, nodes) = (Terms::default(), [node("a", 1)]);
        let dead = owned_by("b", terms.takeover_after() + Duration::from_millis(1));
        assert_eq!(route("a", 1, &dead, &nodes, false, terms), Route::Claim);
        let alive = owned_by("b", terms.takeover_after());
        assert_eq!(route("a", 1, &alive, &nodes, false, terms), Route::Pass("b"));
    }
}
