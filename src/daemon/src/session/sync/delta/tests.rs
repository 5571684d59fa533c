//! What goes in, and what is taken of a container whose agent lies.

use bytes::Bytes;
use paddock_proto::RelPath;
use paddock_proto::message::CollectRules;

use super::*;
use crate::session::port::SILENCE;
use crate::session::port::fake::{FakeContainer, Script, Step, collect_file, file};
use crate::session::test_world::{QUOTA, save, saved, store};

const BOUNDS: DataBounds = DataBounds { bytes: 1 << 20, entries: 1000 };

struct Side {
    _dir: tempfile::TempDir,
    store: Arc<crate::store::Store>,
    space: Arc<Space>,
    container: FakeContainer,
    link: Link,
    baseline: Baseline,
}

impl Side {
    async fn new(change: impl FnOnce(&mut Script)) -> Self {
        let (dir, store) = store();
        let space = store.space("o", "s").await.unwrap();
        let container = FakeContainer::scripted("c1", change);
        let link = container.link().await;
        Self { _dir: dir, store, space, container, link, baseline: Baseline::fresh() }
    }

    async fn bring_in(&mut self) -> Result<(u64, u64), SyncError> {
        bring_in(&self.space, &self.link, &mut self.baseline).await
    }

    async fn collect(&mut self) -> Result<Collected, SyncError> {
        let stream = self.link.request(&Request::Collect(CollectRules::All)).unwrap();
        collect(&self.space, &stream, &mut self.baseline, BOUNDS).await
    }

    /// What the agent was told, each request by its first word.
    fn told(&self) -> Vec<String> {
        let first = |request: &Request| format!("{request:?}").split(['(', ' ']).next().unwrap().to_owned();
        self.container.received().iter().map(first).collect()
    }
}

fn path(text: &str) -> RelPath {
    RelPath::new(text).unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_container_gets_what_it_lacks_and_loses_what_the_store_has_not() {
    let mut side = Side::new(|_| {}).await;
    save(&side.space, "kept", b"1").await;
    assert_eq!(side.bring_in().await.unwrap(), (1, 1));
    save(&side.space, "dir/new", b"22").await;
    side.baseline.paths.insert(path("gone"), 7);
    assert_eq!(side.bring_in().await.unwrap(), (1, 2));
    assert_eq!(side.told(), ["Apply", "Put", "Apply", "Remove", "Put", "Put"], "the directory and its file");
    assert_eq!(side.container.input(Channel::File), b"122");
    assert_eq!(side.bring_in().await.unwrap(), (0, 0), "both sides are equal");
    assert_eq!(side.told().len(), 6);
}

#[tokio::test(start_paused = true)]
async fn files_that_did_not_arrive_whole_stay_lacking() {
    let ways: [fn(&mut Script); 5] = [
        |script| script.apply = vec![Step::UntilClosed, Step::Say(Event::Failed { what: "full".into() })],
        |script| script.apply = vec![Step::UntilClosed, Step::Say(Event::Claimed)],
        |script| script.apply = vec![Step::UntilClosed, Step::Close],
        |script| script.apply = vec![Step::Reset],
        |script| script.apply = vec![Step::Hang],
    ];
    for change in ways {
        let mut side = Side::new(change).await;
        save(&side.space, "large", &[7; 700_000]).await;
        side.bring_in().await.unwrap_err();
        assert!(side.baseline.paths.is_empty() && side.baseline.generation == 0);
    }
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_takes_nothing_is_given_up_after_its_silence() {
    let mut side = Side::new(|script| script.apply = vec![Step::Hang]).await;
    save(&side.space, "large", &[7; 700_000]).await;
    let begun = tokio::time::Instant::now();
    let silent = side.bring_in().await;
    assert!(matches!(silent, Err(SyncError::Link(LinkError::Silent(SILENCE)))), "{silent:?}");
    assert_eq!(begun.elapsed().as_secs(), SILENCE.as_secs());
}

#[tokio::test(start_paused = true)]
async fn a_file_that_the_store_cannot_read_is_named() {
    let mut side = Side::new(|_| {}).await;
    save(&side.space, "file", b"1").await;
    std::fs::remove_dir_all(side.store.session_dir_for_tests("o", "s")).unwrap();
    let failed = side.bring_in().await;
    assert!(matches!(&failed, Err(SyncError::Unread { path: of, .. }) if *of == path("file")), "{failed:?}");
}

#[tokio::test(start_paused = true)]
async fn what_a_program_changed_is_saved_and_then_committed() {
    let mut side = Side::new(|script| {
        script.collect = collect_file("dir/new", "made");
        script.collect.insert(0, Step::Say(Event::Removed(path("old"))));
    })
    .await;
    save(&side.space, "old", b"1").await;
    side.bring_in().await.unwrap();
    let done = side.collect().await.unwrap();
    assert_eq!((done.changed.len(), done.is_container_behind), (1, false));
    assert_eq!((saved(&side.space, "dir/new").as_deref(), saved(&side.space, "old")), (Some("made"), None));
    side.container.until(|request| *request == Request::Commit).await;
    let manifest = side.space.manifest();
    assert_eq!(side.baseline.paths, manifest.known(), "the directory too");
    assert_eq!(side.baseline.generation, manifest.generation());
}

#[tokio::test(start_paused = true)]
async fn a_change_that_comes_beside_a_program_is_brought_to_the_next_one() {
    for makes in [false, true] {
        let mut side = Side::new(|script| {
            if makes {
                script.collect = collect_file("made", "by the program");
            }
        })
        .await;
        save(&side.space, "first", b"1").await;
        side.bring_in().await.unwrap();
        // As a change does that is saved, and gets its place only when the disk has room again.
        save(&side.space, "late", b"22").await;
        assert_eq!(side.collect().await.unwrap().changed.len(), usize::from(makes));
        assert_eq!(side.bring_in().await.unwrap(), (1, 2), "the late file alone");
        assert_eq!(side.baseline.paths, side.space.manifest().known());
        assert_eq!(side.bring_in().await.unwrap(), (0, 0));
    }
}

#[tokio::test(start_paused = true)]
async fn what_the_store_did_not_save_is_not_committed() {
    let mut side = Side::new(|script| script.collect = collect_file("new", "made")).await;
    side.store.break_for_test(true);
    let failed = side.collect().await;
    assert!(matches!(failed, Err(SyncError::Store(_))), "{failed:?}");
    assert_eq!((side.told(), side.baseline.paths.len()), (vec!["Collect".to_owned()], 0));
}

#[tokio::test(start_paused = true)]
async fn a_file_that_changed_while_it_was_read_is_named_and_not_saved() {
    let mut side = Side::new(|script| {
        script.collect = collect_file("torn", "made");
        script.collect[2] = Step::Say(Event::FileEnd { whole: false });
    })
    .await;
    let done = side.collect().await.unwrap();
    assert_eq!(done.not_saved, [(b"torn".to_vec(), "it changed while it was read")]);
    assert!(done.changed.is_empty() && saved(&side.space, "torn").is_none());
}

#[tokio::test(start_paused = true)]
async fn a_file_beyond_the_quota_is_named_and_the_agent_keeps_it_as_changed() {
    let size = QUOTA.bytes + 1;
    let mut side = Side::new(|script| {
        let announced = Step::Say(Event::Changed(file("huge", size)));
        let rest = collect_file("small", "made");
        script.collect = [vec![announced, Step::Say(Event::FileEnd { whole: false })], rest].concat();
    })
    .await;
    let done = side.collect().await.unwrap();
    assert_eq!((done.changed.len(), done.not_saved.len()), (1, 1));
    assert_eq!(saved(&side.space, "small").as_deref(), Some("made"));
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_sends_what_was_refused_is_believed_for_one_quota() {
    for (bytes, is_refused) in [(BOUNDS.bytes, false), (BOUNDS.bytes + 1, true)] {
        let mut side = Side::new(|script| {
            script.collect = vec![
                Step::Say(Event::Changed(file("huge", QUOTA.bytes + 1))),
                Step::Write(Channel::File, vec![7; usize::try_from(bytes).unwrap()].into()),
                Step::Say(Event::FileEnd { whole: false }),
                Step::Say(END),
            ];
        })
        .await;
        assert_eq!(side.collect().await.is_err(), is_refused, "{bytes}");
    }
}

fn skipped(path: Vec<u8>) -> Event {
    Event::Skipped { path, reason: SkipReason::Path }
}

const END: Event = Event::Collected { entries: 0 };

/// What is made of a collection in which an agent says this, and what it was told; both sides have the file
/// `known`.
async fn collected(events: impl IntoIterator<Item = Event>) -> (Result<Collected, SyncError>, Vec<String>) {
    let mut side = Side::new(|script| script.collect = events.into_iter().map(Step::Say).collect()).await;
    side.baseline.paths.insert(path("known"), 1);
    (side.collect().await, side.told())
}

fn is_refused((done, told): &(Result<Collected, SyncError>, Vec<String>)) -> bool {
    matches!(done, Err(SyncError::Link(LinkError::Refused))) && *told == ["Collect"]
}

#[tokio::test(start_paused = true)]
async fn what_was_not_saved_is_named_up_to_a_bound() {
    let many = (0..2000).map(|n| skipped(n.to_string().into_bytes()));
    let (done, _) = collected(many.chain([END])).await;
    assert_eq!(done.unwrap().not_saved.len(), super::super::MAX_NOT_SAVED);
    let longest = skipped(vec![b'x'; MAX_SKIPPED]);
    assert_eq!(collected([longest, END]).await.0.unwrap().not_saved.len(), 1);
    let longer = skipped(vec![b'x'; MAX_SKIPPED + 1]);
    assert!(is_refused(&collected([longer, END]).await));
    let endless = (0..3001).map(|_| skipped(b"x".to_vec()));
    assert!(is_refused(&collected(endless).await));
}

#[tokio::test(start_paused = true)]
async fn what_goes_was_known_and_goes_once() {
    let gone = || Event::Removed(path("known"));
    assert!(collected([gone(), END]).await.0.is_ok());
    assert!(is_refused(&collected([gone(), gone(), END]).await));
    let unknown = || Event::Removed(path("never/heard/of"));
    assert!(
        collected([unknown(), unknown(), END]).await.0.is_ok(),
        "there is nothing to do, and nothing is kept"
    );
}

#[tokio::test(start_paused = true)]
async fn a_file_is_what_was_announced_and_nothing_comes_out_of_its_order() {
    let announced = || Step::Say(Event::Changed(file("a", 2)));
    let bytes = |bytes: &'static [u8]| Step::Write(Channel::File, Bytes::from_static(bytes));
    let whole = || Step::Say(Event::FileEnd { whole: true });
    for (what, steps) in [
        ("more than announced", vec![announced(), bytes(b"123"), whole(), Step::Say(END)]),
        ("bytes of no file", vec![bytes(b"1"), Step::Say(END)]),
        ("an end of no file", vec![whole(), Step::Say(END)]),
        ("another file within one", vec![announced(), announced(), Step::Say(END)]),
        ("output within a file", vec![announced(), Step::Write(Channel::Stdout, Bytes::from_static(b"1"))]),
        ("the end within a file", vec![announced(), bytes(b"1"), Step::Close]),
        ("another message", vec![Step::Say(Event::Applied), Step::Say(END)]),
    ] {
        let mut side = Side::new(|script| script.collect = steps).await;
        let done = (side.collect().await, side.told());
        assert!(is_refused(&done), "{what}: {done:?}");
        assert!(saved(&side.space, "a").is_none(), "{what}");
    }
    let mut short = Side::new(|script| {
        script.collect = vec![announced(), bytes(b"1"), whole(), Step::Say(END)];
    })
    .await;
    assert_eq!(short.collect().await.unwrap().not_saved.len(), 1, "one byte is missing");
}
