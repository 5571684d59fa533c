//! How many heaps the C library keeps for the daemon's threads: one for each processor.
//!
//! glibc makes up to eight heaps for each processor, so that threads do not wait for each other; what is free
//! in one is reused by its own threads only, and hardly ever given back to the kernel. The daemon's threads
//! for blocking work come and go, and large and small requests take turns in them: after minutes of mixed
//! load it used 20 MiB and held 200 (`make soak`). [`bound`] must be called before the first thread is
//! started.

#![allow(unsafe_code, reason = "only a function of the C library sets this bound")]

use std::ffi::c_int;
use std::thread::available_parallelism;

/// The variables by which an operator sets another bound (`mallopt(3)`; the tunables of glibc).
const CHOSEN: [(&str, &str); 2] = [("MALLOC_ARENA_MAX", ""), ("GLIBC_TUNABLES", "glibc.malloc.arena_max=")];

/// Bounds the heaps by the processors that the daemon may use, unless the environment has a bound. Where the
/// C library refuses, its own stays: more memory is held, and nothing fails (`mallopt(3)`, `M_ARENA_MAX`).
pub fn bound() {
    let is_set = |(name, with): (&str, &str)| std::env::var(name).is_ok_and(|value| value.contains(with));
    if CHOSEN.into_iter().any(is_set) {
        return;
    }
    let processors =
        available_parallelism().map_or(1, |count| c_int::try_from(count.get()).unwrap_or(c_int::MAX));
    // SAFETY: it takes two numbers, and no other thread exists that could allocate meanwhile.
    unsafe { libc::mallopt(libc::M_ARENA_MAX, processors) };
}
