//! Random numbers that follow from a seed. The simulation of `src/cluster` has this file as well: it must use
//! nothing but the standard library, and nothing in it may be for one of the two alone.

/// SplitMix64: small, and good enough for choosing a test's next step.
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

    /// A number below `bound`, which is not 0.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    /// An index below `count`, which is not 0.
    pub(crate) fn index(&mut self, count: usize) -> usize {
        usize::try_from(self.below(count as u64)).expect("below a length")
    }
}
