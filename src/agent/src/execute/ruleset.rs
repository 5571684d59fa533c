//! The Landlock rules by which only some files may be executed.
//!
//! They forbid nothing else: moving files between directories is handled and granted everywhere, because the
//! kernel refuses it wherever a ruleset does not name it. They must never grant more than they are given.

use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use landlock::{
    AccessFs, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset, RulesetAttr, RulesetCreated,
    RulesetCreatedAttr, RulesetError,
};

use crate::intercept::{above, system_error};

/// Files and directories that one ruleset may grant: several times as many as a full desktop has programs.
/// Each holds memory of the kernel, and takes some microseconds of PID 1 when the run starts.
pub(super) const MAX_GRANTS: usize = 16_384;

/// Rules by which these files, and all files below these directories, may be executed, and no others.
///
/// # Errors
/// The kernel's; the program must then not start.
pub(super) fn make(grants: &[PathBuf]) -> io::Result<OwnedFd> {
    let ruleset: Option<OwnedFd> = rules(grants).map_err(|error| system_error(&error))?.into();
    above(ruleset.ok_or_else(|| io::Error::from_raw_os_error(libc::EOPNOTSUPP))?)
}

fn rules(grants: &[PathBuf]) -> Result<RulesetCreated, RulesetError> {
    let ruleset = Ruleset::default().set_compatibility(CompatLevel::HardRequirement);
    let mut ruleset = ruleset.handle_access(AccessFs::Execute | AccessFs::Refer)?.create()?;
    if let Ok(root) = PathFd::new("/") {
        ruleset = ruleset.add_rule(PathBeneath::new(root, AccessFs::Refer))?;
    }
    for grant in grants {
        // What is gone meanwhile is not granted.
        if let Ok(file) = PathFd::new(grant) {
            ruleset = ruleset.add_rule(PathBeneath::new(file, AccessFs::Execute))?;
        }
    }
    Ok(ruleset)
}
