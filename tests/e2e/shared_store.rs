//! Many machines: daemons with host names and stores of their own, one PostgreSQL and one S3 server between
//! them.

use std::process::Command;
use std::time::{Duration, Instant};

use crate::support::{Daemon, PATIENCE, ServerKind, Setup, SharedServers, program, within};

/// A node that dies is replaced within this time, by the promise of the ledger's terms and what a claim
/// takes.
const TAKEOVER: Duration = Duration::from_secs(10);

/// The addresses of one test's ledger.
struct Shared<'s> {
    servers: &'s SharedServers,
    url: String,
    objects: String,
}

impl Shared<'_> {
    fn on(servers: &SharedServers) -> Shared<'_> {
        let (url, objects) = servers.fresh();
        Shared { servers, url, objects }
    }

    /// A daemon on a host of this name.
    fn node(&self, name: &str) -> Setup {
        let named = r#"echo "$0" > /proc/sys/kernel/hostname && exec "$@""#;
        let setup = Daemon::with()
            .set("store.url", self.url.as_str())
            .set("store.objects", self.objects.as_str())
            .under(&["unshare", "--uts", "sh", "-c", named, name]);
        self.servers.aws().iter().fold(setup, |setup, (name, value)| setup.env(name, value))
    }
}

fn of_process() -> Shared<'static> {
    Shared::on(SharedServers::of_process())
}

#[tokio::test]
async fn of_two_daemons_that_fight_for_a_session_exactly_one_acknowledges() {
    let shared = of_process();
    let (a, b) = tokio::join!(shared.node("node-a").start(), shared.node("node-b").start());
    let (mut won_by_a, mut won_by_b) = (0, 0);
    for round in 0..8 {
        let session = format!("fight-{round}");
        let (of_a, of_b) = (a.session(&session), b.session(&session));
        let (from_a, from_b) = tokio::join!(of_a.upload("f", b"of a"), of_b.upload("f", b"of b"));
        let won = |ran: &crate::support::Ran| ran.document["success"] == true;
        let (loser, winner) = match (won(&from_a), won(&from_b)) {
            (true, false) => (from_b, &a),
            (false, true) => (from_a, &b),
            both => panic!("round {round}: {both:?}, {} and {}", from_a.said, from_b.said),
        };
        let loser = loser.expect_error("store_unavailable");
        assert!(loser.text("message").contains("is on the node node-"), "{}", loser.said);
        let content = winner.session(&session).sh("cat f").await.expect_success();
        if winner.addr == a.addr {
            won_by_a += 1
        } else {
            won_by_b += 1
        }
        let expected = if winner.addr == a.addr { "of a" } else { "of b" };
        assert_eq!(content.stdout(), expected);
    }
    eprintln!("node-a had {won_by_a} of the sessions, node-b {won_by_b}");
    a.stop().await;
    // What the daemon that stopped had is free at once.
    for round in 0..8 {
        b.session(&format!("fight-{round}")).sh("cat f").await.expect_success();
    }
    b.stop().await;
}

#[tokio::test]
async fn every_acknowledged_file_of_a_killed_daemon_is_with_the_next_within_ten_seconds() {
    let shared = of_process();
    let (a, b) = tokio::join!(shared.node("node-a").start(), shared.node("node-b").start());
    let large = "head -c 20000000 /dev/zero > large; mkdir -p d; ln -s ../f d/l; chmod 750 d; echo kept > f";
    a.session("s").sh(large).await.expect_success();
    // Killed in the middle of uploads: those that it answered are acknowledged.
    let mut acknowledged = 0;
    let killed = Instant::now();
    let uploads = async {
        loop {
            let session = a.session("s");
            let name = format!("n{acknowledged}");
            let Some(answer) = session.upload(&name, name.as_bytes()).try_answer().await else { return };
            if answer["result"]["structuredContent"]["success"] != true {
                return;
            }
            acknowledged += 1;
            if acknowledged == 20 {
                a.kill();
            }
        }
    };
    within(PATIENCE, "the end of the killed daemon's answers", uploads).await;
    let before = killed.elapsed();
    let store = a.crash().await;
    let (began, mut refused) = (Instant::now(), Duration::ZERO);
    let taken = loop {
        let ran = b.session("s").sh("cat f d/l; wc -c < large; stat -c %a d; ls").await;
        if ran.document["success"] == true {
            break ran;
        }
        let ran = ran.expect_error("store_unavailable");
        assert!(ran.text("message").contains("is on the node node-a"), "{}", ran.said);
        refused = began.elapsed();
        assert!(refused < TAKEOVER, "not taken over: {}", ran.said);
        tokio::time::sleep(Duration::from_millis(100)).await; // as a caller that calls again
    };
    let lines: Vec<&str> = taken.stdout().lines().collect();
    assert_eq!(lines[..4], ["kept", "kept", "20000000", "750"]);
    for n in 0..acknowledged {
        assert!(lines.contains(&format!("n{n}").as_str()), "n{n} of {acknowledged} is lost: {lines:?}");
    }
    eprintln!(
        "{acknowledged} uploads acknowledged in {before:.1?}; refused for {refused:.1?} after the kill, \
         answered after {:.1?}",
        began.elapsed()
    );
    // The killed daemon comes back, and the session is not its own any more.
    let a = shared.node("node-a").store(&store).start().await;
    a.session("s").sh("echo late > f").await.expect_error("store_unavailable");
    b.session("s").sh("cat f").await.expect_stdout("kept\n");
    a.stop().await;
    b.stop().await;
}

#[tokio::test]
async fn while_a_server_is_away_calls_get_clear_errors_and_afterwards_all_is_as_before() {
    let servers = SharedServers::start();
    let shared = Shared::on(&servers);
    let d = shared.node("node-a").start().await;
    d.session("s").sh("echo 1 > f").await.expect_success();
    for (kind, setting) in [(ServerKind::S3, "store.objects"), (ServerKind::Postgres, "store.url")] {
        servers.stop(kind);
        let away = Instant::now();
        let mut refused = 0;
        while away.elapsed() < Duration::from_secs(12) {
            let ran = d.session("s").upload("g", format!("{refused}").as_bytes()).await;
            let ran = ran.expect_error("store_unavailable");
            assert!(ran.text("message").contains(setting), "{}", ran.said);
            refused += 1;
            tokio::time::sleep(Duration::from_millis(200)).await; // as a caller that calls again
        }
        servers.resume(kind);
        let back = Instant::now();
        loop {
            let ran = d.session("s").upload("g", b"back").await;
            if ran.document["success"] == true {
                break;
            }
            ran.expect_error("store_unavailable");
            assert!(back.elapsed() < Duration::from_secs(30), "not back by itself");
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        eprintln!("{setting}: {refused} calls refused in 12 s; back {:.1?} after the server", back.elapsed());
    }
    d.session("s").sh("cat f g").await.expect_stdout("1\nback");
    d.stop().await;
}

#[tokio::test]
async fn a_run_whose_files_could_not_be_saved_saves_them_with_the_next_call() {
    let servers = SharedServers::start();
    let shared = Shared::on(&servers);
    let d = shared.node("node-a").start().await;
    d.session("s").sh("echo 1 > f").await.expect_success();
    servers.stop(ServerKind::S3);
    let ran = d.session("s").sh("echo 2 > f; echo ran").await;
    assert_eq!(ran.document["error"], "store_unavailable", "{}", ran.said);
    assert_eq!(ran.stdout(), "ran\n", "the output is lost");
    servers.resume(ServerKind::S3);
    d.session("s").sh("cat f").await.expect_stdout("2\n");
    let store = d.crash().await;
    // Another machine has it, though this one's disk is gone.
    drop(store);
    let b = shared.node("node-b").start().await;
    let began = Instant::now();
    while b.session("s").sh("cat f").await.document["stdout"] != "2\n" {
        assert!(began.elapsed() < PATIENCE, "never taken over");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    b.stop().await;
}

#[tokio::test]
async fn a_daemon_without_its_servers_says_which_one_and_doctor_says_the_same() {
    let shared = of_process();
    let nobody = "postgres://nobody@127.0.0.1:1/d?sslmode=disable";
    let refusal = shared.node("node-a").set("store.url", nobody).refusal().await;
    assert_eq!(refusal.code, Some(1), "{}", refusal.said);
    assert!(refusal.said.contains("the database (store.url) cannot be used"), "{}", refusal.said);
    let no_bucket = shared.node("node-a").set("store.objects", "s3://nobucket").refusal().await;
    assert!(no_bucket.said.contains("store.objects"), "{}", no_bucket.said);

    let dir = tempfile::tempdir().expect("a folder");
    let config = dir.path().join("config.toml");
    let look = |url: &str| {
        let text = format!(
            "store.root = {:?}\nstore.url = {url:?}\nstore.objects = {:?}",
            dir.path(),
            shared.objects
        );
        std::fs::write(&config, text).expect("a configuration");
        let done = Command::new(program())
            .args(["doctor", "--json", "--config"])
            .arg(&config)
            .envs(shared.servers.aws())
            .output()
            .expect("doctor");
        let checks = String::from_utf8_lossy(&done.stdout).into_owned();
        let document: serde_json::Value = serde_json::from_str(&checks).expect("JSON");
        let all = document["checks"].as_array().expect("checks");
        let of_it = all.iter().find(|check| check["name"] == "shared store");
        of_it.unwrap_or_else(|| panic!("no check of it: {checks}")).to_string()
    };
    assert!(look(&shared.url).contains("PostgreSQL and S3 answer"), "{}", look(&shared.url));
    let failed = look(nobody);
    assert!(failed.contains("fail") && failed.contains("store.url"), "{failed}");
}
