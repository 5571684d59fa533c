//! What earlier daemons left on the engine and no daemon removes by itself: the agent's volumes of other
//! builds.
//!
//! It must never remove anything: another daemon of the engine may need it again.

use super::check::{Check, Checks, Group};
use crate::engine::{Engine, VolumeName};
use crate::pool::{AgentError, PoolConfig, trial};

/// Volumes that one line names; more are for the command that finds all.
const NAMED: usize = 8;

/// The agent's volumes that no container has, but for the one of this build.
pub(super) async fn look(engine: &Engine, pool: &PoolConfig) -> Result<Vec<VolumeName>, AgentError> {
    trial::unused_agents(engine, pool).await
}

pub(super) fn judge(found: &Result<Vec<VolumeName>, AgentError>) -> Vec<Check> {
    let mut checks = Checks::of(Group::Images);
    match found {
        Err(error) => {
            checks.ok("leftovers", format!("the agent's volumes of other builds cannot be listed: {error}"));
        }
        Ok(names) if names.is_empty() => {
            checks.ok("leftovers", "no volume of the agent is left over from another build");
        }
        Ok(names) => {
            let named: Vec<_> = names.iter().take(NAMED).map(VolumeName::as_str).collect();
            let more = match names.len().checked_sub(NAMED) {
                None | Some(0) => String::new(),
                Some(more) => format!(" (and {more} more)"),
            };
            // No warning: they do no harm, and a daemon of their build fills its own again.
            checks.ok(
                "leftovers",
                format!(
                    "no container has these volumes of the agents of other builds; `docker volume rm {}` \
                     removes them{more}",
                    named.join(" ")
                ),
            );
        }
    }
    checks.done()
}

#[cfg(test)]
mod tests {
    use super::super::check::tests::lacks;
    use super::*;

    fn said(count: usize) -> String {
        let names = (0..count).map(|n| format!("paddock-agent-{n}").parse().expect("a name")).collect();
        let checks = judge(&Ok(names));
        assert_eq!(lacks(&checks), [], "they are no defect");
        checks[0].found.clone()
    }

    #[test]
    fn the_command_that_removes_them_names_the_volumes() {
        assert!(said(0).starts_with("no volume"), "{}", said(0));
        assert!(said(2).contains("`docker volume rm paddock-agent-0 paddock-agent-1` removes them"));
        assert!(!said(NAMED).contains("more"), "{}", said(NAMED));
        assert!(said(NAMED + 3).ends_with("(and 3 more)"), "{}", said(NAMED + 3));
    }
}
