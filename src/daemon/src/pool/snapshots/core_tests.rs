//! The rules of snapshots: events in, actions out, on a clock that the test sets.

use super::*;
use crate::pool::snapshots::record::now as seconds;

const AGE: Duration = Duration::from_secs(24 * 60 * 60);
const SETTLED: Duration = Duration::from_secs(5);

struct Stand {
    core: SnapshotCore,
    now: Instant,
}

fn snapshot(key: &str, name: &str, age: u64) -> Snapshot {
    Snapshot {
        volume: format!("paddock-snapshot-{name}").parse().unwrap(),
        language: "python".into(),
        image: "image".into(),
        key: key.into(),
        digest: "d".into(),
        bytes: 1,
        taken: seconds() - age,
    }
}

fn volume(name: &str) -> VolumeName {
    snapshot("", name, 0).volume
}

impl Stand {
    fn new(found: Vec<Snapshot>) -> Self {
        Self::with(found, vec![], BTreeMap::new())
    }

    fn with(
        whole: Vec<Snapshot>,
        checking: Vec<Snapshot>,
        unsupported: BTreeMap<String, Unsupported>,
    ) -> Self {
        let terms = SnapshotTerms { age: AGE, settled: SETTLED };
        Self { core: SnapshotCore::new(terms, (whole, checking), unsupported), now: Instant::now() }
    }

    fn not_restored(&mut self, name: &str, container: &str, failure: RestoreFailure) -> Vec<String> {
        let (volume, container, why) = (volume(name), container.to_owned(), "why".to_owned());
        self.send(SnapshotEvent::NotRestored { volume, container, failure, why })
    }

    fn checked(&mut self, name: &str, is_whole: bool) -> Vec<String> {
        self.send(SnapshotEvent::Checked { volume: volume(name), is_whole })
    }

    /// A word for each action.
    fn send(&mut self, event: SnapshotEvent) -> Vec<String> {
        let actions = self.core.on(event, self.now).into_iter();
        let words = actions.map(|action| match action {
            SnapshotAction::Take { language, candidate } => format!("take {language} {}", candidate.key),
            SnapshotAction::Use { volume, .. } => {
                format!("use {}", volume.map_or("none".to_owned(), |volume| volume.as_str()[17..].to_owned()))
            }
            SnapshotAction::Remove(volume) => format!("remove {}", &volume.as_str()[17..]),
        });
        words.collect()
    }

    fn found(&mut self, key: Option<&str>) -> Vec<String> {
        let candidate = |key: &str| Candidate { image: "image".into(), key: key.to_owned() };
        let found = key.map(|key| ("python".to_owned(), candidate(key))).into_iter().collect();
        self.send(SnapshotEvent::Found(found))
    }

    fn wait(&mut self, time: Duration) -> Vec<String> {
        self.now += time;
        self.send(SnapshotEvent::Tick)
    }

    fn taken(&mut self, result: Result<Snapshot, TakeFailure>) -> Vec<String> {
        self.send(SnapshotEvent::Taken { language: "python".into(), result })
    }

    fn removed(&mut self, name: &str, gone: bool) -> Vec<String> {
        self.send(SnapshotEvent::Removed { volume: volume(name), gone })
    }

    /// The time until the next tick.
    fn due(&self) -> Option<Duration> {
        self.core.next_deadline().map(|due| due - self.now)
    }
}

const NOTHING: [&str; 0] = [];

#[test]
fn a_snapshot_is_taken_when_the_containers_have_started_and_again_each_day() {
    let mut s = Stand::new(vec![]);
    assert_eq!(s.found(Some("k")), NOTHING, "containers first");
    assert_eq!(s.due(), Some(SETTLED));
    assert_eq!(s.wait(SETTLED), ["take python k"]);
    assert_eq!(s.due(), None, "one at a time");
    assert_eq!(s.found(Some("k")), NOTHING, "it is under way");
    assert_eq!(s.taken(Ok(snapshot("k", "a", 0))), ["use a"]);
    assert_eq!(s.core.current("python").unwrap().volume, volume("a"));
    assert_eq!(s.wait(AGE), ["take python k"]);
    assert_eq!(s.core.current("python").unwrap().volume, volume("a"), "in use until there is another");
    assert_eq!(s.taken(Ok(snapshot("k", "b", 0))), ["use b", "remove a"]);
    // Sessions still have containers that mount it.
    assert_eq!(s.removed("a", false), NOTHING);
    assert_eq!(s.wait(REMOVE_AGAIN), ["remove a"]);
    assert_eq!(s.removed("a", true), NOTHING);
    assert_eq!(s.core.snapshots().count(), 1);
}

#[test]
fn a_snapshot_of_an_earlier_daemon_is_used_at_once_while_its_key_is_the_same() {
    let mut s = Stand::new(vec![snapshot("k", "a", 3600)]);
    assert_eq!(s.found(Some("k")), ["use a"]);
    let due = s.due().unwrap();
    assert!(due <= AGE - Duration::from_secs(3600) && due > AGE - Duration::from_secs(3700), "{due:?}");
    // An old one serves until there is a new one.
    let mut s = Stand::new(vec![snapshot("k", "a", 200_000)]);
    assert_eq!(s.found(Some("k")), ["use a"]);
    assert_eq!(s.wait(SETTLED), ["take python k"]);
    // Another kernel, image or processor.
    let mut s = Stand::new(vec![snapshot("k", "a", 3600)]);
    assert_eq!(s.found(Some("other")), ["remove a"]);
    assert_eq!(s.wait(SETTLED), ["take python other"]);
}

#[test]
fn a_snapshot_goes_with_its_image_even_if_it_comes_late() {
    let mut s = Stand::new(vec![]);
    s.found(Some("k"));
    s.wait(SETTLED);
    assert_eq!(s.found(None), NOTHING);
    assert_eq!(s.taken(Ok(snapshot("k", "a", 0))), ["remove a"], "nobody uses it");
    assert_eq!(s.removed("a", true), NOTHING);
    s.found(Some("k"));
    s.wait(SETTLED);
    s.taken(Ok(snapshot("k", "b", 0)));
    assert_eq!(s.found(Some("new")), ["remove b"], "the image was replaced");
    assert!(s.core.current("python").is_none());
}

#[test]
fn what_fails_is_tried_again_later_and_later() {
    let mut s = Stand::new(vec![]);
    s.found(Some("k"));
    s.wait(SETTLED);
    assert_eq!(s.taken(Err(TakeFailure::Busy)), NOTHING);
    assert_eq!(s.wait(BUSY), ["take python k"]);
    for pause in [60, 120, 240] {
        assert_eq!(s.taken(Err(TakeFailure::Failed)), NOTHING);
        assert_eq!(s.due(), Some(Duration::from_secs(pause)));
        assert_eq!(s.wait(Duration::from_secs(pause)), ["take python k"]);
    }
}

#[test]
fn one_that_cannot_be_taken_again_is_tried_later_and_later_while_the_old_one_serves() {
    let mut s = Stand::new(vec![snapshot("k", "a", 200_000)]);
    s.found(Some("k"));
    assert_eq!(s.wait(SETTLED), ["take python k"]);
    for pause in [60, 120, 240] {
        assert_eq!(s.taken(Err(TakeFailure::Failed)), NOTHING);
        assert_eq!(s.due(), Some(Duration::from_secs(pause)));
        assert_eq!(s.wait(Duration::from_secs(pause)), ["take python k"]);
    }
    assert_eq!(s.core.current("python").unwrap().volume, volume("a"));
    // Each one that serves for its whole time begins anew.
    s.taken(Ok(snapshot("k", "b", 0)));
    assert_eq!(s.wait(AGE), ["take python k"]);
    s.taken(Err(TakeFailure::Failed));
    assert_eq!(s.due(), Some(Duration::from_secs(60)));
}

#[test]
fn a_snapshot_that_cannot_be_restored_is_used_no_more_and_costs_less_and_less() {
    let mut s = Stand::new(vec![]);
    s.found(Some("k"));
    s.wait(SETTLED);
    for (name, pause) in [("a", 60), ("b", 120), ("c", 240)] {
        assert_eq!(s.taken(Ok(snapshot("k", name, 0))), [format!("use {name}")]);
        assert_eq!(
            s.not_restored(name, "c1", RestoreFailure::Said),
            ["use none".to_owned(), format!("remove {name}")],
            "the file cannot be right"
        );
        assert_eq!(s.not_restored(name, "c2", RestoreFailure::Said), NOTHING, "a second container says so");
        assert_eq!(s.removed(name, true), NOTHING);
        assert_eq!(s.wait(Duration::from_secs(pause)), ["take python k"]);
    }
    // One that serves for its whole time ends that.
    s.taken(Ok(snapshot("k", "d", 0)));
    assert_eq!(s.wait(AGE), ["take python k"]);
    s.taken(Err(TakeFailure::Failed));
    assert_eq!(s.due(), Some(Duration::from_secs(60)));
}

#[test]
fn parts_that_died_or_were_late_end_the_use_of_a_snapshot_only_in_three_containers_within_some_time() {
    let died = RestoreFailure::Died;
    let mut s = Stand::new(vec![snapshot("k", "a", 3600)]);
    s.found(Some("k"));
    for _ in 0..5 {
        assert_eq!(s.not_restored("a", "c1", died), NOTHING, "one container counts once");
    }
    assert_eq!(s.not_restored("a", "c2", died), NOTHING);
    assert_eq!(s.wait(DOUBTED_WITHIN), NOTHING);
    assert_eq!(s.not_restored("a", "c3", died), NOTHING, "the others are long ago");
    assert_eq!(s.not_restored("a", "c4", died), NOTHING);
    assert_eq!(s.core.current("python").unwrap().volume, volume("a"));
    assert_eq!(s.not_restored("a", "c5", died), ["use none", "remove a"]);
    // Doubts are of one snapshot.
    assert_eq!(s.removed("a", true), NOTHING);
    assert_eq!(s.wait(Duration::from_secs(60)), ["take python k"]);
    s.taken(Ok(snapshot("k", "b", 0)));
    assert_eq!(s.not_restored("b", "c6", died), NOTHING);
    assert_eq!(s.not_restored("a", "c7", died), NOTHING, "a late word of the earlier one");
    assert_eq!(s.not_restored("b", "c7", died), NOTHING);
    assert_eq!(s.core.current("python").unwrap().volume, volume("b"));
}

#[test]
fn a_snapshot_of_an_earlier_daemon_is_used_once_it_was_found_whole_and_none_is_taken_before() {
    let mut s = Stand::with(vec![], vec![snapshot("k", "a", 3600)], BTreeMap::new());
    assert_eq!(s.found(Some("k")), NOTHING);
    assert!(s.core.current("python").is_none());
    assert_eq!(s.core.checking("python").unwrap().volume, volume("a"));
    assert_eq!(s.core.snapshots().count(), 1, "the record names it all the time");
    assert_eq!(s.wait(2 * SETTLED), NOTHING);
    assert_eq!(s.checked("a", true), ["use a"]);
    assert!(s.core.checking("python").is_none());
    assert!(s.due().unwrap() > AGE / 2);

    // It is not what was saved: another one is taken.
    let mut s = Stand::with(vec![], vec![snapshot("k", "a", 3600)], BTreeMap::new());
    s.found(Some("k"));
    assert_eq!(s.checked("a", false), ["remove a"]);
    assert_eq!(s.wait(SETTLED), ["take python k"]);

    // An old one serves, and is replaced when nothing is read any more.
    let mut s = Stand::with(vec![], vec![snapshot("k", "a", 200_000)], BTreeMap::new());
    s.found(Some("k"));
    assert_eq!(s.wait(2 * SETTLED), NOTHING, "the disk reads");
    assert_eq!(s.checked("a", true), ["use a", "take python k"]);

    // Nobody wants it any more.
    let mut s = Stand::with(vec![], vec![snapshot("k", "a", 3600)], BTreeMap::new());
    assert_eq!(s.found(Some("other")), ["remove a"]);
    assert_eq!(s.checked("a", true), NOTHING);
    assert_eq!(s.wait(SETTLED), ["take python other"]);
}

#[test]
fn of_two_of_an_earlier_daemon_the_newer_one_serves_in_whatever_order_they_are_read() {
    for order in [["old", "new"], ["new", "old"]] {
        let both = vec![snapshot("k", "old", 7200), snapshot("k", "new", 3600)];
        let mut s = Stand::with(vec![], both, BTreeMap::new());
        s.found(Some("k"));
        for name in order {
            s.checked(name, true);
        }
        assert_eq!(s.core.current("python").unwrap().volume, volume("new"), "{order:?}");
    }
}

#[test]
fn where_no_snapshot_is_possible_none_is_tried_until_the_key_is_another_one() {
    let no = || TakeFailure::Unsupported("no PR_SET_MM_MAP".to_owned());
    let mut s = Stand::new(vec![]);
    s.found(Some("k"));
    s.wait(SETTLED);
    assert_eq!(s.taken(Err(no())), NOTHING);
    assert_eq!((s.due(), s.wait(100 * AGE)), (None, vec![]));
    let noted = s.core.unsupported().clone();
    assert_eq!(noted["python"].why, "no PR_SET_MM_MAP");
    // The next daemon knows, and so does one whose machine is not known yet.
    let mut s = Stand::with(vec![], vec![], noted.clone());
    assert_eq!((s.found(None), s.core.unsupported().len()), (vec![], 1));
    assert_eq!((s.found(Some("k")), s.due()), (vec![], None));
    // Another kernel, image or daemon.
    assert_eq!(s.found(Some("other")), NOTHING);
    assert_eq!(s.wait(SETTLED), ["take python other"]);
    assert!(s.core.unsupported().is_empty());
    // A container says so.
    s.taken(Ok(snapshot("other", "a", 0)));
    assert_eq!(s.not_restored("a", "c1", RestoreFailure::Unsupported), ["use none", "remove a"]);
    assert_eq!(s.removed("a", true), NOTHING);
    assert_eq!((s.due(), s.core.unsupported().len()), (None, 1));
}
