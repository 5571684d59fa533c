//! While the program runs: its output, its input, its time, and an agent that does not keep the protocol.

use std::task::{Context, Poll};

use paddock_proto::limits::WINDOW;

use super::*;
use crate::session::run::follow::GRACE;

const SECOND: Duration = Duration::from_secs(1);

/// What the agent does once it has the code.
fn with_code(then: Vec<Step>) -> Vec<Step> {
    [vec![Step::UntilEof(Channel::Code)], then].concat()
}

fn running(then: Vec<Step>) -> FakeContainer {
    FakeContainer::scripted("c1", |script| script.run = with_code(then))
}

fn cancelled() -> Event {
    Event::Ended(RunEnd { limit: Some(Limit::Cancelled), ..end_of_run() })
}

fn write(bytes: usize) -> Step {
    Step::Write(Channel::Stdout, vec![b'x'; bytes].into())
}

/// What an agent can do after it has the program, and that no honest one does.
const AFTER: [Failure; 8] = [
    ("closes", |script| script.run = with_code(vec![Step::Close])),
    ("abandons the run", |script| script.run = with_code(vec![Step::Reset])),
    ("dies", |script| script.run = with_code(vec![Step::Die])),
    ("dies before it has the code", |script| script.run = vec![Step::Die]),
    ("says what belongs elsewhere", |script| script.run = with_code(vec![Step::Say(Event::Applied)])),
    ("sends a file", |script| {
        script.run = with_code(vec![Step::Write(Channel::File, Bytes::from_static(b"x"))]);
    }),
    ("begins twice", |script| {
        script.run = with_code(vec![Step::Say(Event::Begun), Step::Say(Event::Begun), Step::Say(ended())]);
    }),
    ("collects before the end", |script| {
        script.run = with_code(vec![Step::Say(Event::Changed(file("a", 1))), Step::Say(ended())]);
    }),
];

#[tokio::test(start_paused = true)]
async fn nothing_is_tried_again_once_the_program_was_sent() {
    for (what, change) in AFTER {
        let (container, spare) = (FakeContainer::scripted("c1", change), FakeContainer::new("spare"));
        let world = World::new(&[&container, &spare]).await;
        let report = world.run().await.unwrap();
        assert!(is_lost(&report.end), "{what}: {:?}", report.end);
        assert_eq!((world.pool.leased(), container.runs(), spare.runs()), (1, 1, 0), "{what}");
        assert!(container.is_given_up(), "{what}");
        assert_eq!((world.sessions.live(), world.notes()), (0, Vec::new()), "{what}");
        // The session goes on in another container.
        assert_eq!(world.run().await.unwrap().end, exited(0), "{what}");
    }
}

#[tokio::test(start_paused = true)]
async fn output_beyond_its_bound_is_not_believed_on_either_stream() {
    let cap = usize::try_from(crate::session::test_world::bounds().max_log).unwrap();
    let stderr = Step::Write(Channel::Stderr, vec![b'x'; cap].into());
    let full = running(vec![write(cap), stderr, Step::Say(ended())]);
    let world = World::new(&[&full]).await;
    assert_eq!(world.run().await.unwrap().end, exited(0));
    for over in [Channel::Stdout, Channel::Stderr] {
        let over = running(vec![Step::Write(over, vec![b'x'; cap + 1].into()), Step::Say(ended())]);
        let world = World::new(&[&over]).await;
        assert!(is_lost(&world.run().await.unwrap().end));
    }
}

#[tokio::test(start_paused = true)]
async fn an_end_that_is_overdue_is_asked_for_once_more() {
    let container = running(vec![Step::UntilToldToEnd, Step::Say(cancelled())]);
    let world = World::new(&[&container]).await;
    let begun = Instant::now();
    let report = world.run().await.unwrap();
    assert_eq!(report.end.limit(), Some(Limit::Cancelled));
    assert_eq!(begun.elapsed().as_secs(), (TIMEOUT + GRACE).as_secs());
    assert!(!container.is_given_up());
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_stays_silent_is_given_up_after_twice_its_grace() {
    let container = running(vec![Step::Hang]);
    let world = World::new(&[&container]).await;
    let begun = Instant::now();
    let report = world.run().await.unwrap();
    assert!(is_lost(&report.end), "{:?}", report.end);
    assert_eq!(begun.elapsed().as_secs(), (TIMEOUT + 2 * GRACE).as_secs());
    assert_eq!(container.count(is_end), 1);
    assert!(container.is_given_up());
}

#[tokio::test(start_paused = true)]
async fn a_cancel_ends_the_program_and_saves_what_it_did() {
    let container = running(vec![Step::UntilToldToEnd, Step::Say(cancelled())]);
    container.script().collect = collect_file("partial", "half");
    let world = World::new(&[&container]).await;
    let cancel = CancellationToken::new();
    let cancelling = async {
        container.until(|request| matches!(request, Request::Run(_))).await;
        cancel.cancel();
    };
    let (report, ()) = tokio::join!(world.run_with(Control::end_only(&cancel)), cancelling);
    assert_eq!(report.unwrap().end.limit(), Some(Limit::Cancelled));
    assert_eq!(world.saved("partial").as_deref(), Some("half"));
    assert_eq!(container.count(|r| *r == Request::End { id: "run_1".into(), grace_ms: 0 }), 1);
    assert!(!container.is_given_up());
}

/// Runs a program that is asked to end after `at`, with `grace`, and ends by itself `later`.
async fn asked(at: Duration, grace: Duration, later: Duration) -> (FakeContainer, RunReport) {
    let container = running(vec![Step::UntilToldToEnd, Step::Wait(later), Step::Say(cancelled())]);
    let world = World::new(&[&container]).await;
    let (ask, asked) = watch::channel(None);
    let control = Control { cancel: CancellationToken::new(), ask: asked, stdin: None };
    let asking = async {
        tokio::time::sleep(at).await;
        ask.send(Some(grace)).unwrap();
    };
    let (report, ()) = tokio::join!(world.run_with(control), asking);
    (container, report.unwrap())
}

#[tokio::test(start_paused = true)]
async fn a_grace_prolongs_the_wait_for_the_end_and_never_shortens_it() {
    let late = TIMEOUT - 5 * SECOND;
    let (container, report) = asked(late, 20 * SECOND, 18 * SECOND).await;
    assert_eq!(report.end.limit(), Some(Limit::Cancelled));
    let ends: Vec<_> = container.received().into_iter().filter(is_end).collect();
    assert_eq!(ends, [Request::End { id: "run_1".into(), grace_ms: 20_000 }]);
    let (container, report) = asked(SECOND, SECOND, 30 * SECOND).await;
    assert_eq!((report.end.limit(), container.count(is_end)), (Some(Limit::Cancelled), 1));
}

/// A sink that counts, and keeps what it has once that is so much.
struct Counting {
    bytes: usize,
    keeps_from: usize,
    has_room: bool,
    begun: usize,
    ended: usize,
}

impl Counting {
    fn keeping_from(keeps_from: usize) -> Self {
        Self { bytes: 0, keeps_from, has_room: true, begun: 0, ended: 0 }
    }
}

impl OutputSink for Counting {
    fn begun(&mut self) {
        self.begun += 1;
    }

    fn resumed(&mut self, _: u64) {}

    fn take(&mut self, _: paddock_proto::OutputStream, bytes: Bytes) {
        self.bytes += bytes.len();
    }

    fn is_kept(&self) -> bool {
        self.bytes >= self.keeps_from
    }

    fn ended(&mut self, _: &ReportedEnd, _: Duration) {
        self.ended += 1;
    }

    fn poll_room(&self, _: &mut Context<'_>) -> Poll<()> {
        if self.has_room { Poll::Ready(()) } else { Poll::Pending }
    }
}

#[tokio::test(start_paused = true)]
async fn the_agent_keeps_output_until_the_sink_has_it_where_a_crash_does_not_reach() {
    let container = running(vec![write(3 * WINDOW), Step::Say(ended())]);
    let world = World::new(&[&container]).await;
    let mut sink = Counting::keeping_from(usize::MAX);
    let report = world.execute(&code(), end_only(), &mut sink).await.unwrap();
    assert!(is_lost(&report.end), "a window full of unkept output stops the program");
    assert!(sink.bytes <= WINDOW && sink.ended == 0, "{} bytes", sink.bytes);

    let container = running(vec![write(3 * WINDOW), Step::Say(ended())]);
    let world = World::new(&[&container]).await;
    let mut sink = Counting::keeping_from(WINDOW / 2);
    let report = world.execute(&code(), end_only(), &mut sink).await.unwrap();
    assert_eq!((report.end, sink.bytes, sink.ended), (exited(0), 3 * WINDOW, 1));
}

#[tokio::test(start_paused = true)]
async fn a_sink_without_room_holds_the_program_back_as_long_as_its_time_lasts() {
    let container = running(vec![write(100), Step::Say(ended())]);
    let world = World::new(&[&container]).await;
    let mut sink = Counting { has_room: false, ..Counting::keeping_from(0) };
    let begun = Instant::now();
    let report = world.execute(&code(), end_only(), &mut sink).await.unwrap();
    assert_eq!((report.end, sink.bytes), (exited(0), 100));
    assert!(begun.elapsed() >= TIMEOUT);
}

#[tokio::test(start_paused = true)]
async fn a_program_that_is_told_to_end_is_not_held_back_for_a_reader() {
    for is_asked in [false, true] {
        let container = running(vec![write(100), Step::UntilToldToEnd, Step::Say(cancelled())]);
        let world = World::new(&[&container]).await;
        let mut sink = Counting { has_room: false, ..Counting::keeping_from(0) };
        let (cancel, (ask, asked)) = (CancellationToken::new(), watch::channel(None));
        let control = Control { cancel: cancel.clone(), ask: asked, stdin: None };
        let ending = async {
            container.until(|request| matches!(request, Request::Run(_))).await;
            match is_asked {
                true => drop(ask.send_replace(Some(SECOND))),
                false => cancel.cancel(),
            }
        };
        let begun = Instant::now();
        let (request, taken) = (code(), &mut sink);
        let (report, ()) = tokio::join!(world.execute(&request, control, taken), ending);
        assert_eq!((report.unwrap().end.limit(), sink.bytes), (Some(Limit::Cancelled), 100));
        assert!(begun.elapsed() < SECOND, "it waited for {:?}", begun.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn a_command_begins_once_and_reads_what_is_sent_to_it() {
    let steps = vec![Step::Say(Event::Begun), Step::UntilEof(Channel::Stdin), Step::Say(ended())];
    let container = FakeContainer::scripted("c1", |script| script.run = steps);
    let world = World::new(&[&container]).await;
    let (pieces, stdin) = mpsc::channel(1);
    let control = Control { stdin: Some(stdin), ..end_only() };
    let feeding = async {
        for piece in [Some(Bytes::from_static(b"one ")), Some(Bytes::from_static(b"two")), None] {
            pieces.send(piece).await.unwrap();
        }
    };
    let (mut sink, request) = (Counting::keeping_from(0), command(true));
    let (report, ()) = tokio::join!(world.execute(&request, control, &mut sink), feeding);
    assert_eq!((report.unwrap().end, sink.begun), (exited(0), 1));
    assert_eq!(container.input(Channel::Stdin), b"one two");
}

#[tokio::test(start_paused = true)]
async fn a_program_that_reads_nothing_is_not_waited_for() {
    let steps = vec![Step::Say(Event::Begun), Step::Wait(SECOND), Step::Say(ended())];
    let container = FakeContainer::scripted("c1", |script| script.run = steps);
    let world = World::new(&[&container]).await;
    let (pieces, stdin) = mpsc::channel(1);
    pieces.send(Some(vec![b'x'; 3 * WINDOW].into())).await.unwrap();
    let control = Control { stdin: Some(stdin), ..end_only() };
    let begun = Instant::now();
    let report = world.execute(&command(true), control, &mut Ignore).await.unwrap();
    assert_eq!((report.end, begun.elapsed().as_secs()), (exited(0), 1));
}

#[tokio::test(start_paused = true)]
async fn a_policy_that_cannot_be_enforced_is_an_error_and_the_container_stays() {
    let container = running(vec![Step::Say(Event::Unsupported { what: "no Landlock".into() })]);
    let world = World::new(&[&container]).await;
    let error = world.run().await.unwrap_err();
    assert!(matches!(&error, SessionError::Unsupported(what) if what == "no Landlock"), "{error}");
    assert!(!container.is_given_up());
    assert_eq!(world.notes()[0].1.runs, []);
}
