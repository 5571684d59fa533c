//! What is known of snapshots, in a file for the next daemon, out of reach of every container.
//!
//! ```text
//!  snapshots/snapshots.json  {"snapshots": [{"volume": "…", "digest": "…", …}], "without": {"perl": "why"}}
//! ```
//!
//! The file is written beside and renamed. It must never name a snapshot that was not written to its end and
//! proved: without a file, or with a damaged one, no snapshot is known, and their volumes are removed.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use std::{fs, io};

use serde::{Deserialize, Serialize};
use tracing::warn;

use crate::engine::VolumeName;

const NAME: &str = "snapshots.json";

/// A snapshot that was proved.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    /// The volume that has its files.
    pub volume: VolumeName,
    /// The runner that it was taken for.
    pub language: String,
    /// The id of the image.
    pub image: String,
    /// What it depends on: the key of the parent module.
    pub key: String,
    /// The SHA-256 of the files, in hexadecimal.
    pub digest: String,
    /// Bytes of the files.
    pub bytes: u64,
    /// When it was taken, in seconds since 1970.
    pub taken: u64,
}

impl Snapshot {
    /// How long ago it was taken.
    pub fn age(&self) -> Duration {
        Duration::from_secs(now().saturating_sub(self.taken))
    }

    /// One that was taken long ago.
    #[cfg(test)]
    pub(super) fn example(name: &str) -> Self {
        Self {
            volume: format!("paddock-snapshot-{name}").parse().unwrap(),
            language: "python".into(),
            image: "image".into(),
            key: "k".into(),
            digest: "d".into(),
            bytes: 1,
            taken: 0,
        }
    }
}

/// A runner that can have no snapshot on the machine of this key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unsupported {
    /// The id of the image.
    pub image: String,
    /// What that depends on: the key of the parent module.
    pub key: String,
    /// What the image said.
    pub why: String,
}

/// What the file says.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotRecords {
    /// All snapshots whose volumes are there.
    pub snapshots: Vec<Snapshot>,
    /// Why runners have no snapshot that is used, by their names.
    pub without: BTreeMap<String, String>,
    /// The runners that can have none here, by their names. None is tried until the image, the kernel, the
    /// processor or the daemon is another one.
    #[serde(default)]
    pub unsupported: BTreeMap<String, Unsupported>,
}

impl SnapshotRecords {
    /// Reads the file in this folder, `snapshots` of the store.
    pub fn read(folder: &Path) -> Self {
        let text = fs::read(folder.join(NAME)).ok();
        text.and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default()
    }
}

/// Seconds since 1970.
pub(super) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// The file, and what it says now.
pub(super) struct RecordFile {
    folder: PathBuf,
    written: SnapshotRecords,
}

impl RecordFile {
    pub(super) fn open(folder: PathBuf) -> Self {
        let written = SnapshotRecords::read(&folder);
        Self { folder, written }
    }

    /// Writes the file anew if it would say something else. False if that failed: what is on disk is older.
    pub(super) async fn save(&mut self, records: SnapshotRecords) -> bool {
        if records == self.written {
            return true;
        }
        let (path, text) = (self.folder.join(NAME), serde_json::to_vec_pretty(&records));
        let done = tokio::task::spawn_blocking(move || {
            let staged = path.with_extension("new");
            fs::write(&staged, text.map_err(io::Error::from)?)?;
            fs::File::open(&staged)?.sync_all()?;
            fs::rename(&staged, &path)
        });
        match done.await.map_err(io::Error::other).and_then(|done| done) {
            Ok(()) => {
                self.written = records;
                true
            }
            Err(error) => {
                warn!(%error, folder = %self.folder.display(), "snapshots could not be noted");
                false
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_was_noted_is_known_again_and_a_damaged_file_names_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let snapshot = Snapshot {
            volume: "paddock-snapshot-x".parse().unwrap(),
            language: "python".into(),
            image: "sha256:0".into(),
            key: "k".into(),
            digest: "d".into(),
            bytes: 9,
            taken: now() - 60,
        };
        assert!((60..70).contains(&snapshot.age().as_secs()));
        let without = BTreeMap::from([("perl".to_owned(), "its save command failed".to_owned())]);
        let none = Unsupported { image: "sha256:1".into(), key: "k".into(), why: "no vDSO".into() };
        let unsupported = BTreeMap::from([("lua".to_owned(), none)]);
        let records = SnapshotRecords { snapshots: vec![snapshot], without, unsupported };
        let mut file = RecordFile::open(dir.path().to_owned());
        assert_eq!(file.written, SnapshotRecords::default());
        assert!(file.save(records.clone()).await);
        assert_eq!(SnapshotRecords::read(dir.path()), records);
        fs::write(dir.path().join(NAME), "{\"snapshots\":").unwrap();
        assert_eq!(SnapshotRecords::read(dir.path()), SnapshotRecords::default());
        assert!(!RecordFile::open("/nowhere".into()).save(records).await);
    }
}
