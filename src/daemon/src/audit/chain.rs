//! The chain of an audit log: each line has a number and the hash of the line before it, so that a line that
//! is missing, changed, added or moved shows. Pure: no file, no clock.
//!
//! The chain shows accidents and edits. Whoever can write the file can also write a whole new chain from some
//! line on: keep the last hash that [`Verifier`] tells, or the files, where that person cannot write. Nor can
//! it show that the last lines of all are missing.

use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use crate::id::{from_hex, hex};

/// The key of a line that tells that the line before it was cut off.
pub(super) const CUT: &str = "cut";

/// The hash in the first line of a chain.
const NOTHING: [u8; 32] = [0; 32];

/// The end of a chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Chain {
    /// The number of the last line.
    pub(super) seq: u64,
    /// Its hash.
    pub(super) last: [u8; 32],
}

impl Default for Chain {
    fn default() -> Self {
        Self { seq: 0, last: NOTHING }
    }
}

impl Chain {
    /// The chain that ends with this line, without its newline. A line that was cut off has no number that
    /// could be read: the next has one more than `before`.
    pub(super) fn after(line: &[u8], before: u64) -> Self {
        let seq = Link::of(line).map_or(before + 1, |link| link.seq);
        Self { seq, last: Sha256::digest(line).into() }
    }

    /// The next line, with its newline.
    pub(super) fn line(&mut self, fields: Map<String, Value>) -> Vec<u8> {
        let mut all = Map::new();
        all.insert("seq".into(), (self.seq + 1).into());
        all.extend(fields);
        all.insert("prev".into(), hex(&self.last).into());
        let mut line = Value::Object(all).to_string().into_bytes();
        *self = Self { seq: self.seq + 1, last: Sha256::digest(&line).into() };
        line.push(b'\n');
        line
    }
}

/// What a line says of the chain.
struct Link {
    seq: u64,
    prev: [u8; 32],
    /// It tells that the line before it was cut off.
    tells_of_cut: bool,
}

impl Link {
    fn of(line: &[u8]) -> Option<Self> {
        let fields: Map<String, Value> = serde_json::from_slice(line).ok()?;
        let prev = from_hex(fields.get("prev")?.as_str()?)?;
        let tells_of_cut = fields.get(CUT).is_some_and(|cut| *cut == true);
        Some(Self { seq: fields.get("seq")?.as_u64()?, prev, tells_of_cut })
    }
}

/// Reads the lines of a log in order, and finds what breaks the chain.
#[derive(Debug, Default)]
pub(super) struct Verifier {
    chain: Option<Chain>,
    lines: u64,
    first: Option<u64>,
    /// The line before was no line of a log.
    is_unreadable: bool,
}

/// What is found at a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Finding {
    /// Lines between the one before and this one are missing, or the one before was changed.
    Broken {
        /// The number of the line before.
        after: u64,
        /// That of this line.
        seq: u64,
    },
    /// It is no line of a log: it was changed, or cut off when the daemon was killed.
    Unreadable {
        /// The number of the line before.
        after: u64,
    },
    /// The line before, which is [`Finding::Unreadable`], was cut off when a daemon was killed: this line,
    /// which the next daemon wrote, says so and has its hash.
    CutBefore,
}

impl Verifier {
    /// Takes the next line, without its newline.
    pub(super) fn line(&mut self, line: &[u8]) -> Option<Finding> {
        let before = self.chain;
        let after = before.map_or(0, |chain| chain.seq);
        let was_unreadable = std::mem::take(&mut self.is_unreadable);
        self.lines += 1;
        self.chain = Some(Chain::after(line, after));
        let Some(link) = Link::of(line) else {
            self.is_unreadable = true;
            return Some(Finding::Unreadable { after });
        };
        self.first.get_or_insert(link.seq);
        let follows = match before {
            // The files before it may be gone, but not those before the first line of all.
            None => link.seq > 1 || link.prev == NOTHING,
            Some(before) => before.last == link.prev && link.seq == before.seq + 1,
        };
        match follows {
            false => Some(Finding::Broken { after, seq: link.seq }),
            true if was_unreadable && link.tells_of_cut => Some(Finding::CutBefore),
            true => None,
        }
    }

    /// How many lines there were, the number of the first, and the end of the chain.
    pub(super) fn end(&self) -> (u64, Option<u64>, Option<Chain>) {
        (self.lines, self.first, self.chain)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn log(lines: u64) -> Vec<Vec<u8>> {
        let mut chain = Chain::default();
        let line = |n| {
            let mut line = chain.line(Map::from_iter([("tool".to_owned(), json!(format!("t{n}")))]));
            assert_eq!(line.pop(), Some(b'\n'));
            line
        };
        (0..lines).map(line).collect()
    }

    fn found(lines: &[Vec<u8>]) -> Vec<Finding> {
        let mut verifier = Verifier::default();
        lines.iter().filter_map(|line| verifier.line(line)).collect()
    }

    #[test]
    fn an_untouched_log_has_no_flaw_also_from_its_middle_on() {
        let log = log(9);
        assert_eq!((found(&log), found(&log[4..])), (vec![], vec![]));
        let mut verifier = Verifier::default();
        assert!(log.iter().all(|line| verifier.line(line).is_none()));
        let (lines, first, end) = verifier.end();
        assert_eq!((lines, first, end.unwrap().seq), (9, Some(1), 9));
        // The next daemon goes on from the last line.
        let mut chain = Chain::after(&log[8], 0);
        let next = chain.line(Map::new());
        assert_eq!(verifier.line(next.trim_ascii_end()), None);
    }

    #[test]
    fn a_line_that_was_cut_off_is_told_and_the_chain_goes_on() {
        let mut log = log(3);
        let cut = log[2][..20].to_vec();
        let mut chain = Chain::after(&cut, 2);
        log[2] = cut;
        let mut silent = log.clone();
        silent.push(chain.line(Map::new()).trim_ascii_end().to_vec());
        assert_eq!(found(&silent), [Finding::Unreadable { after: 2 }]);
        let mut chain = Chain::after(&log[2], 2);
        log.push(chain.line(Map::from_iter([(CUT.to_owned(), json!(true))])).trim_ascii_end().to_vec());
        assert_eq!(found(&log), [Finding::Unreadable { after: 2 }, Finding::CutBefore]);
        // The log says that a line was cut, but the cut line in it has other bytes than the chain knows.
        log[2].push(b'x');
        assert_eq!(found(&log), [Finding::Unreadable { after: 2 }, Finding::Broken { after: 3, seq: 4 }]);
    }

    #[test]
    fn a_first_line_that_follows_another_is_broken() {
        let log = log(2);
        let mut other = Chain { seq: 0, last: [7; 32] };
        let first = other.line(Map::new()).trim_ascii_end().to_vec();
        assert_eq!(found(&[first]), [Finding::Broken { after: 0, seq: 1 }]);
        assert_eq!(found(&log[..1]), []);
    }

    proptest! {
        /// Whatever is done to one line of a log, but the last, shows.
        #[test]
        fn every_change_shows(at in 0..8_usize, byte in 0..200_usize, bit in 0..8_u8, what in 0..4_u8) {
            let mut log = log(9);
            match what {
                0 => {
                    let byte = byte % log[at].len();
                    log[at][byte] ^= 1 << bit;
                }
                1 if at > 0 => drop(log.remove(at)),
                2 => log.insert(at, log[at].clone()),
                _ => log.swap(at, at + 1),
            }
            prop_assert!(!found(&log).is_empty());
        }
    }
}
