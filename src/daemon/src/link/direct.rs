//! A carrier without the engine in between: one end of a socket pair of PID 1, taken out of it.
//!
//! An exec's stream goes through the engine and its shim, each way: four copies and as many turns of the scheduler
//! for every 32 KiB. A socket pair is one. It needs the same kernel under both and the right to trace
//! (`CAP_SYS_PTRACE`, which root has); where that is missing the exec's stream stays.
//!
//! ```text
//!  exec ─► hello, reply with an offer ─► pidfd_getfd(PID 1, number) ─► is it that one? ─► hello, over it
//! ```
//!
//! It must never use a descriptor before it is known to be the offered end: a process id can be another machine's,
//! or have passed to another process, and a number can be anything.

use std::fs;
use std::io::{self, ErrorKind};
use std::os::fd::AsRawFd;
use std::sync::LazyLock;

use paddock_proto::limits::AGENT_PROGRAM;
use paddock_proto::message::Offer;
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};
use tokio::io::AsyncReadExt;
use tokio::net::UnixStream;

use super::Carrier;

/// `CAP_SYS_PTRACE` of capabilities(7).
const SYS_PTRACE: u32 = 19;

/// Whether this process may trace others.
pub(super) fn is_allowed() -> bool {
    static ALLOWED: LazyLock<bool> = LazyLock::new(|| {
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let mask = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
        let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
        let allowed = mask.is_some_and(|mask| mask & (1 << SYS_PTRACE) != 0);
        if !allowed {
            tracing::info!(
                "without CAP_SYS_PTRACE what goes to containers takes the way through the engine, which is slower"
            );
        }
        allowed
    });
    *ALLOWED
}

/// Takes what PID 1 of a container, whose process id the engine says, offers.
///
/// # Errors
/// It cannot be had, or is not what was offered.
pub(super) async fn take(pid: i64, offer: Offer) -> io::Result<Carrier> {
    let known = i32::try_from(pid).ok().and_then(Pid::from_raw).filter(|pid| pid.as_raw_nonzero().get() > 1);
    let at = known.ok_or_else(|| not(format!("process id {pid} is none")))?;
    let process = pidfd_open(at, PidfdFlags::empty())?;
    // Read after the process is held: whoever has the id now is this one, or the next call fails.
    let command = fs::read(format!("/proc/{pid}/cmdline"))?;
    if command != format!("{AGENT_PROGRAM}\0init\0").into_bytes() {
        return Err(not(format!("process {pid} is {:?}", String::from_utf8_lossy(&command))));
    }
    let socket = pidfd_getfd(&process, offer.fd.as_raw_fd(), PidfdGetfdFlags::empty())?;
    // The other end is PID 1's own, or this is some other descriptor of it.
    let socket = std::os::unix::net::UnixStream::from(socket);
    let peer = rustix::net::sockopt::socket_peercred(&socket)?;
    if peer.pid != at {
        return Err(not(format!("its other end is process {}", peer.pid.as_raw_nonzero())));
    }
    socket.set_nonblocking(true)?;
    let mut socket = UnixStream::from_std(socket)?;
    let mut token = [0; 16];
    socket.read_exact(&mut token).await?;
    if token != offer.token {
        return Err(not("it does not say the token".to_owned()));
    }
    let (from, to) = socket.into_split();
    Ok((Box::new(from), Box::new(to)))
}

fn not(why: String) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, why)
}
