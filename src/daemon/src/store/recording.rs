//! What is kept of executions, beside a session's files: a recording each, and a note of what it is of.
//!
//! ```text
//!  <hash>/executions/<id>        as it grows
//!  <hash>/executions/<id>.json   what it is of; beside and renamed, never half
//! ```
//!
//! They count for the store's bound, go when whoever keeps them says so, and go with their session. It must never write
//! for a session that is gone, nor use a name that is not an id.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::log::LogFile;
use super::usage::Amount;
use super::{Space, StoreError, make_dir};

/// Where they are.
pub(super) const FOLDER: &str = "executions";
const NOTE: &str = ".json";

/// Whether a text can name one: hex digits and `-`.
fn is_id(id: &str) -> bool {
    !id.is_empty() && id.len() <= 64 && id.bytes().all(|b| b.is_ascii_hexdigit() || b == b'-')
}

/// Whether this says what a recording is of. Those do not count: there is a small one for each.
pub(super) fn is_note(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == &NOTE[1..])
}

impl Space {
    fn recordings_dir(&self) -> PathBuf {
        self.dir.join(FOLDER)
    }

    fn recording_path(&self, id: &str) -> io::Result<PathBuf> {
        if is_id(id) { Ok(self.recordings_dir().join(id)) } else { Err(io::ErrorKind::InvalidInput.into()) }
    }

    /// A recording, new or to be gone on with.
    ///
    /// # Errors
    /// [`StoreError::Gone`], and what the file system says.
    pub fn recording(self: &Arc<Self>, id: &str) -> Result<LogFile, StoreError> {
        self.begin_recording(id).map_err(|error| self.shared.not_saved(error))
    }

    fn begin_recording(self: &Arc<Self>, id: &str) -> Result<LogFile, StoreError> {
        let _counted = self.logs();
        if self.is_gone() {
            return Err(StoreError::Gone);
        }
        self.make()?;
        let what = || format!("cannot keep the output of {id} in {}", self.dir.display());
        make_dir(&self.recordings_dir()).map_err(StoreError::io(what()))?;
        let path = self.recording_path(id).map_err(StoreError::io(what()))?;
        let file = OpenOptions::new().append(true).read(true).create(true).mode(0o600).open(path);
        Ok(LogFile::of(file.map_err(StoreError::io(what()))?, self.clone()))
    }

    /// For reading what is recorded; it may still grow.
    ///
    /// # Errors
    /// What the file system says.
    pub fn read_recording(&self, id: &str) -> io::Result<File> {
        File::open(self.recording_path(id)?)
    }

    /// Says what a recording is of.
    ///
    /// # Errors
    /// As [`Space::recording`].
    pub fn note_recording(self: &Arc<Self>, id: &str, note: &[u8]) -> Result<(), StoreError> {
        let _counted = self.logs();
        if self.is_gone() {
            return Err(StoreError::Gone);
        }
        let write = || {
            let path = self.recording_path(id)?.with_extension(&NOTE[1..]);
            let staged = self.shared.tmp.join(crate::id::random_hex::<12>());
            let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&staged);
            let written = file.and_then(|mut file| io::Write::write_all(&mut file, note));
            let written = written.and_then(|()| fs::rename(&staged, path));
            written.inspect_err(|_| drop(fs::remove_file(&staged)))
        };
        let failed = StoreError::io(format!("cannot note what {id} is"));
        write().map_err(|error| self.shared.not_saved(failed(error)))
    }

    /// What every recording of the session is of, in no order.
    pub fn recordings(&self) -> Vec<(String, Vec<u8>)> {
        let entries = fs::read_dir(self.recordings_dir()).into_iter().flatten().flatten();
        let read = |entry: fs::DirEntry| {
            let name = entry.file_name().into_string().ok()?;
            let id = name.strip_suffix(NOTE).filter(|id| is_id(id))?;
            Some((id.to_owned(), fs::read(entry.path()).ok()?))
        };
        entries.filter_map(read).collect()
    }

    /// A recording is not wanted any more.
    pub fn drop_recording(&self, id: &str) {
        let Ok(path) = self.recording_path(id) else { return };
        let mut counted = self.logs();
        let bytes = fs::metadata(&path).map_or(0, |metadata| metadata.len());
        // The note last: what has none is found by nobody.
        if !self.is_gone() && fs::remove_file(&path).is_ok() {
            self.shared.usage.changed(Amount::bytes(bytes), Amount::default());
            *counted = counted.saturating_sub(bytes);
        }
        let _ = fs::remove_file(path.with_extension(&NOTE[1..]));
        let _ = fs::remove_dir(self.recordings_dir()); // not while it holds another
    }
}
