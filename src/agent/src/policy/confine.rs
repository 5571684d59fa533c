//! Puts the program under its policy: in its own process, after the fork and before the exec.
//!
//! Landlock forbids every change of a file system by a path, without exception: PID 1 gives the program
//! descriptors of what it may write, or makes the change itself. So a call that the filter misses is refused,
//! not allowed. Landlock also keeps the program from looking into processes that are not under the policy.
//! The program must never start where any of this failed.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;

use landlock::{
    ABI, AccessFs, BitFlags, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset, RulesetAttr,
    RulesetCreated, RulesetCreatedAttr, RulesetError,
};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags,
};

use super::notify;

/// The first version of Landlock that can forbid `truncate`.
const LANDLOCK: ABI = ABI::V3;

/// What confines a program; PID 1 makes it beforehand.
pub(crate) struct Confinement {
    pub(super) filter: Vec<libc::sock_filter>,
    /// The listener is sent over this.
    pub(super) socket: OwnedFd,
    pub(super) sockets: Sockets,
}

/// Where the program may make Unix sockets with a name. PID 1 cannot make them for another process, so
/// Landlock decides.
pub(super) enum Sockets {
    Anywhere,
    /// Only below these directories.
    Below(Vec<PathBuf>),
}

impl Confinement {
    /// The descriptor to keep open until then.
    pub(crate) fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Confines this process, and all that it starts, from now on.
    ///
    /// # Errors
    /// The system's; the program must then not start.
    pub(crate) fn enter(&self) -> io::Result<()> {
        self.landlock().map_err(|error| {
            use std::error::Error;
            let mut cause: Option<&(dyn Error + 'static)> = Some(&error);
            while let Some(error) = cause {
                if let Some(errno) = error.downcast_ref::<io::Error>().and_then(io::Error::raw_os_error) {
                    return io::Error::from_raw_os_error(errno);
                }
                cause = error.source();
            }
            io::Error::from_raw_os_error(libc::EOPNOTSUPP)
        })?;
        let listener = notify::install(&self.filter)?;
        send(self.socket.as_fd(), &listener)
    }

    fn landlock(&self) -> Result<(), RulesetError> {
        let mut handled: BitFlags<AccessFs> = AccessFs::from_write(LANDLOCK);
        if matches!(self.sockets, Sockets::Anywhere) {
            handled.remove(AccessFs::MakeSock);
        }
        let ruleset =
            Ruleset::default().set_compatibility(CompatLevel::HardRequirement).handle_access(handled)?;
        let mut ruleset: RulesetCreated = ruleset.create()?;
        if let Sockets::Below(dirs) = &self.sockets {
            for dir in dirs.iter().filter_map(|dir| PathFd::new(dir).ok()) {
                ruleset = ruleset.add_rule(PathBeneath::new(dir, AccessFs::MakeSock))?;
            }
        }
        ruleset.restrict_self().map(|_| ())
    }
}

fn send(socket: BorrowedFd<'_>, listener: &OwnedFd) -> io::Result<()> {
    let fds = [listener.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    control.push(SendAncillaryMessage::ScmRights(&fds));
    let sent = rustix::net::sendmsg(socket, &[IoSlice::new(b"l")], &mut control, SendFlags::NOSIGNAL)?;
    if sent == 1 { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
}

/// Receives what [`send`] sent; `None` if the process ended before.
pub(super) fn receive(socket: BorrowedFd<'_>) -> io::Result<Option<OwnedFd>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let mut into = [IoSliceMut::new(&mut byte)];
    rustix::net::recvmsg(socket, &mut into, &mut control, RecvFlags::CMSG_CLOEXEC)?;
    Ok(control.drain().find_map(|message| {
        if let RecvAncillaryMessage::ScmRights(mut fds) = message { fds.next() } else { None }
    }))
}
