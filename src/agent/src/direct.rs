//! A carrier without the engine: a socket pair whose other end a daemon on the same kernel takes out of this
//! process (`pidfd_getfd(2)`).
//!
//! ```text
//!  hello over the bridge ─► offer: the number of the daemon's end, and a token that can be read from it
//!  hello over the pair   ─► the pair is the carrier, the bridge's exec ends
//! ```
//!
//! Only a process that may trace PID 1 can take it, so none in the container can; and the daemon has to know
//! the secret on this carrier as on any other.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use paddock_proto::message::Offer;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::rand::{GetRandomFlags, getrandom};

use crate::carrier::Carrier;

/// A pair that nobody has taken yet.
pub(crate) struct DirectPair {
    pub(crate) offer: Offer,
    pub(crate) ours: Carrier,
    /// To be closed when the daemon has its copy, or is too late.
    pub(crate) theirs: OwnedFd,
}

/// Makes a pair, with the token in it.
///
/// # Errors
/// The system's, and those of a carrier.
pub(crate) fn pair() -> io::Result<DirectPair> {
    let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    let mut token = [0; 16];
    getrandom(&mut token, GetRandomFlags::empty())?;
    rustix::io::write(&ours, &token)?;
    let offer = Offer { fd: theirs.as_raw_fd(), token };
    Ok(DirectPair { offer, ours: Carrier::direct(ours)?, theirs })
}
