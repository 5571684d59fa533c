//! Random numbers that follow from the number of a seed. Nothing else in the simulation may be random.

/// SplitMix64.
#[derive(Debug, Clone)]
pub(crate) struct Chance(u64);

impl Chance {
    pub(crate) fn new(seed: u64) -> Chance {
        let mut chance = Chance(seed);
        // Seeds are small numbers that follow one another.
        Chance(chance.next())
    }

    /// Another generator, whose draws do not change those of this one.
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

    /// A number from `low` to below `high`, which is larger.
    pub(crate) fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.next() % (high - low)
    }

    /// An index below `count`, which is not 0.
    pub(crate) fn index(&mut self, count: usize) -> usize {
        usize::try_from(self.between(0, count as u64)).expect("below a length")
    }

    /// True so many times in a million.
    pub(crate) fn per_million(&mut self, times: u32) -> bool {
        times > 0 && self.next() % 1_000_000 < u64::from(times)
    }
}
