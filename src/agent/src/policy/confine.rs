//! Putting the program under its policy: done in its own process, after the fork and before the exec.
//!
//! Landlock forbids all that changes a file system by a path, and names no exception: what a program may write it gets
//! from PID 1 as a descriptor, or PID 1 does it. A call that the filter should forget is so refused, not allowed. It also
//! keeps the program from looking into processes that are not under the policy. It must never let the program start when
//! any of it could not be had.

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

/// The first Landlock that knows of cutting a file short.
const LANDLOCK: ABI = ABI::V3;

/// What a program is put under; made by PID 1 beforehand.
pub(crate) struct Confinement {
    pub(super) filter: Vec<libc::sock_filter>,
    /// Where the listener goes.
    pub(super) socket: OwnedFd,
    pub(super) sockets: Sockets,
}

/// Where a Unix socket with a name may be made: PID 1 cannot do that for another process, so Landlock says it.
pub(super) enum Sockets {
    Anywhere,
    /// Only below these.
    Below(Vec<PathBuf>),
}

impl Confinement {
    /// The descriptor to keep open until then.
    pub(crate) fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// From here on this process, and all that it starts, is under the policy.
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

/// What [`send`] sent; nothing if the process ended before.
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
