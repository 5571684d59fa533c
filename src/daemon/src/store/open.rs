//! Files of sessions, opened for readers. A reader names a file, and never learns where it is.
//!
//! A file is opened component by component, without following links, and holds a shared lock as long as it is
//! open: what is written over it meanwhile becomes another file. It must never open anything but a regular
//! file.

use std::fs::{File, Metadata};
use std::io;
use std::path::Path;

use paddock_proto::RelPath;
use rustix::fs::{FlockOperation, Mode, OFlags, ResolveFlags, flock};

use super::execution_files::{self, DIFF};
use super::remote::Wanted;
use super::{Space, Store, session_json};

/// A file that the store keeps for a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SavedFile<'a> {
    /// A file of `/data`. Opening it is a use of the session.
    Data(&'a RelPath),
    /// The whole output of a run, by the run's id.
    Log(&'a str),
    /// What a task changed, by the execution's id.
    Diff(&'a str),
}

impl Store {
    /// Opens a file of a session for reading, with its metadata. Where there is one machine,
    /// the session is not loaded. It may block.
    ///
    /// # Errors
    /// What the file system says; `NotFound` also for anything that is no regular file.
    pub fn open_file(&self, owner: &str, session: &str, file: SavedFile<'_>) -> io::Result<(File, Metadata)> {
        let dir = self.session_dir(owner, session);
        self.bring_for_reader(owner, session)?;
        match file {
            SavedFile::Data(path) => {
                open_beneath(&dir.join("files"), path.as_bytes()).inspect(|_| session_json::touch(&dir))
            }
            SavedFile::Log(run_id) => open_beneath(&dir.join("logs"), format!("{run_id}.log").as_bytes()),
            SavedFile::Diff(id) => {
                open_beneath(&dir.join(execution_files::FOLDER), format!("{id}.{DIFF}").as_bytes())
            }
        }
    }
}

impl Store {
    /// In a store of many machines, a reader gets only what this node owns and has.
    fn bring_for_reader(&self, owner: &str, session: &str) -> io::Result<()> {
        if self.ledger().is_none() {
            return Ok(());
        }
        let space = self.shared.space(owner, session);
        if space.check_hold().is_ok() {
            return Ok(());
        }
        let _lock = space.lock_blocking();
        let is_there =
            space.ready().and_then(|()| space.secure(Wanted::Existing)).map_err(io::Error::other)?;
        if is_there { Ok(()) } else { Err(io::ErrorKind::NotFound.into()) }
    }
}

impl Space {
    /// Opens a saved file for reading. It may block.
    ///
    /// # Errors
    /// As [`Store::open_file`].
    pub fn open(&self, path: &RelPath) -> io::Result<File> {
        open_beneath(&self.files(), path.as_bytes()).map(|(file, _)| file)
    }
}

/// Checks that saved files can be opened: a filter of system calls can take `openat2` away, and then files
/// would be written that nobody can read.
///
/// # Errors
/// What opening the folder itself, as every file is opened, says.
pub(super) fn check(on: &File) -> io::Result<()> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    match rustix::fs::openat2(on, c".", flags, Mode::empty(), ResolveFlags::BENEATH) {
        Ok(_) => Ok(()),
        Err(rustix::io::Errno::NOSYS) => Err(io::Error::other(
            "the system call openat2 is missing, by which saved files are opened: it needs Linux 5.6, and \
             RestrictSUIDSGID= in a unit of systemd takes it away",
        )),
        Err(error) => Err(error.into()),
    }
}

fn open_beneath(dir: &Path, path: &[u8]) -> io::Result<(File, Metadata)> {
    let dir = rustix::fs::open(dir, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOFOLLOW;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let file = File::from(rustix::fs::openat2(&dir, path, flags, Mode::empty(), resolve)?);
    // A writer holds its lock for microseconds. On a file system without locks, files are never written over.
    let _ = flock(&file, FlockOperation::LockShared);
    let metadata = file.metadata()?;
    if metadata.is_file() { Ok((file, metadata)) } else { Err(io::ErrorKind::NotFound.into()) }
}
