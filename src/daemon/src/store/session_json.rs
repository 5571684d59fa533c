//! `session.json`: the owner and id of the session in a directory of the store, and whether it was closed.
//!
//! The file's modification time is the session's last use. It must never be there in part: it is written
//! beside and renamed.

use std::fs;
use std::io;
use std::path::Path;
use std::time::SystemTime;

use rustix::fs::{AtFlags, CWD, Timespec, Timestamps};
use serde::{Deserialize, Serialize};

use super::StoreClock;
use super::replace::replace;

const NAME: &str = "session.json";

/// The content of the file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct SessionJson {
    pub(super) owner: String,
    pub(super) session_id: String,
    #[serde(default)]
    pub(super) closed: bool,
}

/// Reads the file of the session at `dir`, and the time of its last use; `None` if there is no such session.
///
/// # Errors
/// An error of the file system, and `InvalidData` for a file that no daemon wrote.
pub(super) fn read(dir: &Path) -> io::Result<Option<(SessionJson, SystemTime)>> {
    let path = dir.join(NAME);
    let text = match fs::read(&path) {
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return Ok(None);
        }
        other => other?,
    };
    Ok(Some((serde_json::from_slice(&text)?, fs::metadata(&path)?.modified()?)))
}

/// Writes the file and sets its time to now; syncs it if `sync`.
pub(super) fn write(dir: &Path, tmp: &Path, about: &SessionJson, sync: bool) -> io::Result<()> {
    let staged = tmp.join(crate::id::random_hex::<12>());
    replace(&dir.join(NAME), &staged, &serde_json::to_vec(about)?, sync)?;
    touch(dir);
    Ok(())
}

/// Sets the time of last use to now, by the store's clock; does nothing if there is no such session.
pub(super) fn touch(dir: &Path) {
    let now = StoreClock::new().now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let now = Timespec {
        tv_sec: i64::try_from(now.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(now.subsec_nanos()),
    };
    let times = Timestamps { last_access: now, last_modification: now };
    let _ = rustix::fs::utimensat(CWD, dir.join(NAME), &times, AtFlags::SYMLINK_NOFOLLOW);
}
