//! After the program: what is saved before the report, what is rescued, and which containers are kept.

use super::*;
use crate::engine::ContainerStatus;
use crate::session::Unsaved;
use crate::session::sync::salvage::tests::archive;
use crate::store::StoreError;
use crate::tenants::ProgramCredit;

fn collecting(collect: Vec<Step>) -> FakeContainer {
    FakeContainer::scripted("c1", |script| script.collect = collect)
}

#[tokio::test(start_paused = true)]
async fn a_run_is_reported_when_its_files_are_saved_and_not_before() {
    let mut steps = collect_file("out", "made");
    steps.insert(2, Step::Wait(Duration::from_secs(10)));
    let container = collecting(steps);
    let world = World::new(&[&container]).await;
    let begun = Instant::now();
    let report = world.run().await.unwrap();
    assert_eq!(begun.elapsed().as_secs(), 10);
    assert_eq!(report.changed.iter().map(|entry| entry.path.as_bytes()).collect::<Vec<_>>(), [b"out"]);
    assert_eq!(world.saved("out").as_deref(), Some("made"));
    assert_eq!(report.phases.files_out.as_secs(), 10);
    assert_eq!(report.duration, Duration::from_millis(1), "the agent's word, within what passed");
}

#[tokio::test(start_paused = true)]
async fn a_store_that_fails_keeps_the_container_and_the_next_call_saves_its_files() {
    let container = collecting(collect_file("out", "made"));
    let world = World::new(&[&container]).await;
    world.store.break_for_test(true);
    let report = world.run().await.unwrap();
    assert_eq!(report.end, exited(0));
    let unsaved = report.unsaved.unwrap();
    assert!(matches!(unsaved, Unsaved { error: StoreError::Unwritable(_), is_kept: true }), "{unsaved}");
    assert!(world.notes()[0].1.unsaved, "the next daemon does not know");
    assert_eq!((report.changed.len(), world.saved("out")), (0, None));
    assert!(!container.is_given_up());
    assert_eq!(
        container.count(|request| *request == Request::Commit),
        0,
        "the agent must not forget the file"
    );
    assert_eq!(world.notes()[0].1.runs, []);
    world.store.break_for_test(false);
    let report = world.run().await.unwrap();
    assert!(report.unsaved.is_none() && !world.notes()[0].1.unsaved);
    assert_eq!((world.saved("out").as_deref(), world.pool.leased()), (Some("made"), 1));
}

#[tokio::test(start_paused = true)]
async fn processes_that_would_not_die_take_their_container_along() {
    for is_broken in [false, true] {
        let survivors = Event::Ended(RunEnd { survivors: 1, ..end_of_run() });
        let container = collecting(collect_file("out", "made"));
        container.script().run = vec![Step::UntilEof(Channel::Code), Step::Say(survivors)];
        let world = World::new(&[&container]).await;
        world.store.break_for_test(is_broken);
        let report = world.run().await.unwrap();
        assert_eq!(report.end, exited(0));
        assert!(container.is_given_up(), "is_broken: {is_broken}");
        assert_eq!(report.unsaved.map(|unsaved| unsaved.is_kept), is_broken.then_some(false));
        assert_eq!(world.saved("out").is_some(), !is_broken);
    }
}

#[tokio::test(start_paused = true)]
async fn files_that_are_saved_count_also_when_the_agent_does_not_hear_of_it() {
    // The agent dies as soon as it has sent its files: it cannot be told that they are saved.
    let container = collecting([collect_file("out", "made"), vec![Step::Die]].concat());
    let world = World::new(&[&container]).await;
    let report = world.run().await.unwrap();
    assert_eq!(world.saved("out").as_deref(), Some("made"));
    assert_eq!((report.end, report.changed.len()), (exited(0), 1));
    assert!(container.is_given_up(), "what it has is in doubt");
}

/// How a collection can break.
const COLLECTIONS: [Failure; 6] = [
    ("closes", |script| script.collect = vec![Step::Close]),
    ("abandons it", |script| script.collect = vec![Step::Reset]),
    ("is silent", |script| script.collect = vec![Step::Hang]),
    ("dies", |script| script.collect = vec![Step::Die]),
    ("sends bytes of no file", |script| {
        script.collect = vec![Step::Write(Channel::File, Bytes::from_static(b"x"))];
    }),
    ("breaks off within a file", |script| {
        script.collect = collect_file("torn", "half");
        script.collect.truncate(2);
        script.collect.push(Step::Close);
    }),
];

#[tokio::test(start_paused = true)]
async fn files_that_the_agent_does_not_give_are_rescued_and_the_run_is_no_success() {
    for (what, change) in COLLECTIONS {
        let container = FakeContainer::scripted("c1", change);
        container.engine().archive = Some(archive(&[("rescued", "whole")]).await);
        let world = World::new(&[&container]).await;
        let report = world.run().await.unwrap();
        let ReportedEnd::Lost(why) = &report.end else { panic!("{what}: {:?}", report.end) };
        assert!(why.ends_with("; the files that it had made until then were saved"), "{what}: {why}");
        assert_eq!((report.changed.len(), world.saved("rescued").as_deref()), (1, Some("whole")), "{what}");
        assert_eq!(world.saved("torn"), None, "{what}");
        assert_eq!(container.engine().calls, ["pause", "pack"], "{what}");
        assert!(container.is_given_up(), "{what}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_container_that_ends_while_it_is_rescued_is_not_said_to_be_saved_whole() {
    let partly = Some("of the files that it had made until then, those that could still be read were saved");
    for (files, said) in [(&[("rescued", "whole")][..], partly), (&[], None)] {
        let container = FakeContainer::scripted("c1", |script| script.collect = vec![Step::Die]);
        container.engine().archive = Some(archive(files).await);
        container.engine().dies_when_read = true;
        let report = World::new(&[&container]).await.run().await.unwrap();
        let ReportedEnd::Lost(why) = &report.end else { panic!("{:?}", report.end) };
        assert_eq!(why.split_once("; ").map(|(_, said)| said), said, "{why}");
        assert_eq!(report.changed.len(), files.len());
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_whose_agent_gave_it_up_is_rescued_from_the_container_that_runs_on() {
    let container = FakeContainer::scripted("c1", |script| {
        script.run = vec![Step::UntilEof(Channel::Code), Step::Reset];
    });
    container.engine().archive = Some(archive(&[("rescued", "whole")]).await);
    let world = World::new(&[&container]).await;
    let report = world.run().await.unwrap();
    let ReportedEnd::Lost(why) = &report.end else { panic!("{:?}", report.end) };
    assert!(why.ends_with("; the files that it had made until then were saved"), "{why}");
    assert_eq!((report.changed.len(), world.saved("rescued").as_deref()), (1, Some("whole")));
    assert!(container.is_given_up());
}

#[tokio::test(start_paused = true)]
async fn a_container_that_does_not_run_has_nothing_to_rescue() {
    for status in [Some(ContainerStatus::Exited), Some(ContainerStatus::Dead), None] {
        let container = FakeContainer::scripted("c1", |script| {
            script.run = vec![Step::UntilEof(Channel::Code), Step::Die];
        });
        container.engine().status = status;
        let world = World::new(&[&container]).await;
        let report = world.run().await.unwrap();
        let ReportedEnd::Lost(why) = &report.end else { panic!("{:?}", report.end) };
        assert!(!why.contains("were saved"), "{why}");
        assert_eq!(container.engine().calls, [""; 0]);
        assert!(report.changed.is_empty() && report.unsaved.is_none() && container.is_given_up());
    }
}

#[tokio::test(start_paused = true)]
async fn a_rescue_that_the_store_does_not_take_is_said_so() {
    let container = collecting(vec![Step::Reset]);
    container.engine().archive = Some(archive(&[("rescued", "whole")]).await);
    let world = World::new(&[&container]).await;
    world.store.break_for_test(true);
    let report = world.run().await.unwrap();
    let ReportedEnd::Lost(why) = &report.end else { panic!("{:?}", report.end) };
    assert!(why.contains("are lost: the store cannot be written"), "{why}");
    assert!(report.unsaved.is_none(), "no call saves what is gone");
    assert!(container.is_given_up() && world.saved("rescued").is_none());
}

/// Two commands run in one container, which dies: the first to see it saves the files, the last of them too.
#[tokio::test(start_paused = true)]
async fn a_container_that_dies_under_two_programs_is_given_up_once_and_both_are_lost() {
    let container = FakeContainer::scripted("c1", |script| script.run = vec![Step::Hang]);
    let world = World::new(&[&container]).await;
    let running = |id: &'static str| {
        let world = &world;
        async move {
            let turn = world.command_turn().await;
            let request = RunRequest { id: id.into(), ..command(false) };
            world
                .sessions
                .runs()
                .execute(&turn, &request, ProgramCredit::default(), end_only(), &mut Ignore)
                .await
                .unwrap()
        }
    };
    let killing = async {
        while container.runs() < 2 {
            tokio::task::yield_now().await;
        }
        container.kill();
    };
    let (first, second, ()) = tokio::join!(running("run_1"), running("run_2"), killing);
    assert!(is_lost(&first.end) && is_lost(&second.end));
    assert!(container.is_given_up());
    assert_eq!((world.sessions.live(), world.notes()), (0, Vec::new()));
}
