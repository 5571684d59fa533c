//! The servers of a store of many machines: whether both answer with these settings, and which nodes live.
//!
//! It must never make or change anything there.

use std::time::Duration;

use paddock_ledger::{Ledger, NodeRow, Terms};

use super::check::{Check, Checks, Group};
use crate::app::ledger;
use crate::config::Config;

/// How long both servers may take.
const TIME: Duration = Duration::from_secs(30);

/// Looks at both servers, if the store is one of many machines.
pub(super) async fn examine(config: &Config) -> Vec<Check> {
    let Some(settings) = ledger(config, "doctor") else { return Vec::new() };
    let looked = tokio::time::timeout(TIME, Ledger::look(&settings)).await;
    judge(looked.map(|looked| looked.map_err(|error| error.to_string())).unwrap_or_else(|_| {
        Err(format!("PostgreSQL and S3 did not both answer within {} s", TIME.as_secs()))
    }))
}

fn judge(looked: Result<Vec<NodeRow>, String>) -> Vec<Check> {
    let mut checks = Checks::of(Group::Store);
    match looked {
        Err(why) => checks.fail(
            "shared store",
            why,
            "the daemon needs both servers to start; see store.url, store.objects, store.credentials",
        ),
        Ok(nodes) => {
            let of = |node: &NodeRow| {
                let state = match (node.has_left, node.age > Terms::default().takeover_after()) {
                    (true, _) => "has left".to_owned(),
                    (false, true) => format!("is dead for {} s", node.age.as_secs()),
                    (false, false) => "lives".to_owned(),
                };
                format!("{} {state}", node.name)
            };
            let nodes: Vec<_> = nodes.iter().map(of).collect();
            let known = if nodes.is_empty() { "no node yet".to_owned() } else { nodes.join(", ") };
            checks.ok("shared store", format!("PostgreSQL and S3 answer; {known}"));
        }
    }
    checks.done()
}

#[cfg(test)]
mod tests {
    use super::super::check::Status;
    use super::*;

    #[test]
    fn a_server_that_does_not_answer_fails_and_nodes_are_told_by_their_state() {
        let failed = judge(Err("the database is away".to_owned()));
        assert_eq!((failed[0].status, failed[0].found.as_str()), (Status::Fail, "the database is away"));
        let node = |name: &str, age, has_left| {
            let (name, address) = (name.to_owned(), String::new());
            NodeRow { name, address, free: 0, age: Duration::from_secs(age), has_left }
        };
        let seen = judge(Ok(vec![node("a", 1, false), node("b", 60, false), node("c", 60, true)]));
        assert_eq!(seen[0].found, "PostgreSQL and S3 answer; a lives, b is dead for 60 s, c has left");
    }
}
