//! The system calls of seccomp's user notification (`seccomp_unotify(2)`), as safe functions.
//!
//! A call that was judged must never go on in the kernel ([`StoppedCall::proceed`]): the kernel would read
//! the arguments again, and they may have changed since. Only what needs no judgement may, because every call
//! that the kernel could make in its place is harmless as well; see [`crate::network`].
#![expect(unsafe_code, reason = "seccomp and its ioctls have no safe form")]

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use rustix::io::Errno;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// A system call that the kernel has stopped for PID 1.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StoppedCall {
    id: u64,
    /// The thread that made it.
    pub(crate) tid: u32,
    pub(crate) number: i64,
    pub(crate) args: [u64; 6],
}

/// What there is at a listener.
pub(crate) enum News {
    Call(StoppedCall),
    Nothing,
    /// No process is left that could make a call.
    Over,
}

/// Puts this process, and all that it starts, under a filter; the descriptor over which its calls are
/// answered.
///
/// # Errors
/// The kernel's, where it has no such filter or does not allow it.
pub(crate) fn install(filter: &[libc::sock_filter]) -> io::Result<OwnedFd> {
    let flags = libc::SECCOMP_FILTER_FLAG_NEW_LISTENER | libc::SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV;
    let fd = set(filter, flags)?;
    // SAFETY: the kernel has just made it, nobody else knows of it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Puts this process, and all that it starts, under a filter that stops nothing.
///
/// # Errors
/// The kernel's, where it has no filters or does not allow them.
pub(crate) fn install_without_listener(filter: &[libc::sock_filter]) -> io::Result<()> {
    set(filter, 0).map(|_| ())
}

fn set(filter: &[libc::sock_filter], flags: libc::c_ulong) -> io::Result<i32> {
    let len = u16::try_from(filter.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    let program = libc::sock_fprog { len, filter: filter.as_ptr().cast_mut() };
    // SAFETY: the kernel copies the program, which lives until then, and does not write to it.
    let done =
        unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, &raw const program) };
    i32::try_from(done).ok().filter(|fd| *fd >= 0).ok_or_else(io::Error::last_os_error)
}

/// Registers a descriptor, so that a task can wait until it is readable.
pub(crate) fn watched(fd: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: it is owned, hence open and the same until the `AsyncFd` is dropped.
    Ok(unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) }?)
}

/// Whether the kernel's messages have the sizes that this program knows.
pub(crate) fn is_known() -> bool {
    let mut sizes = libc::seccomp_notif_sizes { seccomp_notif: 0, seccomp_notif_resp: 0, seccomp_data: 0 };
    // SAFETY: the kernel writes the structure, which outlives the call.
    let done = unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_GET_NOTIF_SIZES, 0, &raw mut sizes) };
    done == 0
        && usize::from(sizes.seccomp_notif) == size_of::<libc::seccomp_notif>()
        && usize::from(sizes.seccomp_notif_resp) == size_of::<libc::seccomp_notif_resp>()
}

/// The next call, if there is one. This never waits: the kernel has a message for each that it announces,
/// also where the caller dies in between.
pub(crate) fn next(listener: impl AsFd) -> io::Result<News> {
    let fd = listener.as_fd().as_raw_fd();
    loop {
        let mut poll = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        // SAFETY: one structure, which outlives the call.
        let ready = unsafe { libc::poll(&raw mut poll, 1, 0) };
        if ready < 0 {
            match io::Error::last_os_error() {
                error if error.kind() == io::ErrorKind::Interrupted => continue,
                error => return Err(error),
            }
        }
        if poll.revents & libc::POLLIN == 0 {
            let over = poll.revents & (libc::POLLHUP | libc::POLLERR | libc::POLLNVAL) != 0;
            return Ok(if over { News::Over } else { News::Nothing });
        }
        // SAFETY: plain data, for which all zeroes is a value (and what the kernel demands).
        let mut call: libc::seccomp_notif = unsafe { std::mem::zeroed() };
        // SAFETY: the kernel writes the structure, which outlives the call.
        if unsafe { libc::ioctl(fd, libc::SECCOMP_IOCTL_NOTIF_RECV, &raw mut call) } == 0 {
            let number = call.data.nr.into();
            return Ok(News::Call(StoppedCall { id: call.id, tid: call.pid, number, args: call.data.args }));
        }
        match io::Error::last_os_error().raw_os_error() {
            Some(libc::ENOENT | libc::EINTR) => {} // the caller was killed
            _ => return Err(io::Error::last_os_error()),
        }
    }
}

/// Acts with all signals blocked: each of these calls can be interrupted. An interrupted answer would not be
/// given, and a descriptor only half: the call would return 0, and the program would take its standard input
/// for what it opened.
fn without_signals<T>(act: impl FnOnce() -> T) -> T {
    // SAFETY: plain data, for which all zeroes is a value; every pointer outlives its call.
    let before = unsafe {
        let (mut all, mut before): (libc::sigset_t, libc::sigset_t) =
            (std::mem::zeroed(), std::mem::zeroed());
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
        before
    };
    let done = act();
    // SAFETY: as above.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut()) };
    done
}

impl StoppedCall {
    /// Whether it still waits. If so, what was read in /proc under its thread's number was its own.
    pub(crate) fn is_waiting(&self, listener: BorrowedFd<'_>) -> bool {
        without_signals(|| {
            // SAFETY: the kernel reads the number, which outlives the call.
            unsafe {
                libc::ioctl(listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_ID_VALID, &raw const self.id) == 0
            }
        })
    }

    /// Answers it without a descriptor. The answer is dropped if the call no longer waits.
    pub(crate) fn answer(&self, listener: BorrowedFd<'_>, result: Result<(), Errno>) {
        self.respond(listener, result.err().map_or(0, |errno| -errno.raw_os_error()), 0);
    }

    /// Lets the kernel make the call, with whatever the arguments are by then.
    pub(crate) fn proceed(&self, listener: BorrowedFd<'_>) {
        self.respond(listener, 0, u32::try_from(libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE).unwrap_or(1));
    }

    fn respond(&self, listener: BorrowedFd<'_>, error: i32, flags: u32) {
        let mut answer = libc::seccomp_notif_resp { id: self.id, val: 0, error, flags };
        without_signals(|| {
            // SAFETY: the kernel reads the structure, which outlives the call.
            unsafe { libc::ioctl(listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_SEND, &raw mut answer) }
        });
    }

    /// Gives the caller this descriptor, which is the call's result.
    pub(crate) fn give(&self, listener: BorrowedFd<'_>, fd: &OwnedFd, close_on_exec: bool) {
        let given = libc::seccomp_notif_addfd {
            id: self.id,
            flags: u32::try_from(libc::SECCOMP_ADDFD_FLAG_SEND).unwrap_or(0),
            srcfd: fd.as_raw_fd().cast_unsigned(),
            newfd: 0,
            newfd_flags: if close_on_exec { libc::O_CLOEXEC.cast_unsigned() } else { 0 },
        };
        let given = without_signals(|| {
            // SAFETY: the kernel reads the structure, which outlives the call.
            let fd = unsafe {
                libc::ioctl(listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_ADDFD, &raw const given)
            };
            if fd < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
        });
        if let Err(error) = given {
            // The caller has as many descriptors as it may have, or no longer waits.
            let errno = error.raw_os_error().unwrap_or(libc::EMFILE);
            self.answer(listener, Err(Errno::from_raw_os_error(errno)));
        }
    }
}
