//! Whose a container is, on disk: for the daemon that comes after this one, if this one is killed.
//!
//! ```text
//!  leases/<name of the container>   one line of JSON: owner, session, language, the run in flight
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

use crate::store::StoreError;

const WHAT: &str = "cannot note whose a container is";

/// What is known of a container that a session has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Note {
    pub(super) owner: String,
    pub(super) session: String,
    pub(super) language: String,
    /// From before its code is sent until its files are saved.
    pub(super) run: Option<Flight>,
}

/// A run in flight.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Flight {
    pub(super) id: String,
    /// Its wall time.
    pub(super) timeout: Duration,
}

/// All records of a store.
pub(super) struct Journal(PathBuf);

/// One container's record. Dropping it removes it.
pub(super) struct Record {
    path: PathBuf,
    file: File,
    note: Note,
}

impl Journal {
    /// In this directory, which exists.
    pub(super) fn new(dir: PathBuf) -> Self {
        Self(dir)
    }

    /// What an earlier daemon wrote, by container; the records are gone then. One that cannot be read is none.
    pub(super) fn take(&self) -> Vec<(String, Note)> {
        let entries = fs::read_dir(&self.0).into_iter().flatten().flatten();
        let read = |entry: fs::DirEntry| {
            let text = fs::read_to_string(entry.path());
            let _ = fs::remove_file(entry.path());
            // What was there before may be longer: one line counts.
            let note = serde_json::from_str(text.ok()?.lines().next()?).ok()?;
            Some((entry.file_name().into_string().ok()?, note))
        };
        entries.filter_map(read).collect()
    }

    /// Notes whose a container is.
    pub(super) fn write(&self, container: &str, note: Note) -> Result<Record, StoreError> {
        let path = self.0.join(container);
        let open = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&path);
        let file = open.map_err(StoreError::io(WHAT))?;
        let record = Record { path, file, note };
        record.save()?;
        Ok(record)
    }
}

impl Record {
    /// A run is about to begin.
    pub(super) fn begin(&mut self, id: &str, timeout: Duration) -> Result<(), StoreError> {
        self.note.run = Some(Flight { id: id.to_owned(), timeout });
        self.save()
    }

    /// Its files are saved, or it is known that they cannot be.
    pub(super) fn end(&mut self) {
        self.note.run = None;
        if let Err(error) = self.save() {
            tracing::warn!(%error, "a record of a lease could not be written");
        }
    }

    /// In one write: a process that is killed has made it or has not.
    fn save(&self) -> Result<(), StoreError> {
        let line = serde_json::to_string(&self.note).map_err(io::Error::from);
        let saved = line.and_then(|line| self.file.write_all_at(format!("{line}\n").as_bytes(), 0));
        saved.map_err(StoreError::io(WHAT))
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
        Note { owner: "default".into(), session: session.into(), language: "python".into(), run: None }
    }

    #[test]
    fn a_record_says_what_is_in_flight_and_goes_with_its_lease() {
        let dir = tempfile::tempdir().unwrap();
        let journal = Journal::new(dir.path().to_owned());
        let mut kept = journal.write("paddock-a", note("line\nbreak")).unwrap();
        drop(journal.write("paddock-b", note("s")).unwrap());
        kept.begin("run_1", Duration::from_secs(30)).unwrap();
        std::mem::forget(kept); // as kill -9 does
        let flight = Flight { id: "run_1".into(), timeout: Duration::from_secs(30) };
        let told = Note { run: Some(flight), ..note("line\nbreak") };
        assert_eq!(journal.take(), [("paddock-a".to_owned(), told)]);
        assert_eq!(journal.take(), []);
    }

    #[test]
    fn a_shorter_line_over_a_longer_one_is_read_and_half_a_line_is_none() {
        let dir = tempfile::tempdir().unwrap();
        let journal = Journal::new(dir.path().to_owned());
        let mut kept = journal.write("a", note("s")).unwrap();
        kept.begin("a-long-name-of-a-run", Duration::from_secs(30)).unwrap();
        kept.end();
        std::mem::forget(kept);
        fs::write(dir.path().join("torn"), "{\"owner\":\"def").unwrap();
        assert_eq!(journal.take(), [("a".to_owned(), note("s"))]);
    }
}
