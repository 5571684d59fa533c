//! How much of the processors the engine gets beside a container, or beside all containers.
//!
//! A dozen processes of the engine start a container. Where they weigh as much as a container each, the runs
//! of one tenant wait while containers of another one start (`deploy/README.md`, Several tenants).
//!
//! It only reads `/proc` and `/sys/fs/cgroup`. It must never say anything of an engine whose processes this
//! process cannot see.

use std::fs;
use std::path::{Path, PathBuf};

use crate::tenants::weigh::WHOLE;

/// The name of the process that containerd starts for each container, and that starts runc: it is in the
/// control group of the engine.
const SHIM: &str = "containerd-shim";

/// How the engine's processes and the containers are weighed against each other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EngineWeight {
    /// Nothing can be said: another machine, or an engine whose processes cannot be told.
    Unknown,
    /// The engine has a control group beside those of the containers, or beside one in which all of them are.
    Beside {
        /// Its group.
        group: String,
        /// Its CPU shares.
        engine: u64,
        /// Those of a container, or of the group of all containers.
        containers: u64,
        /// The group of all containers, where they are in one.
        common: Option<String>,
    },
    /// The engine is with others in this group, which is weighed as a whole against the containers.
    Within(String),
    /// The engine has none, so each process of it weighs as much as a whole container, or as all of them.
    Loose,
}

/// Looks at the engine that started the container with this first process.
pub(super) fn of(process: i64, proc: &Path, mounted: &Path) -> EngineWeight {
    look(process, proc, mounted).unwrap_or(EngineWeight::Unknown)
}

fn look(process: i64, proc: &Path, mounted: &Path) -> Option<EngineWeight> {
    let shim = parent(&proc.join(process.to_string()))?;
    let shim = proc.join(shim.to_string());
    if !fs::read_to_string(shim.join("comm")).ok()?.starts_with(SHIM) {
        return None;
    }
    let container = CpuGroup::of(&proc.join(process.to_string()))?;
    let engine = CpuGroup::of(&shim)?;
    if !container.is_mounted() || !engine.is_mounted() {
        return None;
    }
    let above: PathBuf =
        engine.path.iter().zip(&container.path).take_while(|(a, b)| a == b).map(|(part, _)| part).collect();
    let [beside, containers] = [&engine, &container].map(|group| group.child_of(&above));
    let Some(beside) = beside else { return Some(EngineWeight::Loose) };
    let (group, containers) = (beside.path.display().to_string(), containers?);
    if beside.path != engine.path {
        return Some(EngineWeight::Within(group));
    }
    let common = (containers.path != container.path).then(|| containers.path.display().to_string());
    let (engine, containers) = (engine.shares(mounted)?, containers.shares(mounted)?);
    Some(EngineWeight::Beside { group, engine, containers, common })
}

/// The parent of a process: the second field after its name, in which there may be any character
/// ([proc_pid_stat(5)]).
///
/// [proc_pid_stat(5)]: https://man7.org/linux/man-pages/man5/proc_pid_stat.5.html
fn parent(process: &Path) -> Option<u32> {
    let stat = fs::read_to_string(process.join("stat")).ok()?;
    let (_, fields) = stat.rsplit_once(')')?;
    fields.split_whitespace().nth(1)?.parse().ok()
}

/// The control group that bounds the processors of a process.
#[derive(Debug)]
struct CpuGroup {
    path: PathBuf,
    is_first_version: bool,
}

impl CpuGroup {
    /// From lines such as `1:cpu,cpuacct:/path` and, in the second version, `0::/path`.
    fn of(process: &Path) -> Option<Self> {
        let text = fs::read_to_string(process.join("cgroup")).ok()?;
        let groups = text.lines().filter_map(|line| {
            let mut fields = line.splitn(3, ':').skip(1);
            Some((fields.next()?, PathBuf::from(fields.next()?)))
        });
        let groups: Vec<_> = groups.collect();
        let of = |found: &dyn Fn(&str) -> bool| groups.iter().find(|(names, _)| found(names));
        if let Some((_, path)) = of(&|names| names.split(',').any(|name| name == "cpu")) {
            return Some(Self { path: path.clone(), is_first_version: true });
        }
        of(&str::is_empty).map(|(_, path)| Self { path: path.clone(), is_first_version: false })
    }

    /// The group directly below this one in which it is, if it is below it.
    fn child_of(&self, above: &Path) -> Option<Self> {
        let path = above.join(self.path.strip_prefix(above).ok()?.iter().next()?);
        Some(Self { path, is_first_version: self.is_first_version })
    }

    /// Whether it is below the group that is mounted, so that its files can be read and its place compared.
    fn is_mounted(&self) -> bool {
        !self.path.iter().any(|part| part == "..")
    }

    /// What it weighs, in the CPU shares of the first version: there a group that nobody has weighed has
    /// 1,024, in the second one a weight of 100.
    fn shares(&self, mounted: &Path) -> Option<u64> {
        let path = self.path.strip_prefix("/").ok()?;
        let (file, whole) = match self.is_first_version {
            true => (mounted.join("cpu").join(path).join("cpu.shares"), WHOLE),
            false => (mounted.join(path).join("cpu.weight"), 100),
        };
        let weight: u64 = fs::read_to_string(file).ok()?.trim().parse().ok()?;
        Some(weight.saturating_mul(WHOLE) / whole)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A machine with a container and the process that started it.
    struct Machine {
        starter: &'static str,
        engine: (&'static str, &'static str),
        container: (&'static str, &'static str),
        /// The group of all containers.
        common: Option<(&'static str, &'static str)>,
        is_first_version: bool,
    }

    const FLAT: Machine = Machine {
        starter: "containerd-shim\n",
        engine: ("/paddock-engine", "128\n"),
        container: ("/0123", "1024\n"),
        common: None,
        is_first_version: true,
    };

    const SYSTEMD: Machine = Machine {
        engine: ("/system.slice/containerd.service", "12\n"),
        container: ("/system.slice/docker-0123.scope", "100\n"),
        is_first_version: false,
        ..FLAT
    };

    fn found(machine: &Machine) -> EngineWeight {
        let Machine { starter, engine, container, common, is_first_version } = machine;
        let dir = tempfile::tempdir().expect("a folder");
        let (proc, mounted) = (dir.path().join("proc"), dir.path().join("cgroup"));
        let (within, file) = if *is_first_version { ("cpu", "cpu.shares") } else { ("", "cpu.weight") };
        for (process, stat, name, (group, _)) in [
            ("7", "7 (containerd-shim) S 1 7", *starter, engine),
            ("8", "8 (pid 1) of (it) S 7 8", "agent\n", container),
        ] {
            let line = match is_first_version {
                true => format!("9:memory:/elsewhere\n1:cpu,cpuacct:{group}\n0::/\n"),
                false => format!("0::{group}\n"),
            };
            let process = proc.join(process);
            fs::create_dir_all(&process).expect("a folder");
            for (file, text) in [("stat", stat), ("comm", name), ("cgroup", &line)] {
                fs::write(process.join(file), text).expect("a file");
            }
        }
        for (group, weighs) in [engine, container].into_iter().chain(common) {
            let group = mounted.join(within).join(group.trim_start_matches('/'));
            fs::create_dir_all(&group).expect("a folder");
            fs::write(group.join(file), weighs).expect("a file");
        }
        of(8, &proc, &mounted)
    }

    fn beside(group: &str, engine: u64, containers: u64, common: Option<&str>) -> EngineWeight {
        let (group, common) = (group.to_owned(), common.map(ToOwned::to_owned));
        EngineWeight::Beside { group, engine, containers, common }
    }

    #[test]
    fn a_group_beside_the_containers_is_compared_with_theirs() {
        let containerd = "/system.slice/containerd.service";
        assert_eq!(found(&FLAT), beside("/paddock-engine", 128, 1024, None));
        assert_eq!(found(&SYSTEMD), beside(containerd, 122, 1024, None));
        let container = ("/system.slice/docker-0123.scope", "39");
        assert_eq!(
            found(&Machine { container, ..SYSTEMD }),
            beside(containerd, 122, 399, None),
            "an old runc"
        );
        let more =
            found(&Machine { common: Some(("/docker", "2048")), container: ("/docker/0123", "2"), ..FLAT });
        assert_eq!(more, beside("/paddock-engine", 128, 2048, Some("/docker")));
    }

    #[test]
    fn an_engine_without_a_group_and_one_within_a_group_are_told_apart() {
        for container in ["/0123", "/docker/0123"] {
            let none = Machine { engine: ("/", "1024"), container: (container, "1024"), ..FLAT };
            assert_eq!(found(&none), EngineWeight::Loose);
        }
        let none = Machine { engine: ("/system.slice", "100"), ..SYSTEMD };
        assert_eq!(found(&none), EngineWeight::Loose);
        for container in ["/0123", "/docker/0123"] {
            let within = Machine { container: (container, "100"), ..SYSTEMD };
            assert_eq!(found(&within), EngineWeight::Within("/system.slice".into()));
        }
    }

    #[test]
    fn nothing_is_said_of_what_cannot_be_seen() {
        let other_engine = Machine { starter: "conmon\n", ..FLAT };
        assert_eq!(found(&other_engine), EngineWeight::Unknown);
        let no_number = Machine { container: ("/0123", "max"), ..FLAT };
        assert_eq!(found(&no_number), EngineWeight::Unknown);
        let above = Machine { engine: ("/../engine", "128"), ..FLAT };
        assert_eq!(
            found(&above),
            EngineWeight::Unknown,
            "the doctor has a control group namespace of its own"
        );
        let nothing = tempfile::tempdir().expect("a folder");
        assert_eq!(of(8, nothing.path(), nothing.path()), EngineWeight::Unknown);
    }
}
