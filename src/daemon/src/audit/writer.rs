//! The thread that writes the audit log: it takes lines from the queue, syncs once a second, and says in the
//! log itself how many lines are missing. It must never drop a line without counting it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};
use tracing::{error, info};

use super::event;
use super::file::AuditFile;
use crate::metrics::Metrics;

/// The longest time from a line to its place on the disk.
const SYNC: Duration = Duration::from_secs(1);

/// What the writer shares with those who write.
#[derive(Default)]
pub(super) struct AuditState {
    is_failing: AtomicBool,
    /// Lines that were lost and are not told in the log yet.
    lost: AtomicU64,
    metrics: Metrics,
}

impl AuditState {
    pub(super) fn new(metrics: Metrics) -> Self {
        metrics.audit_failing(false);
        Self { is_failing: AtomicBool::new(false), lost: AtomicU64::new(0), metrics }
    }

    pub(super) fn is_failing(&self) -> bool {
        self.is_failing.load(Relaxed)
    }

    pub(super) fn lose(&self) {
        self.lost.fetch_add(1, Relaxed);
        self.metrics.audit_lost();
    }

    fn tried(&self, result: &std::io::Result<()>, path: &str) {
        match result {
            Ok(()) => {
                if self.is_failing.swap(false, Relaxed) {
                    info!(path, "the audit log can be written again");
                }
            }
            Err(error) => {
                if !self.is_failing.swap(true, Relaxed) {
                    error!(%error, path, "the audit log cannot be written; calls are not noted until it can");
                }
            }
        }
        self.metrics.audit_failing(result.is_err());
    }
}

/// Writes lines until there are no more.
pub(super) fn write(
    mut file: AuditFile,
    lines: &Receiver<Map<String, Value>>,
    state: &AuditState,
    path: &str,
) {
    let mut unsynced: Option<Instant> = None;
    loop {
        let patience = unsynced.map_or(SYNC, |since| SYNC.saturating_sub(since.elapsed()));
        match lines.recv_timeout(patience) {
            Ok(fields) => {
                let written = tell_of_lost(&mut file, state).and_then(|()| file.append(fields));
                if written.is_err() {
                    state.lose();
                } else {
                    state.metrics.audit_line();
                    unsynced.get_or_insert_with(Instant::now);
                }
                state.tried(&written.and_then(|()| file.rotate_if_due()), path);
            }
            // While it fails, this is the attempt that ends the failure.
            Err(RecvTimeoutError::Timeout) if state.is_failing() => {
                let told = tell_of_lost(&mut file, state);
                state.tried(&told.and_then(|()| file.rotate_if_due()).and_then(|()| file.sync()), path);
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                let _ = tell_of_lost(&mut file, state);
                state.tried(&file.sync(), path);
                return;
            }
        }
        if unsynced.is_some_and(|since| since.elapsed() >= SYNC) {
            unsynced = None;
            let synced = file.sync();
            if synced.is_err() {
                state.tried(&synced, path);
            }
        }
    }
}

/// Notes in the log how many lines are missing, once it can be written.
fn tell_of_lost(file: &mut AuditFile, state: &AuditState) -> std::io::Result<()> {
    let lost = state.lost.load(Relaxed);
    if lost == 0 {
        return Ok(());
    }
    let mut line = event("lost");
    line.insert("lost".into(), json!(lost));
    file.append(line)?;
    state.lost.fetch_sub(lost, Relaxed);
    Ok(())
}
