//! The nodes as one of them sees the others: who answers, how much room each has. Pure: reports and the time
//! come in from outside.
//!
//! ```text
//!            report             three questions without an answer, or silence of `lost_after`
//!  unknown ────────► answers ──────────────────────────────────────────────► lost ──► forgotten after a day
//!                       ▲                        report                        │
//!                       └──────────────────────────────────────────────────────┘
//! ```
//!
//! A node that missed a question is a suspect until it is lost or answers: suspects are asked more often than
//! the others, so that a lost node is seen soon also where a round of all nodes takes long.
//!
//! It says where a node can be reached and where a new session fits. It must never say whose a session is:
//! only the table of owners knows ([`super::owners`]).

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::amounts::ToldAmounts;
use super::ids::NodeTag;
use super::limits::ToldLimits;
use super::placement::NodeLoad;

/// A node that is silent for this long is still shown, as lost.
const FORGET: Duration = Duration::from_secs(24 * 3600);

/// A node is lost after so many questions in a row without an answer.
const MISSED: u32 = 3;

/// What a node says of itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeReport {
    /// `cluster.name`.
    pub name: String,
    /// Made at each start of the daemon: two answers of one process have the same.
    pub instance: String,
    /// The version of paddock.
    pub version: String,
    /// Sessions with a container.
    pub sessions: u64,
    /// Sessions that it can take before it has to evict one.
    pub free: u32,
    /// Sessions that it owns by the table of owners.
    pub owned: u64,
    /// Whether it was told to drain.
    pub draining: bool,
    /// Whether it would serve a new session: what `/ready` says.
    pub ready: bool,
    /// What it holds of limits of tenants. Nodes of earlier versions tell nothing.
    #[serde(default)]
    pub limits: ToldLimits,
    /// What tenants have used at it of limits over an hour and a day. Nodes of earlier versions tell nothing.
    #[serde(default)]
    pub amounts: ToldAmounts,
}

/// A node that has answered.
#[derive(Debug, Clone)]
pub struct KnownNode {
    /// What it said last.
    pub report: NodeReport,
    /// Where it said it.
    pub address: SocketAddr,
    /// When.
    pub seen: Instant,
    /// How long the answer took.
    pub took: Duration,
    /// Questions since then that it has not answered.
    missed: u32,
    /// Whether [`View::newly_lost`] has named it.
    is_told: bool,
}

impl KnownNode {
    fn is_lost(&self, lost_after: Duration, now: Instant) -> bool {
        self.missed >= MISSED || now.saturating_duration_since(self.seen) > lost_after
    }
}

/// What a report changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Heard {
    /// It is this node itself.
    Myself,
    /// Nothing but its figures.
    Known,
    /// It is new, back, or was started again.
    New,
    /// Another node of this name answers elsewhere: one of the two needs another name.
    NameTaken,
}

/// See the module documentation.
#[derive(Debug)]
pub struct View {
    name: String,
    instance: String,
    lost_after: Duration,
    nodes: BTreeMap<String, KnownNode>,
}

impl View {
    /// The view of the node of this name and start; nobody else is known.
    #[must_use]
    pub fn new(name: &str, instance: &str, lost_after: Duration) -> Self {
        Self { name: name.to_owned(), instance: instance.to_owned(), lost_after, nodes: BTreeMap::new() }
    }

    /// How long a node may be silent; more nodes are asked less often.
    pub fn set_lost_after(&mut self, lost_after: Duration) {
        self.lost_after = lost_after;
    }

    /// A node at this address has answered.
    pub fn heard(&mut self, report: NodeReport, address: SocketAddr, took: Duration, now: Instant) -> Heard {
        if report.instance == self.instance {
            return Heard::Myself;
        }
        if report.name == self.name {
            return Heard::NameTaken;
        }
        let known = self.nodes.get(&report.name);
        let was_there = known.is_some_and(|known| self.answers(known, now));
        // The same process may answer at several addresses; a daemon that was replaced answers at its own.
        let is_same =
            known.is_none_or(|known| known.address == address || known.report.instance == report.instance);
        if was_there && !is_same {
            return Heard::NameTaken;
        }
        let is_new = !was_there || known.is_some_and(|known| known.report.instance != report.instance);
        let node = KnownNode { report, address, seen: now, took, missed: 0, is_told: false };
        self.nodes.insert(node.report.name.clone(), node);
        if is_new { Heard::New } else { Heard::Known }
    }

    /// A question to this address got no answer.
    pub fn missed(&mut self, address: SocketAddr) {
        for node in self.nodes.values_mut().filter(|node| node.address == address) {
            node.missed = node.missed.saturating_add(1);
        }
    }

    /// A call could not be passed on to this node: it becomes a suspect, and no more by any number of calls.
    pub fn suspect(&mut self, name: &str) {
        if let Some(node) = self.nodes.get_mut(name) {
            node.missed = node.missed.max(1);
        }
    }

    /// Where the nodes are that missed a question and are not lost.
    pub fn suspects(&self, now: Instant) -> impl Iterator<Item = SocketAddr> {
        let suspects = self.nodes.values().filter(move |node| node.missed > 0 && self.answers(node, now));
        suspects.map(|node| node.address)
    }

    /// Forgets nodes that have been silent for too long, and returns the names of those that were lost since
    /// this was called last.
    pub fn newly_lost(&mut self, now: Instant) -> Vec<String> {
        self.nodes.retain(|_, node| now.saturating_duration_since(node.seen) < FORGET);
        let lost_after = self.lost_after;
        let lost = self.nodes.values_mut().filter(|node| !node.is_told && node.is_lost(lost_after, now));
        lost.map(|node| {
            node.is_told = true;
            node.report.name.clone()
        })
        .collect()
    }

    /// Where a node answers; `None` if it does not.
    #[must_use]
    pub fn address(&self, name: &str, now: Instant) -> Option<SocketAddr> {
        self.nodes.get(name).filter(|node| self.answers(node, now)).map(|node| node.address)
    }

    /// The name of the node that has this tag, whether it answers or not.
    #[must_use]
    pub fn name_of(&self, tag: NodeTag) -> Option<&str> {
        self.nodes.keys().map(String::as_str).find(|name| NodeTag::of(name) == tag)
    }

    /// Whether a node is not lost.
    #[must_use]
    pub fn answers(&self, node: &KnownNode, now: Instant) -> bool {
        !node.is_lost(self.lost_after, now)
    }

    /// All other nodes, by name, those that are lost too.
    pub fn nodes(&self) -> impl Iterator<Item = &KnownNode> {
        self.nodes.values()
    }

    /// What placement takes: the other nodes, and this one with this load.
    #[must_use]
    pub fn loads(&self, own: NodeLoad, now: Instant) -> Vec<NodeLoad> {
        let others = self.nodes.values().map(|node| NodeLoad {
            name: node.report.name.clone(),
            free: node.report.free,
            takes_new: self.answers(node, now) && node.report.ready && !node.report.draining,
        });
        std::iter::once(own).chain(others).collect()
    }
}

/// A node as another sees it.
#[derive(Debug, Clone)]
pub struct SeenNode {
    /// What it said last.
    pub report: NodeReport,
    /// Where it answers; `None` for the node itself.
    pub address: Option<SocketAddr>,
    /// Whether it is not lost.
    pub answers: bool,
    /// How long ago it answered.
    pub silent: Duration,
    /// How long its last answer took; `None` for the node itself.
    pub took: Option<Duration>,
}

impl SeenNode {
    /// In one word: `lost`, `draining`, `unready` or `up`.
    #[must_use]
    pub fn state(&self) -> &'static str {
        match (self.answers, self.report.draining, self.report.ready) {
            (false, ..) => "lost",
            (true, true, _) => "draining",
            (true, false, false) => "unready",
            (true, false, true) => "up",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOST: Duration = Duration::from_secs(3);

    fn report(name: &str, instance: &str) -> NodeReport {
        let (name, instance) = (name.to_owned(), instance.to_owned());
        let (version, limits, amounts) = (String::new(), ToldLimits::new(), ToldAmounts::new());
        let (draining, ready) = (false, true);
        let (sessions, free, owned) = (1, 9, 1);
        NodeReport { name, instance, version, sessions, free, owned, draining, ready, limits, amounts }
    }

    fn at(port: u16) -> SocketAddr {
        ([127, 0, 0, 1], port).into()
    }

    fn own() -> NodeLoad {
        NodeLoad { name: "me".to_owned(), free: 1, takes_new: true }
    }

    #[test]
    fn a_node_is_known_lost_and_back() {
        let (mut view, start) = (View::new("me", "0", LOST), Instant::now());
        let hear = |view: &mut View, after: Duration| {
            view.heard(report("b", "1"), at(1), Duration::ZERO, start + after)
        };
        assert_eq!(hear(&mut view, Duration::ZERO), Heard::New);
        assert_eq!(hear(&mut view, LOST), Heard::Known);
        assert_eq!(view.address("b", start + 2 * LOST), Some(at(1)));
        let late = start + 2 * LOST + Duration::from_millis(1);
        assert_eq!(view.address("b", late), None);
        assert_eq!(view.newly_lost(late), ["b"]);
        assert!(view.newly_lost(late + LOST).is_empty(), "it is told once");
        assert!(!view.loads(own(), late)[1].takes_new);
        assert_eq!(view.name_of(NodeTag::of("b")), Some("b"));
        assert_eq!(hear(&mut view, 3 * LOST), Heard::New);
        view.newly_lost(start + 3 * LOST + FORGET);
        assert_eq!(view.nodes().count(), 0);
    }

    #[test]
    fn a_node_that_misses_three_questions_is_lost_however_long_a_round_is() {
        let (mut view, now) = (View::new("me", "0", Duration::from_secs(61)), Instant::now());
        view.heard(report("b", "1"), at(1), Duration::ZERO, now);
        view.heard(report("c", "2"), at(2), Duration::ZERO, now);
        assert_eq!(view.suspects(now).count(), 0);
        for _ in 0..2 {
            view.missed(at(1));
            assert_eq!(view.suspects(now).collect::<Vec<_>>(), [at(1)]);
            assert!(view.newly_lost(now).is_empty() && view.address("b", now).is_some());
        }
        view.missed(at(1));
        assert_eq!(view.newly_lost(now), ["b"]);
        assert_eq!(
            (view.address("b", now), view.suspects(now).count()),
            (None, 0),
            "and asked as seldom as others"
        );
        assert_eq!(view.heard(report("b", "1"), at(1), Duration::ZERO, now), Heard::New);
        view.missed(at(1));
        view.heard(report("b", "1"), at(1), Duration::ZERO, now);
        view.missed(at(1));
        view.missed(at(1));
        assert!(view.address("b", now).is_some(), "only questions in a row count");
    }

    #[test]
    fn calls_that_cannot_be_passed_on_make_a_suspect_and_nobody_lost() {
        let (mut view, now) = (View::new("me", "0", LOST), Instant::now());
        view.heard(report("b", "1"), at(1), Duration::ZERO, now);
        (0..9).for_each(|_| view.suspect("b"));
        assert_eq!(view.suspects(now).collect::<Vec<_>>(), [at(1)]);
        assert!(view.address("b", now).is_some(), "a question decides");
        view.suspect("nobody");
    }

    #[test]
    fn a_node_that_drains_or_is_not_ready_takes_nothing_new_and_can_be_reached() {
        let (mut view, now) = (View::new("me", "0", LOST), Instant::now());
        for (name, draining, ready) in [("b", true, true), ("c", false, false), ("d", false, true)] {
            let said = NodeReport { draining, ready, ..report(name, name) };
            view.heard(said, at(name.as_bytes()[0].into()), Duration::ZERO, now);
        }
        let takes: Vec<_> = view.loads(own(), now).into_iter().map(|load| load.takes_new).collect();
        assert_eq!(takes, [true, false, false, true]);
        assert!(view.address("b", now).is_some() && view.address("c", now).is_some());
    }

    #[test]
    fn two_nodes_of_one_name_are_told_apart() {
        let (mut view, now) = (View::new("me", "0", LOST), Instant::now());
        let mut hear = |said, port, after| view.heard(said, at(port), Duration::ZERO, now + after);
        assert_eq!(hear(report("me", "0"), 1, Duration::ZERO), Heard::Myself);
        assert_eq!(hear(report("me", "1"), 2, Duration::ZERO), Heard::NameTaken);
        assert_eq!(hear(report("b", "2"), 3, Duration::ZERO), Heard::New);
        assert_eq!(hear(report("b", "2"), 4, Duration::ZERO), Heard::Known, "at another of its addresses");
        assert_eq!(hear(report("b", "3"), 5, Duration::ZERO), Heard::NameTaken);
        assert_eq!(hear(report("b", "3"), 4, Duration::ZERO), Heard::New, "it was started again");
        assert_eq!(hear(report("b", "4"), 5, 2 * LOST), Heard::New, "it came back elsewhere");
    }
}
