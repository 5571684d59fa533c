//! What changed in `/data`, told to the daemon.
//!
//! A *stamp* (size, mode, times, inode) is kept for every entry that both sides agree on. A collection walks,
//! compares, sends what differs, and moves the base only when the daemon says that it is saved.
//!
//! Kernel times tick in steps, so a file written and rewritten within one step can look unchanged. A stamp
//! younger than `RACY_NS` when it was taken carries a hash of the content, compared the next time.
//!
//! It must never report a file as whole that changed while it was read.

use std::io::Read;
use std::rc::Rc;

use paddock_proto::limits::{CHUNK, DATA_DIR, PAGE};
use paddock_proto::message::{EntryKind, Request};
use paddock_proto::{Channel, Event, RelPath};
use rustix::fs::{self, Timespec};
use xxhash_rust::xxh3::Xxh3;

use crate::container::Container;
use crate::files;
use crate::link::Stream;
use crate::pause::Pause;
use crate::stamp::{Base, Stamp};
use crate::walk::Walk;

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
    let base = container.base.borrow().clone();
    let mut pause = Pause::default();
    for (path, stamp) in base.iter().rev().filter(|(path, _)| !walk.found.contains_key(*path)) {
        if walk.is_gone(path) {
            stream.event(&Event::Removed(path.clone())).await;
            pause.if_due().await;
        } else {
            next.insert(path.clone(), stamp.clone()); // nobody knows
        }
    }
    let mut room = Room::beside(&base, &walk.found);
    for (path, mut stamp) in walk.found {
        pause.if_due().await;
        if stream.is_orphaned() {
            walk.forced.restore();
            return false; // the next daemon has it from the beginning
        }
        let unchanged = match base.get(&path) {
            Some(old) if old.same_but_hash(&stamp) => match old.hash {
                Some(hash) => match hash_of(&path, &mut pause).await {
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
            let sent =
                if room.fits(old, &stamp) { send_file(stream, &path, size, &mut pause).await } else { None };
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
    if committed {
        container.base.replace(Rc::new(next));
    }
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
async fn send_file(stream: &Stream, path: &RelPath, size: u64, pause: &mut Pause) -> Option<(u64, i64)> {
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
        pause.if_due().await;
    }
    let after = Stamp::of(&fs::fstat(&file).ok()?)?;
    (after.same_but_hash(&before) && after.kind == EntryKind::File(size))
        .then(|| (hash.digest(), after.ctime_ns))
}

/// Of the content, and the time of change.
async fn hash_of(path: &RelPath, pause: &mut Pause) -> Option<(u64, i64)> {
    let mut file = std::fs::File::from(files::open_file(path).ok()?);
    let mut hash = Xxh3::new();
    let mut buffer = vec![0; CHUNK];
    loop {
        match file.read(&mut buffer).ok()? {
            0 => return Some((hash.digest(), Stamp::of(&fs::fstat(&file).ok()?)?.ctime_ns)),
            n => hash.update(&buffer[..n]),
        }
        pause.if_due().await;
    }
}
