//! Notes on disk that say which session owns a container: for the next daemon, if this one is killed.
//!
//! ```text
//!  leases/<name of the container>   one line of JSON: owner, session, language, the runs in flight,
//!                                   whether the container has files that are not saved, and since when
//!                                   only its workspace is kept
//! ```
//!
//! A note is written before its container gets anything of the session, and removed with the lease, or with
//! the workspace if that is kept. It is not synced: a machine that goes down takes its containers along. The
//! next daemon compares it with what the agent was told. It must never hold code, output, or a secret.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tracing::warn;

use crate::egress::NetworkRequest;

const WHAT: &str = "it could not be noted which session owns a container";

/// What is noted of a leased container.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::session) struct LeaseNote {
    pub(in crate::session) owner: String,
    pub(in crate::session) session: String,
    pub(in crate::session) language: String,
    /// From before a program is sent until its files are saved.
    pub(in crate::session) runs: Vec<RunNote>,
    /// Whether the container has files that the store could not take.
    #[serde(default)]
    pub(in crate::session) unsaved: bool,
    /// When its container was given up and its workspace kept, in milliseconds since the epoch. `None`: the
    /// session has the container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::session) kept_since_ms: Option<u64>,
}

/// A run whose end is not settled.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::session) struct RunNote {
    pub(in crate::session) id: String,
    /// Its wall time limit.
    pub(in crate::session) timeout: Duration,
    /// Whether it is a command that outlives its call, which `execution` follows, and not code.
    pub(in crate::session) is_command: bool,
    /// What it asked to reach outside: the next daemon allows what its own configuration allows of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::session) network: Option<NetworkRequest>,
}

/// The folder of all notes.
#[derive(Clone)]
pub(in crate::session) struct LeaseNotes(PathBuf);

/// One container's note. Dropping it removes the file, unless the workspace is kept.
pub(in crate::session) struct NoteFile {
    path: PathBuf,
    /// `None` if it could not be made: the next daemon then removes the container.
    file: Option<File>,
    note: LeaseNote,
}

impl LeaseNotes {
    /// In this directory, which exists.
    pub(in crate::session) fn new(dir: PathBuf) -> Self {
        Self(dir)
    }

    /// What an earlier daemon wrote, by container. A file that cannot be read is removed.
    pub(in crate::session) fn read(&self) -> Vec<(String, LeaseNote)> {
        let entries = fs::read_dir(&self.0).into_iter().flatten().flatten();
        let read = |entry: fs::DirEntry| {
            let text = fs::read_to_string(entry.path()).ok();
            // A longer line may have stood there before: only the first one counts.
            let note = text.and_then(|text| serde_json::from_str(text.lines().next()?).ok());
            if note.is_none() {
                let _ = fs::remove_file(entry.path());
            }
            Some((entry.file_name().into_string().ok()?, note?))
        };
        entries.filter_map(read).collect()
    }

    /// The container is gone.
    pub(in crate::session) fn forget(&self, container: &str) {
        let _ = fs::remove_file(self.0.join(container));
    }

    /// Notes which session owns a container. On a full disk there is no note, and the session works all the
    /// same.
    pub(in crate::session) fn write(&self, container: &str, note: LeaseNote) -> NoteFile {
        let path = self.0.join(container);
        // Not truncated: a daemon that is killed between two calls leaves the old line or the new one.
        let file = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&path);
        let file = file.inspect_err(|error| warn!(%error, container, "{WHAT}")).ok();
        let note = NoteFile { path, file, note };
        note.save();
        note
    }
}

impl NoteFile {
    /// A run is about to begin.
    pub(in crate::session) fn begin(&mut self, run: RunNote) {
        self.note.runs.push(run);
        self.save();
    }

    /// A run's files are saved, or it is known that they cannot be.
    pub(in crate::session) fn end(&mut self, id: &str) {
        let before = self.note.runs.len();
        self.note.runs.retain(|run| run.id != id);
        if self.note.runs.len() < before {
            self.save();
        }
    }

    /// The container has files that the store could not take, or has none any more.
    pub(in crate::session) fn set_unsaved(&mut self, unsaved: bool) {
        if std::mem::replace(&mut self.note.unsaved, unsaved) != unsaved {
            self.save();
        }
    }

    /// Whether the container has files that the store could not take.
    pub(in crate::session) fn has_unsaved(&self) -> bool {
        self.note.unsaved
    }

    /// Whether a run is in flight.
    pub(in crate::session) fn has_runs(&self) -> bool {
        !self.note.runs.is_empty()
    }

    /// From now on only the workspace is kept, and the file stays. False if that could not be noted.
    pub(in crate::session) fn keep(&mut self, since_ms: u64) -> bool {
        self.note.runs.clear();
        self.note.kept_since_ms = Some(since_ms);
        if !self.save() {
            self.note.kept_since_ms = None;
        }
        self.note.kept_since_ms.is_some()
    }

    /// In one write, so that a process that is killed has written all of it or nothing. Whether it could.
    fn save(&self) -> bool {
        let Some(file) = &self.file else { return false };
        let line = serde_json::to_string(&self.note).map_err(io::Error::from);
        let saved = line.and_then(|line| file.write_all_at(format!("{line}\n").as_bytes(), 0));
        saved.inspect_err(|error| warn!(%error, path = %self.path.display(), "{WHAT}")).is_ok()
    }
}

impl Drop for NoteFile {
    fn drop(&mut self) {
        if self.note.kept_since_ms.is_none() {
            let _ = fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(session: &str) -> LeaseNote {
        LeaseNote {
            owner: "default".into(),
            session: session.into(),
            language: "python".into(),
            runs: Vec::new(),
            unsaved: false,
            kept_since_ms: None,
        }
    }

    #[test]
    fn a_note_says_what_is_in_flight_and_goes_with_its_lease() {
        let dir = tempfile::tempdir().unwrap();
        let notes = LeaseNotes::new(dir.path().to_owned());
        let mut kept = notes.write("paddock-a", note("line\nbreak"));
        drop(notes.write("paddock-b", note("s")));
        let flight = RunNote {
            id: "run_1".into(),
            timeout: Duration::from_secs(30),
            is_command: true,
            network: Some(NetworkRequest::open()),
        };
        kept.begin(flight.clone());
        kept.set_unsaved(true);
        std::mem::forget(kept); // as kill -9 does
        let told = LeaseNote { runs: vec![flight], unsaved: true, ..note("line\nbreak") };
        assert_eq!(notes.read(), [("paddock-a".to_owned(), told)]);
        notes.forget("paddock-a");
        assert_eq!(notes.read(), []);
    }

    #[test]
    fn the_note_of_a_kept_workspace_outlives_its_lease() {
        let dir = tempfile::tempdir().unwrap();
        let notes = LeaseNotes::new(dir.path().to_owned());
        let mut kept = notes.write("a", note("s"));
        assert!(kept.keep(5));
        drop(kept);
        let told = LeaseNote { kept_since_ms: Some(5), ..note("s") };
        assert_eq!(notes.read(), [("a".to_owned(), told)]);
        // The session has a container over it, and gives that up for good.
        drop(notes.write("a", note("s")));
        assert_eq!(notes.read(), []);
    }

    #[test]
    fn a_shorter_line_over_a_longer_one_is_read_and_half_a_line_is_none() {
        let dir = tempfile::tempdir().unwrap();
        let notes = LeaseNotes::new(dir.path().to_owned());
        let mut kept = notes.write("a", note("s"));
        let id = "a-long-name-of-a-run";
        kept.begin(RunNote {
            id: id.into(),
            timeout: Duration::from_secs(30),
            is_command: false,
            network: None,
        });
        kept.end(id);
        std::mem::forget(kept);
        fs::write(dir.path().join("torn"), "{\"owner\":\"def").unwrap();
        // A session that takes the container over writes a shorter line over the note.
        std::mem::forget(notes.write("a", note("t")));
        assert_eq!(notes.read(), [("a".to_owned(), note("t"))]);
        assert!(!dir.path().join("torn").exists());
    }
}
