//! What is captured, what is logged, and what the agent may forget.

use std::future::poll_fn;
use std::io::Read;
use std::time::Duration;

use futures_util::FutureExt;

use super::*;
use crate::session::output::live::Pace;
use crate::store::slow_disk::{self, SlowDisk};
use crate::store::{Amount, Options, Quota, SavedFile, Store};

const OUT: OutputStream = OutputStream::Stdout;

struct Stand {
    _dir: tempfile::TempDir,
    store: Arc<Store>,
    space: Arc<Space>,
}

impl Stand {
    async fn new(total: u64) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let quota = Quota { bytes: 1 << 20, entries: 100, file: 1 << 20 };
        let total = Amount { bytes: total, entries: 1 << 30 };
        let store = Arc::new(Store::open(dir.path(), Options { quota, total }).unwrap());
        let space = store.space("o", "s").await.unwrap();
        Self { _dir: dir, store, space }
    }

    fn capture(&self, bound: usize, backlog: Option<OutputBacklog>) -> Capture {
        Capture::new(self.space.clone(), "run_1", (bound, bound), backlog)
    }

    /// What is in the log; `None` if there is none.
    fn log(&self) -> Option<String> {
        let (mut file, _) = self.store.open_file("o", "s", SavedFile::Log("run_1")).ok()?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).unwrap();
        Some(String::from_utf8_lossy(&bytes).into_owned())
    }
}

async fn written(capture: &Capture) {
    let written = poll_fn(|context| capture.poll_written(context));
    tokio::time::timeout(Duration::from_secs(60), written).await.expect("it is written");
}

#[tokio::test(start_paused = true)]
async fn short_output_is_all_in_the_answer_and_costs_no_write() {
    let stand = Stand::new(1 << 30).await;
    let mut capture = stand.capture(100, None);
    capture.take(OUT, "x".repeat(99).into());
    capture.take(OutputStream::Stderr, "y".into());
    assert!(poll_fn(|context| capture.poll_written(context)).now_or_never().is_some());
    assert!(!capture.is_kept(), "the agent may forget what is in memory alone");
    let captured = capture.finish().await;
    assert_eq!((captured.stdout.bytes(), captured.stderr.bytes(), captured.logged), (99, 1, false));
    assert_eq!(stand.log(), None);
}

#[test]
fn longer_output_is_logged_in_its_order_and_kept_only_when_it_is_written() {
    slow_disk::run(async {
        let stand = Stand::new(1 << 30).await;
        let mut capture = stand.capture(10, None);
        let disk = SlowDisk::new();
        capture.take(OUT, "first ".into());
        capture.take(OutputStream::Stderr, "second ".into());
        assert!(!capture.is_kept(), "the agent may forget what was not written");
        drop(disk);
        written(&capture).await;
        assert!(capture.is_kept());
        assert_eq!(stand.log().as_deref(), Some("first second "));
        let disk = SlowDisk::new();
        capture.take(OUT, "third".into());
        assert!(!capture.is_kept(), "the new piece is not written");
        drop(disk);
        let captured = capture.finish().await;
        assert!(captured.logged);
        assert_eq!((captured.stdout.bytes(), captured.stderr.bytes()), (11, 7));
        assert_eq!(stand.log().as_deref(), Some("first second third"));
    });
}

#[tokio::test(start_paused = true)]
async fn output_that_is_no_text_is_logged_however_short_it_is() {
    let stand = Stand::new(1 << 30).await;
    let mut capture = stand.capture(100, None);
    capture.take(OUT, Bytes::from_static(b"a\xffb"));
    assert!(capture.finish().await.logged);
    assert_eq!(stand.log().as_deref(), Some("a\u{fffd}b"));
}

#[tokio::test(start_paused = true)]
async fn output_byte_by_byte_is_kept_before_it_fills_the_agents_window() {
    let stand = Stand::new(1 << 30).await;
    let mut capture = stand.capture(1 << 30, None);
    let mut window = 0;
    while capture.log.is_none() {
        capture.take(OUT, Bytes::from_static(b"."));
        window += HEADER + 1;
        assert!(window <= WINDOW * 3 / 4, "the agent would wait for ever");
    }
    written(&capture).await;
    assert!(capture.is_kept());
}

#[tokio::test(start_paused = true)]
async fn a_resumed_log_repeats_nothing_and_says_what_was_lost() {
    for (acknowledged, again, expected) in [
        (6, "second ", "first second third"),
        (9, "ond ", "first second third"),
        (0, "first second ", "first second third"),
        (20, "", "first second [7 bytes of output were lost in a restart of the daemon]\nthird"),
    ] {
        let stand = Stand::new(1 << 30).await;
        stand.space.log("run_1").unwrap().append(b"first second ").unwrap();
        let mut capture = stand.capture(10, None);
        capture.resumed(acknowledged);
        for byte in again.bytes() {
            capture.take(OUT, vec![byte].into());
        }
        capture.take(OUT, "third".into());
        written(&capture).await;
        assert!(capture.is_kept());
        assert!(capture.finish().await.logged);
        assert_eq!(stand.log().as_deref(), Some(expected), "{acknowledged} acknowledged");
    }
}

#[tokio::test(start_paused = true)]
async fn a_log_that_fails_is_not_offered_and_holds_up_nobody() {
    let stand = Stand::new(40_000).await;
    let mut capture = stand.capture(10, None);
    // The last piece would fit, and would hide that the one before is missing.
    for bytes in [30_000, 30_000, 1000] {
        capture.take(OUT, vec![b'x'; bytes].into());
        written(&capture).await;
        assert!(capture.is_kept(), "the agent would keep it for ever");
    }
    assert_eq!(stand.log().map(|log| log.len()), Some(30_000), "a log with a hole");
    let captured = capture.finish().await;
    assert_eq!((captured.logged, captured.stdout.bytes()), (false, 61_000));
}

#[tokio::test(start_paused = true)]
async fn a_follower_reads_what_is_taken_at_once_and_holds_the_program_back_if_it_is_lossless() {
    let stand = Stand::new(1 << 30).await;
    let backlog = OutputBacklog::default();
    let mut follower = backlog.follow(Pace::Lossless);
    let mut capture = stand.capture(1 << 20, Some(backlog));
    capture.take(OUT, "first".into());
    assert_eq!(follower.next().await.map(|piece| piece.text).as_deref(), Some("first"));
    capture.take(OUT, vec![b'x'; 100_000].into());
    assert!(poll_fn(|context| capture.poll_room(context)).now_or_never().is_none());
    let finished = capture.finish().await;
    assert_eq!(finished.stdout.bytes(), 100_005);
    assert_eq!(follower.next().await.map(|piece| piece.text.len()), Some(100_000));
    assert_eq!(follower.next().await, None, "the end");
}
