//! The lines that differ between two texts, as hunks of a unified diff.
//!
//! It must never take longer than the bounds of its inputs allow, whatever they contain.

use std::ops::Range;
use std::time::{Duration, Instant};

use similar::algorithms::{Capture, Replace, diff_deadline};
use similar::{Algorithm, DiffOp};

/// Lines shown before and after a change, as git does by default.
const CONTEXT: usize = 3;

/// Lines of both texts together that are compared line by line: each takes memory while that goes on. Beyond
/// that, the whole text is shown as removed and added.
const COMPARED: usize = 1_000_000;

/// How long the search for the shortest difference may take; what it has not looked through by then is shown
/// as removed and added. Ordinary texts take milliseconds.
const SEARCH: Duration = Duration::from_secs(1);

/// Hunks, and how many lines they add and remove.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Hunks {
    pub(super) text: Vec<u8>,
    pub(super) insertions: u64,
    pub(super) deletions: u64,
}

/// Lines that are replaced by others.
#[derive(Debug, Clone)]
struct Replaced {
    before: Range<usize>,
    after: Range<usize>,
}

/// The hunks between two different texts.
pub(super) fn hunks(before: &[u8], after: &[u8]) -> Hunks {
    let sides = Sides { before: lines(before), after: lines(after) };
    let mut changes = sides.changes();
    let mut done = Hunks::default();
    for change in &changes {
        done.insertions += change.after.len() as u64;
        done.deletions += change.before.len() as u64;
    }
    changes.reverse();
    while let Some(first) = changes.pop() {
        let mut group = vec![first];
        // Changes whose context would touch are one hunk.
        while let (Some(last), Some(next)) = (group.last(), changes.last())
            && next.before.start - last.before.end <= 2 * CONTEXT
        {
            group.extend(changes.pop());
        }
        sides.write(&group, &mut done.text);
    }
    done
}

/// The lines of a text, each with its newline.
fn lines(text: &[u8]) -> Vec<&[u8]> {
    text.split_inclusive(|byte| *byte == b'\n').collect()
}

struct Sides<'a> {
    before: Vec<&'a [u8]>,
    after: Vec<&'a [u8]>,
}

impl Sides<'_> {
    /// What is replaced by what, from the first line to the last.
    fn changes(&self) -> Vec<Replaced> {
        let (before, after) = (0..self.before.len(), 0..self.after.len());
        if before.len() + after.len() > COMPARED {
            return vec![Replaced { before, after }];
        }
        let mut found = Replace::new(Capture::new());
        let deadline = Some(Instant::now() + SEARCH);
        let (old, new) = (&self.before[..], &self.after[..]);
        let (of_old, of_new) = (before.clone(), after.clone());
        if diff_deadline(Algorithm::Myers, &mut found, old, of_old, new, of_new, deadline).is_err() {
            return vec![Replaced { before, after }];
        }
        let mut changes: Vec<Replaced> = Vec::new();
        for op in found.into_inner().into_ops() {
            if matches!(op, DiffOp::Equal { .. }) {
                continue;
            }
            let (before, after) = (op.old_range(), op.new_range());
            match changes.last_mut() {
                Some(last) if last.before.end == before.start && last.after.end == after.start => {
                    (last.before.end, last.after.end) = (before.end, after.end);
                }
                Some(_) | None => changes.push(Replaced { before, after }),
            }
        }
        changes
    }

    /// Writes changes that stand close together as one hunk.
    fn write(&self, group: &[Replaced], to: &mut Vec<u8>) {
        let (Some(first), Some(last)) = (group.first(), group.last()) else { return };
        let lead = first.before.start.min(CONTEXT);
        let trail = (self.before.len() - last.before.end).min(CONTEXT);
        let before = first.before.start - lead..last.before.end + trail;
        let after = first.after.start - lead..last.after.end + trail;
        to.extend_from_slice(format!("@@ -{} +{} @@\n", place(&before), place(&after)).as_bytes());
        let mut at = before.start;
        for change in group {
            write(b' ', &self.before, at..change.before.start, to);
            write(b'-', &self.before, change.before.clone(), to);
            write(b'+', &self.after, change.after.clone(), to);
            at = change.before.end;
        }
        write(b' ', &self.before, at..before.end, to);
    }
}

fn write(mark: u8, side: &[&[u8]], range: Range<usize>, to: &mut Vec<u8>) {
    for line in side.get(range).unwrap_or_default() {
        to.push(mark);
        to.extend_from_slice(line);
        if !line.ends_with(b"\n") {
            to.extend_from_slice(b"\n\\ No newline at end of file\n");
        }
    }
}

/// A range of lines as a hunk's header has it: counted from 1, and the line before it if it is empty.
fn place(range: &Range<usize>) -> String {
    match range.len() {
        0 => format!("{},0", range.start),
        1 => format!("{}", range.start + 1),
        length => format!("{},{length}", range.start + 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(before: &str, after: &str) -> String {
        String::from_utf8(hunks(before.as_bytes(), after.as_bytes()).text).unwrap()
    }

    #[test]
    fn a_change_has_its_context_and_says_where_a_newline_is_missing() {
        assert_eq!(shown("", "a\n"), "@@ -0,0 +1 @@\n+a\n");
        assert_eq!(shown("a\nb\n", ""), "@@ -1,2 +0,0 @@\n-a\n-b\n");
        assert_eq!(
            shown("1\n2\n3\n4\n5\nold", "1\n2\n3\n4\n5\nold\n"),
            "@@ -3,4 +3,4 @@\n 3\n 4\n 5\n-old\n\\ No newline at end of file\n+old\n"
        );
        assert_eq!(shown("a\nx", "b\nx"), "@@ -1,2 +1,2 @@\n-a\n+b\n x\n\\ No newline at end of file\n");
    }

    #[test]
    fn changes_far_apart_are_two_hunks_and_close_ones_are_one() {
        let text = |changed: &[usize]| -> String {
            (0..30)
                .map(|n| if changed.contains(&n) { "new\n".to_owned() } else { format!("{n}\n") })
                .collect()
        };
        assert_eq!(shown(&text(&[]), &text(&[5, 12])).matches("@@ -").count(), 1);
        assert_eq!(shown(&text(&[]), &text(&[5, 13])).matches("@@ -").count(), 2);
        let done = hunks(text(&[]).as_bytes(), text(&[5, 13]).as_bytes());
        assert_eq!((done.insertions, done.deletions), (2, 2));
    }

    #[test]
    fn no_pair_of_texts_holds_its_thread_for_long() {
        let random = |seed: u64, lines: u64, words: u64| -> Vec<u8> {
            let mut state = seed;
            let mut next = || {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                state >> 33
            };
            (0..lines).flat_map(|_| format!("{}\n", next() % words).into_bytes()).collect()
        };
        for words in [2, 10, 300, 1 << 30] {
            let (before, after) = (random(1, 100_000, words), random(2, 100_000, words));
            let begun = Instant::now();
            let done = hunks(&before, &after);
            eprintln!("{words} words: {:?}, {} bytes", begun.elapsed(), done.text.len());
            assert!(begun.elapsed() < 15 * SEARCH, "{words}: {:?}", begun.elapsed());
        }
        let (before, after) = (b"\n".repeat(4 << 20), b"x\n".repeat(2 << 20));
        let done = hunks(&before, &after);
        assert_eq!((done.deletions, done.insertions), (4 << 20, 2 << 20));
    }
}
