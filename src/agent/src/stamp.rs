//! What an entry of `/data` looked like when both sides last agreed on it.
//!
//! It must never take two different contents for the same: see [`crate::collect`] for what times alone cannot tell.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;

use paddock_proto::message::{Entry, EntryKind};
use paddock_proto::{LinkTarget, RelPath};
use rustix::fs::{self, AtFlags, FileType, Stat};
use rustix::io::Errno;

/// Twice the coarsest kernel tick (10 ms).
const RACY_NS: i64 = 20_000_000;

/// What an entry looked like.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Stamp {
    pub(crate) kind: EntryKind,
    pub(crate) mode: u32,
    pub(crate) mtime_ns: i64,
    /// Zero for directories, whose times follow their entries', and for links, which are their targets.
    pub(crate) ctime_ns: i64,
    inode: u64,
    /// Only of a racy stamp.
    pub(crate) hash: Option<u64>,
}

/// The state both sides agree on.
pub(crate) type Base = BTreeMap<RelPath, Stamp>;

impl Stamp {
    /// Of an open file.
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

    /// Of what has this name; nothing of what is not carried. A link is read, never followed.
    pub(crate) fn at(dir: &OwnedFd, name: &[u8]) -> rustix::io::Result<Option<Self>> {
        let stat = fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::Symlink {
            return Ok(Self::of(&stat));
        }
        match fs::readlinkat(dir, name, Vec::new()) {
            Ok(target) => {
                Ok(LinkTarget::new(target.into_bytes()).ok().map(|t| Self::new(EntryKind::Link(t), &stat)))
            }
            // Another took its place between the two looks, and is looked at the next time.
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

    pub(crate) fn same_but_hash(&self, other: &Self) -> bool {
        Self { hash: None, ..self.clone() } == Self { hash: None, ..other.clone() }
    }

    /// The content was read: its hash, and its time of change then. Opening a file that is closed to its owner
    /// touches that time.
    pub(crate) fn settle(&mut self, hash: u64, ctime_ns: i64, walked_at: i64) {
        self.ctime_ns = ctime_ns;
        self.hash = (ctime_ns > walked_at - RACY_NS).then_some(hash);
    }

    pub(crate) fn entry(&self, path: &RelPath) -> Entry {
        Entry { path: path.clone(), kind: self.kind.clone(), mode: self.mode, mtime_ns: self.mtime_ns }
    }
}
