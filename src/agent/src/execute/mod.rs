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
//! Names are looked up only where the run cannot write: `PATH` of an image may begin with such a directory,
//! and what an earlier run left there must stand in for no program of the image, the run's own included.
//!
//! Landlock does not know files in memory (`memfd_create`). Under "only" the filter refuses to make files
//! that could be executed ([`Stops::memory`](crate::intercept::Stops)).
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

use std::ffi::{CString, OsStr};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

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
    let Some(policy) = &spec.execute else { return Ok(None) };
    let grants = grants(policy, search_path(&spec.env), is_writable)?;
    ruleset::make(&grants).map(Some)
}

/// What a policy grants. `is_writable` says where the run may make files.
fn grants(policy: &ExecutePolicy, path: &str, is_writable: Writable) -> io::Result<Vec<PathBuf>> {
    match policy {
        ExecutePolicy::Only(programs) => only::grants(programs, path, is_writable),
        ExecutePolicy::Except(names) => except::grants(names, path, &except::FileSystem { is_writable }),
    }
}

/// Whether a run may make files in a directory: PID 1 has the user of its programs.
type Writable = fn(&Path) -> bool;

fn is_writable(dir: &Path) -> bool {
    rustix::fs::access(dir, rustix::fs::Access::WRITE_OK).is_ok()
}

/// Whether no run can have put a file at this path, by the path as it is written and by where it leads.
fn is_of_image(path: &Path, is_writable: Writable) -> bool {
    let is_fixed = |path: &Path| path.ancestors().skip(1).all(|dir| !is_writable(dir));
    is_fixed(path) && path.canonicalize().is_ok_and(|real| is_fixed(&real))
}

/// Leaves out the places where the program of a run with a policy must not be looked up by its name.
pub(crate) fn keep_programs_of_image(spec: &RunSpec, paths: &mut Vec<CString>) {
    let is_name = spec.argv.first().is_some_and(|name| !name.contains('/'));
    if spec.execute.is_some() && is_name {
        paths.retain(|path| is_of_image(Path::new(OsStr::from_bytes(path.to_bytes())), is_writable));
    }
}

#[cfg(test)]
mod tests;
