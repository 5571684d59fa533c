//! Unpacks a backup into an empty folder, and checks all of it: every hash, and that nothing is missing.
//!
//! It must never write outside of its folder, and never make anything but files and folders.

use std::collections::BTreeSet;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

use futures_util::StreamExt;
use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, utimensat};
use sha2::{Digest, Sha256};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio_tar::{Archive, Entry};

use super::manifest::{self, Line, is_plain};
use super::{ABOUT, ARCHIVE, About, BackupError, MANIFEST, STORE};
use crate::id::hex;
use crate::store::FORMAT;

/// Bytes of the first member, and of the list: a million files with paths of some hundred bytes.
const MAX_ABOUT: u64 = 4096;
const MAX_LIST: u64 = 1 << 30;
const PIECE: usize = 64 * 1024;

/// What was unpacked.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Unpacked {
    pub(super) files: u64,
    pub(super) bytes: u64,
}

/// Unpacks an archive into `folder`, which is empty.
pub(super) async fn unpack(
    archive: impl AsyncRead + Unpin + Send,
    folder: &Path,
) -> Result<Unpacked, BackupError> {
    let damaged = |why: &str| BackupError::Damaged(why.to_owned());
    let unreadable = |error: std::io::Error| BackupError::Damaged(error.to_string());
    let mut members = Archive::new(archive).entries().map_err(unreadable)?;
    let mut lines = Vec::new();
    let mut made = BTreeSet::new();
    let mut is_known = false;
    let mut list = None;
    while let Some(member) = members.next().await {
        let mut member = member.map_err(unreadable)?;
        let name = member.path_bytes().map_err(unreadable)?.into_owned();
        let kind = member.header().entry_type();
        if list.is_some() {
            return Err(damaged("something follows its list"));
        }
        if name == ABOUT.as_bytes() && !is_known {
            check_about(&text(&mut member, MAX_ABOUT).await?)?;
            is_known = true;
            continue;
        }
        if !is_known {
            return Err(BackupError::Refused("this is no backup of a paddock store".to_owned()));
        }
        if name == MANIFEST.as_bytes() {
            list = Some(text(&mut member, MAX_LIST).await?);
            continue;
        }
        let path = name.strip_prefix(STORE.as_bytes()).map(std::ffi::OsStr::from_bytes).map(Path::new);
        let path = path.filter(|path| is_plain(path)).ok_or_else(|| damaged("it has a foreign path"))?;
        if !made.insert(path.to_owned()) {
            return Err(damaged("it has a path twice"));
        }
        let to = folder.join(path);
        let failed = || BackupError::io(format!("cannot write {}", to.display()));
        let (size, sha256) = if kind.is_dir() {
            fs::create_dir(&to).map_err(failed())?;
            fs::set_permissions(&to, fs::Permissions::from_mode(0o700)).map_err(failed())?;
            (0, None)
        } else if kind.is_file() {
            let (size, sha256) = file(&mut member, &to).await?;
            (size, Some(sha256))
        } else {
            return Err(damaged("it has something that is neither a file nor a folder"));
        };
        lines.push(Line { path: path.to_owned(), mode: 0, mtime_ns: 0, size, sha256 });
    }
    let list = list.ok_or_else(|| damaged("it is cut off"))?;
    let said = manifest::parse(&list).map_err(BackupError::Damaged)?;
    compare(&lines, &said)?;
    dress(folder, &said)?;
    let files = said.iter().filter(|line| line.sha256.is_some());
    let count = |all: Unpacked, line: &Line| Unpacked { files: all.files + 1, bytes: all.bytes + line.size };
    Ok(files.fold(Unpacked::default(), count))
}

fn check_about(text: &str) -> Result<(), BackupError> {
    let about: About = serde_json::from_str(text)
        .map_err(|error| BackupError::Damaged(format!("its first member is unknown: {error}")))?;
    let newer = |what: &str, found: u32, known: u32| {
        BackupError::Refused(format!(
            "the backup was made by a newer paddock, {}: its {what} has format {found}, and this one knows \
             formats up to {known}",
            about.paddock
        ))
    };
    if about.archive > ARCHIVE {
        return Err(newer("archive", about.archive, ARCHIVE));
    }
    if about.store > FORMAT {
        return Err(newer("store", about.store, FORMAT));
    }
    Ok(())
}

/// A member that is text.
async fn text<R: AsyncRead + Unpin>(member: &mut Entry<R>, max: u64) -> Result<String, BackupError> {
    let mut text = String::new();
    let read = member.take(max).read_to_string(&mut text).await;
    read.map_err(|error| BackupError::Damaged(error.to_string()))?;
    Ok(text)
}

/// Writes a file; returns its size and the SHA-256 of its content.
async fn file<R: AsyncRead + Unpin>(member: &mut Entry<R>, to: &Path) -> Result<(u64, String), BackupError> {
    let failed = || BackupError::io(format!("cannot write {}", to.display()));
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(to).map_err(failed())?;
    let (mut size, mut digest) = (0, Sha256::new());
    let mut piece = vec![0; PIECE];
    loop {
        let count = member.read(&mut piece).await;
        let count = count.map_err(|error| BackupError::Damaged(error.to_string()))?;
        let piece = piece.get(..count).unwrap_or_default();
        if piece.is_empty() {
            return Ok((size, hex(&digest.finalize())));
        }
        digest.update(piece);
        file.write_all(piece).map_err(failed())?;
        size += count as u64;
    }
}

/// Compares what came with the list.
fn compare(came: &[Line], said: &[Line]) -> Result<(), BackupError> {
    for (came, said) in came.iter().zip(said) {
        if !came.has_same_content(said) {
            return Err(BackupError::Damaged(format!("{} differs from its list", said.path.display())));
        }
    }
    if came.len() != said.len() {
        let why = format!("it has {} files and folders, and its list {}", came.len(), said.len());
        return Err(BackupError::Damaged(why));
    }
    Ok(())
}

/// Gives everything its mode and time.
fn dress(folder: &Path, lines: &[Line]) -> Result<(), BackupError> {
    for Line { path, mode, mtime_ns, sha256, .. } in lines {
        let to = folder.join(path);
        let own = if sha256.is_some() { 0o400 } else { 0o700 };
        let dressed = || {
            fs::set_permissions(&to, fs::Permissions::from_mode(mode | own))?;
            let time = Timespec {
                tv_sec: mtime_ns.div_euclid(1_000_000_000),
                tv_nsec: mtime_ns.rem_euclid(1_000_000_000),
            };
            let times = Timestamps { last_access: time, last_modification: time };
            Ok(utimensat(CWD, &to, &times, AtFlags::SYMLINK_NOFOLLOW)?)
        };
        dressed().map_err(BackupError::io(format!("cannot set the mode and time of {}", to.display())))?;
    }
    Ok(())
}
