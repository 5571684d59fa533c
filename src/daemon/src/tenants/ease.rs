//! How much is left to tenants that use much, while the processors are short and another tenant, which uses
//! little, is at work. Pure: it reads no clock and no file.
//!
//! `pace` charges a tenant for the polls of its connections, and `credit` for its programs. But what a flood
//! causes beside them has no tenant: the kernel's network, the disk, the engine, the clients if they run on
//! this machine. All of that is work for calls of the flood; so while the processors are short, less of the
//! flood goes on. The kernel says whether they are short (`/proc/pressure/cpu`): the part of the time in
//! which something that could run waited for a processor.
//!
//! It must never hold anybody back where the kernel does not say how short the processors are, nor so far
//! that nothing goes on: there is a least value.

/// The ease after a time in which the processors were short, of what it was before.
const FALLS: f64 = 0.67;
/// The same where they were not.
const RISES: f64 = 1.2;

/// What is held back, and how far.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Bounds {
    /// The processors are short if something waited for one in more than this part of the time.
    short: f64,
    /// The least ease.
    least: f64,
}

/// Of the daemon's threads. One tenant that works makes things wait in 0.08 of the time. Beside floods of
/// files and of cheap calls that was 0.3, and its calls took twice as long as alone (bench/README.md). Who
/// uses less than `MUCH` in `pace` is not held back at all: so an ease below that part holds for a window or
/// two at a time, and a flood gets about a tenth.
const THREADS: Bounds = Bounds { short: 0.15, least: 0.0625 };
/// Of programs: those of one tenant wait for each other on the processors that are left to it, however many
/// processors are idle, so the bound is higher.
const PROGRAMS: Bounds = Bounds { short: 0.35, least: 0.125 };

/// A part of what a tenant that uses much has otherwise: from a least value to 1.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Ease {
    part: f64,
    bounds: Bounds,
}

impl Ease {
    /// Nobody is held back. Of the daemon's threads.
    pub(crate) fn of_threads() -> Self {
        Self { part: 1.0, bounds: THREADS }
    }

    /// Nobody is held back. Of the processors, for programs.
    pub(crate) fn of_programs() -> Self {
        Self { part: 1.0, bounds: PROGRAMS }
    }

    /// The ease after a time in which something waited for a processor in this part of it, if the kernel has
    /// said so. If `is_shared`, several tenants were at work. Otherwise, and where the kernel says nothing,
    /// it rises: somebody who comes again after a short rest finds most of it as it was.
    #[must_use]
    pub(crate) fn after(self, is_shared: bool, waited: Option<f64>) -> Self {
        let Self { part, bounds } = self;
        let factor = match waited {
            Some(waited) if is_shared && waited > bounds.short => FALLS,
            _ => RISES,
        };
        Self { part: (part * factor).clamp(bounds.least, 1.0), bounds }
    }

    /// Whether nobody is held back.
    pub(crate) fn is_full(self) -> bool {
        self.part >= 1.0
    }

    /// The part.
    pub(crate) fn part(self) -> f64 {
        self.part
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOTH: [(fn() -> Ease, Bounds); 2] = [(Ease::of_threads, THREADS), (Ease::of_programs, PROGRAMS)];

    fn after(ease: Ease, is_shared: bool, waited: Option<f64>, times: usize) -> Ease {
        (0..times).fold(ease, |ease, _| ease.after(is_shared, waited))
    }

    #[test]
    fn it_falls_while_the_processors_are_short_and_rises_to_full_afterwards() {
        for (full, Bounds { short, least: bound }) in BOTH {
            let full = full();
            assert_eq!(after(full, true, Some(short), 3), full, "they are not short");
            assert!(full.after(true, Some(short + 0.01)).part() < 0.7);
            let least = after(full, true, Some(0.9), 20);
            assert!(!least.is_full() && full.is_full());
            assert_eq!((least.part(), after(least, true, Some(1.0), 9)), (bound, least));
            assert!(after(least, true, Some(0.1), 5).part() < 1.0);
            assert_eq!(after(least, true, Some(0.1), 16), full, "after four seconds nobody is held back");
        }
    }

    #[test]
    fn threads_are_held_back_before_programs_are() {
        let waited = Some(0.3);
        assert!(!Ease::of_threads().after(true, waited).is_full());
        assert!(Ease::of_programs().after(true, waited).is_full());
    }

    #[test]
    fn it_does_not_fall_without_a_word_of_the_kernel_nor_for_one_tenant_and_bears_a_short_rest() {
        for (full, _) in BOTH {
            let full = full();
            assert_eq!((after(full, true, None, 9), after(full, false, Some(1.0), 9)), (full, full));
            let least = after(full, true, Some(0.9), 20);
            let back = least.after(false, Some(0.9)).after(false, None);
            assert!(back.part() < 0.4, "{back:?}");
            assert_eq!(after(least, true, None, 16), full, "the kernel has stopped telling");
        }
    }
}
