//! What reaches the log of an execution, and which notifications follow. These tests use a real store, but no
//! container.

use std::future::poll_fn;

use futures_util::FutureExt;
use serde_json::{Value, json};
use tokio::sync::broadcast;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::execution::log::ExecutionLog;
use crate::execution::log::event::{EventBody, ExecutionEvent};
use crate::execution::publish::EventPublisher;
use crate::execution::stored::{ExecutionSpec, StoredExecution};
use crate::notifications::{Notification, Notifications};
use crate::session::{Pace, Phases, Unsaved};
use crate::store::slow_disk::{self, SlowDisk};
use crate::store::{Amount, Options, Quota, Space, Store, StoreError, blocking};

const OUT: OutputStream = OutputStream::Stdout;
const ERR: OutputStream = OutputStream::Stderr;
const ID: &str = "0a-1b";

struct Stand {
    _root: tempfile::TempDir,
    space: Arc<Space>,
    notifications: Arc<Notifications>,
}

impl Stand {
    async fn new(total: u64) -> Self {
        let root = tempfile::tempdir().unwrap();
        let quota = Quota { bytes: 1 << 20, entries: 100, file: 1 << 20 };
        let total = Amount { bytes: total, entries: 1 << 30 };
        let store = Store::open(root.path(), Options { quota, total }).unwrap();
        let space = Arc::new(store).space("owner", "s").await.unwrap();
        Self { _root: root, space, notifications: Arc::default() }
    }

    /// An execution, new or as the daemon before left it.
    async fn execution(&self, backlog: Option<OutputBacklog>) -> Arc<Execution> {
        let files = self.space.execution_files(ID);
        let log = blocking(move || ExecutionLog::resumed(files)).await.unwrap();
        let whose = ("owner".to_owned(), "s".parse().unwrap());
        let publisher = EventPublisher::new(self.notifications.clone(), ID.to_owned(), whose.clone());
        let spec = spec();
        let cancel = CancellationToken::new();
        Arc::new(Execution::running(ID.to_owned(), whose, spec, log, publisher, backlog, cancel))
    }

    async fn sink(&self) -> ExecutionSink {
        ExecutionSink::new(self.execution(None).await, None, crate::ports::PortLinks::for_tests())
    }

    /// What is noted of the execution.
    fn note(&self) -> StoredExecution {
        let (id, note) = self.space.executions().pop().expect("a note");
        assert_eq!(id, ID);
        serde_json::from_slice(&note).unwrap()
    }
}

async fn written(sink: &ExecutionSink) {
    let written = poll_fn(|context| sink.poll_written(context));
    tokio::time::timeout(Duration::from_secs(60), written).await.expect("it is written");
}

/// The events in the log, in short.
async fn events(execution: &Execution) -> Vec<String> {
    let page = execution.page(0, 1 << 20, false).await.unwrap();
    page.events.iter().map(short).collect()
}

fn short(event: &ExecutionEvent) -> String {
    let what = match &event.body {
        EventBody::Output { stream, bytes, eol } => {
            let end = if *eol { "\\n" } else { "" };
            format!("{} {}{end}", stream.as_str(), String::from_utf8_lossy(bytes))
        }
        EventBody::Lifecycle(step) => {
            serde_json::to_value(step).unwrap()["type"].as_str().unwrap().to_owned()
        }
    };
    format!("{} {what}", event.seq)
}

fn exit(code: i32) -> Conclusion {
    Conclusion::of(
        &RunEnd::Ended { outcome: paddock_proto::message::Outcome::Exited(code), limit: None },
        Duration::from_millis(5),
        &spec(),
    )
}

fn spec() -> ExecutionSpec {
    ExecutionSpec {
        command: "sh".to_owned(),
        interactive: false,
        timeout: Duration::from_secs(30),
        started_ms: 1,
        program: None,
        task: None,
    }
}

fn report() -> RunReport {
    RunReport {
        run_id: ID.to_owned(),
        end: RunEnd::Ended { outcome: paddock_proto::message::Outcome::Exited(0), limit: None },
        changed: Vec::new(),
        not_saved: Vec::new(),
        unsaved: None,
        duration: Duration::from_millis(5),
        phases: Phases::default(),
        warm: false,
        is_cold: false,
        network: Vec::new(),
        models: None,
    }
}

/// From and to which number each notification told of events, and how many it had.
fn told(subscriber: &mut broadcast::Receiver<Notification>) -> Vec<(u64, u64, usize)> {
    std::iter::from_fn(|| subscriber.try_recv().ok())
        .map(|one| {
            let number = |key: &str| one.params[key].as_u64().unwrap();
            let events = one.params["events"].as_array().unwrap().len();
            (number("first_seq"), number("last_seq"), events)
        })
        .collect()
}

#[test]
fn output_is_kept_when_it_is_written_and_then_it_can_be_read() {
    slow_disk::run(async {
        let stand = Stand::new(1 << 30).await;
        let mut sink = stand.sink().await;
        assert!(sink.is_kept(), "there is nothing to keep");
        let disk = SlowDisk::new();
        sink.begun();
        sink.take(OUT, "one\ntw".into());
        assert!(!sink.is_kept(), "the agent may forget what was not written");
        assert!(poll_fn(|context| sink.poll_written(context)).now_or_never().is_none());
        drop(disk);
        written(&sink).await;
        assert!(sink.is_kept());
        assert_eq!(events(&sink.execution).await, ["1 ready", "2 stdout one\\n"]);
        assert_eq!(sink.execution.last_event(), 2);
        sink.take(ERR, "wrong\n".into());
        sink.take(OUT, "o\n".into());
        written(&sink).await;
        assert_eq!(events(&sink.execution).await[2..], ["3 stderr wrong\\n", "4 stdout two\\n"]);
        assert_eq!(sink.execution.output(), 14);
    });
}

#[tokio::test(start_paused = true)]
async fn a_line_without_its_end_is_told_after_a_while_and_half_a_character_is_not() {
    let stand = Stand::new(1 << 30).await;
    let mut sink = stand.sink().await;
    sink.take(OUT, "whole\n".into());
    assert_eq!(sink.due(), None);
    sink.take(OUT, "nam".into());
    let due = sink.due().expect("a prompt waits");
    assert_eq!(due - Instant::now(), PATIENCE);
    tokio::time::sleep(PATIENCE / 2).await;
    sink.take(ERR, "x".into());
    sink.take(OUT, "e: \u{20ac}".as_bytes()[..5].to_vec().into());
    assert_eq!(sink.due(), Some(due), "more of the line puts it off");
    sink.on_due();
    written(&sink).await;
    assert_eq!(events(&sink.execution).await, ["1 stdout whole\\n"], "too soon");
    tokio::time::sleep_until(due).await;
    sink.on_due();
    written(&sink).await;
    assert_eq!(events(&sink.execution).await[1..], ["2 stdout name: "]);
    assert_eq!(sink.due(), Some(due + PATIENCE / 2), "the other stream has its own time");
    sink.take(ERR, "y\n".into());
    assert_eq!(sink.due(), None);
    // Nothing but half a character waits: there is nothing to cut, and nothing to write.
    written(&sink).await;
    let size = || sink.execution.log.files().read().unwrap().metadata().unwrap().len();
    let before = size();
    sink.execution.append([LogEntry::Cut(OUT, false), LogEntry::Cut(ERR, false)]);
    written(&sink).await;
    assert_eq!(size(), before);
    sink.take(OUT, "\u{20ac}".as_bytes()[2..].to_vec().into());
    written(&sink).await;
    assert_eq!(events(&sink.execution).await[2..], ["3 stderr xy\\n"]);
    tokio::time::sleep(PATIENCE).await;
    sink.on_due();
    written(&sink).await;
    assert_eq!(events(&sink.execution).await[3..], ["4 stdout \u{20ac}"]);
}

#[tokio::test(start_paused = true)]
async fn what_comes_again_after_a_restart_is_in_the_log_once_and_what_is_lost_is_told() {
    let stand = Stand::new(1 << 30).await;
    let mut before = stand.sink().await;
    before.begun();
    before.take(OUT, "one\ntwo\n".into());
    written(&before).await;
    drop(before);
    let mut sink = stand.sink().await;
    // The agent was told of four bytes of the eight that are in the log.
    sink.resumed(4);
    for piece in ["tw", "o\nth", "ree\n"] {
        sink.take(OUT, piece.into());
    }
    written(&sink).await;
    let expected = ["1 ready", "2 stdout one\\n", "3 stdout two\\n", "4 stdout three\\n"];
    assert_eq!(events(&sink.execution).await, expected);
    drop(sink);
    let mut sink = stand.sink().await;
    sink.resumed(20);
    written(&sink).await;
    let page = sink.execution.page(4, 1 << 20, false).await.unwrap();
    assert_eq!(page.events[0].body, EventBody::Lifecycle(Lifecycle::Gap { bytes: 6 }));
}

#[tokio::test(start_paused = true)]
async fn an_execution_whose_beginning_was_not_noted_begins_when_it_is_resumed() {
    let stand = Stand::new(1 << 30).await;
    let mut sink = stand.sink().await;
    sink.resumed(0);
    written(&sink).await;
    assert_eq!(events(&sink.execution).await, ["1 ready"]);
}

#[tokio::test(start_paused = true)]
async fn subscribers_receive_events_and_of_a_flood_its_numbers() {
    let stand = Stand::new(1 << 30).await;
    let mut subscriber = stand.notifications.subscribe("owner");
    let mut other = stand.notifications.subscribe("another");
    let mut sink = stand.sink().await;
    sink.begun();
    written(&sink).await;
    sink.take(OUT, "one\ntwo\nhalf".into());
    written(&sink).await;
    sink.take(OUT, "\nx".repeat(500).into());
    written(&sink).await;
    assert_eq!(told(&mut subscriber), [(1, 1, 1), (2, 3, 2), (4, 503, 0)]);
    assert!(told(&mut other).is_empty());
}

#[test]
fn nobody_finds_an_execution_running_that_was_told_to_be_over() {
    slow_disk::run(async {
        let stand = Stand::new(1 << 30).await;
        let mut subscriber = stand.notifications.subscribe("owner");
        let mut sink = stand.sink().await;
        sink.begun();
        sink.take(OUT, "half".into());
        sink.ended(&report().end, Duration::from_millis(5));
        written(&sink).await;
        let note = stand.note();
        assert_eq!(note.end, None);
        assert_eq!(note.conclusion.map(|conclusion| conclusion.steps), Some(exit(0).steps));
        told(&mut subscriber);
        let execution = sink.execution.clone();
        let conclusion = sink.conclusion(&report()).await;
        let disk = SlowDisk::new();
        let mut finishing = Box::pin(execution.finish(conclusion));
        assert!(finishing.as_mut().now_or_never().is_none(), "over before its end is written");
        assert!(execution.end().is_none() && execution.over().now_or_never().is_none());
        assert!(
            execution.news(1).now_or_never().is_none() && told(&mut subscriber).is_empty(),
            "told too soon"
        );
        drop(disk);
        // Whoever is woken finds the state of the end.
        let watching = async {
            execution.news(1).await;
            assert!(execution.end().is_some(), "told before its state has changed");
        };
        tokio::join!(watching, finishing);
        assert_eq!(execution.state(), ExecutionState::Completed);
        assert!(execution.over().now_or_never().is_some() && execution.news(9).now_or_never().is_some());
        assert_eq!(told(&mut subscriber), [(2, 3, 2)]);
        assert_eq!(events(&execution).await, ["1 ready", "2 stdout half", "3 exit"]);
        assert_eq!(stand.note().end.map(|end| end.exit_code), Some(Some(0)));
        assert!(!execution.end_within(Duration::ZERO));
    });
}

/// Of an execution that never had a program to tell of its end.
#[tokio::test(start_paused = true)]
async fn a_last_event_is_never_in_the_log_without_its_end_in_the_note() {
    for items in 0.. {
        let stand = Stand::new(1 << 30).await;
        let sink = stand.sink().await;
        if !sink.execution.die_after(items, Conclusion::cancelled()) {
            assert!(items > 3, "{items}");
            return;
        }
        written(&sink).await;
        let is_told = sink.execution.log.has_ended();
        drop(sink);
        let noted = stand.space.executions().pop();
        let noted = noted.map(|(_, note)| serde_json::from_slice::<StoredExecution>(&note).unwrap());
        let end = noted.and_then(|noted| noted.end.or(noted.conclusion.map(|conclusion| conclusion.end)));
        let is_kept = end.is_some_and(|end| end.state == ExecutionState::Cancelled);
        assert!(is_kept || !is_told, "killed after {items} of the last items");
    }
}

#[tokio::test(start_paused = true)]
async fn output_that_cannot_be_kept_ends_the_execution_which_says_so() {
    let stand = Stand::new(40_000).await;
    let mut sink = stand.sink().await;
    sink.begun();
    // The last piece would fit, and would hide that the one before is missing.
    for bytes in [30_000, 30_000, 1000] {
        sink.take(OUT, vec![b'x'; bytes].into());
        written(&sink).await;
        assert!(sink.is_kept(), "the agent would keep it for ever");
    }
    assert!(sink.execution.cancel.is_cancelled());
    let conclusion = sink.conclusion(&report()).await;
    assert_eq!(conclusion.end.state, ExecutionState::Failed);
    assert!(conclusion.end.message.as_ref().is_some_and(|message| message.contains("could not be kept")));
    sink.execution.finish(conclusion).await;
    let events = events(&sink.execution).await;
    assert_eq!(events.len(), 3, "{events:?}");
    assert_eq!((&events[0][..], &events[2][..]), ("1 ready", "3 error"), "its end is told beyond the bound");
    assert_eq!(sink.execution.output(), 30_000, "output with a hole");
}

#[tokio::test(start_paused = true)]
async fn output_whose_writer_panicked_is_said_to_be_lost_and_the_execution_ends() {
    let stand = Stand::new(1 << 30).await;
    let mut sink = stand.sink().await;
    sink.begun();
    written(&sink).await;
    sink.execution.note_panic_of_writer();
    assert!(sink.execution.cancel.is_cancelled(), "it goes on without a log");
    sink.take(OUT, "after the hole\n".into());
    written(&sink).await;
    let conclusion = sink.conclusion(&report()).await;
    assert_eq!(conclusion.end.state, ExecutionState::Failed);
    sink.execution.finish(conclusion).await;
    assert_eq!(events(&sink.execution).await, ["1 ready", "2 error"]);
}

#[tokio::test(start_paused = true)]
async fn files_that_are_not_saved_are_in_the_message() {
    let stand = Stand::new(1 << 30).await;
    let sink = stand.sink().await;
    for (is_kept, fate) in [(true, "the next call saves them"), (false, "they are lost")] {
        let unsaved = || Some(Unsaved { error: StoreError::Gone, is_kept });
        let conclusion = sink.conclusion(&RunReport { unsaved: unsaved(), ..report() }).await;
        assert_eq!(conclusion.end.state, ExecutionState::Completed);
        let message = conclusion.end.message.unwrap();
        assert!(message.contains("are not saved") && message.contains(fate), "{message}");
        let end = RunEnd::Lost("it died".to_owned());
        let lost = sink.conclusion(&RunReport { end, unsaved: unsaved(), ..report() }).await;
        let message = lost.end.message.unwrap();
        assert!(message.contains("it died") && message.contains(fate), "{message}");
    }
}

#[test]
fn a_follower_reads_what_is_written_up_to_the_end_and_can_hold_the_program_back() {
    slow_disk::run(async {
        let stand = Stand::new(1 << 30).await;
        let backlog = OutputBacklog::default();
        let mut follower = backlog.follow(Pace::Lossless);
        let execution = stand.execution(Some(backlog.clone())).await;
        let mut sink =
            ExecutionSink::new(execution.clone(), Some(backlog), crate::ports::PortLinks::for_tests());
        let disk = SlowDisk::new();
        sink.take(OUT, "half".into());
        assert!(follower.next().now_or_never().is_none(), "told before it is written");
        drop(disk);
        written(&sink).await;
        assert_eq!(follower.next().await.map(|piece| piece.text).as_deref(), Some("half"));
        sink.take(ERR, vec![b'x'; 100_000].into());
        written(&sink).await;
        assert!(poll_fn(|context| sink.poll_room(context)).now_or_never().is_none());
        assert_eq!(follower.next().await.map(|piece| piece.stream), Some(Some(ERR)));
        assert!(poll_fn(|context| sink.poll_room(context)).now_or_never().is_some());
        drop(sink);
        assert!(follower.next().now_or_never().is_none(), "the execution is not over");
        execution.finish(exit(0)).await;
        assert_eq!(follower.next().await, None, "the end, while the execution can still be read");
    });
}

#[tokio::test(start_paused = true)]
async fn a_port_is_told_once_also_after_a_restart_and_no_more_than_the_bound() {
    let stand = Stand::new(1 << 30).await;
    let mut sink = stand.sink().await;
    for port in [8000, 0, 8000, 3000] {
        sink.listens(port);
    }
    written(&sink).await;
    let ports = |execution: &Execution| execution.ports().iter().map(|open| open.port).collect::<Vec<_>>();
    assert_eq!(events(&sink.execution).await, ["1 port", "2 port"]);
    assert_eq!(ports(&sink.execution), [8000, 3000]);
    let url = sink.execution.ports()[0].url.clone();
    assert!(url.starts_with("http://ports.test/") && url.ends_with("/s/8000/"), "{url}");
    // The agent says again what it was not told to be known.
    let mut sink = stand.sink().await;
    sink.resumed(0);
    sink.listens(3000);
    (10_000..11_000).for_each(|port| sink.listens(port));
    written(&sink).await;
    let told = ports(&sink.execution);
    assert_eq!((told.len(), &told[..3]), (paddock_proto::limits::MAX_PORTS, &[8000, 3000, 10_000][..]));
    assert_eq!(events(&sink.execution).await.len(), told.len());
    sink.execution.finish(exit(0)).await;
    assert_eq!(ports(&sink.execution), [0_u16; 0], "nothing listens any more");
}

#[tokio::test(start_paused = true)]
async fn what_subscribers_receive_is_what_its_document_says() {
    let stand = Stand::new(1 << 30).await;
    let mut subscriber = stand.notifications.subscribe("owner");
    let mut sink = stand.sink().await;
    sink.take(OUT, "hi\n".into());
    written(&sink).await;
    let notification = subscriber.try_recv().unwrap();
    assert_eq!(notification.method, "notifications/execution");
    let mut params = (*notification.params).clone();
    assert!(params["events"][0]["ts"].take().is_f64());
    let event = json!({ "type": "stdout", "data": "hi", "seq": 1, "ts": Value::Null });
    let expected =
        json!({ "execution_id": ID, "session_id": "s", "first_seq": 1, "last_seq": 1, "events": [event] });
    assert_eq!(params, expected);
}
