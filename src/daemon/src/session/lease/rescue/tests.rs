//! Which containers of an earlier daemon are read before they go, and what becomes of their files.

use std::time::Duration;

use super::*;
use crate::session::lease::notes::RunNote;
use crate::session::port::fake::FakeContainer;
use crate::session::sync::salvage::tests::archive;
use crate::session::test_world::{World, bounds};

fn note(runs: Vec<RunNote>) -> LeaseNote {
    LeaseNote {
        owner: "owner".into(),
        session: "session".into(),
        language: "python".into(),
        runs,
        unsaved: false,
        kept_since_ms: None,
    }
}

fn running() -> Vec<RunNote> {
    vec![RunNote { id: "run_1".into(), timeout: Duration::from_secs(9), is_command: false, network: None }]
}

/// What is saved of `/data` of a container that has `new` and an older `old`, with this note.
async fn saved_with(note: Option<LeaseNote>) -> (World, FakeContainer, BTreeMap<String, Collected>) {
    let world = World::new(&[]).await;
    world.save("kept", b"kept").await;
    if let Some(note) = note {
        let notes = LeaseNotes::new(world.store.folder("leases").unwrap());
        std::mem::forget(notes.write("c1", note)); // as kill -9 does
    }
    let container = FakeContainer::new("c1");
    container.engine().archive = Some(archive(&[("new", "made")]).await);
    let lost = LostFiles::open(&world.store, &bounds()).unwrap();
    lost.save(&*container.lease().await).await;
    let saved = lost.take();
    (world, container, saved)
}

#[tokio::test(start_paused = true)]
async fn what_a_run_in_flight_has_made_is_saved_and_what_it_removed_stays() {
    let (world, container, saved) = saved_with(Some(note(running()))).await;
    assert_eq!(saved["c1"].changed.len(), 1);
    assert_eq!(world.saved("new").as_deref(), Some("made"));
    assert_eq!(world.saved("kept").as_deref(), Some("kept"));
    assert_eq!(container.engine().calls, ["pause", "pack"], "its programs stand still while it is read");

    assert!(world.sessions.recover(Vec::new(), std::collections::BTreeSet::new(), saved).await.is_empty());
    let news = world.session.take_news();
    assert!(news[0].end.exit_code() == -1 && news[0].changed.len() == 1, "{news:?}");
}

#[tokio::test(start_paused = true)]
async fn files_that_the_store_had_not_taken_are_saved() {
    let (world, _, _) = saved_with(Some(LeaseNote { unsaved: true, ..note(Vec::new()) })).await;
    assert_eq!(world.saved("new").as_deref(), Some("made"));
}

#[tokio::test(start_paused = true)]
async fn a_container_that_rested_brings_nothing_back_and_neither_does_a_strange_one() {
    let kept = LeaseNote { kept_since_ms: Some(1), ..note(running()) };
    for note in [Some(note(Vec::new())), Some(kept), None] {
        let (world, container, saved) = saved_with(note).await;
        assert_eq!((world.saved("new"), saved.len()), (None, 0), "its session may have removed it");
        assert!(container.engine().calls.is_empty());
    }
}
