//! Starting a program: PID 1 forks a *job*, and the job forks the program.
//!
//! ```text
//!  PID 1 ─fork─► job: child subreaper, keeps only the status pipe
//!                  └─fork─► program: setsid, descriptors 0 1 2 (3), cwd, limits, domain, filter, exec
//!  job: waits for the program, kills whatever else it started, reports, exits
//! ```
//!
//! The job stays a copy of PID 1 (no exec), hence as undumpable as PID 1. It must never outlive its last
//! report by anything but its exit, nor leave a process of the program alive when it reports the end.
#![expect(unsafe_code, reason = "descriptors, limits and exec of a forked process have no safe form")]

use std::ffi::CString;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

use paddock_proto::message::RunLimits;

use crate::program::Program;
use crate::report::{REPORT_BYTES, Report};
use crate::sys::{self, EXTRA_FD, Fork, Usage, errno, exit};
use crate::tree;

/// How long a fork is tried again while the container has as many processes as it may. A run beside it that
/// has more than its own limit is killed meanwhile (see [`crate::bounds`]), and must not fail this one.
pub(crate) const ROOM_WITHIN: Duration = Duration::from_secs(1);

/// How often it is tried. The kernel reports no room that has become free.
pub(crate) const TRY_EVERY: Duration = Duration::from_millis(10);

/// Whether a fork failed for lack of room, and may be tried again.
pub(crate) fn lacks_room(error: &std::io::Error, first_tried: Instant) -> bool {
    error.raw_os_error() == Some(libc::EAGAIN) && first_tried.elapsed() < ROOM_WITHIN
}

/// Forks the job for `program`; its PID and the reading end of its status pipe.
///
/// # Errors
/// Those of pipe and fork (`EAGAIN` when the container may have no more processes).
pub(crate) fn start(program: &Program) -> std::io::Result<(i32, OwnedFd)> {
    let (reports, to_parent) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    match sys::fork()? {
        Fork::Child => job(program, to_parent.as_raw_fd()),
        Fork::Parent(pid) => Ok((pid, reports)),
    }
}

/// The job's whole life. It shares nothing with PID 1 but what it was forked with.
fn job(program: &Program, status: RawFd) -> ! {
    let say = |report: Report| {
        let bytes = report.to_bytes();
        // SAFETY: `bytes` outlives the call.
        unsafe { libc::write(status, bytes.as_ptr().cast(), REPORT_BYTES) };
    };
    let extra = program.extra.as_ref().map_or(-1, AsRawFd::as_raw_fd);
    let [ruleset, rights, socket] = program.confinement.descriptors();
    let (stdin, stdout) = (program.stdin.as_raw_fd(), program.stdout.as_raw_fd());
    let keep = [status, stdin, stdout, program.stderr.as_raw_fd(), extra, ruleset, rights, socket];
    // SAFETY: plain system calls on this process' own state; descriptors are closed that nobody here uses.
    unsafe {
        libc::signal(libc::SIGCHLD, libc::SIG_DFL);
        libc::signal(libc::SIGPIPE, libc::SIG_DFL);
        libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1);
        sys::close_all_but(&keep);
    }
    // Its writing end lies above the numbers that the program's own descriptors will have.
    let pipe = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)
        .and_then(|(read, write)| Ok((read, rustix::io::fcntl_dupfd_cloexec(&write, EXTRA_FD + 1)?)));
    let Ok((executed, executing)) = pipe else {
        say(Report::Failed(libc::EMFILE));
        exit(1);
    };
    let first_tried = Instant::now();
    let main = loop {
        match sys::fork() {
            Err(error) if lacks_room(&error, first_tried) => std::thread::sleep(TRY_EVERY),
            Err(error) => {
                say(Report::Failed(error.raw_os_error().unwrap_or(libc::EAGAIN)));
                exit(1);
            }
            Ok(Fork::Child) => execute(program, &say),
            Ok(Fork::Parent(pid)) => break pid,
        }
    };
    // SAFETY: these descriptors belong to the program now.
    unsafe { sys::close_all_but(&[status, executed.as_raw_fd()]) };
    std::mem::forget(executing); // closed with all the others
    say(Report::Started(main));
    // An exec closes the pipe. Before it the program is as undumpable as PID 1, and its files in /proc are
    // root's. From then on they are ours; the kernel is told that the program and what it starts go first
    // when memory runs out.
    let _ = rustix::io::read(&executed, &mut [0_u8; 1]);
    let _ = std::fs::write(format!("/proc/{main}/oom_score_adj"), "1000");

    let mut usage = Usage::default();
    let status_of_main = wait_for(main, &mut usage);
    let leftovers = kill_the_rest(&mut usage);
    say(Report::Ended {
        status: status_of_main,
        cpu_us: usage.cpu_us,
        max_rss_kib: usage.max_rss_kib,
        leftovers,
    });
    exit(0)
}

/// Waits until the program is dead; its status.
fn wait_for(main: i32, usage: &mut Usage) -> i32 {
    loop {
        match sys::wait(0, usage) {
            Some((pid, status)) if pid == main => return status,
            Some(_) => {}
            None => return 0,
        }
    }
}

/// Kills whatever the program started and left; how many processes that were.
///
/// Reaps what is dead, kills what is not, waits for one death and looks again: the children of a killed
/// process come to this subreaper, and a process with a pending SIGKILL cannot fork.
fn kill_the_rest(usage: &mut Usage) -> u32 {
    let mut leftovers = 0;
    loop {
        let living = loop {
            match sys::wait(libc::WNOHANG, usage) {
                Some((0, _)) => break true,
                Some(_) => leftovers += 1,
                None => break false,
            }
        };
        if !living {
            return leftovers;
        }
        tree::kill(&tree::descendants(std::process::id().cast_signed()));
        match sys::wait(0, usage) {
            Some(_) => leftovers += 1,
            None => return leftovers,
        }
    }
}

/// The program's process: becomes the program or reports why not.
fn execute(program: &Program, say: &dyn Fn(Report)) -> ! {
    let fail = |errno: i32| -> ! {
        say(Report::Failed(errno));
        exit(127)
    };
    let pointers = |strings: &[CString]| {
        strings.iter().map(|s| s.as_ptr()).chain([std::ptr::null()]).collect::<Vec<_>>()
    };
    let (argv, env) = (pointers(&program.argv), pointers(&program.env));
    // SAFETY: every pointer comes from a CString that lives until exec; the arrays end in null.
    unsafe {
        libc::setsid();
        // Moved up first, so that no dup2 overwrites the source of the next.
        let high = |fd: RawFd| libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, EXTRA_FD + 1);
        let fds = [
            high(program.stdin.as_raw_fd()),
            high(program.stdout.as_raw_fd()),
            high(program.stderr.as_raw_fd()),
        ];
        let extra = program.extra.as_ref().map(|fd| high(fd.as_raw_fd()));
        for (target, fd) in (0..).zip(fds) {
            if libc::dup2(fd, target) < 0 {
                fail(errno());
            }
        }
        if let Some(fd) = extra {
            libc::dup2(fd, EXTRA_FD);
        }
        if libc::chdir(program.cwd.as_ptr()) != 0 || !limit(&program.limits) {
            fail(errno());
        }
        if let Err(error) = program.confinement.enter() {
            fail(error.raw_os_error().unwrap_or(libc::EPERM));
        }
        let mut last = libc::ENOENT;
        for path in &program.paths {
            libc::execve(path.as_ptr(), argv.as_ptr(), env.as_ptr());
            last = errno();
            if last != libc::ENOENT && last != libc::ENOTDIR {
                break;
            }
        }
        fail(last)
    }
}

/// Puts this process under the run's own limits; those of the container hold beside them.
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
