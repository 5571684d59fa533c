//! May this object be read, or changed? Answered by where the kernel says that it is, never by how it was asked for.
//!
//! A file that has more than one name is as denied as any of them: all its names are looked for. It must never let PID 1's
//! own sight through: of other processes it gives in /proc only what every user may see.

use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use paddock_proto::limits::{DATA_ALIASES, DATA_DIR};
use rustix::fs::{FileType, Stat, StatVfsMountFlags, fstatvfs, stat};
use rustix::io::Errno;

use super::caller::Caller;
use super::place::{components, one_name};
use super::real;
use super::rules::Rules;
use super::walk::{is, is_of, joined, place};

/// File systems that a run can make second names on.
const WRITABLE: [&str; 3] = [DATA_DIR, "/tmp", "/dev/shm"];

/// Entries looked at for the names of one file; more, and it is refused. A walk of them takes some milliseconds, in which
/// PID 1 does nothing else.
const MAX_ENTRIES: usize = 10_000;

/// How long a directory that is renamed is looked through. One that is too large for it is as on another file system:
/// what moves it copies it then, file by file.
const LOOK: Duration = Duration::from_millis(5);

/// Where what a path leads to can be changed, or is the caller's own affair: the rest of the file system is the image's.
const CHANGING: [&str; 6] = [DATA_DIR, "/tmp", "/dev/shm", "/dev/mqueue", "/dev/pts", "/proc"];

/// What every process may read of another.
const PUBLIC: [&[u8]; 6] = [b"stat", b"statm", b"status", b"cmdline", b"comm", b"cgroup"];

const DELETED: &[u8] = b" (deleted)";

/// What is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Wish {
    pub(super) read: bool,
    pub(super) write: bool,
}

pub(super) const WRITE: Wish = Wish { read: false, write: true };
pub(super) const BOTH: Wish = Wish { read: true, write: true };

/// A path, by itself.
pub(super) fn path(rules: &Rules, path: &[u8], wish: Wish) -> Result<(), Errno> {
    let fine = (!wish.read || rules.may_read(path)) && (!wish.write || rules.may_write(path));
    if fine { Ok(()) } else { Err(Errno::ACCESS) }
}

/// A path by way of a link: it need not be where writing is allowed, but not be denied.
pub(super) fn link(rules: &Rules, path: &[u8], wish: Wish) -> Result<(), Errno> {
    let (reading, writing) = rules.denied(path);
    if (wish.read && reading) || (wish.write && writing) { Err(Errno::ACCESS) } else { Ok(()) }
}

/// A name in a directory: what is there, or comes there.
pub(super) fn name(rules: &Rules, dir: &OwnedFd, name: &[u8], wish: Wish) -> Result<Vec<u8>, Errno> {
    let place = joined(&place(dir)?, name);
    path(rules, &place, wish)?;
    Ok(place)
}

/// An object, wherever it is.
pub(super) fn object(
    rules: &Rules,
    caller: &Caller<'_>,
    fd: &OwnedFd,
    stat: &Stat,
    wish: Wish,
) -> Result<(), Errno> {
    let place = place(fd)?;
    if !place.starts_with(b"/") {
        return Ok(()); // a pipe, a socket: nothing that has a name
    }
    if let Some(rest) = place.strip_prefix(b"/proc/") {
        return of_proc(caller, &place, rest, wish);
    }
    if stat.st_nlink == 0 {
        // It has no name any more, or never had one: a memory file. What it was called may still be denied.
        let before = place.strip_suffix(DELETED).unwrap_or(&place);
        return link(rules, before, BOTH);
    }
    path(rules, &place, wish)?;
    if is(stat, FileType::RegularFile) && stat.st_nlink > 1 {
        let flags = fstatvfs(fd)?.f_flag;
        // Names on what nobody can write are the image's.
        if !flags.contains(StatVfsMountFlags::RDONLY) {
            return all_names(rules, stat, wish);
        }
    }
    Ok(())
}

fn of_proc(caller: &Caller<'_>, place: &[u8], rest: &[u8], wish: Wish) -> Result<(), Errno> {
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
    if public && !wish.write { Ok(()) } else { Err(Errno::ACCESS) }
}

/// Every name that a file has, not only the one it was asked for by.
fn all_names(rules: &Rules, file: &Stat, wish: Wish) -> Result<(), Errno> {
    let on = |root: &&&str| stat(**root).is_ok_and(|s| s.st_dev == file.st_dev);
    let root = WRITABLE.iter().find(on).ok_or(Errno::ACCESS)?;
    let mut found = 0;
    below(root.as_bytes(), &mut |name, inode, _| {
        if inode == file.st_ino {
            found += 1;
            path(rules, name, wish)?;
        }
        Ok(())
    })?;
    // One that was not found is one that may be denied.
    if found == file.st_nlink { Ok(()) } else { Err(Errno::ACCESS) }
}

/// Whether what is no regular file may be made here.
pub(super) fn other_than_file(rules: &Rules, place: &[u8]) -> Result<(), Errno> {
    if rules.may_write_any(place) { Ok(()) } else { Err(Errno::ACCESS) }
}

/// Whether a link may stand at `place` and say `target`: it may not lead round a rule.
///
/// A file is denied by its path. A link gives all that is below it a second path, so everything that is denied below
/// the link must be denied where it leads, by the path that it says and by the one where that leads now. What lies in
/// the image may be led to, since no program chose what is there; but not under a name that a rule has.
pub(super) fn leading(rules: &Rules, place: &[u8], target: &[u8]) -> Result<(), Errno> {
    let above = &place[..place.iter().rposition(|byte| *byte == b'/').unwrap_or(0)];
    if !rules.leads_round(place, None) {
        return Ok(()); // nothing below it is denied
    }
    // A path with `..` behind a name leads to the parent of whatever that name leads to at that time.
    let said = absolute(above, target).ok_or(Errno::ACCESS)?;
    let real = real(OsString::from_vec(said.clone()));
    if is_of_the_image(&said) && is_of_the_image(&real) {
        let is_dir = stat(real.as_slice()).is_ok_and(|stat| is(&stat, FileType::Directory));
        let has_name = rules.leads_round(place, Some(above));
        return if is_dir && has_name { Err(Errno::ACCESS) } else { Ok(()) };
    }
    let leads = |to: &[u8]| to.starts_with(b"/proc") || rules.leads_round(place, Some(to));
    if leads(&said) || leads(&real) { Err(Errno::ACCESS) } else { Ok(()) }
}

fn is_of_the_image(path: &[u8]) -> bool {
    let path = &*one_name(path);
    let is_in =
        |dir: &&str| path.strip_prefix(dir.as_bytes()).is_some_and(|rest| rest.is_empty() || rest[0] == b'/');
    // The root, and what else is above them, has them in it.
    let is_above = |dir: &&str| {
        let rest = dir.as_bytes().strip_prefix(path.strip_suffix(b"/").unwrap_or(path));
        rest.is_some_and(|rest| rest.first() == Some(&b'/'))
    };
    !CHANGING.iter().any(is_in) && !CHANGING.iter().chain(&DATA_ALIASES).any(is_above)
}

/// What a link in this directory says, from the root on; nothing if that depends on where a name on the way leads.
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

/// Whether a directory could be called `to` instead of `from`: nothing below it may be denied under either name, and no
/// link below it lead round a rule.
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

/// Is shown an entry: its path, its inode, whether it is a link.
type Show<'a> = &'a mut dyn FnMut(&[u8], u64, bool) -> Result<(), Errno>;

/// Shows all that is below a directory.
fn below(root: &[u8], show: Show<'_>) -> Result<(), Errno> {
    use std::os::unix::fs::DirEntryExt;
    // Whatever cannot be looked at could hide anything.
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
        for path in ["/usr/bin/python3", "/etc", "/dev/null", "/tmpx", "/home/x"] {
            assert!(is_of_the_image(path.as_bytes()), "{path}");
        }
        for path in
            ["/", "/data", "/workspace/x", "/mnt/data", "/mnt", "/tmp/x", "/dev", "/dev/shm", "/proc/self"]
        {
            assert!(!is_of_the_image(path.as_bytes()), "{path}");
        }
    }
}
