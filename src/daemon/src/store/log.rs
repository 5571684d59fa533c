//! Whole outputs of runs, beside a session's files.
//!
//! They count for the store's bound and stop growing there; the oldest goes when there are many. It must never write
//! for a session that is gone.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::recording;
use super::usage::{Amount, Claim};
use super::{Space, StoreError, make_dir};

/// Whole outputs that are kept for a session; the oldest goes when there are more.
const MAX_LOGS: usize = 32;

impl Space {
    /// A file for a whole output, named after its run.
    ///
    /// # Errors
    /// [`StoreError::Gone`], and what the file system says.
    pub fn log(self: &Arc<Self>, run_id: &str) -> Result<LogFile, StoreError> {
        let mut logs = self.logs();
        if self.is_gone() {
            return Err(StoreError::Gone);
        }
        self.make()?;
        let dir = self.dir.join("logs");
        let what = || format!("cannot keep the output of {run_id} in {}", dir.display());
        make_dir(&dir).map_err(StoreError::io(what()))?;
        let mut old: Vec<PathBuf> = fs::read_dir(&dir)
            .map_err(StoreError::io(what()))?
            .filter_map(|entry| Some(entry.ok()?.path()))
            .collect();
        old.sort(); // run ids begin with their time
        for gone in old.iter().take((old.len() + 1).saturating_sub(MAX_LOGS)) {
            let bytes = fs::metadata(gone).map_or(0, |metadata| metadata.len());
            if fs::remove_file(gone).is_ok() {
                self.shared.usage.changed(Amount::bytes(bytes), Amount::default());
                *logs = logs.saturating_sub(bytes);
            }
        }
        let path = dir.join(format!("{run_id}.log"));
        // A run that is heard again after a restart goes on in the log that it has.
        let file = OpenOptions::new().append(true).create(true).mode(0o600).open(&path);
        Ok(LogFile::of(file.map_err(StoreError::io(what()))?, self.clone()))
    }
}

/// The whole output of one run, while it grows.
pub struct LogFile {
    file: File,
    space: Arc<Space>,
}

impl LogFile {
    /// One that is open for appending, in a session's folder.
    pub(super) fn of(file: File, space: Arc<Space>) -> Self {
        Self { file, space }
    }

    /// Bytes that are in it.
    ///
    /// # Errors
    /// What the file system says.
    pub fn size(&self) -> Result<u64, StoreError> {
        self.file.metadata().map(|metadata| metadata.len()).map_err(StoreError::io("cannot look at a log"))
    }

    /// Takes back what is beyond `bytes`.
    ///
    /// # Errors
    /// What the file system says.
    pub fn truncate(&mut self, bytes: u64) -> Result<(), StoreError> {
        let mut logs = self.space.logs();
        let had = self.size()?;
        if had > bytes {
            self.file.set_len(bytes).map_err(StoreError::io("cannot cut a log"))?;
            self.space.shared.usage.changed(Amount::bytes(had - bytes), Amount::default());
            *logs = logs.saturating_sub(had - bytes);
        }
        Ok(())
    }

    /// Appends.
    ///
    /// # Errors
    /// [`StoreError::Quota`] at the store's bound, [`StoreError::Gone`], and what the file system says. Nothing of
    /// these bytes counts then.
    pub fn append(&mut self, bytes: &[u8]) -> Result<(), StoreError> {
        self.write(bytes, false)
    }

    /// Appends the few bytes that end it, also where the store's bound is reached.
    ///
    /// # Errors
    /// As [`LogFile::append`].
    pub fn append_last(&mut self, bytes: &[u8]) -> Result<(), StoreError> {
        self.write(bytes, true)
    }

    fn write(&mut self, bytes: &[u8], last: bool) -> Result<(), StoreError> {
        let mut logs = self.space.logs();
        if self.space.is_gone() {
            return Err(StoreError::Gone);
        }
        let more = bytes.len() as u64;
        let usage = &self.space.shared.usage;
        let mut claim = Claim::new(usage.clone());
        if !last {
            claim.grow(Amount::bytes(more))?;
        }
        let before = self.size()?;
        if let Err(error) = self.file.write_all(bytes) {
            let _ = self.file.set_len(before); // a part of it can be there
            return Err(StoreError::io("cannot write a log")(error));
        }
        usage.changed(Amount::default(), Amount::bytes(more));
        *logs += more;
        Ok(())
    }
}

/// Bytes of all logs of the session at `dir`, and of its recordings.
pub(super) fn size_of_logs(dir: &Path) -> u64 {
    let folders =
        ["logs", recording::FOLDER].into_iter().filter_map(|name| fs::read_dir(dir.join(name)).ok());
    let counted = folders.flatten().flatten().filter(|log| !recording::is_note(&log.path()));
    counted.filter_map(|log| Some(log.metadata().ok()?.len())).sum()
}
