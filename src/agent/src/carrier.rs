//! The carrier as PID 1 has it: the bridge's own standard streams, handed over a socket.
//!
//! ```text
//!  daemon ══ hijacked exec ══► pipes ─────────────────────► PID 1 reads and writes them itself
//!                                └ bridge ── socket (SCM_RIGHTS) ─┘ and watches: the bridge's end is the carrier's
//!  daemon ══ one end of a socket pair ═══════════════════► PID 1 has the other: see `direct`
//! ```
//!
//! Code in the container can hand over what it likes: only pipes and sockets are taken, nothing of them is
//! believed before the hello, and no call on them ever waits. It must never keep a stream open whose bridge has
//! ended: the engine would wait for it.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{FileType, OFlags, fcntl_getfl, fcntl_setfl, fstat};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};
use rustix::pipe::fcntl_setpipe_size;
use tokio::io::Interest;
use tokio::net::UnixStream;
use tokio::net::unix::pipe;

/// What the engine's pipes are widened to, where the kernel lets us: fewer turns between us and the engine's shim.
const PIPE: usize = 256 * 1024;

/// Comes with the streams: a message of no byte carries nothing.
const GREETING: [u8; 1] = [b'p'];

/// Both ways of one bridge.
pub(crate) struct Carrier {
    pub(crate) from: pipe::Receiver,
    pub(crate) to: pipe::Sender,
    /// `None` where the daemon itself has the other end.
    pub(crate) bridge: Option<Bridge>,
}

/// The process that owns the streams.
pub(crate) struct Bridge(UnixStream);

impl Carrier {
    /// Takes the streams that a bridge hands over.
    ///
    /// # Errors
    /// What comes is not that.
    pub(crate) async fn receive(socket: UnixStream) -> io::Result<Self> {
        let [from, to] = socket.async_io(Interest::READABLE, || take(&socket)).await?;
        Ok(Self {
            from: pipe::Receiver::from_owned_fd_unchecked(prepared(from)?)?,
            to: pipe::Sender::from_owned_fd_unchecked(prepared(to)?)?,
            bridge: Some(Bridge(socket)),
        })
    }

    /// One that the daemon itself has the other end of.
    pub(crate) fn direct(socket: OwnedFd) -> io::Result<Self> {
        Ok(Self {
            from: pipe::Receiver::from_owned_fd_unchecked(prepared(socket.try_clone()?)?)?,
            to: pipe::Sender::from_owned_fd_unchecked(prepared(socket)?)?,
            bridge: None,
        })
    }

    /// The process that owns its streams, if that is in the container.
    pub(crate) fn process(&self) -> Option<i32> {
        self.bridge.as_ref()?.0.peer_cred().ok()?.pid()
    }

    /// Resolves when whoever owns its streams has ended, if that is someone else than the daemon.
    pub(crate) async fn ended(bridge: Option<Bridge>) {
        match bridge {
            Some(bridge) => bridge.ended().await,
            None => std::future::pending().await,
        }
    }
}

impl Bridge {
    /// Resolves when it has ended; it has nothing more to say.
    async fn ended(&self) {
        loop {
            let readable = self.0.readable().await;
            match readable.and_then(|()| self.0.try_read(&mut [0])) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Ok(_) | Err(_) => return,
            }
        }
    }
}

/// Hands this process' standard input and output over.
///
/// # Errors
/// What the system says.
pub(crate) fn hand_over(socket: &impl AsFd) -> io::Result<()> {
    let (input, output) = (rustix::stdio::stdin(), rustix::stdio::stdout());
    let streams = [input.as_fd(), output.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    control.push(SendAncillaryMessage::ScmRights(&streams));
    sendmsg(socket, &[IoSlice::new(&GREETING)], &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

fn take(socket: &UnixStream) -> io::Result<[OwnedFd; 2]> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut greeting = [0; GREETING.len()];
    recvmsg(socket, &mut [IoSliceMut::new(&mut greeting)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let streams = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(rights) => Some(rights),
        RecvAncillaryMessage::ScmCredentials(_) | _ => None,
    });
    let streams: Result<[OwnedFd; 2], _> = streams.flatten().collect::<Vec<_>>().try_into();
    streams.map_err(|_| io::Error::other("no bridge: it handed nothing over"))
}

fn prepared(stream: OwnedFd) -> io::Result<OwnedFd> {
    let kind = FileType::from_raw_mode(fstat(&stream)?.st_mode);
    if kind == FileType::Fifo {
        let _ = fcntl_setpipe_size(&stream, PIPE); // refused, it works all the same
    } else if kind != FileType::Socket {
        return Err(io::Error::other(format!("no bridge: a stream that is a {kind:?}")));
    }
    fcntl_setfl(&stream, fcntl_getfl(&stream)? | OFlags::NONBLOCK)?;
    Ok(stream)
}
