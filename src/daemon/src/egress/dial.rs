//! Makes the connection: to one of the addresses that were judged, and to no other.
//!
//! A connection that is not finished properly ends with a reset on the wire, so that the other side never
//! takes half an exchange for a whole one.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use paddock_proto::message::ConnectFailure;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, ipproto, socket_with};
use tokio::net::TcpStream;

/// How long one address is tried alone, before the next is tried beside it (RFC 8305 recommends this value).
const STAGGER: Duration = Duration::from_millis(250);

/// A connection to the other side. Dropping it resets the connection, unless it is finished.
pub(super) struct Upstream {
    pub(super) socket: TcpStream,
    is_finished: bool,
}

impl Upstream {
    pub(super) fn new(socket: TcpStream) -> Self {
        Self { socket, is_finished: false }
    }

    /// The other side's address, if that is this host's own: a connection to it begins at the same address.
    pub(super) fn own_address(&self) -> Option<IpAddr> {
        let (own, other) = (self.socket.local_addr().ok()?.ip(), self.socket.peer_addr().ok()?.ip());
        (own == other).then_some(other)
    }

    /// Everything was sent and received: the drop closes the connection properly.
    pub(super) fn finish(&mut self) {
        self.is_finished = true;
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        if !self.is_finished {
            let _ = self.socket.set_zero_linger(); // fails only for what is no socket
        }
    }
}

/// As [`connect`], for a connection whose bytes are a program's own.
///
/// # Errors
/// As [`connect`].
pub(super) async fn dial(addresses: &[SocketAddr]) -> Result<Upstream, ConnectFailure> {
    connect(addresses).await.map(Upstream::new)
}

/// Connects to the first address that answers; each is tried in its turn, with a short wait in between. The
/// caller bounds the time.
///
/// # Errors
/// What says most about the other side, if all fail.
pub(super) async fn connect(addresses: &[SocketAddr]) -> Result<TcpStream, ConnectFailure> {
    let mut untried = addresses.iter();
    let mut tries = FuturesUnordered::new();
    let mut failure = ConnectFailure::Unreachable;
    loop {
        match untried.next() {
            Some(address) => tries.push(connect_to(*address)),
            None if tries.is_empty() => return Err(failure),
            None => {}
        }
        tokio::select! {
            Some(tried) = tries.next() => match tried {
                Ok(socket) => {
                    let _ = socket.set_nodelay(true); // only a matter of speed
                    return Ok(socket);
                }
                Err(error) => failure = more_telling(failure, why(&error)),
            },
            () = tokio::time::sleep(STAGGER), if untried.len() > 0 => {}
        }
    }
}

/// Connects to one address. One on this host is there without any wait: the kernel has made the connection
/// when its first call returns, though that call says that it is in progress, and a second call says so.
async fn connect_to(address: SocketAddr) -> io::Result<TcpStream> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = socket_with(family, SocketType::STREAM, flags, Some(ipproto::TCP))?;
    for _ in 0..2 {
        match rustix::net::connect(&socket, &address) {
            Ok(()) => return TcpStream::from_std(socket.into()),
            Err(Errno::INPROGRESS | Errno::ALREADY | Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    let socket = TcpStream::from_std(socket.into())?;
    socket.writable().await?;
    match socket.take_error()? {
        Some(error) => Err(error),
        None => Ok(socket),
    }
}

#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "of the many kinds only these have a name in the protocol"
)]
fn why(error: &io::Error) -> ConnectFailure {
    match error.kind() {
        io::ErrorKind::ConnectionRefused | io::ErrorKind::ConnectionReset => ConnectFailure::Refused,
        io::ErrorKind::TimedOut => ConnectFailure::TimedOut,
        _ => ConnectFailure::Unreachable,
    }
}

/// A refusal came from the other side itself; no route says least.
fn more_telling(one: ConnectFailure, other: ConnectFailure) -> ConnectFailure {
    let rank = |failure: &ConnectFailure| match failure {
        ConnectFailure::Refused => 2,
        ConnectFailure::TimedOut => 1,
        ConnectFailure::Unreachable
        | ConnectFailure::Blocked
        | ConnectFailure::NoAddress
        | ConnectFailure::TooMany => 0,
    };
    if rank(&other) > rank(&one) { other } else { one }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use tokio::net::TcpListener;

    use super::*;

    async fn closed_port() -> SocketAddr {
        TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap()
    }

    #[tokio::test]
    async fn an_address_that_refuses_costs_nothing_but_its_attempt() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let open = listener.local_addr().unwrap();
        let upstream = dial(&[closed_port().await, open]).await.ok().unwrap();
        assert_eq!(upstream.socket.peer_addr().unwrap(), open);
        assert!(upstream.socket.nodelay().unwrap());
    }

    #[tokio::test]
    async fn a_connection_on_this_host_is_made_or_refused_without_a_wait() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let made = connect_to(listener.local_addr().unwrap()).now_or_never();
        assert!(made.expect("it does not wait").is_ok());
        let refused = connect_to(closed_port().await).now_or_never();
        assert_eq!(refused.unwrap().map_err(|error| why(&error)).err(), Some(ConnectFailure::Refused));
    }

    #[tokio::test]
    async fn a_refusal_is_told_rather_than_a_missing_route() {
        let unreachable: SocketAddr = "[2001:db8::1]:9".parse().unwrap();
        for addresses in [[closed_port().await, unreachable], [unreachable, closed_port().await]] {
            let within = Duration::from_secs(2);
            // It times out on a host whose network swallows what goes to that address.
            if let Ok(dialled) = tokio::time::timeout(within, dial(&addresses)).await {
                assert_eq!(dialled.err(), Some(ConnectFailure::Refused));
            }
        }
        assert_eq!(dial(&[]).await.err(), Some(ConnectFailure::Unreachable));
    }
}
