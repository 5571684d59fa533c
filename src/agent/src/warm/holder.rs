//! A process that has the memory of a program beside it, and frees it after its end.
//!
//! It is as untrusted as the program, which can make it run whatever it wants: it counts for nothing only while it stands
//! still and whoever could wake it is dead, or once it was killed when it did. It must never be taken for another that has
//! its PID later.

use crate::tree::{self, Known};

/// Such a process, as it was when the program was still to come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Holder {
    is: Known,
    /// KiB of mappings that are not memory of the process's own.
    mapped: u64,
}

impl Holder {
    /// The process that a child of `part` named, if it is another child of it.
    pub(super) fn of(part: i32, pid: i32) -> Option<Self> {
        let is = Known::look(pid).filter(|known| known.parent() == part)?;
        Some(Self { is, mapped: mapped(pid)? })
    }

    /// Whether this is it.
    pub(super) fn is(self, pid: i32) -> bool {
        self.is.is(pid)
    }

    /// Whether it does nothing unless another wakes it.
    pub(super) fn is_still(self) -> bool {
        tree::is_still(self.is.pid())
    }

    /// Whether it has nothing that anyone could miss but memory: a mapped file is open, locked, and takes its room, for as
    /// long as it is mapped.
    pub(super) fn has_memory_only(self) -> bool {
        mapped(self.is.pid()) == Some(self.mapped)
    }

    pub(super) fn kill(self) {
        if self.is(self.is.pid()) {
            tree::kill(&[self.is.pid()]);
        }
    }
}

/// All that is mapped, without what is private and can be written to, and code: by proc_pid_status(5), in KiB. A file can
/// hardly be mapped without changing this, which the kernel counts anyway.
fn mapped(pid: i32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let kib = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim_start_matches(':').trim().trim_end_matches(" kB").parse::<u64>().ok()
    };
    let own = kib("VmData")? + kib("VmStk")? + kib("VmExe")? + kib("VmLib")?;
    kib("VmSize")?.checked_sub(own)
}
