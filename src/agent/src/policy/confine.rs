//! The Landlock rules of a run under a policy.
//!
//! Landlock forbids every change of a file system by a path, without exception: PID 1 gives the program
//! descriptors of what it may write, or makes the change itself. So a call that the filter misses is refused,
//! not allowed. Landlock also keeps the program from looking into processes that are not under the policy.
//! A ruleset must never be weaker than what was asked for.

use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use landlock::{
    ABI, AccessFs, BitFlags, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset, RulesetAttr,
    RulesetCreated, RulesetCreatedAttr, RulesetError,
};

use crate::intercept::{above, system_error};

/// The first version of Landlock that can forbid `truncate`.
const LANDLOCK: ABI = ABI::V3;

/// Where the program may make Unix sockets with a name. PID 1 cannot make them for another process, so
/// Landlock decides.
pub(super) enum Sockets {
    Anywhere,
    /// Only below these directories.
    Below(Vec<PathBuf>),
}

/// The rules, which the program enters before it starts.
///
/// # Errors
/// The kernel's; the program must then not start.
pub(super) fn ruleset(sockets: &Sockets) -> io::Result<OwnedFd> {
    let ruleset = make(sockets).map_err(|error| system_error(&error))?;
    let fd: Option<OwnedFd> = ruleset.into();
    above(fd.ok_or_else(|| io::Error::from_raw_os_error(libc::EOPNOTSUPP))?)
}

fn make(sockets: &Sockets) -> Result<RulesetCreated, RulesetError> {
    let mut handled: BitFlags<AccessFs> = AccessFs::from_write(LANDLOCK);
    if matches!(sockets, Sockets::Anywhere) {
        handled.remove(AccessFs::MakeSock);
    }
    let ruleset =
        Ruleset::default().set_compatibility(CompatLevel::HardRequirement).handle_access(handled)?;
    let mut ruleset: RulesetCreated = ruleset.create()?;
    if let Sockets::Below(dirs) = sockets {
        for dir in dirs.iter().filter_map(|dir| PathFd::new(dir).ok()) {
            ruleset = ruleset.add_rule(PathBeneath::new(dir, AccessFs::MakeSock))?;
        }
    }
    Ok(ruleset)
}
