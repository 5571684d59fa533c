//! How much of the daemon's own threads is left to tenants that use much of them, while the processors are
//! short and another tenant, which uses little, is at work. Pure: it reads no clock and no file.
//!
//! `pace` charges a tenant for the polls of its connections. But what a flood of calls causes beside them
//! has no tenant: the kernel's network, the disk, the clients if they run on this machine. All of that is
//! work for calls of the flood; so while the processors are short, less of the flood goes on. The kernel says
//! whether they are short (`/proc/pressure/cpu`): the part of the time in which something that could run
//! waited for a processor.
//!
//! It must never hold anybody back where the kernel does not say how short the processors are, nor so far
//! that nothing goes on: there is a least value.

/// The processors are short if something waited for one in more than this part of the time.
const SHORT: f64 = 0.35;
/// The ease after a time in which the processors were short, of what it was before.
const FALLS: f64 = 0.67;
/// The same where they were not.
const RISES: f64 = 1.2;
/// The least ease.
const LEAST: f64 = 0.125;

/// A part of what a tenant that uses much has of the threads otherwise: from [`LEAST`] to 1.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Ease(f64);

impl Default for Ease {
    fn default() -> Self {
        Self(1.0)
    }
}

impl Ease {
    /// The ease after a time in which something waited for a processor in this part of it, if the kernel has
    /// said so. If `is_shared`, several tenants were at work. Otherwise, and where the kernel says nothing,
    /// it rises: somebody who comes again after a short rest finds most of it as it was.
    #[must_use]
    pub(crate) fn after(self, is_shared: bool, waited: Option<f64>) -> Self {
        let factor = match waited {
            Some(waited) if is_shared && waited > SHORT => FALLS,
            _ => RISES,
        };
        Self((self.0 * factor).clamp(LEAST, 1.0))
    }

    /// Whether nobody is held back.
    pub(crate) fn is_full(self) -> bool {
        self == Self::default()
    }

    /// The part.
    pub(crate) fn part(self) -> f64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(ease: Ease, is_shared: bool, waited: Option<f64>, times: usize) -> Ease {
        (0..times).fold(ease, |ease, _| ease.after(is_shared, waited))
    }

    #[test]
    fn it_falls_while_the_processors_are_short_and_rises_to_full_afterwards() {
        let full = Ease::default();
        assert_eq!(after(full, true, Some(SHORT), 3), full, "they are not short");
        assert!(full.after(true, Some(0.9)).part() < 0.7);
        let least = after(full, true, Some(0.9), 20);
        assert_eq!((least.part(), after(least, true, Some(1.0), 9)), (LEAST, least));
        assert!(after(least, true, Some(0.1), 5).part() < 1.0);
        assert_eq!(after(least, true, Some(0.1), 12), full, "after three seconds nobody is held back");
    }

    #[test]
    fn it_does_not_fall_without_a_word_of_the_kernel_nor_for_one_tenant_and_bears_a_short_rest() {
        let full = Ease::default();
        assert_eq!((after(full, true, None, 9), after(full, false, Some(1.0), 9)), (full, full));
        let least = after(full, true, Some(0.9), 20);
        let back = least.after(false, Some(0.9)).after(false, None);
        assert!(back.part() < 0.4, "{back:?}");
        assert_eq!(after(least, true, None, 12), full, "the kernel has stopped telling");
    }
}
