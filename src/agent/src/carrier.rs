//! PID 1's side of the carrier: the bridge's own standard streams, handed over a socket.
//!
//! ```text
//!  daemon ══ hijacked exec ══► pipes ───────────► PID 1 reads and writes them itself
//!                                └ bridge ── socket (SCM_RIGHTS) ─┘ and watches: its end is the carrier's
//!  daemon ══ one end of a socket pair ══════════► PID 1 has the other: see `direct`
//! ```
//!
//! Code in the container can hand over any descriptor, and keep it as well: PID 1 takes only pipes and
//! sockets, trusts nothing from them before the hello, and no call on them ever waits (see
//! [`crate::foreign`]). It must never keep a stream open whose bridge has ended: the engine would wait for
//! it.

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

/// Comes with the streams: a message without a byte can carry no descriptors.
const GREETING: [u8; 1] = [b'p'];

/// Both directions of one way to the daemon.
pub(crate) struct Carrier {
    pub(crate) from: Foreign,
    pub(crate) to: Foreign,
    /// `None` where the daemon itself has the other end of a socket pair.
    pub(crate) bridge: Option<Bridge>,
}

/// The connection of the process that handed the streams over.
pub(crate) struct Bridge(Brief<UnixStream>);

impl Carrier {
    /// Takes the streams that a bridge hands over.
    ///
    /// # Errors
    /// The other side hands over anything else, or nothing.
    pub(crate) async fn receive(socket: Brief<UnixStream>) -> io::Result<Self> {
        let [from, to] = socket.async_io(Interest::READABLE, || take(&socket)).await?;
        Ok(Self { from: Foreign::new(from)?, to: Foreign::new(to)?, bridge: Some(Bridge(socket)) })
    }

    /// A socket whose other end the daemon itself has.
    pub(crate) fn direct(socket: OwnedFd) -> io::Result<Self> {
        let from = Foreign::to_daemon(socket.try_clone()?)?;
        Ok(Self { from, to: Foreign::to_daemon(socket)?, bridge: None })
    }

    /// The PID of its bridge, if it has one.
    pub(crate) fn process(&self) -> Option<i32> {
        self.bridge.as_ref()?.0.peer_cred().ok()?.pid()
    }

    /// Resolves when its bridge has ended; never where it has none.
    pub(crate) async fn ended(bridge: Option<Bridge>) {
        match bridge {
            Some(bridge) => bridge.ended().await,
            None => std::future::pending().await,
        }
    }
}

impl Bridge {
    /// Resolves when it has ended: it writes nothing, so anything that can be read is its end.
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
/// The system's.
pub(crate) fn hand_over(socket: &impl AsFd) -> io::Result<()> {
    let (input, output) = (rustix::stdio::stdin(), rustix::stdio::stdout());
    let streams = [input.as_fd(), output.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    control.push(SendAncillaryMessage::ScmRights(&streams));
    sendmsg(socket, &[IoSlice::new(&GREETING)], &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Receives the two streams.
fn take(socket: &UnixStream) -> io::Result<[Brief<OwnedFd>; 2]> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut greeting = [0; GREETING.len()];
    let mut into = [IoSliceMut::new(&mut greeting)];
    // The kernel closes descriptors for which there is no room here.
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
    briefly(|| recvmsg(socket, &mut into, &mut control, flags))?;
    let streams = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(rights) => Some(rights),
        RecvAncillaryMessage::ScmCredentials(_) | _ => None,
    });
    let streams: Result<[Brief<OwnedFd>; 2], _> =
        streams.flatten().map(Brief::new).collect::<Vec<_>>().try_into();
    streams.map_err(|_| io::Error::other("this connection is no bridge: it handed over no pair of streams"))
}
