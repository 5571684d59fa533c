//! Takes a direct carrier out of PID 1 of a container, if the daemon and the container share a kernel, and
//! the daemon may trace (`CAP_SYS_PTRACE`, which root has); otherwise the stream of an exec is used.
//!
//! ```text
//!  the container runs ─► pidfd_getfd(PID 1, the known number) ─► is it the standing pair's end? ─► hello
//!  otherwise: exec ─► hello, reply with an offer ─► pidfd_getfd(PID 1, its number) ─► is it the offered end?
//!             ─► hello again
//! ```
//!
//! The standing pair saves the exec, which costs the engine more than anything else in the life of a
//! container but its start and its removal. The offer is for an agent without one: of an older build, or
//! after a daemon that took the pair and died before its hello.
//!
//! A descriptor must never be used before it is known to be the daemon's end: the process id can belong to
//! another machine or, by now, to another process, and the number can be any of that process's descriptors.

use std::fs;
use std::io;
use std::os::fd::RawFd;
use std::os::unix::net::UnixStream as StdStream;
use std::sync::{LazyLock, Once};
use std::time::{Duration, Instant};

use paddock_proto::limits::{AGENT_PROGRAM, STANDING_FD, STANDING_TOKEN};
use paddock_proto::message::Offer;
use rustix::io::Errno;
use rustix::net::sockopt::socket_peercred;
use rustix::net::{RecvFlags, recv};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};

use super::Carrier;
use super::direct::{close_elsewhere, halves, refused};
use crate::engine::ContainerId;

/// `CAP_SYS_PTRACE` of capabilities(7).
const SYS_PTRACE: u32 = 19;

/// PID 1 of a container that the engine has started is there within milliseconds, unless the machine is under
/// heavy load. An exec would then wait longer, and add to the load.
const STARTS_WITHIN: Duration = Duration::from_secs(2);

/// Its standing pair is there at once after that, but an agent of an older build never has one.
const STANDS_WITHIN: Duration = Duration::from_millis(250);

/// Between two looks: at first, and after [`SOON`].
const LOOK: [Duration; 2] = [Duration::from_millis(1), Duration::from_millis(5)];

/// In this time PID 1 is there, unless the machine is under load.
const SOON: Duration = Duration::from_millis(20);

/// Whether a direct carrier is possible: the engine is on this machine, and this process may trace others.
pub(super) fn is_possible(local: bool) -> bool {
    if !local {
        log_once(&"the engine is on another machine");
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
            log_once(&"the daemon has no CAP_SYS_PTRACE");
        }
        allowed
    });
    *ALLOWED
}

/// Logs why there is no direct carrier: only once, since the reason is then the same for every container.
pub(super) fn log_once(why: &dyn std::fmt::Display) {
    static LOGGED: Once = Once::new();
    LOGGED.call_once(|| {
        tracing::info!(%why, "bytes to and from containers pass through the engine, which is slower");
    });
}

/// Takes the end of the socket pair that PID 1 of a container offers. `pid` is its process id, as the engine
/// reports it.
///
/// # Errors
/// The descriptor cannot be taken, or is not the offered end.
pub(super) async fn take(pid: i64, offer: Offer) -> io::Result<Carrier> {
    let (socket, at) = end_of(pid, offer.fd).map_err(io::Error::from)?;
    proven(socket, at, offer.token)
}

/// Takes the daemon's end of the pair that stands ready in PID 1 of a container, as soon as there is one.
/// `pid` is its process id, as the engine reports it.
///
/// # Errors
/// The process is not PID 1 of this container, or it has no such pair: its agent is of an older build.
/// `ESRCH`: the process has ended.
pub(super) async fn take_standing(pid: i64, container: &ContainerId) -> io::Result<Carrier> {
    let begun = Instant::now();
    let mut has_begun: Option<Instant> = None;
    let (socket, at) = loop {
        match end_of(pid, STANDING_FD) {
            Ok(taken) => break taken,
            // The engine has started it a moment ago. There is no event to wait for, only the appearance of
            // the number.
            Err(TakeError::NotYet(error)) => {
                // An agent of an older build never has the number; this one makes it before anything else.
                let is_late = if Errno::from_io_error(&error) == Some(Errno::BADF) {
                    has_begun.get_or_insert_with(Instant::now).elapsed() > STANDS_WITHIN
                } else {
                    begun.elapsed() > STARTS_WITHIN
                };
                if is_late {
                    return Err(error);
                }
                tokio::time::sleep(LOOK[usize::from(begun.elapsed() > SOON)]).await;
            }
            Err(TakeError::Never(error)) => return Err(error),
        }
    };
    // Without a secret of an offer, only this tells it from PID 1 of another machine's container.
    let refusal = match fs::read_to_string(format!("/proc/{pid}/cgroup")) {
        Ok(groups) if is_of(&groups, container) => return proven(socket, at, STANDING_TOKEN),
        Ok(_) => refused(format!("process {pid} is of another container")),
        Err(error) => unreadable(error),
    };
    close_elsewhere(vec![socket.into()]);
    Err(refusal)
}

/// Why a file of a process in `/proc` cannot be read. That there is no such file, or no longer, means what
/// `ESRCH` does: the process has ended, and somebody has waited for it.
pub(super) fn unreadable(error: io::Error) -> io::Error {
    if error.kind() == io::ErrorKind::NotFound { Errno::SRCH.into() } else { error }
}

/// Whether the control groups of a process, as `/proc/PID/cgroup` shows them, are those of a container: every
/// engine has the container's id in their names.
pub(super) fn is_of(groups: &str, container: &ContainerId) -> bool {
    groups.lines().any(|line| line.contains(container.as_str()))
}

/// Whether a process has ended, by `/proc/PID/stat`: its state is behind its name, which may have any
/// character.
pub(super) fn has_ended(stat: &str) -> bool {
    let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
    matches!(state, Some('Z' | 'X'))
}

/// Why there is no descriptor.
enum TakeError {
    /// PID 1 of the container is on its way.
    NotYet(io::Error),
    /// Another attempt would fail like this one.
    Never(io::Error),
}

impl From<TakeError> for io::Error {
    fn from(error: TakeError) -> Self {
        match error {
            TakeError::NotYet(error) | TakeError::Never(error) => error,
        }
    }
}

/// Takes a descriptor out of a process that must be PID 1 of a container.
fn end_of(pid: i64, number: RawFd) -> Result<(StdStream, Pid), TakeError> {
    let never = |error: Errno| TakeError::Never(error.into());
    let known = i32::try_from(pid).ok().filter(|pid| *pid > 1).and_then(Pid::from_raw);
    let at = known
        .ok_or_else(|| TakeError::Never(refused(format!("{pid} is not the process id of a container"))))?;
    let process = pidfd_open(at, PidfdFlags::empty()).map_err(never)?;
    // Read after the pidfd is open: if the id has passed to another process by now, the next call fails.
    let unreadable = |error| TakeError::Never(unreadable(error));
    let command = fs::read(format!("/proc/{pid}/cmdline")).map_err(unreadable)?;
    if command != format!("{AGENT_PROGRAM}\0init\0").into_bytes() {
        if command.is_empty() {
            // It has ended, and nobody has waited for it yet; or it is about to become the agent.
            let error = Errno::SRCH.into();
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).map_err(unreadable)?;
            return Err(if has_ended(&stat) { TakeError::Never(error) } else { TakeError::NotYet(error) });
        }
        let mut words = command.split(|byte| *byte == 0);
        // All of it may be long: a runtime's own command line.
        let program = String::from_utf8_lossy(words.next().unwrap_or_default()).into_owned();
        let error = refused(format!("process {pid} runs {program:?}, not the agent"));
        // The process that becomes the agent is the runtime's, `runc init`.
        let starts = words.next() == Some(b"init") && program != AGENT_PROGRAM;
        return Err(if starts { TakeError::NotYet(error) } else { TakeError::Never(error) });
    }
    match pidfd_getfd(&process, number, PidfdGetfdFlags::empty()) {
        Ok(socket) => Ok((socket.into(), at)),
        Err(Errno::BADF) => Err(TakeError::NotYet(Errno::BADF.into())),
        Err(error) => Err(never(error)),
    }
}

/// A carrier of a descriptor, once it is known to be the daemon's end.
pub(super) fn proven(socket: StdStream, at: Pid, token: [u8; 16]) -> io::Result<Carrier> {
    if let Err(error) = prove(&socket, at, token) {
        close_elsewhere(vec![socket.into()]);
        return Err(error);
    }
    let (from, to) = halves(socket)?;
    Ok((Box::new(from), Box::new(to)))
}

/// Checks that the socket's other end belongs to PID 1 and that the token comes out of it: otherwise it is
/// some other descriptor, or of another machine's process.
fn prove(socket: &StdStream, at: Pid, token: [u8; 16]) -> io::Result<()> {
    let peer = socket_peercred(socket)?.pid;
    if peer != at {
        let (peer, at) = (peer.as_raw_nonzero(), at.as_raw_nonzero());
        return Err(refused(format!("its other end is process {peer}, not {at}")));
    }
    // The token is there since before the number was told. First only a look: of another descriptor nothing
    // may be taken. Then again, since a daemon that starts meanwhile may have taken it.
    for flags in [RecvFlags::PEEK | RecvFlags::DONTWAIT, RecvFlags::DONTWAIT] {
        let mut received = [0; 16];
        let (seen, _) = recv(socket, &mut received, flags)?;
        if seen != token.len() || received != token {
            return Err(refused("its first bytes are not the token".to_owned()));
        }
    }
    Ok(())
}
