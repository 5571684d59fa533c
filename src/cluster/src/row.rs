//! What the database must compare before it changes the row of a session. The statements in SQL say the same;
//! a change that a function here refuses must change no row there.

use std::time::Duration;

use crate::terms::Terms;

/// A node, since it was started: one that is killed and started again is another.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct NodeId {
    /// `cluster.name`.
    pub name: String,
    /// Which start of this node, counted by the database.
    pub epoch: u64,
}

/// What the row of a session says about its owner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// None: given back, by a node that was drained.
    pub owner: Option<NodeId>,
    /// Grows by one whenever the session is claimed.
    pub fence: u64,
    /// Grows by one with each manifest.
    pub version: u64,
}

/// How the row of a session looks before and after a manifest is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Update {
    /// The node that writes.
    pub owner: NodeId,
    /// The fence of its claim.
    pub fence: u64,
    /// The version that the new manifest replaces. A statement that was late, or sent twice, finds another.
    pub replaces: u64,
}

/// Whether this update may change the row.
#[must_use]
pub fn admits(row: &Row, update: &Update) -> bool {
    row.owner.as_ref() == Some(&update.owner) && row.fence == update.fence && row.version == update.replaces
}

/// Whether a session can be claimed. `seen` is the fence that the claimer has read (None: no row), and `idle`
/// how long ago the owner's lease was renewed, by the database's clock (None: the owner's row has gone, or
/// belongs to a later start).
#[must_use]
pub fn claimable(
    row: Option<&Row>,
    seen: Option<u64>,
    by: &NodeId,
    idle: Option<Duration>,
    terms: &Terms,
) -> bool {
    match row {
        None => seen.is_none(),
        Some(row) if Some(row.fence) != seen => false,
        Some(row) => match &row.owner {
            None => true,
            Some(owner) => owner == by || idle.is_none_or(|idle| idle > terms.takeover),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(name: &str, epoch: u64) -> NodeId {
        NodeId { name: name.to_owned(), epoch }
    }

    #[test]
    fn only_the_owner_of_this_fence_replaces_the_latest_manifest() {
        let row = Row { owner: Some(node("a", 1)), fence: 3, version: 7 };
        let update = Update { owner: node("a", 1), fence: 3, replaces: 7 };
        assert!(admits(&row, &update));
        assert!(!admits(&row, &Update { owner: node("a", 2), ..update.clone() }));
        assert!(!admits(&row, &Update { fence: 2, ..update.clone() }));
        assert!(!admits(&row, &Update { replaces: 6, ..update.clone() }));
        assert!(!admits(&Row { owner: None, ..row }, &update));
    }

    #[test]
    fn a_session_is_claimed_when_nobody_can_hold_it() {
        let terms = Terms::new(Duration::from_secs(5), Duration::from_secs(1));
        let (row, by) = (Row { owner: Some(node("a", 1)), fence: 3, version: 7 }, node("b", 1));
        let claim = |seen, by: &NodeId, idle| claimable(Some(&row), seen, by, idle, &terms);
        assert!(!claim(Some(3), &by, Some(terms.takeover)));
        assert!(claim(Some(3), &by, Some(terms.takeover + Duration::from_millis(1))));
        assert!(!claim(Some(2), &by, None), "somebody else has claimed it");
        assert!(claim(Some(3), &by, None));
        assert!(claim(Some(3), &node("a", 1), Some(Duration::ZERO)), "its own, which it has forgotten");
        assert!(claimable(None, None, &by, None, &terms));
        assert!(!claimable(None, Some(3), &by, None, &terms));
    }
}
