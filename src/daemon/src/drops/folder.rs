//! A drop folder on the disk: opened, read and written without following a link.
//!
//! Every name is opened below a descriptor of the folder that it is in, so nobody who renames folders
//! meanwhile leads this elsewhere.

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use paddock_proto::RelPath;
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;

use super::DropError;
use super::plan::{FolderStamp, Identity, Seen, above, is_left_alone};
use crate::session::SessionId;

/// The folder within that of a conversation.
const FILES: &str = "files";
/// The longest name of a folder.
const NAME: usize = 255;
/// How temporary files of the daemon begin and end; an earlier daemon may have left one.
pub(super) const OURS: (&str, &str) = (".paddock-", ".tmp");

const FOLDER: OFlags = OFlags::DIRECTORY.union(OFlags::RDONLY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// The name of a conversation's folder; `None` for an id that is no name of a folder.
pub(super) fn name_of(id: &SessionId) -> Option<&str> {
    let id = id.as_str();
    let is_name = id.len() <= NAME && !id.starts_with('.') && !id.contains(['/', '\0']);
    is_name.then_some(id)
}

fn beneath(dir: BorrowedFd<'_>, name: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    rustix::fs::openat2(dir, name, flags | OFlags::CLOEXEC, Mode::empty(), resolve)
}

/// Opens the folder of a conversation, if it exists.
pub(super) fn open(root: &Path, name: &str) -> io::Result<Option<OwnedFd>> {
    let root = rustix::fs::open(root, FOLDER, Mode::empty())?;
    match beneath(root.as_fd(), format!("{name}/{FILES}").as_bytes(), FOLDER) {
        Ok(folder) => Ok(Some(folder)),
        Err(Errno::NOENT) => Ok(None),
        Err(Errno::NOSYS) => Err(io::Error::other("drop folders need Linux 5.6 or newer (openat2)")),
        Err(error) => Err(io::Error::new(
            io::Error::from(error).kind(),
            format!("{name}/{FILES}: {error}; a folder is needed, not a link"),
        )),
    }
}

/// The stamp of a regular file that has one name; `None` for anything else.
pub(super) fn stamp(stat: &Stat) -> Option<FolderStamp> {
    let is_file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile && stat.st_nlink == 1;
    is_file.then(|| FolderStamp {
        size: u64::try_from(stat.st_size).unwrap_or(0),
        mtime_ns: mtime_ns(stat),
        inode: stat.st_ino,
    })
}

fn mtime_ns(stat: &Stat) -> i64 {
    let nanos = i64::try_from(stat.st_mtime_nsec).unwrap_or(0);
    stat.st_mtime.saturating_mul(1_000_000_000).saturating_add(nanos)
}

/// Which folder this is.
pub(super) fn identity(root: &OwnedFd) -> io::Result<Identity> {
    let stat = rustix::fs::fstat(root)?;
    Ok(Identity { device: stat.st_dev, inode: stat.st_ino })
}

/// All of a folder; an error if there are more than `most` entries that are not `made` by runs, or if the
/// folder itself cannot be read. Names that are left alone are not counted.
pub(super) fn read(
    root: &OwnedFd,
    most: usize,
    is_made: impl Fn(&RelPath) -> bool,
) -> Result<Seen, DropError> {
    let mut found = Seen::default();
    let mut counted = 0;
    let mut waiting: Vec<(OwnedFd, Option<RelPath>)> = vec![(root.try_clone()?, None)];
    while let Some((dir, at)) = waiting.pop() {
        let entries = match (Dir::read_from(&dir), &at) {
            (Ok(entries), _) => entries,
            (Err(error), None) => return Err(io::Error::from(error).into()),
            // What it holds must not count as removed.
            (Err(_), Some(at)) => {
                found.others.insert(at.clone());
                continue;
            }
        };
        for entry in entries {
            let entry = entry.map_err(io::Error::from)?;
            let name = entry.file_name().to_bytes();
            if name == b"." || name == b".." {
                continue;
            }
            if name.starts_with(OURS.0.as_bytes()) && name.ends_with(OURS.1.as_bytes()) {
                let _ = rustix::fs::unlinkat(&dir, name, AtFlags::empty());
            }
            let path = at.as_ref().map_or_else(|| RelPath::new(name.to_vec()), |at| at.join(name));
            let (false, Ok(path)) = (is_left_alone(name), path) else { continue };
            counted += usize::from(!is_made(&path));
            if counted > most {
                return Err(DropError::TooMany(most));
            }
            // It may be gone by now.
            let stat = match rustix::fs::statat(&dir, name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat) => stat,
                Err(Errno::NOENT) => continue,
                Err(error) => return Err(io::Error::from(error).into()),
            };
            if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
                match beneath(dir.as_fd(), name, FOLDER) {
                    Ok(inner) => {
                        found.dirs.insert(path.clone());
                        waiting.push((inner, Some(path)));
                    }
                    Err(Errno::NOENT) => {}
                    Err(_) => drop(found.others.insert(path)),
                }
            } else if let Some(stamp) = stamp(&stat) {
                found.files.insert(path, stamp);
            } else {
                found.others.insert(path);
            }
        }
    }
    Ok(found)
}

/// Whether nothing of this name is there, for certain.
pub(super) fn is_gone(root: &OwnedFd, path: &RelPath) -> bool {
    let flags = OFlags::PATH | OFlags::NOFOLLOW;
    matches!(beneath(root.as_fd(), path.as_bytes(), flags), Err(Errno::NOENT))
}

/// Opens a file for reading; `None` if it is no regular file with one name any more.
///
/// # Errors
/// It is there, and cannot be opened.
pub(super) fn open_file(root: &OwnedFd, path: &RelPath) -> io::Result<Option<(File, FolderStamp)>> {
    // Without waiting for a writer, should it have become a FIFO.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = match beneath(root.as_fd(), path.as_bytes(), flags) {
        Ok(file) => file,
        Err(Errno::NOENT) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let stamp = stamp(&rustix::fs::fstat(&file)?);
    Ok(stamp.map(|stamp| (File::from(file), stamp)))
}

/// The stamp of what is there now.
pub(super) fn look(dir: BorrowedFd<'_>, name: &[u8]) -> Option<FolderStamp> {
    stamp(&rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW).ok()?)
}

/// Whether there is anything else than this of this name, also what is never taken.
pub(super) fn is_other(dir: BorrowedFd<'_>, name: &[u8], known: Option<FolderStamp>) -> bool {
    let there = rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW);
    there.is_ok_and(|stat| known.is_none() || stamp(&stat) != known)
}

/// The folder that a path is in, made if it is missing; `made` gets what was.
pub(super) fn parent(root: &OwnedFd, path: &RelPath, made: &mut BTreeSet<RelPath>) -> io::Result<OwnedFd> {
    let mut dir = root.try_clone()?;
    let mut folders: Vec<_> = above(path).collect();
    folders.reverse();
    for folder in folders {
        let name = folder.file_name();
        let is_made = match rustix::fs::mkdirat(&dir, name, Mode::from_raw_mode(0o755)) {
            Ok(()) => true,
            Err(Errno::EXIST) => false,
            Err(error) => return Err(error.into()),
        };
        let inner = beneath(dir.as_fd(), name, FOLDER)?;
        if is_made {
            as_the_folder(root, &inner);
            made.insert(folder);
        }
        dir = inner;
    }
    Ok(dir)
}

/// The folder that a path is in.
fn existing_parent(root: &OwnedFd, path: &RelPath) -> io::Result<OwnedFd> {
    let Some(parent) = path.parent() else { return root.try_clone() };
    Ok(beneath(root.as_fd(), parent.as_bytes(), FOLDER)?)
}

/// Gives what was made to the owner of the folder, where the daemon may do so.
pub(super) fn as_the_folder(root: &OwnedFd, made: impl AsFd) {
    if let Ok(stat) = rustix::fs::fstat(root) {
        let (uid, gid) = (rustix::fs::Uid::from_raw(stat.st_uid), rustix::fs::Gid::from_raw(stat.st_gid));
        let _ = rustix::fs::fchown(made, Some(uid), Some(gid));
    }
}

/// Removes a file that still has this stamp.
pub(super) fn remove(root: &OwnedFd, path: &RelPath, stamp: FolderStamp) -> io::Result<bool> {
    let dir = existing_parent(root, path)?;
    if look(dir.as_fd(), path.file_name()) != Some(stamp) {
        return Ok(false);
    }
    rustix::fs::unlinkat(&dir, path.file_name(), AtFlags::empty())?;
    Ok(true)
}

/// Removes a folder, if it is empty; whether it is gone.
pub(super) fn remove_empty(root: &OwnedFd, path: &RelPath) -> bool {
    let Ok(dir) = existing_parent(root, path) else { return is_gone(root, path) };
    let removed = rustix::fs::unlinkat(&dir, path.file_name(), AtFlags::REMOVEDIR);
    matches!(removed, Ok(()) | Err(Errno::NOENT | Errno::NOTDIR))
}
