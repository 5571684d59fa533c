//! The first work of a daemon that comes after a kill, with the notes and containers that it finds.

use std::time::Duration;

use bytes::Bytes;
use paddock_proto::message::Claim;
use paddock_proto::{Channel, Event};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::session::lease::notes::LeaseNotes;
use crate::session::port::fake::{FakeContainer, Script, Step, collect_file, ended, file};
use crate::session::run::follow::GRACE;
use crate::session::run::report::RunEnd;
use crate::session::test_world::{TIMEOUT, World, bounds};

fn run_note(id: &str, is_command: bool) -> RunNote {
    RunNote { id: id.into(), timeout: TIMEOUT, is_command, network: None }
}

/// What the earlier daemon had noted of the container `c1` when it was killed.
fn note(world: &World, runs: &[RunNote]) {
    let note = LeaseNote {
        owner: "owner".into(),
        session: "session".into(),
        language: "python".into(),
        runs: runs.to_vec(),
        unsaved: false,
        kept_since_ms: None,
    };
    let notes = LeaseNotes::new(world.store.folder("leases").unwrap());
    std::mem::forget(notes.write("c1", note));
}

/// Recovers this container, whose agent names the session of this claim and these runs.
async fn recover(world: &World, container: &FakeContainer, claim: Claim, runs: &[&str]) -> Vec<ResumableRun> {
    let runs = runs.iter().map(|&id| id.to_owned()).collect();
    let found = FoundContainer { container: container.lease().await, claim, runs };
    world.sessions.recover(vec![found], BTreeSet::new(), BTreeMap::new()).await
}

async fn news(world: &World) -> Vec<Recovered> {
    while !world.session.has_news() {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    world.session.take_news()
}

fn is_lost(news: &[Recovered]) -> bool {
    matches!(news, [Recovered { end: RunEnd::Lost(_), changed, .. }] if changed.is_empty())
}

fn attached(then: Vec<Step>) -> Vec<Step> {
    [vec![Step::Say(Event::Attached { heard: 0 })], then].concat()
}

#[tokio::test(start_paused = true)]
async fn code_in_flight_is_followed_to_its_end_and_never_run_again() {
    let container = FakeContainer::scripted("c1", |script| {
        let output = Step::Write(Channel::Stdout, Bytes::from_static(b"said"));
        script.attach = attached(vec![output, Step::UntilToldToEnd, Step::Say(ended())]);
        script.base =
            vec![Step::Say(Event::Changed(file("old", 3))), Step::Say(Event::Collected { entries: 1 })];
        script.collect = collect_file("out", "made");
    });
    let world = World::new(&[]).await;
    world.save("old", b"old").await;
    note(&world, &[run_note("run_1", false)]);
    let commands = recover(&world, &container, world.session.claim(), &["run_1"]).await;
    assert!(commands.is_empty());
    assert!(world.try_turn().await.is_err(), "the code has its turn");
    assert_eq!(world.notes()[0].1.runs, [run_note("run_1", false)], "a second kill would find it as well");

    container.until(|request| matches!(request, Request::Attach(_))).await;
    container.tell_to_end();
    let news = news(&world).await;
    let [recovered] = &news[..] else { panic!("{news:?}") };
    assert_eq!((recovered.run_id.as_str(), recovered.end.exit_code(), recovered.logged), ("run_1", 0, true));
    assert_eq!((recovered.changed.len(), world.saved("out").as_deref()), (1, Some("made")));
    assert_eq!(world.session.take_news(), [], "told once");
    assert_eq!((container.runs(), world.notes()[0].1.runs.len()), (0, 0));

    world.run().await.unwrap();
    assert_eq!((container.runs(), world.pool.leased()), (1, 0), "the session has its container again");
    assert_eq!(container.count(|request| *request == Request::Apply), 0, "the container has all files");
}

#[tokio::test(start_paused = true)]
async fn a_claim_of_another_session_is_not_believed() {
    let container = FakeContainer::new("c1");
    let world = World::new(&[]).await;
    note(&world, &[run_note("run_1", false)]);
    assert!(recover(&world, &container, [7; 32], &["run_1"]).await.is_empty());
    assert!(is_lost(&news(&world).await));
    assert!(container.is_given_up() && container.received().is_empty());
    assert_eq!((world.sessions.live(), world.notes()), (0, Vec::new()));
}

#[tokio::test(start_paused = true)]
async fn a_container_that_no_note_names_is_given_up() {
    let container = FakeContainer::new("c1");
    let world = World::new(&[]).await;
    assert!(recover(&world, &container, world.session.claim(), &["run_1"]).await.is_empty());
    assert!(container.is_given_up() && container.received().is_empty());
    assert!(!world.session.has_news());
}

#[tokio::test(start_paused = true)]
async fn code_of_a_container_that_is_gone_is_reported_lost_and_its_note_goes() {
    let world = World::new(&[]).await;
    note(&world, &[run_note("run_1", false), run_note("exec_1", true)]);
    assert!(world.sessions.recover(Vec::new(), BTreeSet::new(), BTreeMap::new()).await.is_empty());
    let news = news(&world).await;
    assert!(is_lost(&news) && news[0].run_id == "run_1", "{news:?}: executions tell of their own");
    assert_eq!(world.notes(), []);
}

#[tokio::test(start_paused = true)]
async fn a_container_that_does_not_say_what_it_has_is_not_taken_over() {
    let ways: [fn(&mut Script); 4] = [
        |script| script.base = vec![Step::Hang],
        |script| script.base = vec![Step::Die],
        |script| script.base = vec![Step::Reset],
        |script| script.base = vec![Step::Say(Event::Applied)],
    ];
    for change in ways {
        let container = FakeContainer::scripted("c1", change);
        let world = World::new(&[]).await;
        note(&world, &[run_note("run_1", false)]);
        assert!(recover(&world, &container, world.session.claim(), &["run_1"]).await.is_empty());
        assert!(is_lost(&news(&world).await) && container.is_given_up());
        assert_eq!((world.sessions.live(), world.notes()), (0, Vec::new()));
    }
}

/// A sink that remembers what an earlier daemon had acknowledged.
#[derive(Default)]
struct Resumed {
    heard: u64,
    output: Vec<u8>,
}

impl OutputSink for Resumed {
    fn resumed(&mut self, heard: u64) {
        self.heard = heard;
    }

    fn take(&mut self, _: paddock_proto::OutputStream, bytes: Bytes) {
        self.output.extend_from_slice(&bytes);
    }

    fn is_kept(&self) -> bool {
        true
    }
}

#[tokio::test(start_paused = true)]
async fn commands_are_handed_over_and_followed_from_where_the_earlier_daemon_was() {
    let container = FakeContainer::scripted("c1", |script| {
        let output = Step::Write(Channel::Stderr, Bytes::from_static(b"more"));
        script.attach = vec![Step::Say(Event::Attached { heard: 40 }), output, Step::Say(ended())];
    });
    let world = World::new(&[]).await;
    note(&world, &[run_note("exec_1", true)]);
    let mut commands = recover(&world, &container, world.session.claim(), &["exec_1"]).await;
    assert!(world.try_turn().await.is_ok(), "code waits for no command");
    let (command, mut sink) = (commands.pop().unwrap(), Resumed::default());
    assert_eq!((command.id(), &command.session().id), ("exec_1", &world.session.id));
    let cancel = CancellationToken::new();
    let control = Control::end_only(&cancel);
    let report = command.follow(&world.sessions, &cancel, control, &mut sink).await.unwrap();
    assert_eq!((report.end.exit_code(), sink.heard, &sink.output[..]), (0, 40, &b"more"[..]));
    assert!(!container.is_given_up() && !world.session.has_news());
}

#[tokio::test(start_paused = true)]
async fn a_run_that_cannot_be_taken_over_is_lost_and_so_is_its_container() {
    let too_much = Event::Attached { heard: 2 * bounds().max_log + 2 };
    for attach in [
        vec![Step::Say(Event::Failed { what: "no such run".into() })],
        vec![Step::Say(too_much), Step::Say(ended())],
        vec![Step::Say(ended())],
        vec![Step::Close],
        vec![Step::Hang],
        attached(vec![Step::Die]),
        attached(vec![Step::Say(Event::Unsupported { what: "it began long ago".into() })]),
    ] {
        let container = FakeContainer::scripted("c1", |script| script.attach = attach.clone());
        let world = World::new(&[]).await;
        note(&world, &[run_note("run_1", false)]);
        recover(&world, &container, world.session.claim(), &["run_1"]).await;
        assert!(is_lost(&news(&world).await), "{attach:?}");
        assert!(container.is_given_up(), "{attach:?}");
        assert_eq!((world.sessions.live(), world.notes()), (0, Vec::new()), "{attach:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_that_no_note_has_may_take_as_long_as_any() {
    let container = FakeContainer::scripted("c1", |script| script.attach = attached(vec![Step::Hang]));
    let world = World::new(&[]).await;
    note(&world, &[]);
    let begun = Instant::now();
    recover(&world, &container, world.session.claim(), &["run_9"]).await;
    assert!(is_lost(&news(&world).await));
    assert_eq!(begun.elapsed().as_secs(), (bounds().longest + 2 * GRACE).as_secs());
}

#[tokio::test(start_paused = true)]
async fn what_runs_in_a_container_of_another_version_ends_there_and_nothing_else_begins() {
    let old = FakeContainer::scripted("c1", |script| {
        script.attach = attached(vec![Step::UntilToldToEnd, Step::Say(ended())]);
        script.base = vec![Step::Say(Event::Collected { entries: 0 })];
        script.collect = collect_file("out", "made");
    });
    old.is_of_another_version();
    let new = FakeContainer::new("c2");
    let world = World::new(&[&new]).await;
    note(&world, &[run_note("run_1", false)]);
    recover(&world, &old, world.session.claim(), &["run_1"]).await;
    old.until(|request| matches!(request, Request::Attach(_))).await;
    assert!(!old.is_given_up(), "a program runs in it");
    old.tell_to_end();
    let news = news(&world).await;
    assert_eq!((news[0].end.exit_code(), world.saved("out").as_deref()), (0, Some("made")));
    assert!(old.is_given_up(), "nothing runs in it any more");
    world.run().await.unwrap();
    assert_eq!((old.runs(), new.runs()), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn a_container_of_another_version_in_which_nothing_runs_is_given_up_once_its_files_are_saved() {
    let old = FakeContainer::scripted("c1", |script| {
        script.base = vec![Step::Say(Event::Collected { entries: 0 })];
        script.collect = collect_file("out", "made");
    });
    old.is_of_another_version();
    let world = World::new(&[]).await;
    note(&world, &[]);
    let notes = LeaseNotes::new(world.store.folder("leases").unwrap());
    let [(name, unsaved)] = &notes.read()[..] else { panic!() };
    std::mem::forget(notes.write(name, LeaseNote { unsaved: true, ..unsaved.clone() }));
    assert!(recover(&world, &old, world.session.claim(), &[]).await.is_empty());
    assert_eq!(world.saved("out").as_deref(), Some("made"));
    assert!(old.is_given_up());
    assert_eq!((world.sessions.live(), world.notes()), (0, Vec::new()));
}

#[tokio::test(start_paused = true)]
async fn the_engine_reads_a_container_whose_agent_does_not_say_what_it_has() {
    let container = FakeContainer::scripted("c1", |script| script.base = vec![Step::Hang]);
    container.engine().archive =
        Some(crate::session::sync::salvage::tests::archive(&[("new", "made")]).await);
    let world = World::new(&[]).await;
    note(&world, &[run_note("run_1", false)]);
    assert!(recover(&world, &container, world.session.claim(), &["run_1"]).await.is_empty());
    assert_eq!(world.saved("new").as_deref(), Some("made"));
    assert!(container.is_given_up());
}
