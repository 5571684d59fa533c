//! The fingerprint of an entry of `/data`: how it looked when daemon and agent last agreed on it.
//!
//! It must never be the same for two different contents: see [`crate::collect`] for what times alone cannot
//! tell.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;

use paddock_proto::message::{Entry, EntryKind};
use paddock_proto::{LinkTarget, RelPath};
use rustix::fs::{self, AtFlags, FileType, Stat};
use rustix::io::Errno;

/// Twice the coarsest kernel tick (10 ms).
const RACY_NS: i64 = 20_000_000;

/// How an entry looked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fingerprint {
    pub(crate) kind: EntryKind,
    pub(crate) mode: u32,
    pub(crate) mtime_ns: i64,
    /// Zero for directories, whose times follow their entries', and for links, which are their targets.
    pub(crate) ctime_ns: i64,
    inode: u64,
    /// Of the content, where the time of change is too young to tell two contents apart.
    pub(crate) hash: Option<u64>,
}

/// The state of `/data` that both sides agree on.
pub(crate) type Baseline = BTreeMap<RelPath, Fingerprint>;

impl Fingerprint {
    /// Of an open file or directory; `None` for what is not carried.
    pub(crate) fn of(stat: &Stat) -> Option<Self> {
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => Some(Self::new(EntryKind::File(stat.st_size.cast_unsigned()), stat)),
            FileType::Directory => Some(Self::new(EntryKind::Dir, stat)),
            FileType::Symlink
            | FileType::Fifo
            | FileType::Socket
            | FileType::CharacterDevice
            | FileType::BlockDevice
            | FileType::Unknown => None,
        }
    }

    /// Of what has this name; `None` for what is not carried. A link is read, never followed.
    pub(crate) fn at(dir: &OwnedFd, name: &[u8]) -> rustix::io::Result<Option<Self>> {
        let stat = fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::Symlink {
            return Ok(Self::of(&stat));
        }
        match fs::readlinkat(dir, name, Vec::new()) {
            Ok(target) => {
                Ok(LinkTarget::new(target.into_bytes()).ok().map(|t| Self::new(EntryKind::Link(t), &stat)))
            }
            // Something else took its place between the two looks; the next walk finds it.
            Err(Errno::INVAL) => Err(Errno::NOENT),
            Err(error) => Err(error),
        }
    }

    fn new(kind: EntryKind, stat: &Stat) -> Self {
        let ns = |s: i64, ns: u64| s.saturating_mul(1_000_000_000).saturating_add(ns.cast_signed());
        let timed = matches!(kind, EntryKind::File(_));
        Self {
            kind,
            mode: stat.st_mode & 0o777,
            mtime_ns: if timed { ns(stat.st_mtime, stat.st_mtime_nsec) } else { 0 },
            ctime_ns: if timed { ns(stat.st_ctime, stat.st_ctime_nsec) } else { 0 },
            inode: if timed { stat.st_ino } else { 0 },
            hash: None,
        }
    }

    /// Whether what has this fingerprint is as the entry says.
    pub(crate) fn is_of(&self, entry: &Entry) -> bool {
        let is_timed = matches!(entry.kind, EntryKind::File(_));
        let has_mode = !matches!(entry.kind, EntryKind::Link(_));
        self.kind == entry.kind
            && (!is_timed || self.mtime_ns == entry.mtime_ns)
            && (!has_mode || self.mode == entry.mode)
    }

    /// The fingerprint of an entry that is not there as it should be: nothing that is there has the same.
    pub(crate) fn outdated(entry: &Entry) -> Self {
        let Entry { kind, mode, mtime_ns, .. } = entry.clone();
        // Not even a directory or a link, whose inode and time of change count as 0, has these.
        Self { kind, mode, mtime_ns, ctime_ns: i64::MIN, inode: u64::MAX, hash: None }
    }

    pub(crate) fn same_but_hash(&self, other: &Self) -> bool {
        Self { hash: None, ..self.clone() } == Self { hash: None, ..other.clone() }
    }

    /// The content was read, with this hash and this time of change. (Opening a file that its owner may not
    /// read changes that time.)
    pub(crate) fn settle(&mut self, hash: u64, ctime_ns: i64, walked_at: i64) {
        self.ctime_ns = ctime_ns;
        self.hash = (ctime_ns > walked_at - RACY_NS).then_some(hash);
    }

    pub(crate) fn entry(&self, path: &RelPath) -> Entry {
        Entry { path: path.clone(), kind: self.kind.clone(), mode: self.mode, mtime_ns: self.mtime_ns }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(mtime_ns: i64) -> Fingerprint {
        let (kind, mode, inode) = (EntryKind::File(1), 0o644, 7);
        Fingerprint { kind, mode, mtime_ns, ctime_ns: mtime_ns, inode, hash: None }
    }

    #[test]
    fn only_a_file_that_changed_just_before_the_walk_needs_its_hash() {
        let walked_at = 1_000_000_000;
        for (ctime_ns, hash) in [
            (walked_at - RACY_NS, None),
            (walked_at - RACY_NS + 1, Some(5)),
            (walked_at, Some(5)),
            (walked_at + 1, Some(5)),
        ] {
            let mut fingerprint = file(0);
            fingerprint.settle(5, ctime_ns, walked_at);
            assert_eq!((fingerprint.ctime_ns, fingerprint.hash), (ctime_ns, hash), "{ctime_ns}");
        }
    }

    #[test]
    fn a_file_of_an_earlier_container_is_known_by_size_time_and_mode_and_another_is_changed() {
        let entry = |own: &Fingerprint| own.entry(&RelPath::new("f").unwrap());
        let own = Fingerprint { inode: 9, ctime_ns: 5, ..file(3) };
        assert!(own.is_of(&entry(&file(3))));
        for other in [
            file(4),
            Fingerprint { mode: 0o600, ..file(3) },
            Fingerprint { kind: EntryKind::File(2), ..file(3) },
            Fingerprint { kind: EntryKind::Dir, ..file(3) },
        ] {
            assert!(!own.is_of(&entry(&other)), "{other:?}");
        }
        let dir =
            |mode| Fingerprint { kind: EntryKind::Dir, mode, mtime_ns: 0, ctime_ns: 0, inode: 0, hash: None };
        for own in [own, dir(0o755)] {
            let outdated = Fingerprint::outdated(&entry(&own));
            assert!(!outdated.same_but_hash(&own));
            assert_eq!(entry(&outdated), entry(&own), "a daemon that asks for the baseline gets the entry");
        }
    }

    #[test]
    fn fingerprints_differ_by_anything_but_their_hash() {
        let one = file(1);
        assert!(one.same_but_hash(&Fingerprint { hash: Some(3), ..one.clone() }));
        for other in [
            Fingerprint { mode: 0o600, ..one.clone() },
            Fingerprint { inode: 8, ..one.clone() },
            Fingerprint { ctime_ns: 2, ..one.clone() },
            Fingerprint { kind: EntryKind::File(2), ..one.clone() },
            file(2),
        ] {
            assert!(!one.same_but_hash(&other), "{other:?}");
        }
    }
}
