//! What a drop folder and its session had when they were last equal: in memory, and on disk for the next
//! daemon.
//!
//! A record that is lost costs no file: everything in the folder then counts as new.

use std::fs;
use std::io::{self, Write};
use std::path::PathBuf;

use paddock_proto::RelPath;
use sha2::{Digest, Sha256};
use tracing::warn;

use super::plan::{AllKnown, Known};
use crate::id::hex;

#[derive(Debug)]
pub(super) struct Record {
    path: PathBuf,
    pub(super) known: AllKnown,
}

impl Record {
    pub(super) fn load(path: PathBuf) -> Self {
        let read = fs::read(&path).ok();
        let pairs = read.and_then(|text| serde_json::from_slice::<Vec<(RelPath, Known)>>(&text).ok());
        Self { path, known: pairs.unwrap_or_default().into_iter().collect() }
    }

    /// Writes it to the disk. It holds in memory, even if this fails.
    pub(super) fn save(&self) {
        let saved = || -> io::Result<()> {
            let pairs: Vec<_> = self.known.iter().collect();
            let new = self.path.with_extension("new");
            let mut file = fs::File::create(&new)?;
            file.write_all(&serde_json::to_vec(&pairs)?)?;
            file.sync_data()?;
            fs::rename(&new, &self.path)
        };
        if let Err(error) = saved() {
            warn!(%error, record = %self.path.display(), "the record of a drop folder could not be written");
        }
    }
}

/// The name of a session's record.
pub(super) fn name(owner: &str, session: &str) -> String {
    let mut hash = Sha256::new();
    hash.update((owner.len() as u64).to_be_bytes());
    hash.update(owner);
    hash.update(session);
    format!("{}.json", hex(&hash.finalize()[..16]))
}
