//! The log of a run: its whole output on disk, for a run that wrote more than a model is shown.
//!
//! It must never have a hole: after the first error nothing more is written, and the log is not offered to
//! anybody.

use std::sync::Arc;

use bytes::Bytes;

use crate::store::{LogFile, Space, StoreError, WriteBatch};

/// Small pieces are joined to one write of about so many bytes.
const JOINED: usize = 256 * 1024;

/// What is written to a run's log.
pub(super) enum LogPiece {
    /// The log of an earlier daemon goes on. Its agent says that the earlier daemon had acknowledged so many
    /// bytes, of both streams together; everything behind them comes again.
    Resumed(u64),
    /// Output.
    Output(Bytes),
}

/// A run's log, on the thread that writes it.
pub(super) struct RunLog {
    space: Arc<Space>,
    run_id: String,
    file: Option<LogFile>,
    /// Bytes that come again, and are in the log already.
    again: u64,
    error: Option<StoreError>,
}

impl RunLog {
    /// The log of this run, which is opened with the first piece.
    pub(super) fn new(space: Arc<Space>, run_id: &str) -> Self {
        Self { space, run_id: run_id.to_owned(), file: None, again: 0, error: None }
    }

    /// Why it is not whole.
    pub(super) fn take_error(&mut self) -> Option<StoreError> {
        self.error.take()
    }

    fn try_write(&mut self, batch: Vec<LogPiece>) -> Result<(), StoreError> {
        let mut file = match self.file.take() {
            Some(file) => file,
            None => self.space.log(&self.run_id)?,
        };
        let mut joined = Vec::new();
        for piece in batch {
            match piece {
                LogPiece::Resumed(heard) => {
                    let has = file.size()?;
                    self.again = has.saturating_sub(heard);
                    let lost = heard.saturating_sub(has);
                    if lost > 0 {
                        let note = format!("[{lost} bytes of output were lost in a restart of the daemon]\n");
                        joined.extend_from_slice(note.as_bytes());
                    }
                }
                LogPiece::Output(bytes) => {
                    let known = usize::try_from(self.again).unwrap_or(usize::MAX).min(bytes.len());
                    self.again -= known as u64;
                    joined.extend_from_slice(&bytes[known..]);
                }
            }
            if joined.len() >= JOINED {
                file.append(&joined)?;
                joined.clear();
            }
        }
        if !joined.is_empty() {
            file.append(&joined)?;
        }
        file.write_behind();
        self.file = Some(file);
        Ok(())
    }
}

impl WriteBatch for RunLog {
    type Item = LogPiece;

    fn write(&mut self, batch: Vec<LogPiece>) {
        if self.error.is_none() {
            self.error = self.try_write(batch).err();
        }
    }

    fn failed(&mut self) {
        self.error.get_or_insert_with(StoreError::panicked);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::test_world;

    #[tokio::test]
    async fn a_log_whose_writer_panicked_has_an_error_and_no_more_output() {
        let (_dir, store) = test_world::store();
        let space = store.space("owner", "session").await.unwrap();
        let mut log = RunLog::new(space.clone(), "run_1");
        log.write(vec![LogPiece::Output(Bytes::from_static(b"one"))]);
        log.failed();
        log.write(vec![LogPiece::Output(Bytes::from_static(b"three"))]);
        assert_eq!(space.log("run_1").unwrap().size().unwrap(), 3, "output with a hole");
        assert!(log.take_error().is_some());
    }
}
