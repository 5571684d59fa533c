//! What the volumes of a container take on the disk, looked at while a run is under way: where the file
//! system has no bound for them, the run that exceeds its own is ended.
//!
//! ```text
//!  statvfs, every POLL ─┬─ the disk is nearly full ──────────────────────────────────► over
//!                       └─ enough was written to it, by anybody, since the last walk,
//!                          or that was long ago ─► walk: names, sizes ─► too much ──► over
//! ```
//!
//! Files without a name count too while a process has them open, as far as the kernel shows its descriptors.
//! A walk costs time that grows with what is there. It must never take more than a few percent of a
//! processor, nor end a run that found more than its bound and only removes some of it.

use std::cell::Cell;
use std::collections::HashSet;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use paddock_proto::limits::{DATA_DIR, HOMES_DIR};
use paddock_proto::message::DiskLimit;
use rustix::fs::{self, AtFlags, FileType, Mode, OFlags, StatVfs};
use rustix::io::Errno;

use crate::pause::Pause;

/// How often the free space of the file system is asked for, which takes microseconds.
const POLL: Duration = Duration::from_millis(100);

/// After a walk, this many times its own duration passes before the next one: 5 % of a processor at most.
const REST: u32 = 20;

/// After this many times its duration it is repeated although the file system does not show growth: others
/// may have freed as much as this container has taken.
const REPEAT: u32 = 50;

/// The least time after which a walk is repeated for no other reason.
const REPEAT_AFTER: Duration = Duration::from_secs(5);

/// A disk is nearly full when it has less than this free, or less than [`RESERVE_SHARE`] of it: the rest is
/// for saving what the run has made, and for others.
const RESERVE: u64 = 1 << 30;

/// The same for small disks.
const RESERVE_SHARE: u64 = 20;

/// Directories deep that a walk goes. Deeper ones count as too much: their number is what would take time.
const MAX_DEPTH: usize = 256;

/// A run that found more than its bound may add so much before it has removed some of it. A coding agent
/// keeps a log, and the file system takes a little more when it puts what was written last in its place.
const ROOM: Usage = Usage { bytes: 1 << 20, entries: 64 };

/// Bytes of a block as stat(2) counts.
const BLOCK: u64 = 512;

/// What the volumes take.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Usage {
    bytes: u64,
    entries: u64,
}

impl Usage {
    /// And this file.
    fn with(self, stat: &fs::Stat) -> Self {
        let bytes = stat.st_blocks.cast_unsigned().saturating_mul(BLOCK);
        Self { bytes: self.bytes.saturating_add(bytes), entries: self.entries + 1 }
    }

    fn exceeds(self, limit: DiskLimit) -> bool {
        limit.bytes.is_some_and(|bytes| self.bytes > bytes) || self.entries > limit.entries
    }
}

/// What a file system has free.
#[derive(Debug, Clone, Copy)]
struct Free {
    bytes: u64,
    /// Of all users, not only of those without privileges.
    total: u64,
    inodes: u64,
}

impl Free {
    fn of(fs: &StatVfs) -> Self {
        let bytes = |blocks: u64| blocks.saturating_mul(fs.f_frsize);
        Self { bytes: bytes(fs.f_bavail), total: bytes(fs.f_blocks), inodes: fs.f_ffree }
    }

    fn is_nearly_nothing(self) -> bool {
        self.bytes < RESERVE.min(self.total / RESERVE_SHARE)
    }
}

/// The last walk.
#[derive(Debug, Clone, Copy)]
struct Walked {
    usage: Usage,
    /// Of the file system when the walk began.
    free: Free,
    ended: Instant,
    took: Duration,
}

/// When to look again, and what is too much. Pure.
#[derive(Debug)]
struct Watch {
    limit: DiskLimit,
    last: Option<Walked>,
}

impl Watch {
    /// Watches a run that found this much: that is never too much, nor is a little more, or nothing could be
    /// removed.
    fn new(limit: DiskLimit, found: Usage) -> Self {
        let bound = |limit: u64, found: u64, room: u64| {
            if found > limit { found.saturating_add(room) } else { limit }
        };
        let limit = DiskLimit {
            bytes: limit.bytes.map(|bytes| bound(bytes, found.bytes, ROOM.bytes)),
            entries: bound(limit.entries, found.entries, ROOM.entries),
        };
        Self { limit, last: None }
    }

    /// Whether it is time to walk.
    fn is_due(&self, free: Free, now: Instant) -> bool {
        let Some(last) = self.last else { return true };
        let rested = now.saturating_duration_since(last.ended);
        if rested < last.took * REST {
            return false;
        }
        let most = Usage {
            bytes: last.usage.bytes.saturating_add(last.free.bytes.saturating_sub(free.bytes)),
            entries: last.usage.entries.saturating_add(last.free.inodes.saturating_sub(free.inodes)),
        };
        most.exceeds(self.limit) || rested >= (last.took * REPEAT).max(REPEAT_AFTER)
    }

    /// Takes a walk's result; whether it is too much.
    fn is_over(&mut self, walked: Walked) -> bool {
        self.last = Some(walked);
        walked.usage.exceeds(self.limit)
    }
}

thread_local! {
    /// What the last walk found: PID 1 has one thread.
    static KNOWN: Cell<Usage> = const { Cell::new(Usage { bytes: 0, entries: 0 }) };
}

/// Looks at what a run finds, before its program starts. A container that was far from its limit when it was
/// last looked at is not walked.
pub(crate) async fn look_before(limit: DiskLimit) {
    let half = DiskLimit { bytes: limit.bytes.map(|bytes| bytes / 2), entries: limit.entries / 2 };
    if KNOWN.get().exceeds(half)
        && let Some(usage) = walk(&[DATA_DIR, HOMES_DIR], limit).await
    {
        KNOWN.set(usage);
    }
}

/// Resolves once the volumes take more than the limit, and more than the run found and [`ROOM`], or the disk
/// is nearly full.
pub(crate) async fn exceeded(limit: DiskLimit) {
    let mut watch = Watch::new(limit, KNOWN.get());
    loop {
        let Ok(free) = fs::statvfs(DATA_DIR).map(|fs| Free::of(&fs)) else {
            tokio::time::sleep(POLL).await;
            continue;
        };
        // Where the file system has a bound of its own, it shows what is left of that.
        if limit.bytes.is_some() && free.is_nearly_nothing() {
            return;
        }
        let begun = Instant::now();
        if watch.is_due(free, begun) {
            let Some(usage) = walk(&[DATA_DIR, HOMES_DIR], limit).await else { return };
            let ended = Instant::now();
            KNOWN.set(usage);
            if watch.is_over(Walked { usage, free, ended, took: ended - begun }) {
                return;
            }
        }
        tokio::time::sleep(POLL).await;
    }
}

/// What the volumes of these directories take, as far as they can be read; `None` if that cannot be counted.
async fn walk(roots: &[&str], limit: DiskLimit) -> Option<Usage> {
    let mut pause = Pause::default();
    let Named { mut usage, mut counted, devices } = named(roots, limit, &mut pause).await?;
    for stat in nameless(&mut pause).await {
        if devices.contains(&stat.st_dev) && counted.insert(key(&stat)) {
            usage = usage.with(&stat);
        }
    }
    Some(usage)
}

/// What is below some directories.
struct Named {
    usage: Usage,
    /// The roots, and files of several names.
    counted: HashSet<(u64, u64)>,
    /// The file systems of the roots.
    devices: Vec<u64>,
}

/// What is below these directories. It stops early where there is far too much.
async fn named(roots: &[&str], limit: DiskLimit, pause: &mut Pause) -> Option<Named> {
    let (mut usage, mut counted) = (Usage::default(), HashSet::new());
    let most = limit.entries.saturating_mul(2);
    let mut devices = Vec::new();
    for root in roots.iter().filter_map(|root| open(&fs::CWD, root.as_bytes()).ok()) {
        let Ok(own) = fs::fstat(&root) else { continue };
        // One root may be mounted below another.
        counted.insert(key(&own));
        devices.push(own.st_dev);
        let mut dirs: Vec<Vec<Vec<u8>>> = vec![Vec::new()];
        while let Some(dir) = dirs.pop() {
            if dir.len() > MAX_DEPTH {
                return None;
            }
            let Ok(fd) = descend(&root, &dir) else { continue };
            let Ok(entries) = fs::Dir::read_from(&fd) else { continue };
            for entry in entries.map_while(Result::ok) {
                let name = entry.file_name().to_bytes();
                if name == b"." || name == b".." {
                    continue;
                }
                pause.if_due().await;
                let Ok(stat) = fs::statat(&fd, name, AtFlags::SYMLINK_NOFOLLOW) else { continue };
                let is_dir = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
                let is_counted = match is_dir {
                    true => counted.contains(&key(&stat)),
                    false => stat.st_nlink > 1 && !counted.insert(key(&stat)),
                };
                if stat.st_dev != own.st_dev || is_counted {
                    continue;
                }
                usage = usage.with(&stat);
                if usage.entries > most {
                    return Some(Named { usage, counted, devices });
                }
                if is_dir {
                    dirs.push(dir.iter().cloned().chain([name.to_vec()]).collect());
                }
            }
        }
    }
    Some(Named { usage, counted, devices })
}

/// The open files of all processes that have no name any more. A process can hide its own.
async fn nameless(pause: &mut Pause) -> Vec<fs::Stat> {
    let mut found = Vec::new();
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    for process in processes.filter(|entry| entry.file_name().as_encoded_bytes()[0].is_ascii_digit()) {
        let Ok(fds) = open(&fs::CWD, process.path().join("fd").as_os_str().as_encoded_bytes()) else {
            continue;
        };
        let Ok(entries) = fs::Dir::read_from(&fds) else { continue };
        for entry in entries.map_while(Result::ok) {
            pause.if_due().await;
            let Ok(stat) = fs::statat(&fds, entry.file_name(), AtFlags::empty()) else { continue };
            if stat.st_nlink == 0 && FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile {
                found.push(stat);
            }
        }
    }
    found
}

/// Names a file, whatever name it has.
fn key(stat: &fs::Stat) -> (u64, u64) {
    (stat.st_dev, stat.st_ino)
}

fn open(dir: &impl AsFd, name: &[u8]) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    fs::openat(dir, name, flags, Mode::empty())
}

/// The directory of these components below `root`, never through a link.
fn descend(root: &OwnedFd, names: &[Vec<u8>]) -> Result<OwnedFd, Errno> {
    let mut dir = open(root, b".")?;
    for name in names {
        dir = open(&dir, name)?;
    }
    Ok(dir)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    const GIB: u64 = 1 << 30;

    fn free(bytes: u64, inodes: u64) -> Free {
        Free { bytes, total: 100 * GIB, inodes }
    }

    fn walked(bytes: u64, entries: u64, ended: Instant) -> Walked {
        let usage = Usage { bytes, entries };
        Walked { usage, free: free(50 * GIB, 1000), ended, took: Duration::from_millis(10) }
    }

    fn watch() -> Watch {
        Watch::new(DiskLimit { bytes: Some(10 * GIB), entries: 100 }, Usage::default())
    }

    #[test]
    fn it_walks_when_what_was_written_could_be_too_much_or_the_last_walk_was_long_ago() {
        let (mut watch, start) = (watch(), Instant::now());
        assert!(watch.is_due(free(50 * GIB, 1000), start), "nothing is known yet");
        assert!(!watch.is_over(walked(GIB, 10, start)));
        let after = |ms| start + Duration::from_millis(ms);
        let (same, bytes, inodes) = (free(50 * GIB, 1000), free(40 * GIB, 1000), free(50 * GIB, 900));
        assert!(!watch.is_due(same, after(300)) && !watch.is_due(free(41 * GIB, 910), after(300)));
        assert!(watch.is_due(bytes, after(300)) && watch.is_due(inodes, after(300)));
        assert!(!watch.is_due(bytes, after(100)), "a walk rests for twenty times its duration");
        assert!(watch.is_due(same, after(5000)) && !watch.is_due(same, after(4900)));
        let long = Walked { took: Duration::from_secs(1), ..walked(GIB, 10, start) };
        assert!(!watch.is_over(long));
        assert!(!watch.is_due(bytes, after(19_900)) && watch.is_due(bytes, after(20_000)));
        assert!(!watch.is_due(same, after(49_900)) && watch.is_due(same, after(50_000)));
    }

    #[test]
    fn a_run_is_over_its_bound_unless_it_found_as_much() {
        let now = Instant::now();
        let mut fresh = watch();
        assert!(!fresh.is_over(walked(0, 0, now)) && !fresh.is_over(walked(10 * GIB, 100, now)));
        assert!(fresh.is_over(walked(10 * GIB + 1, 0, now)) && fresh.is_over(walked(0, 101, now)));
        let mut at_once = watch();
        assert!(at_once.is_over(walked(12 * GIB, 0, now)), "it was written before the first walk");
        let found = Usage { bytes: 12 * GIB, entries: 500 };
        let mut full = Watch::new(DiskLimit { bytes: Some(10 * GIB), entries: 100 }, found);
        assert!(!full.is_over(walked(12 * GIB, 500, now)), "what it found");
        assert!(!full.is_over(walked(11 * GIB, 500, now)), "it removes some of it");
        let (bytes, entries) = (12 * GIB + ROOM.bytes, 500 + ROOM.entries);
        assert!(!full.is_over(walked(bytes, entries, now)), "it writes a little first");
        assert!(full.is_over(walked(bytes + 1, 500, now)) && full.is_over(walked(0, entries + 1, now)));
        let all = Usage { bytes: 10 * GIB, entries: 100 };
        let mut just = Watch::new(DiskLimit { bytes: Some(10 * GIB), entries: 100 }, all);
        assert!(just.is_over(walked(10 * GIB + 1, 100, now)), "it found no more than its bound");
        let mut by_file_system = Watch::new(DiskLimit { bytes: None, entries: 100 }, Usage::default());
        assert!(
            !by_file_system.is_over(walked(0, 0, now)) && !by_file_system.is_over(walked(90 * GIB, 1, now))
        );
    }

    #[test]
    fn a_disk_is_nearly_full_by_its_size() {
        assert!(free(GIB - 1, 0).is_nearly_nothing() && !free(GIB, 0).is_nearly_nothing());
        let small = |bytes| Free { bytes, total: 2 * GIB, inodes: 0 };
        assert!(small(GIB / 10 - 1).is_nearly_nothing() && !small(GIB / 10).is_nearly_nothing());
    }

    #[tokio::test]
    async fn a_walk_counts_each_file_once_and_follows_no_link() {
        let folder = tempfile::tempdir().expect("a folder");
        let (root, other) = (folder.path().join("root"), folder.path().join("other"));
        std::fs::create_dir_all(root.join("a/b")).expect("directories");
        std::fs::create_dir_all(&other).expect("a directory");
        std::fs::write(other.join("big"), vec![1; 1 << 20]).expect("a file");
        std::fs::write(root.join("a/file"), vec![1; 100_000]).expect("a file");
        std::fs::hard_link(root.join("a/file"), root.join("a/b/again")).expect("a name");
        symlink(&other, root.join("link")).expect("a link");
        let path = root.to_str().expect("text");
        let limit = DiskLimit { bytes: Some(1), entries: 100 };
        let pause = &mut Pause::default();
        let Named { usage, .. } = named(&[path, path, "/nowhere"], limit, pause).await.expect("counted");
        assert_eq!(usage.entries, 2 * 3 + 1, "twice: a, a/b, link; the file once");
        assert!((100_000..600_000).contains(&usage.bytes), "{usage:?}");
        // A deleted file takes its space for as long as it is open.
        std::fs::write(root.join("gone"), vec![1; 1 << 20]).expect("a file");
        let open = std::fs::File::open(root.join("gone")).expect("it is there");
        let gone = key(&fs::fstat(&open).expect("its state"));
        assert!(!nameless(pause).await.iter().any(|stat| key(stat) == gone), "it has its name");
        std::fs::remove_file(root.join("gone")).expect("it is there");
        assert!(nameless(pause).await.iter().any(|stat| key(stat) == gone));
        let with_open = walk(&[path], limit).await.expect("counted");
        assert!(with_open.bytes >= 100_000 + (1 << 20), "{with_open:?}");
    }
}
