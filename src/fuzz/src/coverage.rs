//! Which branches an input took, by counters that a stable compiler puts in.
//!
//! With `-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=3
//! -Cllvm-args=-sanitizer-coverage-inline-8bit-counters` each edge of the program has a byte that counts how
//! often it was taken, and the program calls [`__sanitizer_cov_8bit_counters_init`] with them before `main`.
//! A program that was built without has no counters, and is fuzzed blindly.
//!
//! The counters are of the whole process: targets that are guided by them must run one at a time
//! (`--test-threads=1`).
#![expect(unsafe_code, reason = "the counters are the compiler's, and are handed over as pointers")]

use std::sync::Mutex;

/// Where the counters are: addresses of the first, and behind the last.
static REGIONS: Mutex<Vec<[usize; 2]>> = Mutex::new(Vec::new());

/// Called by instrumented code before `main`, for each of its parts.
///
/// # Safety
/// The counters must lie from `start` up to `stop`, for as long as the process lives.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __sanitizer_cov_8bit_counters_init(start: *mut u8, stop: *mut u8) {
    let region = [start.expose_provenance(), stop.expose_provenance()];
    if let Ok(mut regions) = REGIONS.lock()
        && region[0] < region[1]
        && !regions.contains(&region)
    {
        regions.push(region);
    }
}

/// Called by instrumented code with the places of its edges, which nothing here needs.
///
/// # Safety
/// It does nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __sanitizer_cov_pcs_init(_start: *const usize, _stop: *const usize) {}

/// The edges that were taken so far, and how often in one run: each a set of the classes of [`class`].
pub(crate) struct Coverage {
    regions: Vec<[usize; 2]>,
    seen: Vec<u8>,
}

impl Coverage {
    /// Nothing was taken yet.
    pub(crate) fn new() -> Self {
        let regions = REGIONS.lock().map(|regions| regions.clone()).unwrap_or_default();
        let edges = regions.iter().map(|[start, stop]| stop - start).sum();
        Self { regions, seen: vec![0; edges] }
    }

    /// Whether there are counters at all.
    pub(crate) fn is_counted(&self) -> bool {
        !self.regions.is_empty()
    }

    /// Sets all counters to zero.
    pub(crate) fn reset(&mut self) {
        for [start, stop] in &self.regions {
            // SAFETY: these are the counters, which live as long as the process. Code that adds to them
            // meanwhile adds to nothing that counts.
            unsafe {
                let counters = std::ptr::with_exposed_provenance_mut::<u8>(*start);
                std::ptr::write_bytes(counters, 0, stop - start);
            }
        }
    }

    /// Takes in what was counted since the reset; whether an edge was taken that was not before, or so often.
    pub(crate) fn has_new(&mut self) -> bool {
        let (mut is_new, mut place) = (false, 0);
        for [start, stop] in &self.regions {
            for at in *start..*stop {
                // SAFETY: as above; each is read once.
                let count = unsafe { std::ptr::read_volatile(std::ptr::with_exposed_provenance::<u8>(at)) };
                if count > 0 {
                    let class = class(count);
                    is_new |= self.seen[place] & class == 0;
                    self.seen[place] |= class;
                }
                place += 1;
            }
        }
        is_new
    }

    /// For people.
    pub(crate) fn summary(&self) -> String {
        if !self.is_counted() {
            return "not guided: built without counters".to_owned();
        }
        let taken = self.seen.iter().filter(|classes| **classes > 0).count();
        format!("{taken} of {} branches taken", self.seen.len())
    }
}

/// Counts that differ little are one.
fn class(count: u8) -> u8 {
    match count {
        0 => 0,
        1 => 1,
        2 => 2,
        3 => 4,
        4..=7 => 8,
        8..=15 => 16,
        16..=31 => 32,
        32..=127 => 64,
        128..=255 => 128,
    }
}
