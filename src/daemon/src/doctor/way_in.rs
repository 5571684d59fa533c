//! How bytes reach a container, and the cost of the longer way.
//!
//! It must never call a way open that was not used.

use super::check::{Check, Checks, Group};
use crate::pool::trial::TrialCarrier;

/// Measured for the architecture page: 100 MiB sent, read and written, and fetched; 1,000 files; an `echo` in
/// `sh`.
const COSTS: &str = "large and many files take two to three times as long (100 MiB 1.1 s instead of 0.7, \
                     1,000 files 0.7 s instead of 0.2), a short run 2 ms more";

pub(super) fn judge(way: &TrialCarrier) -> Vec<Check> {
    let mut checks = Checks::of(Group::WayIn);
    let found = |why: &str| format!("all bytes go through the engine: {why}");
    match way {
        TrialCarrier::Direct => checks.ok("carrier", "bytes go to containers directly, past the engine"),
        TrialCarrier::Remote => checks.ok(
            "carrier",
            format!("{}; {COSTS}", found("it is reached by TCP, so it counts as another machine")),
        ),
        TrialCarrier::NotAllowed => checks.warn(
            "carrier",
            found("this process may not trace others (CAP_SYS_PTRACE)"),
            format!(
                "{COSTS}: run paddock as root, or with AmbientCapabilities=CAP_SYS_PTRACE; in a container \
                 with --pid=host --cap-add=SYS_PTRACE"
            ),
        ),
        TrialCarrier::Failed(why) => checks.warn(
            "carrier",
            found(why),
            format!(
                "{COSTS}: the direct way needs the engine's own kernel and PID namespace; a paddock in a \
                 container needs --pid=host --cap-add=SYS_PTRACE"
            ),
        ),
    }
    checks.done()
}

#[cfg(test)]
mod tests {
    use super::super::check::Status::Warn;
    use super::super::check::tests::lacks;
    use super::*;

    #[test]
    fn each_defect_gives_its_check_and_no_other() {
        assert_eq!(lacks(&judge(&TrialCarrier::Direct)), []);
        assert_eq!(lacks(&judge(&TrialCarrier::Remote)), []);
        assert_eq!(lacks(&judge(&TrialCarrier::NotAllowed)), [("carrier", Warn)]);
        let failed = judge(&TrialCarrier::Failed("no such process".into()));
        assert_eq!(lacks(&failed), [("carrier", Warn)]);
        assert!(failed[0].found.contains("no such process"));
    }
}
