//! Process system calls that have no safe form: fork, wait, exit, kill of everything, a process' parent.
//!
//! It must never fork in a process with more than one thread. PID 1 has one, and so has every child that it
//! forks.
#![expect(
    unsafe_code,
    reason = "fork, wait4, kill(-1), _exit and a pidfd's ioctl have no safe form; there is one thread"
)]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};

/// The first descriptor behind standard error. A program finds its own standard input there when its code is
/// on 0. What a forked process needs until it executes the program lies above it.
pub(crate) const EXTRA_FD: RawFd = 3;

/// CPU time and memory of the children that were waited for.
#[derive(Debug, Default)]
pub(crate) struct Usage {
    pub(crate) cpu_us: u64,
    /// The largest resident size of any of them.
    pub(crate) max_rss_kib: u64,
}

/// Which side of a fork a process is.
pub(crate) enum Fork {
    Child,
    /// The child's PID.
    Parent(i32),
}

/// Forks. The child has copies of everything and may do whatever a process may do, since there is one thread.
///
/// # Errors
/// `EAGAIN` when the container may have no more processes.
pub(crate) fn fork() -> io::Result<Fork> {
    // SAFETY: this process has one thread, so no lock is held by a thread that the child does not have.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(Fork::Child),
        pid => Ok(Fork::Parent(pid)),
    }
}

/// The PID of a process' parent; 0 if that is not in this container.
///
/// # Errors
/// `ESRCH` if its parent has waited for it, so that its number may be another's; `ENOTTY` or `EINVAL` from a
/// kernel that does not tell.
pub(crate) fn parent(process: BorrowedFd<'_>) -> io::Result<i32> {
    // SAFETY: plain data, for which all zeroes is a value (and asks for what every kernel tells).
    let mut info: libc::pidfd_info = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel writes the structure, which outlives the call.
    if unsafe { libc::ioctl(process.as_raw_fd(), libc::PIDFD_GET_INFO, &raw mut info) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(info.ppid.cast_signed())
}

/// The number of a process' session, which is its leader's PID; 0 if the leader is not in this container.
/// (rustix 1.1 takes 0 for impossible, and panics.)
///
/// # Errors
/// `ESRCH` if there is no such process.
pub(crate) fn session(pid: i32) -> io::Result<i32> {
    // SAFETY: the call takes a number and touches no memory.
    match unsafe { libc::getsid(pid) } {
        -1 => Err(io::Error::last_os_error()),
        session => Ok(session),
    }
}

/// One `wait4` for any child: its PID (0: none is dead yet) and its status, or `None` when there is no child.
pub(crate) fn wait(flags: i32, usage: &mut Usage) -> Option<(i32, i32)> {
    loop {
        let mut status = 0;
        // SAFETY: rusage is plain data, for which all zeroes is a value; both pointers outlive the call.
        let (pid, used) = unsafe {
            let mut used: libc::rusage = std::mem::zeroed();
            (libc::wait4(-1, &raw mut status, flags, &raw mut used), used)
        };
        if pid > 0 {
            for time in [used.ru_utime, used.ru_stime] {
                usage.cpu_us += time.tv_sec.cast_unsigned() * 1_000_000 + time.tv_usec.cast_unsigned();
            }
            usage.max_rss_kib = usage.max_rss_kib.max(used.ru_maxrss.cast_unsigned());
        }
        if pid >= 0 {
            return Some((pid, status));
        }
        if errno() != libc::EINTR {
            return None;
        }
    }
}

/// Reaps one dead child, if there is one. A child that was stopped is continued at once: a job has work to
/// do, whatever the code that it supervises thinks of it.
pub(crate) fn reap_one() -> Option<i32> {
    loop {
        match wait(libc::WNOHANG | libc::WUNTRACED, &mut Usage::default()) {
            Some((pid, status)) if pid > 0 && libc::WIFSTOPPED(status) => {
                // SAFETY: a plain system call.
                unsafe { libc::kill(pid, libc::SIGCONT) };
            }
            Some((pid, _)) if pid > 0 => return Some(pid),
            Some(_) | None => return None,
        }
    }
}

/// Continues every stopped process of the container, the bridge included.
pub(crate) fn continue_all() {
    // SAFETY: a plain system call; sent by PID 1 it reaches every process but PID 1.
    unsafe { libc::kill(-1, libc::SIGCONT) };
}

/// Runs `act` in a child process; true if it returned true. For trying what a system call does.
pub(crate) fn in_a_child(act: impl FnOnce() -> bool) -> bool {
    match fork() {
        Err(_) => false,
        Ok(Fork::Child) => {
            // A panic must not go on in the frames of the parent, whose copy would end well.
            let good = std::panic::catch_unwind(std::panic::AssertUnwindSafe(act));
            exit(i32::from(!good.unwrap_or(false)))
        }
        Ok(Fork::Parent(pid)) => {
            let mut status = 0;
            // SAFETY: `status` outlives the call.
            while unsafe { libc::waitpid(pid, &raw mut status, 0) } < 0 && errno() == libc::EINTR {}
            libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0
        }
    }
}

/// Closes every descriptor but these; negative numbers are ignored.
///
/// # Safety
/// No object that is used afterwards may own one of the others.
pub(crate) unsafe fn close_all_but(keep: &[RawFd]) {
    let mut keep: Vec<u32> = keep.iter().filter_map(|fd| u32::try_from(*fd).ok()).collect();
    keep.sort_unstable();
    let mut from = 0u32;
    for fd in keep.into_iter().chain([u32::MAX]) {
        if fd > from {
            // SAFETY: as the caller promised.
            let done = unsafe { libc::syscall(libc::SYS_close_range, from, fd - 1, 0) };
            if done != 0 {
                for one in from..fd.min(4096) {
                    // SAFETY: as the caller promised.
                    unsafe { libc::close(one.cast_signed()) };
                }
            }
        }
        from = fd.saturating_add(1);
    }
}

/// The version of Landlock that the kernel has; 0 where it has none.
pub(crate) fn landlock_version() -> u32 {
    // SAFETY: asks for the version only (LANDLOCK_CREATE_RULESET_VERSION), nothing is made.
    let version = unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, 0, 0, 1) };
    u32::try_from(version).unwrap_or(0)
}

/// The error of the last system call.
pub(crate) fn errno() -> i32 {
    io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

/// Ends this process and runs nothing of what it was forked with.
pub(crate) fn exit(code: i32) -> ! {
    // SAFETY: runs no destructor and no handler.
    unsafe { libc::_exit(code) }
}
