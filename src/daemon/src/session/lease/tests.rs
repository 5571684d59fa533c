//! How sessions get containers, wait for them, and lose them; cold runs by a clock of the test's own.

use super::notes::RunNote;
use super::*;
use crate::pool::core::LeaseRefusal;
use crate::session::port::fake::FakeContainer;
use crate::session::sync::salvage::tests::archive;
use crate::session::test_world::{TIMEOUT, World, bounds};
use crate::session::{SessionBounds, SessionError};

/// Why a call gets no container that waits for 30 s, and for how long it did.
async fn refused(starved: usize) -> (LeaseRefusal, u128) {
    let wait = Duration::from_secs(30);
    let world = World::bounded(&[], SessionBounds { wait, ..bounds() }).await;
    world.pool.starve(starved);
    let begun = Instant::now();
    let ran = world.run().await;
    let Err(SessionError::NoContainer(refusal)) = ran else { panic!("{ran:?}") };
    assert_eq!((world.sessions.live(), world.notes()), (0, Vec::new()));
    (refusal, (begun.elapsed().as_millis() + 500) / 1000)
}

#[tokio::test(start_paused = true)]
async fn a_call_waits_for_a_container_until_its_deadline() {
    let (refusal, waited) = refused(0).await;
    assert!(matches!(refusal, LeaseRefusal::WaitedTooLong { .. }), "{refusal}");
    assert_eq!(waited, 30);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_waited_for_a_full_pool_says_so() {
    let (refusal, waited) = refused(1).await;
    assert!(matches!(refusal, LeaseRefusal::Full), "{refusal}");
    assert_eq!(waited, 30);
}

#[tokio::test(start_paused = true)]
async fn an_answer_of_the_pool_that_comes_at_the_deadline_counts() {
    let world = World::bounded(&[], bounds()).await;
    *world.pool.late.lock().unwrap() = Some(LeaseRefusal::Full);
    let ran = world.run().await;
    assert!(matches!(ran, Err(SessionError::NoContainer(LeaseRefusal::Full))), "{ran:?}");
}

/// Lets every task run that can, while no time passes.
async fn settle() {
    for _ in 0..1000 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_full_pool_takes_the_container_of_a_session_that_rests_at_once() {
    let (first, second) = (FakeContainer::new("c1"), FakeContainer::new("c2"));
    let world = World::new(&[&first]).await;
    world.run().await.unwrap();
    let other = world.sessions.get("owner", &"other".parse().unwrap()).await.unwrap();
    let freed = async {
        settle().await;
        assert!(!first.is_given_up(), "nobody needs it yet");
        let begun = Instant::now();
        world.pool.starve(1);
        settle().await;
        assert!(first.is_given_up() && begun.elapsed().is_zero(), "{:?}", begun.elapsed());
        world.pool.add(&second);
    };
    let (ran, ()) = tokio::join!(world.run_in(&other), freed);
    assert_eq!((ran.unwrap().end.exit_code(), second.runs()), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn a_session_that_comes_to_rest_while_the_pool_is_full_gives_its_container_up_at_once() {
    let container = FakeContainer::new("c1");
    let world = World::new(&[&container]).await;
    world.run().await.unwrap();
    let turn = world.turn().await;
    world.pool.starve(1);
    settle().await;
    assert!(!container.is_given_up(), "a call is in");
    let begun = Instant::now();
    drop(turn);
    settle().await;
    assert!(container.is_given_up() && begun.elapsed().is_zero());
}

#[tokio::test(start_paused = true)]
async fn no_more_sessions_are_evicted_than_the_pool_needs() {
    let containers = ["c1", "c2", "c3"].map(FakeContainer::new);
    let world = World::new(&containers.each_ref()).await;
    for name in ["a", "b", "c"] {
        let session = world.sessions.get("owner", &name.parse().unwrap()).await.unwrap();
        world.run_in(&session).await.unwrap();
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    let given_up = || containers.each_ref().map(|container| container.is_given_up());
    for (starved, expected) in [(1, [true, false, false]), (0, [true, false, false]), (2, [true; 3])] {
        world.pool.starve(starved);
        settle().await;
        assert_eq!(given_up(), expected, "the least recently used first");
    }
}

#[tokio::test(start_paused = true)]
async fn the_files_of_a_container_that_was_lost_under_other_programs_are_saved_before_it_goes() {
    for is_at_work in [false, true] {
        let (first, second) = (FakeContainer::new("c1"), FakeContainer::new("c2"));
        first.engine().archive = Some(archive(&[("left", "behind")]).await);
        let world = World::new(&[&first, &second]).await;
        world.run().await.unwrap();
        let turn = world.turn().await;
        let leases = &mut *turn.work().await;
        let leased = leases.by_language.get_mut("python").unwrap();
        if is_at_work {
            leased.note.begin(RunNote {
                id: "exec_1".into(),
                timeout: TIMEOUT,
                is_command: true,
                network: None,
            });
        }
        let lost = leased.container.link().lost();
        first.kill();
        lost.await;
        let deadline = Instant::now() + TIMEOUT;
        world.sessions.runs().lessor().lease(&world.session, leases, "python", deadline).await.unwrap();
        assert_eq!(leases.by_language["python"].container.name(), "c2");
        assert!(first.is_given_up());
        assert_eq!(world.saved("left").is_some(), is_at_work, "a container that rests has nothing unsaved");
    }
}

#[tokio::test(start_paused = true)]
async fn a_session_counts_as_live_as_long_as_it_has_a_container() {
    let container = FakeContainer::new("c1");
    let world = World::new(&[&container]).await;
    world.run().await.unwrap();
    let turn = world.turn().await;
    let mut leases = turn.work().await;
    leases.drop_lease("python", "another");
    leases.by_language.get_mut("python").unwrap().note.begin(RunNote {
        id: "exec_1".into(),
        timeout: TIMEOUT,
        is_command: true,
        network: None,
    });
    leases.drop_resting("python");
    assert_eq!((leases.by_language.len(), world.sessions.live()), (1, 1), "a program runs in it");
    leases.by_language.get_mut("python").unwrap().note.end("exec_1");
    leases.drop_resting("python");
    assert_eq!((leases.by_language.len(), world.sessions.live()), (0, 0));
}

#[test]
fn a_first_second_may_be_cold_and_a_tenth_run_may_not() {
    let (mut cold, begun) = (ColdRuns::default(), Instant::now());
    assert!(!cold.has_begun() && !cold.is_enough(begun));
    cold.begin(begun);
    assert!(cold.has_begun() && !cold.is_enough(begun + COLD_TIME / 2));
    for _ in 1..COLD_RUNS {
        assert!(!cold.is_enough(begun));
        cold.begin(begun);
    }
    assert!(cold.is_enough(begun));
    assert!(!cold.is_enough(begun + 2 * COLD_TIME), "a run has waited for it already");
    let mut slow = ColdRuns::default();
    slow.begin(begun);
    assert!(slow.is_enough(begun + COLD_TIME));
}
