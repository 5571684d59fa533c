//! What earlier daemons left on the engine and no daemon removes by itself: the agent's volumes of other
//! builds, and the snapshots of other stores.
//!
//! It must never remove anything: another daemon of the engine may need it again.

use super::check::{Check, Checks, Group};
use crate::config::Config;
use crate::engine::{Engine, EngineError, VolumeName};
use crate::pool::{AgentError, PoolConfig, trial};

const NAME: &str = "leftovers";
const SNAPSHOTS: &str = "snapshots of others";

/// Volumes that one line names; more are for the command that finds all.
const NAMED: usize = 8;

/// What no container has.
pub(super) struct Leftovers {
    /// The agent's volumes, but for the one of this build.
    agents: Result<Vec<VolumeName>, AgentError>,
    /// The snapshots that daemons of other stores made.
    snapshots: Result<Vec<VolumeName>, EngineError>,
}

pub(super) async fn look(engine: &Engine, pool: &PoolConfig, config: &Config) -> Leftovers {
    let owner = std::fs::read_to_string(config.store.root.join("owner")).ok();
    Leftovers {
        agents: trial::unused_agents(engine, pool).await,
        snapshots: trial::unused_snapshots(engine, owner.as_deref().map(str::trim)).await,
    }
}

/// No warnings: they do no harm, and the daemon of their build or store makes its own again.
pub(super) fn judge(found: &Leftovers) -> Vec<Check> {
    let mut checks = Checks::of(Group::Images);
    checks.ok(NAME, match &found.agents {
        Err(error) => format!("the agent's volumes of other builds cannot be listed: {error}"),
        Ok(names) if names.is_empty() => "no volume of the agent is left over from another build".to_owned(),
        Ok(names) => {
            let (command, more) = removal(names);
            format!(
                "no container has these volumes of the agents of other builds; {command} removes them{more}"
            )
        }
    });
    match &found.snapshots {
        Err(error) => {
            checks.ok(SNAPSHOTS, format!("the snapshots of other stores cannot be listed: {error}"))
        }
        Ok(names) if names.is_empty() => {}
        Ok(names) => {
            let (command, more) = removal(names);
            checks.ok(
                SNAPSHOTS,
                format!(
                    "daemons with other stores left these snapshots of warm parts, and no container has \
                     them; if those stores are gone, {command} removes them{more}"
                ),
            );
        }
    }
    checks.done()
}

/// The command that removes these volumes, and how many more there are.
fn removal(names: &[VolumeName]) -> (String, String) {
    let named: Vec<_> = names.iter().take(NAMED).map(VolumeName::as_str).collect();
    let more = match names.len().checked_sub(NAMED) {
        None | Some(0) => String::new(),
        Some(more) => format!(" (and {more} more)"),
    };
    (format!("`docker volume rm {}`", named.join(" ")), more)
}

#[cfg(test)]
mod tests {
    use super::super::check::tests::lacks;
    use super::*;

    fn names(kind: &str, count: usize) -> Vec<VolumeName> {
        (0..count).map(|n| format!("paddock-{kind}-{n}").parse().expect("a name")).collect()
    }

    fn said(agents: usize, snapshots: usize) -> Vec<String> {
        let found =
            Leftovers { agents: Ok(names("agent", agents)), snapshots: Ok(names("snapshot", snapshots)) };
        let checks = judge(&found);
        assert_eq!(lacks(&checks), [], "they are no defect");
        checks.into_iter().map(|check| check.found).collect()
    }

    #[test]
    fn the_command_that_removes_them_names_the_volumes() {
        assert!(said(0, 0)[0].starts_with("no volume"), "{:?}", said(0, 0));
        assert!(said(2, 0)[0].contains("`docker volume rm paddock-agent-0 paddock-agent-1` removes them"));
        assert!(!said(NAMED, 0)[0].contains("more"), "{:?}", said(NAMED, 0));
        assert!(said(NAMED + 3, 0)[0].ends_with("(and 3 more)"), "{:?}", said(NAMED + 3, 0));
    }

    #[test]
    fn snapshots_of_other_stores_are_named_if_there_are_any() {
        assert_eq!(said(0, 0).len(), 1);
        let said = said(0, 1);
        assert!(said[1].contains("`docker volume rm paddock-snapshot-0` removes them"), "{said:?}");
        assert!(said[1].contains("if those stores are gone"), "{said:?}");
    }
}
