//! The times of one row, as an HDR histogram, and their figures.
//!
//! It must never give a percentile of too few samples.

use std::time::Duration;

use hdrhistogram::{CreationError, Histogram};

use crate::Result;

/// Microseconds, to three digits.
pub(crate) struct Times(std::result::Result<Histogram<u64>, CreationError>);

/// Two minutes: the daemon's own limits let no sample be longer.
const LONGEST: u64 = 120_000_000;

/// A percentile needs at least this many samples.
const FOR_P95: u64 = 20;
const FOR_P99: u64 = 100;

/// All in microseconds.
#[derive(Clone, Copy)]
pub(crate) struct Figures {
    pub(crate) n: u64,
    pub(crate) min: u64,
    pub(crate) median: u64,
    pub(crate) p95: Option<u64>,
    pub(crate) p99: Option<u64>,
    pub(crate) max: u64,
}

impl Default for Times {
    fn default() -> Self {
        Self(Histogram::new_with_bounds(1, LONGEST, 3))
    }
}

impl Times {
    pub(crate) fn record(&mut self, taken: Duration) -> Result<()> {
        let micros = u64::try_from(taken.as_micros())?.max(1);
        let histogram = self.0.as_mut().map_err(|error| error.to_string())?;
        histogram.record(micros).map_err(|_| format!("{taken:?} is longer than any sample may be").into())
    }

    pub(crate) fn figures(&self) -> Option<Figures> {
        let histogram = self.0.as_ref().ok().filter(|histogram| !histogram.is_empty())?;
        let n = histogram.len();
        let percentile = |q, least| (n >= least).then(|| histogram.value_at_quantile(q));
        Some(Figures {
            n,
            min: histogram.min(),
            median: histogram.value_at_quantile(0.5),
            p95: percentile(0.95, FOR_P95),
            p99: percentile(0.99, FOR_P99),
            max: histogram.max(),
        })
    }
}
