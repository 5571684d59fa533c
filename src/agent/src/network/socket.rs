//! The socket that a program wants to connect: PID 1's copy of its descriptor, and calls on it that never
//! wait.
//!
//! The program shares the open file: other threads use it at the same time, and its flags are theirs. PID 1
//! must never change its flags, nor wait in a call on it. So it closes the copy [`Brief`]ly, and connects it
//! by `sendto(MSG_FASTOPEN | MSG_DONTWAIT)` of no bytes: that is a `connect` which takes "do not wait" as a
//! flag of the call, where `connect` itself looks at the file's. (A signal would not do: the kernel begins an
//! interrupted `connect` again.) The kernel asks for a cookie on the way, which nobody here gives; nothing
//! else differs. It needs the client's bit in `net.ipv4.tcp_fastopen`, which every namespace has by default.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::fs::{OFlags, fcntl_getfl};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SendFlags, SocketType, ipproto, sockopt};
use rustix::process::{PidfdGetfdFlags, pidfd_getfd};

use crate::foreign::Brief;
use crate::intercept::CallingProcess;

/// A `connect` in a `sendto`. Not in rustix.
const FASTOPEN: SendFlags = SendFlags::from_bits_retain(0x2000_0000);

/// PID 1's copy.
pub(super) struct ProgramSocket(Brief<OwnedFd>);

impl ProgramSocket {
    /// Copies a descriptor of the caller.
    pub(super) fn copy(caller: &CallingProcess<'_>, fd: i32) -> Result<Self, Errno> {
        Ok(Self(Brief::new(pidfd_getfd(caller.process()?, fd, PidfdGetfdFlags::empty())?)))
    }

    /// Whether it is a TCP socket for addresses like this one.
    pub(super) fn is_tcp_for(&self, to: SocketAddr) -> Result<bool, Errno> {
        let domain = if to.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        Ok(sockopt::socket_domain(&*self.0)? == domain
            && sockopt::socket_type(&*self.0)? == SocketType::STREAM
            && sockopt::socket_protocol(&*self.0)? == Some(ipproto::TCP))
    }

    /// Whether it is connected already.
    pub(super) fn is_connected(&self) -> bool {
        rustix::net::getpeername(&*self.0).is_ok()
    }

    /// Whether the program waits in its calls, as of now.
    pub(super) fn waits(&self) -> Result<bool, Errno> {
        Ok(!fcntl_getfl(&*self.0)?.contains(OFlags::NONBLOCK))
    }

    /// How long the program waits at most, if it said so.
    pub(super) fn patience(&self) -> Option<Duration> {
        sockopt::socket_timeout(&*self.0, sockopt::Timeout::Send).ok().flatten()
    }

    /// Whether it takes IPv6 addresses only.
    pub(super) fn is_v6_only(&self) -> bool {
        sockopt::ipv6_v6only(&*self.0).unwrap_or(true)
    }

    /// Connects it, or goes on connecting it: always `INPROGRESS` at first, `ALREADY` until the connection is
    /// there, `Ok` once, `ISCONN` from then on.
    pub(super) fn connect(&self, to: SocketAddr) -> Result<(), Errno> {
        let flags = FASTOPEN | SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        rustix::net::sendto(&*self.0, &[], flags, &to).map(|_| ())
    }

    /// Its own address.
    pub(super) fn name(&self) -> Result<SocketAddr, Errno> {
        rustix::net::getsockname(&*self.0)?.try_into()
    }

    /// Gives up a connection that does not come.
    pub(super) fn disconnect(&self) {
        let _ = rustix::net::connect_unspec(&*self.0);
    }

    #[cfg(test)]
    pub(super) fn of(fd: OwnedFd) -> Self {
        Self(Brief::new(fd))
    }
}
