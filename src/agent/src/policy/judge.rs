//! Whether a caller may read or change an object: judged by the path that the kernel gives the object, never
//! by the path that the caller gave.
//!
//! A file with several names is denied if one of them is: all its names are looked for. A caller must never
//! see through PID 1 what it may not see itself: of other processes' /proc it gets only what every user may
//! read.

use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use paddock_proto::limits::{DATA_DIR, DATA_NAMES, HOME_DIR, HOMES_DIR};
use rustix::fs::{FileType, Stat, StatVfsMountFlags, fstatvfs, stat};
use rustix::io::Errno;

use super::path_pattern::{components, one_name};
use super::real;
use super::rules::Rules;
use super::walk::{is, is_of, joined, place};
use crate::intercept::CallingProcess;

/// File systems that a run can make second names on.
const WRITABLE: [&str; 4] = [DATA_DIR, HOME_DIR, "/tmp", "/dev/shm"];

/// Entries that are looked at for the names of one file; with more the file is denied. The walk takes some
/// milliseconds, in which PID 1 does nothing else.
const MAX_ENTRIES: usize = 10_000;

/// How long PID 1 looks through a directory that is renamed. A larger one is refused as if it went to another
/// file system (`EXDEV`): programs then copy it file by file.
const LOOK: Duration = Duration::from_millis(5);

/// Where programs can change what a path leads to. The rest of the file system is the image's.
const CHANGING: [&str; 7] = [DATA_DIR, HOMES_DIR, "/tmp", "/dev/shm", "/dev/mqueue", "/dev/pts", "/proc"];

/// Files of /proc/PID that every process may read of another.
const PUBLIC: [&[u8]; 6] = [b"stat", b"statm", b"status", b"cmdline", b"comm", b"cgroup"];

const DELETED: &[u8] = b" (deleted)";

/// The access that a caller asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Access {
    pub(super) read: bool,
    pub(super) write: bool,
}

pub(super) const WRITE: Access = Access { read: false, write: true };
pub(super) const BOTH: Access = Access { read: true, write: true };

/// Judges a path by itself.
pub(super) fn path(rules: &Rules, path: &[u8], access: Access) -> Result<(), Errno> {
    let fine = (!access.read || rules.may_read(path)) && (!access.write || rules.may_write(path));
    if fine { Ok(()) } else { Err(Errno::ACCESS) }
}

/// Judges a path that goes by way of a link: it must not be denied, but need not be where writing is allowed.
pub(super) fn link(rules: &Rules, path: &[u8], access: Access) -> Result<(), Errno> {
    let (reading, writing) = rules.denied(path);
    if (access.read && reading) || (access.write && writing) { Err(Errno::ACCESS) } else { Ok(()) }
}

/// Judges a name in a directory: what is there, or will be; its path.
pub(super) fn name(rules: &Rules, dir: &OwnedFd, name: &[u8], access: Access) -> Result<Vec<u8>, Errno> {
    let place = joined(&place(dir)?, name);
    path(rules, &place, access)?;
    Ok(place)
}

/// Judges an object by where it is.
pub(super) fn object(
    rules: &Rules,
    caller: &CallingProcess<'_>,
    fd: &OwnedFd,
    stat: &Stat,
    access: Access,
) -> Result<(), Errno> {
    let place = place(fd)?;
    if !place.starts_with(b"/") {
        return Ok(()); // a pipe, a socket: nothing that has a name
    }
    if let Some(rest) = place.strip_prefix(b"/proc/") {
        return of_proc(caller, &place, rest, access);
    }
    if stat.st_nlink == 0 {
        // It lost its name, or never had one (a memory file). Its old name may still be denied.
        let before = place.strip_suffix(DELETED).unwrap_or(&place);
        return link(rules, before, BOTH);
    }
    path(rules, &place, access)?;
    if is(stat, FileType::RegularFile) && stat.st_nlink > 1 {
        let flags = fstatvfs(fd)?.f_flag;
        // On a read-only file system all names are the image's.
        if !flags.contains(StatVfsMountFlags::RDONLY) {
            return all_names(rules, stat, access);
        }
    }
    Ok(())
}

fn of_proc(caller: &CallingProcess<'_>, place: &[u8], rest: &[u8], access: Access) -> Result<(), Errno> {
    let mut names = rest.split(|byte| *byte == b'/');
    let process = names.next().unwrap_or_default();
    if !process.iter().all(u8::is_ascii_digit) || is_of(place, caller.leader()?) {
        return Ok(());
    }
    let public = match (names.next(), names.next()) {
        (None, _) => true,
        (Some(name), None) => PUBLIC.contains(&name),
        (Some(_), Some(_)) => false,
    };
    if public && !access.write { Ok(()) } else { Err(Errno::ACCESS) }
}

/// Judges every name of a file, not only the name that the caller used.
fn all_names(rules: &Rules, file: &Stat, access: Access) -> Result<(), Errno> {
    // Volumes can lie on one file system, and a file then still has all of its names on one of them.
    let on = |root: &&&str| stat(**root).is_ok_and(|s| s.st_dev == file.st_dev);
    let mut found = 0;
    for root in WRITABLE.iter().filter(on) {
        below(root.as_bytes(), &mut |name, inode, _| {
            if inode == file.st_ino {
                found += 1;
                path(rules, name, access)?;
            }
            Ok(())
        })?;
    }
    // A name that was not found may be denied.
    if found == file.st_nlink { Ok(()) } else { Err(Errno::ACCESS) }
}

/// Judges whether anything but a regular file may be made here.
pub(super) fn other_than_file(rules: &Rules, place: &[u8]) -> Result<(), Errno> {
    if rules.may_write_any(place) { Ok(()) } else { Err(Errno::ACCESS) }
}

/// Judges whether a link with this target may stand at `place`: it must not bypass a rule.
///
/// A file is denied by its path. A link gives all that is below it a second path, so everything that is
/// denied below the link must be denied where it leads: by the target's own words, and by where those lead
/// now. A link may lead into the image, since no program chose what is there; but not under a name that a
/// rule has.
pub(super) fn leading(rules: &Rules, place: &[u8], target: &[u8]) -> Result<(), Errno> {
    let above = &place[..place.iter().rposition(|byte| *byte == b'/').unwrap_or(0)];
    if !rules.would_bypass(place, None) {
        return Ok(()); // no rule denies anything below it
    }
    // A `..` behind a name leads to the parent of whatever that name leads to at that time.
    let said = absolute(above, target).ok_or(Errno::ACCESS)?;
    let real = real(OsString::from_vec(said.clone()));
    if is_of_the_image(&said) && is_of_the_image(&real) {
        let is_dir = stat(real.as_slice()).is_ok_and(|stat| is(&stat, FileType::Directory));
        let has_name = rules.would_bypass(place, Some(above));
        return if is_dir && has_name { Err(Errno::ACCESS) } else { Ok(()) };
    }
    let leads = |to: &[u8]| to.starts_with(b"/proc") || rules.would_bypass(place, Some(to));
    if leads(&said) || leads(&real) { Err(Errno::ACCESS) } else { Ok(()) }
}

fn is_of_the_image(path: &[u8]) -> bool {
    let path = &*one_name(path);
    let is_in =
        |dir: &&str| path.strip_prefix(dir.as_bytes()).is_some_and(|rest| rest.is_empty() || rest[0] == b'/');
    // The root, and every other directory above one of them, contains it.
    let is_above = |dir: &&str| {
        let rest = dir.as_bytes().strip_prefix(path.strip_suffix(b"/").unwrap_or(path));
        rest.is_some_and(|rest| rest.first() == Some(&b'/'))
    };
    !CHANGING.iter().any(is_in) && !CHANGING.iter().chain(&DATA_NAMES).any(is_above)
}

/// The absolute path of a link's target; `None` if that depends on where a name on the way leads.
fn absolute(dir: &[u8], target: &[u8]) -> Option<Vec<u8>> {
    let is_absolute = target.starts_with(b"/");
    let mut names: Vec<&[u8]> = if is_absolute { Vec::new() } else { components(dir).collect() };
    let mut is_down = false;
    for name in components(target).filter(|name| *name != b".") {
        if name == b".." {
            if is_down {
                return None;
            }
            names.pop();
        } else {
            is_down = true;
            names.push(name);
        }
    }
    let path: Vec<u8> = names.iter().flat_map(|name| [b"/", *name].concat()).collect();
    Some(if path.is_empty() { b"/".to_vec() } else { path })
}

/// Judges whether a directory may be renamed: nothing below it may be denied under either path, and no link
/// below it may bypass a rule.
pub(super) fn tree(rules: &Rules, from: &[u8], to: &[u8]) -> Result<(), Errno> {
    other_than_file(rules, to)?;
    if !rules.deny_anything() {
        return Ok(());
    }
    let begun = Instant::now();
    below(from, &mut |name, _, is_link| {
        if begun.elapsed() > LOOK {
            return Err(Errno::XDEV);
        }
        let after = [to, name.get(from.len()..).unwrap_or_default()].concat();
        path(rules, name, BOTH)?;
        path(rules, &after, BOTH)?;
        if !is_link {
            return Ok(());
        }
        let target = rustix::fs::readlink(name, Vec::with_capacity(256)).map_err(|_| Errno::ACCESS)?;
        leading(rules, &after, target.as_bytes())
    })
}

/// Called with each entry: its path, its inode, whether it is a link.
type Show<'a> = &'a mut dyn FnMut(&[u8], u64, bool) -> Result<(), Errno>;

/// Calls `show` for everything below a directory.
fn below(root: &[u8], show: Show<'_>) -> Result<(), Errno> {
    use std::os::unix::fs::DirEntryExt;
    // A directory that cannot be read could hide anything.
    let unseen = |_: std::io::Error| Errno::ACCESS;
    let mut left = MAX_ENTRIES;
    let mut dirs = vec![PathBuf::from(std::ffi::OsString::from_vec(root.to_vec()))];
    while let Some(dir) = dirs.pop() {
        for entry in std::fs::read_dir(&dir).map_err(unseen)? {
            let entry = entry.map_err(unseen)?;
            left = left.checked_sub(1).ok_or(Errno::XDEV)?;
            let (path, kind) = (entry.path(), entry.file_type().map_err(unseen)?);
            show(path.as_os_str().as_bytes(), entry.ino(), kind.is_symlink())?;
            if kind.is_dir() {
                dirs.push(path);
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_link_says_is_known_without_what_is_on_its_way() {
        for (dir, target, path) in [
            ("/data/a", "b/./c/", Some("/data/a/b/c")),
            ("/data/a", "../b", Some("/data/b")),
            ("/data/a", "../../../..", Some("/")),
            ("/data/a", "/tmp//x", Some("/tmp/x")),
            ("/data/a", "b/../c", None),
            ("/data/a", "/tmp/..", None),
            ("", "x", Some("/x")),
        ] {
            let absolute = absolute(dir.as_bytes(), target.as_bytes());
            assert_eq!(absolute.as_deref(), path.map(str::as_bytes), "{dir} {target}");
        }
    }

    #[test]
    fn what_programs_can_change_is_not_of_the_image() {
        for path in ["/usr/bin/python3", "/etc", "/dev/null", "/tmpx", "/homes"] {
            assert!(is_of_the_image(path.as_bytes()), "{path}");
        }
        let changing = ["/data", "/workspace/x", "/mnt/data", "/home/agent/x", "/home/workspace", "/tmp/x"];
        for path in changing.into_iter().chain(["/", "/mnt", "/dev", "/dev/shm", "/proc/self"]) {
            assert!(!is_of_the_image(path.as_bytes()), "{path}");
        }
    }
}
