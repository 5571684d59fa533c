//! A carrier without the engine in between: one end of a socket pair that the daemon has taken out of PID 1
//! (see [`take`](super::take)).
//!
//! An exec's stream passes through the engine and its shim in each direction: four copies, and as many
//! switches of the scheduler, for every 32 KiB. A socket pair needs one of each.
//!
//! PID 1 can keep a descriptor of the end that it gave; both then have the same open file. If code ever took
//! control of PID 1, it could clear `O_NONBLOCK`, and read bytes before the daemon does; so every call here
//! says for itself that it must not wait. A message can bring descriptors, and the last close of a socket can
//! wait for as long as that socket's `SO_LINGER`; so no descriptor is closed on a thread that serves others.
//!
//! A socket's other end that reads makes it writable, which would wake the daemon once for every message that
//! it sends. So a socket is watched for what there is to read, and for room only while it is full: by two
//! descriptors, since an epoll instance takes each only once.
#![expect(unsafe_code, reason = "a descriptor that is watched for one direction only has no safe form")]

use std::io::{self, ErrorKind, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream as StdStream;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use rustix::io::{Errno, ioctl_fionread};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags, recvmsg, send};
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::task::coop::poll_proceed;

/// The most descriptors that one message can bring (`SCM_MAX_FD`). The kernel closes those beyond the buffer.
const MOST_RIGHTS: usize = 253;

/// A socket of which PID 1 may have a descriptor as well: a descriptor for each direction.
pub(super) fn halves(socket: StdStream) -> io::Result<(DirectReader, DirectWriter)> {
    socket.set_nonblocking(true)?; // the calls here do not rely on it
    let (from, to) = (socket.try_clone()?, socket);
    let watched = Watched::new(from.into()).watch(Interest::READABLE)?;
    Ok((DirectReader(watched), DirectWriter { socket: Watched::new(to.into()), room: None }))
}

/// What comes in.
pub(super) struct DirectReader(AsyncFd<Watched>);

/// What goes out.
pub(super) struct DirectWriter {
    socket: Watched,
    /// While it is full.
    room: Option<AsyncFd<Watched>>,
}

/// A descriptor that stays open for as long as the runtime watches it.
#[derive(Clone)]
struct Watched(Arc<DescriptorOwner>);

/// Closes the descriptor on a thread of its own. `None` only while it is dropped.
struct DescriptorOwner(Option<OwnedFd>, RawFd);

impl Watched {
    fn new(socket: OwnedFd) -> Self {
        let number = socket.as_raw_fd();
        Self(Arc::new(DescriptorOwner(Some(socket), number)))
    }

    /// Has the runtime tell when it is ready for this.
    fn watch(self, interest: Interest) -> io::Result<AsyncFd<Self>> {
        // SAFETY: the value that is watched owns it: it is open, and the same, until it is watched no more.
        Ok(unsafe { AsyncFd::register_with_interest(self, interest) }?)
    }

    fn socket(&self) -> io::Result<BorrowedFd<'_>> {
        self.0.0.as_ref().map(AsFd::as_fd).ok_or_else(|| ErrorKind::NotConnected.into())
    }
}

impl AsRawFd for Watched {
    fn as_raw_fd(&self) -> RawFd {
        self.0.1
    }
}

impl Drop for DescriptorOwner {
    fn drop(&mut self) {
        // Closing it also closes the descriptors in messages that nobody has read.
        close_elsewhere(self.0.take().into_iter().collect());
    }
}

/// Closes descriptors on a thread of its own, since a close may wait. If no thread can be started, it closes
/// them here.
pub(super) fn close_elsewhere(descriptors: Vec<OwnedFd>) {
    let _ = std::thread::Builder::new().name("closing".to_owned()).spawn(move || drop(descriptors));
}

/// Reads what the socket has now into `room`, without waiting.
fn receive(socket: BorrowedFd<'_>, room: &mut [u8]) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_RIGHTS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let received = recvmsg(socket, &mut [IoSliceMut::new(room)], &mut control, flags)?;
    let mut descriptors = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            descriptors.extend(rights);
        }
    }
    if descriptors.is_empty() {
        return Ok(received.bytes);
    }
    close_elsewhere(descriptors);
    Err(refused("it sends descriptors".to_owned()))
}

impl AsyncRead for DirectReader {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        loop {
            let mut ready = ready!(self.0.poll_read_ready(cx))?;
            let socket = self.0.get_ref().socket()?;
            // Initialise only as much of the buffer as there are bytes to read.
            let waiting = ioctl_fionread(socket).ok().and_then(|n| usize::try_from(n).ok()).unwrap_or(0);
            let room = waiting.max(1).min(buf.remaining());
            match receive(socket, buf.initialize_unfilled_to(room)) {
                Ok(n) => {
                    // Everything was read: tokio waits for the next readiness event.
                    if n > 0 && n == waiting {
                        ready.clear_ready();
                    }
                    buf.advance(n);
                    return Poll::Ready(Ok(()));
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => ready.clear_ready(),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }
}

impl AsyncWrite for DirectWriter {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let turn = ready!(poll_proceed(cx));
        loop {
            let mut ready = match &self.room {
                Some(room) => Some(ready!(room.poll_write_ready(cx))?),
                None => None,
            };
            match send(self.socket.socket()?, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
                Ok(n) => {
                    self.room = None;
                    turn.made_progress();
                    return Poll::Ready(Ok(n));
                }
                Err(Errno::AGAIN) => match &mut ready {
                    Some(ready) => ready.clear_ready(),
                    // If there is room again by then, the runtime tells at once.
                    None => self.room = Some(self.socket.clone().watch(Interest::WRITABLE)?),
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

pub(super) fn refused(why: String) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, why)
}

#[cfg(test)]
#[path = "direct_tests.rs"]
mod tests;
