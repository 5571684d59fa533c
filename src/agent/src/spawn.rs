//! Starting a run: PID 1 forks a *job*, the job forks the program.
//!
//! ```text
//!  PID 1 ─fork─► job: child subreaper, keeps only the status pipe
//!                  └─fork─► program: setsid, descriptors 0 1 2 (3), cwd, exec
//!  job: waits for the program, kills whatever else it started, reports, exits
//! ```
//!
//! The job stays a copy of PID 1 (no exec), hence as undumpable as PID 1. All `unsafe` of the agent that
//! makes processes is here. It must never run in a process with more than one thread: PID 1 has one.
#![expect(unsafe_code, reason = "fork, exec and wait4 have no safe form; the process is single-threaded")]

use std::ffi::CString;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use paddock_proto::message::RunLimits;

use crate::policy::Confinement;
use crate::tree;

/// A program ready to be started; all of its descriptors are close-on-exec.
pub(crate) struct Program {
    /// Candidates for the executable, in the order of `PATH`.
    pub(crate) paths: Vec<CString>,
    pub(crate) argv: Vec<CString>,
    pub(crate) env: Vec<CString>,
    pub(crate) cwd: CString,
    pub(crate) stdin: OwnedFd,
    pub(crate) stdout: OwnedFd,
    pub(crate) stderr: OwnedFd,
    /// Becomes descriptor [`EXTRA_FD`].
    pub(crate) extra: Option<OwnedFd>,
    /// What the kernel keeps of them is each process's.
    pub(crate) limits: RunLimits,
    /// Which files it may write and read.
    pub(crate) confinement: Option<Confinement>,
}

/// Where the program finds its own standard input, the code being on 0.
pub(crate) const EXTRA_FD: RawFd = 3;

/// What the job says over its status pipe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Report {
    /// The program has this PID.
    Started(i32),
    /// It could not be executed: errno.
    Failed(i32),
    /// It is dead, and so is everything it started.
    Ended { status: i32, cpu_us: u64, max_rss_kib: u64, leftovers: u32 },
}

/// Bytes of a report on the pipe; far below `PIPE_BUF`, so each is written at once.
pub(crate) const REPORT: usize = 32;

impl Report {
    fn to_bytes(self) -> [u8; REPORT] {
        let (kind, a, b, c, d) = match self {
            Self::Started(pid) => (1u32, pid, 0, 0, 0),
            Self::Failed(errno) => (2, errno, 0, 0, 0),
            Self::Ended { status, cpu_us, max_rss_kib, leftovers } => {
                (3, status, leftovers, cpu_us, max_rss_kib)
            }
        };
        let mut bytes = [0; REPORT];
        bytes[0..4].copy_from_slice(&kind.to_le_bytes());
        bytes[4..8].copy_from_slice(&a.to_le_bytes());
        bytes[8..12].copy_from_slice(&b.to_le_bytes());
        bytes[16..24].copy_from_slice(&c.to_le_bytes());
        bytes[24..32].copy_from_slice(&d.to_le_bytes());
        bytes
    }

    pub(crate) fn from_bytes(bytes: &[u8; REPORT]) -> Option<Self> {
        let word = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let long = |at: usize| u64::from(word(at)) | u64::from(word(at + 4)) << 32;
        match word(0) {
            1 => Some(Self::Started(word(4).cast_signed())),
            2 => Some(Self::Failed(word(4).cast_signed())),
            3 => Some(Self::Ended {
                status: word(4).cast_signed(),
                leftovers: word(8),
                cpu_us: long(16),
                max_rss_kib: long(24),
            }),
            _ => None,
        }
    }
}

/// Forks the job for `program`; its PID and the reading end of its status pipe.
///
/// # Errors
/// Those of pipe and fork (`EAGAIN` when the container has no process left).
pub(crate) fn start(program: &Program) -> std::io::Result<(i32, OwnedFd)> {
    let (reports, to_parent) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    // SAFETY: this process has one thread, so the child may do whatever a process may do.
    match unsafe { libc::fork() } {
        -1 => Err(std::io::Error::last_os_error()),
        0 => job(program, to_parent.as_raw_fd()),
        pid => Ok((pid, reports)),
    }
}

/// The job's whole life. It shares nothing with PID 1 but what it was forked with.
fn job(program: &Program, status: RawFd) -> ! {
    let say = |report: Report| {
        let bytes = report.to_bytes();
        // SAFETY: `bytes` outlives the call.
        unsafe { libc::write(status, bytes.as_ptr().cast(), REPORT) };
    };
    let extra = program.extra.as_ref().map_or(-1, AsRawFd::as_raw_fd);
    let socket = program.confinement.as_ref().map_or(-1, |confinement| confinement.socket().as_raw_fd());
    let (stdin, stdout) = (program.stdin.as_raw_fd(), program.stdout.as_raw_fd());
    let keep = [status, stdin, stdout, program.stderr.as_raw_fd(), extra, socket];
    // SAFETY: plain system calls on this process' own state; descriptors are closed that nobody here uses.
    unsafe {
        libc::signal(libc::SIGCHLD, libc::SIG_DFL);
        libc::signal(libc::SIGPIPE, libc::SIG_DFL);
        libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1);
        close_all_but(&keep);
    }
    // Its writing end lies above what the program's own descriptors will be put on.
    let pipe = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)
        .and_then(|(read, write)| Ok((read, rustix::io::fcntl_dupfd_cloexec(&write, EXTRA_FD + 1)?)));
    let Ok((executed, executing)) = pipe else {
        say(Report::Failed(libc::EMFILE));
        exit(1);
    };
    // SAFETY: single-threaded as its parent.
    let main = match unsafe { libc::fork() } {
        -1 => {
            say(Report::Failed(errno()));
            exit(1);
        }
        0 => execute(program, &say),
        pid => pid,
    };
    // SAFETY: these descriptors belong to the program now.
    unsafe { close_all_but(&[status, executed.as_raw_fd()]) };
    std::mem::forget(executing); // closed with all the others
    say(Report::Started(main));
    // An exec closes the pipe. Before it the program is as undumpable as PID 1, and its files in /proc are root's;
    // from then on they are ours, and it and what it starts go first when memory runs out.
    let _ = rustix::io::read(&executed, &mut [0_u8; 1]);
    let _ = std::fs::write(format!("/proc/{main}/oom_score_adj"), "1000");

    let mut used = Used::default();
    let status_of_main = loop {
        match wait(0, &mut used) {
            Some((pid, status)) if pid == main => break status,
            Some(_) => {}
            None => break 0,
        }
    };
    let mut leftovers = 0;
    loop {
        // Reap what is dead, kill what is not, wait for one death, look again: a killed process' children
        // come to this subreaper, and a process with a pending SIGKILL cannot fork.
        let living = loop {
            match wait(libc::WNOHANG, &mut used) {
                Some((0, _)) => break true,
                Some(_) => leftovers += 1,
                None => break false,
            }
        };
        if !living {
            break;
        }
        let rest = tree::descendants(std::process::id().cast_signed());
        tree::kill(&rest);
        match wait(0, &mut used) {
            Some(_) => leftovers += 1,
            None => break,
        }
    }
    say(Report::Ended {
        status: status_of_main,
        cpu_us: used.cpu_us,
        max_rss_kib: used.max_rss_kib,
        leftovers,
    });
    exit(0)
}

/// The program's process: becomes the program or says why not.
fn execute(program: &Program, say: &dyn Fn(Report)) -> ! {
    let pointers = |strings: &[CString]| {
        strings.iter().map(|s| s.as_ptr()).chain([std::ptr::null()]).collect::<Vec<_>>()
    };
    let (argv, env) = (pointers(&program.argv), pointers(&program.env));
    // SAFETY: every pointer comes from a CString that lives until exec; the arrays end in null.
    unsafe {
        libc::setsid();
        // Out of the way first, so that no dup2 overwrites the source of the next.
        let high = |fd: RawFd| libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, EXTRA_FD + 1);
        let fds = [
            high(program.stdin.as_raw_fd()),
            high(program.stdout.as_raw_fd()),
            high(program.stderr.as_raw_fd()),
        ];
        let extra = program.extra.as_ref().map(|fd| high(fd.as_raw_fd()));
        for (target, fd) in (0..).zip(fds) {
            if libc::dup2(fd, target) < 0 {
                say(Report::Failed(errno()));
                exit(127);
            }
        }
        if let Some(fd) = extra {
            libc::dup2(fd, EXTRA_FD);
        }
        if libc::chdir(program.cwd.as_ptr()) != 0 {
            say(Report::Failed(errno()));
            exit(127);
        }
        if !limit(&program.limits) {
            say(Report::Failed(errno()));
            exit(127);
        }
        if let Some(confinement) = &program.confinement
            && let Err(error) = confinement.enter()
        {
            say(Report::Failed(error.raw_os_error().unwrap_or(libc::EPERM)));
            exit(127);
        }
        let mut last = libc::ENOENT;
        for path in &program.paths {
            libc::execve(path.as_ptr(), argv.as_ptr(), env.as_ptr());
            last = errno();
            if last != libc::ENOENT && last != libc::ENOTDIR {
                break;
            }
        }
        say(Report::Failed(last));
    }
    exit(127)
}

/// Puts this process under its own bounds; those of the container hold beside them.
fn limit(limits: &RunLimits) -> bool {
    let set = |resource, soft: u64, hard: u64| {
        let mut now = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: both structures outlive the calls.
        unsafe {
            libc::getrlimit(resource, &raw mut now);
            let wanted = libc::rlimit { rlim_cur: soft.min(now.rlim_max), rlim_max: hard.min(now.rlim_max) };
            libc::setrlimit(resource, &raw const wanted) == 0
        }
    };
    let cpu = limits.cpu_seconds.is_none_or(|n| set(libc::RLIMIT_CPU, u64::from(n), u64::from(n) + 1));
    cpu && limits.file_size.is_none_or(|n| set(libc::RLIMIT_FSIZE, n, n))
}

#[derive(Default)]
struct Used {
    cpu_us: u64,
    max_rss_kib: u64,
}

/// One `wait4`: the PID (0: none dead yet) and status, or `None` when there is no child.
fn wait(flags: i32, used: &mut Used) -> Option<(i32, i32)> {
    loop {
        let mut status = 0;
        // SAFETY: rusage is plain data, for which all zeroes is a value; both pointers outlive the call.
        let (pid, usage) = unsafe {
            let mut usage: libc::rusage = std::mem::zeroed();
            (libc::wait4(-1, &raw mut status, flags, &raw mut usage), usage)
        };
        if pid > 0 {
            for time in [usage.ru_utime, usage.ru_stime] {
                used.cpu_us += time.tv_sec.cast_unsigned() * 1_000_000 + time.tv_usec.cast_unsigned();
            }
            used.max_rss_kib = used.max_rss_kib.max(usage.ru_maxrss.cast_unsigned());
        }
        if pid >= 0 {
            return Some((pid, status));
        }
        if errno() != libc::EINTR {
            return None;
        }
    }
}

/// Reaps one dead child of PID 1, if there is one. A child that was stopped goes on at once: a job has work to do,
/// whatever the code that it watches thinks of it.
pub(crate) fn reap_one() -> Option<i32> {
    loop {
        match wait(libc::WNOHANG | libc::WUNTRACED, &mut Used::default()) {
            Some((pid, status)) if pid > 0 && libc::WIFSTOPPED(status) => {
                // SAFETY: a plain system call.
                unsafe { libc::kill(pid, libc::SIGCONT) };
            }
            Some((pid, _)) if pid > 0 => return Some(pid),
            Some(_) | None => return None,
        }
    }
}

/// Lets a process go on that someone has stopped.
pub(crate) fn wake(pid: i32) {
    if pid > 1 {
        // SAFETY: a plain system call.
        unsafe { libc::kill(pid, libc::SIGCONT) };
    }
}

/// Lets every process of the container go on that someone has stopped, the bridge among them.
pub(crate) fn wake_all() {
    // SAFETY: a plain system call; from PID 1 it reaches every process but PID 1.
    unsafe { libc::kill(-1, libc::SIGCONT) };
}

/// A process that does one thing and exits; true if it exited with 0. For probing what a system call does.
pub(crate) fn in_a_child(act: impl FnOnce() -> bool) -> bool {
    // SAFETY: single-threaded; the child only acts and exits.
    match unsafe { libc::fork() } {
        -1 => false,
        0 => exit(i32::from(!act())),
        pid => {
            let mut status = 0;
            // SAFETY: `status` outlives the call.
            while unsafe { libc::waitpid(pid, &raw mut status, 0) } < 0 && errno() == libc::EINTR {}
            libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0
        }
    }
}

/// Closes every descriptor but these.
///
/// # Safety
/// No object that is used afterwards may own one of the others.
unsafe fn close_all_but(keep: &[RawFd]) {
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

fn errno() -> i32 {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

fn exit(code: i32) -> ! {
    // SAFETY: ends this process without running what belongs to the process it was forked from.
    unsafe { libc::_exit(code) }
}
