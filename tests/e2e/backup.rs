//! `paddock backup` and `paddock restore`: a backup of a store in use has every acknowledged change of one
//! moment; it is restored as a whole or not at all, also on another engine; a damaged one is refused.

use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use tokio::process::Command;

use super::upgrade::{daemon_of, expect_everything, store_of};
use crate::support::{Chance, Daemon, PATIENCE, PrivateEngine, Store, program, within};

/// The token of the fixture.
const FIXTURE: &str = "the-token-of-the-fixture";

/// The command `paddock WORDS` about this store.
fn paddock(store: &Path, words: &[&str]) -> Command {
    let mut command = Command::new(program());
    command.args(words).arg("--store").arg(store).env_clear().env("HOME", "/nowhere");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    command
}

async fn run(store: &Path, words: &[&str]) -> Output {
    within(PATIENCE * 2, "a command", paddock(store, words).output()).await.expect("paddock")
}

#[track_caller]
fn expect(done: &Output, code: i32, said: &str) {
    let text = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.code() == Some(code) && text.contains(said), "{:?}: {text}", done.status);
}

/// A file in a folder, as text for a command line.
struct Backup(tempfile::TempDir);

impl Backup {
    fn new() -> Backup {
        Backup(tempfile::tempdir().expect("a folder"))
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("backup.tar")
    }

    fn text(&self) -> String {
        self.path().display().to_string()
    }

    /// What is beside it.
    fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.0.path()).expect("a folder");
        entries.map(|entry| entry.expect("an entry").file_name().into_string().expect("text")).collect()
    }
}

#[tokio::test]
async fn a_backup_of_a_running_daemon_is_restored_elsewhere_with_files_and_links() {
    let (store, expected) = store_of(1);
    let d = daemon_of(&store).start().await;
    let backup = Backup::new();
    expect(&run(store.path(), &["backup", &backup.text()]).await, 0, "it contains secrets");
    let mode = std::fs::metadata(backup.path()).expect("a file").permissions().mode();
    assert_eq!((mode & 0o777, backup.names()), (0o600, vec!["backup.tar".to_owned()]));
    expect(&run(store.path(), &["backup", &backup.text()]).await, 1, "exists already");
    // No token gives it, and the snapshot left nothing.
    d.request("GET", "/backup").send().await.expect(404);
    assert_eq!(std::fs::read_dir(store.path().join("tmp")).expect("a folder").count(), 0);
    // A list that other tools read.
    let listed = std::process::Command::new("tar").arg("-tf").arg(backup.path()).output().expect("tar");
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    assert!(listed.starts_with("paddock-backup.json\n") && listed.contains("store/owner\n"), "{listed}");
    for left_out in ["journal", "tmp/", ".sock", "store/lock"] {
        assert!(!listed.contains(left_out), "{left_out}: {listed}");
    }

    // Another machine: another engine, and another owner of what is made there. Both daemons run.
    let engine = PrivateEngine::with_image("paddock-example-sh").await;
    let other = Store::new();
    expect(&run(other.path(), &["restore", &backup.text()]).await, 0, "are restored");
    let moved = daemon_of(&other).env("DOCKER_HOST", &engine.host()).start().await;
    expect_everything(&moved, &expected).await;
    assert_ne!(other.owner(), store.owner());
    moved.stop_on(&engine.host()).await;

    // Restored again over what is there, the place keeps its owner; without --force it is refused.
    let owner = other.owner();
    expect(&run(other.path(), &["restore", &backup.text()]).await, 1, "is not empty");
    std::fs::write(other.path().join("stray"), "x").expect("a file");
    expect(&run(other.path(), &["restore", "--force", &backup.text()]).await, 0, "are restored");
    assert!(!other.path().join("stray").exists() && !other.path().join("restoring").exists());
    assert_eq!(other.owner(), owner);
    let same = run(other.path(), &["restore", "--force", "--same-owner", &backup.text()]).await;
    expect(&same, 0, "are restored");
    let of_backup = std::fs::read_to_string(other.path().join("owner")).expect("a file");
    assert_eq!(of_backup.trim(), store.owner());
    std::fs::write(other.path().join("owner"), &owner).expect("a file"); // the test's engine has both stores

    // A store in use is never replaced.
    expect(&run(store.path(), &["restore", "--force", &backup.text()]).await, 1, "is in use");
    expect_everything(&d, &expected).await;
    d.stop().await;
}

#[tokio::test]
async fn without_a_daemon_the_store_is_read_directly_and_through_pipes() {
    let (store, expected) = store_of(1);
    let archive = run(store.path(), &["backup", "-"]).await;
    expect(&archive, 0, "it contains secrets");
    let other = Store::new();
    let mut restoring = paddock(other.path(), &["restore", "-"]);
    let mut restoring = restoring.stdin(Stdio::piped()).spawn().expect("paddock");
    let mut stdin = restoring.stdin.take().expect("it is piped");
    tokio::io::AsyncWriteExt::write_all(&mut stdin, &archive.stdout).await.expect("it reads");
    drop(stdin);
    expect(&restoring.wait_with_output().await.expect("an end"), 0, "are restored");
    let d = daemon_of(&other).start().await;
    expect_everything(&d, &expected).await;
    d.stop().await;

    let nothing = tempfile::tempdir().expect("a folder");
    let nowhere = nothing.path().join("store");
    expect(&run(&nowhere, &["backup", "-"]).await, 1, "there is no store at");
    assert!(!nowhere.exists(), "a backup makes no store");
}

#[tokio::test]
async fn a_damaged_or_foreign_backup_restores_nothing() {
    let (store, _) = store_of(1);
    let archive = run(store.path(), &["backup", "-"]).await.stdout;
    let backup = Backup::new();
    let target = tempfile::tempdir().expect("a folder");
    let root = target.path().join("store");
    let mut chance = Chance::from_env("BACKUP_SEED");
    let mut tried = vec![("the backup is damaged", archive[..archive.len() / 2].to_vec())];
    // Behind the list nothing counts but zeros.
    let list = archive.windows(23).rposition(|at| at == b"paddock-backup.manifest").expect("a list");
    tried.push(("cut off", archive[..list].to_vec()));
    for _ in 0..40 {
        let mut other = archive.clone();
        let at = usize::try_from(chance.below(list as u64)).expect("a position");
        other[at] ^= 0x20;
        if other[at] == archive[at] || archive[at] == 0 {
            continue; // the padding between members says nothing
        }
        tried.push(("", other));
    }
    tried.push(("no backup of a paddock store", {
        std::fs::read(format!("{}/../../tests/e2e/upgrade/store-1.tar", env!("CARGO_MANIFEST_DIR")))
            .expect("a file")
    }));
    for (said, bytes) in tried {
        std::fs::write(backup.path(), &bytes).expect("a file");
        let done = run(&root, &["restore", &backup.text()]).await;
        // A changed time or mode in a header is not used: the list has its own. Then all of it is right.
        if done.status.success() && said.is_empty() {
            let again = run(&root, &["backup", "-"]).await;
            expect(&again, 0, "it contains secrets");
            std::fs::remove_dir_all(&root).expect("a folder");
            continue;
        }
        expect(&done, 1, said);
        let left: Vec<_> =
            std::fs::read_dir(&root).expect("a folder").flatten().map(|e| e.file_name()).collect();
        assert_eq!(left, ["lock"], "{said}");
    }
}

#[tokio::test]
async fn a_backup_under_load_has_every_change_that_was_acknowledged_before_it() {
    let d = Daemon::with().start().await;
    let writers = 4;
    // Two files that change as one: a backup with one of them alone would be torn.
    for writer in 0..writers {
        d.session(&format!("w{writer}")).sh("echo 0 > a; echo 0 > b").await.expect_success();
    }
    let backup = Backup::new();
    let done = std::sync::atomic::AtomicBool::new(false);
    let acknowledged: Vec<_> = (0..writers).map(|_| std::sync::atomic::AtomicU64::new(0)).collect();
    let relaxed = std::sync::atomic::Ordering::SeqCst;
    let grown = tokio::sync::Notify::new();
    let writing = futures_util::future::join_all((0..writers).map(|writer| {
        let (d, done, acknowledged, grown) = (&d, &done, &acknowledged, &grown);
        async move {
            let mut number = 0;
            while !done.load(relaxed) {
                number += 1;
                let code = format!("echo {number} > a; echo {number} > b");
                d.session(&format!("w{writer}")).sh(&code).await.expect_success();
                acknowledged[writer].store(number, relaxed);
                grown.notify_one();
            }
        }
    }));
    let backing_up = async {
        let mut all = Vec::new();
        for number in 1..6 {
            while acknowledged.iter().any(|count| count.load(relaxed) < 2 * number) {
                within(PATIENCE, "a change", grown.notified()).await;
            }
            let before: Vec<u64> = acknowledged.iter().map(|count| count.load(relaxed)).collect();
            let file = backup.0.path().join(format!("{number}.tar"));
            expect(&run(d.store.path(), &["backup", &file.display().to_string()]).await, 0, "secrets");
            let after: Vec<u64> = acknowledged.iter().map(|count| count.load(relaxed)).collect();
            all.push((file, before, after));
        }
        done.store(true, relaxed);
        all
    };
    let (_, all) = tokio::join!(writing, backing_up);
    d.stop().await;
    for (file, before, after) in all {
        let other = Store::new();
        expect(&run(other.path(), &["restore", &file.display().to_string()]).await, 0, "are restored");
        let d = Daemon::with().store(&other).start().await;
        for writer in 0..writers {
            let ran = d.session(&format!("w{writer}")).sh("cat a b").await.expect_success();
            let [a, b]: [u64; 2] = ran
                .stdout()
                .lines()
                .map(|line| line.parse().expect("a number"))
                .collect::<Vec<_>>()
                .try_into()
                .expect("two");
            assert_eq!(a, b, "half of a change");
            assert!(before[writer] <= a && a <= after[writer] + 1, "{before:?} {a} {after:?}");
        }
        d.stop().await;
    }
}

#[tokio::test]
async fn a_restore_that_is_killed_leaves_the_old_store_or_the_new_one() {
    let (store, expected) = store_of(1);
    let d = daemon_of(&store).start().await;
    // Enough that a kill finds it at work.
    for number in 0..3 {
        let code = format!("mkdir many; cd many; for i in $(seq 1 300); do echo {number} > $i; done");
        d.session(&format!("large-{number}")).sh(&code).bearer(FIXTURE).await.expect_success();
    }
    d.stop().await;
    let backup = Backup::new();
    expect(&run(store.path(), &["backup", &backup.text()]).await, 0, "secrets");

    let mut chance = Chance::from_env("BACKUP_SEED");
    let (mut old, mut new) = (0, 0);
    let mut whole = std::time::Duration::ZERO;
    for round in 0..8 {
        let place = Store::new();
        let d = Daemon::with().store(&place).start().await;
        d.session("mine").sh("echo mine > mine").await.expect_success();
        d.stop().await;
        let _ = std::fs::remove_file(place.path().join("config.toml"));
        let mut restoring =
            paddock(place.path(), &["restore", "--force", &backup.text()]).spawn().expect("paddock");
        let begun = std::time::Instant::now();
        if round > 0 {
            let most = u64::try_from(whole.as_micros()).expect("a short time") * 5 / 4;
            tokio::time::sleep(std::time::Duration::from_micros(chance.below(most))).await; // the test itself
            let pid = restoring.id().and_then(|pid| Pid::from_raw(pid.cast_signed()));
            let _ = kill_process(pid.expect("a process"), Signal::KILL);
        }
        let _ = restoring.wait().await;
        if round == 0 {
            whole = begun.elapsed();
        }
        let d = daemon_of(&place).start().await;
        assert!(!place.path().join("restoring").exists() && !place.path().join("restoring.done").exists());
        let mine = d.request("GET", "/sessions/mine/files/mine").bearer(FIXTURE).send().await.status == 200;
        let theirs = d.request("GET", "/sessions/s/files/run").bearer(FIXTURE).send().await.status == 200;
        assert_ne!(mine, theirs, "round {round}: neither the one nor the other");
        if theirs {
            expect_everything(&d, &expected).await;
            new += 1;
        } else {
            old += 1;
        }
        d.stop().await;
    }
    println!("{old} old, {new} new");
    assert!(new > 0);
    let _ = std::io::stdout().flush();
}

#[tokio::test]
async fn a_planted_link_beside_the_backup_is_not_followed() {
    let (store, _) = store_of(1);
    let backup = Backup::new();
    let other = tempfile::tempdir().expect("a folder");
    let victim = other.path().join("victim");
    std::fs::write(&victim, "mine").expect("a file");
    std::os::unix::fs::symlink(&victim, backup.0.path().join("backup.tar.partial")).expect("a link");
    expect(&run(store.path(), &["backup", &backup.text()]).await, 0, "secrets");
    assert_eq!(std::fs::read_to_string(&victim).expect("a file"), "mine");
    std::fs::remove_file(backup.path()).expect("a file");
    std::os::unix::fs::symlink(&victim, backup.path()).expect("a link");
    expect(&run(store.path(), &["backup", &backup.text()]).await, 1, "exists already");
    assert_eq!(std::fs::read_to_string(&victim).expect("a file"), "mine");
}

#[tokio::test]
async fn a_configuration_whose_token_only_the_service_reads_is_enough() {
    let (store, _) = store_of(1);
    let backup = Backup::new();
    let config = backup.0.path().join("paddock.toml");
    let text = "[http]\naddr = \"0.0.0.0:1\"\npublic_url = \"https://sandbox.example.com\"\n";
    std::fs::write(&config, text).expect("a file");
    let config = config.display().to_string();
    expect(&run(store.path(), &["backup", "--config", &config, &backup.text()]).await, 0, "secrets");
    let other = Store::new();
    let restored = run(other.path(), &["restore", "--config", &config, &backup.text()]).await;
    expect(&restored, 0, "are restored");
    let asked = run(other.path(), &["health", "--config", &config]).await;
    let said = String::from_utf8_lossy(&asked.stdout);
    assert!(asked.status.code() == Some(1) && said.contains("no daemon of the store"), "{asked:?}");
    // To serve without a token is another matter.
    expect(&run(other.path(), &["serve", "--config", &config]).await, 2, "there is no token");
}

#[tokio::test]
async fn a_restore_says_that_revoked_tokens_are_back() {
    let (store, _) = store_of(1);
    for name in ["a", "b"] {
        expect(&run(store.path(), &["token", "add", name]).await, 0, "");
    }
    let backup = Backup::new();
    expect(&run(store.path(), &["backup", &backup.text()]).await, 0, "secrets");
    expect(&run(store.path(), &["token", "revoke", "a"]).await, 0, "revoked");
    let restored = run(store.path(), &["restore", "--force", &backup.text()]).await;
    expect(&restored, 0, "with 2 tokens: every token that was revoked later is valid again");
    let listed = run(store.path(), &["token", "list"]).await;
    assert_eq!(String::from_utf8_lossy(&listed.stdout).lines().count(), 3, "{listed:?}");
}
