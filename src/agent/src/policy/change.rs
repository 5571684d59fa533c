//! Changes without a descriptor for the caller: names made, moved and removed; lengths, modes, owners and
//! times.
//!
//! PID 1 makes them itself, on descriptors that it holds and has judged, as the caller's own user: it may do
//! exactly what the caller may. It must never use the path that the caller gave, which may lead elsewhere by
//! then.

use std::os::fd::OwnedFd;

use rustix::fs::{
    AtFlags, CWD, FileType, Gid, Mode, OFlags, RenameFlags, Stat, Timespec, Timestamps, Uid, chmod, chownat,
    ftruncate, linkat, mkdirat, mknodat, readlinkat, renameat_with, symlinkat, unlinkat, utimensat,
};
use rustix::io::Errno;

use super::judge::{self, BOTH, WRITE};
use super::open::{again, itself, masked};
use super::rules::Rules;
use super::walk::{self, Name, WalkEnd, is};
use crate::intercept::{CallingProcess, FCHMODAT2};

const UNSUPPORTED_FLAGS: u32 =
    !(libc::AT_EMPTY_PATH | libc::AT_SYMLINK_FOLLOW | libc::AT_SYMLINK_NOFOLLOW).cast_unsigned();

/// A path as a call has it.
#[derive(Clone, Copy)]
struct At {
    dir: i32,
    path: u64,
}

/// Makes the change that the caller asked for, if the rules allow it. `longest`: no file of the caller may
/// become longer.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    reason = "as the kernel takes its arguments"
)]
pub(super) fn change(rules: &Rules, caller: &CallingProcess<'_>, longest: Option<u64>) -> Result<(), Errno> {
    let a = caller.call.args;
    let at = |dir: usize| At { dir: a[dir] as i32, path: a[dir + 1] };
    #[cfg(target_arch = "x86_64")]
    let here = |path: usize| At { dir: libc::AT_FDCWD, path: a[path] };
    let (word, mode) = (|n: usize| a[n] as u32, |n: usize| a[n] as u32);
    let change = FileChange { rules, caller };
    #[cfg(target_arch = "x86_64")]
    let nofollow = libc::AT_SYMLINK_NOFOLLOW.cast_unsigned();
    match caller.call.number {
        libc::SYS_truncate => {
            change.truncate(At { dir: libc::AT_FDCWD, path: a[0] }, a[1] as i64, longest.unwrap_or(u64::MAX))
        }
        libc::SYS_unlinkat => change.remove(at(0), word(2)),
        libc::SYS_renameat => change.rename(at(0), at(2), 0),
        libc::SYS_renameat2 => change.rename(at(0), at(2), word(4)),
        libc::SYS_linkat => change.link(at(0), at(2), word(4)),
        libc::SYS_symlinkat => change.symlink(a[0], at(1)),
        libc::SYS_mkdirat => change.make_dir(at(0), mode(2)),
        libc::SYS_mknodat => change.make_node(at(0), mode(2), a[3]),
        libc::SYS_fchmod => change.mode(&change.open_one(a[0] as i32)?, mode(1)),
        libc::SYS_fchmodat => change.mode(&change.object(at(0), 0)?, mode(2)),
        FCHMODAT2 => change.mode(&change.object(at(0), word(3))?, mode(2)),
        libc::SYS_fchown => change.owner(&change.open_one(a[0] as i32)?, word(1), word(2)),
        libc::SYS_fchownat => change.owner(&change.object(at(0), word(4))?, word(2), word(3)),
        libc::SYS_utimensat if a[1] == 0 => change.times(&change.open_one(a[0] as i32)?, a[2]),
        libc::SYS_utimensat => change.times(&change.object(at(0), word(3))?, a[2]),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_unlink => change.remove(here(0), 0),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_rmdir => change.remove(here(0), libc::AT_REMOVEDIR.cast_unsigned()),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_rename => change.rename(here(0), here(1), 0),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_link => change.link(here(0), here(1), 0),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_symlink => change.symlink(a[0], here(1)),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_mkdir => change.make_dir(here(0), mode(1)),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_mknod => change.make_node(here(0), mode(1), a[2]),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_chmod => change.mode(&change.object(here(0), 0)?, mode(1)),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_chown => change.owner(&change.object(here(0), 0)?, word(1), word(2)),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_lchown => change.owner(&change.object(here(0), nofollow)?, word(1), word(2)),
        _ => Err(Errno::NOSYS),
    }
}

struct FileChange<'a> {
    rules: &'a Rules,
    caller: &'a CallingProcess<'a>,
}

impl FileChange<'_> {
    fn find(&self, at: At, flags: u32) -> Result<(OwnedFd, Box<Stat>), Errno> {
        if flags & UNSUPPORTED_FLAGS != 0 {
            return Err(Errno::INVAL);
        }
        let has = |flag: i32| flags & flag.cast_unsigned() != 0;
        let path = match self.caller.path(at.path) {
            Err(Errno::NOENT) if has(libc::AT_EMPTY_PATH) => {
                let fd = self.caller.start(at.dir)?;
                let stat = rustix::fs::fstat(&fd)?;
                return Ok((fd, Box::new(stat)));
            }
            path => path?,
        };
        let on_link = |place: &[u8]| judge::link(self.rules, place, WRITE);
        match walk::object(self.caller, at.dir, &path, !has(libc::AT_SYMLINK_NOFOLLOW), &on_link)? {
            WalkEnd::Object(fd, stat) => Ok((fd, stat)),
            WalkEnd::Missing(..) => Err(Errno::NOENT),
        }
    }

    /// What a path names, if the caller may change it.
    fn object(&self, at: At, flags: u32) -> Result<OwnedFd, Errno> {
        let (fd, stat) = self.find(at, flags)?;
        self.may_change(fd, &stat)
    }

    /// What is open under a number, if the caller may change it.
    fn open_one(&self, fd: i32) -> Result<OwnedFd, Errno> {
        let fd = self.caller.descriptor(fd)?;
        let stat = rustix::fs::fstat(&fd)?;
        self.may_change(fd, &stat)
    }

    fn may_change(&self, fd: OwnedFd, stat: &Stat) -> Result<OwnedFd, Errno> {
        judge::object(self.rules, self.caller, &fd, stat, WRITE)?;
        self.caller.is_waiting()?;
        Ok(fd)
    }

    fn mode(&self, object: &OwnedFd, mode: u32) -> Result<(), Errno> {
        chmod(itself(object), Mode::from_raw_mode(mode & 0o7777))
    }

    fn owner(&self, object: &OwnedFd, user: u32, group: u32) -> Result<(), Errno> {
        let id = |id: u32| (id != u32::MAX).then_some(id);
        chownat(object, "", id(user).map(Uid::from_raw), id(group).map(Gid::from_raw), AtFlags::EMPTY_PATH)
    }

    fn times(&self, object: &OwnedFd, times: u64) -> Result<(), Errno> {
        let now = Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_NOW };
        let mut given = Timestamps { last_access: now, last_modification: now };
        if times != 0 {
            let bytes = self.caller.bytes(times, 32)?;
            let mut words =
                bytes.chunks_exact(8).filter_map(|word| word.try_into().ok().map(i64::from_ne_bytes));
            for time in [&mut given.last_access, &mut given.last_modification] {
                time.tv_sec = words.next().ok_or(Errno::FAULT)?;
                time.tv_nsec = words.next().ok_or(Errno::FAULT)?;
            }
        }
        self.caller.is_waiting()?;
        utimensat(object, "", &given, AtFlags::EMPTY_PATH)
    }

    fn truncate(&self, at: At, length: i64, longest: u64) -> Result<(), Errno> {
        let length = u64::try_from(length).map_err(|_| Errno::INVAL)?;
        let (object, stat) = self.find(at, 0)?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => {}
            FileType::Directory => return Err(Errno::ISDIR),
            FileType::Symlink
            | FileType::Fifo
            | FileType::Socket
            | FileType::CharacterDevice
            | FileType::BlockDevice
            | FileType::Unknown => return Err(Errno::INVAL),
        }
        let object = self.may_change(object, &stat)?;
        if length > longest {
            return Err(Errno::FBIG);
        }
        ftruncate(again(&object, OFlags::WRONLY)?, length)
    }

    fn name(&self, at: At) -> Result<Name, Errno> {
        let path = self.caller.path(at.path)?;
        walk::name(self.caller, at.dir, &path, &|place| judge::link(self.rules, place, WRITE))
    }

    /// A name that nothing has yet and that the caller may make; its path.
    fn new_name(&self, at: At) -> Result<(Name, Vec<u8>), Errno> {
        let name = self.name(at).map_err(|errno| if errno == Errno::BUSY { Errno::EXIST } else { errno })?;
        match walk::at(&name) {
            Ok(_) => return Err(Errno::EXIST),
            Err(Errno::NOENT) => {}
            Err(errno) => return Err(errno),
        }
        let place = judge::name(self.rules, &name.dir, &name.name, WRITE)?;
        self.caller.is_waiting()?;
        Ok((name, place))
    }

    fn remove(&self, at: At, flags: u32) -> Result<(), Errno> {
        if flags & !libc::AT_REMOVEDIR.cast_unsigned() != 0 {
            return Err(Errno::INVAL);
        }
        let name = self.name(at)?;
        walk::at(&name)?;
        let place = judge::name(self.rules, &name.dir, &name.name, WRITE)?;
        if flags != 0 {
            judge::other_than_file(self.rules, &place)?;
        }
        self.caller.is_waiting()?;
        unlinkat(&name.dir, spelled(&name), AtFlags::from_bits_retain(flags))
    }

    fn rename(&self, from: At, to: At, flags: u32) -> Result<(), Errno> {
        let flags = RenameFlags::from_bits_retain(flags);
        let swap = flags.contains(RenameFlags::EXCHANGE);
        let (from, to) = (self.name(from)?, self.name(to)?);
        let old = walk::at(&from)?;
        let from_place = judge::name(self.rules, &from.dir, &from.name, BOTH)?;
        let to_place = judge::name(self.rules, &to.dir, &to.name, if swap { BOTH } else { WRITE })?;
        self.may_move(&old, &from, &from_place, &to_place)?;
        if swap {
            self.may_move(&walk::at(&to)?, &to, &to_place, &from_place)?;
        }
        self.caller.is_waiting()?;
        renameat_with(&from.dir, spelled(&from), &to.dir, spelled(&to), flags)
    }

    fn may_move(&self, what: &Stat, name: &Name, from: &[u8], to: &[u8]) -> Result<(), Errno> {
        if is(what, FileType::Directory) {
            return judge::tree(self.rules, from, to);
        }
        if !is(what, FileType::RegularFile) {
            judge::other_than_file(self.rules, to)?;
        }
        if is(what, FileType::Symlink) {
            let target = readlinkat(&name.dir, name.name.as_slice(), Vec::with_capacity(256))?;
            judge::leading(self.rules, to, target.as_bytes())?;
        }
        Ok(())
    }

    fn link(&self, from: At, to: At, flags: u32) -> Result<(), Errno> {
        // Unlike in all other calls, a link is followed only with a flag.
        let follow = flags & libc::AT_SYMLINK_FOLLOW.cast_unsigned() != 0;
        let nofollow = if follow { 0 } else { libc::AT_SYMLINK_NOFOLLOW.cast_unsigned() };
        let (object, stat) = self.find(from, flags | nofollow)?;
        if is(&stat, FileType::Directory) {
            return Err(Errno::PERM);
        }
        // A caller that may write by one name may write by all: the object's own must be allowed.
        judge::object(self.rules, self.caller, &object, &stat, BOTH)?;
        let (to, place) = self.new_name(to)?;
        if !is(&stat, FileType::RegularFile) {
            judge::other_than_file(self.rules, &place)?;
        }
        if is(&stat, FileType::Symlink) {
            let target = readlinkat(&object, "", Vec::with_capacity(256))?;
            judge::leading(self.rules, &place, target.as_bytes())?;
        }
        linkat(CWD, itself(&object), &to.dir, spelled(&to), AtFlags::SYMLINK_FOLLOW)
    }

    fn symlink(&self, target: u64, at: At) -> Result<(), Errno> {
        let target = self.caller.path(target)?;
        let (name, place) = self.new_name(at)?;
        judge::other_than_file(self.rules, &place)?;
        judge::leading(self.rules, &place, &target)?;
        self.caller.is_waiting()?;
        symlinkat(target.as_slice(), &name.dir, spelled(&name))
    }

    fn make_dir(&self, at: At, mode: u32) -> Result<(), Errno> {
        let (name, place) = self.new_name(at)?;
        judge::other_than_file(self.rules, &place)?;
        let umask = self.caller.umask()?;
        self.caller.is_waiting()?;
        masked(umask, || mkdirat(&name.dir, spelled(&name), Mode::from_raw_mode(mode & 0o7777)))
    }

    fn make_node(&self, at: At, mode: u32, device: u64) -> Result<(), Errno> {
        let kind = match mode & libc::S_IFMT {
            0 => FileType::RegularFile,
            kind => FileType::from_raw_mode(kind),
        };
        let (name, place) = self.new_name(at)?;
        if kind != FileType::RegularFile {
            judge::other_than_file(self.rules, &place)?;
        }
        let umask = self.caller.umask()?;
        self.caller.is_waiting()?;
        masked(umask, || mknodat(&name.dir, spelled(&name), kind, Mode::from_raw_mode(mode & 0o7777), device))
    }
}

/// A name with the slash that the caller gave behind it, which demands a directory.
fn spelled(name: &Name) -> Vec<u8> {
    let slash: &[u8] = if name.slash { b"/" } else { b"" };
    [name.name.as_slice(), slash].concat()
}
