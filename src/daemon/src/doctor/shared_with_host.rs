//! What all containers share with the host, as a process in a throwaway container found it: crash handlers,
//! terminals, System V memory, and kernel memory that is charged to nobody.
//!
//! It must never leave out a resource without a fence: the operator has to know what is unprotected.

use paddock_proto::message::Allowed;

use super::check::Checks;
use crate::pool::Aspect;
use crate::pool::trial::TrialReport;

pub(super) fn judge(tried: &TrialReport, checks: &mut Checks) {
    cores(tried, checks);
    let facts = &tried.facts;
    if facts.segments_stay {
        checks.warn(
            "system v memory",
            "System V shared memory stays after the end of the run that made it",
            "later runs of the same session have less memory: an engine that maps users cannot set \
             kernel.shm_rmid_forced",
        );
    } else {
        checks.ok("system v memory", "System V shared memory is removed with the run that made it");
    }
    match facts.terminals {
        Allowed::UpTo(most) => checks.ok("terminals", format!("terminals (/dev/ptmx) are bounded: {most}")),
        Allowed::Unseen => checks.ok("terminals", "whether terminals are bounded cannot be seen from inside"),
        Allowed::All => checks.warn(
            "terminals",
            "terminals (/dev/ptmx) are not bounded for one container, only for all together",
            "one program can use them all (kernel.pty.max less kernel.pty.reserve), and no other container \
             gets any until it ends: leave engine.runtime empty or set it to runc or crun, whose containers \
             have a /dev/pts of their own, or to a runtime with a kernel of its own",
        ),
    }
    match facts.charged.sockets {
        Some(true) => checks.ok("socket memory", "data in TCP sockets counts as the container's memory"),
        None => checks.ok("socket memory", "whether data in TCP sockets is counted could not be measured"),
        Some(false) => checks.warn(
            "socket memory",
            "data in TCP sockets is not counted as any container's memory",
            "one program can use up the host's limit for it (net.ipv4.tcp_mem), and connections of the host \
             fail until that program ends: use control groups of version 2, which count it \
             (systemd.unified_cgroup_hierarchy=1 on the kernel's command line)",
        ),
    }
    match facts.charged.locks {
        Some(true) => checks.ok("file locks", "byte-range locks of files count as the container's memory"),
        None => {
            checks.ok("file locks", "whether byte-range locks of files are counted could not be measured")
        }
        Some(false) => checks.warn(
            "file locks",
            "byte-range locks of files (fcntl) are not counted as any container's memory",
            "a program can fill the host's memory with them; when that is full, the kernel ends programs in \
             containers first. No setting of Linux bounds them: where that matters, use a runtime with a \
             kernel of its own (engine.runtime)",
        ),
    }
}

fn cores(tried: &TrialReport, checks: &mut Checks) {
    let wrong: Vec<&str> = tried
        .violations
        .iter()
        .filter(|fault| fault.aspect == Aspect::Cores)
        .map(|fault| fault.text.as_str())
        .collect();
    let pattern = tried.facts.core_pattern.as_str();
    // The seccomp filter is what keeps the limit, and another check reports that there is none.
    if tried.facts.seccomp != 2 {
        return;
    }
    if !wrong.is_empty() {
        checks.fail(
            "core dumps",
            wrong.join(", "),
            "a crash could be passed to a program of the host that runs as root: the runtime has not set the \
             limit, or its seccomp profile lets programs change it",
        );
    } else if pattern.starts_with('@') {
        // Linux 6.16 and newer ignore the limit of the process here; measured on 6.18.
        checks.warn(
            "core dumps",
            format!(
                "the kernel passes every crash, even in containers, to a socket of the host (core_pattern is \
                 {pattern})"
            ),
            "the program that listens there reads memory that untrusted code wrote: set kernel.core_pattern \
             to a program (`|…`) or a file name, since those ignore containers",
        );
    } else if pattern.starts_with('|') {
        checks.ok(
            "core dumps",
            format!(
                "crashes in containers are not passed to the host's crash handler (core_pattern is {pattern})"
            ),
        );
    } else {
        checks.ok("core dumps", "crashes in containers leave no core dump");
    }
}
