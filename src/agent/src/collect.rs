//! What changed in `/data`, told to the daemon; and the daemon's changes, brought in.
//!
//! A *stamp* (size, mode, times, inode) is kept for every entry that both sides agree on. A collection walks,
//! compares, sends what differs, and moves the base only when the daemon says that it is saved.
//!
//! Kernel times tick in steps, so a file written and rewritten within one step can look unchanged. A stamp
//! younger than `RACY_NS` when it was taken carries a hash of the content, compared the next time.
//!
//! It must never report a file as whole that changed while it was read.

use std::io::Read;
use std::io::Write;

use paddock_proto::limits::{CHUNK, DATA_DIR, PAGE};
use paddock_proto::message::{Entry, EntryKind, Request, SkipReason};
use paddock_proto::{Channel, Event, Inbound, RelPath};
use rustix::fs::{self, AtFlags, Mode, Timespec, Timestamps};
use rustix::io::Errno;
use xxhash_rust::xxh3::Xxh3;

use crate::container::Container;
use crate::files;
use crate::link::Stream;
use crate::stamp::{Base, Stamp};

fn now_ns() -> i64 {
    let now = fs_now();
    now.tv_sec.saturating_mul(1_000_000_000).saturating_add(now.tv_nsec)
}

fn fs_now() -> Timespec {
    rustix::time::clock_gettime(rustix::time::ClockId::Realtime)
}

/// Answers [`Request::Collect`], up to the daemon's commit; whether it came.
pub(crate) async fn serve(container: &Container, stream: &Stream) -> bool {
    let walked_at = now_ns();
    let walk = Walk::run().await;
    let mut next = Base::new();
    let base = container.base.take();
    for path in base.keys().rev().filter(|p| !walk.found.contains_key(*p)) {
        stream.event(&Event::Removed(path.clone())).await;
    }
    let mut room = Room::beside(&base, &walk.found);
    for (path, mut stamp) in walk.found {
        let unchanged = match base.get(&path) {
            Some(old) if old.same_but_hash(&stamp) => match old.hash {
                Some(hash) => match hash_of(&path) {
                    Some((now, ctime_ns)) if now == hash => {
                        stamp.settle(hash, ctime_ns, walked_at);
                        true
                    }
                    _ => false,
                },
                None => true,
            },
            _ => false,
        };
        if unchanged {
            next.insert(path, stamp);
            continue;
        }
        stream.event(&Event::Changed(stamp.entry(&path))).await;
        let old = base.get(&path);
        if let EntryKind::File(size) = stamp.kind {
            let sent = if room.fits(old, &stamp) { send_file(stream, &path, size).await } else { None };
            stream.event(&Event::FileEnd { whole: sent.is_some() }).await;
            let Some((hash, ctime_ns)) = sent else {
                // The daemon still has what it had; this is told again the next time, and so is its end.
                next.extend(old.map(|old| (path, old.clone())));
                continue;
            };
            stamp.settle(hash, ctime_ns, walked_at);
        }
        room.take(old, &stamp);
        next.insert(path, stamp);
    }
    for (path, reason) in walk.skipped {
        stream.event(&Event::Skipped { path, reason }).await;
    }
    walk.forced.restore();
    stream.event(&Event::Collected { entries: walk.entries }).await;
    let committed = loop {
        match stream.request().await {
            Ok(Request::Commit) => break true,
            Ok(_) => {} // a cancel that came too late
            Err(_) => break false,
        }
    };
    container.base.replace(if committed { next } else { base });
    committed
}

/// What the daemon can still take: as much as `/data` holds, by the sizes of files, in pages. A sparse file, or
/// many names of one, has a size that its volume never had to hold; sent, it would take forever and break a quota.
struct Room(u64);

impl Room {
    /// What is free beside what the daemon has and keeps.
    fn beside(base: &Base, found: &Base) -> Self {
        let all = fs::statvfs(DATA_DIR).map_or(0, |data| data.f_blocks.saturating_mul(data.f_frsize) / PAGE);
        let kept =
            base.iter().filter(|(path, _)| found.contains_key(*path)).map(|(_, stamp)| stamp.kind.pages());
        Self(all.saturating_sub(kept.sum()))
    }

    fn fits(&self, old: Option<&Stamp>, new: &Stamp) -> bool {
        new.kind.pages() <= self.0.saturating_add(old.map_or(0, |old| old.kind.pages()))
    }

    fn take(&mut self, old: Option<&Stamp>, new: &Stamp) {
        self.0 =
            self.0.saturating_add(old.map_or(0, |old| old.kind.pages())).saturating_sub(new.kind.pages());
    }
}

/// Sends the content; its hash and its time of change if it was of one piece.
async fn send_file(stream: &Stream, path: &RelPath, size: u64) -> Option<(u64, i64)> {
    let file = files::open_file(path).ok()?;
    let before = Stamp::of(&fs::fstat(&file).ok()?)?;
    let mut hash = Xxh3::new();
    let mut left = size;
    while left > 0 {
        let want = usize::try_from(left).unwrap_or(CHUNK).min(CHUNK);
        let mut piece = Vec::with_capacity(want);
        let n = rustix::io::read(&file, rustix::buffer::spare_capacity(&mut piece)).ok()?;
        if n == 0 {
            return None; // it shrank
        }
        piece.truncate(want);
        hash.update(&piece);
        left -= piece.len() as u64;
        stream.data(Channel::File, piece.into()).await;
    }
    let after = Stamp::of(&fs::fstat(&file).ok()?)?;
    (after.same_but_hash(&before) && after.kind == EntryKind::File(size))
        .then(|| (hash.digest(), after.ctime_ns))
}

/// Of the content, and the time of change.
fn hash_of(path: &RelPath) -> Option<(u64, i64)> {
    let mut file = std::fs::File::from(files::open_file(path).ok()?);
    let mut hash = Xxh3::new();
    let mut buffer = vec![0; CHUNK];
    loop {
        match file.read(&mut buffer).ok()? {
            0 => return Some((hash.digest(), Stamp::of(&fs::fstat(&file).ok()?)?.ctime_ns)),
            n => hash.update(&buffer[..n]),
        }
    }
}

/// All of `/data` as it is.
#[derive(Default)]
pub(crate) struct Walk {
    pub(crate) found: Base,
    skipped: Vec<(Vec<u8>, SkipReason)>,
    forced: Forced,
    entries: u64,
}

/// Directories that were opened by force, to be closed again.
#[derive(Default)]
struct Forced(Vec<(RelPath, Mode)>);

impl Forced {
    fn restore(self) {
        for (path, mode) in self.0.into_iter().rev() {
            if let Ok(parent) = files::open_dir(path.parent().as_ref()) {
                let _ = fs::chmodat(&parent, path.file_name(), mode, AtFlags::empty());
            }
        }
    }
}

impl Walk {
    /// All of `/data`, outermost first. The number of entries is bounded by the volume's inodes.
    pub(crate) async fn run() -> Self {
        let mut walk = Self::default();
        let mut dirs: Vec<Option<RelPath>> = vec![None];
        while let Some(dir) = dirs.pop() {
            if walk.read(dir.as_ref(), &mut dirs).is_err()
                && let Some(dir) = dir
            {
                walk.skipped.push((dir.into(), SkipReason::Unreadable));
            }
            tokio::task::yield_now().await;
        }
        walk
    }

    fn read(&mut self, dir: Option<&RelPath>, dirs: &mut Vec<Option<RelPath>>) -> rustix::io::Result<()> {
        let fd = files::open_dir(dir)?;
        for entry in fs::Dir::read_from(&fd)? {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if name == b"." || name == b".." {
                continue;
            }
            self.entries += 1;
            let path = match dir {
                Some(dir) => dir.join(name),
                None => RelPath::new(name),
            };
            let Ok(path) = path else {
                let full = dir.map_or(name.to_vec(), |d| [d.as_bytes(), b"/", name].concat());
                self.skipped.push((full, SkipReason::Path));
                continue;
            };
            let stamp = match Stamp::at(&fd, name) {
                Ok(Some(stamp)) => stamp,
                Ok(None) => {
                    self.skipped.push((path.into(), SkipReason::Special));
                    continue;
                }
                Err(Errno::NOENT) => continue, // it went meanwhile
                Err(error) => return Err(error),
            };
            if stamp.kind == EntryKind::Dir {
                if stamp.mode & 0o700 != 0o700 {
                    let stat = fs::statat(&fd, name, AtFlags::SYMLINK_NOFOLLOW)?;
                    let mode = Mode::from_raw_mode(stat.st_mode & 0o7777);
                    fs::chmodat(&fd, name, mode | Mode::RWXU, AtFlags::empty())?;
                    self.forced.0.push((path.clone(), mode));
                }
                dirs.push(Some(path.clone()));
            }
            self.found.insert(path, stamp);
        }
        Ok(())
    }
}

/// Answers [`Request::Apply`]: brings the daemon's changes in, in the order they come.
pub(crate) async fn apply(container: &Container, stream: &Stream) {
    let mut base = container.base.take();
    let done = apply_all(stream, &mut base).await;
    container.base.replace(base);
    match done {
        Ok(()) => stream.event(&Event::Applied).await,
        Err(what) => stream.event(&Event::Failed { what }).await,
    }
    stream.close().await;
}

async fn apply_all(stream: &Stream, base: &mut Base) -> Result<(), String> {
    loop {
        match stream.request().await {
            Ok(Request::Put(entry)) => {
                let what =
                    |e: rustix::io::Errno| format!("cannot write {:?} in the container: {e}", entry.path);
                match entry.kind {
                    EntryKind::Dir => files::put_dir(&entry.path, entry.mode).map_err(what)?,
                    EntryKind::File(size) => receive_file(stream, &entry, size).await?,
                    EntryKind::Link(ref target) => files::put_link(&entry.path, target).map_err(what)?,
                }
                note(base, &entry.path);
                let mut above = entry.path.parent();
                while let Some(dir) = above {
                    note(base, &dir);
                    above = dir.parent();
                }
            }
            Ok(Request::Remove(path)) => {
                files::remove(&path).map_err(|e| format!("cannot remove {path:?} in the container: {e}"))?;
                path.remove_from(base);
            }
            Err(Inbound::Close) => return Ok(()),
            Ok(_) | Err(_) => return Err("the daemon broke off".into()),
        }
    }
}

/// What is there now is what both sides know.
fn note(base: &mut Base, path: &RelPath) {
    let found = files::open_dir(path.parent().as_ref()).and_then(|dir| Stamp::at(&dir, path.file_name()));
    match found {
        Ok(Some(stamp)) => base.insert(path.clone(), stamp),
        Ok(None) | Err(_) => base.remove(path),
    };
}

async fn receive_file(stream: &Stream, entry: &Entry, size: u64) -> Result<(), String> {
    let what = |e: &dyn std::fmt::Display| format!("cannot write {:?} in the container: {e}", entry.path);
    let fd = files::put_file(&entry.path).map_err(|e| what(&e))?;
    let mut file = std::fs::File::from(fd);
    let mut left = size;
    while left > 0 {
        let Inbound::Data(Channel::File, bytes) = stream.recv().await else {
            return Err(what(&"the daemon broke off"));
        };
        left = left.checked_sub(bytes.len() as u64).ok_or_else(|| what(&"more bytes than announced"))?;
        file.write_all(&bytes).map_err(|e| what(&e))?;
    }
    let time =
        |ns: i64| Timespec { tv_sec: ns.div_euclid(1_000_000_000), tv_nsec: ns.rem_euclid(1_000_000_000) };
    let times = Timestamps { last_access: time(entry.mtime_ns), last_modification: time(entry.mtime_ns) };
    fs::futimens(&file, &times).map_err(|e| what(&e))?;
    fs::fchmod(&file, Mode::from_raw_mode(entry.mode & 0o777)).map_err(|e| what(&e))
}
