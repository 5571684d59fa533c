//! Unpacks a backup into an empty folder, and checks all of it: every hash, and that nothing is missing.
//!
//! It must never write outside of its folder, never make anything but files and folders, and never hold more
//! in memory than a piece of a file and a line of the list: what came is noted in a file without a name.

use std::fs::{self, OpenOptions};
use std::io::{self, BufRead, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

use futures_util::StreamExt;
use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, utimensat};
use sha2::{Digest, Sha256};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt};
use tokio_tar::{Archive, Entry};

use super::manifest::{Line, ListReader, ListWriter, MAX_LINE, is_plain};
use super::{ABOUT, ARCHIVE, About, BackupError, MANIFEST, STORE};
use crate::id::hex;
use crate::store::{FORMAT, scratch};

/// Bytes of the first member.
const MAX_ABOUT: u64 = 4096;
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
    let noted = || BackupError::io(format!("cannot note in {} what came", folder.display()));
    let mut came = ListWriter::new(scratch(&folder.join("came")).map_err(noted())?, u64::MAX);
    let mut members = Archive::new(archive).entries().map_err(unreadable)?;
    let mut is_known = false;
    while let Some(member) = members.next().await {
        let mut member = member.map_err(unreadable)?;
        let name = member.path_bytes().map_err(unreadable)?.into_owned();
        let kind = member.header().entry_type();
        if name == ABOUT.as_bytes() && !is_known {
            check_about(&text(&mut member, MAX_ABOUT).await?)?;
            is_known = true;
            continue;
        }
        if !is_known {
            return Err(BackupError::Refused("this is no backup of a paddock store".to_owned()));
        }
        if name == MANIFEST.as_bytes() {
            let (came, _) = came.end().map_err(noted())?;
            let unpacked = compare(folder, came, member).await?;
            return match members.next().await {
                None => Ok(unpacked),
                Some(_) => Err(damaged("something follows its list")),
            };
        }
        let path = name.strip_prefix(STORE.as_bytes()).map(std::ffi::OsStr::from_bytes).map(Path::new);
        let path = path.filter(|path| is_plain(path)).ok_or_else(|| damaged("it has a foreign path"))?;
        let to = folder.join(path);
        if to.symlink_metadata().is_ok() {
            return Err(damaged("it has a path twice"));
        }
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
        let line = Line { path: path.to_owned(), mode: 0, mtime_ns: 0, size, sha256 };
        came.line(&line).map_err(noted())?;
    }
    Err(damaged("it is cut off"))
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

/// Compares what came with the list, and gives everything its mode and time.
async fn compare<R: AsyncRead + Unpin>(
    folder: &Path,
    mut came: impl BufRead,
    said: R,
) -> Result<Unpacked, BackupError> {
    let unreadable = |error: io::Error| BackupError::Damaged(error.to_string());
    let noted = || BackupError::io(format!("cannot read in {} what came", folder.display()));
    let (mut noted_list, mut list) = (ListReader::default(), ListReader::default());
    let (mut said, mut line) = (tokio::io::BufReader::new(said), Vec::new());
    let mut all = Unpacked::default();
    loop {
        line.clear();
        if (&mut said).take(MAX_LINE).read_until(b'\n', &mut line).await.map_err(unreadable)? == 0 {
            list.end().map_err(BackupError::Damaged)?;
            return Ok(all);
        }
        let next = list.line(&line).map_err(BackupError::Damaged)?;
        line.clear();
        came.read_until(b'\n', &mut line).map_err(noted())?;
        let has_come = noted_list.line(&line).map_err(io::Error::other).map_err(noted())?;
        let Some((said, has_come)) = next.as_ref().zip(has_come.as_ref()) else {
            let one = [(next, "it has no"), (has_come, "its list has no")];
            let missing = one.into_iter().find_map(|(line, what)| Some((line?, what)));
            if let Some((line, what)) = missing {
                return Err(BackupError::Damaged(format!("{what} {}", line.path.display())));
            }
            continue; // the last line of both
        };
        if !has_come.has_same_content(said) {
            return Err(BackupError::Damaged(format!("{} differs from its list", said.path.display())));
        }
        dress(folder, said)?;
        all.files += u64::from(said.sha256.is_some());
        all.bytes += said.size;
    }
}

/// Gives a file or a folder its mode and time.
fn dress(folder: &Path, Line { path, mode, mtime_ns, sha256, .. }: &Line) -> Result<(), BackupError> {
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
    dressed().map_err(BackupError::io(format!("cannot set the mode and time of {}", to.display())))
}
