//! Every way in which a command can end: with its reason and state, and with nothing of it left, in the
//! container or on the host.

use std::time::{Duration, Instant};

use paddock::engine::ContainerId;
use serde_json::{Value, json};

use super::{BOTH, begin, bytes_of, connected, daemon, ended, id_of, read_all, status, types};
use crate::support::{Daemon, PATIENCE, View};

/// A program that is hard to end: orphans, sessions of their own, ignored signals.
const STUBBORN: &str = "trap '' TERM HUP INT; for n in 1 2 3; do setsid sh -c 'trap \"\" TERM; while :; do \
                        sleep 0.05; done' & done; (setsid sh -c '(setsid sleep 1000 &) &' &); echo begun; \
                        while :; do sleep 0.05; done";

/// The processes of a container, as the host sees them.
fn on_the_host(container: &ContainerId) -> usize {
    let processes = std::fs::read_dir("/proc").expect("/proc").flatten();
    let of = |entry: std::fs::DirEntry| std::fs::read_to_string(entry.path().join("cgroup")).ok();
    processes.filter_map(of).filter(|cgroup| cgroup.contains(container.as_str())).count()
}

/// The same, as the container sees them, without the process that counts.
async fn inside(view: &View, container: &ContainerId) -> usize {
    let count = "n=0; for p in /proc/[0-9]*; do n=$((n + 1)); done; echo $n";
    view.exec(container, &["sh", "-c", count]).await.trim().parse::<usize>().expect("a number") - 1
}

async fn begun(d: &Daemon, session: &str, call: Value) -> String {
    let mut arguments = call;
    arguments["session_id"] = json!(session);
    let id = id_of(&d.tool("execute_code_async", arguments).await);
    let asked = json!({ "execution_id": id, "wait": true, "since": 1 });
    let page = d.tool("get_execution_output", asked).await.document;
    assert_eq!(page["output"][0]["data"], "begun", "{page}");
    id
}

#[tokio::test]
async fn no_process_of_a_command_survives_however_it_ends() {
    let d = daemon().start().await;
    let s = d.session("s");
    s.tool("execute_code").with("command", "true").await;
    let view = d.view().await;
    let container = view.the_container("sh").await;
    let (rest, rest_inside) = (on_the_host(&container), inside(&view, &container).await);
    assert!(rest > 0);

    let forced = |id: &str| json!({ "execution_id": id, "force": true });
    for (how, command, limits, state, last) in [
        (
            "exits",
            "(setsid sleep 1000 &); setsid sh -c 'trap \"\" TERM; sleep 1000' & echo begun; exit 5",
            json!({}),
            "completed",
            "exit",
        ),
        (
            "is asked to end",
            "trap 'echo bye; exit 0' TERM; (setsid sleep 1000 &); echo begun; while :; do sleep 0.05; done",
            json!({}),
            "cancelled",
            "cancelled",
        ),
        ("does not hear that it is", STUBBORN, json!({}), "cancelled", "cancelled"),
        ("is killed", STUBBORN, json!({}), "cancelled", "cancelled"),
        ("takes too long", STUBBORN, json!({}), "timeout", "timeout"),
        (
            "has too many processes",
            "echo begun; sleep 0.3; while :; do sleep 1000 & done",
            json!({ "max_processes": 10 }),
            "failed",
            "exit",
        ),
        (
            "forks without end",
            "echo begun; sleep 0.3; bomb() { bomb | bomb & }; bomb; while sleep 0.1; do :; done; exit 2",
            json!({}),
            "failed",
            "exit",
        ),
        (
            "takes too much memory",
            "echo begun; sleep 0.3; x=$(yes | head -c 100000000 | tr -d '\\n'); sleep 1000",
            json!({ "max_memory_mb": 32 }),
            "failed",
            "exit",
        ),
        (
            "takes too much time of the processor",
            "echo begun; while :; do :; done",
            json!({ "max_cpu_seconds": 1 }),
            "failed",
            "exit",
        ),
        (
            "writes too large a file",
            "echo begun; exec head -c 9000000 /dev/zero > f",
            json!({ "max_file_size_mb": 2 }),
            "failed",
            "exit",
        ),
    ] {
        let timeout = if how == "takes too long" { 3.0 } else { 60.0 };
        let id = begun(
            &d,
            "s",
            json!({ "command": command, "timeout_seconds": timeout,
                "sandbox_config": { "resource_limits": limits } }),
        )
        .await;
        let asked = Instant::now();
        match how {
            "is asked to end" | "does not hear that it is" => {
                d.tool("cancel_execution", json!({ "execution_id": id })).await.expect_success();
                let patient = asked.elapsed() >= Duration::from_secs(5);
                assert_eq!(patient, how == "does not hear that it is", "{how}: {:?}", asked.elapsed());
            }
            "is killed" => {
                d.tool("cancel_execution", forced(&id)).await.expect_success();
                assert!(asked.elapsed() < Duration::from_secs(4), "{:?}", asked.elapsed());
            }
            _ => {}
        }
        let end = ended(&d, &id).await;
        assert_eq!(end["status"], state, "{how}: {end}");
        let events = read_all(&d, &id).await;
        assert_eq!(types(&events).last(), Some(&last), "{how}");
        assert_eq!(state == "failed", types(&events).contains(&"resource_limit"), "{how}: {events:?}");
        assert_eq!(on_the_host(&container), rest, "{how}");
        assert_eq!(inside(&view, &container).await, rest_inside, "{how}");
        if how == "is asked to end" {
            assert_eq!(bytes_of(&events, "stdout"), b"begun\nbye\n");
        }
    }
    d.stop().await;
}

/// A later request with a shorter grace period is respected.
#[tokio::test]
async fn a_command_that_was_asked_to_end_can_be_killed_meanwhile() {
    let d = daemon().start().await;
    let id = begun(&d, "s", json!({ "command": STUBBORN })).await;
    let begun = Instant::now();
    let ask = |force| d.tool("cancel_execution", json!({ "execution_id": id, "force": force }));
    let (asked, killed) = tokio::join!(ask(false), async {
        tokio::time::sleep(Duration::from_millis(200)).await; // after the other request
        ask(true).await
    });
    assert!(begun.elapsed() < Duration::from_secs(4), "{:?}", begun.elapsed());
    assert_eq!(
        (&asked.document["status"], &killed.document["status"]),
        (&json!("cancelled"), &json!("cancelled"))
    );
    d.stop().await;
}

#[tokio::test]
async fn the_limit_that_ended_a_command_is_named_with_its_exit_code() {
    let d = daemon().start().await;
    let s = d.session("s");
    for (limits, command, reason, code) in [
        (json!({ "max_cpu_seconds": 1 }), "while :; do :; done", "CPU time limit exceeded", -24),
        (
            json!({ "maxFileSizeMb": 1 }),
            "exec head -c 9000000 /dev/zero > f",
            "File size limit exceeded",
            -25,
        ),
        (
            json!({ "max_processes": 5 }),
            "for n in 1 2 3 4 5 6 7 8; do sleep 50 & done; wait",
            "Process limit exceeded",
            -9,
        ),
    ] {
        let config = json!({ "resourceLimits": limits });
        let ran = s.tool("execute_code").with("command", command).with("sandboxConfig", config).await;
        let events = ran.document["output"].as_array().expect("events");
        let [.., limit, exit] = &events[..] else { panic!("{events:?}") };
        assert_eq!((&limit["type"], &limit["reason"]), (&json!("resource_limit"), &json!(reason)));
        assert_eq!((&exit["type"], &exit["code"]), (&json!("exit"), &json!(code)), "{events:?}");
        assert_eq!((&ran.document["exit_code"], &ran.document["status"]), (&json!(code), &json!("failed")));
    }
    // A program that ends itself by the same signals reached no limit.
    let ran = s.tool("execute_code").with("command", "kill -XCPU $$").await;
    assert_eq!((&ran.document["exit_code"], &ran.document["status"]), (&json!(-24), &json!("completed")));
    d.stop().await;
}

#[tokio::test]
async fn closing_the_session_or_the_daemon_ends_it() {
    let d = daemon().start().await;
    let id = begun(&d, "s", json!({ "command": STUBBORN })).await;
    let container = d.view().await.the_container("sh").await;
    let mut follow = d.view().await.follow().await;
    d.tool("close_session", json!({ "session_id": "s" })).await.expect_success();
    assert_eq!(status(&d, &id).await["status"], "cancelled");
    follow.removal_of(&container, PATIENCE).await;
    assert_eq!(on_the_host(&container), 0);
    // Its record is deleted with its files.
    d.tool("close_session", json!({ "session_id": "s", "delete_files": true })).await.expect_success();
    d.tool("get_execution_output", json!({ "execution_id": id })).await.expect_error("execution_not_found");

    let id = begun(&d, "t", json!({ "command": STUBBORN })).await;
    let container = d.view().await.the_container("sh").await;
    let store = d.store.clone();
    d.stop().await;
    assert_eq!(on_the_host(&container), 0);
    let d = daemon().store(&store).start().await;
    assert_eq!(status(&d, &id).await["status"], "cancelled");
    assert_eq!(types(&read_all(&d, &id).await), ["ready", "stdout", "cancelled"]);
    d.stop().await;
}

/// The next daemon would make its containers differently, so it takes this one over only until its
/// command ends.
#[tokio::test]
async fn a_command_goes_on_in_a_container_that_the_next_daemon_would_make_differently_and_ends_with_it() {
    let d = daemon().start().await;
    let id = begun(&d, "s", json!({ "command": STUBBORN })).await;
    let container = d.view().await.the_container("sh").await;
    let store = d.crash().await;
    assert!(on_the_host(&container) > 5, "it goes on");
    let d = daemon().set("limits.pids", 64).store(&store).start().await;
    assert!(on_the_host(&container) > 5, "it goes on");
    assert_eq!(status(&d, &id).await["status"], "running");
    let mut follow = d.view().await.follow().await;
    d.tool("cancel_execution", json!({ "execution_id": id, "force": true })).await.expect_success();
    follow.removal_of(&container, PATIENCE).await;
    assert_eq!(on_the_host(&container), 0);
    assert_eq!(types(&read_all(&d, &id).await), ["ready", "stdout", "cancelled"]);
    d.stop().await;
}

#[tokio::test]
async fn the_end_of_an_mcp_session_ends_its_commands() {
    let d = daemon().start().await;
    let session = connected(&d).await;
    let call = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {
        "name": "execute_code_async", "arguments": { "command": "sleep 50" } } });
    let in_session =
        |method: &str| d.request(method, "/mcp").set("accept", BOTH).set("mcp-session-id", &session);
    let answer = in_session("POST").json(&call).send().await.expect(200);
    let answer = crate::support::events(&answer.text()).pop().expect("an answer");
    let id = answer["result"]["structuredContent"]["execution_id"].as_str().expect("an id").to_owned();
    // Any caller with the same token and the id can read it.
    assert_eq!(status(&d, &id).await["status"], "running");
    in_session("DELETE").send().await.expect(204);
    assert_eq!(ended(&d, &id).await["status"], "cancelled");
    d.stop().await;
}

#[tokio::test]
async fn a_command_that_fills_the_disk_ends_and_says_so() {
    let d = daemon().set("store.max_bytes", "4MiB").set("limits.data", "4MiB").set("limits.upload", "1MiB");
    let d = d.set("files.max_log", "64MiB").start().await;
    let id = begin(&d.session("s"), "yes").await;
    let end = ended(&d, &id).await;
    assert_eq!(end["status"], "failed", "{end}");
    let events = end["error_message"].as_str().expect("a sentence");
    assert!(events.contains("could not be kept"), "{events}");
    d.stop().await;
}
