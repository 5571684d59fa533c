//! Programs that write as fast as they can, taken in turns, so that one that writes a line now and then does not wait behind
//! all of them.
//!
//! Only pieces of some size wait, one behind the other; where many do there is a rest behind each, in which the daemon and
//! the machine are there for others: flow control lets the programs wait. It must never hold up a small piece.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit};

/// Bytes of a piece that has to wait.
const LARGE: usize = 16 * 1024;

/// So many waiting are a crowd.
const CROWD: usize = 8;

/// The rest behind each piece of a crowd.
const REST: Duration = Duration::from_millis(1);

/// Whose turn it is.
pub(super) struct Crowd {
    turns: Semaphore,
    waiting: AtomicUsize,
}

impl Default for Crowd {
    fn default() -> Self {
        Self { turns: Semaphore::new(1), waiting: AtomicUsize::new(0) }
    }
}

/// A place among those that wait.
struct Waiting<'a>(&'a AtomicUsize);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Crowd {
    /// Waits for the turn of a piece of so many bytes, which lasts until the answer is dropped.
    pub(super) async fn turn(&self, bytes: usize) -> Option<SemaphorePermit<'_>> {
        if bytes < LARGE {
            return None;
        }
        let others = self.waiting.fetch_add(1, Ordering::Relaxed);
        let _waiting = Waiting(&self.waiting);
        let turn = self.turns.acquire().await.ok();
        if others >= CROWD {
            tokio::time::sleep(REST).await;
        }
        turn
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn small_pieces_pass_and_large_ones_take_turns() {
        let crowd = Crowd::default();
        let turn = crowd.turn(LARGE).await;
        assert!(turn.is_some());
        assert!(crowd.turn(LARGE - 1).await.is_none(), "at once, beside one that has its turn");
        let waiting = tokio::time::timeout(Duration::from_millis(20), crowd.turn(LARGE)).await;
        assert!(waiting.is_err() && crowd.waiting.load(Ordering::Relaxed) == 0);
        drop(turn);
        assert!(crowd.turn(LARGE).await.is_some());
    }
}
