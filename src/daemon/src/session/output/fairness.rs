//! Fairness between programs: a program that writes a line now and then does not wait behind programs that
//! write as fast as they can.
//!
//! A large piece of output needs the one permit of the daemon, until it is written. Where many pieces wait
//! for it, a pause comes before each, in which the daemon and the machine serve others. Meanwhile flow
//! control holds the programs back. It must never hold up a small piece.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit};

/// A piece of so many bytes is large.
const LARGE: usize = 16 * 1024;

/// So many waiting pieces are a crowd.
const CROWD: usize = 8;

/// The pause before each piece of a crowd.
const PAUSE: Duration = Duration::from_millis(1);

/// Hands the permit out, in order of arrival.
pub(in crate::session) struct OutputFairness {
    permit: Semaphore,
    waiting: AtomicUsize,
}

impl Default for OutputFairness {
    fn default() -> Self {
        Self { permit: Semaphore::new(1), waiting: AtomicUsize::new(0) }
    }
}

/// Counts a piece that waits.
struct CountedAsWaiting<'a>(&'a AtomicUsize);

impl Drop for CountedAsWaiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl OutputFairness {
    /// Waits for the permit of a piece of so many bytes; `None` if it needs none.
    pub(in crate::session) async fn permit(&self, bytes: usize) -> Option<SemaphorePermit<'_>> {
        if bytes < LARGE {
            return None;
        }
        let others = self.waiting.fetch_add(1, Ordering::Relaxed);
        let _waiting = CountedAsWaiting(&self.waiting);
        let permit = self.permit.acquire().await.ok();
        if others >= CROWD {
            tokio::time::sleep(PAUSE).await;
        }
        permit
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::time::Instant;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn small_pieces_pass_and_large_ones_wait_for_each_other() {
        let fairness = OutputFairness::default();
        let permit = fairness.permit(LARGE).await;
        assert!(permit.is_some());
        assert!(fairness.permit(LARGE - 1).await.is_none(), "at once, while another piece has the permit");
        let waiting = tokio::time::timeout(Duration::from_secs(60), fairness.permit(LARGE)).await;
        assert!(waiting.is_err(), "two large pieces at one time");
        assert_eq!(fairness.waiting.load(Ordering::Relaxed), 0, "a caller that went away is counted");
        drop(permit);
        assert!(fairness.permit(LARGE).await.is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn a_crowd_pauses_before_each_piece_and_a_few_do_not() {
        for (pieces, pauses) in [(CROWD, 0), (CROWD + 3, 3)] {
            let fairness = Arc::new(OutputFairness::default());
            let first = fairness.permit(LARGE).await;
            let waiting: Vec<_> = (0..pieces)
                .map(|_| {
                    let fairness = fairness.clone();
                    tokio::spawn(async move { drop(fairness.permit(LARGE).await) })
                })
                .collect();
            tokio::task::yield_now().await;
            let begun = Instant::now();
            drop(first);
            for one in waiting {
                one.await.unwrap();
            }
            assert_eq!(begun.elapsed(), PAUSE * pauses, "{pieces} pieces");
        }
    }
}
