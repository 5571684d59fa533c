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
use std::os::unix::net::UnixStream as StdStream;
use std::sync::{LazyLock, Once};

use paddock_proto::limits::AGENT_PROGRAM;
use paddock_proto::message::Offer;
use rustix::net::sockopt::socket_peercred;
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};
use tokio::io::AsyncReadExt;
use tokio::net::UnixStream;

use super::Carrier;

/// `CAP_SYS_PTRACE` of capabilities(7).
const SYS_PTRACE: u32 = 19;

/// Whether it is worth asking: the engine is on this machine, and this process may trace others.
pub(super) fn is_possible(local: bool) -> bool {
    if !local {
        say_once(&"the engine is on another machine");
    }
    local && is_allowed()
}

/// Whether this process may trace others.
pub fn is_allowed() -> bool {
    static ALLOWED: LazyLock<bool> = LazyLock::new(|| {
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let mask = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
        let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
        let allowed = mask.is_some_and(|mask| mask & (1 << SYS_PTRACE) != 0);
        if !allowed {
            say_once(&"there is no CAP_SYS_PTRACE");
        }
        allowed
    });
    *ALLOWED
}

/// Says that there is no direct carrier: once, since it is so for every container then.
pub(super) fn say_once(why: &dyn std::fmt::Display) {
    static SAID: Once = Once::new();
    SAID.call_once(|| {
        tracing::info!(%why, "what goes to containers takes the way through the engine, which is slower");
    });
}

/// Takes what PID 1 of a container, whose process id the engine says, offers.
///
/// # Errors
/// It cannot be had, or is not what was offered.
pub(super) async fn take(pid: i64, offer: Offer) -> io::Result<Carrier> {
    let known = i32::try_from(pid).ok().filter(|pid| *pid > 1).and_then(Pid::from_raw);
    let at = known.ok_or_else(|| not(format!("process id {pid} is none")))?;
    let process = pidfd_open(at, PidfdFlags::empty())?;
    // Read after the process is held: whoever has the id now is this one, or the next call fails.
    let command = fs::read(format!("/proc/{pid}/cmdline"))?;
    if command != format!("{AGENT_PROGRAM}\0init\0").into_bytes() {
        return Err(not(format!("process {pid} is {:?}", String::from_utf8_lossy(&command))));
    }
    let socket = pidfd_getfd(&process, offer.fd, PidfdGetfdFlags::empty())?;
    proven(socket.into(), at, offer.token).await
}

/// It is PID 1's own at the other end, and says the token: not some other descriptor, nor another machine's process.
async fn proven(socket: StdStream, at: Pid, token: [u8; 16]) -> io::Result<Carrier> {
    let peer = socket_peercred(&socket)?.pid;
    if peer != at {
        return Err(not(format!("its other end is process {}", peer.as_raw_nonzero())));
    }
    socket.set_nonblocking(true)?;
    let mut socket = UnixStream::from_std(socket)?;
    let mut said = [0; 16];
    socket.read_exact(&mut said).await?;
    if said != token {
        return Err(not("it does not say the token".to_owned()));
    }
    let (from, to) = socket.into_split();
    Ok((Box::new(from), Box::new(to)))
}

fn not(why: String) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, why)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use rustix::process::getpid;
    use tokio::io::AsyncWriteExt;

    use super::*;

    const TOKEN: [u8; 16] = [7; 16];

    async fn refused(taken: impl Future<Output = io::Result<Carrier>>, why: &str) {
        let error = taken.await.err().expect("it is refused").to_string();
        assert!(error.contains(why), "{error}");
    }

    #[tokio::test]
    async fn only_a_container_s_first_process_is_taken_from() {
        let (a, _b) = StdStream::pair().unwrap();
        let offer = Offer { fd: std::os::fd::AsRawFd::as_raw_fd(&a), token: TOKEN };
        for none in [i64::MIN, -1, 0, 1, 1 << 40] {
            refused(take(none, offer), "is none").await;
        }
        let own = i64::from(getpid().as_raw_nonzero().get());
        refused(take(own, offer), "process").await; // it is this test
    }

    #[tokio::test]
    async fn only_the_offered_descriptor_is_used() {
        let pair = |says: &[u8]| {
            let (mut theirs, ours) = StdStream::pair().unwrap();
            theirs.write_all(says).unwrap();
            (theirs, ours)
        };
        let (mut theirs, ours) = pair(&TOKEN);
        theirs.write_all(b"more").unwrap();
        let (mut from, mut to) = proven(ours, getpid(), TOKEN).await.unwrap();
        to.write_all(b"hello").await.unwrap();
        let mut more = [0; 4];
        from.read_exact(&mut more).await.unwrap();
        assert_eq!(&more, b"more");

        let (_theirs, ours) = pair(&TOKEN);
        refused(proven(ours, Pid::from_raw(1).unwrap(), TOKEN), "its other end is process").await;
        let (_theirs, ours) = pair(&[8; 16]);
        refused(proven(ours, getpid(), TOKEN), "token").await;
        let (theirs, ours) = pair(&TOKEN[..15]);
        drop(theirs);
        refused(proven(ours, getpid(), TOKEN), "eof").await;
        let file: std::os::fd::OwnedFd = fs::File::open("/dev/null").unwrap().into();
        refused(proven(file.into(), getpid(), TOKEN), "socket").await;
    }
}
