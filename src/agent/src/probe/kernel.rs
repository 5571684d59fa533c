//! What all containers share with their host: whether a program in here can take it, change it or leave it
//! behind.
//!
//! It must never try what would hurt a host that does not refuse it: each attempt asks for as little as
//! possible.
#![expect(unsafe_code, reason = "the system calls that must be refused have no safe wrappers")]

use std::os::fd::AsRawFd;

use paddock_proto::message::Allowed;
use rustix::pipe::{PipeFlags, pipe_with};

use crate::sys;

/// `PRIO_PROCESS` of setpriority(2) and `IOPRIO_WHO_PROCESS` of ioprio_set(2).
const PROCESS: [libc::c_long; 2] = [0, 1];
/// The lowest class of ioprio_set(2).
const IO_IDLE: libc::c_long = 3 << 13;
/// The host's bound of terminals, which holds where a mount has none of its own.
const TERMINALS_OF_HOST: &str = "/proc/sys/kernel/pty/max";

/// Some of the files that containers are made with masked: the locks of all processes, keys of all users, the
/// kernel's symbols.
const HOST_FILES: [&str; 3] = ["/proc/locks", "/proc/keys", "/proc/kallsyms"];

/// Calls that must be refused, and the errno that each gave; 0 where it went through. PID 1 makes them, and
/// all runs inherit its scheduling.
pub(super) fn refused() -> Vec<(String, i32)> {
    let mut seen = Vec::new();
    let mut tell = |name: &str, result: libc::c_long| {
        let errno = std::io::Error::last_os_error().raw_os_error().unwrap_or(-1);
        seen.push((name.to_owned(), if result < 0 { errno } else { 0 }));
    };
    if let Ok((_reading, writing)) = pipe_with(PipeFlags::CLOEXEC) {
        let none = std::ptr::null::<libc::iovec>();
        // SAFETY: of no memory at all.
        tell("vmsplice", unsafe { libc::syscall(libc::SYS_vmsplice, writing.as_raw_fd(), none, 0, 0) });
    }
    let mut context: libc::c_ulong = 0;
    // SAFETY: `context` outlives the call; a context that is made is destroyed.
    tell("io_setup", unsafe { libc::syscall(libc::SYS_io_setup, 1, &raw mut context) });
    if context != 0 {
        // SAFETY: it was made just now, and nothing uses it.
        unsafe { libc::syscall(libc::SYS_io_destroy, context) };
    }
    let lowest = libc::sched_param { sched_priority: 0 };
    // SAFETY: `lowest` outlives the call.
    tell("sched_setscheduler(1)", unsafe {
        libc::syscall(libc::SYS_sched_setscheduler, 1, libc::SCHED_IDLE, &raw const lowest)
    });
    // SAFETY: plain numbers.
    tell("setpriority(1)", unsafe { libc::syscall(libc::SYS_setpriority, PROCESS[0], 1, 1) });
    // SAFETY: plain numbers.
    tell("ioprio_set(1)", unsafe { libc::syscall(libc::SYS_ioprio_set, PROCESS[1], 1, IO_IDLE) });
    // This one is answered as done; it must have done nothing.
    seen.push(("sched_setaffinity(1)".to_owned(), if affinity_changes() { 0 } else { libc::EPERM }));
    seen
}

/// Whether PID 1 can be bound to the first of its processors.
fn affinity_changes() -> bool {
    let read = || {
        // SAFETY: plain data, for which all zeroes is a value; it outlives the call.
        unsafe {
            let mut set: libc::cpu_set_t = std::mem::zeroed();
            libc::sched_getaffinity(1, size_of::<libc::cpu_set_t>(), &raw mut set);
            set
        }
    };
    let before = read();
    // SAFETY: the sets are plain data, and the numbers are below their size.
    unsafe {
        let mut one: libc::cpu_set_t = std::mem::zeroed();
        let most = usize::try_from(libc::CPU_SETSIZE).unwrap_or(0);
        let Some(first) = (0..most).find(|cpu| libc::CPU_ISSET(*cpu, &before)) else { return false };
        libc::CPU_SET(first, &mut one);
        libc::sched_setaffinity(1, size_of::<libc::cpu_set_t>(), &raw const one);
        !libc::CPU_EQUAL(&before, &read())
    }
}

/// The ambient capabilities of this thread, where its status has no line for them. A kernel that does not
/// know the call has no such set.
pub(super) fn ambient() -> u64 {
    const IS_SET: libc::c_ulong = 1;
    // SAFETY: plain numbers.
    let asked = |capability: u64| unsafe {
        let answer = libc::prctl(libc::PR_CAP_AMBIENT, IS_SET, capability, 0, 0);
        (answer, std::io::Error::last_os_error().raw_os_error())
    };
    (0..64).fold(0, |set, capability| match asked(capability) {
        (0, _) | (-1, Some(libc::EINVAL)) => set,
        _ => set | 1 << capability,
    })
}

/// Files about the whole host that the engine was asked to mask, and that have bytes all the same.
pub(super) fn host_files() -> Vec<String> {
    let is_readable = |path: &&&str| std::fs::read(path).is_ok_and(|bytes| !bytes.is_empty());
    HOST_FILES.iter().filter(is_readable).map(|path| (*path).to_owned()).collect()
}

/// The soft and hard limit of core dumps after an attempt to set both to 0.
pub(super) fn core_limit() -> [u64; 2] {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` outlives the calls.
    unsafe {
        libc::setrlimit(libc::RLIMIT_CORE, &raw const limit);
        libc::getrlimit(libc::RLIMIT_CORE, &raw mut limit);
    }
    [limit.rlim_cur, limit.rlim_max]
}

/// Where the kernel sends core dumps; empty where that cannot be read.
pub(super) fn core_pattern() -> String {
    let pattern = std::fs::read_to_string("/proc/sys/kernel/core_pattern").unwrap_or_default();
    pattern.trim_end().chars().take(128).collect()
}

/// Whether a System V segment outlives the process that made and used it.
pub(super) fn segments_stay() -> bool {
    const KEY: libc::key_t = 0x7061_6464;
    const SIZE: usize = 4096;
    let made = sys::in_a_child(|| {
        // SAFETY: the segment's memory is not touched; detaching is the exit's.
        unsafe {
            let segment = libc::shmget(KEY, SIZE, libc::IPC_CREAT | 0o600);
            segment >= 0 && libc::shmat(segment, std::ptr::null(), 0).addr() != usize::MAX
        }
    });
    // SAFETY: numbers; a segment that is there is removed.
    unsafe {
        let segment = libc::shmget(KEY, SIZE, 0);
        made && segment >= 0 && libc::shmctl(segment, libc::IPC_RMID, std::ptr::null_mut()) == 0
    }
}

/// How many terminals `/dev/pts` gives out. A mount without a bound of its own shares the host's.
pub(super) fn terminals() -> Allowed {
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    match most_terminals(&mounts) {
        None | Some(Allowed::All) if std::fs::metadata(TERMINALS_OF_HOST).is_err() => Allowed::Unseen,
        None => Allowed::UpTo(0),
        Some(most) => most,
    }
}

/// By the text of /proc/PID/mounts; `None` where it has no `/dev/pts`.
fn most_terminals(mounts: &str) -> Option<Allowed> {
    let mount = mounts.lines().rfind(|line| line.split(' ').nth(1) == Some("/dev/pts"))?;
    let mut options = mount.split(' ').nth(3).unwrap_or_default().split(',');
    let most = options.find_map(|option| option.strip_prefix("max=")?.parse().ok());
    Some(most.map_or(Allowed::All, Allowed::UpTo))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bound_of_terminals_is_the_mounts() {
        let line = |options: &str| {
            format!(
                "proc /proc proc rw 0 0\ndevpts /dev/pts devpts rw,gid=5,{options} 0 0\nx /y z rw,max=3 0 0\n"
            )
        };
        assert_eq!(most_terminals(&line("mode=620,ptmxmode=666")), Some(Allowed::All));
        assert_eq!(most_terminals(&line("ptmxmode=666,max=64")), Some(Allowed::UpTo(64)));
        assert_eq!(most_terminals("proc /proc proc rw 0 0\n"), None);
    }
}
