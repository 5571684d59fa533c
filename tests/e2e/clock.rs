//! The machine's clock jumps, by hours and by a year, in both directions: nothing ends that must not, and
//! nothing that has ended comes back.

use std::collections::BTreeSet;
use std::process::Command;
use std::time::{Duration, Instant, SystemTime};

use serde_json::json;
use tokio::join;

use crate::support::{Daemon, FakeClock, PATIENCE, Request, Setup, Store, program, within};

const HOUR: i64 = 60 * 60;
const YEAR: i64 = 365 * 24 * HOUR;

/// Adds a token that ends after this time by the true clock.
fn add(store: &Store, name: &str, expires: &str) -> String {
    let mut command = Command::new(program());
    command.args(["token", "add", name, "--expires", expires, "--store"]).arg(store.path()).env_clear();
    let added = command.output().expect("the command");
    assert!(added.status.success(), "{added:?}");
    String::from_utf8(added.stdout).expect("text").trim().to_owned()
}

async fn expect_status(request: impl Fn() -> Request, status: u16, what: &str) {
    let waiting = async {
        while request().send().await.status != status {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    within(PATIENCE, what, waiting).await;
}

fn setup(clock: &FakeClock, store: &Store) -> Setup {
    clock.seen_by(Daemon::with().store(store).set("exec.runner", "sh"))
}

/// Jumps until the future is dropped.
async fn jump(clock: &FakeClock) {
    for seconds in [YEAR, -YEAR, HOUR, 2 * HOUR, 0, -HOUR].into_iter().cycle() {
        clock.set(seconds);
        tokio::time::sleep(Duration::from_millis(150)).await;
    }
}

#[tokio::test]
async fn timeouts_and_what_is_kept_do_not_follow_jumps_of_the_clock() {
    let (clock, store) = (FakeClock::new(), Store::new());
    let setup = || setup(&clock, &store).set("sessions.retention", "10s").set("sessions.sweep", "1s");
    let d = setup().start().await;
    let (old, kept) = (d.session("old"), d.session("kept"));
    let mark = d.log.mark();
    let unused = Instant::now();
    old.upload("f", b"old").await.expect_success();
    kept.upload("f", b"1").await.expect_success();
    let begun = kept.tool("execute_code_async").with("command", "sleep 3; echo ended").await;
    let id = begun.document["execution_id"].as_str().expect("an id").to_owned();
    let working = async {
        let timed = Instant::now();
        d.session("timed").sh("sleep 600").timeout(3.0).await.expect_limit(Some("wall_time"));
        let took = timed.elapsed();
        assert!(took >= Duration::from_secs(3) && took < PATIENCE, "{took:?}");
        let line = d.log.line_since(mark, "files deleted: nobody used them").await;
        assert!(line.contains("session_id=old"), "{line}");
        assert!(unused.elapsed() >= Duration::from_secs(10), "{:?}", unused.elapsed());
    };
    // What is used again and again stays, whatever the clock says at the time of its last use.
    let using = async {
        for n in 2.. {
            kept.upload("f", format!("{n}").as_bytes()).await.expect_success();
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    };
    tokio::select! { () = working => {} () = using => {} () = jump(&clock) => {} }
    old.tool("list_artifacts").await.expect_error("session_not_found");
    for seconds in [YEAR, -YEAR, 0] {
        clock.set(seconds);
        let asked = json!({ "execution_id": id, "wait": true });
        let ended = d.tool("get_execution_output", asked).await;
        assert_eq!(
            (&ended.document["status"], ended.command_stdout()),
            (&json!("completed"), "ended\n".into())
        );
    }
    // The order of changes is not that of the clock.
    clock.set(YEAR);
    kept.upload("f", b"first").await.expect_success();
    clock.set(-YEAR);
    kept.upload("f", b"last").await.expect_success();
    d.crash().await;
    let d = setup().set("sessions.retention", "0s").start().await;
    let saw = d.request("GET", "/sessions/kept/files/f").send().await.expect(200);
    assert_eq!(saw.text(), "last");
    let log = d.stop().await.text();
    let years: BTreeSet<_> = log.lines().filter_map(|line| line.split(' ').nth(1)?.get(..4)).collect();
    assert!(!years.contains(&*this_year()), "the daemon does not see the clock: {log}");
}

/// The year by the true clock.
fn this_year() -> String {
    humantime::format_rfc3339(SystemTime::now()).to_string()[..4].to_owned()
}

#[tokio::test]
async fn what_has_expired_stays_so_and_a_clock_that_is_right_again_restores_the_rest() {
    let (clock, store) = (FakeClock::new(), Store::new());
    let folder = tempfile::tempdir().expect("a folder");
    let log = folder.path().join("audit.log");
    let setup = setup(&clock, &store).set("files.url_ttl", "1h");
    let d = setup.set("audit.file", log.to_str().expect("text")).start().await;
    let (long, short) = (add(&store, "long", "1h"), add(&store, "short", "10s"));
    let status = |token: &str| Request::new(d.addr, "GET", "/status").bearer(token);
    let (of_short, of_long) = (|| status(&short), || status(&long));
    join!(expect_status(of_short, 200, "a token"), expect_status(of_long, 200, "a token"));
    let ran = d.session("s").upload("f", b"linked").await.expect_success();
    let link = ran.document["file"]["url"].as_str().expect("a link").to_owned();
    expect_status(of_short, 401, "the end of a token").await;

    clock.set(-YEAR);
    of_short().send().await.expect(401);
    d.fetch(&link).await.expect(200);
    of_long().send().await.expect(200);
    clock.set(YEAR);
    d.fetch(&link).await.expect(403);
    expect_status(of_long, 401, "a token that is over by this clock").await;
    clock.set(0);
    d.fetch(&link).await.expect(200);
    expect_status(of_long, 200, "a token that is good again").await;
    of_short().send().await.expect(401);
    d.stop().await;

    let verified = Command::new(program()).args(["audit", "verify"]).arg(&log).env_clear().output();
    let verified = verified.expect("the command");
    assert!(verified.status.success(), "{verified:?}");
    let text = std::fs::read_to_string(&log).expect("the log");
    let times = text.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).expect("JSON"));
    let years: Vec<String> =
        times.map(|line| line["time"].as_str().expect("a time")[..4].to_owned()).collect();
    assert!(!years.is_sorted(), "the daemon does not see the clock: {years:?}");
}
