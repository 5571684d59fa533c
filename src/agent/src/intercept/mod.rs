//! System calls of programs that the kernel stops for PID 1, and what else every program is put under.
//!
//! ```text
//!  program ── a call ──► kernel: the filter stops it (filter, install)
//!                           │ seccomp user notification (notify)
//!  PID 1: one task for each program's filter (serve) ─► reads what the call points to (caller)
//!                           │                           and answers: files by `policy`,
//!                           │                           connect by `network`, listen by `ports`
//!  program ◄── the result ──┘
//! ```
//!
//! The kernel allows one listener in a chain of filters, so a program has one filter, which stops all that
//! somebody answers. Every program has one, whatever its run may do: it refuses `pidfd_getfd`, with which a
//! program could take the connections of another. Every program also has a Landlock domain of its own
//! (domain). Both together cost a program about 50 µs at its start, measured by `what_it_costs` below on a
//! busy machine of two cores (kernel 6.18); a run that a warm part takes pays nothing, since the part is
//! under both from its own start.
//!
//! PID 1 must never wait inside of a call, nor give one program's calls more than a turn before others run.

mod caller;
mod domain;
mod filter;
mod install;
mod notify;
mod serve;

pub(crate) use caller::CallingProcess;
pub(crate) use domain::{above, system_error};
pub(crate) use filter::{FCHMODAT2, FileCalls, Stops};
pub(crate) use install::{Confinement, ListenerSocket};
pub(crate) use notify::StoppedCall;
pub(crate) use serve::{Answerers, Answers, NotifyListener};

use crate::complain::complain;

use rustix::io::Errno;
use rustix::process::{PidfdGetfdFlags, pidfd_getfd};

use crate::sys;

/// Whether a process here may answer another's system calls.
pub(crate) fn can_notify() -> bool {
    thread_local!(static WORKS: bool = sys::in_a_child(|| {
        let all = Stops {
            files: FileCalls::ChangesAndOpens,
            connect: true,
            listen: true,
            ..Stops::default()
        };
        let enters = || Confinement::stopped(all).is_ok_and(|(program, _socket)| program.enter().is_ok());
        notify::is_known() && enters()
    }));
    WORKS.with(|works| *works)
}

/// The errno of `pidfd_getfd` where a program calls it; 0 where it goes through.
pub(crate) fn refuses_descriptors() -> i32 {
    let refused = sys::in_a_child(|| {
        // A descriptor that is no process: without the filter it would be refused for that.
        let call = || pidfd_getfd(rustix::stdio::stdin(), 0, PidfdGetfdFlags::empty()).err();
        Confinement::silent().enter().is_ok() && call() == Some(Errno::PERM)
    });
    if refused { Errno::PERM.raw_os_error() } else { 0 }
}

/// Whether each program gets a Landlock domain of its own. Asked before any code runs, it makes what that
/// needs, so that no program comes without one later.
pub(crate) fn separates() -> bool {
    domain::own().is_some()
}

/// What keeps PID 1 from looking into the programs of this container; `None` if nothing does.
pub(crate) fn blind() -> Option<String> {
    // From 2 on nobody without capabilities may read another process' memory.
    let scope = std::fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").unwrap_or_default();
    let scope = scope.trim();
    scope
        .parse::<u32>()
        .is_ok_and(|scope| scope >= 2)
        .then(|| format!("kernel.yama.ptrace_scope below 2; it is {scope}"))
}

impl ListenerSocket {
    /// Answers the calls of a program and of all that it starts, in a task of its own.
    pub(crate) fn serve(self, answerers: Answerers) {
        tokio::task::spawn_local(async move {
            if let Err(error) = serve::serve(self.0, answerers).await {
                complain(&format!("the calls of a program cannot be answered any more: {error}"));
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[ignore = "a measurement"]
    fn what_it_costs() {
        let _ = Confinement::silent(); // makes the ruleset
        for listens in [false, true].repeat(5) {
            assert!(sys::in_a_child(|| {
                let begun = std::time::Instant::now();
                let (confinement, _socket) = if listens {
                    let stops = Stops { listen: true, ..Stops::default() };
                    let (confinement, socket) = Confinement::stopped(stops).expect("a socket");
                    (confinement.or_silent(), Some(socket))
                } else {
                    (Confinement::silent(), None)
                };
                let made = begun.elapsed();
                let entered = confinement.enter().is_ok();
                eprintln!("listens: {listens}, made in {made:?}, entered after {:?}", begun.elapsed());
                entered
            }));
        }
    }

    #[test]
    fn no_program_takes_descriptors_of_another() {
        assert_eq!(refuses_descriptors(), libc::EPERM);
    }
}
