//! What a probe is asked and answers: a container's confinement as it is seen from inside.
//!
//! It must never hold a judgement: the daemon has that.

use serde::{Deserialize, Serialize};

/// What must not be had: more than this is tried to be taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quotas {
    /// Bytes of `/data`.
    pub data: u64,
    /// Entries of `/data`.
    pub data_inodes: u64,
    /// Bytes of `/tmp`.
    pub tmp: u64,
}

/// What could be taken where a quota is said to be.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Taken {
    /// Bytes or entries, a little more than the quota at most.
    pub amount: u64,
    /// The errno that was the end of it: `ENOSPC` is right, 0 means that there was none.
    pub errno: i32,
}

/// [`Quotas`], tried out.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Filled {
    /// Bytes of `/data`.
    pub data: Taken,
    /// Entries of `/data`.
    pub data_inodes: Taken,
    /// Bytes of `/tmp`.
    pub tmp: Taken,
}

/// What a control group allows, as far as it can be seen from inside.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Allowed {
    /// Its file is not there.
    #[default]
    Unseen,
    /// As much as there is.
    All,
    /// So much.
    UpTo(u64),
}

/// Whether the kernel charges the container for memory of its own that programs make it use; `None` where that could
/// not be measured. What it does not charge no container's limit bounds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Charged {
    /// Bytes that wait in TCP sockets.
    pub sockets: Option<bool>,
    /// Byte-range locks of files.
    pub locks: Option<bool>,
}

/// What a process inside the container can see of its own confinement.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Facts {
    /// Real, effective, saved UID.
    pub uids: [u32; 3],
    /// Real, effective, saved GID.
    pub gids: [u32; 3],
    /// Supplementary groups.
    pub groups: Vec<u32>,
    /// All capability sets, or-ed: 0 is right.
    pub capabilities: u64,
    /// `NoNewPrivs` of /proc/self/status.
    pub no_new_privs: bool,
    /// `Seccomp` of /proc/self/status: 2 is a filter.
    pub seccomp: u32,
    /// Network interfaces, without `lo`.
    pub interfaces: Vec<String>,
    /// The errno of creating a file in `/`: `EROFS` is right, 0 means that it was created.
    pub root_write_errno: i32,
    /// Whether `/` is mounted read-only.
    pub root_read_only: bool,
    /// Size of `/data` in bytes.
    pub data_bytes: u64,
    /// Inodes of `/data`.
    pub data_inodes: u64,
    /// The errno of making a file in `/data`; 0: it was made, and is gone again.
    pub data_write_errno: i32,
    /// Whether the three mounts are one file system.
    pub data_aliases: bool,
    /// Size of `/tmp` in bytes.
    pub tmp_bytes: u64,
    /// System calls that must be refused, and the errno that each gave (0: it went through).
    pub refused: Vec<(String, i32)>,
    /// The limit of core dumps, soft and hard, after an attempt to change it: 1 and 1 is right.
    pub core_limit: [u64; 2],
    /// The kernel's `core_pattern`; empty where it cannot be read.
    pub core_pattern: String,
    /// Whether a System V segment is still there when the process that made it is gone.
    pub segments_stay: bool,
    /// Terminals that `/dev/pts` gives out.
    pub terminals: Allowed,
    /// Landlock's ABI version, 0 where there is none.
    pub landlock: u32,
    /// Whether a process may listen to another's system calls (seccomp's user notification).
    pub notification: bool,
    /// What a [`FilePolicy`](crate::FilePolicy) lacks here to be enforced; `None`: nothing.
    pub policies_lack: Option<String>,
    /// Bytes of memory.
    pub memory: Allowed,
    /// Bytes of swap.
    pub swap: Allowed,
    /// Processes and threads.
    pub pids: Allowed,
    /// Thousandths of a processor.
    pub cpu_milli: Allowed,
    /// What UID 0 in here is outside: not 0 where the engine maps users.
    pub outer_root: u32,
    /// What a security module (AppArmor, SELinux) calls this process; empty without one.
    pub label: String,
    /// What could be taken, where that was asked.
    pub filled: Option<Filled>,
    /// What is charged, where that was asked.
    pub charged: Charged,
}
