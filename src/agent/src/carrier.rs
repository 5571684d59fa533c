//! The carrier as PID 1 has it: the bridge's own standard streams, handed over a socket.
//!
//! ```text
//!  daemon ══ hijacked exec ══► pipes ─────────────────────► PID 1 reads and writes them itself
//!                                └ bridge ── socket (SCM_RIGHTS) ─┘ and watches: the bridge's end is the carrier's
//!  daemon ══ one end of a socket pair ═══════════════════► PID 1 has the other: see `direct`
//! ```
//!
//! Code in the container can hand over what it likes, and keep it too: only pipes and sockets are taken, nothing of
//! them is believed before the hello, and no call on them ever waits (see [`crate::foreign`]). It must never keep a
//! stream open whose bridge has ended: the engine would wait for it.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};
use tokio::io::Interest;
use tokio::net::UnixStream;

use crate::foreign::{Brief, Foreign, briefly};

/// Comes with the streams: a message of no byte carries nothing.
const GREETING: [u8; 1] = [b'p'];

/// Both ways of one bridge.
pub(crate) struct Carrier {
    pub(crate) from: Foreign,
    pub(crate) to: Foreign,
    /// `None` where the daemon itself has the other end.
    pub(crate) bridge: Option<Bridge>,
}

/// The process that owns the streams.
pub(crate) struct Bridge(Brief<UnixStream>);

impl Carrier {
    /// Takes the streams that a bridge hands over.
    ///
    /// # Errors
    /// What comes is not that.
    pub(crate) async fn receive(socket: Brief<UnixStream>) -> io::Result<Self> {
        let [from, to] = socket.async_io(Interest::READABLE, || take(&socket)).await?;
        Ok(Self { from: Foreign::new(from)?, to: Foreign::new(to)?, bridge: Some(Bridge(socket)) })
    }

    /// One that the daemon itself has the other end of.
    pub(crate) fn direct(socket: OwnedFd) -> io::Result<Self> {
        let from = Foreign::to_daemon(socket.try_clone()?)?;
        Ok(Self { from, to: Foreign::to_daemon(socket)?, bridge: None })
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
            match readable.and_then(|()| briefly(|| self.0.try_read(&mut [0]))) {
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

fn take(socket: &UnixStream) -> io::Result<[Brief<OwnedFd>; 2]> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut greeting = [0; GREETING.len()];
    let mut into = [IoSliceMut::new(&mut greeting)];
    // What there is no room for is closed by the call.
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
    briefly(|| recvmsg(socket, &mut into, &mut control, flags))?;
    let streams = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(rights) => Some(rights),
        RecvAncillaryMessage::ScmCredentials(_) | _ => None,
    });
    let streams: Result<[Brief<OwnedFd>; 2], _> =
        streams.flatten().map(Brief::new).collect::<Vec<_>>().try_into();
    streams.map_err(|_| io::Error::other("no bridge: it handed nothing over"))
}
