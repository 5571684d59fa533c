//! Which files a run may write and read ([`FilePolicy`]), enforced around its program and all that it starts.
//!
//! ```text
//!  program ── open(".env", O_WRONLY) ──► kernel: the filter stops it (crate::intercept)
//!                                           │ seccomp user notification
//!  PID 1:  reads the path once ─────────► walks it to an object (walk) ─► judges that (judge, rules)
//!                                           │
//!          opens the object itself (open) or changes it (change), or answers EACCES
//!                                           │
//!  program ◄── the descriptor, or the result ┘
//! ```
//!
//! Landlock alone cannot say "all of this directory, but no `*.key` in it, whichever process makes it and
//! when". So Landlock forbids the program every change by a path (confine), and PID 1, which Landlock does
//! not bind, makes the changes that the policy allows. Nothing can race this:
//!
//! - What was judged is what is opened: the object is held by a descriptor from before the judgement, and
//!   opened by that, never by its path again. The stopped call never goes on in the kernel.
//! - PID 1 makes, moves and removes all names for processes under a policy. It has one thread, and judges and
//!   does one call without a wait in between: no other call of such a process comes in the middle.
//! - A process of the same session without a policy may do anything; executions of one session are not
//!   protected from each other. Landlock keeps a process under a policy from looking into one without.
//!
//! - A symbolic link gives its target a second path. A program may not make or move a link where a rule
//!   denies that second path, unless the rule denies the target as well (`judge::leading`): with
//!   `**/.git/hooks` denied no link is called `.git`, and none below the working directory leads out of it,
//!   but into the image. The same holds for names (`.env`), which are denied at any depth.
//!
//! Limits and differences:
//!
//! - A link that was made before the run without a policy stays. A write by way of it is judged by both
//!   paths, but the file that it leads to can still be written by the file's own path, if no rule denies
//!   that. Where a pattern begins with names and no wildcard, the links of that beginning are followed when
//!   the run starts and both paths are denied; links behind a wildcard are not looked for: a caller with such
//!   links must deny what they lead to as well.
//! - A file that may not be read may still be executed, if it is a program, and be looked at by `stat`; where
//!   reading is denied at all, of other processes' /proc there is only what `ps` shows.
//! - Where reading is denied at all, no directory can be watched (`inotify_add_watch`).
//! - Policies treat `mq_open`, POSIX semaphores and System V IPC as memory, not as files.
//! - A Unix socket with a name can be made only in a directory below which nothing is denied, since PID 1
//!   cannot make it for another process; extended attributes cannot be changed; no terminal becomes a
//!   controlling one by being opened.
//! - A file with several names can be opened if PID 1 finds all of them and allows each. The number of
//!   entries it looks at is bounded, as is the time for a directory that is moved: a larger one is refused as
//!   on another file system (`EXDEV`).
//! - A named pipe opens for reading when something is in it. A process that waits for the other end receives
//!   only signals that kill it meanwhile, and at most 32 opens of a run wait (`EAGAIN`).
//! - A process that makes itself undumpable can make no open that is stopped.
//!
//! What it costs: opening a file for writing and closing it takes 35 to 50 µs in place of 3 to 5; reading as
//! before, or as much as writing where `deny_read` denies anything. Measured by `what_it_costs` in
//! `tests/e2e/policy.rs`: Python's `os.open` and `os.close` of `a/b/cost` 2,000 times, the best of seven
//! rounds; two cores, kernel 6.18, beside other tests. The caller's own thread takes a descriptor, and PID 1
//! waits for that: a program that gives its threads the lowest priority and keeps the cores busy slows its
//! own session's container, and no other.
//!
//! PID 1 must never wait for anything else inside of a call, nor take more than a turn's time from the other
//! runs.

mod answer;
mod change;
mod confine;
mod judge;
mod open;
mod path_pattern;
mod rules;
mod walk;

use std::cell::Cell;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use paddock_proto::FilePolicy;
use paddock_proto::limits::DATA_DIR;
use paddock_proto::message::RunSpec;

use answer::FileAnswers;
use confine::Sockets;
use rules::Rules;

use crate::intercept::{self, Answers, FileCalls};
use crate::sys;

/// What this container lacks to enforce a policy; `None` if it lacks nothing.
pub(crate) fn missing(policy: &FilePolicy) -> Option<String> {
    if policy.is_empty() {
        return None;
    }
    if let Err(what) = policy.check() {
        return Some(what);
    }
    let landlock = sys::landlock_version();
    if landlock < 3 {
        return Some(format!(
            "file policies need Landlock version 3 or newer; the kernel here has version {landlock}"
        ));
    }
    if let Some(what) = intercept::blind() {
        return Some(format!("file policies need {what}"));
    }
    thread_local!(static WORKS: bool = sys::in_a_child(|| try_it().is_ok()));
    if !intercept::can_notify() || !WORKS.with(|works| *works) {
        let what =
            "file policies need seccomp's user notification, which this kernel or runtime does not allow";
        return Some(what.to_owned());
    }
    None
}

/// Puts this process under the rules of a policy, only to see whether that works.
fn try_it() -> io::Result<()> {
    let ruleset = confine::ruleset(&Sockets::Anywhere)?;
    let (confinement, _socket) = intercept::Confinement::stopped(intercept::Stops::default())?;
    confinement.within(ruleset).enter()
}

/// A policy that is prepared for one run.
pub(crate) struct PreparedPolicy {
    /// The Landlock rules of its program.
    pub(crate) ruleset: OwnedFd,
    /// What the program's filter stops.
    pub(crate) calls: FileCalls,
    /// Who answers that.
    pub(crate) answers: Box<dyn Answers>,
}

/// Prepares a run's policy: what confines its program, and what PID 1 answers by from then on.
///
/// # Errors
/// The system's, or `EINVAL` for a malformed pattern.
pub(crate) fn prepare(spec: &RunSpec) -> io::Result<Option<PreparedPolicy>> {
    let Some(policy) = spec.files.as_ref().filter(|policy| !policy.is_empty()) else { return Ok(None) };
    let home = spec.env.iter().find_map(|v| v.strip_prefix("HOME=")).filter(|home| home.starts_with('/'));
    let rules = Rules::new(policy, &spec.cwd, home.unwrap_or(DATA_DIR), &|path| real(path))
        .map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))?;
    let sockets = match &policy.allow_write {
        None if policy.deny_write.is_empty() => Sockets::Anywhere,
        None | Some(_) => {
            // A directory that is reached through a link has a path of its own among them.
            let is_itself = |dir: &PathBuf| std::fs::canonicalize(dir).is_ok_and(|real| real == *dir);
            Sockets::Below(rules.free_dirs().into_iter().filter(is_itself).collect())
        }
    };
    let calls = if rules.deny_reading() { FileCalls::ChangesAndOpens } else { FileCalls::Changes };
    let ruleset = confine::ruleset(&sockets)?;
    let answers = FileAnswers { rules, longest: spec.limits.file_size, waiting: Rc::new(Cell::new(0)) };
    Ok(Some(PreparedPolicy { ruleset, calls, answers: Box::new(answers) }))
}

/// Where a path leads, as far as it exists.
fn real(path: impl AsRef<Path>) -> Vec<u8> {
    let path = path.as_ref();
    let mut rest = PathBuf::new();
    let mut at = path;
    loop {
        if let Ok(found) = std::fs::canonicalize(at) {
            let whole = if rest.as_os_str().is_empty() { found } else { found.join(rest) };
            return whole.into_os_string().into_vec();
        }
        let (Some(up), Some(name)) = (at.parent(), at.file_name()) else {
            return path.as_os_str().as_bytes().to_vec();
        };
        rest = if rest.as_os_str().is_empty() { name.into() } else { Path::new(name).join(rest) };
        at = up;
    }
}
