//! `session.json`: whose a directory of the store is, and whether its session was closed.
//!
//! Its time of change is the time of the session's last use. It must never be there half: it is written beside
//! and renamed.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::SystemTime;

use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, UTIME_NOW};
use serde::{Deserialize, Serialize};

const NAME: &str = "session.json";

/// What the file says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct About {
    pub(super) owner: String,
    pub(super) session_id: String,
    #[serde(default)]
    pub(super) closed: bool,
}

/// What `dir` says of itself, and when it was last used; `None` if there is no such session.
///
/// # Errors
/// What the file system says, and `InvalidData` for a file that is not ours.
pub(super) fn read(dir: &Path) -> io::Result<Option<(About, SystemTime)>> {
    let path = dir.join(NAME);
    let text = match fs::read(&path) {
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return Ok(None);
        }
        other => other?,
    };
    Ok(Some((serde_json::from_slice(&text)?, fs::metadata(&path)?.modified()?)))
}

/// Writes it, for good if `sync`; its time is now.
pub(super) fn write(dir: &Path, tmp: &Path, about: &About, sync: bool) -> io::Result<()> {
    let staged = tmp.join(crate::id::random_hex::<12>());
    let write = || {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&staged)?;
        file.write_all(&serde_json::to_vec(about)?)?;
        if sync {
            file.sync_all()?;
        }
        fs::rename(&staged, dir.join(NAME))
    };
    write().inspect_err(|_| drop(fs::remove_file(&staged)))
}

/// Moves the time of last use to now; nothing if there is no such session.
pub(super) fn touch(dir: &Path) {
    let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
    let times = Timestamps { last_access: now, last_modification: now };
    let _ = rustix::fs::utimensat(CWD, dir.join(NAME), &times, AtFlags::SYMLINK_NOFOLLOW);
}
