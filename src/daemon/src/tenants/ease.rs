//! How far tenants are held back while the processors are short and several tenants are at work. Pure: it
//! reads no clock and no file.
//!
//! Weights divide the processors between programs, and accounts the daemon's own threads. But what a flood
//! causes beside them has no tenant: the kernel's network, the engine and its shims that start containers,
//! the disk. All of that is work for calls of the flood; so if the processors are still short, fewer of its
//! calls go on at one time. The kernel says whether they are short (`/proc/pressure/cpu`): the part of the
//! time in which something that could run waited for a processor.
//!
//! ```text
//!  the processors were short ─► the ease falls by a third ─┬─► fewer runs of each tenant begin (`starts`)
//!  they were not ─► it rises by a fifth ───────────────────┴─► the daemon's threads do less for those who
//!  one tenant is at work ─► nobody is held back                use much, beside one who does not (`pace`)
//! ```
//!
//! It must never hold anybody back where the kernel does not say how short the processors are, nor so far
//! that nothing goes on: there are least values, which keep the processors busy.

/// The processors are short if something waited for one in more than this part of the time.
const SHORT: f64 = 0.35;
/// The ease after a time in which the processors were short, of what it was before.
const FALLS: f64 = 0.67;
/// The same where they were not.
const RISES: f64 = 1.2;
/// The least ease.
const LEAST: f64 = 0.05;
/// Runs of a tenant for each processor at full ease, from which on fewer begin.
const RUNS: f64 = 8.0;
/// The least part of what the daemon's threads do for tenants that use much, of what they do at full ease.
const LEAST_PACE: f64 = 0.25;

/// From [`LEAST`] to 1; at 1 nobody is held back.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Ease(f64);

impl Default for Ease {
    fn default() -> Self {
        Self(1.0)
    }
}

impl Ease {
    /// The ease after a time in which several tenants were at work and something waited for a processor in
    /// this part of the time.
    #[must_use]
    pub(crate) fn after(self, waited: f64) -> Self {
        let factor = if waited > SHORT { FALLS } else { RISES };
        Self((self.0 * factor).clamp(LEAST, 1.0))
    }

    /// The runs of a tenant, on so many processors, from which on no other begins; `None`: there is no such
    /// number.
    pub(crate) fn runs(self, processors: usize) -> Option<usize> {
        #[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let runs = (self.0 * RUNS * processors as f64) as usize;
        (self.0 < 1.0).then_some(runs.max(1))
    }

    /// The part of what the daemon's threads do for tenants that use much, of what they do at full ease.
    pub(crate) fn pace(self) -> f64 {
        self.0.max(LEAST_PACE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(ease: Ease, waited: f64, times: usize) -> Ease {
        (0..times).fold(ease, |ease, _| ease.after(waited))
    }

    #[test]
    fn it_falls_while_the_processors_are_short_and_rises_to_full_afterwards() {
        let full = Ease::default();
        assert_eq!((full.runs(2), full.pace()), (None, 1.0));
        assert_eq!(after(full, SHORT, 3), full, "they are not short");
        let one = full.after(0.9);
        assert_eq!(one.runs(2), Some(10));
        let least = after(full, 0.9, 20);
        assert_eq!((least.runs(2), least.runs(64), least.pace()), (Some(1), Some(25), LEAST_PACE));
        assert_eq!(after(least, 1.0, 20), least);
        assert!(after(least, 0.1, 8).runs(2).is_some());
        assert_eq!(after(least, 0.1, 20), full, "after a few seconds nobody is held back");
    }
}
