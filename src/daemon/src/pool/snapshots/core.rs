//! Decides which snapshots are taken, used, taken again and removed. Pure: no clock, no I/O.
//!
//! ```text
//!  Found ─► due ─► Take ─► Taken ─► Use ──── age over ───► Take again (the old one is used meanwhile)
//!   │        ▲        └─ failed ──► pause     NotRestored ─► Use none, pause, Take again
//!   │        └────────────────────────┘       image gone, superseded ─► Remove, until nothing mounts it
//!   └─ one of an earlier daemon ─► Checked ─► Use, or Remove
//! ```
//!
//! One is taken at a time, and none while one is being compared with its digest. A part that says that its
//! snapshot cannot be right ends its use at once. A part that died, or was late, may be the fault of its
//! container: only [`DOUBTS`] containers together end the use. Where no snapshot is possible, none is tried
//! until the key of the runner is another one.
//!
//! This must never have a snapshot used whose key is not that of its runner now, nor one that did not come as
//! proved, or was not found whole; nor remove one that is in use.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use paddock_proto::message::RestoreFailure;

use super::record::{Snapshot, Unsupported};
use crate::config::Backoff;
use crate::engine::VolumeName;

/// The pause between two attempts to remove a volume that containers still mount.
const REMOVE_AGAIN: Duration = Duration::from_secs(30);
/// The pause before the next attempt if there was no container to take a snapshot in.
const BUSY: Duration = Duration::from_secs(30);
/// The pauses after snapshots that could not be taken, or that could not be restored: an image whose snapshot
/// never works costs its processor less and less often.
const BACKOFF: Backoff = Backoff { first: Duration::from_secs(60), max: Duration::from_secs(24 * 60 * 60) };

/// So many containers in which the part died or was late end the use of a snapshot: one may have been killed
/// or starved, two may be of one moment of an overloaded machine.
const DOUBTS: usize = 3;
/// Failures that lie further apart have nothing to do with each other.
const DOUBTED_WITHIN: Duration = Duration::from_secs(10 * 60);

/// When snapshots are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SnapshotTerms {
    /// The age at which a snapshot is taken again.
    pub(super) age: Duration,
    /// The pause between the time when a runner is found and its first snapshot: its containers start first.
    pub(super) settled: Duration,
}

/// A runner that can have a snapshot: the id of its image and its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Candidate {
    pub(super) image: String,
    pub(super) key: String,
}

/// Why no snapshot was taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum TakeFailure {
    /// There was no container for it, or callers needed its place.
    Busy,
    /// No snapshot is possible on this machine, for this reason.
    Unsupported(String),
    /// Anything else.
    Failed,
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum SnapshotEvent {
    /// These runners can have snapshots now, by their names.
    Found(BTreeMap<String, Candidate>),
    /// The snapshot that was to be taken for this runner, with its proof, or why there is none.
    Taken { language: String, result: Result<Snapshot, TakeFailure> },
    /// A part could not be restored from this volume, in a container in which no code has run.
    NotRestored { volume: VolumeName, container: String, failure: RestoreFailure, why: String },
    /// A snapshot of an earlier daemon has been compared with its digest.
    Checked { volume: VolumeName, is_whole: bool },
    /// A volume is gone; or it is still there.
    Removed { volume: VolumeName, gone: bool },
    /// Time has passed.
    Tick,
}

/// What to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum SnapshotAction {
    /// Take a snapshot for this runner and prove it; answered by one `Taken`.
    Take { language: String, candidate: Candidate },
    /// New containers of this runner have this volume from now on, or none.
    Use { language: String, image: String, volume: Option<VolumeName> },
    /// Remove the volume, unless a container mounts it; answered by one `Removed`.
    Remove(VolumeName),
}

#[derive(Debug)]
struct RunnerEntry {
    candidate: Candidate,
    current: Option<VolumeName>,
    /// When its next snapshot is due; `None` where none is possible.
    due: Option<Instant>,
    /// Failures since a snapshot was last used for all of its time.
    failures: u32,
    /// The next one is due since the last attempt failed, and not since a snapshot has served its time.
    is_retry: bool,
}

#[derive(Debug)]
struct KeptSnapshot {
    snapshot: Snapshot,
    /// Whether its files are known to be what was saved.
    is_whole: bool,
    /// The containers in which its part died or was late, and when that was last.
    doubts: BTreeMap<String, Instant>,
    /// It has to go; the next attempt is due then, or under way.
    leaving: Option<Option<Instant>>,
}

/// All snapshots of one engine.
#[derive(Debug)]
pub(super) struct SnapshotCore {
    terms: SnapshotTerms,
    runners: BTreeMap<String, RunnerEntry>,
    kept: BTreeMap<VolumeName, KeptSnapshot>,
    taking: Option<String>,
    /// The runners that can have no snapshot while they have these keys.
    unsupported: BTreeMap<String, Unsupported>,
}

impl SnapshotCore {
    /// With the snapshots that an earlier daemon left: those that were found whole, and those that are still
    /// being compared with their digests; and with the runners of which it knew that they can have none.
    pub(super) fn new(
        terms: SnapshotTerms,
        (whole, checking): (Vec<Snapshot>, Vec<Snapshot>),
        unsupported: BTreeMap<String, Unsupported>,
    ) -> Self {
        let whole = whole.into_iter().map(|snapshot| KeptSnapshot::new(snapshot, true));
        let all = whole.chain(checking.into_iter().map(|snapshot| KeptSnapshot::new(snapshot, false)));
        let kept = all.map(|kept| (kept.snapshot.volume.clone(), kept)).collect();
        Self { terms, runners: BTreeMap::new(), kept, taking: None, unsupported }
    }

    /// Takes in one event and answers what to do, in this order.
    pub(super) fn on(&mut self, event: SnapshotEvent, now: Instant) -> Vec<SnapshotAction> {
        let mut actions = Vec::new();
        match event {
            SnapshotEvent::Found(found) => self.found(&found, now, &mut actions),
            SnapshotEvent::Taken { language, result } => self.taken(&language, result, now, &mut actions),
            SnapshotEvent::NotRestored { volume, container, failure, why } => {
                self.not_restored(&volume, (container, failure, why), now, &mut actions);
            }
            SnapshotEvent::Checked { volume, is_whole } => {
                self.checked(&volume, is_whole, now, &mut actions);
            }
            SnapshotEvent::Removed { volume, gone } => {
                if gone {
                    self.kept.remove(&volume);
                } else if let Some(KeptSnapshot { leaving: Some(next), .. }) = self.kept.get_mut(&volume) {
                    *next = Some(now + REMOVE_AGAIN);
                }
            }
            SnapshotEvent::Tick => {}
        }
        self.remove_what_is_due(now, &mut actions);
        self.take_what_is_due(now, &mut actions);
        actions
    }

    /// When a tick is due.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        let may_take = self.taking.is_none() && !self.is_checking();
        let takes = self.runners.values().filter_map(|runner| runner.due).filter(|_| may_take);
        takes.chain(self.kept.values().filter_map(|kept| kept.leaving.flatten())).min()
    }

    /// All snapshots whose volumes are there.
    pub(super) fn snapshots(&self) -> impl Iterator<Item = &Snapshot> {
        self.kept.values().map(|kept| &kept.snapshot)
    }

    /// The snapshot that containers of this runner are made with.
    pub(super) fn current(&self, language: &str) -> Option<&Snapshot> {
        let volume = self.runners.get(language)?.current.as_ref()?;
        self.kept.get(volume).map(|kept| &kept.snapshot)
    }

    /// The snapshot that is being compared with its digest, and is used if it is whole.
    pub(super) fn checking(&self, language: &str) -> Option<&Snapshot> {
        let candidate = &self.runners.get(language)?.candidate;
        let fits = |kept: &&KeptSnapshot| !kept.is_whole && kept.fits(language, candidate);
        self.kept.values().find(fits).map(|kept| &kept.snapshot)
    }

    /// The runners that can have no snapshot.
    pub(super) fn unsupported(&self) -> &BTreeMap<String, Unsupported> {
        &self.unsupported
    }

    fn is_checking(&self) -> bool {
        self.kept.values().any(|kept| !kept.is_whole && kept.leaving.is_none())
    }

    fn found(
        &mut self,
        found: &BTreeMap<String, Candidate>,
        now: Instant,
        actions: &mut Vec<SnapshotAction>,
    ) {
        self.runners.retain(|language, runner| found.get(language) == Some(&runner.candidate));
        self.unsupported.retain(|language, one| found.get(language).is_none_or(|now| now.key == one.key));
        for (language, candidate) in found {
            if self.runners.contains_key(language) {
                continue;
            }
            let all = self.kept.values().filter(|kept| kept.fits(language, candidate));
            let newest = all.clone().max_by_key(|kept| kept.snapshot.taken);
            let due = match newest {
                Some(kept) => {
                    now + self.terms.age.saturating_sub(kept.snapshot.age()).max(self.terms.settled)
                }
                None => now + self.terms.settled,
            };
            let due = (!self.unsupported.contains_key(language)).then_some(due);
            let whole = all.filter(|kept| kept.is_whole).max_by_key(|kept| kept.snapshot.taken);
            let current = whole.map(|kept| kept.snapshot.volume.clone());
            if let Some(volume) = &current {
                actions.push(Self::used(language, candidate, Some(volume.clone())));
            }
            let candidate = candidate.clone();
            let entry = RunnerEntry { candidate, current, due, failures: 0, is_retry: false };
            self.runners.insert(language.clone(), entry);
        }
        let used: Vec<&VolumeName> =
            self.runners.values().filter_map(|runner| runner.current.as_ref()).collect();
        for (volume, kept) in &mut self.kept {
            let waited_for =
                !kept.is_whole && found.iter().any(|(language, candidate)| kept.fits(language, candidate));
            if !used.contains(&volume) && !waited_for && kept.leaving.is_none() {
                kept.leaving = Some(Some(now));
            }
        }
    }

    fn checked(
        &mut self,
        volume: &VolumeName,
        is_whole: bool,
        now: Instant,
        actions: &mut Vec<SnapshotAction>,
    ) {
        let Some(kept) = self.kept.get_mut(volume).filter(|kept| kept.leaving.is_none()) else { return };
        let fits = |(language, runner): &(&String, &mut RunnerEntry)| kept.fits(language, &runner.candidate);
        let of = self.runners.iter_mut().find(fits);
        (kept.is_whole, kept.leaving) = (is_whole, (!is_whole || of.is_none()).then_some(Some(now)));
        let Some((language, runner)) = of else { return };
        if !is_whole {
            runner.due = runner.due.map(|due| due.min(now + self.terms.settled));
            return;
        }
        let taken = kept.snapshot.taken;
        let earlier = runner.current.take().and_then(|earlier| self.kept.get_mut(&earlier));
        let (newer, older) = match earlier {
            Some(earlier) if earlier.snapshot.taken > taken => {
                (earlier.snapshot.volume.clone(), Some(volume.clone()))
            }
            earlier => (volume.clone(), earlier.map(|earlier| earlier.snapshot.volume.clone())),
        };
        runner.current = Some(newer.clone());
        actions.push(Self::used(language, &runner.candidate, Some(newer)));
        if let Some(older) = older.and_then(|older| self.kept.get_mut(&older)) {
            older.leaving = Some(Some(now));
        }
    }

    fn taken(
        &mut self,
        language: &str,
        result: Result<Snapshot, TakeFailure>,
        now: Instant,
        actions: &mut Vec<SnapshotAction>,
    ) {
        self.taking = None;
        let snapshot = match result {
            Ok(snapshot) => snapshot,
            Err(failure) => {
                if let Some(runner) = self.runners.get_mut(language) {
                    runner.due = match failure {
                        TakeFailure::Busy => Some(now + BUSY),
                        TakeFailure::Failed => Some(runner.failed(now)),
                        TakeFailure::Unsupported(why) => {
                            self.unsupported.insert(language.to_owned(), runner.unsupported(why));
                            None
                        }
                    };
                }
                return;
            }
        };
        let (volume, age) = (snapshot.volume.clone(), self.terms.age);
        let runner = self.runners.get_mut(language).filter(|runner| runner.candidate.key == snapshot.key);
        // The image may have been replaced meanwhile.
        let leaving = if runner.is_some() { None } else { Some(Some(now)) };
        self.kept.insert(volume.clone(), KeptSnapshot { leaving, ..KeptSnapshot::new(snapshot, true) });
        let Some(runner) = runner else { return };
        (runner.due, runner.is_retry) = (Some(now + age), false);
        let earlier = runner.current.replace(volume.clone()).filter(|earlier| *earlier != volume);
        actions.push(Self::used(language, &runner.candidate, Some(volume)));
        if let Some(earlier) = earlier.and_then(|earlier| self.kept.get_mut(&earlier)) {
            earlier.leaving = Some(Some(now));
        }
    }

    fn not_restored(
        &mut self,
        volume: &VolumeName,
        (container, failure, why): (String, RestoreFailure, String),
        now: Instant,
        actions: &mut Vec<SnapshotAction>,
    ) {
        let hit = self.runners.iter_mut().find(|(_, runner)| runner.current.as_ref() == Some(volume));
        let (Some((language, runner)), Some(kept)) = (hit, self.kept.get_mut(volume)) else { return };
        runner.due = match failure {
            RestoreFailure::Died => {
                kept.doubts.retain(|_, last| now.saturating_duration_since(*last) < DOUBTED_WITHIN);
                kept.doubts.insert(container, now);
                if kept.doubts.len() < DOUBTS {
                    return;
                }
                Some(runner.failed(now))
            }
            RestoreFailure::Said => Some(runner.failed(now)),
            RestoreFailure::Unsupported => {
                self.unsupported.insert(language.clone(), runner.unsupported(why));
                None
            }
        };
        runner.current = None;
        kept.leaving = Some(Some(now));
        actions.push(Self::used(language, &runner.candidate, None));
    }

    fn used(language: &str, candidate: &Candidate, volume: Option<VolumeName>) -> SnapshotAction {
        SnapshotAction::Use { language: language.to_owned(), image: candidate.image.clone(), volume }
    }

    fn remove_what_is_due(&mut self, now: Instant, actions: &mut Vec<SnapshotAction>) {
        for (volume, kept) in &mut self.kept {
            if let Some(next) = &mut kept.leaving
                && next.is_some_and(|next| next <= now)
            {
                *next = None;
                actions.push(SnapshotAction::Remove(volume.clone()));
            }
        }
    }

    fn take_what_is_due(&mut self, now: Instant, actions: &mut Vec<SnapshotAction>) {
        if self.taking.is_some() || self.is_checking() {
            return;
        }
        let due = self.runners.iter_mut().filter(|(_, runner)| runner.due.is_some_and(|due| due <= now));
        let Some((language, runner)) = due.min_by_key(|(_, runner)| runner.due) else { return };
        if runner.current.is_some() && !runner.is_retry {
            runner.failures = 0; // the last one has served for its whole time
        }
        self.taking = Some(language.clone());
        actions
            .push(SnapshotAction::Take { language: language.clone(), candidate: runner.candidate.clone() });
    }
}

impl KeptSnapshot {
    fn new(snapshot: Snapshot, is_whole: bool) -> Self {
        Self { snapshot, is_whole, doubts: BTreeMap::new(), leaving: None }
    }

    /// Whether this runner can have it.
    fn fits(&self, language: &str, candidate: &Candidate) -> bool {
        let snapshot = &self.snapshot;
        self.leaving.is_none() && snapshot.language == language && snapshot.key == candidate.key
    }
}

impl RunnerEntry {
    fn unsupported(&self, why: String) -> Unsupported {
        let Candidate { image, key } = self.candidate.clone();
        Unsupported { image, key, why }
    }

    /// A snapshot of it failed: when the next one is due.
    fn failed(&mut self, now: Instant) -> Instant {
        self.is_retry = true;
        self.failures = self.failures.saturating_add(1);
        now + BACKOFF.pause_after(self.failures)
    }
}

#[cfg(test)]
#[path = "core_tests.rs"]
mod tests;
