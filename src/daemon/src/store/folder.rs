//! The folder of a store on the host: made and locked once, its directories, and the secrets in it.
//!
//! It must never use a folder or a secret that others can write or read, nor give up a lock that it has.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::FlockOperation;

use super::replace::replace;
use super::{StoreError, trust};
use crate::id::random_hex;

/// Makes the folder of a store if it is missing, and takes its lock.
pub(super) fn take_lock(root: &Path) -> Result<File, StoreError> {
    let what = |path: &Path| format!("cannot use the store at {}", path.display());
    if let Some(why) = trust::of_root(root) {
        return Err(StoreError::io(what(root))(io::Error::new(io::ErrorKind::PermissionDenied, why)));
    }
    make_dir(root).map_err(StoreError::io(what(root)))?;
    let path = root.join("lock");
    let lock = OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(&path);
    let lock = lock.map_err(StoreError::io(what(&path)))?;
    match rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(lock),
        Err(rustix::io::Errno::WOULDBLOCK) => Err(StoreError::InUse(root.to_owned())),
        Err(error) => Err(StoreError::io(what(&path))(error.into())),
    }
}

/// Makes a directory and those above it, for the daemon alone.
pub(super) fn make_dir(path: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Syncs a directory, so that a rename into it survives a crash.
fn sync_dir(path: &Path) -> Result<(), StoreError> {
    let sync = || File::open(path)?.sync_all();
    sync().map_err(StoreError::io(format!("cannot sync {}", path.display())))
}

/// The content of a file of `bytes` random bytes in hex, made the first time.
pub(super) fn random_hex_file(root: &Path, name: &str, bytes: usize) -> Result<String, StoreError> {
    let path = root.join(name);
    let what = || format!("cannot use {}", path.display());
    match File::open(&path) {
        Ok(file) => {
            trust::of_secret(&file).map_err(StoreError::io(what()))?;
            let mut text = String::new();
            file.take(1024).read_to_string(&mut text).map_err(StoreError::io(what()))?;
            let text = text.trim().to_owned();
            if text.len() == bytes * 2 && text.bytes().all(|b| b.is_ascii_hexdigit()) {
                return Ok(text);
            }
            let error = io::Error::new(
                io::ErrorKind::InvalidData,
                format!("it does not hold {} hexadecimal digits, which a daemon wrote; remove it", bytes * 2),
            );
            Err(StoreError::io(what())(error))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let text: String = random_hex::<32>().chars().take(bytes * 2).collect();
            let staged = root.join("tmp").join(name);
            replace(&path, &staged, format!("{text}\n").as_bytes(), true).map_err(StoreError::io(what()))?;
            sync_dir(root)?;
            Ok(text)
        }
        Err(error) => Err(StoreError::io(what())(error)),
    }
}
