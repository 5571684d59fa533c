//! Opening for a caller: the object is found, judged, and opened again as itself, not by its path.
//!
//! ```text
//!  path ─► O_PATH descriptor ─► judged by where it is ─► opened through /proc/self/fd ─► given to the caller
//!     └──► a name that nothing has ─► judged by its directory ─► made with O_EXCL there ─┘
//! ```
//!
//! PID 1 must never wait in an open: it opens with `O_NONBLOCK`, and tries an open that would have waited (of
//! a named pipe with nobody at its other end, of a file with a lease) again later. Nor may PID 1 get a
//! controlling terminal that way.

use std::os::fd::{AsRawFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{CWD, FileType, Mode, OFlags, Stat, fcntl_getfl, fcntl_setfl, openat};
use rustix::io::Errno;

use super::judge::{self, Access, WRITE};
use super::rules::Rules;
use super::walk::{self, WalkEnd, is};
use crate::intercept::CallingProcess;

/// How often a name is looked for again that another process made or removed meanwhile.
const TRIES: u32 = 8;

/// An open as the caller asked for it.
pub(super) struct OpenRequest {
    pub(super) dir: i32,
    pub(super) path: u64,
    pub(super) flags: OFlags,
    pub(super) mode: Mode,
}

/// What came of it.
pub(super) enum Opened {
    Now(OwnedFd),
    /// The caller may have it, but it would wait.
    Later(PendingOpen),
}

/// An open that would have waited.
pub(super) struct PendingOpen {
    object: OwnedFd,
    flags: OFlags,
    /// It is open already, and waits for a process at the other end.
    reading: Option<OwnedFd>,
    is_fifo: bool,
}

/// Opens what a caller asks for, if it may.
pub(super) fn open(rules: &Rules, caller: &CallingProcess<'_>, asked: &OpenRequest) -> Result<Opened, Errno> {
    let path = caller.path(asked.path)?;
    let flags = asked.flags;
    let (makes, only) = (flags.contains(OFlags::CREATE), flags.contains(OFlags::EXCL));
    if makes && flags.contains(OFlags::DIRECTORY) && !flags.contains(OFlags::TMPFILE) {
        return Err(Errno::INVAL);
    }
    let access = access(flags);
    let follow = !(flags.contains(OFlags::NOFOLLOW) || makes && only);
    let on_link = |place: &[u8]| judge::link(rules, place, Access { write: access.write || makes, ..access });
    for _ in 0..TRIES {
        match walk::object(caller, asked.dir, &path, follow, &on_link)? {
            WalkEnd::Object(..) if makes && only && !flags.contains(OFlags::TMPFILE) => {
                return Err(Errno::EXIST);
            }
            WalkEnd::Object(_, stat) if is(&stat, FileType::Symlink) => return Err(Errno::LOOP),
            WalkEnd::Object(dir, _) if flags.contains(OFlags::TMPFILE) => {
                return nameless(rules, caller, &dir, asked);
            }
            WalkEnd::Object(_, stat) if makes && is(&stat, FileType::Directory) => return Err(Errno::ISDIR),
            WalkEnd::Object(object, stat) => {
                judge::object(rules, caller, &object, &stat, access)?;
                caller.is_waiting()?;
                return existing(object, &stat, flags);
            }
            WalkEnd::Missing(..) if !makes => return Err(Errno::NOENT),
            WalkEnd::Missing(dir, name) => {
                judge::name(rules, &dir, &name, WRITE)?;
                let umask = caller.umask()?;
                caller.is_waiting()?;
                let flags = flags | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::NOCTTY | OFlags::CLOEXEC;
                match masked(umask, || openat(&dir, name.as_slice(), flags | OFlags::NONBLOCK, asked.mode)) {
                    // Another process made it first: the name is looked for again.
                    Err(Errno::EXIST) if !only => {}
                    made => return ready(made?, asked.flags),
                }
            }
        }
    }
    Err(Errno::AGAIN)
}

fn access(flags: OFlags) -> Access {
    let access = flags & OFlags::RWMODE;
    let write = access != OFlags::RDONLY || flags.contains(OFlags::TRUNC);
    Access { read: access != OFlags::WRONLY, write }
}

/// A file without a name, in this directory.
fn nameless(
    rules: &Rules,
    caller: &CallingProcess<'_>,
    dir: &OwnedFd,
    asked: &OpenRequest,
) -> Result<Opened, Errno> {
    judge::path(rules, &walk::place(dir)?, WRITE)?;
    let umask = caller.umask()?;
    caller.is_waiting()?;
    let flags = (asked.flags | OFlags::CLOEXEC) - OFlags::NOFOLLOW;
    ready(masked(umask, || openat(CWD, itself(dir), flags, asked.mode))?, asked.flags)
}

/// Opens what is there, as itself.
fn existing(object: OwnedFd, stat: &Stat, flags: OFlags) -> Result<Opened, Errno> {
    // A pipe without a name always has, or had, a process at its other end.
    let is_fifo = is(stat, FileType::Fifo) && walk::place(&object)?.starts_with(b"/");
    let waits = !flags.contains(OFlags::NONBLOCK);
    match again(&object, flags) {
        Ok(fd) if is_fifo && waits && flags & OFlags::RWMODE == OFlags::RDONLY => {
            if has_news(&fd) {
                ready(fd, flags)
            } else {
                later(object, flags, Some(fd), is_fifo)
            }
        }
        Err(Errno::NXIO) if is_fifo && waits => later(object, flags, None, is_fifo),
        Err(Errno::AGAIN) if waits => later(object, flags, None, is_fifo),
        fd => ready(fd?, flags),
    }
}

#[expect(clippy::unnecessary_wraps, reason = "one arm of several that can fail")]
fn later(object: OwnedFd, flags: OFlags, reading: Option<OwnedFd>, is_fifo: bool) -> Result<Opened, Errno> {
    Ok(Opened::Later(PendingOpen { object, flags, reading, is_fifo }))
}

impl PendingOpen {
    /// Tries again; `None` as long as it would still wait.
    pub(super) fn look(&mut self) -> Option<Result<OwnedFd, Errno>> {
        let fd = match self.reading.take() {
            Some(fd) if has_news(&fd) => Ok(fd),
            Some(fd) => {
                self.reading = Some(fd);
                return None;
            }
            None => match again(&self.object, self.flags) {
                Err(Errno::NXIO) if self.is_fifo => return None,
                Err(Errno::AGAIN) => return None,
                fd => fd,
            },
        };
        Some(fd.and_then(|fd| settled(fd, self.flags)))
    }

    pub(super) fn close_on_exec(&self) -> bool {
        self.flags.contains(OFlags::CLOEXEC)
    }
}

/// Opens an object again, by its descriptor.
pub(super) fn again(object: &OwnedFd, flags: OFlags) -> Result<OwnedFd, Errno> {
    let flags = flags - (OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW);
    let flags = flags | OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK;
    openat(CWD, itself(object), flags, Mode::empty())
}

/// Whether a pipe has bytes, or had a writer that is gone.
fn has_news(fd: &OwnedFd) -> bool {
    let now = rustix::time::Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut [PollFd::new(fd, PollFlags::IN)], Some(&now)).is_ok_and(|ready| ready > 0)
}

fn ready(fd: OwnedFd, asked: OFlags) -> Result<Opened, Errno> {
    settled(fd, asked).map(Opened::Now)
}

/// Gives it the flags that the caller asked for.
fn settled(fd: OwnedFd, asked: OFlags) -> Result<OwnedFd, Errno> {
    if !asked.contains(OFlags::NONBLOCK) {
        let flags = fcntl_getfl(&fd)?;
        fcntl_setfl(&fd, flags - OFlags::NONBLOCK)?;
    }
    Ok(fd)
}

/// The name by which the kernel gives the very object of a descriptor.
pub(super) fn itself(fd: &OwnedFd) -> String {
    format!("/proc/self/fd/{}", fd.as_raw_fd())
}

/// Makes something with the caller's umask in place of PID 1's.
pub(super) fn masked<T>(umask: Mode, make: impl FnOnce() -> T) -> T {
    let own = rustix::process::umask(umask);
    let made = make();
    rustix::process::umask(own);
    made
}
