//! Up to the program's sending: what its container gets first, what is tried again, and what a cancel finds.

use paddock_proto::ExecutePolicy;
use paddock_proto::message::Input;

use super::*;
use crate::pool::WarmStage;
use crate::session::port::SILENCE;
use crate::session::test_world::bounds;
use crate::tenants::ProgramCredit;

#[tokio::test(start_paused = true)]
async fn a_container_is_claimed_and_filled_before_its_first_program_and_used_again() {
    let container = FakeContainer::scripted("c1", |script| script.collect = collect_file("out", "made"));
    let world = World::new(&[&container]).await;
    world.save("in", b"given").await;
    let report = world.run().await.unwrap();
    assert_eq!((&report.end, report.changed.len()), (&exited(0), 1));
    container.until(|request| *request == Request::Commit).await;
    let put = Request::Put(world.session.space.manifest().get(&file("in", 5).path).unwrap().entry.clone());
    let received = container.received();
    let [Request::Claim(claim), Request::Apply, sent, Request::Run(_), Request::Collect(_), Request::Commit] =
        &received[..]
    else {
        panic!("{received:?}")
    };
    assert_eq!((claim, sent), (&world.session.claim(), &put));
    assert_eq!(container.input(Channel::File), b"given");
    assert_eq!(container.input(Channel::Code), b"print('hi')");

    world.run().await.unwrap();
    let applied = container.count(|request| *request == Request::Apply);
    assert_eq!((world.pool.leased(), container.runs(), applied), (1, 2, 1), "nothing is sent twice");
    assert!(!container.is_given_up());
}

#[tokio::test(start_paused = true)]
async fn a_program_is_told_to_its_agent_with_its_bounds() {
    let container = FakeContainer::scripted("c1", |script| script.run = vec![Step::Say(ended())]);
    let world = World::new(&[&container]).await;
    let mut request = command(true);
    request.environment = vec![("A".into(), "1".into())];
    world.execute(&request, end_only(), &mut Ignore).await.unwrap();
    let received = container.received();
    let Some(Request::Run(spec)) = received.iter().find(|request| matches!(request, Request::Run(_))) else {
        panic!("{received:?}")
    };
    assert_eq!(spec.argv, ["/bin/sh", "-c", "true"]);
    assert_eq!((spec.id.as_str(), spec.cwd.as_str(), spec.input), ("run_1", "/data", Input::Open));
    assert_eq!((spec.wall_ms, spec.output_cap, spec.warm), (60_000, bounds().max_log, false));
    assert_eq!(spec.env, ["HOME=/tmp", "A=1"]);
}

/// What can go wrong before the program is sent.
const BEFORE: [Failure; 13] = [
    ("refuses the claim", |script| script.claim = vec![Step::Say(Event::Failed { what: "no".into() })]),
    ("answers the claim with something else", |script| script.claim = vec![Step::Say(Event::Applied)]),
    ("answers the claim with bytes", |script| {
        script.claim = vec![Step::Write(Channel::Stdout, Bytes::from_static(b"x"))];
    }),
    ("closes the claim", |script| script.claim = vec![Step::Close]),
    ("abandons the claim", |script| script.claim = vec![Step::Reset]),
    ("is silent to the claim", |script| script.claim = vec![Step::Hang]),
    ("dies at the claim", |script| script.claim = vec![Step::Die]),
    ("cannot take the files", |script| {
        script.apply = vec![Step::UntilClosed, Step::Say(Event::Failed { what: "disk full".into() })];
    }),
    ("answers the files with something else", |script| {
        script.apply = vec![Step::UntilClosed, Step::Say(Event::Claimed)];
    }),
    ("closes at the files", |script| script.apply = vec![Step::UntilClosed, Step::Close]),
    ("abandons the files", |script| script.apply = vec![Step::Reset]),
    ("takes no files", |script| script.apply = vec![Step::Hang]),
    ("dies at the files", |script| script.apply = vec![Step::Die]),
];

#[tokio::test(start_paused = true)]
async fn a_container_that_is_lost_before_the_program_is_replaced_once() {
    for (what, change) in BEFORE {
        let bad = FakeContainer::scripted("bad", change);
        let good = FakeContainer::new("good");
        let world = World::new(&[&bad, &good]).await;
        // More than a window. All of it is read ahead: a thread that waits would stop paused time.
        world.save("large", &[7; 700_000]).await;
        let report = world.run().await.unwrap_or_else(|error| panic!("{what}: {error}"));
        assert_eq!((&report.end, good.runs(), bad.runs()), (&exited(0), 1, 0), "{what}");
        assert!(bad.is_given_up() && !good.is_given_up(), "{what}");
        assert_eq!(
            world.notes().iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(),
            ["good"],
            "{what}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_second_container_that_is_lost_ends_the_call_and_nothing_ran() {
    for (what, change) in BEFORE {
        let bad = [FakeContainer::scripted("bad1", change), FakeContainer::scripted("bad2", change)];
        let spare = FakeContainer::new("spare");
        let world = World::new(&[&bad[0], &bad[1], &spare]).await;
        world.save("large", &[7; 700_000]).await;
        let error = world.run().await.unwrap_err();
        assert!(matches!(error, SessionError::Link(_) | SessionError::BringIn(_)), "{what}: {error}");
        assert_eq!(world.pool.leased(), 2, "{what}");
        assert!(bad.iter().all(|bad| bad.is_given_up() && bad.runs() == 0), "{what}");
        assert_eq!((world.sessions.live(), world.notes()), (0, Vec::new()), "{what}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_container_that_died_while_it_rested_is_replaced_without_a_failed_try() {
    let (first, second) = (FakeContainer::new("first"), FakeContainer::new("second"));
    let world = World::new(&[&first]).await;
    world.run().await.unwrap();
    first.kill();
    while !first.is_given_up() {
        tokio::task::yield_now().await;
    }
    assert_eq!(world.sessions.live(), 0, "a dead container is not kept until the next call");
    world.pool.add(&second);
    assert_eq!(world.run().await.unwrap().end, exited(0));
    assert_eq!((first.runs(), second.runs()), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_cancel_before_the_program_was_sent_runs_nothing_and_the_half_filled_container_goes() {
    let container = FakeContainer::scripted("c1", |script| script.apply = vec![Step::Hang]);
    let world = World::new(&[&container]).await;
    world.save("in", b"given").await;
    let cancel = CancellationToken::new();
    let cancelling = async {
        container.until(|request| *request == Request::Apply).await;
        cancel.cancel();
    };
    let (ran, ()) = tokio::join!(world.run_with(Control::end_only(&cancel)), cancelling);
    assert!(matches!(ran, Err(SessionError::Cancelled)), "{ran:?}");
    assert!(container.is_given_up() && container.runs() == 0);
    assert_eq!((world.sessions.live(), world.notes()), (0, Vec::new()));
}

#[tokio::test(start_paused = true)]
async fn a_program_that_is_asked_to_end_before_it_was_sent_never_is() {
    let world = World::new(&[]).await;
    let (ask, asked) = watch::channel(None);
    let control = Control { cancel: CancellationToken::new(), ask: asked, stdin: None };
    let asking = async { ask.send(Some(Duration::from_secs(5))).unwrap() };
    let (ran, ()) = tokio::join!(world.run_with(control), asking);
    assert!(matches!(ran, Err(SessionError::Cancelled)), "{ran:?}");
    assert_eq!(world.sessions.live(), 0, "a session that waited for its first container has none");
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_call_does_not_wait_for_a_call_beside_it_that_fills_the_container() {
    let slow = vec![Step::UntilClosed, Step::Wait(SILENCE / 2), Step::Say(Event::Applied)];
    let container = FakeContainer::scripted("c1", |script| {
        script.apply = slow;
        script.run = vec![Step::Say(ended())];
    });
    let world = World::new(&[&container]).await;
    world.save("in", b"given").await;
    let first = async {
        let turn = world.command_turn().await;
        world
            .sessions
            .runs()
            .execute(&turn, &command(false), ProgramCredit::default(), end_only(), &mut Ignore)
            .await
    };
    let second = async {
        container.until(|request| *request == Request::Apply).await;
        let turn = world.command_turn().await;
        let cancel = CancellationToken::new();
        let (begun, request) = (Instant::now(), command(false));
        let control = Control::end_only(&cancel);
        let runs = world.sessions.runs();
        let mut sink = Ignore;
        let running = runs.execute(&turn, &request, ProgramCredit::default(), control, &mut sink);
        let cancelling = async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            cancel.cancel();
        };
        let (ran, ()) = tokio::join!(running, cancelling);
        assert!(matches!(ran, Err(SessionError::Cancelled)), "{ran:?}");
        assert!(begun.elapsed() < Duration::from_secs(2), "it waited {:?}", begun.elapsed());
    };
    let (first, ()) = tokio::join!(first, second);
    assert_eq!(first.unwrap().end, exited(0), "the container of the other call was left alone");
}

#[tokio::test(start_paused = true)]
async fn a_program_without_a_shell_has_all_of_its_input_before_it_begins() {
    let container = FakeContainer::scripted("c1", |script| {
        script.run = vec![Step::UntilEof(Channel::Stdin), Step::Say(Event::Begun), Step::Say(ended())];
    });
    let world = World::new(&[&container]).await;
    let argv = ["claude", "a 'b'; $c"].map(str::to_owned).to_vec();
    let input = vec![b'x'; 100_000];
    let program = Program::Direct { argv: argv.clone(), input: Some(input.clone().into()) };
    let execute = Some(ExecutePolicy::Only(vec!["claude".into()]));
    let request = RunRequest {
        execute: execute.clone(),
        ..RunRequest::new("run_1".into(), "python".into(), program, TIMEOUT)
    };
    let report = world.execute(&request, end_only(), &mut Ignore).await.unwrap();
    assert_eq!((report.end, container.input(Channel::Stdin)), (exited(0), input));
    let received = container.received();
    let spec =
        received.iter().find_map(|request| if let Request::Run(spec) = request { Some(spec) } else { None });
    let spec = spec.unwrap();
    assert_eq!((&spec.argv, spec.input, &spec.execute, spec.warm), (&argv, Input::Whole, &execute, false));
}

#[tokio::test(start_paused = true)]
async fn code_that_the_agent_does_not_read_holds_the_call_up_for_a_bounded_time() {
    let container = FakeContainer::scripted("c1", |script| script.run = vec![Step::Hang]);
    let world = World::new(&[&container]).await;
    let program = Program::Code { code: vec![b'#'; 2 << 20].into(), stdin: None };
    let request = RunRequest::new("run_1".into(), "python".into(), program, 10 * TIMEOUT);
    let begun = Instant::now();
    let report = world.execute(&request, end_only(), &mut Ignore).await.unwrap();
    assert!(is_lost(&report.end), "{:?}", report.end);
    assert_eq!(begun.elapsed().as_secs(), SILENCE.as_secs());
    assert!(container.is_given_up());
}

#[tokio::test(start_paused = true)]
async fn a_program_that_is_in_flight_is_noted_until_its_files_are_saved() {
    let container =
        FakeContainer::scripted("c1", |script| script.collect = vec![Step::UntilToldToEnd, Step::Hang]);
    let world = World::new(&[&container]).await;
    let seeing = async {
        container.until(|request| matches!(request, Request::Collect(_))).await;
        let notes = world.notes();
        let [(name, note)] = &notes[..] else { panic!("{notes:?}") };
        assert_eq!((name.as_str(), note.owner.as_str(), note.session.as_str()), ("c1", "owner", "session"));
        assert_eq!((note.language.as_str(), &note.runs[..]), ("python", &[code().note()][..]));
        container.kill();
    };
    let (report, ()) = tokio::join!(world.run(), seeing);
    assert!(is_lost(&report.unwrap().end));
    assert_eq!(world.notes(), []);
}

fn cold(stage: WarmStage) -> FakeContainer {
    let container = FakeContainer::scripted("c1", |script| {
        script.run =
            vec![Step::UntilEof(Channel::Code), Step::Wait(Duration::from_secs(1)), Step::Say(ended())];
    });
    container.warm().send_replace(stage);
    container
}

#[tokio::test(start_paused = true)]
async fn a_conversation_that_stays_cold_waits_once_for_a_part_that_is_loading() {
    let container = cold(WarmStage::Loading);
    let world = World::new(&[&container]).await;
    for seconds in [1, 11, 1] {
        let begun = Instant::now();
        world.run().await.unwrap();
        assert_eq!(begun.elapsed().as_secs(), seconds);
    }
    assert!(container.is_warm_wanted());
}

#[tokio::test(start_paused = true)]
async fn a_part_that_comes_to_stand_ends_the_wait_and_one_that_waits_itself_is_not_waited_for() {
    let container = cold(WarmStage::Loading);
    let world = World::new(&[&container]).await;
    world.run().await.unwrap();
    let begun = Instant::now();
    let standing = async {
        tokio::time::sleep(Duration::from_secs(3)).await;
        container.warm().send_replace(WarmStage::Stands);
    };
    let (ran, ()) = tokio::join!(world.run(), standing);
    assert!(ran.is_ok());
    assert_eq!(begun.elapsed().as_secs(), 4);

    let container = cold(WarmStage::Waiting);
    let world = World::new(&[&container]).await;
    for _ in 0..3 {
        let begun = Instant::now();
        world.run().await.unwrap();
        assert_eq!(begun.elapsed().as_secs(), 1);
    }
}
