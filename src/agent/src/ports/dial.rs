//! One connection of the daemon to a server in the container, from its request to its end.
//!
//! ```text
//!  Dial ─► a port of PID 1's own? too many? ─► connect ─► Reply::Connected ─► bytes both ways
//!               └──────────┴── Reply::Refused ◄──┘
//! ```
//!
//! It must never hold more than [`MAX_DIALS`] connections, nor wait in a system call.

use std::cell::Cell;
use std::future::pending;
use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use paddock_proto::Kind;
use paddock_proto::limits::MAX_DIALS;
use paddock_proto::message::{self, ConnectFailure, Reply};
use rustix::net::sockopt;
use tokio::net::TcpStream;

use crate::link::Stream;
use crate::network::{carry, is_own};

/// How many connections of the daemon there are.
#[derive(Default)]
pub(crate) struct Dials(Rc<Cell<usize>>);

/// One of a bounded number of connections.
struct Slot(Rc<Cell<usize>>);

impl Drop for Slot {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

impl Dials {
    fn slot(&self) -> Option<Slot> {
        let open = self.0.get();
        (open < MAX_DIALS).then(|| {
            self.0.set(open + 1);
            Slot(self.0.clone())
        })
    }

    /// Answers a [`Request::Dial`](paddock_proto::Request::Dial) on `stream`.
    pub(crate) async fn serve(&self, stream: Stream, port: u16) {
        let slot = self.slot();
        let connected = match &slot {
            None => Err(ConnectFailure::TooMany),
            Some(_) if port == 0 || is_own(port) => Err(ConnectFailure::Blocked),
            Some(_) => tokio::select! {
                connected = connect(port) => connected.map_err(|error| failure(&error)),
                // The daemon sends nothing before the answer: it has given the request up.
                _ = stream.recv() => return,
            },
        };
        let reply = connected.as_ref().map_or_else(|why| Reply::Refused(*why), |_| Reply::Connected);
        stream.send(Kind::Message, message::encode(&reply)).await;
        match connected {
            Ok(program) => carry(program, stream, pending()).await,
            Err(_) => {
                stream.send(Kind::Close, Bytes::new()).await;
            }
        }
    }
}

/// Connects to a server on this port of loopback. What becomes of a connection that is dropped is a reset.
async fn connect(port: u16) -> io::Result<TcpStream> {
    let connected = match to((Ipv4Addr::LOCALHOST, port).into()).await {
        // Not every container has IPv6.
        Err(refused) if refused.kind() == ErrorKind::ConnectionRefused => {
            to((Ipv6Addr::LOCALHOST, port).into()).await.map_err(|_| refused)
        }
        connected => connected,
    }?;
    sockopt::set_socket_linger(&connected, Some(Duration::ZERO))?;
    connected.set_nodelay(true)?;
    Ok(connected)
}

async fn to(address: SocketAddr) -> io::Result<TcpStream> {
    let connected = TcpStream::connect(address).await?;
    // Where nobody listens, the kernel can give the socket the very port that it connects to.
    if connected.local_addr()? == connected.peer_addr()? {
        return Err(ErrorKind::ConnectionRefused.into());
    }
    Ok(connected)
}

fn failure(error: &io::Error) -> ConnectFailure {
    let is = |kinds: &[ErrorKind]| kinds.contains(&error.kind());
    if is(&[ErrorKind::ConnectionRefused, ErrorKind::ConnectionReset]) {
        ConnectFailure::Refused
    } else if is(&[ErrorKind::TimedOut]) {
        ConnectFailure::TimedOut
    } else {
        ConnectFailure::Unreachable // no ports, descriptors or memory are left
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn a_server_is_reached_by_either_family() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(listener) = TcpListener::bind(address).await else { continue }; // without IPv6
            let port = listener.local_addr().expect("bound").port();
            let served = async {
                let (mut connection, _) = listener.accept().await.expect("a connection");
                connection.write_all(b"hello").await.expect("it is read");
            };
            let asked = async {
                let mut text = String::new();
                let mut connection = connect(port).await.expect("a server");
                connection.read_to_string(&mut text).await.expect("text");
                text
            };
            assert_eq!(tokio::join!(served, asked).1, "hello", "{address}");
            drop(listener);
            assert_eq!(
                connect(port).await.map_err(|error| failure(&error)).err(),
                Some(ConnectFailure::Refused)
            );
        }
    }

    #[test]
    fn there_are_no_more_than_the_bound() {
        let dials = Dials::default();
        let mut slots: Vec<_> = (0..MAX_DIALS).map(|_| dials.slot().expect("below the bound")).collect();
        assert!(dials.slot().is_none());
        slots.pop();
        assert!(dials.slot().is_some());
    }
}
