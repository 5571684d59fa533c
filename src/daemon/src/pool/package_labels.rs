//! How packages for the programs of a runner are fetched: by its image's labels, in containers of a runner of
//! its own.
//!
//! That runner must never run anything else, and no caller can name it.

use std::collections::BTreeMap;

use super::bounds::Bounds;
use super::disk::DataPlace;
use super::runner::{Runner, command};
use super::runner_terms::{FetchBounds, RunnerTerms};

/// The command that fetches packages.
const PACKAGES: &str = "sandbox.packages";
/// Whose packages they are, see [`Registry`].
const REGISTRY: &str = "sandbox.packages.registry";
/// What follows the name of a runner in the name of the one that fetches its packages. No image can have such
/// a name, so no caller can ask for it.
const FETCHER: &str = ":packages";
/// The least memory of what fetches packages: an installer unpacks and resolves in memory.
const FETCH_MEMORY: u64 = 1 << 29;

/// A registry of packages: whose names they have, and where they are by default.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Registry {
    /// The Python Package Index, or another index of that kind.
    PyPi,
    /// The registry of npm.
    Npm,
}

impl Registry {
    /// The word on an image's label.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::PyPi => "pypi",
            Self::Npm => "npm",
        }
    }

    fn of(label: &str) -> Option<Self> {
        [Self::PyPi, Self::Npm].into_iter().find(|registry| registry.as_str() == label)
    }
}

/// What an image's labels say of packages for its programs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PackageLabels {
    /// Whose packages.
    pub registry: Registry,
    /// The command that fetches them.
    pub fetch: Vec<String>,
}

impl Runner {
    /// The runner that fetches packages for the programs of this one: the same image, with room on the
    /// engine's disk.
    pub(super) fn fetcher(&self, bounds: &FetchBounds, terms: &RunnerTerms) -> Self {
        Self {
            language: fetcher_of(&self.language),
            warm: Vec::new(),
            snapshot_labels: None,
            snapshot: super::SnapshotMount::None,
            stdin: false,
            fetches: true,
            mounts: Vec::new(), // what it fetches is for everybody, and the host's folders are not
            bounds: Bounds {
                place: DataPlace::Disk(terms.disk),
                data: bounds.bytes,
                data_inodes: bounds.entries,
                file_size: bounds.bytes.max(self.bounds.file_size),
                memory: self.bounds.memory.max(FETCH_MEMORY),
                ..self.bounds.clone()
            },
            idle: 0,
            ..self.clone()
        }
    }
}

/// The name of the runner that fetches packages for the programs of this one.
pub fn fetcher_of(language: &str) -> String {
    format!("{language}{FETCHER}")
}

/// What the labels say of packages; `None` without any.
pub(super) fn packages(labels: &BTreeMap<String, String>) -> Option<Result<PackageLabels, String>> {
    let fetch = match command(labels.get(PACKAGES).filter(|label| !label.is_empty())?) {
        Ok(fetch) => fetch,
        Err(problem) => return Some(Err(format!("its label {PACKAGES} {problem}"))),
    };
    let registry = labels.get(REGISTRY).map_or("", String::as_str);
    Some(match Registry::of(registry) {
        Some(registry) => Ok(PackageLabels { registry, fetch }),
        None => Err(format!("its label {REGISTRY} is {registry:?}, expected pypi or npm")),
    })
}

#[cfg(test)]
impl Runner {
    /// A runner of the unit tests.
    pub(crate) fn example(language: &str) -> Self {
        Self {
            language: language.to_owned(),
            image: format!("paddock-runner-{language}"),
            image_id: format!("sha256:{}", "a".repeat(64)).parse().unwrap(),
            argv: vec!["/enter".to_owned()],
            env: Vec::new(),
            libraries: String::new(),
            stdin: false,
            typecheck: false,
            mounts: Vec::new(),
            warm: vec!["/warm".to_owned()],
            snapshot_labels: None,
            snapshot: crate::pool::SnapshotMount::None,
            volumes: Vec::new(),
            packages: None,
            fetches: false,
            coding_agent: false,
            agent_labels: super::runner::AgentLabels::default(),
            bounds: Bounds::example(),
            idle: 2,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::disk::DiskBound;
    use super::super::runner::is_language;
    use super::*;
    use crate::config::RunnerSettings;

    #[test]
    fn an_image_names_how_its_packages_are_fetched_and_gets_a_runner_that_does() {
        let labels = |all: &[(&str, &str)]| {
            all.iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect::<BTreeMap<_, _>>()
        };
        assert_eq!(packages(&labels(&[])), None);
        let good = packages(&labels(&[(PACKAGES, "[\"/fetch\"]"), (REGISTRY, "npm")])).unwrap().unwrap();
        assert_eq!(good, PackageLabels { registry: Registry::Npm, fetch: vec!["/fetch".into()] });
        for (command, registry, problem) in [
            ("fetch", "pypi", "JSON array"),
            ("[]", "pypi", "JSON array"),
            ("[\"/fetch\"]", "cran", "pypi or npm"),
        ] {
            let error = packages(&labels(&[(PACKAGES, command), (REGISTRY, registry)])).unwrap().unwrap_err();
            assert!(error.contains(problem), "{error}");
        }
        let terms = RunnerTerms {
            bounds: Bounds::example(),
            idle: 2,
            disk: DiskBound::Watched,
            coding_agents: RunnerSettings::default(),
            mounts: Vec::new(),
            runners: BTreeMap::new(),
            packages: None,
        };
        let python = Runner { packages: Some(good), ..Runner::example("python") };
        let fetcher = python.fetcher(&FetchBounds { bytes: 1 << 30, entries: 9 }, &terms);
        assert!(!is_language(&fetcher.language), "no caller can name it, and no image has its name");
        assert!(fetcher.fetches && fetcher.warm.is_empty() && fetcher.idle == 0);
        assert_eq!(fetcher.bounds.place, DataPlace::Disk(DiskBound::Watched));
        assert_eq!((fetcher.bounds.data, fetcher.bounds.data_inodes), (1 << 30, 9));
        assert_eq!(
            (&fetcher.bounds.runtime, fetcher.bounds.pids),
            (&python.bounds.runtime, python.bounds.pids)
        );
    }
}
