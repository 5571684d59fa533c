//! Which programs a run may execute ([`ExecutePolicy`]), enforced by Landlock around its program and all that
//! it starts.
//!
//! ```text
//!  Only ──► the files, and the interpreters that they name (only, head) ──┐
//!  Except ► all directories, and what is beside a denied file (except) ───┴─► ruleset ─► a domain
//! ```
//!
//! Landlock knows what may be executed, not what may not, and it knows files, not names. So "all but" is
//! granted as whole directories where nothing is denied, and file by file where something is. The kernel asks
//! at `execve` and `execveat`, however the path is written (a link, `/proc/self/fd/3`), of the file that is
//! executed and of the interpreter that it names. A file that a run makes may be executed where its whole
//! directory is granted: under "all but" in `/data`, `/tmp` and every other directory that it may write;
//! under "only" nowhere.
//!
//! Landlock does not know files in memory (`memfd_create`). Under "only" the filter refuses those that could
//! be executed ([`Stops::memory`](crate::intercept::Stops)).
//!
//! What it does not stop, because the kernel executes nothing then, or another file:
//!
//! - A program that is granted maps another and jumps into it. The ELF interpreter does that when it is
//!   started with the path of a program (`/lib64/ld-linux-x86-64.so.2 /bin/sh`), and it has to be granted
//!   where a granted program names it.
//! - An interpreter that is granted reads a script that is not.
//! - Under "all but": a copy of a denied file, in a directory that the run may write; a second name (a hard
//!   link) of it in a directory where nothing is denied; a program that has many others in one file
//!   (`busybox`), which is not denied for one of their names; the same program in a directory that is neither
//!   in `PATH` nor among the usual ones.
//!
//! What it costs PID 1 when such a run starts: 20 µs under "only"; under "all but", with a denied program in
//! a directory of 1,100, 2.5 ms, and 15 ms where the kernel has not read the directory before. Measured by
//! `what_it_costs` in `tests.rs` as a user who may not write there; two cores, kernel 6.18, a build without
//! optimization. A run without a policy pays nothing.
//!
//! A policy is a guard rail inside of the container, for programs that do not try to get around it, and never
//! the boundary. It must never be weaker than its policy where it can be enforced, and a run whose policy
//! cannot be enforced must not start.

mod except;
mod head;
mod only;
mod ruleset;

use std::io;
use std::os::fd::OwnedFd;

use paddock_proto::ExecutePolicy;
use paddock_proto::message::RunSpec;

use crate::program::search_path;
use crate::sys;

/// The first version of Landlock that can allow files to be moved between directories: a ruleset without that
/// right forbids it.
const LANDLOCK: u32 = 2;

/// What this container lacks to enforce a policy; `None` if it lacks nothing.
pub(crate) fn missing(policy: &ExecutePolicy) -> Option<String> {
    if let Err(what) = policy.check() {
        return Some(what);
    }
    let version = sys::landlock_version();
    (version < LANDLOCK).then(|| {
        format!(
            "to bound which programs a run may execute needs Landlock version {LANDLOCK} or newer (Linux \
             5.19, with landlock among its security modules); the kernel here has version {version}"
        )
    })
}

/// The Landlock rules of a run's policy; `None` if it has no policy.
///
/// # Errors
/// The system's; `E2BIG` where more files would have to be granted than [`MAX_GRANTS`](ruleset::MAX_GRANTS).
/// The run must not start then.
pub(crate) fn prepare(spec: &RunSpec) -> io::Result<Option<OwnedFd>> {
    let path = search_path(&spec.env);
    let grants = match &spec.execute {
        None => return Ok(None),
        Some(ExecutePolicy::Only(programs)) => only::grants(programs, path)?,
        Some(ExecutePolicy::Except(names)) => except::grants(names, path, &except::FileSystem)?,
    };
    ruleset::make(&grants).map(Some)
}

#[cfg(test)]
mod tests;
