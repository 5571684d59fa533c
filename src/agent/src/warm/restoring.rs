//! Whether the next part of a container is restored from its snapshot, or imports its libraries. Pure.
//!
//! It must never blame a snapshot for what code may have done: code can kill a part at any moment.

/// After so many restored parts in a row that died without a run, the next one imports.
const TRIES: u32 = 3;

/// How a restored part ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RestoredEnd {
    /// It said that it cannot be restored.
    Failed,
    /// It never stood, and did not say why.
    NeverStood,
    /// It stood, and died.
    Died,
}

/// What has become of the restored parts so far.
#[derive(Debug)]
pub(super) struct Restoring {
    /// Parts in a row that died without a run.
    failures: u32,
    is_over: bool,
}

impl Restoring {
    /// `possible`: the container has a snapshot.
    pub(super) fn new(possible: bool) -> Self {
        Self { failures: 0, is_over: !possible }
    }

    /// Whether the next part is restored.
    pub(super) fn goes_on(&self) -> bool {
        !self.is_over
    }

    /// A restored part ended. `had_run`: a run has begun while it stood or loaded; `code_ran`: one has begun
    /// in this container, ever. Whether this was the last one, so that the next part imports.
    pub(super) fn ended(&mut self, how: RestoredEnd, had_run: bool, code_ran: bool) -> bool {
        match how {
            RestoredEnd::Failed => self.is_over = true,
            RestoredEnd::NeverStood if !code_ran => self.is_over = true,
            RestoredEnd::Died if had_run => self.failures = 0,
            RestoredEnd::NeverStood | RestoredEnd::Died => self.failures += 1,
        }
        self.is_over |= self.failures >= TRIES;
        self.is_over
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_that_says_no_or_never_stands_is_the_last_one() {
        assert!(!Restoring::new(false).goes_on());
        for how in [RestoredEnd::Failed, RestoredEnd::NeverStood] {
            let mut restoring = Restoring::new(true);
            assert!(restoring.goes_on() && restoring.ended(how, false, false), "{how:?}");
            assert!(!restoring.goes_on());
        }
    }

    #[test]
    fn parts_that_die_again_and_again_without_a_run_are_given_up() {
        let mut restoring = Restoring::new(true);
        assert!(!restoring.ended(RestoredEnd::Died, false, false));
        assert!(!restoring.ended(RestoredEnd::Died, false, false));
        assert!(restoring.ended(RestoredEnd::Died, false, false));
    }

    #[test]
    fn code_that_kills_parts_does_not_end_restoring_unless_they_have_no_runs() {
        let mut restoring = Restoring::new(true);
        for _ in 0..10 {
            assert!(!restoring.ended(RestoredEnd::Died, true, true), "each had a run");
        }
        assert!(!restoring.ended(RestoredEnd::NeverStood, true, true), "code may have killed it");
        assert!(!restoring.ended(RestoredEnd::NeverStood, false, true));
        assert!(restoring.ended(RestoredEnd::NeverStood, false, true));
    }
}
