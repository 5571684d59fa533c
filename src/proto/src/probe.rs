//! The question and the answer of a probe: how a container is confined, seen from inside.
//!
//! It must never contain a judgement: the daemon judges.

use serde::{Deserialize, Serialize};

/// Bounds that a probe tries to exceed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quotas {
    /// Bytes of `/data`.
    pub data: u64,
    /// Entries of `/data`.
    pub data_inodes: u64,
    /// Bytes of `/tmp`.
    pub tmp: u64,
}

/// How much a probe could take where there should be a quota.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Taken {
    /// Bytes or entries; at most a little more than the quota.
    pub amount: u64,
    /// The errno that ended it: `ENOSPC` is right, 0 means that nothing ended it.
    pub errno: i32,
}

/// What a probe could take of each of the [`Quotas`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Filled {
    /// Bytes of `/data`.
    pub data: Taken,
    /// Entries of `/data`.
    pub data_inodes: Taken,
    /// Bytes of `/tmp`.
    pub tmp: Taken,
}

/// What a control group allows, as seen from inside.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Allowed {
    /// Its file is not there.
    #[default]
    Unseen,
    /// No limit.
    All,
    /// This much.
    UpTo(u64),
}

/// Whether the kernel charges the container for kernel memory that its programs make the kernel use; `None`
/// where that could not be measured. Memory that is not charged is bounded by no container's limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Charged {
    /// Unread bytes in TCP sockets.
    pub sockets: Option<bool>,
    /// Byte-range locks of files.
    pub locks: Option<bool>,
}

/// What a process in the container found of ways out. Where there is no network, nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outside {
    /// What was tried, and the errno that refused it at once (0: nothing refused it).
    pub tries: Vec<(String, i32)>,
    /// The first routes over other interfaces than `lo`.
    pub routes: Vec<String>,
}

/// What a process in the container found of the network inside.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Inside {
    /// The errno of a TCP connection to a listener of its own on 127.0.0.1; 0 means that it was made.
    pub loopback_errno: i32,
    /// The addresses that `/etc/hosts` gives to `localhost`.
    pub localhost: Vec<String>,
    /// The name servers of `/etc/resolv.conf`.
    pub name_servers: Vec<String>,
}

/// The machine, as far as the snapshot of a warm part depends on it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// The kernel's release (uname).
    pub kernel: String,
    /// The architecture (uname).
    pub architecture: String,
    /// The models of the processors and what they can do: the different lines of /proc/cpuinfo that say so.
    pub processor: String,
}

/// How a process inside the container is confined, as it sees it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProbeReport {
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
    /// Ways out that were tried.
    pub outside: Outside,
    /// The network inside.
    pub inside: Inside,
    /// The errno of creating a file in `/`: `EROFS` is right, 0 means that the file was created.
    pub root_write_errno: i32,
    /// Whether `/` is mounted read-only.
    pub root_read_only: bool,
    /// Size of `/data` in bytes.
    pub data_bytes: u64,
    /// Bytes of `/data` that are free: where it lies on a disk, those of the disk.
    pub data_free: u64,
    /// Inodes of `/data`.
    pub data_inodes: u64,
    /// The errno of making a file in `/data`; 0 means that it was made (and removed again).
    pub data_write_errno: i32,
    /// Whether `/data` and its two other mounts are one file system.
    pub data_aliases: bool,
    /// Size of `/tmp` in bytes.
    pub tmp_bytes: u64,
    /// System calls that must be refused, and the errno that each gave (0: it was not refused).
    pub refused: Vec<(String, i32)>,
    /// Files of /proc about the whole host that could be read, though the engine was asked to mask them.
    pub host_files: Vec<String>,
    /// The limit of core dumps, soft and hard, after an attempt to change it: 1 and 1 is right.
    pub core_limit: [u64; 2],
    /// The kernel's `core_pattern`; empty where it cannot be read.
    pub core_pattern: String,
    /// Whether a System V segment outlives the process that made it.
    pub segments_stay: bool,
    /// Terminals that `/dev/pts` gives out.
    pub terminals: Allowed,
    /// Landlock's ABI version, 0 where there is none.
    pub landlock: u32,
    /// Whether a process may listen to another's system calls (seccomp's user notification).
    pub notification: bool,
    /// Whether Landlock keeps the programs of one run out of the memory of another.
    pub separates: bool,
    /// What PID 1 lacks to be told of the `connect`s of programs; `None`: nothing. It listens for names then
    /// ([`Hello::listen_ports`](crate::Hello::listen_ports)).
    pub connects_lack: Option<String>,
    /// What this container lacks to enforce a [`FilePolicy`](crate::FilePolicy); `None`: nothing.
    pub policies_lack: Option<String>,
    /// Bytes of memory.
    pub memory: Allowed,
    /// Bytes of swap.
    pub swap: Allowed,
    /// Processes and threads.
    pub pids: Allowed,
    /// Thousandths of a processor.
    pub cpu_milli: Allowed,
    /// The user outside that is UID 0 in here: not 0 where the engine maps users.
    pub outer_root: u32,
    /// What a security module (AppArmor, SELinux) calls this process; empty without one.
    pub label: String,
    /// The machine.
    pub machine: Machine,
    /// What could be taken, where quotas were given.
    pub filled: Option<Filled>,
    /// What is charged, where quotas were given.
    pub charged: Charged,
}
