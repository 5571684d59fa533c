//! What does not work while the daemon goes on: `/health`, `/ready`, the metric and `paddock doctor` name it,
//! and no longer than it lasts. The other rows of the table of degradations are shown where their faults are
//! made: `src/daemon/src/tidy/degradations.rs` has the list.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::process::Command;

use crate::support::{BadDisk, Daemon, Image, Store, program, within};

/// The longest time until something is told, or told no more.
const TOLD: Duration = Duration::from_secs(60);

/// The sentences of `/health`.
async fn degraded(d: &Daemon) -> Vec<String> {
    let health = d.health().await;
    let told = health["degraded"].as_array().into_iter().flatten();
    told.filter_map(Value::as_str).map(str::to_owned).collect()
}

/// Waits until this is told, or is not.
async fn until(d: &Daemon, sentence: &str, is_told: bool) {
    within(TOLD, sentence, async {
        while degraded(d).await.iter().any(|told| told == sentence) != is_told {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await;
}

/// The value of `paddock_degraded` for this.
async fn metric(d: &Daemon, what: &str) -> String {
    let text = d.request("GET", "/metrics").send().await.expect(200).text();
    let name = format!("paddock_degraded{{what=\"{what}\"}} ");
    text.lines().find_map(|line| line.strip_prefix(&name)).expect("the metric").to_owned()
}

/// The status and the advice of a check of the group `daemon` in `paddock doctor`, by their names.
async fn doctor(d: &Daemon, check: &str) -> Option<(String, String)> {
    let mut command = Command::new(program());
    command.args(["doctor", "--json", "--config"]).arg(d.store.path().join("config.toml")).env_clear();
    command.env("SANDBOX_ROOT", d.store.path());
    if let Ok(host) = std::env::var("DOCKER_HOST") {
        command.env("DOCKER_HOST", host);
    }
    let output = command.output().await.expect("the doctor");
    let report: Value = serde_json::from_slice(&output.stdout).expect("one document");
    let checks = report["checks"].as_array().expect("checks").clone();
    let found = checks.into_iter().find(|one| one["group"] == "daemon" && one["name"] == check)?;
    let text = |key: &str| found[key].as_str().unwrap_or_default().to_owned();
    Some((text("status"), text("advice")))
}

#[tokio::test]
async fn an_audit_log_that_cannot_be_written_is_told_everywhere_while_calls_go_on() {
    let folder = tempfile::tempdir().expect("a folder");
    let (logs, away) = (folder.path().join("logs"), folder.path().join("away"));
    std::fs::create_dir(&logs).expect("a folder");
    let file = logs.join("audit.log");
    let d = Daemon::with().set("audit.file", file.to_str().expect("text")).start().await;
    assert_eq!((degraded(&d).await, metric(&d, "calls_not_noted").await), (vec![], "0".to_owned()));
    assert_eq!(doctor(&d, "state").await.expect("a daemon runs").0, "ok");
    std::fs::rename(&logs, &away).expect("moved");
    d.run("sh", "echo on").await.expect_stdout("on\n");
    let sentence = "the audit log cannot be written: calls are not noted";
    until(&d, sentence, true).await;
    let ready = d.request("GET", "/ready").send().await.expect(200).json();
    assert_eq!(ready, json!({ "status": "ready", "degraded": [sentence] }));
    assert_eq!(metric(&d, "calls_not_noted").await, "1");
    let (status, advice) = doctor(&d, "calls_not_noted").await.expect("it is named");
    assert!(status == "warn" && advice.contains("audit.file"), "{status}: {advice}");
    std::fs::rename(&away, &logs).expect("moved back");
    until(&d, sentence, false).await;
    d.stop().await;
}

/// Where `/data` should be mounted there is a file: the engine makes the container, and cannot start it.
#[tokio::test]
async fn a_runner_whose_containers_do_not_start_is_told_until_one_does() {
    let labels = "LABEL sandbox.runner= sandbox.language=zz\n";
    let whole = Image::build(&format!("FROM paddock-example-sh\n{labels}"), &[]);
    let file = "RUN rm -rf /data && touch /data\n";
    let broken = Image::build(&format!("FROM paddock-example-sh\n{labels}{file}"), &[]);
    let name = format!("paddock-test-{}", paddock::id::random_hex::<6>());
    broken.tag(&name);
    let d = Daemon::with().set("runners.zz", name.as_str()).set("pool.idle", 1).start().await;
    let sentence = "containers of a runner do not start";
    until(&d, sentence, true).await;
    d.request("GET", "/ready").send().await.expect(200);
    assert_eq!(metric(&d, "starts_failing").await, "1");
    d.run("sh", "echo on").await.expect_stdout("on\n");
    whole.tag(&name);
    until(&d, sentence, false).await;
    d.run("zz", "echo on").await.expect_stdout("on\n");
    d.stop().await;
    let removed = std::process::Command::new("docker").args(["image", "rm", &name]).output();
    assert!(removed.expect("the docker command").status.success());
}

/// A sync that fails may have lost what other files had: only a restart can tell, by reading the journal.
#[tokio::test]
async fn a_journal_that_is_kept_for_good_is_told() {
    let store = Store::new();
    let disk = BadDisk::at(store.path(), 64 << 20);
    let d = Daemon::with().store(&store).start().await;
    let s = d.session("s");
    s.upload("f", b"kept").await.expect_success();
    disk.fail_at(b"THIS SECTOR FAILS");
    s.upload("bad", &b"THIS SECTOR FAILS".repeat(100_000)).await.expect_error("quota_exceeded");
    assert!(disk.failed() > 0, "no sector failed");
    disk.mend();
    let sentence = "the store could not be synced: its journal grows until a restart";
    until(&d, sentence, true).await;
    assert_eq!(metric(&d, "journal_kept").await, "1");
    let store = d.crash().await;
    let d = Daemon::with().store(&store).start().await;
    assert!(!degraded(&d).await.contains(&sentence.to_owned()));
    d.session("s").sh("cat f").await.expect_stdout("kept");
    d.stop().await;
    drop(disk);
}
