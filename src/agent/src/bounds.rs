//! A run's own bounds: those that the kernel keeps for a process, and those that it has for none but a container, which are
//! looked at while the run is under way.
//!
//! It must never name a bound that was not hit: a program may end by the same signal, or with the same code, for its own
//! reasons.

use std::time::Duration;

use paddock_proto::message::{Limit, RunLimits};

/// How often the processes of a run are looked at, where something bounds them all together.
pub(crate) const LOOK: Duration = Duration::from_millis(20);

/// What part of its CPU time, in percent, a program has used at least when it ends for it: rlimits count ticks, which can be
/// far from what was used where many want the processor.
const MUCH: u64 = 50;

/// Whether all of a run's processes together are to be looked at.
pub(crate) fn are_looked_at(limits: &RunLimits) -> bool {
    limits.memory.is_some() || limits.processes.is_some()
}

/// The bound that these processes are beyond.
pub(crate) fn broken(limits: &RunLimits, processes: &[i32]) -> Option<Limit> {
    let count = u32::try_from(processes.len()).unwrap_or(u32::MAX);
    if limits.processes.is_some_and(|bound| count > bound) {
        return Some(Limit::Pids);
    }
    limits.memory.is_some_and(|bound| memory_of(processes) > bound).then_some(Limit::Memory)
}

/// Bytes that processes have of their own, and of what they share the most that one has: who shares what with whom is not
/// told. By `RssAnon` and `RssShmem` of /proc/PID/status (proc_pid_status(5)); what a process has mapped of /data, which is
/// memory, is among the latter.
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

/// The bound that ended a program with this status, as wait(2) has it, after so much CPU time of all its processes. A shell
/// tells of a signal that ended its last command by 128 and the signal's number.
pub(crate) fn behind(limits: &RunLimits, status: i32, cpu_us: u64) -> Option<Limit> {
    let signal =
        if libc::WIFSIGNALED(status) { libc::WTERMSIG(status) } else { libc::WEXITSTATUS(status) - 128 };
    let spent = limits.cpu_seconds.is_some_and(|seconds| cpu_us >= u64::from(seconds) * 10_000 * MUCH);
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
    fn only_what_was_hit_is_named() {
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
            assert_eq!(behind(&limits, status, cpu_us), what, "{limits:?} {status} {cpu_us}");
        }
    }

    #[test]
    fn processes_are_counted_and_their_memory_added_up() {
        let this = std::process::id().cast_signed();
        let bounded = |memory, processes| RunLimits { memory, processes, ..RunLimits::default() };
        assert_eq!(broken(&bounded(None, Some(1)), &[this]), None);
        assert_eq!(broken(&bounded(None, Some(1)), &[this, this]), Some(Limit::Pids));
        let ballast = vec![1_u8; 8 << 20];
        assert_eq!(broken(&bounded(Some(8 << 20), None), &[this]), Some(Limit::Memory));
        assert_eq!(broken(&bounded(Some(1 << 40), None), &[this]), None);
        drop(ballast);
    }
}
