//! What becomes of files that the store did not take, when their container goes.

use paddock_proto::{Event, RelPath};

use super::*;
use crate::session::SessionBounds;
use crate::session::port::fake::{FakeContainer, Step, collect_file};
use crate::session::sync::salvage::tests::archive;
use crate::session::test_world::{World, bounds};
use crate::store::Batch;

const TTL: Duration = Duration::from_secs(600);

/// A session that rests, whose container has the file `out`, which the store did not take. The store can be
/// written again.
async fn unsaved(others: &[&FakeContainer]) -> (World, FakeContainer) {
    let container = FakeContainer::scripted("c1", |script| script.collect = collect_file("out", "made"));
    let all: Vec<_> = [&container].into_iter().chain(others.iter().copied()).collect();
    let world = World::bounded(&all, SessionBounds { ttl: TTL, max: 1, ..bounds() }).await;
    world.store.break_for_test(true);
    assert!(world.run().await.unwrap().unsaved.is_some());
    world.store.break_for_test(false);
    (world, container)
}

#[track_caller]
fn expect_saved(world: &World, container: &FakeContainer, what: &str) {
    assert!(container.is_given_up(), "{what}");
    assert_eq!(world.saved("out").as_deref(), Some("made"), "{what}");
}

async fn close(world: &World, delete: bool) {
    world.sessions.close(&world.session.owner, &world.session.id, delete).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn they_are_saved_before_the_container_of_a_session_that_rests_is_given_up() {
    let (world, container) = unsaved(&[]).await;
    close(&world, false).await;
    expect_saved(&world, &container, "closed");

    let (world, container) = unsaved(&[]).await;
    world.sessions.close_all().await;
    expect_saved(&world, &container, "at the end of the daemon");

    let (world, container) = unsaved(&[]).await;
    world.sessions.start_sweeping();
    while world.sessions.live() > 0 {
        tokio::time::sleep(TTL / 10).await;
    }
    expect_saved(&world, &container, "idle");

    let second = FakeContainer::new("c2");
    let (world, container) = unsaved(&[&second]).await;
    let other = world.sessions.get("owner", &"other".parse().unwrap()).await.unwrap();
    world.run_in(&other).await.unwrap();
    expect_saved(&world, &container, "evicted");
}

#[tokio::test(start_paused = true)]
async fn they_are_saved_when_a_call_that_needed_the_container_was_cancelled() {
    let (world, container) = unsaved(&[]).await;
    world.save("more", b"of the store").await;
    container.script().apply = vec![Step::Hang];
    let cancel = tokio_util::sync::CancellationToken::new();
    let cancelling = async {
        container.until(|request| matches!(request, Request::Apply)).await;
        container.script().apply = vec![Step::UntilClosed, Step::Say(Event::Applied)];
        cancel.cancel();
    };
    let control = crate::session::Control::end_only(&cancel);
    let (ran, ()) = tokio::join!(world.run_with(control), cancelling);
    assert!(ran.is_err());
    expect_saved(&world, &container, "cancelled");
}

#[tokio::test(start_paused = true)]
async fn the_files_of_a_lost_container_are_salvaged_unless_the_store_has_changed() {
    for has_changed in [false, true] {
        let (world, container) = unsaved(&[]).await;
        container.engine().archive = Some(archive(&[("out", "made"), ("gone", "before")]).await);
        if has_changed {
            world.save("gone", b"then").await;
            let mut batch = Batch::new(world.session.space.clone());
            batch.remove(RelPath::new("gone").unwrap());
            batch.commit().await.unwrap();
        }
        container.kill();
        while world.sessions.live() > 0 {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        assert!(container.is_given_up());
        assert_eq!(world.saved("out").is_some(), !has_changed);
        assert_eq!(world.saved("gone").is_some(), !has_changed, "a removed file came back");
    }
}

#[tokio::test(start_paused = true)]
async fn a_lost_container_is_replaced_after_its_files_are_saved() {
    let second = FakeContainer::new("c2");
    let (world, container) = unsaved(&[&second]).await;
    container.engine().archive = Some(archive(&[("out", "made")]).await);
    let turn = world.turn().await;
    let leases = &mut *turn.work().await;
    let lost = leases.by_language["python"].container.link().lost();
    container.kill();
    lost.await;
    let deadline = tokio::time::Instant::now() + TTL;
    world.sessions.runs().lessor().lease(&world.session, leases, "python", deadline).await.unwrap();
    expect_saved(&world, &container, "replaced");
}

#[tokio::test(start_paused = true)]
async fn nothing_is_saved_of_a_session_that_is_deleted() {
    let (world, container) = unsaved(&[]).await;
    let collected =
        |container: &FakeContainer| container.count(|request| matches!(request, Request::Collect(_)));
    let before = collected(&container);
    close(&world, true).await;
    assert!(container.is_given_up());
    assert_eq!(collected(&container), before);
}

#[tokio::test(start_paused = true)]
async fn a_container_is_given_up_though_the_store_or_the_agent_fails_again() {
    for is_hanging in [false, true] {
        let (world, container) = unsaved(&[]).await;
        world.store.break_for_test(!is_hanging);
        if is_hanging {
            container.script().collect = vec![Step::Hang];
        }
        let begun = tokio::time::Instant::now();
        close(&world, false).await;
        assert!(container.is_given_up() && world.saved("out").is_none());
        assert!(begun.elapsed() <= LAST_ATTEMPT + Duration::from_secs(1));
    }
}
