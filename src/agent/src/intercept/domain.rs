//! A Landlock domain for each program, so that none looks into another: not into its memory, its environment,
//! its descriptors.
//!
//! All programs of a container have the same user, and what a run may reach is its own. Landlock keeps a
//! process from tracing a process outside of its own domain, and /proc asks the same before
//! a process may open `mem`, `environ` or `fd`. The ruleset allows everything, on files too: it handles one
//! right, to move files between directories, and grants it everywhere. (That right is refused wherever a
//! ruleset is in force that does not name it, so it has to be named.)
//!
//! The ruleset is made once. Each process that enters gets a domain of its own, at the price of one system
//! call. It must never refuse anything on files, and must never be entered by PID 1, which looks into all.
#![expect(unsafe_code, reason = "landlock_restrict_self of an inherited descriptor has no safe form")]

use std::cell::RefCell;
use std::error::Error;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::rc::Rc;

use landlock::{
    AccessFs, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset, RulesetAttr, RulesetCreated,
    RulesetCreatedAttr, RulesetError,
};

use crate::sys::{self, EXTRA_FD};

/// The first version of Landlock that can allow files to be moved between directories.
const LANDLOCK: u32 = 2;

/// The ruleset that forbids nothing; `None` where the kernel has no Landlock, or too old a one. A run that
/// has a network is alone in its container there (`Network::may_begin`): a program could use the network of
/// another by writing to its memory.
pub(super) fn own() -> Option<Rc<OwnedFd>> {
    thread_local!(static RULESET: RefCell<Option<Rc<OwnedFd>>> = const { RefCell::new(None) });
    RULESET.with_borrow_mut(|ruleset| {
        if ruleset.is_none() {
            *ruleset = make(); // also after a failure that may pass, such as too many open files
        }
        ruleset.clone()
    })
}

fn make() -> Option<Rc<OwnedFd>> {
    if sys::landlock_version() < LANDLOCK {
        return None;
    }
    let root = PathFd::new("/").ok()?;
    let ruleset = || -> Result<RulesetCreated, RulesetError> {
        let ruleset = Ruleset::default().set_compatibility(CompatLevel::HardRequirement);
        let ruleset = ruleset.handle_access(AccessFs::Refer)?.create()?;
        ruleset.add_rule(PathBeneath::new(root, AccessFs::Refer))
    };
    let ruleset: Option<OwnedFd> = ruleset().ok()?.into();
    Some(Rc::new(above(ruleset?).ok()?))
}

/// The same descriptor above the numbers that a program's own descriptors will have.
pub(crate) fn above(fd: OwnedFd) -> io::Result<OwnedFd> {
    Ok(rustix::io::fcntl_dupfd_cloexec(fd, EXTRA_FD + 1)?)
}

/// The system's own error in one of a ruleset.
pub(crate) fn system_error(error: &RulesetError) -> io::Error {
    let mut cause: Option<&(dyn Error + 'static)> = Some(error);
    while let Some(error) = cause {
        if let Some(errno) = error.downcast_ref::<io::Error>().and_then(io::Error::raw_os_error) {
            return io::Error::from_raw_os_error(errno);
        }
        cause = error.source();
    }
    io::Error::from_raw_os_error(libc::EOPNOTSUPP)
}

/// Puts this process, and all that it starts, into a new domain with these rules.
///
/// # Errors
/// The kernel's.
pub(super) fn enter(ruleset: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: a number and no flags.
    let done = unsafe { libc::syscall(libc::SYS_landlock_restrict_self, ruleset.as_raw_fd(), 0) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::in_a_child;

    fn entered(act: impl FnOnce() -> bool) -> bool {
        in_a_child(|| {
            rustix::thread::set_no_new_privs(true).expect("it may");
            own().is_none_or(|ruleset| enter(std::os::fd::AsFd::as_fd(&ruleset)).is_ok()) && act()
        })
    }

    #[test]
    fn a_program_in_a_domain_may_do_with_files_what_it_could_before() {
        let dir = std::env::temp_dir().join(format!("paddock-domain-{}", std::process::id()));
        std::fs::create_dir_all(dir.join("a")).expect("a directory");
        std::fs::create_dir_all(dir.join("b")).expect("a directory");
        std::fs::write(dir.join("a/file"), b"x").expect("a file");
        let moved = entered(|| {
            std::fs::rename(dir.join("a/file"), dir.join("b/file")).is_ok()
                && std::fs::hard_link(dir.join("b/file"), dir.join("a/other")).is_ok()
                && std::fs::read("/proc/self/environ").is_ok()
        });
        let _ = std::fs::remove_dir_all(&dir);
        assert!(moved);
    }

    #[test]
    fn programs_in_domains_of_their_own_cannot_look_into_each_other() {
        if own().is_none() {
            return; // the kernel has no Landlock
        }
        // Of `mem` and `environ` more is asked (Yama), or less (CAP_PERFMON).
        let look = |pid: u32| std::fs::read_link(format!("/proc/{pid}/exe")).is_ok();
        let test = std::process::id();
        assert!(in_a_child(|| look(test)), "without a domain it could");
        assert!(!entered(|| look(test)), "it looks at one outside");
        // A process that waits in a domain, and another process that looks at it.
        let (reading, writing) = rustix::pipe::pipe().expect("a pipe");
        let sys::Fork::Parent(sibling) = sys::fork().expect("a child") else {
            let _ = own().map(|ruleset| enter(std::os::fd::AsFd::as_fd(&ruleset)));
            let _ = rustix::io::write(&writing, b"x");
            loop {
                std::thread::park();
            }
        };
        let _ = rustix::io::read(&reading, &mut [0; 1]);
        let sibling = sibling.cast_unsigned();
        let (inside, outside) = (entered(|| look(sibling)), look(sibling));
        crate::tree::kill(&[sibling.cast_signed()]);
        assert!(outside && !inside, "outside {outside}, inside {inside}");
    }
}
