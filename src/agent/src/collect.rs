//! What changed in `/data`, told to the daemon.
//!
//! The baseline has a *fingerprint* (size, mode, times, inode) for every entry that both sides agree on. A
//! collection walks, compares, sends what differs, and replaces the baseline only when the daemon has saved
//! that.
//!
//! Kernel times tick in steps, so a file written and rewritten within one step can look unchanged. A
//! fingerprint that was taken less than `RACY_NS` after the file's last change has a hash of the content,
//! which is compared the next time.
//!
//! It must never report a file as whole that changed while it was read.

use std::io::Read;
use std::rc::Rc;

use paddock_proto::limits::{CHUNK, DATA_DIR, PAGE};
use paddock_proto::message::{CollectRules, EntryKind, Request, SkipReason};
use paddock_proto::{Channel, Event, RelPath};
use rustix::fs::{self, Timespec};
use xxhash_rust::xxh3::Xxh3;

use crate::container::Container;
use crate::files;
use crate::fingerprint::{Baseline, Fingerprint};
use crate::link::Stream;
use crate::pause::Pause;
use crate::walk::{DataWalk, Scope};

/// Paths that are told of a workspace that they are not carried: a daemon names no more in an answer.
const MAX_TOLD: usize = 256;

fn now_ns() -> i64 {
    let now = fs_now();
    now.tv_sec.saturating_mul(1_000_000_000).saturating_add(now.tv_nsec)
}

fn fs_now() -> Timespec {
    rustix::time::clock_gettime(rustix::time::ClockId::Realtime)
}

/// Answers [`Request::Collect`], up to the daemon's commit; whether it came.
pub(crate) async fn serve(container: &Container, stream: &Stream, rules: CollectRules) -> bool {
    let walked_at = now_ns();
    let baseline = container.baseline.borrow().clone();
    let mut walk = DataWalk::run(scope(rules, &baseline)).await;
    let mut next = Baseline::new();
    let mut pause = Pause::default();
    for (path, fingerprint) in baseline.iter().rev().filter(|(path, _)| !walk.found.contains_key(*path)) {
        if walk.is_gone(path) {
            stream.event(&Event::Removed(path.clone())).await;
            pause.if_due().await;
        } else {
            next.insert(path.clone(), fingerprint.clone()); // it could not be looked at
        }
    }
    let mut quota = RemainingQuota::beside(&baseline, &walk.found, rules);
    for (path, mut fingerprint) in walk.found {
        pause.if_due().await;
        if stream.is_orphaned() {
            walk.forced.restore();
            return false; // the next daemon collects from the beginning
        }
        let unchanged = match baseline.get(&path) {
            Some(old) if old.same_but_hash(&fingerprint) => match old.hash {
                Some(hash) => match hash_of(&path, &mut pause).await {
                    Some((now, ctime_ns)) if now == hash => {
                        fingerprint.settle(hash, ctime_ns, walked_at);
                        true
                    }
                    _ => false,
                },
                None => true,
            },
            _ => false,
        };
        if unchanged {
            next.insert(path, fingerprint);
            continue;
        }
        let old = baseline.get(&path);
        if matches!(rules, CollectRules::Workspace { .. }) && !quota.fits(old, &fingerprint) {
            next.extend(old.map(|old| (path.clone(), old.clone())));
            walk.skipped.push((path.into(), SkipReason::NoRoom));
            continue;
        }
        stream.event(&Event::Changed(fingerprint.entry(&path))).await;
        if let EntryKind::File(size) = fingerprint.kind {
            let sent = if quota.fits(old, &fingerprint) {
                send_file(stream, &path, size, &mut pause).await
            } else {
                None
            };
            stream.event(&Event::FileEnd { whole: sent.is_some() }).await;
            let Some((hash, ctime_ns)) = sent else {
                // The daemon still has what it had, so that stays the baseline: the next collection reports
                // the change again.
                next.extend(old.map(|old| (path, old.clone())));
                continue;
            };
            fingerprint.settle(hash, ctime_ns, walked_at);
        }
        quota.take(old, &fingerprint);
        next.insert(path, fingerprint);
    }
    let told = match rules {
        CollectRules::All => usize::MAX,
        CollectRules::Workspace { .. } => MAX_TOLD,
    };
    for (path, reason) in walk.skipped.into_iter().take(told) {
        stream.event(&Event::Skipped { path, reason }).await;
    }
    walk.forced.restore();
    stream.event(&Event::Collected { entries: walk.entries }).await;
    let committed = loop {
        match stream.request().await {
            Ok(Request::Commit) => break true,
            Ok(_) => {} // an end that came too late
            Err(_) => break false,
        }
    };
    if committed {
        container.baseline.replace(Rc::new(next));
    }
    committed
}

/// What to walk over. A workspace may have as many entries as are saved, once in their old places and once in
/// new ones, and half as many again that cannot be saved: those are told.
fn scope(rules: CollectRules, known: &Baseline) -> Scope<'_> {
    match rules {
        CollectRules::All => Scope::All,
        CollectRules::Workspace { entries, .. } => {
            let entries = usize::try_from(entries).unwrap_or(usize::MAX);
            Scope::Workspace { known, most: entries.saturating_mul(2).saturating_add(entries / 2) }
        }
    }
}

/// How much the daemon can still take. Of bytes, in pages and by the sizes of files, as much as `/data` holds
/// or the daemon says: a sparse file, or one with many names, has a size that the volume never had to hold;
/// to send it would take forever and exceed the quota.
struct RemainingQuota {
    pages: u64,
    entries: u64,
}

impl RemainingQuota {
    /// What is left beside the entries that the daemon has and keeps.
    fn beside(baseline: &Baseline, found: &Baseline, rules: CollectRules) -> Self {
        let (pages, entries) = match rules {
            CollectRules::All => {
                let data = fs::statvfs(DATA_DIR);
                (data.map_or(0, |data| data.f_blocks.saturating_mul(data.f_frsize) / PAGE), u64::MAX)
            }
            CollectRules::Workspace { bytes, entries } => (bytes / PAGE, entries),
        };
        let kept = || baseline.iter().filter(|(path, _)| found.contains_key(*path));
        let kept_pages = kept().map(|(_, fingerprint)| fingerprint.kind.pages()).sum();
        Self {
            pages: pages.saturating_sub(kept_pages),
            entries: entries.saturating_sub(kept().count() as u64),
        }
    }

    /// Whether an entry fits in place of the old one.
    fn fits(&self, old: Option<&Fingerprint>, new: &Fingerprint) -> bool {
        let pages = self.pages.saturating_add(old.map_or(0, |old| old.kind.pages()));
        new.kind.pages() <= pages && (old.is_some() || self.entries > 0)
    }

    /// An entry takes the place of the old one.
    fn take(&mut self, old: Option<&Fingerprint>, new: &Fingerprint) {
        let pages = self.pages.saturating_add(old.map_or(0, |old| old.kind.pages()));
        self.pages = pages.saturating_sub(new.kind.pages());
        self.entries = self.entries.saturating_sub(u64::from(old.is_none()));
    }
}

/// Sends the content; its hash and its time of change, unless the file changed meanwhile.
async fn send_file(stream: &Stream, path: &RelPath, size: u64, pause: &mut Pause) -> Option<(u64, i64)> {
    let file = files::open_file(path).ok()?;
    let before = Fingerprint::of(&fs::fstat(&file).ok()?)?;
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
    let after = Fingerprint::of(&fs::fstat(&file).ok()?)?;
    (after.same_but_hash(&before) && after.kind == EntryKind::File(size))
        .then(|| (hash.digest(), after.ctime_ns))
}

/// The hash of the content, and the time of change.
async fn hash_of(path: &RelPath, pause: &mut Pause) -> Option<(u64, i64)> {
    let mut file = std::fs::File::from(files::open_file(path).ok()?);
    let mut hash = Xxh3::new();
    let mut buffer = vec![0; CHUNK];
    loop {
        match file.read(&mut buffer).ok()? {
            0 => return Some((hash.digest(), Fingerprint::of(&fs::fstat(&file).ok()?)?.ctime_ns)),
            n => hash.update(&buffer[..n]),
        }
        pause.if_due().await;
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::OwnedFd;

    use super::*;

    fn file(bytes: u64) -> Fingerprint {
        let file = std::fs::File::from(crate::program::in_memory("test", &[]).expect("memory"));
        file.set_len(bytes).expect("sparse");
        Fingerprint::of(&fs::fstat(OwnedFd::from(file)).expect("a file")).expect("a regular one")
    }

    #[test]
    fn what_a_sparse_file_says_must_fit_and_what_is_replaced_counts_no_more() {
        let mut quota = RemainingQuota { pages: 4, entries: 2 };
        assert!(quota.fits(None, &file(4 * PAGE)) && !quota.fits(None, &file(4 * PAGE + 1)));
        quota.take(None, &file(3 * PAGE));
        assert!(!quota.fits(None, &file(2 * PAGE)));
        assert!(quota.fits(Some(&file(3 * PAGE)), &file(4 * PAGE)), "in place of the old one");
        quota.take(Some(&file(3 * PAGE)), &file(1));
        assert!(quota.fits(None, &file(3 * PAGE)) && !quota.fits(None, &file(u64::MAX >> 1)));
        quota.take(None, &file(1));
        assert!(!quota.fits(None, &file(1)), "no entry is left");
        assert!(quota.fits(Some(&file(1)), &file(2)), "but each may change");
    }
}
