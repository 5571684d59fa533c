//! The load generator: the same for every target, so that what it costs itself falls on all of them alike.
//!
//! Closed loop: each target has its next run as soon as the last has ended; says how many go at most, and what each
//! takes then. Open loop: runs fall due by the clock, whatever became of those before, and a run's time counts from
//! when it was due. It must never wait with the clock standing still: a run that hangs delays those behind it, and
//! each of them has to say so (coordinated omission).

use std::time::{Duration, Instant};

use futures_util::TryStreamExt;
use futures_util::stream::FuturesUnordered;

use crate::Result;
use crate::times::Times;

/// Something that can be asked for one run after another.
pub(crate) trait Target {
    /// One run, checked.
    async fn run(&mut self) -> Result<Duration>;
}

/// A timer is late by up to so much; the rest is waited for by looking at the clock.
const LATE: Duration = Duration::from_micros(1200);

/// What a load came to, over all its slices.
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

    /// Each target has its next run at once, for so long.
    pub(crate) async fn closed<T: Target>(&mut self, targets: &mut [T], time: Duration) -> Result<()> {
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

    /// So many runs a second fall due, in turn at each target, for so long.
    pub(crate) async fn open<T: Target>(
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
