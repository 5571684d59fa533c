//! When an archive goes into a container, and what is believed of it afterwards.

use paddock_proto::Event;

use super::*;
use crate::session::port::fake::{FakeContainer, Step, file};
use crate::session::test_world::{save, store};

const BOUNDS: DataBounds = DataBounds { bytes: 32 << 20, entries: 1000 };

struct Brought {
    sent: (u64, u64),
    container: FakeContainer,
    baseline: Baseline,
    generation: u64,
}

/// What comes of a session with one file of this size, for a container in this state.
async fn brought(size: usize, before: Baseline, container: FakeContainer) -> Brought {
    let (_dir, store) = store();
    let space = store.space("o", "s").await.unwrap();
    save(&space, "big", &vec![7; size]).await;
    let mut baseline = before;
    let lease = container.lease().await;
    let sent = bring_all(&space, &*lease, &mut baseline, BOUNDS).await.unwrap();
    let generation = space.manifest().get(&file("big", 0).path).unwrap().generation;
    Brought { sent, container, baseline, generation }
}

/// A container whose agent finds the file of this size after the archive.
fn finding(size: u64) -> FakeContainer {
    FakeContainer::scripted("c1", |script| {
        let found = Step::Say(Event::Changed(file("big", size)));
        script.settle = vec![found, Step::Say(Event::Collected { entries: 1 })];
    })
}

const LARGE: usize = 8 << 20;

#[tokio::test(start_paused = true)]
async fn a_large_session_goes_into_an_empty_container_by_one_archive() {
    let brought = brought(LARGE, Baseline::fresh(), finding(LARGE as u64)).await;
    assert_eq!(brought.sent, (1, LARGE as u64));
    assert_eq!(brought.container.engine().calls, ["unpack"]);
    assert!(brought.container.engine().unpacked > LARGE);
    assert_eq!(brought.container.count(|request| *request == Request::Settle), 1);
    assert_eq!(brought.baseline.paths.into_values().collect::<Vec<_>>(), [brought.generation]);
    assert!(!brought.baseline.is_fresh, "code runs there next");
}

#[tokio::test(start_paused = true)]
async fn what_did_not_arrive_is_not_counted_as_there() {
    let short = brought(LARGE, Baseline::fresh(), finding(1000)).await;
    assert_eq!(short.baseline.paths.into_values().collect::<Vec<_>>(), [0]);
    let refused = finding(1000);
    refused.engine().can_unpack = false;
    let refused = brought(LARGE, Baseline::fresh(), refused).await;
    assert_eq!(refused.baseline.paths.into_values().collect::<Vec<_>>(), [0]);
}

#[tokio::test(start_paused = true)]
async fn no_archive_goes_where_code_may_have_run_nor_for_little() {
    for (size, before) in [(LARGE - 1, Baseline::fresh()), (LARGE, Baseline::default())] {
        let brought = brought(size, before, FakeContainer::new("c1")).await;
        assert_eq!((brought.sent, brought.baseline.is_fresh), ((0, 0), false), "{size}");
        assert_eq!((brought.container.engine().calls.len(), brought.container.received().len()), (0, 0));
    }
}
