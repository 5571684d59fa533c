//! Descriptors that a program of the container may share: read, written and closed without ever waiting.
//!
//! ```text
//!  a program's socket ── SCM_RIGHTS ──► PID 1 has the same open file: O_NONBLOCK, SO_RCVLOWAT and SO_LINGER
//!                                       are the program's to set, at any moment
//! ```
//!
//! `O_NONBLOCK` belongs to the open file, so a program that shares it can clear it between two calls. Every
//! call here therefore passes a flag of its own that it must not wait. The last close of a socket waits for
//! as long as its `SO_LINGER` says, and an unread message can hold such sockets: closing the message's socket
//! closes them. No flag prevents that wait, but a signal ends it: see [`briefly`].
//!
//! Of the pipes and lines that PID 1 makes itself, a program has only the other end, which is another open
//! file. It can open a pipe again by `/proc/self/fd`, but that too is an open file of its own; PID 1's own
//! descriptors are closed to it, since PID 1 and its jobs are undumpable. So those ends keep their
//! `O_NONBLOCK`. Sockets can come over a warm part's line, though, so a line is read and closed [`briefly`].
//!
//! A socket's other end that reads makes it writable, which would wake PID 1 once for every message that it
//! sends. So a descriptor is watched for what there is to read, and for room only while there is none.
//!
//! It must never trust `O_NONBLOCK` of a descriptor that came from outside of this process.
#![expect(
    unsafe_code,
    reason = "an interval timer and its handler have no safe form, nor has a descriptor that is watched for \
              one direction only"
)]

use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::pin::Pin;
use std::sync::{Arc, Once};
use std::task::{Context, Poll, ready};

use rustix::fs::{FileType, OFlags, fcntl_getfl, fcntl_setfl, fstat};
use rustix::io::{Errno, ReadWriteFlags, ioctl_fionread, preadv2, pwritev2};
use rustix::net::{RecvFlags, SendFlags, recv, send};
use rustix::pipe::fcntl_setpipe_size;
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::task::coop::poll_proceed;

/// The size that the engine's pipes are given, where the kernel allows it: fewer switches between PID 1 and
/// the engine's shim.
const PIPE_BYTES: usize = 256 * 1024;

/// Bytes to read where it is not known how many there are.
const DEFAULT_READ: usize = 4096;

/// How long a close can wait for a socket of a program, in microseconds.
const TICK_US: libc::suseconds_t = 1000;

/// For `preadv2` and `pwritev2`: where the stream is.
const HERE: u64 = u64::MAX;

/// Runs something that closes a program's socket, or may close one, and lets it wait about a millisecond: a
/// signal comes after that, and again until it is done. Calls must not be nested.
pub(crate) fn briefly<T>(act: impl FnOnce() -> T) -> T {
    extern "C" fn nothing(_: libc::c_int) {}
    static HANDLED: Once = Once::new();
    HANDLED.call_once(|| {
        let nothing: extern "C" fn(libc::c_int) = nothing;
        // SAFETY: the handler does nothing at all.
        unsafe { libc::signal(libc::SIGALRM, nothing as libc::sighandler_t) };
    });
    let every = |us| {
        let time = libc::timeval { tv_sec: 0, tv_usec: us };
        let timer = libc::itimerval { it_interval: time, it_value: time };
        // SAFETY: the kernel reads the structure, which outlives the call.
        unsafe { libc::setitimer(libc::ITIMER_REAL, &raw const timer, std::ptr::null_mut()) };
    };
    every(TICK_US);
    let done = act();
    every(0);
    done
}

/// Something that is dropped [`briefly`], since a program may share it.
pub(crate) struct Brief<T>(ManuallyDrop<T>);

impl<T> Brief<T> {
    pub(crate) fn new(it: T) -> Self {
        Self(ManuallyDrop::new(it))
    }
}

impl<T> Deref for Brief<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> Drop for Brief<T> {
    fn drop(&mut self) {
        // SAFETY: it is dropped once, here, and not used afterwards.
        briefly(|| unsafe { ManuallyDrop::drop(&mut self.0) });
    }
}

/// One direction of a carrier: a pipe or a socket.
pub(crate) struct Foreign {
    fd: Arc<Brief<OwnedFd>>,
    kind: StreamKind,
    /// From the first read on.
    readable: Option<AsyncFd<Watched>>,
    /// While it is full.
    room: Option<AsyncFd<Watched>>,
}

/// A descriptor that stays open for as long as the runtime watches it.
struct Watched(Arc<Brief<OwnedFd>>);

impl AsRawFd for Watched {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StreamKind {
    Pipe,
    Socket,
    /// A socket whose other end only the daemon has.
    DaemonSocket,
}

impl Foreign {
    /// One end of a pair, whose other end no process of the container has.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn to_daemon(fd: OwnedFd) -> io::Result<Self> {
        Ok(Self { kind: StreamKind::DaemonSocket, ..Self::new(Brief::new(fd))? })
    }

    /// Takes a pipe or a socket, and nothing else: calls on other files wait whatever flag they pass.
    ///
    /// # Errors
    /// It is neither; or the system's.
    pub(crate) fn new(fd: Brief<OwnedFd>) -> io::Result<Self> {
        let kind = FileType::from_raw_mode(fstat(&*fd)?.st_mode);
        if kind == FileType::Fifo {
            let _ = fcntl_setpipe_size(&*fd, PIPE_BYTES); // where that is refused, everything works as well
        } else if kind != FileType::Socket {
            return Err(io::Error::other(format!("this connection is no bridge: it handed over a {kind:?}")));
        }
        // For kernels before 6.4, whose pipes know no other way; see `read`.
        fcntl_setfl(&*fd, fcntl_getfl(&*fd)? | OFlags::NONBLOCK)?;
        let kind = if kind == FileType::Fifo { StreamKind::Pipe } else { StreamKind::Socket };
        Ok(Self { fd: Arc::new(fd), kind, readable: None, room: None })
    }

    /// Has the runtime tell when it is ready for this.
    fn watch(&self, interest: Interest) -> io::Result<AsyncFd<Watched>> {
        // SAFETY: the value that is watched owns it: it is open, and the same, until it is watched no more.
        Ok(unsafe { AsyncFd::register_with_interest(Watched(self.fd.clone()), interest) }?)
    }

    fn read(&self, into: &mut [u8]) -> Result<usize, Errno> {
        let fd = &**self.fd;
        let mut receive = || recv(fd, &mut *into, RecvFlags::DONTWAIT).map(|(n, _)| n);
        match self.kind {
            StreamKind::DaemonSocket => return receive(),
            // The kernel closes descriptors that come in a message.
            StreamKind::Socket => return briefly(receive),
            StreamKind::Pipe => {}
        }
        match preadv2(fd, &mut [IoSliceMut::new(into)], HERE, ReadWriteFlags::NOWAIT) {
            // A pipe of an older kernel. Where the runtime shows which process connects (see `init`), it is
            // the engine's, and no process in here shares it.
            Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => rustix::io::read(fd, into),
            read => read,
        }
    }

    fn write(&self, bytes: &[u8]) -> Result<usize, Errno> {
        let fd = &**self.fd;
        if self.kind != StreamKind::Pipe {
            return send(fd, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
        }
        match pwritev2(fd, &[IoSlice::new(bytes)], HERE, ReadWriteFlags::NOWAIT) {
            Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => rustix::io::write(fd, bytes),
            written => written,
        }
    }
}

impl AsyncRead for Foreign {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.readable.is_none() {
            self.readable = Some(self.watch(Interest::READABLE)?);
        }
        let Some(readable) = &self.readable else { return Poll::Ready(Err(ErrorKind::NotConnected.into())) };
        loop {
            let mut ready = ready!(readable.poll_read_ready(cx))?;
            // Clears no more of the buffer than will be filled.
            let waiting = ioctl_fionread(&**self.fd).ok().and_then(|n| usize::try_from(n).ok());
            let room = waiting.unwrap_or(DEFAULT_READ).clamp(1, buf.remaining().max(1));
            match self.read(buf.initialize_unfilled_to(room.min(buf.remaining()))) {
                Ok(n) => {
                    // That was all: the runtime tells when more comes.
                    if waiting == Some(n) && n > 0 {
                        ready.clear_ready();
                    }
                    buf.advance(n);
                    return Poll::Ready(Ok(()));
                }
                Err(Errno::AGAIN) => ready.clear_ready(),
                Err(Errno::INTR) => {}
                Err(errno) => return Poll::Ready(Err(errno.into())),
            }
        }
    }
}

impl AsyncWrite for Foreign {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let turn = ready!(poll_proceed(cx));
        loop {
            let mut ready = match &self.room {
                Some(room) => Some(ready!(room.poll_write_ready(cx))?),
                None => None,
            };
            match self.write(bytes) {
                Ok(n) => {
                    self.room = None;
                    turn.made_progress();
                    return Poll::Ready(Ok(n));
                }
                Err(Errno::AGAIN) => match &mut ready {
                    Some(ready) => ready.clear_ready(),
                    // If there is room again by then, the runtime tells at once.
                    None => self.room = Some(self.watch(Interest::WRITABLE)?),
                },
                Err(Errno::INTR) => {}
                Err(errno) => return Poll::Ready(Err(errno.into())),
            }
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests;
