//! From a path to the object that it names, one component at a time, as the kernel would walk it for the caller.
//!
//! The kernel does each step, so that mounts, `..` and permissions are its own; links are followed here. It must never
//! follow one of /proc as PID 1: `self` there is the caller, and what stands for a descriptor, a working directory or a
//! root is followed only in the caller's own process, for PID 1 may see more than the caller may.

use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat, fstat, fstatfs, openat, readlinkat};
use rustix::io::Errno;

use super::caller::Caller;

/// Links on one way: the kernel's own number.
const MAX_LINKS: u32 = 40;

/// Steps of one way; a path that goes through more is no program's, and would hold PID 1 up.
const MAX_STEPS: u32 = 1024;

const PROC_SUPER_MAGIC: i64 = 0x9FA0;

/// Where a path leads.
pub(super) enum End {
    /// To what is there.
    Object(OwnedFd, Box<Stat>),
    /// To a name that nothing has, in a directory that is there.
    Missing(OwnedFd, Vec<u8>),
}

/// A name in a directory, with the slashes behind it as they were.
pub(super) struct Name {
    pub(super) dir: OwnedFd,
    pub(super) name: Vec<u8>,
    pub(super) slash: bool,
}

/// Called for each link that is followed, with the path that is meant by way of it: its own place, and what is left.
pub(super) type OnLink<'a> = &'a dyn Fn(&[u8]) -> Result<(), Errno>;

/// What a path names; with `follow` the links that it ends in, too.
pub(super) fn object(
    caller: &Caller<'_>,
    dir: i32,
    path: &[u8],
    follow: bool,
    on_link: OnLink<'_>,
) -> Result<End, Errno> {
    let mut names = split(path);
    if path.ends_with(b"/") {
        names.push(b".".to_vec()); // it must be a directory, or lead to one
    }
    names.reverse();
    Walk { caller, on_link, last: b"", links: 0, steps: 0 }.go(begin(caller, dir, path)?, names, follow)
}

/// The last name of a path, and the directory that it is in.
pub(super) fn name(caller: &Caller<'_>, dir: i32, path: &[u8], on_link: OnLink<'_>) -> Result<Name, Errno> {
    let mut names = split(path);
    let last = names.pop().filter(|last| last != b"." && last != b"..").ok_or(Errno::BUSY)?; // also the root
    names.reverse();
    let walk = Walk { caller, on_link, last: &last, links: 0, steps: 0 };
    match walk.go(begin(caller, dir, path)?, names, true)? {
        End::Object(dir, stat) if is(&stat, FileType::Directory) => {
            Ok(Name { dir, name: last, slash: path.ends_with(b"/") })
        }
        End::Object(..) => Err(Errno::NOTDIR),
        End::Missing(..) => Err(Errno::NOENT),
    }
}

/// Where an object is, as the kernel says it.
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

fn begin(caller: &Caller<'_>, dir: i32, path: &[u8]) -> Result<OwnedFd, Errno> {
    if path.starts_with(b"/") { root() } else { caller.start(dir) }
}

/// The root of every process of the container: none may change its own.
fn root() -> Result<OwnedFd, Errno> {
    openat(rustix::fs::CWD, "/", OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
}

struct Walk<'a> {
    caller: &'a Caller<'a>,
    on_link: OnLink<'a>,
    /// A name behind those that are walked.
    last: &'a [u8],
    links: u32,
    steps: u32,
}

impl Walk<'_> {
    /// Goes on from `at` by these names, the last one first.
    fn go(mut self, mut at: OwnedFd, mut names: Vec<Vec<u8>>, follow: bool) -> Result<End, Errno> {
        let step = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        while let Some(name) = names.pop() {
            self.steps += 1;
            if self.steps > MAX_STEPS {
                return Err(Errno::NAMETOOLONG);
            }
            let child = match openat(&at, name.as_slice(), step, Mode::empty()) {
                Err(Errno::NOENT) if names.is_empty() => return Ok(End::Missing(at, name)),
                child => child?,
            };
            let stat = fstat(&child)?;
            if !is(&stat, FileType::Symlink) {
                if names.is_empty() {
                    return Ok(End::Object(child, Box::new(stat)));
                }
                if !is(&stat, FileType::Directory) {
                    return Err(Errno::NOTDIR);
                }
                at = child;
                continue;
            }
            if names.is_empty() && !follow {
                return Ok(End::Object(child, Box::new(stat)));
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
                        return Ok(End::Object(jumped, Box::new(stat)));
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
        Ok(End::Object(at, Box::new(stat)))
    }

    /// The path by way of a link, as far as it only goes down.
    fn spelled(&self, dir: &[u8], name: &[u8], left: &[Vec<u8>]) -> Vec<u8> {
        let down = left.iter().rev().map(Vec::as_slice).chain([self.last]).take_while(|name| *name != b"..");
        let named = down.filter(|name| !name.is_empty() && *name != b".");
        named.fold(joined(dir, name), |path, name| joined(&path, name))
    }

    /// A link of /proc: the object that it stands for, or nothing when it was as any other.
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

/// What a link says comes before what is left.
fn follow_into(names: &mut Vec<Vec<u8>>, target: &[u8]) {
    let mut more = split(target);
    if target.ends_with(b"/") && names.is_empty() {
        more.push(b".".to_vec());
    }
    names.extend(more.into_iter().rev());
}

/// Whether a place in /proc is this process' own.
pub(super) fn is_of(place: &[u8], process: u32) -> bool {
    let own = format!("/proc/{process}");
    place.strip_prefix(own.as_bytes()).is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
}

/// A name in a directory, as a path.
pub(super) fn joined(dir: &[u8], name: &[u8]) -> Vec<u8> {
    let slash: &[u8] = if dir.ends_with(b"/") { b"" } else { b"/" };
    [dir, slash, name].concat()
}

/// What is at a name itself, a link not followed.
pub(super) fn at(name: &Name) -> Result<Stat, Errno> {
    rustix::fs::statat(&name.dir, name.name.as_slice(), AtFlags::SYMLINK_NOFOLLOW)
}
