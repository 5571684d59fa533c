//! PID 1 has one thread: long work lets other tasks run in between.
//!
//! It must never be left out of a loop whose length the code in the container decides.

use std::time::{Duration, Instant};

/// Another task waits at most this long for one piece of long work, beside one system call.
const TURN: Duration = Duration::from_millis(1);

/// One piece of long work, and when it last let other tasks run.
pub(crate) struct Pause(Instant);

impl Default for Pause {
    fn default() -> Self {
        Self(Instant::now())
    }
}

impl Pause {
    /// Lets other tasks run once a turn is over.
    pub(crate) async fn if_due(&mut self) {
        if self.0.elapsed() >= TURN {
            tokio::task::yield_now().await;
            self.0 = Instant::now();
        }
    }
}
