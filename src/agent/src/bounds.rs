//! The limits of a single run. The kernel enforces some of them for each process. Others it can enforce only
//! for a whole container, so PID 1 checks them while the run is under way.
//!
//! It must never report a limit that the run did not reach: a program may end by the same signal, or with the
//! same exit code, for its own reasons.

use std::time::Duration;

use paddock_proto::message::{Limit, RunLimits};

/// How often the processes of a run are checked, where a limit holds for all of them together.
pub(crate) const LOOK: Duration = Duration::from_millis(20);

/// Percent of its CPU time that a program must have used to have ended for that: the kernel's limit counts
/// ticks, which can be far from the time that was used where many programs compete for the processor.
const CPU_EVIDENCE: u64 = 50;

/// Whether a limit holds for all of a run's processes together.
pub(crate) fn are_checked(limits: &RunLimits) -> bool {
    limits.memory.is_some() || limits.processes.is_some()
}

/// The limit that these processes exceed together.
pub(crate) fn exceeded(limits: &RunLimits, processes: &[i32]) -> Option<Limit> {
    let count = u32::try_from(processes.len()).unwrap_or(u32::MAX);
    if limits.processes.is_some_and(|bound| count > bound) {
        return Some(Limit::Pids);
    }
    limits.memory.is_some_and(|bound| memory_of(processes) > bound).then_some(Limit::Memory)
}

/// Bytes of memory that these processes have: `RssAnon` of each, and of `RssShmem` the largest, since the
/// kernel does not tell which processes share what (proc_pid_status(5)). What a process has mapped of /data,
/// which is memory, is in the latter.
fn memory_of(processes: &[i32]) -> u64 {
    let (mut own, mut shared) = (0, 0);
    for pid in processes {
        let text = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let field = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name));
            line.and_then(|line| line.split_ascii_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0)
                * 1024
        };
        own += field("RssAnon:");
        shared = shared.max(field("RssShmem:"));
    }
    own + shared
}

/// The limit that ended a program with this status, as wait(2) has it, after this much CPU time of all its
/// processes. A shell reports a signal that ended its last command as 128 and the signal's number.
pub(crate) fn cause(limits: &RunLimits, status: i32, cpu_us: u64) -> Option<Limit> {
    let signal =
        if libc::WIFSIGNALED(status) { libc::WTERMSIG(status) } else { libc::WEXITSTATUS(status) - 128 };
    let spent =
        limits.cpu_seconds.is_some_and(|seconds| cpu_us >= u64::from(seconds) * 10_000 * CPU_EVIDENCE);
    match signal {
        libc::SIGXCPU | libc::SIGKILL if spent => Some(Limit::Cpu),
        libc::SIGXFSZ if libc::WIFSIGNALED(status) || limits.file_size.is_some() => Some(Limit::FileSize),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As wait(2) has an exit.
    const fn exited(code: i32) -> i32 {
        code << 8
    }

    #[test]
    fn only_a_limit_that_was_hit_is_named() {
        let none = RunLimits::default();
        let cpu = RunLimits { cpu_seconds: Some(2), ..none };
        let file = RunLimits { file_size: Some(1), ..none };
        for (limits, status, cpu_us, what) in [
            (cpu, libc::SIGXCPU, 2_000_000, Some(Limit::Cpu)),
            (cpu, libc::SIGKILL, 2_950_000, Some(Limit::Cpu)),
            (cpu, exited(128 + libc::SIGXCPU), 1_990_000, Some(Limit::Cpu)),
            (cpu, libc::SIGXCPU, 100_000, None),
            (cpu, exited(0), 2_500_000, None),
            (none, libc::SIGXCPU, 2_000_000, None),
            (none, libc::SIGKILL, 2_000_000, None),
            (file, libc::SIGXFSZ, 0, Some(Limit::FileSize)),
            (file, exited(128 + libc::SIGXFSZ), 0, Some(Limit::FileSize)),
            (none, libc::SIGXFSZ, 0, Some(Limit::FileSize)),
            (none, exited(128 + libc::SIGXFSZ), 0, None),
        ] {
            assert_eq!(cause(&limits, status, cpu_us), what, "{limits:?} {status} {cpu_us}");
        }
    }

    #[test]
    fn processes_are_counted_and_their_memory_added_up() {
        let this = std::process::id().cast_signed();
        let bounded = |memory, processes| RunLimits { memory, processes, ..RunLimits::default() };
        assert_eq!(exceeded(&bounded(None, Some(1)), &[this]), None);
        assert_eq!(exceeded(&bounded(None, Some(1)), &[this, this]), Some(Limit::Pids));
        let ballast = vec![1_u8; 8 << 20];
        assert_eq!(exceeded(&bounded(Some(8 << 20), None), &[this]), Some(Limit::Memory));
        assert_eq!(exceeded(&bounded(Some(1 << 40), None), &[this]), None);
        drop(ballast);
    }
}
