//! From a path to the object that it names, one component at a time, as the kernel would walk it for the
//! caller.
//!
//! The kernel does each step, so that mounts, `..` and permissions are its own; links are followed here. It
//! must never follow one of /proc as PID 1: `self` there is the caller, and what stands for a descriptor, a
//! working directory or a root is followed only in the caller's own process, for PID 1 may see more than the
//! caller may.

use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat, fstat, fstatfs, openat, readlinkat};
use rustix::io::Errno;

use crate::intercept::CallingProcess;

/// Links that one path may go through: the kernel's own number.
const MAX_LINKS: u32 = 40;

/// Components that one path may go through, links included. No program needs more, and they would hold PID 1
/// up.
const MAX_STEPS: u32 = 1024;

const PROC_SUPER_MAGIC: i64 = 0x9FA0;

/// Where a walk ends.
pub(super) enum WalkEnd {
    /// At what is there.
    Object(OwnedFd, Box<Stat>),
    /// At a name that nothing has, in a directory that is there.
    Missing(OwnedFd, Vec<u8>),
}

/// A name in a directory, with the slashes behind it as they were.
pub(super) struct Name {
    pub(super) dir: OwnedFd,
    pub(super) name: Vec<u8>,
    pub(super) slash: bool,
}

/// Called for each link that is followed, with the path that goes by way of it: the link's own path, and what
/// is left.
pub(super) type OnLink<'a> = &'a dyn Fn(&[u8]) -> Result<(), Errno>;

/// What a path names. With `follow` a link at its end is followed too.
pub(super) fn object(
    caller: &CallingProcess<'_>,
    dir: i32,
    path: &[u8],
    follow: bool,
    on_link: OnLink<'_>,
) -> Result<WalkEnd, Errno> {
    let mut names = split(path);
    if path.ends_with(b"/") {
        names.push(b".".to_vec()); // it must be a directory, or lead to one
    }
    names.reverse();
    PathWalk { caller, on_link, last: b"", links: 0, steps: 0 }.go(begin(caller, dir, path)?, names, follow)
}

/// The last name of a path, and the directory that it is in.
pub(super) fn name(
    caller: &CallingProcess<'_>,
    dir: i32,
    path: &[u8],
    on_link: OnLink<'_>,
) -> Result<Name, Errno> {
    let mut names = split(path);
    let last = names.pop().filter(|last| last != b"." && last != b"..").ok_or(Errno::BUSY)?; // also the root
    names.reverse();
    let walk = PathWalk { caller, on_link, last: &last, links: 0, steps: 0 };
    match walk.go(begin(caller, dir, path)?, names, true)? {
        WalkEnd::Object(dir, stat) if is(&stat, FileType::Directory) => {
            Ok(Name { dir, name: last, slash: path.ends_with(b"/") })
        }
        WalkEnd::Object(..) => Err(Errno::NOTDIR),
        WalkEnd::Missing(..) => Err(Errno::NOENT),
    }
}

/// The path that the kernel gives an object.
pub(super) fn place(fd: &OwnedFd) -> Result<Vec<u8>, Errno> {
    use std::os::fd::AsRawFd;
    let name = format!("/proc/self/fd/{}", fd.as_raw_fd());
    Ok(readlinkat(rustix::fs::CWD, name, Vec::with_capacity(256))?.into_bytes())
}

pub(super) fn is(stat: &Stat, kind: FileType) -> bool {
    FileType::from_raw_mode(stat.st_mode) == kind
}

fn split(path: &[u8]) -> Vec<Vec<u8>> {
    path.split(|byte| *byte == b'/').filter(|name| !name.is_empty()).map(<[u8]>::to_vec).collect()
}

fn begin(caller: &CallingProcess<'_>, dir: i32, path: &[u8]) -> Result<OwnedFd, Errno> {
    if path.starts_with(b"/") { root() } else { caller.start(dir) }
}

/// The root of every process of the container: none may change its own.
fn root() -> Result<OwnedFd, Errno> {
    openat(rustix::fs::CWD, "/", OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
}

struct PathWalk<'a> {
    caller: &'a CallingProcess<'a>,
    on_link: OnLink<'a>,
    /// The last name of the path if the walk ends before it, otherwise empty.
    last: &'a [u8],
    links: u32,
    steps: u32,
}

impl PathWalk<'_> {
    /// Goes on from `at` by these names, which are in reverse order.
    fn go(mut self, mut at: OwnedFd, mut names: Vec<Vec<u8>>, follow: bool) -> Result<WalkEnd, Errno> {
        let step = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        while let Some(name) = names.pop() {
            self.steps += 1;
            if self.steps > MAX_STEPS {
                return Err(Errno::NAMETOOLONG);
            }
            let child = match openat(&at, name.as_slice(), step, Mode::empty()) {
                Err(Errno::NOENT) if names.is_empty() => return Ok(WalkEnd::Missing(at, name)),
                child => child?,
            };
            let stat = fstat(&child)?;
            if !is(&stat, FileType::Symlink) {
                if names.is_empty() {
                    return Ok(WalkEnd::Object(child, Box::new(stat)));
                }
                if !is(&stat, FileType::Directory) {
                    return Err(Errno::NOTDIR);
                }
                at = child;
                continue;
            }
            if names.is_empty() && !follow {
                return Ok(WalkEnd::Object(child, Box::new(stat)));
            }
            self.links += 1;
            if self.links > MAX_LINKS {
                return Err(Errno::LOOP);
            }
            let dir = place(&at)?;
            if fstatfs(&child)?.f_type == PROC_SUPER_MAGIC {
                if let Some(jumped) = self.in_proc(&at, &child, &dir, &name, &mut names)? {
                    let stat = fstat(&jumped)?;
                    if names.is_empty() {
                        return Ok(WalkEnd::Object(jumped, Box::new(stat)));
                    }
                    at = jumped;
                }
                continue;
            }
            (self.on_link)(&self.spelled(&dir, &name, &names))?;
            let target = readlinkat(&child, "", Vec::with_capacity(256))?.into_bytes();
            if target.starts_with(b"/") {
                at = root()?;
            }
            follow_into(&mut names, &target);
        }
        let stat = fstat(&at)?;
        Ok(WalkEnd::Object(at, Box::new(stat)))
    }

    /// The path by way of a link, up to its first `..`.
    fn spelled(&self, dir: &[u8], name: &[u8], left: &[Vec<u8>]) -> Vec<u8> {
        let down = left.iter().rev().map(Vec::as_slice).chain([self.last]).take_while(|name| *name != b"..");
        let named = down.filter(|name| !name.is_empty() && *name != b".");
        named.fold(joined(dir, name), |path, name| joined(&path, name))
    }

    /// Follows a link of /proc: the object that it stands for, or `None` where its target was added to
    /// `names`.
    fn in_proc(
        &self,
        at: &OwnedFd,
        child: &OwnedFd,
        dir: &[u8],
        name: &[u8],
        names: &mut Vec<Vec<u8>>,
    ) -> Result<Option<OwnedFd>, Errno> {
        let leader = self.caller.leader()?;
        match (dir, name) {
            (b"/proc", b"self") => follow_into(names, leader.to_string().as_bytes()),
            (b"/proc", b"thread-self") => {
                follow_into(names, format!("{leader}/task/{}", self.caller.call.tid).as_bytes());
            }
            (b"/proc", _) => follow_into(names, readlinkat(child, "", Vec::new())?.as_bytes()),
            _ if is_of(dir, leader) => {
                return openat(at, name, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).map(Some);
            }
            _ => return Err(Errno::ACCESS),
        }
        Ok(None)
    }
}

/// Puts a link's target before the names that are left.
fn follow_into(names: &mut Vec<Vec<u8>>, target: &[u8]) {
    let mut more = split(target);
    if target.ends_with(b"/") && names.is_empty() {
        more.push(b".".to_vec());
    }
    names.extend(more.into_iter().rev());
}

/// Whether a path in /proc is this process' own.
pub(super) fn is_of(place: &[u8], process: u32) -> bool {
    let own = format!("/proc/{process}");
    place.strip_prefix(own.as_bytes()).is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
}

/// A name in a directory, as a path.
pub(super) fn joined(dir: &[u8], name: &[u8]) -> Vec<u8> {
    let slash: &[u8] = if dir.ends_with(b"/") { b"" } else { b"/" };
    [dir, slash, name].concat()
}

/// The metadata of what has this name; a link is not followed.
pub(super) fn at(name: &Name) -> Result<Stat, Errno> {
    rustix::fs::statat(&name.dir, name.name.as_slice(), AtFlags::SYMLINK_NOFOLLOW)
}
