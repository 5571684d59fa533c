//! A machine that is cut off from the others, from the database and from S3, while callers still reach it.

use std::time::{Duration, Instant};

use super::{LOOK, Machines};
use crate::support::{Daemon, PATIENCE, within};

/// The sessions of a machine that is cut off answer elsewhere within this time.
const TAKEOVER: Duration = Duration::from_secs(10);
/// A call at the machine that is cut off may wait so long for its refusal.
const REFUSED: Duration = Duration::from_secs(30);

/// A session that this node owns: one whose container is on the node's engine.
async fn session_of(machines: &Machines, at: usize, node: &Daemon) -> String {
    let view = machines.all[at].view(node).await;
    for n in 0..30 {
        let id = format!("s{n}");
        node.session(&id).sh("echo 0 > count").await.expect_success();
        if !view.containers().await.is_empty() {
            return id;
        }
    }
    panic!("the node owns none of thirty sessions");
}

/// Writes this number through a node, and says whether the node acknowledged it.
async fn wrote(node: &Daemon, session: &str, number: u64) -> bool {
    let session = node.session(session);
    let call = session.sh(&format!("echo {number} > count")).try_answer();
    let Ok(Some(answer)) = tokio::time::timeout(REFUSED, call).await else { return false };
    answer["result"]["structuredContent"]["success"] == true
}

/// The number that a node has, once it answers.
async fn read(node: &Daemon, session: &str) -> u64 {
    loop {
        let answer = node.session(session).sh("cat count").try_answer().await.expect("an answer");
        let ran = &answer["result"]["structuredContent"];
        if ran["success"] == true {
            return ran["stdout"].as_str().expect("text").trim().parse().expect("a number");
        }
        tokio::time::sleep(LOOK).await; // as a caller that calls again
    }
}

#[tokio::test]
async fn a_machine_that_is_cut_off_acknowledges_nothing_more_and_its_containers_end() {
    let machines = Machines::start(3).await;
    let nodes = machines.cluster(3).await;
    let (cut, others) = nodes.split_first().expect("three");
    let session = session_of(&machines, 0, cut).await;
    for number in 1..=5 {
        assert!(wrote(cut, &session, number).await);
    }

    machines.all[0].cut();
    let since = Instant::now();
    // Callers go on at the machine that is cut off, and at another one.
    let at_the_cut_one = async {
        for number in 100..103 {
            assert!(!wrote(cut, &session, number).await, "{number} was acknowledged");
        }
    };
    let elsewhere = async {
        let found = within(TAKEOVER, "an answer of the session elsewhere", read(&others[0], &session)).await;
        eprintln!("the session answered elsewhere {:.1?} after the cut", since.elapsed());
        assert_eq!(found, 5, "exactly what was acknowledged");
        assert!(wrote(&others[1], &session, 6).await);
    };
    let its_containers = async {
        let view = machines.all[0].view(cut).await;
        within(PATIENCE, "the end of the containers of the machine that is cut off", async {
            while !view.containers().await.is_empty() {
                tokio::time::sleep(LOOK).await;
            }
        })
        .await;
        eprintln!("its containers had ended {:.1?} after the cut", since.elapsed());
    };
    tokio::join!(at_the_cut_one, elsewhere, its_containers);

    // It comes back, and passes on what is not its own any more.
    machines.all[0].join();
    let found = within(PATIENCE, "an answer of the machine that came back", read(cut, &session)).await;
    assert_eq!(found, 6);
    for (node, machine) in nodes.into_iter().zip(&machines.all) {
        node.stop_on(&machine.engine.host()).await;
    }
}
