//! Whose a container is, on disk: for the daemon that comes after this one, if this one is killed.
//!
//! ```text
//!  leases/<name of the container>   one line of JSON: owner, session, language, the runs in flight
//! ```
//!
//! A record is written before the container gets anything of its session, and goes with the lease. It is not synced:
//! a machine that goes down takes its containers along. What it says is checked against what PID 1 was told. It must
//! never hold code, output, or a secret.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tracing::warn;

const WHAT: &str = "it could not be noted whose a container is";

/// What is known of a container that a session has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Note {
    pub(super) owner: String,
    pub(super) session: String,
    pub(super) language: String,
    /// From before a program is sent until its files are saved.
    pub(super) runs: Vec<Flight>,
}

/// A run in flight.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Flight {
    pub(super) id: String,
    /// Its wall time.
    pub(super) timeout: Duration,
    /// Whether it is one of `execution`.
    pub(super) is_command: bool,
}

/// All records of a store.
pub(super) struct Journal(PathBuf);

/// One container's record. Dropping it removes it.
pub(super) struct Record {
    path: PathBuf,
    /// `None` if it could not be made: a daemon that comes after this one then removes the container.
    file: Option<File>,
    note: Note,
}

impl Journal {
    /// In this directory, which exists.
    pub(super) fn new(dir: PathBuf) -> Self {
        Self(dir)
    }

    /// What an earlier daemon wrote, by container. What cannot be read is removed.
    pub(super) fn read(&self) -> Vec<(String, Note)> {
        let entries = fs::read_dir(&self.0).into_iter().flatten().flatten();
        let read = |entry: fs::DirEntry| {
            let text = fs::read_to_string(entry.path()).ok();
            // What was there before may be longer: one line counts.
            let note = text.and_then(|text| serde_json::from_str(text.lines().next()?).ok());
            if note.is_none() {
                let _ = fs::remove_file(entry.path());
            }
            Some((entry.file_name().into_string().ok()?, note?))
        };
        entries.filter_map(read).collect()
    }

    /// The container is gone.
    pub(super) fn forget(&self, container: &str) {
        let _ = fs::remove_file(self.0.join(container));
    }

    /// Notes whose a container is. On a disk that is full there is none, and the session works all the same.
    pub(super) fn write(&self, container: &str, note: Note) -> Record {
        let path = self.0.join(container);
        // Not truncated: whoever is killed between two calls leaves the old line or the new.
        let file = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&path);
        let file = file.inspect_err(|error| warn!(%error, container, "{WHAT}")).ok();
        let record = Record { path, file, note };
        record.save();
        record
    }
}

impl Record {
    /// A run is about to begin.
    pub(super) fn begin(&mut self, run: Flight) {
        self.note.runs.push(run);
        self.save();
    }

    /// Its files are saved, or it is known that they cannot be.
    pub(super) fn end(&mut self, id: &str) {
        let before = self.note.runs.len();
        self.note.runs.retain(|run| run.id != id);
        if self.note.runs.len() < before {
            self.save();
        }
    }

    /// Whether anything is in flight.
    pub(super) fn is_at_work(&self) -> bool {
        !self.note.runs.is_empty()
    }

    /// In one write: a process that is killed has made it or has not.
    fn save(&self) {
        let Some(file) = &self.file else { return };
        let line = serde_json::to_string(&self.note).map_err(io::Error::from);
        if let Err(error) = line.and_then(|line| file.write_all_at(format!("{line}\n").as_bytes(), 0)) {
            warn!(%error, path = %self.path.display(), "{WHAT}");
        }
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(session: &str) -> Note {
        Note { owner: "default".into(), session: session.into(), language: "python".into(), runs: Vec::new() }
    }

    #[test]
    fn a_record_says_what_is_in_flight_and_goes_with_its_lease() {
        let dir = tempfile::tempdir().unwrap();
        let journal = Journal::new(dir.path().to_owned());
        let mut kept = journal.write("paddock-a", note("line\nbreak"));
        drop(journal.write("paddock-b", note("s")));
        let flight = Flight { id: "run_1".into(), timeout: Duration::from_secs(30), is_command: true };
        kept.begin(flight.clone());
        std::mem::forget(kept); // as kill -9 does
        let told = Note { runs: vec![flight], ..note("line\nbreak") };
        assert_eq!(journal.read(), [("paddock-a".to_owned(), told)]);
        journal.forget("paddock-a");
        assert_eq!(journal.read(), []);
    }

    #[test]
    fn a_shorter_line_over_a_longer_one_is_read_and_half_a_line_is_none() {
        let dir = tempfile::tempdir().unwrap();
        let journal = Journal::new(dir.path().to_owned());
        let mut kept = journal.write("a", note("s"));
        let id = "a-long-name-of-a-run";
        kept.begin(Flight { id: id.into(), timeout: Duration::from_secs(30), is_command: false });
        kept.end(id);
        std::mem::forget(kept);
        fs::write(dir.path().join("torn"), "{\"owner\":\"def").unwrap();
        // As one that takes it over does, a shorter one over it.
        std::mem::forget(journal.write("a", note("t")));
        assert_eq!(journal.read(), [("a".to_owned(), note("t"))]);
        assert!(!dir.path().join("torn").exists());
    }
}
