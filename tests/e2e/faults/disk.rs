//! A disk whose syncs are slow, and one whose sectors fail.

use std::time::{Duration, Instant};

use tokio::join;

use super::BACK;
use crate::support::{BadDisk, Daemon, Store, within};

const BYTES: u64 = 256 << 20;
const SYNC: Duration = Duration::from_millis(500);
/// The output of a command: several of the pieces that a log gives to the disk.
const OUTPUT: u64 = 8 << 20;
/// The kernel begins by itself to write what is 30 s old.
const BY_ITSELF: Duration = Duration::from_secs(20);
/// More than the journal writes at once, so that the file has sectors of its own.
const LARGE: usize = 6 << 20;

/// A file with a mark in its middle.
fn marked(mark: &str) -> Vec<u8> {
    let mut content: Vec<u8> = b"content\n".iter().copied().cycle().take(LARGE).collect();
    content[LARGE / 2..LARGE / 2 + mark.len()].copy_from_slice(mark.as_bytes());
    content
}

#[tokio::test]
async fn output_goes_to_the_disk_while_nobody_syncs() {
    let store = Store::new();
    let disk = BadDisk::at(store.path(), BYTES);
    let d = Daemon::with().set("exec.runner", "sh").store(&store).start().await;
    let before = disk.written();
    let command = format!("yes | head -c {OUTPUT}; exec sleep 50");
    let begun = d.session("s").tool("execute_code_async").with("command", command).await;
    assert_eq!(begun.document["status"], "running", "{begun:?}");
    // No file is saved, so the daemon syncs nothing.
    let written = async {
        while disk.written() < before + OUTPUT * 3 / 4 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    within(BY_ITSELF, "the output is on the disk", written).await;
    d.stop().await;
    drop(disk);
}

#[tokio::test]
async fn a_slow_disk_delays_what_saves_files_and_nothing_else() {
    let store = Store::new();
    let disk = BadDisk::at(store.path(), BYTES);
    let d = Daemon::with().store(&store).start().await;
    let (s, t) = (d.session("s"), d.session("t"));
    for session in [&s, &t] {
        session.sh("echo kept > f").await.expect_success();
    }
    disk.sync_takes(SYNC);
    let begun = Instant::now();
    let (saved, (quick, well)) = join!(
        async {
            s.sh("echo made > made").await.expect_success();
            begun.elapsed()
        },
        async {
            t.sh("cat f").await.expect_stdout("kept\n");
            let quick = begun.elapsed();
            d.request("GET", "/ready").send().await.expect(200);
            (quick, begun.elapsed())
        }
    );
    assert!(saved >= SYNC, "acknowledged without a sync: {saved:?}");
    assert!(quick < saved && well < saved, "{quick:?} and {well:?}, {saved:?}");
    // Files that come together share their syncs.
    let together = Instant::now();
    let many: Vec<_> = (0..20).map(|n| d.session(&format!("m{n}"))).collect();
    let uploads = many.iter().map(|session| async { session.upload("g", b"here").await.expect_success() });
    futures_util::future::join_all(uploads).await;
    eprintln!("one file {saved:?}, 20 files in 20 new sessions {:?}", together.elapsed());
    let store = d.crash().await;
    disk.sync_takes(Duration::ZERO);
    let d = Daemon::with().store(&store).start().await;
    d.session("s").sh("cat f made").await.expect_stdout("kept\nmade\n");
    d.session("m19").sh("cat g").await.expect_stdout("here");
    d.stop().await;
    drop(disk);
}

#[tokio::test]
async fn a_sector_that_fails_at_a_write_takes_no_acknowledged_file() {
    let store = Store::new();
    let disk = BadDisk::at(store.path(), BYTES);
    let d = Daemon::with().store(&store).start().await;
    let s = d.session("s");
    s.sh("echo kept > f").await.expect_success();
    disk.fail_at(b"THIS SECTOR FAILS");
    let content = marked("THIS SECTOR FAILS");
    let refused = s.upload("bad", &content).await;
    assert!(disk.failed() > 0, "no sector failed");
    refused.expect_error("quota_exceeded");
    disk.mend();
    let saving = async {
        let mut n = 0;
        while s.upload("again", &content).await.is_error {
            n += 1;
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        n
    };
    let tries = within(BACK, "the store to be written again", saving).await;
    eprintln!("{} reads and writes failed; saved again after {tries} refusals", disk.failed());
    let ready = async {
        while d.request("GET", "/ready").send().await.status != 200 {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    within(BACK, "a daemon that is ready", ready).await;
    s.sh("cat f; wc -c < again").await.expect_stdout(&format!("kept\n{LARGE}\n"));
    d.stop().await;
    drop(disk);
}

/// The kernel reports a failed write to the first sync that comes, even to that of the next daemon.
#[tokio::test]
async fn a_daemon_starts_after_a_write_failed_before_it_was_killed() {
    let store = Store::new();
    let disk = BadDisk::at(store.path(), BYTES);
    let d = Daemon::with().store(&store).start().await;
    let s = d.session("s");
    s.upload("f", b"kept").await.expect_success();
    disk.fail_at(b"THIS SECTOR FAILS");
    s.upload("bad", &marked("THIS SECTOR FAILS")).await.expect_error("quota_exceeded");
    assert!(disk.failed() > 0, "no sector failed");
    disk.mend();
    let store = d.crash().await;
    let d = Daemon::with().store(&store).start().await;
    d.log.line("a write to the store's disk failed before this start").await;
    let s = d.session("s");
    s.sh("cat f; test -e bad || echo not saved").await.expect_stdout("keptnot saved\n");
    s.upload("g", b"saved").await.expect_success();
    d.request("GET", "/ready").send().await.expect(200);
    let store = d.crash().await;
    let d = Daemon::with().store(&store).start().await;
    d.session("s").sh("cat f g").await.expect_stdout("keptsaved");
    d.stop().await;
    drop(disk);
}

/// It keeps the journal, says so, and the next start needs nothing else.
#[tokio::test]
async fn a_daemon_whose_disk_failed_says_that_it_wants_to_be_restarted() {
    let store = Store::new();
    let disk = BadDisk::at(store.path(), BYTES);
    let d = Daemon::with().store(&store).start().await;
    let s = d.session("s");
    s.upload("f", b"kept").await.expect_success();
    disk.fail_at(b"THIS SECTOR FAILS");
    s.upload("bad", &marked("THIS SECTOR FAILS")).await.expect_error("quota_exceeded");
    disk.mend();
    d.log.line("cannot sync the store: the journal is kept from now on").await;
    let ready = d.request("GET", "/ready").send().await.expect(200).json();
    let said = "the store could not be synced: its journal grows until a restart";
    assert_eq!(ready["degraded"][0], said, "{ready}");
    // More files at once than are synced one by one: what failed before is not theirs.
    s.sh("for n in $(seq 200); do head -c 100000 /dev/zero > many-$n; done").await.expect_success();
    let store = d.crash().await;
    let d = Daemon::with().store(&store).start().await;
    d.session("s").sh("cat f; ls many-* | wc -l").await.expect_stdout("kept200\n");
    let ready = d.request("GET", "/ready").send().await.expect(200).json();
    assert_eq!(ready["degraded"], serde_json::Value::Null, "{ready}");
    d.stop().await;
    drop(disk);
}

#[tokio::test]
async fn a_sector_that_fails_at_a_read_never_gives_a_wrong_file() {
    let store = Store::new();
    let disk = BadDisk::at(store.path(), BYTES);
    let d = Daemon::with().store(&store).start().await;
    let s = d.session("s");
    let content = marked("THIS SECTOR IS OLD");
    s.upload("f", b"kept").await.expect_success();
    s.upload("old", &content).await.expect_success();
    let store = d.crash().await;
    let d = Daemon::with().store(&store).start().await;
    disk.fail_where(b"THIS SECTOR IS OLD");
    let read = |name: &str| d.request("GET", &format!("/sessions/s/files/{name}")).try_send();
    // Its head may have been sent before the sector is read: then the connection ends too early.
    let got = read("old").await;
    assert!(got.as_ref().is_none_or(|answer| answer.status >= 500), "{got:?}");
    assert!(disk.failed() > 0, "no sector failed");
    assert_eq!(read("f").await.expect("an answer").expect(200).text(), "kept");
    disk.mend();
    d.stop().await;
    drop(disk);
}
