//! How many heaps the C library keeps for the daemon's threads: one for each processor.
//!
//! glibc makes up to eight heaps for each processor, so that threads do not wait for each other; what is free
//! in one is reused by its own threads only, and hardly ever given back to the kernel. The daemon's threads
//! for blocking work come and go, and large and small requests take turns in them: after minutes of mixed
//! load it used 20 MiB and held 200 (`make soak`). It must be called before the first thread is started.

#![allow(unsafe_code, reason = "the C library has no other way than a foreign function")]

use std::ffi::c_int;
use std::thread::available_parallelism;

/// Bounds the heaps by the processors that the daemon may use. Where the C library refuses, its own bound
/// stays: more memory is held, and nothing fails (`mallopt(3)`, `M_ARENA_MAX`).
pub fn bound() {
    let processors =
        available_parallelism().map_or(1, |count| c_int::try_from(count.get()).unwrap_or(c_int::MAX));
    // SAFETY: it takes two numbers, and no other thread exists that could allocate meanwhile.
    unsafe { libc::mallopt(libc::M_ARENA_MAX, processors) };
}
