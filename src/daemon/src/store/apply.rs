//! Applies a record of the journal to a session's directory.
//!
//! A new file is complete before it has its name, and a file is written over only while nobody reads it:
//! readers hold a lock (see `space`), so nobody sees half of one. A record may be applied again, also after
//! it was applied in part, more than once, or over a later state: its effect on a path does not depend on
//! what is there. Directories are opened one component at a time; a symbolic link of the host is in the way
//! as a file would be, and is never followed. Nothing is synced here: the journal is what is durable.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use paddock_proto::RelPath;
use paddock_proto::message::{Entry, EntryKind};
use rustix::fs::{
    AtFlags, CWD, FileType, FlockOperation, Mode, OFlags, RenameFlags, ResolveFlags, Timespec, Timestamps,
    UTIME_OMIT, flock,
};
use rustix::io::Errno;

use super::links::{self, Links};
use super::record::{JournalOp, JournalRecord, is_staged_name};
use super::session_json::{self, SessionJson};
use super::{StoreError, hash, make_dir};

const DIR: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

const OWN: Mode = Mode::RUSR.union(Mode::WUSR);

/// Applies a record to the store at `root`.
///
/// Returns the files that it replaced, as paths in `tmp/` with sizes: freeing the blocks of many small files
/// is better done for all at once, and after the answer.
///
/// # Errors
/// An error of the file system; the whole record is then to be applied again.
pub(super) fn apply(
    root: &Path,
    tmp: &Path,
    record: &JournalRecord,
) -> Result<Vec<(PathBuf, u64)>, StoreError> {
    let dir = root.join(hash(&record.owner, &record.session));
    let mut blob = &record.blob[..];
    let mut applier: Option<Applier> = None;
    for op in &record.ops {
        if *op == JournalOp::Forget {
            applier = None;
            forget(&dir, tmp).map_err(StoreError::io(format!("cannot delete {}", dir.display())))?;
            continue;
        }
        let what = || match op {
            JournalOp::Remove(path) => format!("cannot remove {path:?}"),
            JournalOp::Dir(entry)
            | JournalOp::Link(entry)
            | JournalOp::Inline(entry)
            | JournalOp::Staged(entry, _) => {
                format!("cannot save {:?}", entry.path)
            }
            JournalOp::Forget => format!("cannot delete {}", dir.display()),
        };
        let at = match &mut applier {
            Some(at) => at,
            none => {
                let begun = Applier::begin(&dir, tmp, record);
                let what = format!("cannot make {}", dir.display());
                none.insert(begun.map_err(StoreError::io(what))?)
            }
        };
        at.step(op, &mut blob).map_err(StoreError::io(what()))?;
    }
    let finish = |at: Applier| at.finish();
    applier.map_or(Ok(Vec::new()), finish).map_err(StoreError::io(format!("cannot save {}", dir.display())))
}

/// Moves the directory away, then removes it; whatever cannot be removed is removed at the next start.
fn forget(dir: &Path, tmp: &Path) -> io::Result<()> {
    let aside = tmp.join(crate::id::random_hex::<12>());
    match fs::rename(dir, &aside) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        other => other?,
    }
    if let Err(error) = fs::remove_dir_all(&aside) {
        tracing::warn!(%error, "some files of a deleted session remain in tmp/; the next start removes them");
    }
    Ok(())
}

/// A session while a record is applied to it.
struct Applier<'a> {
    dir: &'a Path,
    tmp: &'a Path,
    tmp_fd: OwnedFd,
    files: OwnedFd,
    /// The directory used last: files mostly come directory by directory.
    open: Option<(RelPath, OwnedFd)>,
    links: Links,
    relinked: bool,
    /// Files that others replaced: their paths in `tmp/`, with sizes.
    replaced: Vec<(PathBuf, u64)>,
    /// Names in `tmp/` begin with it.
    prefix: String,
    made: u32,
}

impl<'a> Applier<'a> {
    fn begin(dir: &'a Path, tmp: &'a Path, record: &JournalRecord) -> io::Result<Self> {
        if !matches!(session_json::read(dir), Ok(Some(_))) {
            make_dir(dir)?;
            let about = SessionJson {
                owner: record.owner.clone(),
                session_id: record.session.clone(),
                closed: false,
            };
            session_json::write(dir, tmp, &about, false)?;
        }
        let files = dir.join("files");
        let open = |path: &Path| rustix::fs::open(path, DIR, Mode::empty());
        let files = match open(&files) {
            Err(Errno::NOENT) => {
                make_dir(&files)?;
                open(&files)?
            }
            other => other?,
        };
        Ok(Self {
            dir,
            tmp,
            tmp_fd: open(tmp)?,
            files,
            open: None,
            links: links::read(dir)?,
            relinked: false,
            replaced: Vec::new(),
            prefix: crate::id::random_hex::<10>(),
            made: 0,
        })
    }

    fn finish(mut self) -> io::Result<Vec<(PathBuf, u64)>> {
        if self.relinked {
            let staged = self.tmp.join(self.name());
            links::write(self.dir, &staged, &self.links)?;
        }
        Ok(self.replaced)
    }

    /// A new name in `tmp/`.
    fn name(&mut self) -> String {
        self.made += 1;
        format!("{}{:08x}", self.prefix, self.made)
    }

    fn step(&mut self, op: &JournalOp, blob: &mut &[u8]) -> io::Result<()> {
        match op {
            JournalOp::Remove(path) => {
                let links = self.links.len();
                path.remove_from(&mut self.links);
                self.relinked |= links != self.links.len();
                if self.enter(path.parent().as_ref(), false)? {
                    self.clear(path)?;
                }
            }
            JournalOp::Dir(entry) => {
                self.relinked |= links::give_way_above(&mut self.links, &entry.path);
                self.enter(Some(&entry.path), true)?;
                // The daemon must be able to use the directory, whatever mode the program gave it.
                rustix::fs::fchmod(self.at(), Mode::from_raw_mode(entry.mode & 0o777 | 0o700))?;
            }
            JournalOp::Link(entry) => {
                let EntryKind::Link(target) = &entry.kind else { return Err(invalid()) };
                self.make_way(&entry.path)?;
                self.clear(&entry.path)?;
                self.links.insert(entry.path.clone(), target.clone());
                self.relinked = true;
            }
            JournalOp::Inline(entry) => {
                let EntryKind::File(size) = entry.kind else { return Err(invalid()) };
                let cut = usize::try_from(size).ok().and_then(|size| blob.split_at_checked(size));
                let content;
                (content, *blob) = cut.ok_or_else(invalid)?;
                self.make_way(&entry.path)?;
                if !self.rewrite(entry, content)? {
                    self.write(entry, content)?;
                }
            }
            JournalOp::Staged(entry, source) => {
                if !is_staged_name(source) {
                    return Err(invalid());
                }
                self.make_way(&entry.path)?;
                // Link it under a second name: a replay needs the source until the next checkpoint.
                let name = self.name();
                rustix::fs::linkat(&self.tmp_fd, source.as_str(), &self.tmp_fd, &name, AtFlags::empty())?;
                self.place(&name, &entry.path)?;
            }
            JournalOp::Forget => {}
        }
        Ok(())
    }

    /// Makes the directories above a new entry, and removes links that are in its way.
    fn make_way(&mut self, path: &RelPath) -> io::Result<()> {
        self.relinked |= links::give_way(&mut self.links, path);
        self.enter(path.parent().as_ref(), true).map(drop)
    }

    /// Writes over the existing file, if it has blocks enough for the new content, no second name, and no
    /// reader. This takes a quarter of the time of a new file, and leaves no old one to free: on ext4, after
    /// a thousand files were freed, the next thousand new ones take a second, since for a minute ext4 looks
    /// at every freed inode.
    fn rewrite(&mut self, entry: &Entry, content: &[u8]) -> io::Result<bool> {
        let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let name = file_name(&entry.path);
        let Ok(file) = rustix::fs::openat(self.at(), name, flags, Mode::empty()) else { return Ok(false) };
        let stat = rustix::fs::fstat(&file)?;
        let room = u64::try_from(stat.st_blocks).unwrap_or(0) * 512;
        let fits = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
            && stat.st_nlink == 1
            && content.len() as u64 <= room
            && is_past(stat.st_ctime, stat.st_ctime_nsec)
            && flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok();
        if !fits {
            return Ok(false);
        }
        let file = File::from(file);
        let written = file.write_all_at(content, 0).and_then(|()| file.set_len(content.len() as u64));
        written.and_then(|()| dress(&file, entry)).inspect_err(|_| {
            // No file is better than half of the old and half of the new one; the journal has the content.
            let _ = rustix::fs::unlinkat(self.at(), name, AtFlags::empty());
        })?;
        Ok(true)
    }

    /// Writes a file and links it into the current directory. Where the file system allows it, the file has
    /// no name before: a fifth quicker than a name in `tmp/`, and a crash leaves nothing behind.
    fn write(&mut self, entry: &Entry, content: &[u8]) -> io::Result<()> {
        let unnamed = OFlags::WRONLY | OFlags::TMPFILE | OFlags::CLOEXEC;
        let file = match rustix::fs::openat(&self.tmp_fd, ".", unnamed, OWN) {
            Ok(file) => File::from(file),
            Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL | Errno::NOENT) => {
                return self.write_named(entry, content);
            }
            Err(error) => return Err(error.into()),
        };
        fill(&file, entry, content)?;
        let own = format!("/proc/self/fd/{}", file.as_raw_fd());
        let link = |to: &OwnedFd, name: &OsStr| {
            rustix::fs::linkat(CWD, own.as_str(), to, name, AtFlags::SYMLINK_FOLLOW)
        };
        match link(self.at(), file_name(&entry.path)) {
            Err(Errno::EXIST) => {
                let name = self.name();
                link(&self.tmp_fd, OsStr::new(&name))?;
                self.place(&name, &entry.path)
            }
            Err(Errno::NOENT) => self.write_named(entry, content), // /proc is not mounted
            other => Ok(other?),
        }
    }

    fn write_named(&mut self, entry: &Entry, content: &[u8]) -> io::Result<()> {
        let name = self.name();
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let file = File::from(rustix::fs::openat(&self.tmp_fd, &name, flags, OWN)?);
        fill(&file, entry, content).inspect_err(|_| self.unstage(&name))?;
        self.place(&name, &entry.path)
    }

    /// Removes a name in `tmp/`, if it exists; a failure is left to the next start.
    fn unstage(&self, name: &str) {
        if let Err(Errno::ISDIR) = rustix::fs::unlinkat(&self.tmp_fd, name, AtFlags::empty()) {
            let _ = fs::remove_dir_all(self.tmp.join(name));
        }
    }

    /// Moves a file from `tmp/` into the current directory; whatever has its name there is removed, even a
    /// whole directory. The two are exchanged, because ext4 writes a new file out at once where it is renamed
    /// over an old one, which takes as long as a sync.
    fn place(&mut self, name: &str, path: &RelPath) -> io::Result<()> {
        let rename = |flags| rustix::fs::renameat_with(&self.tmp_fd, name, self.at(), file_name(path), flags);
        let placed = match rename(RenameFlags::NOREPLACE) {
            Ok(()) => return Ok(()),
            Err(Errno::EXIST) => match rename(RenameFlags::EXCHANGE) {
                Ok(()) => {
                    self.replaced(name);
                    return Ok(());
                }
                Err(error) => Err(error.into()),
            },
            // The file system knows only the plain rename.
            Err(Errno::INVAL) => self.clear(path).and_then(|()| Ok(rename(RenameFlags::empty())?)),
            Err(error) => Err(error.into()),
        };
        self.unstage(name);
        placed
    }

    /// Handles a file of this name in `tmp/` that was replaced: a directory is removed at once, a file later.
    fn replaced(&mut self, name: &str) {
        let stat = rustix::fs::statat(&self.tmp_fd, name, AtFlags::SYMLINK_NOFOLLOW);
        match stat {
            Ok(stat) if FileType::from_raw_mode(stat.st_mode) != FileType::Directory => {
                self.replaced.push((self.tmp.join(name), u64::try_from(stat.st_size).unwrap_or(0)));
            }
            Ok(_) | Err(_) => self.unstage(name),
        }
    }

    /// Removes whatever is at `path` in the current directory.
    fn clear(&self, path: &RelPath) -> io::Result<()> {
        match rustix::fs::unlinkat(self.at(), file_name(path), AtFlags::empty()) {
            Err(Errno::ISDIR) => {
                fs::remove_dir_all(self.dir.join("files").join(OsStr::from_bytes(path.as_bytes())))
            }
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// The current directory, which [`Applier::enter`] opened last.
    fn at(&self) -> &OwnedFd {
        self.open.as_ref().map_or(&self.files, |(_, fd)| fd)
    }

    /// Makes a directory of the session the current one; `None` is the outermost. False if it does not exist
    /// and `make` is false; otherwise it is made, and a file in the way is removed.
    fn enter(&mut self, dir: Option<&RelPath>, make: bool) -> io::Result<bool> {
        let Some(dir) = dir else {
            self.open = None;
            return Ok(true);
        };
        if self.open.as_ref().is_some_and(|(open, _)| open == dir) {
            return Ok(true);
        }
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        let fd = match rustix::fs::openat2(&self.files, dir.as_bytes(), DIR, Mode::empty(), resolve) {
            Ok(fd) => fd,
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) if !make => return Ok(false),
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => self.make_dirs(dir)?,
            Err(error) => return Err(error.into()),
        };
        self.open = Some((dir.clone(), fd));
        Ok(true)
    }

    fn make_dirs(&self, dir: &RelPath) -> io::Result<OwnedFd> {
        let mut at: Option<OwnedFd> = None;
        for name in dir.components() {
            let above = at.as_ref().unwrap_or(&self.files);
            let open = || rustix::fs::openat(above, name, DIR, Mode::empty());
            let fd = match open() {
                Ok(fd) => fd,
                Err(error @ (Errno::NOENT | Errno::NOTDIR | Errno::LOOP)) => {
                    if error != Errno::NOENT {
                        rustix::fs::unlinkat(above, name, AtFlags::empty())?;
                    }
                    rustix::fs::mkdirat(above, name, Mode::RWXU)?;
                    open()?
                }
                Err(error) => return Err(error.into()),
            };
            at = Some(fd);
        }
        at.ok_or_else(invalid)
    }
}

/// Whether a change made now gets a later time than this one: readers tell two contents apart by their time.
fn is_past(seconds: i64, ns: impl TryInto<i64>) -> bool {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::RealtimeCoarse);
    (now.tv_sec, now.tv_nsec) > (seconds, ns.try_into().unwrap_or(i64::MAX))
}

fn fill(mut file: &File, entry: &Entry, content: &[u8]) -> io::Result<()> {
    file.write_all(content)?;
    dress(file, entry)
}

/// Gives a file the mode and the time of its entry.
pub(super) fn dress(file: &File, entry: &Entry) -> io::Result<()> {
    // The daemon must be able to read the file again, whatever mode the program gave it.
    rustix::fs::fchmod(file, Mode::from_raw_mode(entry.mode & 0o777 | 0o400))?;
    let modified = Timespec {
        tv_sec: entry.mtime_ns.div_euclid(1_000_000_000),
        tv_nsec: entry.mtime_ns.rem_euclid(1_000_000_000),
    };
    let omit = Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT };
    rustix::fs::futimens(file, &Timestamps { last_access: omit, last_modification: modified })?;
    Ok(())
}

fn file_name(path: &RelPath) -> &OsStr {
    OsStr::from_bytes(path.file_name())
}

fn invalid() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the record contradicts itself")
}

#[cfg(test)]
mod tests {
    use rustix::time::{ClockId, clock_gettime};

    use super::is_past;

    #[test]
    fn a_file_changed_at_this_moment_is_not_written_over() {
        // A reader that compares times would miss the change. Several tries: the clock may step in between.
        let same_step = || {
            let now = clock_gettime(ClockId::RealtimeCoarse);
            !is_past(now.tv_sec, now.tv_nsec)
        };
        assert!((0..100).any(|_| same_step()));
        let now = clock_gettime(ClockId::RealtimeCoarse);
        assert!(is_past(now.tv_sec - 1, now.tv_nsec));
        assert!(!is_past(now.tv_sec + 60, 0));
    }
}
