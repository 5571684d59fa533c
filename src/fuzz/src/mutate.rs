//! Makes new inputs of old ones: bits, bytes, numbers, pieces moved, repeated, cut out, and put together.

/// Numbers at which parsers go wrong.
const EDGES: [u64; 18] = [
    0,
    1,
    0x7f,
    0x80,
    0xff,
    0x100,
    0x1ff,
    0x200,
    0x7fff,
    0xffff,
    0x1_0000,
    0x5_0000,
    0x5_0001,
    0x7fff_ffff,
    0xffff_ffff,
    0x1_0000_0000,
    0x7fff_ffff_ffff_ffff,
    u64::MAX,
];

/// Changes on top of each other, at most.
const MOST_CHANGES: usize = 6;
/// Bytes that are inserted, cut out or repeated at one time, at most.
const MOST_BYTES: usize = 64;

pub(crate) struct Mutator<'a> {
    state: u64,
    words: &'a [&'a [u8]],
    longest: usize,
}

impl<'a> Mutator<'a> {
    pub(crate) fn new(seed: u64, words: &'a [&'a [u8]], longest: usize) -> Self {
        Self { state: seed | 1, words, longest }
    }

    /// xorshift64*.
    fn next(&mut self) -> u64 {
        self.state ^= self.state >> 12;
        self.state ^= self.state << 25;
        self.state ^= self.state >> 27;
        self.state.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A number below `end`, or 0.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        let high = usize::try_from(self.next() >> 33).unwrap_or(0);
        high.checked_rem(end).unwrap_or(0)
    }

    pub(crate) fn one_in(&mut self, n: u64) -> bool {
        self.next() >> 33 < (1 << 31) / n.max(1)
    }

    /// A new input, made of these.
    pub(crate) fn mutate(&mut self, from: &[Vec<u8>]) -> Vec<u8> {
        let pick = self.below(from.len());
        let mut bytes = from.get(pick).cloned().unwrap_or_default();
        for _ in 0..=self.below(MOST_CHANGES) {
            let other = self.below(from.len());
            self.change(&mut bytes, from.get(other).map_or(&[], Vec::as_slice));
        }
        bytes.truncate(self.longest);
        bytes
    }

    fn change(&mut self, bytes: &mut Vec<u8>, other: &[u8]) {
        let at = self.below(bytes.len() + 1);
        let some = 1 + self.below(MOST_BYTES);
        match self.below(10) {
            0 if at < bytes.len() => bytes[at] ^= 1 << self.below(8),
            1 if at < bytes.len() => bytes[at] = self.byte(),
            2 => {
                let new: Vec<u8> = (0..some).map(|_| self.byte()).collect();
                bytes.splice(at..at, new);
            }
            3 => drop(bytes.drain(at..(at + some).min(bytes.len()))),
            4 => {
                // A piece again, here or elsewhere.
                let piece = bytes[at..(at + some).min(bytes.len())].to_vec();
                let to = self.below(bytes.len() + 1);
                bytes.splice(to..to, piece);
            }
            5 | 6 => self.number(bytes, at),
            7 => {
                // The beginning of this with the end of another.
                bytes.truncate(at);
                let from = self.below(other.len() + 1);
                bytes.extend_from_slice(&other[from..]);
            }
            8 if !self.words.is_empty() => {
                let word = self.words[self.below(self.words.len())];
                let end = if self.one_in(2) { at } else { (at + word.len()).min(bytes.len()) };
                bytes.splice(at..end, word.iter().copied());
            }
            _ => bytes.truncate(at),
        }
    }

    fn byte(&mut self) -> u8 {
        self.next().to_be_bytes()[0]
    }

    /// A number of 1 to 8 bytes in place of what is there, or near what is there.
    fn number(&mut self, bytes: &mut [u8], at: usize) {
        let width = 1 << self.below(4);
        let Some(place) = bytes.get_mut(at..at + width) else { return };
        let mut now = [0; 8];
        now[..width].copy_from_slice(place);
        let number = match self.below(3) {
            0 => u64::from_le_bytes(now).wrapping_add(1 + self.below(4) as u64),
            1 => u64::from_le_bytes(now).wrapping_sub(1 + self.below(4) as u64),
            _ => EDGES[self.below(EDGES.len())],
        };
        if self.one_in(2) {
            place.copy_from_slice(&number.to_le_bytes()[..width]);
        } else {
            place.copy_from_slice(&number.to_be_bytes()[8 - width..]);
        }
    }
}
