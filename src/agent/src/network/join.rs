//! Connects a program's socket with PID 1, on loopback.
//!
//! ```text
//!  PID 1: listens on a port of 127.0.0.1 ─► connects the program's socket to it ─► accepts ─► closes that
//! ```
//!
//! Each connection has a listener of its own, from its `connect` to its answer: a [`MeetingPoint`] is made
//! while the daemon dials, so that the program does not wait for it afterwards. Nobody else's connection
//! can be taken for the program's: whatever the program does to its socket meanwhile, only this socket's
//! connection is served here, and only if it comes from the address that the socket has. Another process that
//! connects to the port in between (it would have to guess it) is reset. A listener for all connections could
//! not tell them apart so surely, since a program can make its socket's address change between two looks.
//!
//! It must never serve a connection that does not come from the socket, nor wait in a system call. A program
//! that fills the listener's queue only keeps its own session's connections from being made.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketFlags, SocketType, acceptfrom_with, bind, getsockname, ipproto, listen, socket_with,
    sockopt,
};
use tokio::net::TcpStream;

use super::own::OwnPort;
use super::socket::ProgramSocket;

/// Connections that may wait to be accepted; with one there would be no room behind a stranger's.
const BACKLOG: i32 = 64;

/// Connections of strangers that are reset before PID 1 gives up.
const MAX_STRANGERS: usize = 256;

/// How long the connection may take, which needs no other process; and how long PID 1 pauses between looks.
const WITHIN: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(1);

/// A listener on loopback at which PID 1 meets one socket of a program. Dropped, it resets who waits there.
pub(super) struct MeetingPoint {
    listener: OwnedFd,
    port: u16,
    /// The port is not the program's.
    _own: OwnPort,
}

impl MeetingPoint {
    /// One on 127.0.0.1, where sockets of both families can be connected.
    ///
    /// # Errors
    /// What the caller's `connect` is answered with.
    pub(super) fn new() -> Result<MeetingPoint, Errno> {
        MeetingPoint::at(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))
    }

    fn at(address: SocketAddr) -> Result<MeetingPoint, Errno> {
        let (listener, port) = listener(address).map_err(|errno| match errno {
            Errno::AFNOSUPPORT => Errno::ADDRNOTAVAIL,
            errno => errno,
        })?;
        Ok(MeetingPoint { listener, port, _own: OwnPort::note(port) })
    }
}

/// The program's socket is connected, and this is the other end. Dropped as it is, it resets the connection:
/// it does not linger.
///
/// # Errors
/// What the caller's `connect` is answered with.
pub(super) async fn join(
    socket: &ProgramSocket,
    is_v4: bool,
    point: MeetingPoint,
) -> Result<TcpStream, Errno> {
    let v4 = Ipv4Addr::LOCALHOST;
    if is_v4 {
        return meet(socket, point, v4.into()).await;
    }
    let meet_in_v6 = async || {
        let v6 = Ipv6Addr::LOCALHOST;
        meet(socket, MeetingPoint::at(SocketAddr::from((v6, 0)))?, v6.into()).await
    };
    if socket.is_v6_only() {
        return meet_in_v6().await;
    }
    // Containers without IPv6 have no ::1; sockets that are bound to an IPv6 address reach nothing else.
    match meet(socket, point, v4.to_ipv6_mapped().into()).await {
        Err(Errno::NETUNREACH | Errno::ADDRNOTAVAIL | Errno::INVAL | Errno::AFNOSUPPORT) => {
            meet_in_v6().await
        }
        met => met,
    }
}

/// Lets them meet at a point, whose address the program's socket calls `called`.
async fn meet(socket: &ProgramSocket, point: MeetingPoint, called: IpAddr) -> Result<TcpStream, Errno> {
    match socket.connect(SocketAddr::new(called, point.port)) {
        Err(Errno::INPROGRESS) => {}
        // Another thread of the program was first.
        Ok(()) => return Err(Errno::ISCONN),
        Err(errno) => return Err(errno),
    }
    let begun = Instant::now();
    let mut strangers = 0;
    while begun.elapsed() < WITHIN && strangers < MAX_STRANGERS {
        match acceptfrom_with(&point.listener, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC) {
            Ok((connection, from)) => {
                let from = from.and_then(|from| SocketAddr::try_from(from).ok());
                if from.is_some() && from == socket.name().ok().map(canonical) {
                    let connection = std::net::TcpStream::from(connection);
                    return TcpStream::from_std(connection).map_err(|_| Errno::NOBUFS);
                }
                strangers += 1;
            }
            Err(Errno::AGAIN) => tokio::time::sleep(PAUSE).await,
            Err(Errno::INTR | Errno::CONNABORTED) => {}
            Err(errno) => return Err(errno),
        }
    }
    socket.disconnect();
    Err(Errno::ADDRNOTAVAIL)
}

fn canonical(mut address: SocketAddr) -> SocketAddr {
    address.set_ip(address.ip().to_canonical());
    SocketAddr::new(address.ip(), address.port())
}

/// A listener, and its port.
fn listener(at: SocketAddr) -> Result<(OwnedFd, u16), Errno> {
    let family = if at.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let listener = socket_with(family, SocketType::STREAM, flags, Some(ipproto::TCP))?;
    // Ports of connections that ended a moment ago are free again.
    sockopt::set_socket_reuseaddr(&listener, true)?;
    // What it accepts has these from the first moment (socket(7), tcp(7)): a close resets, nothing is held.
    sockopt::set_socket_linger(&listener, Some(Duration::ZERO))?;
    sockopt::set_tcp_nodelay(&listener, true)?;
    bind(&listener, &at)?;
    listen(&listener, BACKLOG)?;
    let name: SocketAddr = getsockname(&listener)?.try_into()?;
    Ok((listener, name.port()))
}

#[cfg(test)]
mod tests;
