//! Workspaces from one container of a session to the next, with a pool and agents that the test plays.

use std::collections::BTreeSet;

use paddock_proto::{Event, RelPath, Request};

use crate::pool::{DataPlace, DiskBound};
use crate::session::SessionBounds;
use crate::session::lease::notes::LeaseNote;
use crate::session::port::FoundContainer;
use crate::session::port::fake::{FakeContainer, Script, Step, collect_file};
use crate::session::test_world::{World, bounds};

/// A container of a coding agent.
fn agent(name: &str, change: impl FnOnce(&mut Script)) -> FakeContainer {
    FakeContainer::scripted(name, |script| {
        script.place = DataPlace::Disk(DiskBound::Watched);
        change(script);
    })
}

/// Whether its lease was dropped and its workspace kept.
fn is_kept(container: &FakeContainer) -> bool {
    container.is_given_up() && container.keeps_workspace()
}

async fn evict(world: &World) {
    world.turn().await.work().await.give_up(|_| true);
}

/// Paths of these messages, in order.
fn paths(container: &FakeContainer, of: fn(&Request) -> Option<&RelPath>) -> Vec<String> {
    container.received().iter().filter_map(of).map(|path| path.to_text().into_owned()).collect()
}

fn agreed(request: &Request) -> Option<&RelPath> {
    if let Request::Agreed(entry) = request { Some(&entry.path) } else { None }
}

fn put(request: &Request) -> Option<&RelPath> {
    if let Request::Put(entry) = request { Some(&entry.path) } else { None }
}

fn removed(request: &Request) -> Option<&RelPath> {
    if let Request::Remove(path) = request { Some(path) } else { None }
}

fn pool_of(world: &World) -> (Vec<String>, Vec<String>) {
    (world.pool.wanted_over.lock().unwrap().clone(), world.pool.discarded.lock().unwrap().clone())
}

/// A world in which a task has left `made` in the workspace `w`, and the session was evicted.
async fn left() -> (World, FakeContainer) {
    let first = agent("w", |script| script.collect = collect_file("made", "by the task"));
    let world = World::new(&[&first]).await;
    world.save("given", b"before").await;
    world.run().await.unwrap();
    evict(&world).await;
    (world, first)
}

#[tokio::test(start_paused = true)]
async fn the_next_run_of_a_session_begins_over_its_workspace_and_the_stores_changes_win() {
    let (world, first) = left().await;
    assert!(is_kept(&first));
    assert_eq!(world.sessions.kept_workspaces(), (1, 16));
    let [(name, note)] = &world.notes()[..] else { panic!("{:?}", world.notes()) };
    assert!(name == "w" && note.kept_since_ms.is_some() && note.session == "session", "{note:?}");
    world.remove("given").await;
    world.save("upload", b"meanwhile").await;
    let second = agent("w", |_| {});
    world.pool.add(&second);
    world.run().await.unwrap();
    assert_eq!(pool_of(&world), (vec!["w".into()], vec![]));
    assert_eq!(paths(&second, agreed), ["made"], "what is as it was stays");
    assert_eq!((paths(&second, put), paths(&second, removed)), (vec!["upload".into()], vec!["given".into()]));
    assert_eq!(world.sessions.kept_workspaces().0, 0);
    assert_eq!(world.notes()[0].1.kept_since_ms, None, "the session has the container");
    evict(&world).await;
    assert!(is_kept(&second), "and so on");
}

#[tokio::test(start_paused = true)]
async fn another_session_never_gets_it_and_a_language_keeps_none() {
    let (world, _) = left().await;
    let (other, plain) =
        (world.sessions.get("owner", &"t".parse().unwrap()).await.unwrap(), FakeContainer::new("p"));
    world.pool.add(&plain);
    world.run_in(&other).await.unwrap();
    assert_eq!((pool_of(&world).0.len(), paths(&plain, agreed).len()), (0, 0));
    world.sessions.close("owner", &other.id, false).await.unwrap();
    assert!(plain.is_given_up() && !is_kept(&plain));
    assert_eq!(world.sessions.kept_workspaces().0, 1);
}

#[tokio::test(start_paused = true)]
async fn a_deleted_session_takes_its_workspace_along_with_a_container_or_without() {
    let (world, _) = left().await;
    assert!(world.sessions.close("owner", &world.session.id, true).await.unwrap());
    assert_eq!((pool_of(&world).1, world.notes().len()), (vec!["w".to_owned()], 0));
    let leased = agent("w2", |_| {});
    world.pool.add(&leased);
    let session = world.sessions.get("owner", &world.session.id).await.unwrap();
    world.run_in(&session).await.unwrap();
    world.sessions.close("owner", &session.id, true).await.unwrap();
    assert!(leased.is_given_up() && !is_kept(&leased));
    assert_eq!((world.sessions.kept_workspaces().0, world.notes().len()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn the_bound_and_a_workspace_that_cannot_be_used_again_remove_it() {
    let kept = bounds().kept.map(|kept| crate::config::KeptWorkspaces { most: 1, ..kept });
    let (a, b) = (agent("a", |_| {}), agent("b", |_| {}));
    let world = World::bounded(&[&a], SessionBounds { kept, ..bounds() }).await;
    world.run().await.unwrap();
    evict(&world).await;
    world.pool.add(&b);
    let other = world.sessions.get("owner", &"t".parse().unwrap()).await.unwrap();
    world.run_in(&other).await.unwrap();
    world.sessions.close("owner", &other.id, false).await.unwrap();
    assert!(is_kept(&a) && is_kept(&b));
    assert_eq!(pool_of(&world).1, ["a"], "the one that was kept first");

    // An agent that does not take what both sides agreed on: the session gets another container.
    let refuses = agent("b", |script| script.apply = vec![Step::Say(Event::Failed { what: "no".into() })]);
    let fresh = agent("c", |_| {});
    world.pool.add(&refuses);
    world.pool.add(&fresh);
    world.run_in(&other).await.unwrap();
    assert!(refuses.is_given_up() && !is_kept(&refuses));
    assert_eq!((fresh.runs(), pool_of(&world).1), (1, vec!["a".to_owned(), "b".to_owned()]));
    // So it does where the engine has lost the workspace.
    world.sessions.close("owner", &other.id, false).await.unwrap();
    let fresh = agent("d", |_| {});
    world.pool.add(&fresh);
    world.run_in(&other).await.unwrap();
    assert_eq!((fresh.runs(), pool_of(&world).1.len()), (1, 3));
}

#[tokio::test(start_paused = true)]
async fn a_container_that_is_lost_is_followed_by_one_over_its_workspace() {
    let first = agent("w", |script| script.run = vec![Step::Die]);
    let world = World::new(&[&first]).await;
    world.run().await.unwrap();
    assert!(is_kept(&first));
    let second = agent("w", |_| {});
    world.pool.add(&second);
    world.run().await.unwrap();
    assert_eq!((second.runs(), pool_of(&world).0), (1, vec!["w".to_owned()]));
}

#[tokio::test(start_paused = true)]
async fn the_next_daemon_keeps_what_notes_and_engine_both_have() {
    let note = |session: &str, kept_since_ms| LeaseNote {
        owner: "owner".into(),
        session: session.into(),
        language: "python".into(),
        runs: Vec::new(),
        unsaved: false,
        kept_since_ms,
    };
    let far = u64::try_from(i64::MAX).unwrap();
    let (world, _) = left().await;
    let notes = &world.sessions.runs().lessor().notes;
    // Beside the one of `left`: one that its list does not know, one whose volumes are gone, and one whose
    // container the earlier daemon was about to remove.
    for (name, session, since) in
        [("no-list", "t", Some(far)), ("no-volume", "u", Some(far)), ("alive", "v", Some(far))]
    {
        std::mem::forget(notes.write(name, note(session, since)));
    }
    let lists = world.store.folder("workspaces").unwrap();
    for name in ["no-volume", "alive", "stale"] {
        std::fs::copy(lists.join("w"), lists.join(name)).unwrap();
    }
    // The daemon of `left` was killed while the session had the container.
    std::mem::forget(notes.write("w", note("session", None)));
    world.sessions.workspaces().books().forget("w");
    let alive = agent("alive", |_| {});
    let claim = world.sessions.get("owner", &"v".parse().unwrap()).await.unwrap().claim();
    let found = FoundContainer { container: alive.lease().await, claim, runs: Vec::new() };
    let there = ["w", "no-list"].map(str::to_owned);
    assert!(world.sessions.recover(vec![found], BTreeSet::from(there), Default::default()).await.is_empty());
    assert!(is_kept(&alive), "the engine removes only the container");
    assert_eq!(world.sessions.kept_workspaces().0, 2);
    let mut kept: Vec<_> = world.notes().into_iter().map(|(name, note)| (name, note.kept_since_ms)).collect();
    kept.sort();
    assert!(matches!(&kept[..], [(a, Some(_)), (w, Some(_))] if a == "alive" && w == "w"), "{kept:?}");
    assert!(!lists.join("stale").exists() && lists.join("w").exists());
    assert_eq!(pool_of(&world).1, ["no-list"]);
    let second = agent("w", |_| {});
    world.pool.add(&second);
    world.run().await.unwrap();
    assert_eq!(paths(&second, agreed), ["given", "made"]);
}
