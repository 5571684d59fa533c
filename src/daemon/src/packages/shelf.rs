//! Which layers there are, who uses them and which has to go. Pure: no clock, no I/O.
//!
//! ```text
//!            want                 fetched
//!  (absent) ──────► being fetched ───────► there ── unused for its time, or room is needed ──► (absent)
//!                        │  failed           ▲ │ want: used
//!                        └──────► (absent)   └─┘ released
//! ```
//!
//! A layer of an earlier daemon is looked at before it is used: it begins as `Unseen`. A layer that somebody
//! uses must never go, nor one that a program of an earlier daemon may still use.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::list::LayerKey;

/// The bounds of all layers together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ShelfBounds {
    /// Bytes.
    pub(super) bytes: u64,
    /// How many.
    pub(super) layers: usize,
    /// A layer that nobody has used for this long goes.
    pub(super) retention: Duration,
}

/// A layer that is there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Layer {
    /// The name of its directory.
    pub(super) directory: String,
    /// Bytes of its files.
    pub(super) bytes: u64,
    /// Its files and directories.
    pub(super) entries: u64,
    /// SHA-256 over the names, modes and contents of its files.
    pub(super) digest: String,
    /// Everything in it: each package with its exact version.
    pub(super) locked: Vec<String>,
}

/// What there is of a layer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Found {
    /// It is there; it counts as used until it is [released](Shelf::released).
    There(Layer),
    /// Somebody fetches it.
    OnItsWay,
    /// It was there when an earlier daemon ended: it is being looked at from now on.
    Unseen(Layer),
    /// It is being fetched from now on.
    Absent,
}

#[derive(Debug)]
struct Shelved {
    layer: Layer,
    users: u32,
    used: Instant,
    /// Whether this daemon knows that it is complete.
    is_seen: bool,
    /// A program that an earlier daemon started may use it until then.
    held_until: Instant,
}

/// All layers of one daemon.
#[derive(Debug)]
pub(super) struct Shelf {
    bounds: ShelfBounds,
    layers: HashMap<LayerKey, Shelved>,
    on_their_way: HashMap<LayerKey, String>,
}

impl Shelf {
    /// With the layers of an earlier daemon, each with how long it was not used. The programs that that
    /// daemon started run for `longest` at most.
    pub(super) fn new(
        bounds: ShelfBounds,
        earlier: impl IntoIterator<Item = (LayerKey, Layer, Duration)>,
        longest: Duration,
        now: Instant,
    ) -> Self {
        let layers = earlier.into_iter().map(|(key, layer, unused)| {
            let used = now.checked_sub(unused).unwrap_or(now);
            (key, Shelved { layer, users: 0, used, is_seen: false, held_until: now + longest })
        });
        Self { bounds, layers: layers.collect(), on_their_way: HashMap::new() }
    }

    /// Whether a layer is there, so that nothing has to be done to use it.
    pub(super) fn is_there(&self, key: &LayerKey) -> bool {
        self.layers.get(key).is_some_and(|shelved| shelved.is_seen)
    }

    /// Somebody wants a layer. If the answer is `Unseen` or `Absent`, the caller brings it, into `directory`,
    /// and reports [`fetched`](Self::fetched) or [`failed`](Self::failed).
    pub(super) fn want(&mut self, key: LayerKey, directory: &str, now: Instant) -> Found {
        if self.on_their_way.contains_key(&key) {
            return Found::OnItsWay;
        }
        match self.layers.get_mut(&key) {
            Some(shelved) if shelved.is_seen => {
                shelved.users += 1;
                shelved.used = now;
                Found::There(shelved.layer.clone())
            }
            Some(shelved) => {
                self.on_their_way.insert(key, directory.to_owned());
                Found::Unseen(shelved.layer.clone())
            }
            None => {
                self.on_their_way.insert(key, directory.to_owned());
                Found::Absent
            }
        }
    }

    /// A layer is there and complete. It counts as used by one, until that one releases it.
    pub(super) fn fetched(&mut self, key: LayerKey, layer: Layer, now: Instant) {
        self.on_their_way.remove(&key);
        let held_until = self.layers.get(&key).map_or(now, |earlier| earlier.held_until);
        self.layers.insert(key, Shelved { layer, users: 1, used: now, is_seen: true, held_until });
    }

    /// A layer did not come: it is absent again, whatever was known of it.
    pub(super) fn failed(&mut self, key: &LayerKey) {
        self.on_their_way.remove(key);
        self.layers.remove(key);
    }

    /// A layer that could not be looked at: it stays as it is, to be looked at again.
    pub(super) fn not_seen(&mut self, key: &LayerKey) {
        self.on_their_way.remove(key);
    }

    /// One user of a layer is done with it.
    pub(super) fn released(&mut self, key: &LayerKey, now: Instant) {
        if let Some(shelved) = self.layers.get_mut(key) {
            shelved.users = shelved.users.saturating_sub(1);
            shelved.used = now;
        }
    }

    /// Takes out the layers that nobody has used for their time, and the least recently used ones while there
    /// are more than may be. What somebody uses stays, so the bounds can be exceeded afterwards.
    pub(super) fn sweep(&mut self, now: Instant) -> Vec<Layer> {
        let mut out = Vec::new();
        let retention = self.bounds.retention;
        let mut free: Vec<(Instant, LayerKey)> = self
            .layers
            .iter()
            .filter(|(key, one)| {
                one.users == 0 && now >= one.held_until && !self.on_their_way.contains_key(*key)
            })
            .map(|(key, one)| (one.used, *key))
            .collect();
        free.sort();
        for (used, key) in free {
            let is_old = now.saturating_duration_since(used) >= retention;
            if !is_old && !self.is_over() {
                break;
            }
            out.extend(self.layers.remove(&key).map(|one| one.layer));
        }
        out
    }

    /// Whether there is more than may be.
    pub(super) fn is_over(&self) -> bool {
        let (layers, bytes) = self.size();
        bytes > self.bounds.bytes || layers > self.bounds.layers
    }

    /// How many layers are there, and their bytes.
    pub(super) fn size(&self) -> (usize, u64) {
        (self.layers.len(), self.layers.values().map(|one| one.layer.bytes).sum())
    }

    /// The names of all directories that have a purpose, those that are being written too.
    pub(super) fn directories(&self) -> Vec<String> {
        let there = self.layers.values().map(|one| one.layer.directory.clone());
        there.chain(self.on_their_way.values().cloned()).collect()
    }

    /// Whether something is being fetched.
    pub(super) fn is_fetching(&self) -> bool {
        !self.on_their_way.is_empty()
    }

    /// All layers, each with how long it was not used, for the next daemon.
    pub(super) fn kept(&self, now: Instant) -> Vec<(LayerKey, Layer, Duration)> {
        let all = self.layers.iter().map(|(key, one)| {
            let unused = if one.users > 0 { Duration::ZERO } else { now.saturating_duration_since(one.used) };
            (*key, one.layer.clone(), unused)
        });
        all.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RETENTION: Duration = Duration::from_secs(100);
    const LONGEST: Duration = Duration::from_secs(10);

    fn shelf(bytes: u64, layers: usize, now: Instant) -> Shelf {
        Shelf::new(ShelfBounds { bytes, layers, retention: RETENTION }, [], LONGEST, now)
    }

    fn layer(name: &str, bytes: u64) -> Layer {
        let (digest, locked) = (String::new(), Vec::new());
        Layer { directory: name.to_owned(), bytes, entries: 1, digest, locked }
    }

    fn names(layers: Vec<Layer>) -> Vec<String> {
        layers.into_iter().map(|layer| layer.directory).collect()
    }

    fn at(begun: Instant, seconds: u64) -> Instant {
        begun + Duration::from_secs(seconds)
    }

    #[test]
    fn a_layer_is_fetched_once_however_many_want_it() {
        let now = Instant::now();
        let mut shelf = shelf(100, 9, now);
        assert_eq!(shelf.want([1; 32], "d", now), Found::Absent);
        assert_eq!(shelf.want([1; 32], "e", now), Found::OnItsWay);
        assert_eq!(shelf.want([2; 32], "f", now), Found::Absent);
        assert_eq!(shelf.directories().len(), 2);
        shelf.fetched([1; 32], layer("d", 10), now);
        assert_eq!(shelf.want([1; 32], "g", now), Found::There(layer("d", 10)));
        // Nothing half is ever used, and the next call tries again.
        shelf.failed(&[2; 32]);
        assert_eq!(shelf.want([2; 32], "h", now), Found::Absent);
        assert!(shelf.is_fetching());
    }

    #[test]
    fn the_least_recently_used_goes_and_never_one_that_is_used() {
        let now = Instant::now();
        let mut shelf = shelf(100, 9, now);
        for (n, name) in [(1, "a"), (2, "b"), (3, "c")] {
            shelf.want([n; 32], name, at(now, n.into()));
            shelf.fetched([n; 32], layer(name, 40), at(now, n.into()));
        }
        assert!(shelf.is_over());
        assert_eq!(names(shelf.sweep(at(now, 4))), Vec::<String>::new(), "all are used");
        shelf.released(&[1; 32], at(now, 9));
        shelf.released(&[2; 32], at(now, 8));
        assert_eq!(names(shelf.sweep(at(now, 10))), ["b"], "the one that was not used for longest");
        assert!(!shelf.is_over());
        assert_eq!(names(shelf.sweep(at(now, 10))), Vec::<String>::new());
        // Retention.
        assert_eq!(names(shelf.sweep(at(now, 108))), Vec::<String>::new());
        assert_eq!(names(shelf.sweep(at(now, 109))), ["a"]);
        shelf.released(&[3; 32], at(now, 500));
        assert_eq!(names(shelf.sweep(at(now, 599))), Vec::<String>::new());
        assert_eq!(names(shelf.sweep(at(now, 600))), ["c"]);
        assert_eq!(shelf.size(), (0, 0));
    }

    #[test]
    fn the_number_of_layers_is_bounded_too() {
        let now = Instant::now();
        let mut shelf = shelf(1000, 2, now);
        for (n, name) in [(1, "a"), (2, "b"), (3, "c")] {
            shelf.want([n; 32], name, now);
            shelf.fetched([n; 32], layer(name, 1), now);
            shelf.released(&[n; 32], at(now, n.into()));
        }
        assert_eq!(names(shelf.sweep(at(now, 4))), ["a"]);
    }

    #[test]
    fn an_earlier_daemons_layer_is_looked_at_first_and_held_while_its_programs_may_run() {
        let now = Instant::now();
        let bounds = ShelfBounds { bytes: 1, layers: 9, retention: RETENTION };
        let earlier = [([1; 32], layer("a", 40), Duration::ZERO), ([2; 32], layer("b", 40), RETENTION)];
        let mut shelf = Shelf::new(bounds, earlier, LONGEST, now);
        assert_eq!(names(shelf.sweep(at(now, 9))), Vec::<String>::new());
        assert_eq!(shelf.want([1; 32], "x", at(now, 9)), Found::Unseen(layer("a", 40)));
        assert_eq!(shelf.want([1; 32], "x", at(now, 9)), Found::OnItsWay);
        assert_eq!(names(shelf.sweep(at(now, 10))), ["b"], "what is looked at stays");
        shelf.not_seen(&[1; 32]);
        assert_eq!(shelf.want([1; 32], "x", at(now, 10)), Found::Unseen(layer("a", 40)));
        shelf.fetched([1; 32], layer("a", 40), at(now, 11));
        assert_eq!(shelf.kept(at(now, 20)), [([1; 32], layer("a", 40), Duration::ZERO)], "it is used");
        shelf.released(&[1; 32], at(now, 21));
        assert_eq!(shelf.kept(at(now, 24))[0].2, Duration::from_secs(3));
        assert_eq!(shelf.want([1; 32], "x", at(now, 24)), Found::There(layer("a", 40)));
        // One that is gone is absent.
        shelf.failed(&[1; 32]);
        assert_eq!(shelf.want([1; 32], "x", at(now, 25)), Found::Absent);
    }

    #[test]
    fn a_layer_that_waiters_are_about_to_use_stays() {
        let now = Instant::now();
        let mut shelf = shelf(1, 9, now);
        shelf.want([1; 32], "a", now);
        shelf.fetched([1; 32], layer("a", 40), now);
        // The fetcher uses it until all who waited have it.
        assert!(shelf.sweep(at(now, 1)).is_empty());
        assert_eq!(shelf.want([1; 32], "x", now), Found::There(layer("a", 40)));
        shelf.released(&[1; 32], now);
        assert!(shelf.sweep(at(now, 1)).is_empty(), "one user is left");
        shelf.released(&[1; 32], now);
        assert_eq!(shelf.sweep(at(now, 1)).len(), 1);
    }
}
