//! What the levels of tasks stop outside of the agent: a stand-in agent that cares for no level tries to run
//! programs in every way.
//!
//! The real Claude Code keeps to its own settings ([`crate::tasks`]); this one has none.

use std::collections::BTreeMap;
use std::process::Command;

use paddock::agents::BLOCKED_COMMANDS;
use serde_json::{Value, json};

use crate::doctor::wrapped::runtimes;
use crate::support::{Daemon, Image, PATIENCE, PrivateEngine, Setup, within};

/// `EACCES`.
const REFUSED: i64 = 13;

/// An image with the stand-in as `claude`, with stand-ins of the commands that level 3 blocks, and of some
/// that it does not. `nc` is a link to a link, as Debian has it.
fn image(slow: bool) -> Image {
    let context = tempfile::tempdir().expect("a folder");
    let source = context.path().join("agent.c");
    std::fs::write(&source, include_str!("task_levels/agent.c")).expect("a file");
    let loader = match std::env::consts::ARCH {
        "aarch64" => "/lib/ld-linux-aarch64.so.1",
        _ => "/lib64/ld-linux-x86-64.so.2",
    };
    let gcc = Command::new("gcc")
        .args(["-static", "-O1", "-o"])
        .arg(context.path().join("claude"))
        .arg(format!("-DLOADER=\"{loader}\""))
        .arg(&source)
        .output()
        .expect("gcc");
    assert!(gcc.status.success(), "{}", String::from_utf8_lossy(&gcc.stderr));
    let slow = if slow { "ENV SLOW=1\n" } else { "" };
    let dockerfile = format!(
        "FROM paddock-runner-python
COPY claude /usr/local/bin/claude
RUN for name in docker kubectl ssh nc.openbsd sudo iptables systemctl git; do \\
        rm -f /usr/bin/$name; cp /usr/bin/true /usr/bin/$name; done; \\
    printf '#!/bin/sh\\nexit 0\\n' > /usr/sbin/service; \\
    printf '#!/usr/bin/env python3\\n' > /usr/bin/npm; chmod 755 /usr/sbin/service /usr/bin/npm; \\
    mkdir -p /etc/alternatives; ln -sf /usr/bin/nc.openbsd /etc/alternatives/nc; \\
    ln -sf /etc/alternatives/nc /usr/bin/nc; ln -sf nc /usr/bin/netcat
{slow}ENV PATH=/tmp/.local/bin:/usr/local/bin:/usr/bin:/bin
LABEL sandbox.runner=no sandbox.agent=claude-code
"
    );
    std::fs::write(context.path().join("Dockerfile"), dockerfile).expect("a file");
    Image::of_folder(context.path())
}

fn daemon(image: &Image) -> Setup {
    let anthropic = json!({ "provider": "anthropic", "url": "http://127.0.0.1:1", "key": "env:STUB_KEY" });
    Daemon::with()
        .with_tasks()
        .set("egress.mode", "none")
        .set("models.anthropic", toml::Value::try_from(anthropic).expect("a table"))
        .set("runners.claude-code", image.name())
        .env("STUB_KEY", "sk-e2e-levels")
}

/// What the agent printed: what became of each attempt.
async fn printed(d: &Daemon, id: &Value) -> String {
    let ran = d.tool("get_execution_output", json!({ "execution_id": id, "wait": true })).await;
    let events = ran.document["output"].as_array().unwrap_or_else(|| panic!("{}", ran.document)).clone();
    let output = events.iter().filter(|event| event["type"] == "stdout");
    output.map(|event| event["data"].as_str().unwrap_or_default()).collect::<Vec<_>>().join("\n")
}

/// What became of each attempt of a task at this level in this session.
async fn tried(d: &Daemon, session: &str, level: u64) -> BTreeMap<String, i64> {
    let task = json!({ "task_description": "x".repeat(100_000), "session_id": session, "yolo_level": level });
    let ran = d.tool("execute_task", task).await;
    let text = printed(d, &ran.document["execution_id"]).await;
    assert!(text.contains("task: 100000 bytes, xxxx"), "{level}: {text} {}", ran.document);
    let tried: BTreeMap<String, i64> = text
        .lines()
        .filter_map(|line| line.rsplit_once(": "))
        .filter_map(|(what, errno)| Some((what.to_owned(), errno.parse().ok()?)))
        .collect();
    assert_eq!(tried.len(), 25, "{level}: {text}");
    tried
}

/// These attempts, all with this end.
#[track_caller]
fn expect(level: u64, tried: &BTreeMap<String, i64>, attempts: &[&str], end: i64) {
    for attempt in attempts {
        assert_eq!(tried.get(*attempt), Some(&end), "level {level}, {attempt}: {tried:?}");
    }
}

#[tokio::test]
async fn an_agent_that_ignores_its_level_runs_only_what_the_level_has() {
    let image = image(false);
    let d = daemon(&image).start().await;
    // In one session: what the first task puts into `PATH` is not the agent of the second.
    for level in [1, 2] {
        let tried = tried(&d, "low", level).await;
        expect(level, &tried, &["itself"], 0);
        let others: Vec<&str> = tried.keys().map(String::as_str).filter(|one| *one != "itself").collect();
        expect(level, &tried, &others, REFUSED);
    }
    let programs = ["itself", "shell", "python", "loader", "git", "npm", "copied", "memory", "descriptor"];
    let three = tried(&d, "low", 3).await;
    expect(3, &three, &programs, 0);
    expect(3, &three, &BLOCKED_COMMANDS, REFUSED);
    expect(3, &three, &["link", "subprocess"], REFUSED);
    expect(3, &three, &["script"], 126);
    // What a level does not stop: the documents say so.
    expect(3, &three, &["copy of ssh"], 0);
    let four = tried(&d, "high", 4).await;
    expect(4, &four, &programs, 0);
    expect(4, &four, &BLOCKED_COMMANDS, 0);
    expect(4, &four, &["link", "subprocess", "script", "copy of ssh"], 0);
    d.stop().await;
}

#[tokio::test]
async fn a_task_that_has_begun_needs_no_daemon_for_its_input() {
    let image = image(true);
    let d = daemon(&image).start().await;
    let task = json!({ "task_description": "y".repeat(100_000), "session_id": "s", "yolo_level": 1 });
    let begun = async {
        loop {
            let status = d.tool("get_sandbox_status", json!({ "session_id": "s" })).await;
            let id = status.document["running_tasks"][0].clone();
            let wait = json!({ "execution_id": id, "since": 0 });
            if id.is_string()
                && d.tool("get_execution_output", wait).await.document.to_string().contains("begun")
            {
                return id;
            }
        }
    };
    let id = tokio::select! {
        ran = d.tool("execute_task", task) => panic!("it ended: {}", ran.document),
        id = within(PATIENCE, "the agent", begun) => id,
    };
    let store = d.crash().await;
    let d = daemon(&image).store(&store).start().await;
    let over = async {
        loop {
            let text = printed(&d, &id).await;
            if text.contains("copy of ssh") {
                return text;
            }
        }
    };
    let text = within(PATIENCE, "the end of the task", over).await;
    assert!(text.contains("task: 100000 bytes, yyyy"), "{text}");
    d.stop().await;
}

#[tokio::test]
async fn an_image_without_the_program_is_said_so() {
    let image = Image::build("FROM paddock-base:trixie\nRUN mkdir -p /data\nCMD [\"/bin/sh\"]\n", &[]);
    let d = daemon(&image).start().await;
    for level in [1, 4] {
        let task = json!({ "task_description": "x", "session_id": "s", "yolo_level": level });
        let ran = d.tool("execute_task", task).await;
        assert_eq!(ran.document["status"], "failed", "{}", ran.document);
        let error = ran.document["error"].as_str().unwrap_or_default();
        assert!(error.contains("this image has no program claude"), "{}", ran.document);
    }
    d.stop().await;
}

#[tokio::test]
async fn without_landlock_a_level_that_cannot_be_enforced_is_refused() {
    let (_scripts, flags) = runtimes(["landlock", "notification", "neither"]);
    let engine = PrivateEngine::with_flags(&flags, &[]).await;
    let image = image(false);
    engine.load(image.name());
    let d = daemon(&image).env("DOCKER_HOST", &engine.host()).set("engine.runtime", "landlock").start().await;
    for level in 1..=3 {
        let task = json!({ "task_description": "x", "session_id": "s", "yolo_level": level });
        let ran = d.tool("execute_task", task).await.expect_error("unsupported_policy");
        let message = ran.text("message");
        assert!(message.contains("Landlock") && message.contains("yolo_level 4"), "{}", ran.document);
    }
    expect(4, &tried(&d, "s", 4).await, &["shell", "docker"], 0);
    d.stop_on(&engine.host()).await;
}
