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
        Self {
            core: SnapshotCore::new(SnapshotTerms { age: AGE, settled: SETTLED }, found),
            now: Instant::now(),
        }
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
            s.send(SnapshotEvent::NotRestored(volume(name))),
            ["use none".to_owned(), format!("remove {name}")]
        );
        assert_eq!(s.send(SnapshotEvent::NotRestored(volume(name))), NOTHING, "a second container says so");
        assert_eq!(s.removed(name, true), NOTHING);
        assert_eq!(s.wait(Duration::from_secs(pause)), ["take python k"]);
    }
    // One that serves for its whole time ends that.
    s.taken(Ok(snapshot("k", "d", 0)));
    assert_eq!(s.wait(AGE), ["take python k"]);
    s.taken(Err(TakeFailure::Failed));
    assert_eq!(s.due(), Some(Duration::from_secs(60)));
}
