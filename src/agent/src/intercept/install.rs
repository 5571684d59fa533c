//! Puts a program under its filter and into its Landlock domain: in its own process, after the fork and
//! before the exec.
//!
//! ```text
//!  PID 1: builds filter and ruleset ─► fork ─► fork ─► program: enters the domain, installs the filter,
//!    receives the listener ◄── SCM_RIGHTS ─────────────────────── sends its listener, exec
//! ```
//!
//! The program must never start where any of this failed, and its listener must never stay open in it.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::rc::Rc;

use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, socketpair,
};

use super::filter::{Stops, program};
use super::{domain, notify};
use crate::sys::EXTRA_FD;

/// What confines a program; PID 1 makes it beforehand.
pub(crate) struct Confinement {
    /// Its Landlock domain, where the kernel has one.
    ruleset: Option<Rc<OwnedFd>>,
    /// What it may execute, as a domain within that.
    execute: Option<OwnedFd>,
    filter: Rc<[libc::sock_filter]>,
    /// The filter in its place where the kernel cannot stop calls.
    silent: Rc<[libc::sock_filter]>,
    listener: Listener,
}

/// Where the listener of a filter goes.
enum Listener {
    /// The filter stops nothing.
    None,
    /// Over this socket; the program does not start without one.
    Needed(OwnedFd),
    /// Over this socket. Where the kernel gives none, the program starts, and its calls are not stopped.
    Wanted(OwnedFd),
}

/// PID 1's end of the socket over which a listener comes.
pub(crate) struct ListenerSocket(pub(super) OwnedFd);

impl Confinement {
    /// Of a program whose calls nobody answers.
    pub(crate) fn silent() -> Self {
        Self {
            ruleset: domain::own(),
            execute: None,
            filter: nothing_stopped(),
            silent: nothing_stopped(),
            listener: Listener::None,
        }
    }

    /// Of a program whose calls nobody answers, with what the filter refuses by itself.
    pub(crate) fn refusing(stops: Stops) -> Self {
        let silent: Rc<[_]> = program(stops.silent()).into();
        Self { filter: silent.clone(), silent, ..Self::silent() }
    }

    /// Of a program whose calls PID 1 answers.
    ///
    /// # Errors
    /// The system's, where no socket is left.
    pub(crate) fn stopped(stops: Stops) -> io::Result<(Self, ListenerSocket)> {
        let (socket, other) = pair()?;
        let listener = Listener::Needed(socket);
        let filter = program(stops).into();
        Ok((Self { filter, listener, ..Self::refusing(stops) }, ListenerSocket(other)))
    }

    /// The same, but it starts also where the kernel cannot stop calls.
    pub(crate) fn or_silent(self) -> Self {
        let listener = match self.listener {
            Listener::Needed(socket) | Listener::Wanted(socket) => Listener::Wanted(socket),
            Listener::None => Listener::None,
        };
        Self { listener, ..self }
    }

    /// The same confinement with this ruleset for its domain, in place of the ruleset that forbids nothing.
    pub(crate) fn within(self, ruleset: OwnedFd) -> Self {
        Self { ruleset: Some(Rc::new(ruleset)), ..self }
    }

    /// The same confinement, with these rules for what it may execute.
    pub(crate) fn executing(self, ruleset: OwnedFd) -> Self {
        Self { execute: Some(ruleset), ..self }
    }

    /// The descriptors to keep open until then; −1 where there is none.
    pub(crate) fn descriptors(&self) -> [RawFd; 3] {
        let socket = match &self.listener {
            Listener::None => -1,
            Listener::Needed(socket) | Listener::Wanted(socket) => socket.as_raw_fd(),
        };
        let ruleset = self.ruleset.as_ref().map_or(-1, |ruleset| ruleset.as_raw_fd());
        [ruleset, self.execute.as_ref().map_or(-1, AsRawFd::as_raw_fd), socket]
    }

    /// Confines this process, and all that it starts, from now on.
    ///
    /// # Errors
    /// The system's; the program must then not start.
    pub(crate) fn enter(&self) -> io::Result<()> {
        rustix::thread::set_no_new_privs(true)?;
        if let Some(ruleset) = &self.ruleset {
            domain::enter(ruleset.as_fd())?;
        }
        if let Some(ruleset) = &self.execute {
            domain::enter(ruleset.as_fd())?;
        }
        match &self.listener {
            Listener::None => notify::install_without_listener(&self.filter),
            Listener::Needed(socket) => send(socket.as_fd(), &notify::install(&self.filter)?),
            Listener::Wanted(socket) => match notify::install(&self.filter) {
                Ok(listener) => send(socket.as_fd(), &listener),
                Err(_) => notify::install_without_listener(&self.silent),
            },
        }
    }
}

/// The filter that stops nothing; made once.
fn nothing_stopped() -> Rc<[libc::sock_filter]> {
    thread_local!(static FILTER: Rc<[libc::sock_filter]> = program(Stops::default()).into());
    FILTER.with(Rc::clone)
}

fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let (one, other) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    // Above the numbers that the program's own descriptors will have.
    Ok((rustix::io::fcntl_dupfd_cloexec(&one, EXTRA_FD + 1)?, other))
}

fn send(socket: BorrowedFd<'_>, listener: &OwnedFd) -> io::Result<()> {
    let fds = [listener.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    control.push(SendAncillaryMessage::ScmRights(&fds));
    let sent = rustix::net::sendmsg(socket, &[IoSlice::new(b"l")], &mut control, SendFlags::NOSIGNAL)?;
    if sent == 1 { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
}

/// Receives what [`send`] sent; `None` if the process ended before, or had no listener to send.
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
