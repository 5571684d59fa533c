//! Idle containers, and what happens when all are in use.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use paddock::engine::{ContainerSpec, ImageRef};
use serde_json::json;
use tokio::join;

use crate::support::{Cleared, Daemon, Image, PATIENCE};

#[tokio::test]
async fn every_runner_has_its_idle_containers_and_a_leased_one_is_replaced() {
    let d = Daemon::with().set("pool.idle", 1).start().await;
    let view = d.view().await;
    for language in ["python", "typescript", "sh"] {
        d.log.line(&format!("armed language={language} ")).await;
        assert_eq!(view.containers_for(language).await.len(), 1, "{language}");
    }
    let before = view.the_container("sh").await;
    let mark = d.log.mark();
    let uid = d.session("one").sh("id -u").await.expect_success().stdout().trim().to_owned();
    d.log.line_since(mark, "armed language=sh ").await;
    let after = view.containers_for("sh").await;
    assert_eq!(after.len(), 2, "the leased one and another idle one");
    let leased = after.iter().find(|container| container.id == before).expect("the warm one was leased");
    assert_eq!(leased.labels["paddock.uid"], uid);
    let all = view.containers().await;
    let uids: BTreeSet<_> = all.iter().map(|container| container.labels["paddock.uid"].clone()).collect();
    assert_eq!(uids.len(), all.len(), "each has a UID of its own");
    assert_eq!(view.volumes().await.len(), all.len());

    // An idle container that dies is replaced as well.
    let idle = after.iter().find(|container| container.id != before).expect("an idle one").id.clone();
    let mark = d.log.mark();
    view.kill(&idle).await;
    d.log.line_since(mark, "armed language=sh ").await;
    d.session("two").sh("echo fine").await.expect_stdout("fine\n");
    d.stop().await;
}

#[tokio::test]
async fn the_longest_idle_session_is_evicted_and_keeps_its_files() {
    let d = Daemon::with().set("sessions.max", 2).start().await;
    let view = d.view().await;
    let mut events = view.follow().await;
    let put = |name: &str| format!("echo of-{name} > f; echo done");
    d.session("a").sh(&put("a")).await.expect_stdout("done\n");
    let of_a = view.the_container("sh").await;
    d.session("b").sh(&put("b")).await.expect_stdout("done\n");
    d.session("c").sh(&put("c")).await.expect_stdout("done\n");
    events.removal_of(&of_a, PATIENCE).await;
    assert_eq!(view.containers().await.len(), 2);
    d.session("b").sh("cat f").await.expect_stdout("of-b\n");
    d.session("a").sh("cat f").await.expect_stdout("of-a\n"); // in place of c
    d.session("c").sh("cat f").await.expect_stdout("of-c\n");

    // No busy session is evicted: a call that comes then waits for the first one that becomes idle.
    let mark = d.log.mark();
    let [a, b, c] = ["a", "b", "c"].map(|name| d.session(name));
    let (ran_a, ran_b, ran_c) = join!(
        async { a.sh("echo go; sleep 3; cat f").await },
        async { b.sh("echo go; sleep 3").await },
        async {
            d.log.line_since(mark, "request").await;
            d.log.line_since(mark, "armed").await;
            c.sh("cat f").await
        },
    );
    ran_a.expect_stdout("go\nof-a\n");
    ran_b.expect_stdout("go\n");
    ran_c.expect_stdout("of-c\n");
    events.at_most(2, &view).await;
    assert_eq!(view.containers().await.len(), 2);
    d.stop().await;
}

#[tokio::test]
async fn a_call_that_waited_too_long_for_busy_sessions_is_told_so() {
    // `pool.wait` bounds the start of a container too, which beside other tests takes some seconds.
    let d = Daemon::with().set("sessions.max", 1).set("pool.wait", "15s").start().await;
    let (a, b) = (d.session("a"), d.session("b"));
    let mark = d.log.mark();
    let (ran, refused) = join!(async { a.sh("echo go; sleep 28").timeout(60.0).await }, async {
        d.log.line_since(mark, "armed").await;
        b.sh("echo x").await.expect_error("max_sessions")
    });
    ran.expect_stdout("go\n");
    let message = refused.text("message");
    assert!(message.contains("sessions.max") && message.contains("15 s"), "{message}");
    b.sh("echo x").await.expect_stdout("x\n");
    d.stop().await;
}

/// More calls than may have a container, and more than were allowed to wait before. The speed of starting
/// containers is not what is tested, so no call times out.
#[tokio::test]
async fn two_hundred_calls_at_once_all_succeed_in_new_sessions_and_in_one() {
    let d = Daemon::with().set("pool.wait", "20m").start().await;
    let begun = Instant::now();
    let calls = (0..200).map(|n| {
        let call = d.tool("run_code", json!({ "language": "sh", "code": format!("echo {n}") }));
        async move { (n, call.await, begun.elapsed()) }
    });
    let mut longest = Duration::ZERO;
    for (n, ran, took) in join_all(calls).await {
        ran.expect_stdout(&format!("{n}\n"));
        longest = longest.max(took);
    }
    println!(
        "200 new sessions: {:.1} a second, the longest wait {longest:.1?}",
        200.0 / longest.as_secs_f64()
    );
    let begun = Instant::now();
    let one = d.session("one");
    let calls = (0..200).map(|n| one.sh(&format!("echo {n} >> all; echo {n}")).into_future());
    for (n, ran) in join_all(calls).await.into_iter().enumerate() {
        ran.expect_stdout(&format!("{n}\n"));
    }
    println!("200 in one session: {:.1?}", begun.elapsed());
    one.sh("sort -u all | wc -l").await.expect_stdout("200\n");
    d.stop().await;
}

#[tokio::test]
async fn commands_wait_for_a_container_too() {
    let d = Daemon::start().await;
    let one = d.session("one");
    let calls = (0..20).map(|n| one.tool("execute_code").with("command", format!("echo {n}")).into_future());
    for (n, ran) in join_all(calls).await.into_iter().enumerate() {
        assert_eq!(ran.document["status"], "completed", "{n}: {}", ran.document);
    }
    d.stop().await;
}

#[tokio::test]
async fn one_session_too_many_is_refused_if_so_configured() {
    let d = Daemon::with().set("sessions.max", 1).set("sessions.when_full", "refuse").start().await;
    d.session("a").sh("echo a").await.expect_stdout("a\n");
    let begun = Instant::now();
    d.session("b").sh("echo b").await.expect_error("max_sessions");
    assert!(begun.elapsed() < Duration::from_secs(2), "quickly: {:?}", begun.elapsed());
    d.session("b").upload("f", b"x").await.expect_success(); // needs no container
    d.session("a").sh("echo a").await.expect_stdout("a\n");
    d.stop().await;
}

#[tokio::test]
async fn queues_are_limited() {
    let d =
        Daemon::with().set("sessions.queue", 1).set("pool.queue", 1).set("pool.starting", 1).start().await;
    let s = d.session("a");
    s.sh("true").await.expect_success();
    let mark = d.log.mark();
    let (first, second, third) = join!(
        async { s.sh("sleep 8").await },
        async {
            d.log.line_since(mark, "request").await;
            s.sh("true").await
        },
        async {
            d.log.line_since(mark, "request").await;
            s.sh("true").await
        },
    );
    let mut ends: Vec<_> = [first, second, third]
        .iter()
        .map(|ran| ran.document["error"].as_str().unwrap_or("ran").to_owned())
        .collect();
    ends.sort();
    assert_eq!(ends, ["queue_full", "ran", "ran"]);

    // The pool's own queue: one call waits for a container, no more.
    let [b, c, e] = ["b", "c", "e"].map(|name| d.session(name));
    let (b, c, e) =
        join!(async { b.sh("true").await }, async { c.sh("true").await }, async { e.sh("true").await });
    let mut ends: Vec<_> =
        [b, c, e].iter().map(|ran| ran.document["error"].as_str().unwrap_or("ran").to_owned()).collect();
    ends.sort();
    assert_eq!(ends, ["queue_full", "queue_full", "ran"]);
    d.session("c").sh("echo later").await.expect_stdout("later\n");
    d.stop().await;
}

#[tokio::test]
async fn no_call_waits_longer_than_configured() {
    // `pool.wait` bounds the start of a container too, which beside other tests takes some seconds.
    let d = Daemon::with().set("pool.max_containers", 1).set("pool.wait", "15s").start().await;
    let (a, b) = (d.session("a"), d.session("b"));
    let mark = d.log.mark();
    let (ran, (took, refused)) = join!(async { a.sh("echo a; sleep 40").timeout(60.0).await }, async {
        d.log.line_since(mark, "armed").await;
        let begun = Instant::now();
        let refused = b.sh("echo b").await.expect_error("queue_full");
        (begun.elapsed(), refused)
    });
    ran.expect_stdout("a\n");
    assert!(Duration::from_secs(15) <= took && took < Duration::from_secs(30), "{took:?}");
    assert!(refused.text("message").contains("in use"), "{}", refused.document);
    // If no further container may be started, an idle session is evicted for one.
    b.sh("echo b").await.expect_stdout("b\n");
    d.stop().await;
}

#[tokio::test]
async fn a_session_that_is_idle_too_long_loses_its_container() {
    let d = Daemon::with()
        .set("pool.idle", 1)
        .set("pool.idle_ttl", "6s")
        .set("sessions.ttl", "1s")
        .set("sessions.sweep", "1s")
        .start()
        .await;
    let view = d.view().await;
    d.log.line("armed language=sh ").await;
    let mut events = view.follow().await;
    let idle = view.the_container("sh").await;
    events.removal_of(&idle, PATIENCE).await; // and another one is started
    let ran = d
        .session("s")
        .sh("echo kept > f; hostname; cat /proc/sys/kernel/random/boot_id > /dev/null")
        .await
        .expect_success();
    assert_eq!(ran.files(), ["f"]);
    let line = d.log.line("containers released").await;
    assert!(line.contains("session_id=s") && line.contains("why=idle"), "{line}");
    d.session("s").sh("cat f").await.expect_stdout("kept\n");
    d.stop().await;
}

#[tokio::test]
async fn an_image_that_appears_later_is_used() {
    let name = format!("paddock-e2e-{}", std::process::id());
    let _cleared = Cleared::of("nobody").and_image(&name);
    let d = Daemon::with().set("runners.later", name.as_str()).start().await;
    let warning = d.log.line(&name).await;
    assert!(warning.contains("runners.later"), "{warning}");
    d.run("later", "echo here").await.expect_error("unknown_language");

    // A copy of the plain image, labelled so that no other daemon uses it as a runner.
    let view = d.view().await;
    let spec = ContainerSpec { image: "paddock-example-sh".into(), ..ContainerSpec::default() };
    let made = view.engine.container_create(None, &spec).await.expect("a container").id;
    let commit = format!("POST /commit?container={made}&repo={name}&changes=LABEL%20sandbox.runner%3Dno");
    let committed = view.ask(&commit, "{}").await;
    view.engine.container_remove(&made).await.expect("removed");
    assert!(committed.contains("201 Created"), "{committed}");

    d.log.line("runner found language=later").await;
    d.run("later", "echo here").await.expect_stdout("here\n");
    let answer = d.tool("list_runners", json!({})).await.document.to_string();
    assert!(answer.contains(&name), "{answer}");

    let mark = d.log.mark();
    let gone = view.ask(&format!("DELETE /images/{name}?force=true"), "").await;
    assert!(gone.contains("200 OK"), "{gone}");
    d.log.line_since(mark, "runner gone").await;
    d.run("later", "echo here").await.expect_error("unknown_language");
    assert!(view.engine.image_inspect(&name.parse::<ImageRef>().expect("a name")).await.is_err());
    d.stop().await;
}

#[tokio::test]
async fn a_call_that_waits_while_its_image_is_replaced_is_served_by_the_next_image() {
    let image = |n| {
        // Labelled so that no other daemon uses it as a runner.
        Image::build(&format!("FROM paddock-example-sh\nLABEL sandbox.runner=no\nENV N={n}\n"), &[])
    };
    let (first, second) = (image(1), image(2));
    let d = Daemon::with().set("runners.changing", first.name()).set("pool.idle", 0).start().await;
    let mark = d.log.mark();
    // More than start at a time, so that some wait long.
    let calls = (0..8).map(|n| d.session(&format!("s{n}")).run("changing", "echo $N").into_future());
    let (all, ()) = join!(join_all(calls), async {
        d.log.line_since(mark, "request method=POST").await;
        second.tag(first.name());
        d.log.line_since(mark, "runner gone or replaced language=changing").await;
    });
    for ran in all {
        let ran = ran.expect_success();
        assert!(["1\n", "2\n"].contains(&ran.stdout()), "{}", ran.document); // with the image of that moment
    }
    d.run("changing", "echo $N").await.expect_stdout("2\n");
    d.stop().await;
}
