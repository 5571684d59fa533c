//! The rules of parts by examples, and by nodes whose steps come in any order.

use proptest::prelude::*;

use super::*;

fn holds(held: u64, used: u64) -> Holding {
    Holding { held, used, ..Holding::default() }
}

#[test]
fn nodes_at_rest_plan_even_parts_and_one_more_than_they_used() {
    let others = [("b", holds(4, 0)), ("c", holds(4, 1))];
    assert_eq!(plan("a", holds(0, 0), 0, &others, 12), Plan { claim: 4, gives_up: 0 });
    assert_eq!(plan("a", holds(4, 2), 6, &others, 12).claim, 7);
    assert_eq!(plan("a", holds(0, 0), 0, &others, 2).claim, 1);
    assert_eq!(plan("a", holds(9, 9), 50, &[], 12).claim, 12);
}

#[test]
fn what_others_want_is_given_up_and_divided_between_those_that_want_it() {
    let wants = |used, wants| Holding { held: used, used, idle: 0, wants };
    assert_eq!(plan("a", holds(6, 2), 6, &[("b", wants(6, 4))], 12), Plan { claim: 2, gives_up: 0 });
    assert_eq!(plan("b", wants(6, 4), 6, &[("a", holds(6, 2))], 12).claim, 10);
    assert_eq!(plan("b", wants(6, 400), 6, &[("a", holds(6, 2))], 12).claim, 10);
    // A node that needs little gets all of that. The other two divide the rest evenly.
    let all = [("a", wants(0, 1)), ("b", wants(1, 9)), ("c", wants(9, 9))];
    let claims = all.map(|(name, own)| {
        let others: Vec<_> = all.into_iter().filter(|(other, _)| *other != name).collect();
        plan(name, own, 0, &others, 12).claim
    });
    assert_eq!(claims, [1, 5, 6]);
}

#[test]
fn what_is_idle_is_given_up_where_there_is_most_and_no_more_than_is_missing() {
    let rests = |used, idle| Holding { held: used, used, idle, wants: 0 };
    let wants = ("c", Holding { held: 0, used: 0, idle: 0, wants: 2 });
    let plan_of = |name, own, other| plan(name, own, 0, &[other, wants], 6).gives_up;
    assert_eq!(plan_of("a", rests(4, 3), ("b", rests(2, 2))), 2);
    assert_eq!(plan_of("b", rests(2, 2), ("a", rests(4, 3))), 0, "a gives both");
    assert_eq!(plan_of("a", rests(3, 1), ("b", rests(3, 1))), 1);
    assert_eq!(plan_of("b", rests(3, 1), ("a", rests(3, 1))), 1);
    assert_eq!(plan_of("a", rests(2, 2), ("b", rests(2, 2))), 0, "two are left for them");
    // Two nodes have used one each of one, at one time: one of the two gives it up.
    let over = |name, other| plan(name, rests(1, 1), 1, &[(other, rests(1, 1))], 1);
    let (gives, keeps) = (Plan { claim: 0, gives_up: 1 }, Plan { claim: 1, gives_up: 0 });
    assert_eq!((over("a", "b"), over("b", "a")), (gives, keeps));
}

#[test]
fn a_part_grows_only_by_what_all_others_leave() {
    assert_eq!(settle(5, 1, 9, 12, true), 3);
    assert_eq!(settle(5, 1, 0, 12, false), 1, "one has not answered");
    assert_eq!(settle(2, 4, 20, 12, true), 0);
    assert_eq!((may_use(0, 3, 4, 1), may_use(0, 4, 4, 1), may_use(2, 9, 4, 1)), (1, 0, 2));
}

const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];

/// A node, and the others as it heard them last.
#[derive(Clone, Default)]
struct Node {
    part: u64,
    claim: u64,
    used: u64,
    wants: u64,
    heard: Vec<Holding>,
    /// The nodes that it has still to ask in this round.
    to_ask: Option<Vec<usize>>,
}

impl Node {
    fn holding(&self) -> Holding {
        let held = self.part.max(self.claim).max(self.used);
        Holding { held, used: self.used, idle: 0, wants: self.wants }
    }
}

struct Nodes {
    all: Vec<Node>,
    limit: u64,
}

impl Nodes {
    fn new(nodes: usize, limit: u64) -> Self {
        let node = Node { heard: vec![Holding::default(); nodes], ..Node::default() };
        Self { all: vec![node; nodes], limit }
    }

    fn publish(&mut self, at: usize) {
        let heard = self.all[at].heard.clone();
        let others: Vec<_> = (0..self.all.len()).filter(|n| *n != at).map(|n| (NAMES[n], heard[n])).collect();
        let node = &mut self.all[at];
        node.claim = plan(NAMES[at], node.holding(), node.used, &others, self.limit).claim;
        node.part = node.part.min(node.claim);
        node.to_ask = Some((0..heard.len()).filter(|n| *n != at).collect());
    }

    /// One step of a round: it publishes, asks one node, or settles.
    fn step(&mut self, at: usize) {
        let Some(mut to_ask) = self.all[at].to_ask.take() else { return self.publish(at) };
        if let Some(asked) = to_ask.pop() {
            self.all[at].heard[asked] = self.all[asked].holding();
            self.all[at].to_ask = Some(to_ask);
            return;
        }
        let limit = self.limit;
        let node = &mut self.all[at];
        let hold = node.heard.iter().enumerate().filter(|(n, _)| *n != at).map(|(_, heard)| heard.held).sum();
        node.part = settle(node.claim, node.part, hold, limit, true);
        node.claim = node.part;
    }

    fn round(&mut self, at: usize) {
        while self.all[at].to_ask.is_none() {
            self.step(at);
        }
        while self.all[at].to_ask.is_some() {
            self.step(at);
        }
    }

    /// A call comes; whether it is admitted.
    fn come(&mut self, at: usize) -> bool {
        let limit = self.limit;
        let node = &mut self.all[at];
        let others =
            node.heard.iter().enumerate().filter(|(n, _)| *n != at).map(|(_, heard)| heard.used).sum();
        let is_in = node.used < may_use(node.part, others, limit, 1);
        if is_in {
            node.used += 1;
        } else {
            node.wants += 1;
        }
        is_in
    }

    fn used(&self) -> u64 {
        self.all.iter().map(|node| node.used).sum()
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn no_order_of_steps_admits_more_than_one_over_for_each_other_node(
        nodes in 2_usize..=5,
        limit in 0_u64..12,
        steps in prop::collection::vec((0_usize..5, 0_u8..10), 0..400),
    ) {
        let mut all = Nodes::new(nodes, limit);
        for (at, what) in steps {
            let at = at % nodes;
            match what {
                0..=5 => all.step(at),
                6..=7 => drop(all.come(at)),
                8 => all.all[at].used = all.all[at].used.saturating_sub(1),
                _ => all.all[at].wants = 0,
            }
            let parts: u64 = all.all.iter().map(|node| node.part).sum();
            prop_assert!(parts <= limit, "{parts} of {limit}");
            let most = if limit == 0 { 0 } else { limit + nodes as u64 - 1 };
            prop_assert!(all.used() <= most, "{} of {limit} at {nodes} nodes", all.used());
        }
    }

    #[test]
    fn what_is_wanted_at_one_node_comes_there_in_three_rounds(
        nodes in 2_usize..=5, limit in 1_u64..40, hot in 0_usize..5,
    ) {
        let (mut all, hot) = (Nodes::new(nodes, limit), hot % nodes);
        for _ in 0..3 {
            (0..nodes).for_each(|at| all.round(at));
        }
        let parts: u64 = all.all.iter().map(|node| node.part).sum();
        prop_assert_eq!(parts, limit, "at rest nothing is held back");
        all.all[hot].wants = limit;
        for _ in 0..3 {
            (0..nodes).for_each(|at| all.round(at));
        }
        prop_assert_eq!(all.all[hot].part, limit);
        // Then another wants as much: each of the two comes to half of it as calls end.
        let other = (hot + 1) % nodes;
        (all.all[hot].used, all.all[other].wants) = (limit, limit);
        for _ in 0..2 * limit + 3 {
            (0..nodes).for_each(|at| all.round(at));
            let hot = &mut all.all[hot];
            hot.used = hot.used.min(hot.part).max(hot.used.saturating_sub(1));
            hot.wants = limit;
        }
        prop_assert!(all.all[hot].part >= limit / 2 && all.all[other].part >= limit / 2);
    }
}
