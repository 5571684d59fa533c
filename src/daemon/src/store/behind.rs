//! Hands what was written to a file to the disk piece by piece, while more is written.
//!
//! Without that it waits in memory for the next sync of the whole file system, and that comes often: the
//! engine unmounts the file system of each container that it removes, for which the kernel syncs the file
//! system below. One session's commit then waits behind all that the programs of others have written.
//!
//! It must never wait until a piece is on the disk, nor say that it is: only a sync does.

use std::fs::File;
use std::num::NonZeroU64;
use std::ops::Range;

use rustix::fs::{Advice, fadvise};

/// Bytes that wait in memory for more, of each file: a disk writes them in a few milliseconds.
pub(super) const PIECE: u64 = 1 << 20;

/// How much of a growing file was handed to the disk.
#[derive(Debug, Default)]
pub(super) struct WrittenBehind {
    handed: u64,
}

impl WrittenBehind {
    /// Of a file that has this size already.
    pub(super) fn from(size: u64) -> Self {
        Self { handed: size }
    }

    /// The file has grown to `size`. Errors of the disk are for the sync that follows.
    pub(super) fn grown(&mut self, file: &File, size: u64) {
        if let Some(piece) = self.due(size) {
            hand_over(file, piece);
        }
    }

    /// The file was cut to `size`.
    pub(super) fn cut(&mut self, size: u64) {
        self.handed = self.handed.min(size);
    }

    /// What is to be handed to the disk now.
    fn due(&mut self, size: u64) -> Option<Range<u64>> {
        let piece = self.handed..size;
        if size < self.handed.saturating_add(PIECE) {
            return None;
        }
        self.handed = size;
        Some(piece)
    }
}

/// Begins to write these bytes. For bytes that are not on the disk yet, the advice that nobody needs them does
/// just that (`mm/fadvise.c` of Linux); those that are would leave the cache.
pub(super) fn hand_over(file: &File, Range { start, end }: Range<u64>) {
    if let Some(bytes) = NonZeroU64::new(end.saturating_sub(start)) {
        let _ = fadvise(file, start, Some(bytes), Advice::DontNeed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_byte_is_handed_over_once_in_pieces() {
        let mut behind = WrittenBehind::default();
        assert_eq!(behind.due(0), None);
        assert_eq!(behind.due(PIECE - 1), None);
        assert_eq!(behind.due(PIECE + 5), Some(0..PIECE + 5));
        assert_eq!(behind.due(2 * PIECE), None);
        assert_eq!(behind.due(2 * PIECE + 5), Some(PIECE + 5..2 * PIECE + 5));
        behind.cut(PIECE);
        assert_eq!(behind.due(2 * PIECE), Some(PIECE..2 * PIECE), "it was cut and written again");
        assert_eq!(WrittenBehind::from(9).due(PIECE + 9), Some(9..PIECE + 9));
    }
}
