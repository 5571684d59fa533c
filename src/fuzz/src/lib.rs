//! Fuzzing of paddock's parsers on stable Rust, for tests.
//!
//! A fuzz target is a test that calls [`fuzz`] with seeds and a check. The check is given seeds, inputs that
//! once failed, and then mutations of them, and panics where the parser breaks a promise. The harness itself
//! fails a check that allocates more than [`Target::memory`] allows.
//!
//! | | short form | long form |
//! |---|---|---|
//! | by | `cargo test` | `make fuzz`, `FUZZ_SECONDS` for each target |
//! | time of a target | a second | as long as wanted |
//! | mutations | the same each time | new ones each time; `FUZZ_SEED` repeats them |
//! | guided by | nothing | the parser's own branches, see [`coverage`] |
//! | an input that fails | is printed | is also saved in `fuzz/NAME/` of the crate, and tried first then |
//!
//! cargo-fuzz needs a nightly compiler. What it needs that for is the address sanitizer, which finds nothing
//! in safe code; the counters of branches that guide it can be had from a stable one
//! (`-Cpasses=sancov-module`).

pub mod coverage;
pub mod memory;
mod mutate;

use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime};

use coverage::Coverage;
use mutate::Mutator;

/// Seconds for each target in the long form.
const SECONDS: &str = "FUZZ_SECONDS";
/// The number that the mutations of the long form begin with.
const SEED: &str = "FUZZ_SEED";

/// How long a target takes in the short form.
const SHORT: Duration = Duration::from_secs(1);
/// The mutations of the short form, the same each time: a gate that fails must fail again.
const SHORT_SEED: u64 = 0x7061_6464_6f63_6b00;
/// Inputs that are kept to be mutated further.
const MAX_KEPT: usize = 4096;
/// Without counters, one in so many mutations is kept, so that they add up.
const KEPT_BLINDLY: u64 = 32;
/// How often a failing input is made smaller before it is reported.
const SHRINKS: usize = 400;

/// A fuzz target.
pub struct Target<'a> {
    /// Its name; `fuzz/NAME/` of its crate has the inputs that once failed.
    pub name: &'a str,
    /// `env!("CARGO_MANIFEST_DIR")` of its crate.
    pub package: &'a str,
    /// Good inputs to begin with.
    pub seeds: Vec<Vec<u8>>,
    /// Pieces of inputs that mutations insert.
    pub words: &'a [&'a [u8]],
    /// Bytes of the longest input.
    pub longest: usize,
    /// How many bytes the check may have allocated at any moment, by the length of its input.
    pub memory: fn(usize) -> usize,
}

/// Fuzzes a target; `check` panics where something is wrong.
///
/// # Panics
/// If a check fails, with the input.
pub fn fuzz(target: &Target<'_>, mut check: impl FnMut(&[u8])) {
    memory::assert_counted();
    let long = number(SECONDS).map(Duration::from_secs);
    let seed = if long.is_some() { number(SEED).unwrap_or_else(clock) } else { SHORT_SEED };
    let mut mutator = Mutator::new(seed, target.words, target.longest);
    let mut coverage = Coverage::new();
    let mut try_one = |input: &[u8], coverage: &mut Coverage| -> bool {
        coverage.reset();
        let failed = fails(target, &mut check, input);
        let is_new = coverage.has_new();
        if failed {
            report(target, &mut check, input, long.is_some());
        }
        is_new
    };

    let mut kept = target.seeds.clone();
    kept.extend(regressions(target).into_iter().map(|path| std::fs::read(&path).unwrap_or_default()));
    kept.push(Vec::new());
    for input in &kept {
        try_one(input, &mut coverage);
    }
    let (given, begun, time) = (kept.len(), Instant::now(), long.unwrap_or(SHORT));
    let mut runs: u64 = 0;
    while begun.elapsed() < time {
        let input = mutator.mutate(&kept);
        let is_new = try_one(&input, &mut coverage);
        runs += 1;
        if is_new || (!coverage.is_counted() && mutator.one_in(KEPT_BLINDLY)) {
            if kept.len() < MAX_KEPT {
                kept.push(input);
            } else {
                let place = given + mutator.below(MAX_KEPT - given);
                kept[place] = input;
            }
        }
    }
    if long.is_some() {
        let found = kept.len() - given;
        let guide = coverage.summary();
        say(&format!(
            "fuzz {}: {runs} runs in {time:?}, {found} inputs kept, {guide}, seed {seed}",
            target.name
        ));
    }
}

/// Whether the check panics, or takes too much memory.
fn fails(target: &Target<'_>, check: &mut impl FnMut(&[u8]), input: &[u8]) -> bool {
    catch_unwind(AssertUnwindSafe(|| {
        let peak = memory::peak_of(|| check(input));
        let most = (target.memory)(input.len());
        assert!(peak <= most, "{peak} bytes allocated for {} bytes of input; at most {most}", input.len());
    }))
    .is_err()
}

/// Makes a failing input smaller, saves it in the long form, and fails.
fn report(target: &Target<'_>, check: &mut impl FnMut(&[u8]), input: &[u8], save: bool) {
    let mut small = input.to_vec();
    let (mut piece, mut at) = (small.len().div_ceil(2), 0);
    for _ in 0..SHRINKS {
        if piece == 0 {
            break;
        }
        if at >= small.len() {
            (piece, at) = (piece / 2, 0);
            continue;
        }
        let mut less = small.clone();
        less.drain(at..(at + piece).min(small.len()));
        if fails(target, check, &less) {
            small = less;
        } else {
            at += piece;
        }
    }
    let mut place = String::new();
    if save {
        let folder = folder(target);
        let path = folder.join(format!("{:016x}", hash(&small)));
        if std::fs::create_dir_all(&folder).and_then(|()| std::fs::write(&path, &small)).is_ok() {
            place = format!("; saved as {}", path.display());
        }
    }
    panic!(
        "fuzz {}: this input of {} bytes fails (the reason is above){place}: {}",
        target.name,
        small.len(),
        small.escape_ascii()
    );
}

fn folder(target: &Target<'_>) -> PathBuf {
    PathBuf::from(target.package).join("fuzz").join(target.name)
}

/// Inputs that once failed.
fn regressions(target: &Target<'_>) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder(target)).into_iter().flatten().flatten();
    let mut paths: Vec<_> = entries.map(|entry| entry.path()).collect();
    paths.sort();
    paths
}

/// FNV-1a, for names of files.
fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

/// # Panics
/// If the variable is no number: a wrong word must not turn the long form into the short one.
fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    match text.parse() {
        Ok(number) => Some(number),
        Err(_) => panic!("{name} is {text:?}, expected a whole number"),
    }
}

fn clock() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    since.as_secs() ^ u64::from(since.subsec_nanos()).rotate_left(32)
}

fn say(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[global_allocator]
    static ALLOCATOR: memory::CountingAllocator = memory::CountingAllocator;

    fn target(name: &str) -> Target<'_> {
        Target {
            name,
            package: "/dev/null",
            seeds: vec![b"seed of some length".to_vec()],
            words: &[b"word"],
            longest: 64,
            memory: |length| 4096 + 16 * length,
        }
    }

    fn message(act: impl FnOnce()) -> String {
        let error = catch_unwind(AssertUnwindSafe(act)).expect_err("it must fail");
        *error.downcast::<String>().expect("text")
    }

    #[test]
    fn an_input_that_fails_is_found_and_made_small() {
        let said = message(|| fuzz(&target("byte"), |input| assert!(!input.contains(&0xff))));
        assert!(said.ends_with("this input of 1 bytes fails (the reason is above): \\xff"), "{said}");
        let said = message(|| {
            fuzz(&target("word"), |input| assert!(!input.windows(4).any(|four| four == b"word")));
        });
        assert!(said.ends_with(": word"), "{said}");
    }

    #[test]
    fn a_check_that_takes_too_much_memory_fails() {
        let said = message(|| {
            fuzz(&target("memory"), |input| {
                if input.len() > 20 {
                    drop(std::hint::black_box(vec![1_u8; 1 << 20]));
                }
            });
        });
        assert!(said.contains("this input of 21 bytes fails"), "{said}");
    }

    #[test]
    fn no_input_is_longer_than_it_may_be_and_the_empty_one_is_among_them() {
        let (mut longest, mut empty) = (0, false);
        fuzz(&target("length"), |input| {
            longest = longest.max(input.len());
            empty |= input.is_empty();
        });
        assert!(longest > 32 && longest <= 64 && empty, "{longest}");
    }
}
