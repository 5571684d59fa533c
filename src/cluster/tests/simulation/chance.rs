//! What the simulation draws by the number of its seed. Nothing else in it may be random.

#[path = "../../../../tests/support/chance.rs"]
mod numbers;

pub(crate) use numbers::Chance;

impl Chance {
    /// A number from `low` to below `high`, which is larger.
    pub(crate) fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low)
    }

    /// True so many times in a million.
    pub(crate) fn per_million(&mut self, times: u32) -> bool {
        times > 0 && self.below(1_000_000) < u64::from(times)
    }
}
