//! Which nodes are candidates for a session that nobody owns, and which of them takes it. It must never name
//! another node for a session that has an owner: a node that joins moves nothing.

use xxhash_rust::xxh3::xxh3_64;

/// How many nodes are candidates for one session.
pub const CANDIDATES: usize = 3;

/// How highly a node stands for a session: rendezvous hashing.
fn score(session: &str, node: &str) -> u64 {
    let mut bytes = Vec::with_capacity(session.len() + node.len() + 1);
    bytes.extend_from_slice(session.as_bytes());
    // Neither name contains it.
    bytes.push(0);
    bytes.extend_from_slice(node.as_bytes());
    xxh3_64(&bytes)
}

/// The candidates of this session among these nodes, best first.
#[must_use]
pub fn candidates<'a>(session: &str, nodes: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    let mut scored: Vec<(u64, &str)> = nodes.into_iter().map(|node| (score(session, node), node)).collect();
    scored.sort_unstable_by(|a, b| b.cmp(a));
    scored.truncate(CANDIDATES);
    scored.into_iter().map(|(_, node)| node).collect()
}

/// The freest of the candidates; the first of those that are equally free.
#[must_use]
pub fn freest<'a>(candidates: &[&'a str], free: impl Fn(&str) -> u64) -> Option<&'a str> {
    candidates.iter().copied().rev().max_by_key(|node| free(node))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(count: usize) -> Vec<String> {
        (0..count).map(|n| format!("node-{n}")).collect()
    }

    #[test]
    fn sessions_are_spread_evenly() {
        let nodes = names(10);
        let mut counts = vec![0; 10];
        for session in 0..10_000 {
            let first = candidates(&format!("s{session}"), nodes.iter().map(String::as_str))[0];
            counts[nodes.iter().position(|node| node == first).unwrap()] += 1;
        }
        assert!(counts.iter().all(|count| (850..1150).contains(count)), "{counts:?}");
    }

    #[test]
    fn a_node_that_leaves_changes_only_its_own_candidates() {
        let nodes = names(8);
        for session in (0..500).map(|n| format!("s{n}")) {
            let before = candidates(&session, nodes.iter().map(String::as_str));
            let after = candidates(&session, nodes[1..].iter().map(String::as_str));
            let kept: Vec<&str> = before.iter().copied().filter(|node| *node != "node-0").collect();
            assert_eq!(after[..kept.len()], kept, "{session}");
        }
    }

    #[test]
    fn the_freest_takes_it() {
        let free = |node: &str| if node == "b" { 3 } else { 1 };
        assert_eq!(freest(&["a", "b", "c"], free), Some("b"));
        assert_eq!(freest(&["a", "c"], free), Some("a"));
        assert_eq!(freest(&[], free), None);
    }
}
