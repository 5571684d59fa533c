//! Several commands at once: each with its own limits and its own stream, none delayed by another.

use std::time::{Duration, Instant};

use paddock::engine::ContainerSummary;
use serde_json::json;

use super::{begin, bytes_of, daemon, ended, expect_numbered, id_of, read_all, status};
use crate::support::{Daemon, within};

#[tokio::test]
async fn commands_and_code_of_one_session_run_at_the_same_time() {
    let d = daemon().start().await;
    let s = d.session("s");
    // Each waits for a file that the next one makes.
    let id = begin(&s, "echo one > a; until [ -e c ]; do sleep 0.01; done; echo seen").await;
    let other = begin(&s, "until [ -e a ]; do sleep 0.01; done; echo two > b; exec sleep 50").await;
    s.sh("until [ -e b ]; do sleep 0.01; done; echo three > c; cat a b").await.expect_stdout("one\ntwo\n");
    assert_eq!(bytes_of(&read_all(&d, &id).await, "stdout"), b"seen\n");
    // The files of all are saved.
    let files = s.tool("list_artifacts").await.document["artifacts"].as_array().map(Vec::len);
    assert_eq!(files, Some(3));
    assert_eq!(status(&d, &other).await["status"], "running");

    // A run in another language and an upload wait, and only until it is over.
    let waiting =
        async { s.python("print(open('/data/b').read())").timeout(20.0).await.expect_stdout("two\n\n") };
    let uploading = async { s.upload("late", b"late").await.expect_success() };
    let ending = async {
        let asked = json!({ "execution_id": other, "wait": true, "since": 1 });
        let quiet =
            tokio::time::timeout(Duration::from_millis(500), d.tool("get_execution_output", asked)).await;
        assert!(quiet.is_err(), "nothing happens to it");
        d.tool("cancel_execution", json!({ "execution_id": other })).await.expect_success();
        Instant::now()
    };
    let begun = Instant::now();
    let (_, _, ended) = tokio::join!(waiting, uploading, ending);
    assert!(begun.elapsed() > ended - begun);
    s.sh("cat late").await.expect_stdout("late");
    d.stop().await;
}

/// An upload that waits for a command of five minutes delays no other call.
#[tokio::test]
async fn a_call_that_can_run_does_not_wait_behind_one_that_cannot() {
    let d = daemon().start().await;
    let s = d.session("s");
    let server = begin(&s, "sleep 300").await;
    let upload = s.upload("late", b"late");
    let beside = async {
        for _ in 0..4 {
            let quick = s.tool("execute_code").with("command", "exit 0").await;
            assert_eq!(quick.document["status"], "completed");
        }
        d.tool("cancel_execution", json!({ "execution_id": server, "force": true })).await
    };
    let within = within(Duration::from_secs(20), "commands beside", beside);
    let (uploaded, _) = tokio::join!(async { upload.await }, within);
    uploaded.expect_success();
    d.stop().await;
}

#[tokio::test]
async fn each_command_has_its_own_limits() {
    let d = daemon().start().await;
    let s = d.session("s");
    let bounded = |command: &str, limits: serde_json::Value| {
        s.tool("execute_code_async")
            .with("command", command)
            .with("sandbox_config", json!({ "resource_limits": limits }))
    };
    let quiet = begin(&s, "sleep 3; echo well").await;
    let bomb = id_of(&bounded("while :; do sleep 50 & done", json!({ "max_processes": 20 })).await);
    let busy = id_of(&bounded("while :; do :; done", json!({ "max_cpu_seconds": 1 })).await);
    let big =
        id_of(&bounded("head -c 5000000 /dev/zero > big; sleep 50", json!({ "max_file_size_mb": 1 })).await);
    let failing = begin(&s, "sleep 0.5; exit 1").await;
    for (id, state) in [(&bomb, "failed"), (&failing, "completed"), (&busy, "failed"), (&quiet, "completed")]
    {
        assert_eq!(ended(&d, id).await["status"], state);
    }
    d.tool("cancel_execution", json!({ "execution_id": big, "force": true })).await;
    assert_eq!(bytes_of(&read_all(&d, &quiet).await, "stdout"), b"well\n");
    d.stop().await;
}

/// A command that begins while the container has as many processes as it may waits a moment for room.
#[tokio::test]
async fn a_command_waits_for_room_for_its_processes() {
    let d = daemon().set("exec.runner", "python").start().await;
    let s = d.session("s");
    let full = "import os, signal, time\n\
                made = []\n\
                try:\n    \
                    while True:\n        \
                        pid = os.fork()\n        \
                        if pid == 0: time.sleep(50); os._exit(0)\n        \
                        made.append(pid)\n\
                except BlockingIOError:\n    \
                    print('full', flush=True)\n\
                while not os.path.exists('/tmp/free'): time.sleep(0.01)\n\
                for pid in made: os.kill(pid, signal.SIGKILL)\n\
                for pid in made: os.waitpid(pid, 0)\n\
                print('free', flush=True)";
    let filling = s.tool("execute_code_async").with("command", format!("exec python3 -c \"{full}\"")).await;
    let filling = id_of(&filling);
    let asked = json!({ "execution_id": filling, "wait": true, "since": 1 });
    let first = d.tool("get_execution_output", asked).await;
    assert_eq!(first.document["output"][0]["data"], "full", "{}", first.document);
    let agent = agents(&d).await[0];
    let (beside, ()) = tokio::join!(begin(&s, "echo beside"), async {
        tokio::time::sleep(Duration::from_millis(100)).await; // after the command has come
        std::fs::write(format!("/proc/{agent}/root/tmp/free"), "").expect("its /tmp");
    });
    assert_eq!(ended(&d, &beside).await["status"], "completed");
    assert_eq!(bytes_of(&read_all(&d, &beside).await, "stdout"), b"beside\n");
    assert_eq!(ended(&d, &filling).await["status"], "completed");
    d.stop().await;
}

/// Resident memory of a process in bytes; 0 if it has ended.
fn memory_of(pid: i32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/statm")).unwrap_or_default();
    text.split_ascii_whitespace().nth(1).and_then(|n| n.parse::<u64>().ok()).unwrap_or(0) * 4096
}

/// The agents of a daemon's containers by their pids on the host: each is the first process of its container.
async fn agents(d: &Daemon) -> Vec<i32> {
    let containers = d.view().await.containers().await;
    let of = |container: &ContainerSummary| {
        let processes = std::fs::read_dir("/proc").expect("/proc").flatten();
        let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
        let is_in = |pid: &i32| {
            std::fs::read_to_string(format!("/proc/{pid}/cgroup"))
                .is_ok_and(|cgroup| cgroup.contains(container.id.as_str()))
        };
        pids.filter(is_in).min().expect("a process of the container")
    };
    containers.iter().map(of).collect()
}

#[tokio::test]
async fn floods_delay_nobody_and_are_kept_only_on_disk() {
    let d = daemon()
        .set("exec.max", 100)
        .set("exec.per_session", 20)
        .set("files.max_log", "64MiB")
        .set("store.max_bytes", "8GiB");
    let d = d.start().await;
    let sessions: Vec<_> = (0..4).map(|n| d.session(&format!("s{n}"))).collect();
    let quiet = id_of(
        &sessions[0]
            .tool("execute_code_async")
            .with("command", "while read -r line; do echo \"$line\"; done")
            .with("interactive", true)
            .await,
    );
    let daemon = d.pid().as_raw_nonzero().get();
    let before = memory_of(daemon);
    let mut floods = Vec::new();
    for n in 0..64 {
        floods.push(begin(&sessions[n % 4], "yes 'some line of a flood'").await);
    }
    for (since, n) in (1..).zip(0..8) {
        let line = format!("line {n}");
        let said = Instant::now();
        d.tool("send_stdin", json!({ "execution_id": quiet, "input_data": line })).await.expect_success();
        let asked = json!({ "execution_id": quiet, "wait": true, "since": since });
        let page =
            within(Duration::from_secs(10), "an echo", d.tool("get_execution_output", asked)).await.document;
        assert_eq!(page["output"][0]["data"], json!(line), "after {:?}", said.elapsed());
    }
    let grown = memory_of(daemon).saturating_sub(before);
    assert!(grown < 64 * (3 << 19), "{grown} bytes more for 64 floods: over 1.5 MiB each");
    for agent in agents(&d).await {
        let has = memory_of(agent);
        assert!((1..24 << 20).contains(&has), "the agent of 16 floods has {has} bytes");
    }
    for id in &floods {
        d.tool("cancel_execution", json!({ "execution_id": id, "force": true })).await.expect_success();
    }
    // One of them, complete: one number for each line, and two more.
    let page =
        d.tool("get_execution_output", json!({ "execution_id": floods[0], "lines": true })).await.document;
    expect_numbered(page["output"].as_array().expect("events"));
    d.stop().await;
}
