//! What the journal is made of: checked frames around changes of sessions.
//!
//! ```text
//!  frame   head length u32 | blob length u32 | xxh3-64 | head (postcard) | blob
//!  blob    the contents of the head's inline files, one behind the other
//! ```
//!
//! The checksum covers both lengths, both parts, and where the frame is: bytes of another file or place are no
//! frame here. A version stands first in the head. It must never touch the file system, and never believe a
//! length before it was compared with a bound.

use std::io::{self, Read};

use paddock_proto::RelPath;
use paddock_proto::message::Entry;
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::Xxh3;

use super::{Bound, StoreError};

/// The largest head: 50,000 changes at paths of 1 KiB. More than a `/data` of the default quota can need.
pub(super) const MAX_HEAD: usize = 48 << 20;
/// The largest blob; a batch keeps less than this inline.
pub(super) const MAX_BLOB: usize = super::batch::INLINE_BATCH;
/// Of the format; first in every head.
const VERSION: u8 = 1;
/// Two lengths and the checksum.
const FRAME: usize = 16;

/// A change of one session: all of it happens, or nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) owner: String,
    pub(super) session: String,
    /// In their order.
    pub(super) ops: Vec<Op>,
    /// See [`Op::Inline`].
    pub(super) blob: Vec<u8>,
}

/// One step of a change. Each makes a path so whatever was there before: a replay may do it again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Op {
    /// The path, and all below it, goes.
    Remove(RelPath),
    /// A directory.
    Dir(Entry),
    /// A symbolic link, kept as data.
    Link(Entry),
    /// A file; its content is the next of the blob, as long as the entry says.
    Inline(Entry),
    /// A file whose content is in `tmp/`, synced; the name is [`is_staged_name`].
    Staged(Entry, String),
    /// All of the session goes.
    Forget,
}

/// What a frame can hold.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Framed {
    /// Files of the journal, by number, and how far they are good; whatever is behind that was never acknowledged.
    Seal(Vec<(u64, u64)>),
    /// A change.
    Change(Record),
}

#[derive(Serialize, Deserialize)]
enum Head<'a> {
    Seal(std::borrow::Cow<'a, [(u64, u64)]>),
    Change { owner: &'a str, session: &'a str, ops: std::borrow::Cow<'a, [Op]> },
}

impl Framed {
    /// The frame for a seal.
    pub(super) fn seal(files: &[(u64, u64)]) -> io::Result<Vec<u8>> {
        head(&Head::Seal(files.into()))
    }
}

impl Record {
    /// The head, to be framed with the blob by [`frame`].
    ///
    /// # Errors
    /// [`StoreError::Quota`] of [`Bound::Changes`].
    pub(super) fn head(&self) -> Result<Vec<u8>, StoreError> {
        let ops = (&self.ops[..]).into();
        let bytes = head(&Head::Change { owner: &self.owner, session: &self.session, ops })
            .map_err(StoreError::io("cannot write down what changed"))?;
        for (len, allowed) in [(bytes.len(), MAX_HEAD), (self.blob.len(), MAX_BLOB)] {
            if len > allowed {
                let (wanted, allowed) = (len as u64, allowed as u64);
                return Err(StoreError::Quota { bound: Bound::Changes, wanted, allowed });
            }
        }
        Ok(bytes)
    }
}

fn head(head: &Head<'_>) -> io::Result<Vec<u8>> {
    postcard::to_extend(&(VERSION, head), Vec::new()).map_err(io::Error::other)
}

/// What stands in front of a head and its blob at `offset` of the journal file `file`.
pub(super) fn frame(file: u64, offset: u64, head: &[u8], blob: &[u8]) -> [u8; FRAME] {
    let mut frame = [0; FRAME];
    let length = |part: &[u8]| u32::try_from(part.len()).unwrap_or(u32::MAX).to_le_bytes();
    frame[..4].copy_from_slice(&length(head));
    frame[4..8].copy_from_slice(&length(blob));
    let sum = checksum(file, offset, &frame[..8], head, blob);
    frame[8..].copy_from_slice(&sum.to_le_bytes());
    frame
}

/// Bytes of a whole frame.
pub(super) fn framed_len(head: &[u8], blob: &[u8]) -> u64 {
    (FRAME + head.len() + blob.len()) as u64
}

fn checksum(file: u64, offset: u64, lengths: &[u8], head: &[u8], blob: &[u8]) -> u64 {
    let mut hash = Xxh3::with_seed(file);
    hash.update(&offset.to_le_bytes());
    hash.update(lengths);
    hash.update(head);
    hash.update(blob);
    hash.digest()
}

/// Reads the frame at `offset`; how long it is, and what it holds. `None` where no whole frame is: the end.
///
/// # Errors
/// What the file system says; a frame of another version, or one whose checksum holds and whose head does not.
pub(super) fn read(from: &mut impl Read, file: u64, offset: u64) -> io::Result<Option<(u64, Framed)>> {
    let mut frame = [0; FRAME];
    if !fill(from, &mut frame)? {
        return Ok(None);
    }
    let length = |at: usize| u32::from_le_bytes([frame[at], frame[at + 1], frame[at + 2], frame[at + 3]]);
    let (head_len, blob_len) = (length(0) as usize, length(4) as usize);
    if head_len == 0 || head_len > MAX_HEAD || blob_len > MAX_BLOB {
        return Ok(None);
    }
    let (mut head, mut blob) = (vec![0; head_len], vec![0; blob_len]);
    if !fill(from, &mut head)? || !fill(from, &mut blob)? {
        return Ok(None);
    }
    if frame[8..] != checksum(file, offset, &frame[..8], &head, &blob).to_le_bytes() {
        return Ok(None);
    }
    let len = framed_len(&head, &blob);
    if head[0] != VERSION {
        let what = format!("a record of version {}, this daemon knows {VERSION}", head[0]);
        return Err(io::Error::new(io::ErrorKind::InvalidData, what));
    }
    let invalid = |what: String| io::Error::new(io::ErrorKind::InvalidData, what);
    let framed = match postcard::from_bytes(&head[1..]).map_err(|e| invalid(format!("a record: {e}")))? {
        Head::Seal(files) => Framed::Seal(files.into_owned()),
        Head::Change { owner, session, ops } => Framed::Change(Record {
            owner: owner.to_owned(),
            session: session.to_owned(),
            ops: ops.into_owned(),
            blob,
        }),
    };
    Ok(Some((len, framed)))
}

/// False if it ends before.
fn fill(from: &mut impl Read, into: &mut [u8]) -> io::Result<bool> {
    match from.read_exact(into) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        other => other.map(|()| true),
    }
}

/// Whether a record's word may be joined to the path of `tmp/`.
pub(super) fn is_staged_name(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|b| b.is_ascii_hexdigit())
}
