//! The format of the journal: checked frames around changes of sessions.
//!
//! ```text
//!  frame   head length u32 | blob length u32 | xxh3-64 | head (postcard) | blob
//!  blob    the contents of the inline files that the head lists, one after the other
//! ```
//!
//! The checksum covers both lengths, both parts, and the position of the frame: bytes of another file or
//! position are not a valid frame. The head begins with a version. This module must never touch the file
//! system, and never use a length before comparing it with a bound.

use std::io::{self, Read};

use paddock_proto::RelPath;
use paddock_proto::message::Entry;
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::Xxh3;

use super::{Bound, StoreError};

/// Bytes of the largest head: 50,000 changes at paths of 1 KiB, more than a `/data` of the default quota can
/// need.
pub(super) const MAX_HEAD: usize = 48 << 20;
/// Bytes of the largest blob; a batch keeps no more than this inline.
pub(super) const MAX_BLOB: usize = super::batch::INLINE_BATCH;
/// Version of the format: the first byte of every head.
const VERSION: u8 = 1;
/// Two lengths and the checksum.
const FRAME: usize = 16;

/// A change of one session: applied as a whole or not at all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct JournalRecord {
    pub(super) owner: String,
    pub(super) session: String,
    /// The operations, in their order.
    pub(super) ops: Vec<JournalOp>,
    /// The contents of inline files, see [`JournalOp::Inline`].
    pub(super) blob: Vec<u8>,
}

/// One operation of a change. Its effect does not depend on what was there before: a replay may repeat it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum JournalOp {
    /// Removes a path and everything below it.
    Remove(RelPath),
    /// A directory.
    Dir(Entry),
    /// A symbolic link, kept as data.
    Link(Entry),
    /// A file whose content is the next part of the blob, as long as the entry says.
    Inline(Entry),
    /// A file whose content is in `tmp/`, synced, under a name that passes [`is_staged_name`].
    Staged(Entry, String),
    /// Removes the whole session.
    Forget,
}

/// The content of a frame.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum JournalFrame {
    /// Numbers and valid lengths of earlier files of the journal; bytes behind that length were never
    /// acknowledged.
    Seal(Vec<(u64, u64)>),
    /// A change.
    Change(JournalRecord),
}

#[derive(Serialize, Deserialize)]
enum Head<'a> {
    Seal(std::borrow::Cow<'a, [(u64, u64)]>),
    Change { owner: &'a str, session: &'a str, ops: std::borrow::Cow<'a, [JournalOp]> },
}

impl JournalFrame {
    /// The head of a seal.
    pub(super) fn seal(files: &[(u64, u64)]) -> io::Result<Vec<u8>> {
        head(&Head::Seal(files.into()))
    }
}

impl JournalRecord {
    /// The head of the record, for [`frame`].
    ///
    /// # Errors
    /// [`StoreError::Quota`] of [`Bound::Changes`].
    pub(super) fn head(&self) -> Result<Vec<u8>, StoreError> {
        let ops = (&self.ops[..]).into();
        let bytes = head(&Head::Change { owner: &self.owner, session: &self.session, ops })
            .map_err(StoreError::io("cannot encode the changes"))?;
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

/// The first bytes of a frame with this head and blob, at `offset` of the journal file `file`.
pub(super) fn frame(file: u64, offset: u64, head: &[u8], blob: &[u8]) -> [u8; FRAME] {
    let mut frame = [0; FRAME];
    let length = |part: &[u8]| u32::try_from(part.len()).unwrap_or(u32::MAX).to_le_bytes();
    frame[..4].copy_from_slice(&length(head));
    frame[4..8].copy_from_slice(&length(blob));
    let sum = checksum(file, offset, &frame[..8], head, blob);
    frame[8..].copy_from_slice(&sum.to_le_bytes());
    frame
}

/// The length of a whole frame.
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

/// Reads the frame at `offset`: its length and content. `None` where no whole frame is: the end of the
/// journal.
///
/// # Errors
/// An error of the file system; a frame of another version, or one with a valid checksum and an invalid head.
pub(super) fn read(from: &mut impl Read, file: u64, offset: u64) -> io::Result<Option<(u64, JournalFrame)>> {
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
        let what = format!(
            "a record has the format version {}, this daemon reads only {VERSION}; start the version of \
             paddock that wrote it",
            head[0]
        );
        return Err(io::Error::new(io::ErrorKind::InvalidData, what));
    }
    let invalid = |what: String| io::Error::new(io::ErrorKind::InvalidData, what);
    let framed = match postcard::from_bytes(&head[1..])
        .map_err(|e| invalid(format!("a record cannot be decoded: {e}")))?
    {
        Head::Seal(files) => JournalFrame::Seal(files.into_owned()),
        Head::Change { owner, session, ops } => JournalFrame::Change(JournalRecord {
            owner: owner.to_owned(),
            session: session.to_owned(),
            ops: ops.into_owned(),
            blob,
        }),
    };
    Ok(Some((len, framed)))
}

/// Fills `into`; false if the source ends before that.
fn fill(from: &mut impl Read, into: &mut [u8]) -> io::Result<bool> {
    match from.read_exact(into) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        other => other.map(|()| true),
    }
}

/// Whether a name from a record may be joined to the path of `tmp/`.
pub(super) fn is_staged_name(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|b| b.is_ascii_hexdigit())
}
