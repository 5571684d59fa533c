//! A snapshot of the whole store at one moment, while it is in use.
//!
//! ```text
//!  wait for the commits in progress, let no other begin
//!    ─► every file gets a second name in tmp/<random>/   (no content is copied)
//!    ─► commits go on ─► the snapshot is read ─► dropping it removes the second names
//! ```
//!
//! A saved file is replaced by a new one, and one with a second name is never written over (see `apply`), so
//! what has a name in the snapshot stays as it was. Every commit that was acknowledged before the moment is
//! in it as a whole, and none that began later. Output of runs and of executions is appended to: there the
//! snapshot has what was written when it is read.
//!
//! A crash leaves only files in `tmp/`, which every start empties. The journal is not needed: all that it
//! says is applied first.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, utimensat};

use super::{COMMITS, Store, StoreError, blocking, is_hash, make_dir};

/// What belongs to the running daemon alone, or is applied already.
const LEFT_OUT: [&str; 3] = ["port", "journal", "tmp"];

/// Folders of a session whose files come and go beside commits.
const OUTPUT: [&str; 2] = ["logs", "executions"];

/// The files of a store at one moment. Dropping it removes them.
pub(crate) struct Snapshot {
    root: PathBuf,
}

impl Snapshot {
    /// Where its files are, as in a store.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// An empty file on the disk of the store, which has no name: it is gone once it is closed.
    pub(crate) fn scratch(&self) -> io::Result<File> {
        scratch(&self.root.with_extension("scratch"))
    }
}

/// An empty file to write and read, at a path that it has for a moment only.
pub(crate) fn scratch(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(path)?;
    fs::remove_file(path)?;
    Ok(file)
}

impl Drop for Snapshot {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.root) {
            tracing::warn!(%error, "a snapshot of the store remains in tmp/; the next start removes it");
        }
    }
}

impl Store {
    /// Takes a snapshot. Commits wait meanwhile: for some microseconds for each file.
    ///
    /// # Errors
    /// An error of the file system, such as one without second names for files; [`StoreError::Pending`] if
    /// acknowledged changes cannot be put in place at present.
    pub(crate) async fn snapshot(&self) -> Result<Snapshot, StoreError> {
        let all = u32::try_from(COMMITS).unwrap_or(u32::MAX);
        let frozen = self.shared.commits.clone().acquire_many_owned(all).await;
        let shared = self.shared.clone();
        blocking(move || {
            let _frozen = frozen;
            shared.apply_all();
            if !shared.unapplied().is_empty() {
                let why = io::Error::other("the journal has saved changes that cannot be put in place yet");
                return Err(StoreError::Pending(Box::new(StoreError::io("cannot take a snapshot")(why))));
            }
            let root = shared.tmp.join(crate::id::random_hex::<12>());
            let snapshot = Snapshot { root };
            let what = || format!("cannot take a snapshot of {}", shared.root.display());
            take(&shared.root, &snapshot.root).map_err(StoreError::io(what()))?;
            Ok(snapshot)
        })
        .await
    }
}

/// Gives every file of the store a second name.
fn take(root: &Path, to: &Path) -> io::Result<()> {
    make_dir(to)?;
    for entry in fs::read_dir(root)? {
        let entry = entry?;
        let name = entry.file_name();
        let text = name.to_string_lossy();
        if LEFT_OUT.contains(&text.as_ref()) || super::restored::is_apart(&text) {
            continue;
        }
        // Beside the sessions, single files are replaced at any time.
        let may_go = !is_hash(&text);
        mirror(&entry.path(), &to.join(&name), may_go)?;
    }
    Ok(())
}

/// The same for one file, or one folder with all that is in it. With `may_go` a file that is gone by now is
/// left out.
fn mirror(from: &Path, to: &Path, may_go: bool) -> io::Result<()> {
    let meta = match fs::symlink_metadata(from) {
        Err(error) if may_go && error.kind() == io::ErrorKind::NotFound => return Ok(()),
        other => other?,
    };
    if meta.is_file() {
        return match fs::hard_link(from, to) {
            Err(error) if may_go && error.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other,
        };
    }
    if !meta.is_dir() {
        return Ok(()); // a socket; the store has no links
    }
    make_dir(to)?;
    let entries = match fs::read_dir(from) {
        Err(error) if may_go && error.kind() == io::ErrorKind::NotFound => return Ok(()),
        other => other?,
    };
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name();
        let may_go = may_go || OUTPUT.iter().any(|output| name == *output);
        mirror(&entry.path(), &to.join(name), may_go)?;
    }
    dress(to, &meta)
}

/// Gives a folder the mode and the time of another.
fn dress(folder: &Path, like: &Metadata) -> io::Result<()> {
    fs::set_permissions(folder, fs::Permissions::from_mode(like.mode() & 0o777 | 0o700))?;
    let time = Timespec { tv_sec: like.mtime(), tv_nsec: like.mtime_nsec() };
    let times = Timestamps { last_access: time, last_modification: time };
    utimensat(CWD, folder, &times, AtFlags::SYMLINK_NOFOLLOW)?;
    Ok(())
}
