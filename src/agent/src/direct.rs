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
//! A daemon that takes the standing pair needs no exec. A daemon that found no standing pair gets the offer.
//! Only a process that may trace PID 1 can take either pair, so none in the container can. The daemon has to
//! know the secret on this carrier as on any other.
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
pub(crate) struct Standing {
    at: OwnedFd,
    /// A socket that nobody is at the other end of, for the number when there is no pair.
    plug: OwnedFd,
}

impl Standing {
    /// The first pair: this end of it, and the daemon's. Nothing may have the number yet.
    ///
    /// # Errors
    /// The system's, such as a limit of open files below the number; and those of a carrier.
    pub(crate) fn first() -> io::Result<(Self, Carrier)> {
        Self::under(STANDING_FD)
    }

    fn under(number: RawFd) -> io::Result<(Self, Carrier)> {
        let (_, plug) = with(&[])?;
        let (ours, theirs) = standing_pair()?;
        let at = rustix::io::fcntl_dupfd_cloexec(&theirs, number)?;
        if at.as_raw_fd() != number {
            return Err(io::Error::other("the number of the standing pair is taken"));
        }
        Ok((Self { at, plug }, ours))
    }

    /// Another pair in the place of the one before, whose end for the daemon is closed here in any case:
    /// PID 1 would otherwise never see that the daemon which took it has gone.
    ///
    /// # Errors
    /// The system's, and those of a carrier: there is no pair then, and the number stays taken.
    pub(crate) fn renew(&mut self) -> io::Result<Carrier> {
        self.put(standing_pair())
    }

    fn put(&mut self, pair: io::Result<(Carrier, OwnedFd)>) -> io::Result<Carrier> {
        let end = pair.as_ref().map_or(&self.plug, |(_, theirs)| theirs);
        rustix::io::dup3(end, &mut self.at, DupFlags::CLOEXEC)?;
        pair.map(|(ours, _)| ours)
    }
}

fn standing_pair() -> io::Result<(Carrier, OwnedFd)> {
    let (ours, theirs) = with(&STANDING_TOKEN)?;
    Ok((Carrier::direct(ours)?, theirs))
}

/// A pair, with the token to be read from the second end.
fn with(token: &[u8]) -> io::Result<(OwnedFd, OwnedFd)> {
    let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    if !token.is_empty() {
        rustix::io::write(&ours, token)?;
    }
    Ok((ours, theirs))
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt;

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
        assert_eq!(standing.at.as_raw_fd(), NUMBER);
        assert_eq!(read(&standing.at), STANDING_TOKEN);
        assert!(Standing::under(NUMBER).is_err(), "one number for two pairs");
        let taken = standing.at.try_clone().unwrap(); // as a daemon does
        let second = standing.renew().unwrap();
        assert_eq!(standing.at.as_raw_fd(), NUMBER);
        assert_eq!(read(&standing.at), STANDING_TOKEN);
        drop(first);
        assert_eq!(rustix::io::read(&taken, &mut [0]), Ok(0), "the taken end outlives its pair");
        drop(second);
    }

    #[tokio::test]
    async fn without_descriptors_for_a_new_pair_the_one_before_is_closed_and_its_number_kept() {
        const OTHER: RawFd = 901;
        let (mut standing, ours) = Standing::under(OTHER).unwrap();
        let taken = standing.at.try_clone().unwrap(); // as a daemon does
        assert_eq!(read(&taken), STANDING_TOKEN);
        assert!(standing.put(Err(io::Error::other("too many open files"))).is_err());
        assert_eq!(standing.at.as_raw_fd(), OTHER);
        assert_eq!(rustix::io::read(&standing.at, &mut [0; 16]), Ok(0), "a daemon takes it for a pair");
        let Carrier { mut from, .. } = ours;
        drop(taken);
        assert_eq!(from.read(&mut [0]).await.unwrap(), 0, "the end of the daemon is not seen");
        let again = standing.renew().unwrap();
        assert_eq!(read(&standing.at), STANDING_TOKEN);
        drop(again);
    }
}
