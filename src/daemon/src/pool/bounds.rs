//! The resources of one container, and the limit of its memory that follows from them.
//!
//! Everything that lies in memory must be part of that limit: files in memory, and a warm part.

use super::disk::DataPlace;
use super::runner::Runner;

/// Bytes of memory for a warm part: Python's is the largest of ours, some 100 MiB.
const WARM: u64 = 128 * 1024 * 1024;

/// The resources of one container; sizes in bytes.
#[derive(Debug, Clone, PartialEq)]
pub struct Bounds {
    /// Memory of programs, without what the file systems in memory may take.
    pub memory: u64,
    /// Cores.
    pub cpus: f64,
    /// Processes and threads.
    pub pids: u64,
    /// Size of `/data`.
    pub data: u64,
    /// Entries of `/data`.
    pub data_inodes: u64,
    /// Where `/data` lies.
    pub place: DataPlace,
    /// Bytes of `/data` that are saved, where it lies on a disk; a session's quota bounds them too.
    pub stored: u64,
    /// Size of `/tmp`.
    pub tmp: u64,
    /// Size of `/dev/shm`.
    pub shm: u64,
    /// Open files of one process.
    pub open_files: u64,
    /// Size of one file.
    pub file_size: u64,
    /// The OCI runtime, by the engine's name for it; empty for the engine's default.
    pub runtime: String,
}

impl Bounds {
    /// The cgroup's limit, since `/tmp`, shared memory and most `/data` are in memory too.
    pub fn total_memory(&self) -> u64 {
        let data = if self.place == DataPlace::Memory { self.data } else { 0 };
        self.memory.saturating_add(data).saturating_add(self.tmp).saturating_add(self.shm)
    }
}

#[cfg(test)]
impl Bounds {
    /// The bounds of the unit tests.
    pub(crate) fn example() -> Self {
        Bounds {
            memory: 1 << 29,
            cpus: 1.0,
            pids: 128,
            data: 1 << 28,
            data_inodes: 16_384,
            place: DataPlace::Memory,
            stored: 1 << 28,
            tmp: 1 << 26,
            shm: 1 << 24,
            open_files: 1024,
            file_size: 1 << 28,
            runtime: String::new(),
        }
    }
}

impl Runner {
    /// The memory limit of one container, in bytes: that of programs and file systems, and of a warm part.
    pub fn container_memory(&self) -> u64 {
        let warm = if self.warm.is_empty() { 0 } else { WARM };
        self.bounds.total_memory().saturating_add(warm)
    }
}
