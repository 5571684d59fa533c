//! Opens and changes files below `/data`, component by component, never through a link.
//!
//! It must never pass a path of more than one component to a system call.

use std::os::fd::OwnedFd;

use paddock_proto::limits::DATA_DIR;
use paddock_proto::{LinkTarget, RelPath};
use rustix::fs::{self, AtFlags, FileType, Mode, OFlags};
use rustix::io::{Errno, Result};

const DIR: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC)
    .union(OFlags::NONBLOCK);

/// `/data` itself.
pub(crate) fn open_root() -> Result<OwnedFd> {
    fs::open(DATA_DIR, DIR, Mode::empty())
}

/// Makes `/data` usable for its owner again, if a program has changed its mode: otherwise no program could
/// start there, and no file be saved.
pub(crate) fn unlock_root() {
    let mode = fs::stat(DATA_DIR).map(|stat| Mode::from_raw_mode(stat.st_mode & 0o7777));
    if let Ok(mode) = mode
        && !mode.contains(Mode::RWXU)
    {
        let _ = fs::chmod(DATA_DIR, mode | Mode::RWXU);
    }
}

/// An existing directory.
pub(crate) fn open_dir(path: Option<&RelPath>) -> Result<OwnedFd> {
    let mut dir = open_root()?;
    for name in path.iter().flat_map(|p| p.components()) {
        dir = fs::openat(&dir, name, DIR, Mode::empty())?;
    }
    Ok(dir)
}

/// An existing regular file, for reading.
pub(crate) fn open_file(path: &RelPath) -> Result<OwnedFd> {
    let dir = open_dir(path.parent().as_ref())?;
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let open = || fs::openat(&dir, path.file_name(), flags, Mode::empty());
    let file = match open() {
        Err(Errno::ACCESS) => {
            // The file is ours, but its mode does not let us read it: change the mode for a moment.
            let mode = Mode::from_raw_mode(
                fs::statat(&dir, path.file_name(), AtFlags::SYMLINK_NOFOLLOW)?.st_mode & 0o7777,
            );
            fs::chmodat(&dir, path.file_name(), mode | Mode::RUSR, AtFlags::empty())?;
            let file = open();
            fs::chmodat(&dir, path.file_name(), mode, AtFlags::empty())?;
            file?
        }
        other => other?,
    };
    if FileType::from_raw_mode(fs::fstat(&file)?.st_mode) != FileType::RegularFile {
        return Err(Errno::INVAL);
    }
    Ok(file)
}

/// The directory above `path`. Missing directories are made, and what is in the way is removed.
fn make_parent(path: &RelPath) -> Result<OwnedFd> {
    let mut dir = open_root()?;
    let parent = path.parent();
    for name in parent.iter().flat_map(RelPath::components) {
        dir = make_dir(&dir, name)?;
    }
    Ok(dir)
}

fn make_dir(parent: &OwnedFd, name: &[u8]) -> Result<OwnedFd> {
    match fs::openat(parent, name, DIR, Mode::empty()) {
        Err(Errno::NOENT) => {}
        Err(Errno::LOOP | Errno::NOTDIR | Errno::NXIO) => {
            fs::unlinkat(parent, name, AtFlags::empty())?;
        }
        Err(Errno::ACCESS) => fs::chmodat(parent, name, Mode::RWXU, AtFlags::empty())?,
        other => return other,
    }
    match fs::mkdirat(parent, name, Mode::from_raw_mode(0o755)) {
        Ok(()) | Err(Errno::EXIST) => fs::openat(parent, name, DIR, Mode::empty()),
        Err(error) => Err(error),
    }
}

/// Makes a directory and all above it.
pub(crate) fn put_dir(path: &RelPath, mode: u32) -> Result<()> {
    let parent = make_parent(path)?;
    let dir = make_dir(&parent, path.file_name())?;
    // Always usable by its owner, or the next file could not be put into it.
    fs::fchmod(&dir, Mode::from_raw_mode(mode & 0o777 | 0o700))
}

/// A new, empty file in place of whatever is there.
pub(crate) fn put_file(path: &RelPath) -> Result<OwnedFd> {
    let parent = make_parent(path)?;
    remove_in(&parent, path.file_name())?;
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    fs::openat(&parent, path.file_name(), flags, Mode::from_raw_mode(0o600))
}

/// A symbolic link in place of whatever is there.
pub(crate) fn put_link(path: &RelPath, target: &LinkTarget) -> Result<()> {
    let parent = make_parent(path)?;
    remove_in(&parent, path.file_name())?;
    fs::symlinkat(target.as_bytes(), &parent, path.file_name())
}

/// Removes a file or a link, or a directory with all below it. Where nothing is there, nothing happens.
pub(crate) fn remove(path: &RelPath) -> Result<()> {
    match open_dir(path.parent().as_ref()) {
        Ok(parent) => remove_in(&parent, path.file_name()),
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(()),
        Err(error) => Err(error),
    }
}

fn remove_in(parent: &OwnedFd, name: &[u8]) -> Result<()> {
    match fs::unlinkat(parent, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => return Ok(()),
        Err(Errno::ISDIR | Errno::PERM) => {}
        Err(error) => return Err(error),
    }
    let _ = fs::chmodat(parent, name, Mode::RWXU, AtFlags::empty());
    let dir = fs::openat(parent, name, DIR, Mode::empty())?;
    for entry in fs::Dir::read_from(&dir)? {
        let entry = entry?;
        let below = entry.file_name().to_bytes();
        if below != b"." && below != b".." {
            remove_in(&dir, below)?;
        }
    }
    fs::unlinkat(parent, name, AtFlags::REMOVEDIR)
}
