//! A burst of calls, and SIGTERM in the middle of it.

use std::collections::BTreeMap;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use serde_json::Value;

use crate::support::{Daemon, Ran, Store};

const CALLS: usize = 400;
/// The signal comes after so many answers.
const BEFORE: usize = 20;

/// Refusals of a daemon that is busy or stops.
const REFUSALS: [&str; 4] = ["queue_full", "max_sessions", "engine_unavailable", "lost"];

#[tokio::test]
async fn sigterm_in_the_middle_of_a_burst_loses_nothing_that_was_answered() {
    let store = Store::new();
    let d = Daemon::with().store(&store).set("shutdown.drain", "3s").start().await;
    d.session("warm").sh("true").await.expect_success();
    let mut calls: FuturesUnordered<_> = (0..CALLS)
        .map(|n| {
            let s = d.session(&format!("s{}", n % 50));
            let name = format!("f{n}");
            let call = if n % 4 == 0 {
                s.sh(&format!("echo {n} > {name}"))
            } else {
                s.upload(&name, format!("{n}\n").as_bytes())
            };
            async move { (n, call.try_answer().await) }
        })
        .collect();
    let (mut saved, mut refused, mut unanswered) = (Vec::new(), BTreeMap::new(), 0);
    let mut answers = 0;
    while let Some((n, answer)) = calls.next().await {
        answers += 1;
        if answers == BEFORE {
            d.terminate();
        }
        let Some(answer) = answer else {
            unanswered += 1;
            continue;
        };
        if answer.get("result").is_none() {
            // A daemon that stops refuses as the protocol does.
            *refused.entry(answer["error"]["code"].to_string()).or_insert(0) += 1;
            continue;
        }
        let ran = Ran::of(answer);
        match ran.document["error"].as_str() {
            None => {
                assert_eq!(ran.document["success"], true, "{}", ran.document);
                saved.push(n);
            }
            Some(code) => {
                assert!(REFUSALS.contains(&code), "{}", ran.document);
                *refused.entry(code.to_owned()).or_insert(0) += 1;
            }
        }
    }
    drop(calls);
    eprintln!("{} saved, {refused:?} refused, {unanswered} without an answer", saved.len());
    assert!(saved.len() >= BEFORE && saved.len() < CALLS, "the signal came too late");
    d.log.line("stopped").await;
    drop(d);
    let d = Daemon::with().store(&store).start().await;
    for n in saved {
        let got = d.request("GET", &format!("/sessions/s{}/files/f{n}", n % 50)).send().await.expect(200);
        assert_eq!(got.text(), format!("{n}\n"));
    }
    // What was not answered happened as a whole, or not at all.
    for n in 0..50 {
        let listed = d.session(&format!("s{n}")).tool("list_artifacts").await;
        for one in listed.document["artifacts"].as_array().into_iter().flatten() {
            assert_ne!(one["size_bytes"], Value::from(0), "{one}");
        }
    }
    d.stop().await;
}
