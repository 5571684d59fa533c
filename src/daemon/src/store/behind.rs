//! Gives the disk what is appended to a log piece by piece, while the log grows.
//!
//! Without that it waits in memory for the next sync of the whole file system. If the engine's containers are
//! on the file system of the store, that comes often: the engine unmounts the file system of each container
//! that it removes, for which the kernel syncs the one below. The commits of all sessions then wait until the
//! output of all programs is written.
//!
//! It must never wait until a piece is on the disk, nor be used for content that a commit promises to keep:
//! an error of such a write may be told to nobody.

use std::fs::File;
use std::num::NonZeroU64;
use std::ops::Range;

use rustix::fs::{Advice, fadvise};

/// Bytes of a log that wait in memory for more: a disk writes them in a few milliseconds.
const PIECE: u64 = 1 << 20;

/// How far a growing log was given to the disk.
#[derive(Debug)]
pub(super) struct WrittenBehind {
    given: u64,
    size: u64,
}

impl WrittenBehind {
    /// Of a log that has this size already.
    pub(super) fn from(size: u64) -> Self {
        Self { given: size, size }
    }

    /// The log has this size now.
    pub(super) fn resized(&mut self, size: u64) {
        (self.given, self.size) = (self.given.min(size), size);
    }

    /// Has the kernel begin to write what has come since the last time, if that is a piece.
    ///
    /// The advice that nobody needs the bytes does it (`mm/fadvise.c` of Linux). The kernel begins to write
    /// those that are not on the disk yet. They stay in memory meanwhile. The call returns later while the
    /// disk has much to do.
    pub(super) fn give(&mut self, log: &File) {
        if let Some(Range { start, end }) = self.due() {
            let _ = fadvise(log, start, NonZeroU64::new(end - start), Advice::DontNeed);
        }
    }

    fn due(&mut self) -> Option<Range<u64>> {
        let piece = self.given..self.size;
        if self.size < self.given.saturating_add(PIECE) {
            return None;
        }
        self.given = self.size;
        Some(piece)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_byte_is_given_once_in_pieces() {
        let mut behind = WrittenBehind::from(0);
        let mut due = |size| {
            behind.resized(size);
            behind.due()
        };
        assert_eq!((due(0), due(PIECE - 1)), (None, None));
        assert_eq!(due(PIECE + 5), Some(0..PIECE + 5));
        assert_eq!(due(2 * PIECE), None);
        assert_eq!(due(2 * PIECE + 5), Some(PIECE + 5..2 * PIECE + 5));
        assert_eq!(due(PIECE), None);
        assert_eq!(due(2 * PIECE), Some(PIECE..2 * PIECE), "it was cut and written again");
        let mut reopened = WrittenBehind::from(9);
        reopened.resized(PIECE + 9);
        assert_eq!(reopened.due(), Some(9..PIECE + 9));
    }
}
