//! The whole output of runs, beside a session's files.
//!
//! Logs count for the store's limit and stop growing there; a new log removes the oldest when there are too
//! many. It must never write for a session that was forgotten.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::behind::WrittenBehind;
use super::execution_files;
use super::usage::{Amount, QuotaClaim};
use super::{Space, StoreError, make_dir};

/// Logs that are kept for a session; a new one removes the oldest.
const MAX_LOGS: usize = 32;

impl Space {
    /// Opens a log for the whole output of a run.
    ///
    /// # Errors
    /// [`StoreError::Gone`], and an error of the file system.
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
        old.sort(); // run ids begin with the time
        for gone in old.iter().take((old.len() + 1).saturating_sub(MAX_LOGS)) {
            let bytes = fs::metadata(gone).map_or(0, |metadata| metadata.len());
            if fs::remove_file(gone).is_ok() {
                self.shared.usage.changed(&self.owner, Amount::bytes(bytes), Amount::default());
                *logs = logs.saturating_sub(bytes);
            }
        }
        let path = dir.join(format!("{run_id}.log"));
        // After a restart the daemon continues the log of a run that is still going.
        let file = OpenOptions::new().append(true).create(true).mode(0o600).open(&path);
        Ok(LogFile::of(file.map_err(StoreError::io(what()))?, self.clone()))
    }
}

/// The whole output of one run, while it grows.
pub struct LogFile {
    file: File,
    behind: WrittenBehind,
    space: Arc<Space>,
}

impl LogFile {
    /// A log in the folder of `space`, whose file is open for appending.
    pub(super) fn of(file: File, space: Arc<Space>) -> Self {
        let size = file.metadata().map_or(0, |metadata| metadata.len());
        Self { file, behind: WrittenBehind::from(size), space }
    }

    /// Its size in bytes.
    ///
    /// # Errors
    /// An error of the file system.
    pub fn size(&self) -> Result<u64, StoreError> {
        self.file.metadata().map(|metadata| metadata.len()).map_err(StoreError::io("cannot look at a log"))
    }

    /// Cuts it to `bytes`; does nothing if it is shorter.
    ///
    /// # Errors
    /// An error of the file system.
    pub fn truncate(&mut self, bytes: u64) -> Result<(), StoreError> {
        let mut logs = self.space.logs();
        let had = self.size()?;
        if had > bytes {
            self.file.set_len(bytes).map_err(StoreError::io("cannot cut a log"))?;
            self.behind.resized(bytes);
            self.space.shared.usage.changed(&self.space.owner, Amount::bytes(had - bytes), Amount::default());
            *logs = logs.saturating_sub(had - bytes);
        }
        Ok(())
    }

    /// Appends.
    ///
    /// # Errors
    /// [`StoreError::Quota`] at the store's limit, [`StoreError::Gone`], and an error of the file system.
    /// None of these bytes counts then.
    pub fn append(&mut self, bytes: &[u8]) -> Result<(), StoreError> {
        self.write(bytes, false)
    }

    /// Appends the last few bytes, even at the store's limit.
    ///
    /// # Errors
    /// Those of [`LogFile::append`] but [`StoreError::Quota`].
    pub fn append_last(&mut self, bytes: &[u8]) -> Result<(), StoreError> {
        self.write(bytes, true)
    }

    /// Has the kernel begin to write what was appended, once that is a piece. To be called when everybody
    /// knows of it: the disk may have much to do.
    pub fn write_behind(&mut self) {
        self.behind.give(&self.file);
    }

    fn write(&mut self, bytes: &[u8], last: bool) -> Result<(), StoreError> {
        let mut logs = self.space.logs();
        if self.space.is_gone() {
            return Err(StoreError::Gone);
        }
        let more = bytes.len() as u64;
        let usage = &self.space.shared.usage;
        let mut claim = QuotaClaim::new(usage.clone(), &self.space.owner);
        if !last {
            claim.grow(Amount::bytes(more))?;
        }
        let before = self.size()?;
        if let Err(error) = self.file.write_all(bytes) {
            let _ = self.file.set_len(before); // some of it may have been written
            return Err(StoreError::io("cannot write a log")(error));
        }
        usage.changed(&self.space.owner, Amount::default(), Amount::bytes(more));
        *logs += more;
        self.behind.resized(before + more);
        Ok(())
    }
}

/// Bytes of all logs of the session at `dir`, those of executions and what tasks changed included.
pub(super) fn size_of_logs(dir: &Path) -> u64 {
    let folders =
        ["logs", execution_files::FOLDER].into_iter().filter_map(|name| fs::read_dir(dir.join(name)).ok());
    let counted = folders.flatten().flatten().filter(|log| !execution_files::is_note(&log.path()));
    let sizes = counted.filter_map(|log| log.metadata().ok()).filter(std::fs::Metadata::is_file);
    sizes.map(|metadata| metadata.len()).sum()
}
