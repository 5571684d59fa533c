//! The control groups of a container, where this machine has them: what the container weighs, and the
//! processors on which its programs may run. They are read and written within microseconds. An engine takes
//! tens of milliseconds for each change, and while the processors are short it answers seconds later, since
//! it is starting containers.
//!
//! It must never write to a group that belongs to anything else. An engine names the group of a container by
//! the container's whole id, which no other container of any engine has.

pub(super) mod processors;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use self::processors::Processors;
use super::core::CpusetSight;
use crate::engine::ContainerId;
use crate::tenants::confine::Confinement;
use crate::tenants::weigh::{LEAST, WHOLE};

/// The two versions of control groups ([cgroups(7)]): where they are mounted, the file of a group that has
/// its weight, the weight of a group that nobody has weighed, and the least one.
///
/// [cgroups(7)]: https://man7.org/linux/man-pages/man7/cgroups.7.html
const VERSIONS: [Version; 2] = [
    Version { mounted: "cpu", sets: "cpuset", file: "cpu.shares", whole: 1024, least: 2 },
    Version { mounted: "", sets: "", file: "cpu.weight", whole: 100, least: 1 },
];

#[derive(Debug, Clone, Copy)]
struct Version {
    mounted: &'static str,
    /// Where the groups of cpusets are mounted.
    sets: &'static str,
    file: &'static str,
    whole: u64,
    least: u64,
}

/// The control groups of one container: in the first version each kind of bound has its own.
#[derive(Debug)]
pub(super) struct ContainerGroup {
    processors: Option<Processors>,
    file: PathBuf,
    version: Version,
    /// What was last written to the file, and the CPU shares that it stands for.
    written: Option<(u64, u64)>,
}

impl ContainerGroup {
    /// The group of this container, if it is below `mounted` (`/sys/fs/cgroup`) at one of the places where
    /// engines make such groups, and says how much it weighs. Nobody has changed it yet if it `is_new`.
    pub(super) fn of(container: &ContainerId, is_new: bool, mounted: &Path) -> Option<Self> {
        VERSIONS.into_iter().find_map(|version| {
            let within = mounted.join(version.mounted);
            let place = places(container)
                .into_iter()
                .find(|place| within.join(place).join(version.file).is_file())?;
            let file = within.join(&place).join(version.file);
            let processors = Processors::of(&mounted.join(version.sets).join(&place), is_new);
            Some(Self { processors, file, version, written: None })
        })
    }

    /// How much it weighs now, in CPU shares: [`WHOLE`] if nobody has weighed it. systemd writes the weights
    /// of its groups again when it reloads its units, so what was written may have been undone.
    pub(super) fn weighs(&self) -> io::Result<u64> {
        let text = fs::read_to_string(&self.file)?;
        let weight =
            text.trim().parse().map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        Ok(match self.written {
            Some((written, shares)) if written == weight => shares,
            _ => (u64::saturating_mul(weight, WHOLE) / self.version.whole).max(LEAST),
        })
    }

    /// Gives it so many CPU shares.
    pub(super) fn weigh(&mut self, shares: u64) -> io::Result<()> {
        let weight = (shares * self.version.whole / WHOLE).max(self.version.least);
        fs::write(&self.file, weight.to_string())?;
        self.written = Some((weight, shares));
        Ok(())
    }

    /// The processors on which its programs may run while they are not confined; `None` if they cannot be.
    pub(super) fn processors(&self) -> Option<&[usize]> {
        self.processors.as_ref().map(Processors::all)
    }

    /// On which of these its programs may run now.
    pub(super) fn cpuset(&self) -> CpusetSight {
        self.processors.as_ref().map_or(CpusetSight::Unread, Processors::cpuset)
    }

    /// Lets its programs run on these of its processors only.
    pub(super) fn confine(&self, to: Confinement) -> io::Result<()> {
        self.processors.as_ref().map_or(Ok(()), |processors| processors.confine(to))
    }
}

/// Where engines make the group of a container: Docker below the parent `/`, below its default parent, and
/// with systemd; Podman with systemd, and without.
fn places(container: &ContainerId) -> [String; 5] {
    let id = container.as_str();
    [
        id.to_owned(),
        format!("docker/{id}"),
        format!("system.slice/docker-{id}.scope"),
        format!("machine.slice/libpod-{id}.scope"),
        format!("libpod_parent/libpod-{id}"),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn container() -> ContainerId {
        "0123456789abcdef".repeat(4).parse().expect("an id")
    }

    /// A mounted tree with one group.
    fn tree(group: &str, file: &str, weight: &str) -> tempfile::TempDir {
        let mounted = tempfile::tempdir().expect("a folder");
        let group = mounted.path().join(group.replace("ID", container().as_str()));
        fs::create_dir_all(&group).expect("a group");
        fs::write(group.join(file), weight).expect("a file");
        mounted
    }

    #[test]
    fn groups_of_both_versions_are_found_where_engines_make_them() {
        for place in [
            "ID",
            "docker/ID",
            "system.slice/docker-ID.scope",
            "machine.slice/libpod-ID.scope",
            "libpod_parent/libpod-ID",
        ] {
            for (within, file, whole) in [("cpu/", "cpu.shares", "1024\n"), ("", "cpu.weight", "100\n")] {
                let mounted = tree(&format!("{within}{place}"), file, whole);
                let group = ContainerGroup::of(&container(), true, mounted.path()).expect("a group");
                assert_eq!(group.weighs().expect("a weight"), WHOLE, "{place}");
            }
        }
        let other = tree(&"f".repeat(64), "cpu.weight", "100\n");
        assert!(ContainerGroup::of(&container(), true, other.path()).is_none());
        let without = tree("docker/ID", "memory.max", "max\n");
        assert!(
            ContainerGroup::of(&container(), true, without.path()).is_none(),
            "nobody weighs processors there"
        );
    }

    #[test]
    fn what_was_written_is_what_it_weighs_until_somebody_else_writes() {
        for (place, file, of_a_quarter) in [("cpu/ID", "cpu.shares", "256"), ("ID", "cpu.weight", "25")] {
            let mounted = tree(place, file, "whatever");
            let mut group = ContainerGroup::of(&container(), true, mounted.path()).expect("a group");
            assert_eq!(group.weighs().expect_err("no number").kind(), io::ErrorKind::InvalidData);
            group.weigh(WHOLE / 4).expect("written");
            assert_eq!(fs::read_to_string(&group.file).expect("a file"), of_a_quarter);
            for shares in [LEAST, LEAST + 1, 17, WHOLE / 3, WHOLE] {
                group.weigh(shares).expect("written");
                assert_eq!(
                    group.weighs().expect("a weight"),
                    shares,
                    "coarser steps of a version are no change"
                );
            }
            fs::write(&group.file, of_a_quarter).expect("written");
            assert_eq!(group.weighs().expect("a weight"), WHOLE / 4);
            drop(mounted);
            assert_eq!(group.weighs().expect_err("gone").kind(), io::ErrorKind::NotFound);
            group.weigh(WHOLE).expect_err("gone");
        }
    }
}
