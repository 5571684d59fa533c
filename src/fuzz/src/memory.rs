//! Counts what a thread has allocated, so that a check can be held to a bound.
//!
//! A crate with fuzz targets installs it in its tests:
//!
//! ```
//! #[global_allocator]
//! static ALLOCATOR: paddock_fuzz::memory::CountingAllocator = paddock_fuzz::memory::CountingAllocator;
//! assert!(paddock_fuzz::memory::peak_of(|| drop(vec![0_u8; 1000])) >= 1000);
//! ```
#![expect(unsafe_code, reason = "an allocator is an unsafe trait")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// The system's allocator, which also counts.
pub struct CountingAllocator;

thread_local! {
    /// Bytes that this thread has allocated and not freed; below zero where it freed another thread's.
    static NOW: Cell<isize> = const { Cell::new(0) };
    /// The most of them since this was set.
    static PEAK: Cell<isize> = const { Cell::new(0) };
}

fn count(more: isize) {
    // A thread that is ending has no counters any more.
    let _ = NOW.try_with(|now| {
        now.set(now.get().wrapping_add(more));
        let _ = PEAK.try_with(|peak| peak.set(peak.get().max(now.get())));
    });
}

// SAFETY: every call is passed on to the system's allocator as it is; counting allocates nothing, since the
// counters are constants at first and have no destructor.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size().cast_signed());
        // SAFETY: as the caller promised.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size().cast_signed());
        // SAFETY: as the caller promised.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        count(-layout.size().cast_signed());
        // SAFETY: as the caller promised.
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // Both may exist for a moment.
        count(size.cast_signed());
        // SAFETY: as the caller promised.
        let new = unsafe { System.realloc(at, layout, size) };
        count(-(if new.is_null() { size } else { layout.size() }).cast_signed());
        new
    }
}

/// The most bytes that this thread had allocated at any moment of `act`, beyond what it had before.
pub fn peak_of(act: impl FnOnce()) -> usize {
    let before = NOW.get();
    PEAK.set(before);
    act();
    usize::try_from(PEAK.get() - before).unwrap_or(0)
}

/// # Panics
/// If the counting allocator is not installed.
pub(crate) fn assert_counted() {
    let peak = peak_of(|| drop(std::hint::black_box(Vec::<u8>::with_capacity(1 << 16))));
    assert!(peak >= 1 << 16, "the tests of this crate need paddock_fuzz::memory::CountingAllocator");
}
