//! Decides which snapshots are taken, used, taken again and removed. Pure: no clock, no I/O.
//!
//! ```text
//!  Found ─► due ─► Take ─► Taken ─► Use ──── age over ───► Take again (the old one is used meanwhile)
//!            ▲        └─ failed ──► pause     NotRestored ─► Use none, pause, Take again
//!            └────────────────────────┘       image gone, superseded ─► Remove, until nothing mounts it
//! ```
//!
//! One is taken at a time. It must never have a snapshot used whose key is not that of its runner now, nor
//! one that did not come as proved; nor remove one that is in use.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::record::Snapshot;
use crate::config::Backoff;
use crate::engine::VolumeName;

/// The pause between two attempts to remove a volume that containers still mount.
const REMOVE_AGAIN: Duration = Duration::from_secs(30);
/// The pause before the next attempt if there was no container to take a snapshot in.
const BUSY: Duration = Duration::from_secs(30);
/// The pauses after snapshots that could not be taken, or that could not be restored: an image whose snapshot
/// never works costs its processor less and less often.
const BACKOFF: Backoff = Backoff { first: Duration::from_secs(60), max: Duration::from_secs(24 * 60 * 60) };

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
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TakeFailure {
    /// There was no container for it.
    Busy,
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
    NotRestored(VolumeName),
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
    /// When its next snapshot is due.
    due: Instant,
    /// Failures since a snapshot was last used for all of its time.
    failures: u32,
    /// The next one is due since the last attempt failed, and not since a snapshot has served its time.
    is_retry: bool,
}

#[derive(Debug)]
struct KeptSnapshot {
    snapshot: Snapshot,
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
}

impl SnapshotCore {
    /// With the snapshots that an earlier daemon left and that were found whole.
    pub(super) fn new(terms: SnapshotTerms, found: Vec<Snapshot>) -> Self {
        let kept = found.into_iter().map(|snapshot| (snapshot.volume.clone(), snapshot));
        let kept =
            kept.map(|(volume, snapshot)| (volume, KeptSnapshot { snapshot, leaving: None })).collect();
        Self { terms, runners: BTreeMap::new(), kept, taking: None }
    }

    /// Takes in one event and answers what to do, in this order.
    pub(super) fn on(&mut self, event: SnapshotEvent, now: Instant) -> Vec<SnapshotAction> {
        let mut actions = Vec::new();
        match event {
            SnapshotEvent::Found(found) => self.found(&found, now, &mut actions),
            SnapshotEvent::Taken { language, result } => self.taken(&language, result, now, &mut actions),
            SnapshotEvent::NotRestored(volume) => self.not_restored(&volume, now, &mut actions),
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
        let takes = self.runners.values().map(|runner| runner.due).filter(|_| self.taking.is_none());
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

    fn found(
        &mut self,
        found: &BTreeMap<String, Candidate>,
        now: Instant,
        actions: &mut Vec<SnapshotAction>,
    ) {
        self.runners.retain(|language, runner| found.get(language) == Some(&runner.candidate));
        for (language, candidate) in found {
            if self.runners.contains_key(language) {
                continue;
            }
            let fits = |kept: &&KeptSnapshot| {
                let snapshot = &kept.snapshot;
                kept.leaving.is_none() && snapshot.language == *language && snapshot.key == candidate.key
            };
            let newest = self.kept.values().filter(fits).max_by_key(|kept| kept.snapshot.taken);
            let due = match newest {
                Some(kept) => {
                    now + self.terms.age.saturating_sub(kept.snapshot.age()).max(self.terms.settled)
                }
                None => now + self.terms.settled,
            };
            let current = newest.map(|kept| kept.snapshot.volume.clone());
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
            if !used.contains(&volume) && kept.leaving.is_none() {
                kept.leaving = Some(Some(now));
            }
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
                        TakeFailure::Busy => now + BUSY,
                        TakeFailure::Failed => runner.failed(now),
                    };
                }
                return;
            }
        };
        let (volume, age) = (snapshot.volume.clone(), self.terms.age);
        let runner = self.runners.get_mut(language).filter(|runner| runner.candidate.key == snapshot.key);
        // The image may have been replaced meanwhile.
        let leaving = if runner.is_some() { None } else { Some(Some(now)) };
        self.kept.insert(volume.clone(), KeptSnapshot { snapshot, leaving });
        let Some(runner) = runner else { return };
        (runner.due, runner.is_retry) = (now + age, false);
        let earlier = runner.current.replace(volume.clone()).filter(|earlier| *earlier != volume);
        actions.push(Self::used(language, &runner.candidate, Some(volume)));
        if let Some(earlier) = earlier.and_then(|earlier| self.kept.get_mut(&earlier)) {
            earlier.leaving = Some(Some(now));
        }
    }

    fn not_restored(&mut self, volume: &VolumeName, now: Instant, actions: &mut Vec<SnapshotAction>) {
        let hit = self.runners.iter_mut().find(|(_, runner)| runner.current.as_ref() == Some(volume));
        let Some((language, runner)) = hit else { return };
        runner.current = None;
        runner.due = runner.failed(now);
        actions.push(Self::used(language, &runner.candidate, None));
        if let Some(kept) = self.kept.get_mut(volume) {
            kept.leaving = Some(Some(now));
        }
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
        if self.taking.is_some() {
            return;
        }
        let due = self.runners.iter_mut().filter(|(_, runner)| runner.due <= now);
        let Some((language, runner)) = due.min_by_key(|(_, runner)| runner.due) else { return };
        if runner.current.is_some() && !runner.is_retry {
            runner.failures = 0; // the last one has served for its whole time
        }
        self.taking = Some(language.clone());
        actions
            .push(SnapshotAction::Take { language: language.clone(), candidate: runner.candidate.clone() });
    }
}

impl RunnerEntry {
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
