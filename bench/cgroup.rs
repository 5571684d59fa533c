//! What the kernel charged to one container: its memory, its processor time and its page faults, from the
//! files of its control group, version 1 or 2.
//!
//! Work that the kernel does for a container (forks, faults, the end of processes) is in it, and all
//! processes that have ended are. It must never take a group that is not the container's own: a figure of a
//! parent would be that of all containers.

use std::path::{Path, PathBuf};

use paddock::engine::{ContainerId, Engine};

use crate::Result;

/// The control groups of a container.
pub(crate) struct ControlGroup {
    id: ContainerId,
    version: Version,
}

enum Version {
    One { memory: PathBuf, cpu: PathBuf },
    Two(PathBuf),
}

/// Memory that is charged to a container, in bytes.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Memory {
    /// Of its processes alone: no file stands behind it.
    pub(crate) anonymous: f64,
    pub(crate) swap: f64,
    /// Files in `/data`, `/tmp` and `/dev/shm`.
    pub(crate) tmpfs: f64,
    /// Pages of files on a disk, which the kernel can drop. All containers share them; the kernel
    /// charges each page to the container that read it first.
    pub(crate) cache: f64,
    /// Page tables, stacks, sockets.
    pub(crate) kernel: f64,
}

/// What a container has used since it was made.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Used {
    /// Microseconds of processor.
    pub(crate) cpu: f64,
    pub(crate) faults: f64,
}

/// The groups of all running containers with this label.
pub(crate) async fn of_label(engine: &Engine, label: &str) -> Result<Vec<ControlGroup>> {
    let mut all = Vec::new();
    for container in engine.container_list(&[label.to_owned()]).await? {
        let pid = engine.container_inspect(&container.id).await?.state.pid;
        // A container that the engine makes or removes at this moment has no process.
        if pid > 0 {
            all.push(ControlGroup { version: version(pid)?, id: container.id });
        }
    }
    Ok(all)
}

/// The groups of a process, as the host's `/proc` names them.
fn version(pid: i64) -> Result<Version> {
    let file = format!("/proc/{pid}/cgroup");
    let text = std::fs::read_to_string(&file).map_err(|error| format!("{file}: {error}"))?;
    let path = |controller: &str| {
        text.lines().find_map(|line| {
            let (names, path) = line.split_once(':')?.1.split_once(':')?;
            names.split(',').any(|name| name == controller).then(|| path.to_owned())
        })
    };
    let at = |mount: PathBuf, path: &str| {
        // `/..` names a group outside of what this process may see, and the root group has all processes.
        if path.len() < 2 || path.contains("/..") {
            return Err(format!("{file} names the group {path:?}, which is no container's"));
        }
        Ok(mount.join(path.trim_start_matches('/')))
    };
    let mounts = std::fs::read_to_string("/proc/self/mounts")?;
    if let Some((memory, cpu)) = path("memory").zip(path("cpuacct")) {
        let controller = |name| mount(&mounts, "cgroup", Some(name));
        let (memory, cpu) = (at(controller("memory")?, &memory)?, at(controller("cpuacct")?, &cpu)?);
        return Ok(Version::One { memory, cpu });
    }
    let path = path("").ok_or_else(|| format!("{file} names no group"))?;
    Ok(Version::Two(at(mount(&mounts, "cgroup2", None)?, &path)?))
}

/// Where a hierarchy is mounted; for version 1 the one with this controller.
fn mount(mounts: &str, kind: &str, controller: Option<&str>) -> Result<PathBuf> {
    let fits = |line: &str| {
        let fields: Vec<_> = line.split(' ').collect();
        let options = fields.get(3)?;
        let has = controller.is_none_or(|name| options.split(',').any(|option| option == name));
        (fields.get(2) == Some(&kind) && has).then(|| PathBuf::from(fields[1]))
    };
    let found = mounts.lines().find_map(fits);
    found.ok_or_else(|| format!("no {kind} with {controller:?} is mounted").into())
}

impl ControlGroup {
    pub(crate) fn id(&self) -> &ContainerId {
        &self.id
    }

    pub(crate) fn memory(&self) -> Result<Memory> {
        match &self.version {
            Version::One { memory, .. } => {
                let stat = Fields::read(&memory.join("memory.stat"))?;
                let tmpfs = stat.get("total_shmem")?;
                Ok(Memory {
                    anonymous: stat.get("total_rss")?,
                    // Without accounting of swap there is no such line.
                    swap: stat.get("total_swap").unwrap_or(0.0),
                    tmpfs,
                    cache: stat.get("total_cache")? - tmpfs,
                    kernel: number(&memory.join("memory.kmem.usage_in_bytes"))?,
                })
            }
            Version::Two(group) => {
                let stat = Fields::read(&group.join("memory.stat"))?;
                let tmpfs = stat.get("shmem")?;
                let parts = ["kernel_stack", "pagetables", "percpu", "sock", "slab"];
                let sum = || parts.iter().filter_map(|name| stat.get(name).ok()).sum();
                Ok(Memory {
                    anonymous: stat.get("anon")?,
                    swap: number(&group.join("memory.swap.current")).unwrap_or(0.0),
                    tmpfs,
                    cache: stat.get("file")? - tmpfs,
                    kernel: stat.get("kernel").unwrap_or_else(|_| sum()), // a field since Linux 5.18
                })
            }
        }
    }

    pub(crate) fn used(&self) -> Result<Used> {
        Ok(match &self.version {
            Version::One { memory, cpu } => Used {
                cpu: number(&cpu.join("cpuacct.usage"))? / 1e3,
                faults: Fields::read(&memory.join("memory.stat"))?.get("total_pgfault")?,
            },
            Version::Two(group) => Used {
                cpu: Fields::read(&group.join("cpu.stat"))?.get("usage_usec")?,
                faults: Fields::read(&group.join("memory.stat"))?.get("pgfault")?,
            },
        })
    }
}

impl std::iter::Sum for Memory {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), |sum, one| Self {
            anonymous: sum.anonymous + one.anonymous,
            swap: sum.swap + one.swap,
            tmpfs: sum.tmpfs + one.tmpfs,
            cache: sum.cache + one.cache,
            kernel: sum.kernel + one.kernel,
        })
    }
}

/// A file of lines `name number`.
struct Fields {
    file: String,
    text: String,
}

impl Fields {
    fn read(file: &Path) -> Result<Self> {
        let name = file.display().to_string();
        let text = std::fs::read_to_string(file).map_err(|error| format!("{name}: {error}"))?;
        Ok(Self { file: name, text })
    }

    fn get(&self, name: &str) -> Result<f64> {
        let value =
            self.text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok());
        value.ok_or_else(|| format!("{} has no {name}", self.file).into())
    }
}

fn number(file: &Path) -> Result<f64> {
    let text = std::fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
    Ok(text.trim().parse()?)
}
