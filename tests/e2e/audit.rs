//! The audit log: what it has of each call, what it must never have, and that a change of it shows.

use std::process::{Command, Output};

use serde_json::{Value, json};

use crate::support::{Daemon, TOKEN, program, within};

fn verify(files: &[&std::path::Path]) -> Output {
    Command::new(program()).args(["audit", "verify"]).args(files).env_clear().output().expect("the command")
}

#[tokio::test]
async fn every_call_is_noted_and_a_line_that_is_missing_or_changed_shows() {
    let folder = tempfile::tempdir().expect("a folder");
    let (path, old) = (folder.path().join("audit.log"), folder.path().join("audit.log.1"));
    let file = path.to_str().expect("text");
    let d = Daemon::with().set("audit.file", file).start().await;
    let s = d.session("noted");
    let secret = "print('s3cret-in-code'); open('s3cret-name', 'w').write('s3cret-content')";
    let ran = s.python(secret).env("KEY", "s3cret-value").await.expect_success();
    d.fetch(&ran.link("s3cret-name")).await.expect(200);
    let put = d.request("PUT", "/sessions/noted/files/s3cret-name").body("12345").send().await;
    assert_eq!(put.status, 200, "{}", put.text());
    d.rpc("tools/list", json!({})).await;
    let log = || std::fs::read_to_string(&path).unwrap_or_default();
    within(crate::support::PATIENCE, "four lines", async {
        while log().lines().count() < 4 {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    })
    .await;
    std::fs::rename(&path, &old).expect("rotated");
    s.python("print(1)").await.expect_success();
    d.stop().await;

    let text = std::fs::read_to_string(&old).expect("the old file") + &log();
    assert!(!text.contains("s3cret") && !text.contains(TOKEN), "{text}");
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(lines.len(), 6, "{text}");
    assert_eq!((&lines[0]["event"], &lines[5]["event"]), (&json!("started"), &json!("stopped")));
    let run = &lines[1];
    assert_eq!(
        (&run["surface"], &run["tool"], &run["session"], &run["outcome"]),
        (&json!("mcp"), &json!("run_code"), &json!("noted"), &json!("ok"))
    );
    assert!(run["peer"].as_str().is_some_and(|peer| peer.starts_with("127.0.0.1:")), "{run}");
    assert!(run["bytes_in"].as_u64() > Some(50) && run["bytes_out"].as_u64() > Some(50), "{run}");
    let link = &lines[2];
    assert_eq!(
        (&run["tenant"], &link["surface"], &link["route"], &link["bytes_out"]),
        (&json!("default"), &json!("link"), &json!("files"), &json!(14))
    );
    let raw = &lines[3];
    assert_eq!(
        (&raw["surface"], &raw["method"], &raw["status"], &raw["bytes_in"]),
        (&json!("rest"), &json!("PUT"), &json!(200), &json!(5))
    );
    assert_eq!(lines[4]["seq"], 5, "the chain goes on in the new file");
    assert!(lines.iter().all(|line| line.get("after_kill").is_none()), "{text}");

    assert!(verify(&[&old, &path]).status.success());
    let whole = std::fs::read_to_string(&old).expect("the old file");
    for (change, expected) in [
        (whole.replacen("\"ok\"", "\"no\"", 1), "number 3, does not follow"),
        (whole.lines().skip(3).map(|line| format!("{line}\n")).collect(), ""),
        (whole.lines().take(2).map(|line| format!("{line}\n")).collect(), "number 5, does not follow"),
    ] {
        std::fs::write(&old, change).expect("written");
        let found = verify(&[&old, &path]);
        let said = String::from_utf8_lossy(&found.stdout).into_owned();
        assert_eq!(found.status.success(), expected.is_empty(), "{said}");
        assert!(said.contains(expected), "{said}");
    }
}

#[tokio::test]
async fn after_a_kill_the_next_daemon_goes_on_with_the_chain_and_tells_of_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("audit.log");
    let config = || Daemon::with().set("audit.file", path.to_str().expect("text"));
    let d = config().start().await;
    d.run("python", "print(1)").await.expect_success();
    within(crate::support::PATIENCE, "a line", async {
        while !std::fs::read_to_string(&path).unwrap_or_default().contains("run_code") {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    })
    .await;
    let store = d.crash().await;
    // The last line as a kill in the middle of a write leaves it.
    let text = std::fs::read_to_string(&path).expect("the log");
    std::fs::write(&path, &text[..text.len() - 9]).expect("cut");
    config().store(&store).start().await.stop().await;
    let text = std::fs::read_to_string(&path).expect("the log");
    let started: Value = serde_json::from_str(text.lines().nth(2).expect("a line")).expect("JSON");
    assert_eq!((&started["event"], &started["cut"]), (&json!("started"), &json!(true)), "{text}");
    let found = verify(&[&path]);
    let said = String::from_utf8_lossy(&found.stdout).into_owned();
    assert!(found.status.success() && said.contains("cut off when a daemon was killed"), "{said}");
}

#[tokio::test]
async fn a_required_log_that_cannot_be_written_refuses_calls_and_service_goes_on_with_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let (logs, away) = (folder.path().join("logs"), folder.path().join("away"));
    std::fs::create_dir(&logs).expect("a folder");
    let file = logs.join("audit.log");
    let config = Daemon::with().set("audit.file", file.to_str().expect("text")).set("audit.required", true);
    let d = config.start().await;
    d.run("python", "print(1)").await.expect_success();
    // Its line is written soon after its answer.
    while !std::fs::read_to_string(&file).expect("the log").contains("run_code") {
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    std::fs::rename(&logs, &away).expect("moved");
    // The line of this call cannot be written; the calls behind it are refused.
    d.run("python", "print(2)").await.expect_success();
    d.log.line("the audit log cannot be written").await;
    let unready = d.request("GET", "/ready").send().await.expect(503).json();
    assert_eq!(unready["missing"], serde_json::json!(["the audit log cannot be written (audit.required)"]));
    let refused = d.request("GET", "/sessions/a/files").send().await.expect(503);
    assert_eq!(refused.json()["error"], "quota_exceeded");
    d.request("GET", "/status").send().await.expect(200);
    std::fs::rename(&away, &logs).expect("moved back");
    d.log.line("the audit log can be written again").await;
    d.run("python", "print(3)").await.expect_success();
    d.request("GET", "/ready").send().await.expect(200);
    d.stop().await;
    let text = std::fs::read_to_string(&file).expect("the log");
    assert!(text.contains("\"lost\":"), "{text}");
    assert!(verify(&[&file]).status.success());
}
