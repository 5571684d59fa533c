//! A holder: a second process on the memory of a program, so that the kernel frees that memory after the
//! run's answer.
//!
//! It is as untrusted as the program, which can make it run whatever it wants. PID 1 ignores it only while it
//! stands still and every process that could resume it is dead, or once PID 1 has killed it in that state. It
//! must never be taken for another process that has its PID later.

use crate::tree::{self, ProcessIdentity};

/// A holder, as it was before the program began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct MemoryHolder {
    identity: ProcessIdentity,
    /// KiB of mappings that are not memory of the process's own.
    mapped: u64,
}

impl MemoryHolder {
    /// The process with this PID, if it is a child of `part`.
    pub(super) fn of(part: i32, pid: i32) -> Option<Self> {
        let identity = ProcessIdentity::look(pid).filter(|process| process.parent() == part)?;
        Some(Self { identity, mapped: mapped(pid)? })
    }

    /// Whether the process that has this PID now is this one.
    pub(super) fn is(self, pid: i32) -> bool {
        self.identity.is(pid)
    }

    /// Whether it does nothing unless another process resumes it.
    pub(super) fn is_still(self) -> bool {
        tree::is_still(self.identity.pid())
    }

    /// Whether it has nothing but memory: a file that it has mapped stays open, locked, and on the disk.
    pub(super) fn has_memory_only(self) -> bool {
        mapped(self.identity.pid()) == Some(self.mapped)
    }

    pub(super) fn kill(self) {
        if self.is(self.identity.pid()) {
            tree::kill(&[self.identity.pid()]);
        }
    }
}

/// All that is mapped, without code and without what is private and can be written to; in KiB. A program can
/// hardly map a file without changing this number, which the kernel counts anyway.
fn mapped(pid: i32) -> Option<u64> {
    foreign_mappings(&std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?)
}

/// By the text of /proc/PID/status (proc_pid_status(5)).
fn foreign_mappings(status: &str) -> Option<u64> {
    let kib = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim_start_matches(':').trim().trim_end_matches(" kB").parse::<u64>().ok()
    };
    let own = kib("VmData")? + kib("VmStk")? + kib("VmExe")? + kib("VmLib")?;
    kib("VmSize")?.checked_sub(own)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_mapped_of_others_is_the_rest() {
        let status = "Name:\tx\nVmPeak:\t  900 kB\nVmSize:\t  500 kB\nVmData:\t  100 kB\nVmStk:\t  20 kB\n\
                      VmExe:\t 3 kB\nVmLib:\t 7 kB\n";
        assert_eq!(foreign_mappings(status), Some(370));
        assert_eq!(foreign_mappings(&status.replace("VmLib", "VmXxx")), None);
        assert_eq!(foreign_mappings(&status.replace("  500", "  50")), None, "less than its parts");
    }

    #[test]
    fn only_a_child_of_the_part_can_be_a_holder() {
        let (this, parent) =
            (std::process::id().cast_signed(), std::os::unix::process::parent_id().cast_signed());
        let holder = MemoryHolder::of(parent, this).expect("a child of its parent");
        assert!(holder.is(this) && !holder.is_still());
        assert_eq!(MemoryHolder::of(this, this), None);
    }
}
