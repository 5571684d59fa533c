//! The load generator: the same for every target, so that its own cost is the same for all of them.
//!
//! Closed loop: each target has its next run as soon as the last one has ended; this gives the highest rate,
//! and the times at that rate. Open loop: runs are due by the clock, however long earlier ones take, and a
//! run's time counts from when it was due. The clock must never stop while a run hangs: the runs behind it
//! are late, and their times must include that (coordinated omission).

use std::time::{Duration, Instant};

use futures_util::TryStreamExt;
use futures_util::stream::FuturesUnordered;

use crate::Result;
use crate::times::Times;

/// Something that runs, one run after the other.
pub(crate) trait LoadTarget {
    /// One run, checked.
    async fn run(&mut self) -> Result<Duration>;
}

/// A timer may be this late, so the last part of a wait is spent looking at the clock.
const LATE: Duration = Duration::from_micros(1200);

/// The runs of a load, over all its slices.
#[derive(Default)]
pub(crate) struct Load {
    pub(crate) times: Times,
    runs: u32,
    taken: Duration,
}

impl Load {
    pub(crate) fn per_second(&self) -> f64 {
        f64::from(self.runs) / self.taken.as_secs_f64()
    }

    /// Each target has its next run at once, for this time.
    pub(crate) async fn closed<T: LoadTarget>(&mut self, targets: &mut [T], time: Duration) -> Result<()> {
        let begun = Instant::now();
        let each = targets.iter_mut().map(|target| async move {
            let mut all = Vec::new();
            while begun.elapsed() < time {
                all.push(target.run().await?);
            }
            Ok(all)
        });
        self.take(each.collect(), begun).await
    }

    /// This many runs a second are due, at each target in turn, for this time.
    pub(crate) async fn open<T: LoadTarget>(
        &mut self,
        targets: &mut [T],
        per_second: f64,
        time: Duration,
    ) -> Result<()> {
        let begun = Instant::now();
        let between = Duration::from_secs_f64(1.0 / per_second);
        let apart = between * u32::try_from(targets.len())?;
        let each = targets.iter_mut().zip(0u32..).map(|(target, place)| async move {
            let mut all = Vec::new();
            let mut due = between * place;
            while due < time {
                until(begun + due).await;
                target.run().await?;
                all.push((begun + due).elapsed());
                due += apart;
            }
            Ok(all)
        });
        self.take(each.collect(), begun).await
    }

    async fn take(
        &mut self,
        mut each: FuturesUnordered<impl Future<Output = Result<Vec<Duration>>>>,
        begun: Instant,
    ) -> Result<()> {
        while let Some(all) = each.try_next().await? {
            self.runs += u32::try_from(all.len())?;
            all.into_iter().try_for_each(|taken| self.times.record(taken))?;
        }
        self.taken += begun.elapsed();
        Ok(())
    }
}

async fn until(due: Instant) {
    let left = due.saturating_duration_since(Instant::now());
    if left > LATE {
        tokio::time::sleep(left - LATE).await;
    }
    while Instant::now() < due {
        tokio::task::yield_now().await;
    }
}
