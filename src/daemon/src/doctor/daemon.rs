//! What the running daemon of the store says of itself: everything that does not work at the moment, each
//! with what to do about it. Without a running daemon there is nothing to say.
//!
//! It must never start a daemon, nor wait for one that hangs.

use super::check::{Check, Checks, Group};
use crate::config::Config;
use crate::degradation::Degradation;
use crate::terminal::degraded_now;

const NAME: &str = "state";

/// What it says: the sentences of `/health`, or why it did not answer; `None` if none runs.
pub(super) type Told = Option<Result<Vec<String>, String>>;

pub(super) async fn look(config: &Config) -> Told {
    degraded_now(config.clone()).await
}

pub(super) fn judge(told: &Told) -> Vec<Check> {
    let mut checks = Checks::of(Group::Daemon);
    match told {
        None => {}
        Some(Err(why)) => checks.warn(
            NAME,
            format!("the running daemon does not say how it is: {why}"),
            "it may be starting, ending, or stuck; see its log",
        ),
        Some(Ok(degraded)) if degraded.is_empty() => {
            checks.ok(NAME, "the running daemon says that everything works");
        }
        Some(Ok(degraded)) => {
            for sentence in degraded {
                let found = format!("the running daemon says: {sentence}");
                match Degradation::of_sentence(sentence) {
                    Some(what) if what.prevents_runs() => checks.fail(what.name(), found, what.advice()),
                    Some(what) => checks.warn(what.name(), found, what.advice()),
                    None => checks.warn(NAME, found, "the daemon is of another version; its log says more"),
                }
            }
        }
    }
    checks.done()
}

#[cfg(test)]
mod tests {
    use super::super::check::Status;
    use super::*;

    #[test]
    fn every_degradation_is_a_check_of_its_own_with_its_advice() {
        for what in Degradation::ALL {
            let checks = judge(&Some(Ok(vec![what.sentence().to_owned()])));
            let [check] = checks.as_slice() else { panic!("{checks:?}") };
            let wanted = if what.prevents_runs() { Status::Fail } else { Status::Warn };
            assert_eq!((check.name, check.status), (what.name(), wanted));
            assert!(check.found.contains(what.sentence()), "{}", check.found);
            assert_eq!(check.advice.as_deref(), Some(what.advice()));
        }
    }

    #[test]
    fn a_daemon_that_is_well_silent_unknown_or_not_there_is_told_so() {
        assert!(judge(&None).is_empty());
        assert_eq!(judge(&Some(Ok(Vec::new())))[0].status, Status::Ok);
        let silent = judge(&Some(Err("it hangs".to_owned())));
        assert!(silent[0].status == Status::Warn && silent[0].found.ends_with("it hangs"), "{silent:?}");
        let newer = judge(&Some(Ok(vec!["the moon is full".to_owned()])));
        assert!(newer[0].status == Status::Warn && newer[0].found.ends_with("the moon is full"), "{newer:?}");
    }
}
