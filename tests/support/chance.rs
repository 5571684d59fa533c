//! Reproducible random numbers: every draw follows from a seed that is printed.

use std::time::{SystemTime, UNIX_EPOCH};

/// SplitMix64: small, and good enough for choosing a test's next step.
#[derive(Debug, Clone)]
pub(crate) struct Chance(u64);

impl Chance {
    /// Takes the seed from this environment variable, or makes a new one; prints it.
    pub(crate) fn from_env(name: &str) -> Chance {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let new = now.as_secs() ^ u64::from(now.subsec_nanos()).rotate_left(16);
        let seed = std::env::var(name).ok().map(|text| text.parse().expect("a seed is a number"));
        let seed = seed.unwrap_or(new);
        eprintln!("{name}={seed}");
        Chance(seed)
    }

    /// A new generator; drawing from it does not change this one.
    pub(crate) fn fork(&mut self) -> Chance {
        Chance(self.next())
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`, which is not 0.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    /// True once in `n` times on average.
    pub(crate) fn once_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    pub(crate) fn of<T: Clone>(&mut self, all: &[T]) -> T {
        let at = usize::try_from(self.below(all.len() as u64)).expect("below a length");
        all[at].clone()
    }
}
