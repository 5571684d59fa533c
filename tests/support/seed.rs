//! The seed of a test, which is printed so that a failure can be repeated, and what tests draw by it.

use std::time::{SystemTime, UNIX_EPOCH};

use super::Chance;

impl Chance {
    /// Takes the seed from this environment variable, or makes a new one; prints it.
    pub(crate) fn from_env(name: &str) -> Chance {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let new = now.as_secs() ^ u64::from(now.subsec_nanos()).rotate_left(16);
        let seed = std::env::var(name).ok().map(|text| text.parse().expect("a seed is a number"));
        let seed = seed.unwrap_or(new);
        eprintln!("{name}={seed}");
        Chance::new(seed)
    }

    /// True once in `n` times on average.
    pub(crate) fn once_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    pub(crate) fn of<T: Clone>(&mut self, all: &[T]) -> T {
        all[self.index(all.len())].clone()
    }
}
