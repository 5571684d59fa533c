//! Puts a record of the journal in place.
//!
//! Each file is written in `tmp/` and renamed, or linked there from `tmp/`, so nobody ever sees half of one. A
//! record that was applied in part, or more than once, or over a later state, may be applied again: what it says
//! of a path does not depend on what is there. Directories are opened one component at a time; a link of the host
//! is in the way like a file, and never followed. Nothing is synced here: the journal is what is durable.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use paddock_proto::RelPath;
use paddock_proto::message::{Entry, EntryKind};
use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, RenameFlags, ResolveFlags, Stat, Timespec, Timestamps, UTIME_OMIT,
};
use rustix::io::Errno;

use super::about::{self, About};
use super::links::{self, Links};
use super::record::{Op, Record, is_staged_name};
use super::{StoreError, hash, make_dir};

const DIR: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// What was replaced waits in `tmp/` under names that begin so.
const REPLACED: &str = "replaced-";

/// Up to so many bytes: what waits is bounded by what the journal holds.
const REPLACED_MAX: i64 = 64 * 1024;

/// Takes away what was replaced. Whatever is left goes the next time.
pub(super) fn drop_replaced(tmp: &Path) {
    for entry in fs::read_dir(tmp).into_iter().flatten().flatten() {
        if entry.file_name().as_bytes().starts_with(REPLACED.as_bytes()) {
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// Applies a record to the store at `root`.
///
/// # Errors
/// What the file system says; the record is then to be applied again as a whole.
pub(super) fn apply(root: &Path, tmp: &Path, record: &Record) -> Result<(), StoreError> {
    let dir = root.join(hash(&record.owner, &record.session));
    let mut blob = &record.blob[..];
    let mut applier: Option<Applier> = None;
    for op in &record.ops {
        if *op == Op::Forget {
            applier = None;
            forget(&dir, tmp).map_err(StoreError::io(format!("cannot delete {}", dir.display())))?;
            continue;
        }
        let what = || match op {
            Op::Remove(path) => format!("cannot remove {path:?}"),
            Op::Dir(entry) | Op::Link(entry) | Op::Inline(entry) | Op::Staged(entry, _) => {
                format!("cannot save {:?}", entry.path)
            }
            Op::Forget => format!("cannot delete {}", dir.display()),
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
    applier.map_or(Ok(()), finish).map_err(StoreError::io(format!("cannot save {}", dir.display())))
}

/// Moved away at once; what it held goes as it can, at the latest at the next start.
fn forget(dir: &Path, tmp: &Path) -> io::Result<()> {
    let aside = tmp.join(crate::id::random_hex::<12>());
    match fs::rename(dir, &aside) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        other => other?,
    }
    if let Err(error) = fs::remove_dir_all(&aside) {
        tracing::warn!(%error, "what is left of a deleted session goes at the next start");
    }
    Ok(())
}

/// A session while a record is applied to it.
struct Applier<'a> {
    dir: &'a Path,
    tmp: &'a Path,
    tmp_fd: OwnedFd,
    files: OwnedFd,
    /// The directory that was used last: files mostly come directory by directory.
    open: Option<(RelPath, OwnedFd)>,
    links: Links,
    relinked: bool,
    /// Names in `tmp/` begin so.
    prefix: String,
    made: u32,
}

impl<'a> Applier<'a> {
    fn begin(dir: &'a Path, tmp: &'a Path, record: &Record) -> io::Result<Self> {
        if !matches!(about::read(dir), Ok(Some(_))) {
            make_dir(dir)?;
            let about =
                About { owner: record.owner.clone(), session_id: record.session.clone(), closed: false };
            about::write(dir, tmp, &about, false)?;
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
            prefix: crate::id::random_hex::<10>(),
            made: 0,
        })
    }

    fn finish(mut self) -> io::Result<()> {
        if self.relinked {
            let staged = self.tmp.join(self.name());
            links::write(self.dir, &staged, &self.links)?;
        }
        Ok(())
    }

    /// A name in `tmp/` that nobody has.
    fn name(&mut self) -> String {
        self.made += 1;
        format!("{}{:08x}", self.prefix, self.made)
    }

    fn step(&mut self, op: &Op, blob: &mut &[u8]) -> io::Result<()> {
        match op {
            Op::Remove(path) => {
                let links = self.links.len();
                path.remove_from(&mut self.links);
                self.relinked |= links != self.links.len();
                if self.enter(path.parent().as_ref(), false)? {
                    self.clear(path)?;
                }
            }
            Op::Dir(entry) => {
                self.relinked |= links::give_way_above(&mut self.links, &entry.path);
                self.enter(Some(&entry.path), true)?;
                // The daemon must be able to use it, whatever the program made of it.
                rustix::fs::fchmod(self.at(), Mode::from_raw_mode(entry.mode & 0o777 | 0o700))?;
            }
            Op::Link(entry) => {
                let EntryKind::Link(target) = &entry.kind else { return Err(invalid()) };
                self.make_way(&entry.path)?;
                self.clear(&entry.path)?;
                self.links.insert(entry.path.clone(), target.clone());
                self.relinked = true;
            }
            Op::Inline(entry) => {
                let EntryKind::File(size) = entry.kind else { return Err(invalid()) };
                let cut = usize::try_from(size).ok().and_then(|size| blob.split_at_checked(size));
                let content;
                (content, *blob) = cut.ok_or_else(invalid)?;
                self.make_way(&entry.path)?;
                let name = self.name();
                self.write(&name, entry, content)?;
                if !self.exchange(&name, &entry.path)? {
                    self.place(&name, &entry.path)?;
                }
            }
            Op::Staged(entry, source) => {
                if !is_staged_name(source) {
                    return Err(invalid());
                }
                self.make_way(&entry.path)?;
                // By a second name: a replay needs the source again until the next checkpoint.
                let name = self.name();
                rustix::fs::linkat(&self.tmp_fd, source.as_str(), &self.tmp_fd, &name, AtFlags::empty())?;
                self.place(&name, &entry.path)?;
                // Where both were the same file already, the rename did nothing.
                self.unstage(&name);
            }
            Op::Forget => {}
        }
        Ok(())
    }

    /// Makes the directories down to a new entry, and takes links away that it contradicts.
    fn make_way(&mut self, path: &RelPath) -> io::Result<()> {
        self.relinked |= links::give_way(&mut self.links, path);
        self.enter(path.parent().as_ref(), true).map(drop)
    }

    /// Writes a file in `tmp/`.
    fn write(&self, name: &str, entry: &Entry, content: &[u8]) -> io::Result<()> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&self.tmp_fd, name, flags, Mode::RUSR | Mode::WUSR)?;
        let mut file = File::from(file);
        file.write_all(content).and_then(|()| dress(&file, entry)).inspect_err(|_| self.unstage(name))
    }

    /// Takes a name in `tmp/` away; what it cannot, the next start does.
    fn unstage(&self, name: &str) {
        let _ = rustix::fs::unlinkat(&self.tmp_fd, name, AtFlags::empty());
    }

    /// Puts a file in the place of a small one, which stays in `tmp/` to be taken away later; false if there is none.
    /// A plain rename over it would free its blocks and flush the new ones, one file at a time, before the answer.
    fn exchange(&self, name: &str, path: &RelPath) -> io::Result<bool> {
        let there = rustix::fs::statat(self.at(), file_name(path), AtFlags::SYMLINK_NOFOLLOW);
        let is_small = |stat: &Stat| {
            FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile && stat.st_size <= REPLACED_MAX
        };
        if !there.as_ref().is_ok_and(is_small) {
            return Ok(false);
        }
        let (tmp, exchange) = (&self.tmp_fd, RenameFlags::EXCHANGE);
        match rustix::fs::renameat_with(tmp, name, self.at(), file_name(path), exchange) {
            Ok(()) => {}
            // A file system that cannot, or someone took it away.
            Err(Errno::INVAL | Errno::NOENT | Errno::NOSYS) => return Ok(false),
            Err(error) => {
                self.unstage(name);
                return Err(error.into());
            }
        }
        if rustix::fs::renameat(tmp, name, tmp, format!("{REPLACED}{name}")).is_err() {
            self.unstage(name);
        }
        Ok(true)
    }

    /// Moves a file from `tmp/` to its place in the directory that was entered last.
    fn place(&mut self, name: &str, path: &RelPath) -> io::Result<()> {
        let rename = |at: &Self| rustix::fs::renameat(&at.tmp_fd, name, at.at(), file_name(path));
        let placed = match rename(self) {
            Err(Errno::ISDIR) => self.clear(path).and_then(|()| Ok(rename(self)?)),
            other => other.map_err(io::Error::from),
        };
        placed.inspect_err(|_| self.unstage(name))
    }

    /// Removes what is at `path`, whose directory was entered last.
    fn clear(&self, path: &RelPath) -> io::Result<()> {
        match rustix::fs::unlinkat(self.at(), file_name(path), AtFlags::empty()) {
            Err(Errno::ISDIR) => {
                fs::remove_dir_all(self.dir.join("files").join(OsStr::from_bytes(path.as_bytes())))
            }
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// The directory that was entered last.
    fn at(&self) -> &OwnedFd {
        self.open.as_ref().map_or(&self.files, |(_, fd)| fd)
    }

    /// Goes to a directory of the session, `None` for the outermost. False if it is not there and not to be made;
    /// a file in the way goes.
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

/// Gives a file the mode and the time of its entry.
pub(super) fn dress(file: &File, entry: &Entry) -> io::Result<()> {
    // The daemon must be able to read it again, whatever the program made of it.
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
