//! What this machine's kernel says: how much a container weighs, and on which processors its programs and the
//! threads of the daemon may run. It must never ask the engine or the daemon.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::support::Daemon;

/// What this machine's kernel was told of a container, once it has started, in a file with the first of these
/// names, or in the second version of control groups with the second one.
fn told(id: &str, names: [&str; 2]) -> Option<String> {
    fn find(folder: &Path, id: &str, depth: u32) -> Option<PathBuf> {
        let folders = std::fs::read_dir(folder).ok()?.flatten().map(|entry| entry.path());
        let folders: Vec<_> = folders.filter(|path| path.is_dir() && !path.is_symlink()).collect();
        let is_its =
            |path: &&PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().contains(id));
        let found = folders.iter().find(is_its).cloned();
        found.or_else(|| folders.iter().filter(|_| depth > 0).find_map(|path| find(path, id, depth - 1)))
    }
    let mounted = Path::new("/sys/fs/cgroup");
    let kind = names[0].split_once('.').expect("a kind").0;
    let own = mounted.join(kind);
    let (mounted, name) = if own.is_dir() { (own.as_path(), names[0]) } else { (mounted, names[1]) };
    let told = std::fs::read_to_string(find(mounted, id, 3)?.join(name)).ok()?;
    Some(told.trim().to_owned())
}

/// The CPU shares of a container. In the second version of control groups they are computed from its weight,
/// which has coarser steps.
pub(super) fn shares(id: &str) -> Option<u64> {
    let told: u64 = told(id, ["cpu.shares", "cpu.weight"])?.parse().expect("a number");
    Some(if Path::new("/sys/fs/cgroup/cpu").is_dir() { told } else { told * 1024 / 100 })
}

/// What [`shares`] returns for a container that was given so many.
pub(super) fn in_steps(shares: u64) -> u64 {
    if Path::new("/sys/fs/cgroup/cpu").is_dir() { shares } else { (shares * 100 / 1024).max(1) * 1024 / 100 }
}

/// The processors on which the programs of a container may run.
pub(super) fn processors(id: &str) -> Option<String> {
    told(id, ["cpuset.effective_cpus", "cpuset.cpus.effective"])
}

/// The processors on which the threads of the daemon may run: one list if that is the same for all.
pub(super) fn processors_of(d: &Daemon) -> BTreeSet<String> {
    let folder = format!("/proc/{}/task", d.pid());
    let threads = std::fs::read_dir(folder).expect("threads").flatten();
    let status = threads.filter_map(|thread| std::fs::read_to_string(thread.path().join("status")).ok());
    let list = status.filter_map(|status| {
        let line = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
        Some(line.trim().to_owned())
    });
    list.collect()
}

/// The numbers of a list such as `0-3,8`.
pub(super) fn numbers(list: &str) -> BTreeSet<usize> {
    let ranges = list.split(',').map(|range| range.split_once('-').unwrap_or((range, range)));
    let number = |text: &str| text.parse::<usize>().expect("a number");
    ranges.flat_map(|(first, last)| number(first)..=number(last)).collect()
}
