//! Notes on disk of what runs have used of their networks: for the next daemon, if this one is killed while
//! they go on.
//!
//! ```text
//!  networks/<id of the run>   JSON; written beside and renamed, so never there in part
//! ```
//!
//! A note is written when something has changed, at most once a second, and at the end of the run; it is
//! removed when the run is settled. It is not synced: a machine that goes down takes its containers along.
//! So the next daemon can lack the last second. A run that reaches nothing must never cost a write.

use std::fs;
use std::io;
use std::ops::Deref;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use tracing::warn;

use crate::egress::{NetworkUsage, RunNetwork};

/// The least time between two notes of one run.
const PACE: Duration = Duration::from_secs(1);

/// The folder of all notes.
pub(in crate::session) struct UsageNotes(PathBuf);

impl UsageNotes {
    /// In this directory, which exists.
    pub(in crate::session) fn new(dir: PathBuf) -> Self {
        Self(dir)
    }

    /// What an earlier daemon noted of a run; nothing, if it noted nothing.
    pub(super) fn read(&self, run_id: &str) -> NetworkUsage {
        let text = fs::read(self.0.join(run_id)).unwrap_or_default();
        serde_json::from_slice(&text).unwrap_or_default()
    }

    /// Has the use of this network noted from now on.
    pub(in crate::session) fn of(&self, run_id: &str, network: RunNetwork) -> NotedNetwork {
        let pace = NotePace { noted: network.usage(), due: Instant::now() };
        NotedNetwork { network, path: self.0.join(run_id), pace: Mutex::new(pace) }
    }

    /// Removes the notes of all runs but these.
    pub(super) fn keep_only(&self, is_kept: impl Fn(&str) -> bool) {
        for entry in fs::read_dir(&self.0).into_iter().flatten().flatten() {
            if !entry.file_name().to_str().is_some_and(&is_kept) {
                let _ = fs::remove_file(entry.path());
            }
        }
    }
}

/// The network of a run, whose use is noted. Dropping it removes the note.
pub(in crate::session) struct NotedNetwork {
    network: RunNetwork,
    path: PathBuf,
    pace: Mutex<NotePace>,
}

impl Deref for NotedNetwork {
    type Target = RunNetwork;

    fn deref(&self) -> &RunNetwork {
        &self.network
    }
}

impl NotedNetwork {
    fn pace(&self) -> MutexGuard<'_, NotePace> {
        // No code that can panic runs under this lock, so even a poisoned one holds valid data.
        self.pace.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// When [`NotedNetwork::note`] can have something to do.
    pub(in crate::session) fn due(&self) -> Instant {
        self.pace().due
    }

    /// Notes what has changed, if the last note is old enough.
    pub(in crate::session) fn note(&self) {
        let now = Instant::now();
        if now >= self.due() {
            self.note_at(now);
        }
    }

    /// Notes what has changed last: the run is over.
    pub(in crate::session) fn note_last(&self) {
        self.note_at(Instant::now());
    }

    fn note_at(&self, now: Instant) {
        let usage = self.network.usage();
        if self.pace().is_news(&usage, now)
            && let Err(error) = self.write(&usage)
        {
            warn!(%error, path = %self.path.display(), "it could not be noted what a run reached");
        }
    }

    fn write(&self, usage: &NetworkUsage) -> io::Result<()> {
        let staged = self.path.with_extension("new");
        fs::write(&staged, serde_json::to_vec(usage)?)?;
        fs::rename(staged, &self.path)
    }
}

impl Drop for NotedNetwork {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// Decides when a note is written.
struct NotePace {
    /// What the last note says; there is none as long as that is nothing.
    noted: NetworkUsage,
    /// No note is due before.
    due: Instant,
}

impl NotePace {
    /// Whether this is to be noted now, by somebody who asks when it is due, or at the end.
    fn is_news(&mut self, usage: &NetworkUsage, now: Instant) -> bool {
        self.due = now + PACE;
        if self.noted == *usage {
            return false;
        }
        self.noted = usage.clone();
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_news_is_noted_and_the_next_look_is_a_second_later() {
        let now = Instant::now();
        let mut pace = NotePace { noted: NetworkUsage::default(), due: now };
        assert!(!pace.is_news(&NetworkUsage::default(), now), "it has reached nothing");
        assert_eq!(pace.due, now + PACE);
        let some = NetworkUsage { bytes_in: 1, ..NetworkUsage::default() };
        let later = now + PACE * 3;
        assert!(pace.is_news(&some, later));
        assert_eq!(pace.due, later + PACE);
        assert!(!pace.is_news(&some, later + PACE));
    }

    #[test]
    fn notes_of_runs_that_are_gone_are_removed_and_half_a_note_is_none() {
        let dir = tempfile::tempdir().unwrap();
        let notes = UsageNotes::new(dir.path().to_owned());
        let usage = NetworkUsage { charged: 7, ..NetworkUsage::default() };
        let text = serde_json::to_string(&usage).unwrap();
        for (name, text) in [("kept", text.as_str()), ("gone", text.as_str()), ("kept.new", "{\"dest")] {
            fs::write(dir.path().join(name), text).unwrap();
        }
        assert_eq!(notes.read("kept"), usage);
        assert_eq!(notes.read("kept.new"), NetworkUsage::default());
        assert_eq!(notes.read("none"), NetworkUsage::default());
        notes.keep_only(|id| id == "kept");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
        assert_eq!(notes.read("kept"), usage);
    }
}
