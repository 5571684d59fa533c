//! What the containers of each runner may use, and how many stand idle: the usual, what all coding agents
//! have instead, and what the operator set for one runner. Pure.
//!
//! It must never look at an image: whether a runner is a coding agent is decided in [`super::runner`].

use std::collections::BTreeMap;

use super::bounds::Bounds;
use super::disk::{DataPlace, DiskBound};
use super::mount::HostMount;
use crate::config::RunnerSettings;

/// The bounds and the idle containers of every runner, whether it has an image or not.
#[derive(Debug, Clone, PartialEq)]
pub struct RunnerTerms {
    /// The bounds of a language.
    pub bounds: Bounds,
    /// The idle containers of a language.
    pub idle: u32,
    /// What keeps the volumes of coding agents within their size on this engine.
    pub disk: DiskBound,
    /// What all coding agents have instead.
    pub coding_agents: RunnerSettings,
    /// What one runner has instead, by its name.
    pub runners: BTreeMap<String, RunnerSettings>,
    /// The folders of the host that containers have.
    pub mounts: Vec<HostMount>,
    /// What fetching packages may take on the engine's disk; `None` where no packages are fetched.
    pub packages: Option<FetchBounds>,
}

/// What fetching packages may take on the engine's disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FetchBounds {
    /// Bytes.
    pub bytes: u64,
    /// Files and directories.
    pub entries: u64,
}

impl RunnerTerms {
    /// The bounds and the number of idle containers of the runner of this name.
    pub(super) fn of(&self, name: &str, coding_agent: bool) -> (Bounds, u32) {
        let agents = coding_agent.then_some(&self.coding_agents);
        let layers = agents.into_iter().chain(self.runners.get(name));
        let place = if coding_agent { DataPlace::Disk(self.disk) } else { DataPlace::Memory };
        layers.fold((Bounds { place, ..self.bounds.clone() }, self.idle), |(bounds, idle), layer| {
            (overlaid(bounds, layer), layer.idle.unwrap_or(idle))
        })
    }

    /// The folders of the host that the containers of this runner have.
    pub(super) fn mounts_of(&self, name: &str, coding_agent: bool) -> Vec<HostMount> {
        self.mounts.iter().filter(|mount| mount.is_for(name, coding_agent)).cloned().collect()
    }

    /// The runtimes that containers ask for, each with the key that names it; the first is the usual one.
    pub(super) fn runtimes(&self) -> Vec<(String, String)> {
        let own = self.runners.iter().map(|(name, runner)| (format!("runners.{name}.runtime"), runner));
        let agents = ("coding_agents.runtime".to_owned(), &self.coding_agents);
        let named = std::iter::once(agents).chain(own);
        let named = named.filter_map(|(key, runner)| Some((key, runner.runtime.clone()?)));
        std::iter::once(("engine.runtime".to_owned(), self.bounds.runtime.clone())).chain(named).collect()
    }

    /// The images that the operator chose, by the name of the runner.
    pub(super) fn images(&self) -> BTreeMap<&str, &str> {
        self.runners
            .iter()
            .filter_map(|(name, runner)| Some((name.as_str(), runner.image.as_deref()?)))
            .collect()
    }
}

/// These bounds, with the values that are set put over them.
fn overlaid(bounds: Bounds, over: &RunnerSettings) -> Bounds {
    Bounds {
        memory: over.memory.unwrap_or(bounds.memory),
        cpus: over.cpus.unwrap_or(bounds.cpus),
        pids: over.pids.map_or(bounds.pids, u64::from),
        data: over.data.unwrap_or(bounds.data),
        data_inodes: over.data_inodes.map_or(bounds.data_inodes, u64::from),
        stored: over.stored.unwrap_or(bounds.stored),
        tmp: over.tmp.unwrap_or(bounds.tmp),
        open_files: over.open_files.map_or(bounds.open_files, u64::from),
        file_size: over.file_size.unwrap_or(bounds.file_size),
        runtime: over.runtime.clone().unwrap_or(bounds.runtime),
        ..bounds
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_runners_own_value_wins_over_that_of_coding_agents_and_that_over_the_usual() {
        let set = |memory: Option<u64>, pids: Option<u32>, idle: Option<u32>| RunnerSettings {
            memory,
            pids,
            idle,
            ..RunnerSettings::default()
        };
        let usual = Bounds::example();
        let terms = RunnerTerms {
            bounds: usual.clone(),
            idle: 2,
            disk: DiskBound::Hard,
            coding_agents: set(Some(10), Some(20), Some(0)),
            runners: BTreeMap::from([
                ("python".to_owned(), set(None, Some(30), Some(5))),
                ("codex".to_owned(), set(Some(40), None, None)),
            ]),
            mounts: Vec::new(),
            packages: None,
        };
        assert_eq!(terms.of("sh", false), (usual.clone(), 2));
        assert_eq!(terms.of("python", false), (Bounds { pids: 30, ..usual.clone() }, 5));
        let agents = Bounds { pids: 20, place: DataPlace::Disk(DiskBound::Hard), ..usual };
        assert_eq!(terms.of("opencode", true), (Bounds { memory: 10, ..agents.clone() }, 0));
        assert_eq!(terms.of("codex", true), (Bounds { memory: 40, ..agents }, 0));
        assert_eq!(terms.runtimes(), [("engine.runtime".to_owned(), String::new())]);
        let runsc = || RunnerSettings { runtime: Some("runsc".into()), ..RunnerSettings::default() };
        let mut more = terms;
        more.coding_agents = runsc();
        more.runners.insert("python".into(), runsc());
        let keys: Vec<_> = more.runtimes().into_iter().map(|(key, name)| format!("{key}={name}")).collect();
        assert_eq!(keys, ["engine.runtime=", "coding_agents.runtime=runsc", "runners.python.runtime=runsc"]);
        assert_eq!(more.of("python", false).0.runtime, "runsc");
        assert_eq!(more.of("sh", false).0.runtime, "");
    }

    #[test]
    fn every_value_of_a_runner_has_its_own_place_in_the_bounds() {
        let over = RunnerSettings {
            image: None,
            idle: Some(9),
            memory: Some(1),
            cpus: Some(2.0),
            pids: Some(3),
            data: Some(4),
            data_inodes: Some(5),
            tmp: Some(6),
            open_files: Some(7),
            file_size: Some(8),
            stored: Some(9),
            runtime: Some("kata".into()),
        };
        let usual = Bounds { runtime: "runsc".into(), ..Bounds::example() };
        let expected = Bounds {
            memory: 1,
            cpus: 2.0,
            pids: 3,
            data: 4,
            data_inodes: 5,
            tmp: 6,
            open_files: 7,
            file_size: 8,
            stored: 9,
            runtime: "kata".into(),
            ..usual.clone()
        };
        assert_eq!(overlaid(usual, &over), expected);
    }
}
