//! Which node takes a new session: pure, so that a simulation of many nodes runs the same code.
//!
//! ```text
//!  session ─► rendezvous hashing orders the nodes ─► the first three that take new sessions: the candidates
//!                                                         └─► the freest of them; all full: the next three
//! ```
//!
//! Every node that knows the same nodes finds the same candidates, without asking anybody. Three candidates
//! instead of one let the load decide, and two nodes with different figures still choose out of the same
//! three. This is asked once in the life of a session: from then on its row in the table of owners says
//! whose it is, so a node that joins moves nothing.
//!
//! The hash must never change: nodes of two versions would name different candidates for one session.

use std::cmp::Reverse;

use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

/// How many nodes are compared by their load.
pub const CANDIDATES: usize = 3;

/// What placement knows of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeLoad {
    /// The name of the node.
    pub name: String,
    /// Sessions that it can take before it has to evict one.
    pub free: u32,
    /// Whether it takes new sessions: it answers, and was not told to drain.
    pub takes_new: bool,
}

/// The number of a session, from which placement hashes on. Tenant and session are told apart by their
/// lengths.
#[must_use]
pub fn session_number(tenant: &str, session: &str) -> u64 {
    xxh3_64_with_seed(session.as_bytes(), xxh3_64(tenant.as_bytes()))
}

/// How much a node wants a session; the node that wants it most is its first candidate.
#[must_use]
pub fn weight(node: &str, session: u64) -> u64 {
    xxh3_64_with_seed(node.as_bytes(), session)
}

/// All nodes that take new sessions, the first candidate of this session first.
#[must_use]
pub fn order(session: u64, nodes: &[NodeLoad]) -> Vec<&NodeLoad> {
    let mut order: Vec<_> = nodes.iter().filter(|node| node.takes_new).collect();
    // Two nodes of one weight would be ordered by the list otherwise, which differs between nodes.
    order.sort_by_key(|node| (Reverse(weight(&node.name, session)), &*node.name));
    order
}

/// The node that takes this new session; `None` if no node takes any.
///
/// Of full nodes the first candidate takes it, and makes room as a single machine does.
#[must_use]
pub fn place(session: u64, nodes: &[NodeLoad]) -> Option<&NodeLoad> {
    let order = order(session, nodes);
    let freest = order.chunks(CANDIDATES).find_map(|candidates| {
        let with_room = candidates.iter().filter(|node| node.free > 0);
        // Of equals the first: `max_by_key` alone would take the last.
        with_room.rev().max_by_key(|node| node.free).copied()
    });
    freest.or_else(|| order.first().copied())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nodes(free: &[u32]) -> Vec<NodeLoad> {
        let node =
            |(n, free): (usize, &u32)| NodeLoad { name: format!("node-{n}"), free: *free, takes_new: true };
        free.iter().enumerate().map(node).collect()
    }

    fn names(nodes: &[&NodeLoad]) -> Vec<String> {
        nodes.iter().map(|node| node.name.clone()).collect()
    }

    #[test]
    fn the_hash_is_this_one_for_ever() {
        assert_eq!(session_number("default", "s"), 9_486_377_858_886_019_567);
        assert_eq!(weight("node-0", 1), 5_315_005_443_687_012_834);
    }

    #[test]
    fn tenant_and_session_are_told_apart() {
        assert_ne!(session_number("ab", "c"), session_number("a", "bc"));
        assert_ne!(session_number("a", "b"), session_number("b", "a"));
        assert_ne!(session_number("", "b"), session_number("b", ""));
    }

    #[test]
    fn the_candidates_do_not_depend_on_the_order_of_the_list() {
        let (all, mut turned) = (nodes(&[1; 9]), nodes(&[1; 9]));
        turned.reverse();
        for session in 0..200 {
            assert_eq!(names(&order(session, &all)), names(&order(session, &turned)));
        }
    }

    #[test]
    fn a_node_that_joins_changes_at_most_one_candidate() {
        let (few, more) = (nodes(&[1; 9]), nodes(&[1; 10]));
        for session in 0..500 {
            let (before, after) = (order(session, &few), order(session, &more));
            let kept: Vec<_> = after.into_iter().filter(|node| node.name != "node-9").collect();
            assert_eq!(names(&before), names(&kept));
        }
    }

    #[test]
    fn the_freest_of_three_takes_it() {
        let all = nodes(&[5; 20]);
        for session in 0..200 {
            let first: Vec<_> = names(&order(session, &all)).into_iter().take(CANDIDATES).collect();
            for chosen in &first {
                let mut loads = all.clone();
                // Outside of the candidates nobody is asked, however free.
                loads.iter_mut().for_each(|node| node.free = if first.contains(&node.name) { 2 } else { 99 });
                loads.iter_mut().filter(|node| node.name == *chosen).for_each(|node| node.free = 3);
                assert_eq!(place(session, &loads).map(|node| &node.name), Some(chosen));
            }
            assert_eq!(place(session, &all).map(|node| &node.name), first.first(), "of equals the first");
        }
    }

    #[test]
    fn full_and_draining_nodes_take_nothing_while_another_has_room() {
        for session in 0..100 {
            let mut all = nodes(&[0, 0, 0, 0, 0, 0, 1]);
            assert_eq!(place(session, &all).map(|node| &*node.name), Some("node-6"));
            all[6].takes_new = false;
            let first = order(session, &all)[0].name.clone();
            assert_ne!(first, "node-6");
            assert_eq!(place(session, &all).map(|node| node.name.clone()), Some(first));
            all.iter_mut().for_each(|node| node.takes_new = false);
            assert_eq!(place(session, &all), None);
        }
        assert_eq!(place(1, &[]), None);
    }

    #[test]
    fn sessions_spread_evenly_and_balance_what_is_uneven() {
        let mut all = nodes(&[1000; 8]);
        for session in 0..4000 {
            let name = place(session_number("t", &session.to_string()), &all).map(|node| node.name.clone());
            all.iter_mut().filter(|node| Some(&node.name) == name.as_ref()).for_each(|node| node.free -= 1);
        }
        // Each took about 500; the choice by load keeps them closer than hashing alone would.
        assert!(all.iter().all(|node| (480..=520).contains(&node.free)), "{all:?}");
    }
}
