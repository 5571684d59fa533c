//! What an agent says that its container has, compared with the store.

use bytes::Bytes;
use paddock_proto::Channel;

use super::*;
use crate::session::port::SILENCE;
use crate::session::port::fake::{FakeContainer, Step, file};
use crate::session::test_world::{save, store};

const BOUNDS: DataBounds = DataBounds { bytes: 1 << 20, entries: 2 };

/// What is made of an agent that answers in this way; the store has the files `same` and `other`, both of
/// five bytes.
async fn asked(base: Vec<Step>) -> (Stored, Result<Baseline, LinkError>) {
    let (dir, store) = store();
    let space = store.space("o", "s").await.unwrap();
    save(&space, "same", b"12345").await;
    save(&space, "other", b"12345").await;
    let container = FakeContainer::scripted("c1", |script| script.base = base);
    let baseline = Baseline::ask(&space, &container.link().await, &Request::Base, BOUNDS).await;
    (Stored { space, _dir: dir }, baseline)
}

struct Stored {
    space: std::sync::Arc<Space>,
    _dir: tempfile::TempDir,
}

fn says(entry: Entry) -> Step {
    Step::Say(Event::Changed(entry))
}

const END: Step = Step::Say(Event::Collected { entries: 0 });

#[tokio::test(start_paused = true)]
async fn only_what_the_store_has_with_that_size_and_time_counts_as_there() {
    let later = Entry { mtime_ns: 2_000_000_000, ..file("other", 5) };
    let (stored, baseline) = asked(vec![says(file("same", 5)), says(later), says(file("new", 5)), END]).await;
    let baseline = baseline.unwrap();
    let generation = stored.space.manifest().get(&file("same", 5).path).unwrap().generation;
    let found: Vec<_> =
        baseline.paths.iter().map(|(path, generation)| (path.as_bytes(), *generation)).collect();
    assert_eq!(found, [(&b"new"[..], 0), (&b"other"[..], 0), (&b"same"[..], generation)]);
    assert!(generation > 0 && !baseline.is_fresh && baseline.generation == 0);
    let (_, shorter) = asked(vec![says(file("same", 4)), END]).await;
    assert_eq!(shorter.unwrap().paths.into_values().collect::<Vec<_>>(), [0]);
}

#[tokio::test(start_paused = true)]
async fn a_list_that_is_longer_than_data_can_be_or_no_list_is_refused() {
    let many = |n| (0..n).map(|n| says(file(&n.to_string(), 1))).chain([END]).collect::<Vec<_>>();
    assert!(asked(many(6)).await.1.is_ok());
    for steps in [
        many(7),
        vec![Step::Close],
        vec![Step::Write(Channel::File, Bytes::from_static(b"x"))],
        vec![Step::Say(Event::Applied)],
        vec![Step::Say(Event::Failed { what: "no".into() })],
    ] {
        let (_, refused) = asked(steps.clone()).await;
        assert!(matches!(refused, Err(LinkError::Refused)), "{steps:?}");
    }
    let (_, silent) = asked(vec![says(file("same", 5)), Step::Hang]).await;
    assert!(matches!(silent, Err(LinkError::Silent(SILENCE))));
}
