//! Carriers without the engine: socket pairs whose other end a daemon on the same kernel takes out of this
//! process (`pidfd_getfd(2)`).
//!
//! ```text
//!  standing pair: under a known number, before PID 1 listens ─► hello over it ─► it is the carrier, and the
//!                                                               next pair stands under the same number
//!  offered pair:  hello over a bridge ─► offer: the number of the daemon's end, and a token that can be read
//!                 from it ─► hello over the pair ─► the pair is the carrier, the bridge's exec ends
//! ```
//!
//! A daemon that takes the standing pair needs no exec. The offer is for one that could not. Only a process
//! that may trace PID 1 can take either, so none in the container can; and the daemon has to know the
//! secret on this carrier as on any other.
//!
//! The number of the standing pair must never be free: otherwise a descriptor that code hands over could
//! get it.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use paddock_proto::limits::{STANDING_FD, STANDING_TOKEN};
use paddock_proto::message::Offer;
use rustix::io::DupFlags;
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
    let mut token = [0; 16];
    getrandom(&mut token, GetRandomFlags::empty())?;
    let (ours, theirs) = with(&token)?;
    let offer = Offer { fd: theirs.as_raw_fd(), token };
    Ok(DirectPair { offer, ours: Carrier::direct(ours)?, theirs })
}

/// The daemon's end of the pair that stands ready, under [`STANDING_FD`].
pub(crate) struct Standing(OwnedFd);

impl Standing {
    /// The first pair: this end of it, and the daemon's. Nothing may have the number yet.
    ///
    /// # Errors
    /// The system's, such as a limit of open files below the number; and those of a carrier.
    pub(crate) fn first() -> io::Result<(Self, Carrier)> {
        Self::under(STANDING_FD)
    }

    fn under(number: RawFd) -> io::Result<(Self, Carrier)> {
        let (ours, theirs) = with(&STANDING_TOKEN)?;
        let at = rustix::io::fcntl_dupfd_cloexec(&theirs, number)?;
        if at.as_raw_fd() != number {
            return Err(io::Error::other("the number of the standing pair is taken"));
        }
        Ok((Self(at), Carrier::direct(ours)?))
    }

    /// Another pair in the place of the one before, whose end for the daemon is closed here.
    ///
    /// # Errors
    /// The system's, and those of a carrier: the number then still has the pair before.
    pub(crate) fn renew(&mut self) -> io::Result<Carrier> {
        let (ours, theirs) = with(&STANDING_TOKEN)?;
        let ours = Carrier::direct(ours)?;
        rustix::io::dup3(&theirs, &mut self.0, DupFlags::CLOEXEC)?;
        Ok(ours)
    }
}

/// A pair, with the token to be read from the second end.
fn with(token: &[u8; 16]) -> io::Result<(OwnedFd, OwnedFd)> {
    let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    rustix::io::write(&ours, token)?;
    Ok((ours, theirs))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Above all that the other tests of this process have open.
    const NUMBER: RawFd = 900;

    fn read(fd: &OwnedFd) -> [u8; 16] {
        let mut token = [0; 16];
        assert_eq!(rustix::io::read(fd, &mut token), Ok(16));
        token
    }

    #[tokio::test]
    async fn the_standing_pair_keeps_its_number_and_a_new_one_ends_the_one_before() {
        let (mut standing, first) = Standing::under(NUMBER).unwrap();
        assert_eq!(standing.0.as_raw_fd(), NUMBER);
        assert_eq!(read(&standing.0), STANDING_TOKEN);
        assert!(Standing::under(NUMBER).is_err(), "one number for two pairs");
        let taken = standing.0.try_clone().unwrap(); // as a daemon does
        let second = standing.renew().unwrap();
        assert_eq!(standing.0.as_raw_fd(), NUMBER);
        assert_eq!(read(&standing.0), STANDING_TOKEN);
        drop(first);
        assert_eq!(rustix::io::read(&taken, &mut [0]), Ok(0), "the taken end outlives its pair");
        drop(second);
    }
}
