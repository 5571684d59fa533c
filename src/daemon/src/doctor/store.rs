//! The folder of the store: whether files can be kept there, how many, how safely and how fast.
//!
//! It must never leave anything there, even when it is killed: the file that it writes has no name.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use bytesize::ByteSize;
use rustix::fs::{Access, OFlags};

use super::check::{Check, Checks, Group};
use crate::config::Config;
use crate::holder::{self, LockState};
use crate::store::{RESERVE, trust};

/// Every answer with saved files waits for at least one sync: slower ones are noticeable.
const SLOW: Duration = Duration::from_millis(20);
/// Number of syncs that are timed, and the longest time for them.
const SYNCS: usize = 9;
const SYNCING: Duration = Duration::from_secs(2);
/// Longest time, and largest number of entries, for counting what is stored.
const COUNTING: Duration = Duration::from_secs(2);
const COUNTED: usize = 200_000;

/// The state of the folder of the store.
#[derive(Debug, Clone)]
pub(super) struct StoreFacts {
    pub(super) root: PathBuf,
    /// Whether the folder exists; if not, the nearest existing folder above it is examined.
    pub(super) exists: bool,
    /// Why no file can be written there.
    pub(super) unwritable: Option<String>,
    /// Why the daemon does not trust the folder.
    pub(super) distrusted: Option<String>,
    pub(super) held: LockState,
    pub(super) file_system: FileSystem,
    /// Free bytes and inodes; a file system that does not count inodes cannot run out of them.
    pub(super) free: u64,
    pub(super) free_inodes: Option<u64>,
    /// Bytes that are stored already; not all of them if there were too many to count.
    pub(super) stored: u64,
    pub(super) counted: bool,
    /// The median of several syncs.
    pub(super) sync: Option<Duration>,
    pub(super) max_bytes: u64,
    /// Bytes and entries that one session may have.
    pub(super) session: (u64, u64),
}

/// The kinds of file systems that matter here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FileSystem {
    /// In memory.
    Memory(&'static str),
    /// The uppermost layer of a container.
    Overlay,
    /// On another machine.
    Network(&'static str),
    /// On a disk.
    Disk(&'static str),
    /// Unknown; its number.
    Other(u64),
}

impl FileSystem {
    /// From `f_type` of statfs(2).
    fn of(magic: u64) -> Self {
        match magic {
            0x0102_1994 => Self::Memory("tmpfs"),
            0x8584_58f6 => Self::Memory("ramfs"),
            0x794c_7630 => Self::Overlay,
            0x6969 => Self::Network("nfs"),
            0xff53_4d42 | 0xfe53_4d42 => Self::Network("cifs"),
            0x0102_1997 => Self::Network("9p"),
            0x6573_5546 => Self::Network("fuse"),
            0xef53 => Self::Disk("ext4"),
            0x5846_5342 => Self::Disk("xfs"),
            0x9123_683e => Self::Disk("btrfs"),
            0x2fc1_2fc1 => Self::Disk("zfs"),
            0xf2f5_2010 => Self::Disk("f2fs"),
            other => Self::Other(other),
        }
    }
}

/// Collects the facts. It can take long on a slow disk, and must run on a thread that may block.
pub(super) fn look(config: &Config) -> StoreFacts {
    let root = &config.store.root;
    let exists = fs::symlink_metadata(root).is_ok();
    let place = root.ancestors().find(|path| path.exists()).unwrap_or(Path::new("/"));
    let disk = rustix::fs::statvfs(place).ok();
    let magic = rustix::fs::statfs(place).map_or(0, |fs| u64::try_from(fs.f_type).unwrap_or(0) & 0xffff_ffff);
    let (sync, unwritable) = match timed_syncs(place) {
        Ok(sync) => (Some(sync), closed(root)),
        Err(error) => (None, Some(format!("{}: {error}", place.display()))),
    };
    let (stored, counted) = if exists { count(root) } else { (0, true) };
    StoreFacts {
        root: root.clone(),
        exists,
        unwritable,
        distrusted: trust::of_root(root),
        held: holder::of_lock(&root.join("lock")),
        file_system: FileSystem::of(magic),
        free: disk.as_ref().map_or(0, |disk| disk.f_bavail.saturating_mul(disk.f_frsize)),
        free_inodes: disk.as_ref().filter(|disk| disk.f_files > 0).map(|disk| disk.f_favail),
        stored,
        counted,
        sync,
        max_bytes: config.store.max_bytes,
        session: (config.limits.data, config.limits.data_inodes.into()),
    }
}

/// A file that an earlier daemon of another user left, and that this user cannot use.
fn closed(root: &Path) -> Option<String> {
    ["lock", "owner", "journal", "tmp"].iter().map(|name| root.join(name)).find_map(|path| {
        let error = rustix::fs::access(&path, Access::READ_OK | Access::WRITE_OK).err()?;
        (error != rustix::io::Errno::NOENT).then(|| format!("{}: {error}", path.display()))
    })
}

/// The median time of several syncs of a file in this folder.
fn timed_syncs(place: &Path) -> io::Result<Duration> {
    let file = nameless(place)?;
    let begun = Instant::now();
    let mut took = Vec::new();
    let block = [0x5a; 4096];
    for n in 0..SYNCS {
        file.write_all_at(&block, n as u64 * 4096)?;
        let one = Instant::now();
        file.sync_data()?;
        took.push(one.elapsed());
        if begun.elapsed() > SYNCING {
            break;
        }
    }
    took.sort();
    Ok(took.get(took.len() / 2).copied().unwrap_or_default())
}

/// A file without a name, or, where the file system has none, one whose name is removed at once.
fn nameless(place: &Path) -> io::Result<File> {
    let flags = OFlags::TMPFILE.bits().cast_signed();
    let opened = OpenOptions::new().read(true).write(true).mode(0o600).custom_flags(flags).open(place);
    match opened {
        Err(error) if matches!(error.kind(), ErrorKind::Unsupported | ErrorKind::IsADirectory) => {
            let mut name = OsString::from(".paddock-doctor-");
            name.push(crate::id::random_hex::<6>());
            let path = place.join(name);
            let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
            fs::remove_file(&path)?;
            file.flush()?;
            Ok(file)
        }
        other => other,
    }
}

/// Bytes of all files below, and whether all of them were counted.
fn count(root: &Path) -> (u64, bool) {
    let begun = Instant::now();
    let (mut bytes, mut seen) = (0, 0);
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            seen += 1;
            if seen > COUNTED || begun.elapsed() > COUNTING {
                return (bytes, false);
            }
            match entry.metadata() {
                Ok(meta) if meta.is_dir() => folders.push(entry.path()),
                Ok(meta) if meta.is_file() => bytes += meta.len(),
                Ok(_) | Err(_) => {}
            }
        }
    }
    (bytes, true)
}

pub(super) fn judge(facts: &StoreFacts) -> Vec<Check> {
    let mut checks = Checks::of(Group::Store);
    let root = facts.root.display();
    const ELSEWHERE: &str = "or choose another folder by store.root (SANDBOX_ROOT, --store)";
    if let Some(why) = &facts.unwritable {
        let advice = format!(
            "nothing could be saved: make it writable for this user (`chown -R $(id -u) {root}`), {ELSEWHERE}"
        );
        checks.fail("writable", format!("the store {root} cannot be written: {why}"), advice);
        return checks.done();
    }
    let there = if facts.exists { "exists and" } else { "does not exist yet, can be made and" };
    checks.ok("writable", format!("{root} {there} can be written"));
    if let Some(why) = &facts.distrusted {
        let (found, advice) = why.split_once(": ").unwrap_or((why, ELSEWHERE));
        checks.fail("owner", found, advice);
    }
    match &facts.held {
        LockState::Free => checks.ok("lock", "no daemon uses it"),
        LockState::HeldBy(daemon) => checks.ok("lock", format!("a daemon uses it: {daemon}")),
        LockState::Unseen => {
            checks.ok("lock", "a daemon that is not visible from here uses it, perhaps in another container");
        }
    }
    let on = |name| format!("{root} is on {name}");
    match facts.file_system {
        FileSystem::Disk(name) => checks.ok("file system", on(name)),
        FileSystem::Other(magic) => checks.ok(
            "file system",
            on(&format!(
                "a file system of type \
                                                                          {magic:#x}"
            )),
        ),
        FileSystem::Memory(name) => checks.warn(
            "file system",
            on(name),
            format!(
                "all files are lost at the next reboot, and take memory until then: use a disk, \
                     {ELSEWHERE}"
            ),
        ),
        FileSystem::Overlay => checks.warn(
            "file system",
            on("overlay, a container's own layer"),
            format!(
                "all files are lost with the container: mount a volume there (-v paddock:{root}), \
                     {ELSEWHERE}"
            ),
        ),
        FileSystem::Network(name) => checks.warn(
            "file system",
            on(name),
            format!(
                "files are only as safe as that server's syncs, and the lock only as reliable as its \
                     locks: use a disk, {ELSEWHERE}"
            ),
        ),
    }
    space(facts, &mut checks);
    match facts.sync {
        Some(sync) if sync > SLOW => checks.warn(
            "sync",
            format!("a sync takes {:.1} ms there (median)", millis(sync)),
            format!("every answer with saved files waits for at least one: use a faster disk, {ELSEWHERE}"),
        ),
        Some(sync) => checks.ok("sync", format!("a sync takes {:.1} ms there (median)", millis(sync))),
        None => {}
    }
    checks.done()
}

fn space(facts: &StoreFacts, checks: &mut Checks) {
    let (bytes, inodes) = facts.session;
    let free = ByteSize::b(facts.free);
    let least = if facts.counted { "" } else { "at least " };
    let stored = ByteSize::b(facts.stored);
    let found = format!(
        "{free} are free, {least}{stored} are stored, store.max_bytes is {}",
        ByteSize::b(facts.max_bytes)
    );
    if facts.free < RESERVE {
        let advice = "nothing more can be saved (quota_exceeded): free some space, or enlarge the disk";
        checks.fail("space", format!("the disk of the store is full: {found}"), advice);
    } else if facts.free.saturating_add(facts.stored) < facts.max_bytes && facts.counted {
        let advice = format!(
            "the disk is full before the store is, and then nothing more can be saved (quota_exceeded): free \
             some space, or set store.max_bytes to at most {}",
            ByteSize::b(facts.free.saturating_add(facts.stored).saturating_sub(RESERVE).max(bytes))
        );
        checks.warn("space", found, advice);
    } else {
        checks.ok("space", found);
    }
    match facts.free_inodes {
        Some(free) if free < inodes => checks.warn(
            "inodes",
            format!("{free} inodes are free, fewer than the {inodes} that one session may have"),
            "many small files use them up (quota_exceeded): free some, make the file system with more, or \
             lower limits.data_inodes",
        ),
        Some(free) => checks.ok("inodes", format!("{free} inodes are free")),
        None => checks.ok("inodes", "this file system does not run out of inodes"),
    }
}

fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1000.0
}

#[cfg(test)]
#[path = "store_tests.rs"]
mod tests;
