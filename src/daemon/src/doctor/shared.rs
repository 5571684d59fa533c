//! What all containers of a host share with it, as a process in a throwaway container found it: crash handlers,
//! terminals, System V memory, and memory of the kernel that it charges to nobody.
//!
//! It must never pass over what has no fence: whoever runs this has to know what is left.

use paddock_proto::message::Allowed;

use super::check::Checks;
use crate::pool::Aspect;
use crate::pool::trial::Tried;

pub(super) fn judge(tried: &Tried, checks: &mut Checks) {
    cores(tried, checks);
    let facts = &tried.facts;
    if facts.segments_stay {
        checks.warn(
            "system v memory",
            "System V shared memory stays when the run that made it has ended",
            "later runs of the same session have less memory: an engine that maps users cannot set \
             kernel.shm_rmid_forced",
        );
    } else {
        checks.ok("system v memory", "System V shared memory goes with the run that made it");
    }
    match facts.terminals {
        Allowed::UpTo(most) => checks.ok("terminals", format!("terminals (/dev/ptmx) are bounded: {most}")),
        Allowed::Unseen => checks.ok("terminals", "whether terminals are bounded cannot be seen from inside"),
        Allowed::All => checks.warn(
            "terminals",
            "terminals (/dev/ptmx) are not bounded for a container, only for all of them together",
            "one program can take all (kernel.pty.max less kernel.pty.reserve), and no other container has any until it \
             ends: leave engine.runtime empty or set it to runc or crun, whose containers have a /dev/pts of their own, or \
             to a runtime with a kernel of its own",
        ),
    }
    match facts.charged.sockets {
        Some(true) => checks.ok("socket memory", "what waits in TCP sockets counts as the container's memory"),
        None => checks.ok("socket memory", "whether what waits in TCP sockets is counted could not be measured"),
        Some(false) => checks.warn(
            "socket memory",
            "what waits in TCP sockets is nobody's memory",
            "one program can take what the whole host has for it (net.ipv4.tcp_mem), and connections of the host fail \
             until it ends: use control groups of version 2, which count it (systemd.unified_cgroup_hierarchy=1 on the \
             kernel's command line)",
        ),
    }
    match facts.charged.locks {
        Some(true) => checks.ok("file locks", "byte-range locks of files count as the container's memory"),
        None => checks.ok("file locks", "whether byte-range locks of files are counted could not be measured"),
        Some(false) => checks.warn(
            "file locks",
            "byte-range locks of files (fcntl) are nobody's memory",
            "a program can fill the host's memory with them; when that is full the kernel ends programs in containers \
             first. No setting of Linux bounds them: where that matters use a runtime with a kernel of its own \
             (engine.runtime)",
        ),
    }
}

fn cores(tried: &Tried, checks: &mut Checks) {
    let wrong: Vec<&str> = tried
        .faults
        .iter()
        .filter(|fault| fault.aspect == Aspect::Cores)
        .map(|fault| fault.text.as_str())
        .collect();
    let pattern = tried.facts.core_pattern.as_str();
    // It is the filter that keeps the limit, and that there is none was said.
    if tried.facts.seccomp != 2 {
        return;
    }
    if !wrong.is_empty() {
        checks.fail(
            "core dumps",
            wrong.join(", "),
            "a crash could be handed to a program of the host that runs as root: the runtime has not set the limit, or \
             its seccomp profile lets it be changed",
        );
    } else if pattern.starts_with('@') {
        // Linux 6.16 and newer; measured on 6.18: the limit of the process is not looked at.
        checks.warn(
            "core dumps",
            format!(
                "the kernel hands every crash, in containers too, to a socket of the host (core_pattern is {pattern})"
            ),
            "what listens there reads memory that untrusted code wrote: set kernel.core_pattern to a program (`|…`) or \
             a file name, for those leave containers out",
        );
    } else if pattern.starts_with('|') {
        checks.ok(
            "core dumps",
            format!("crashes in containers are not handed to the host's program for them (core_pattern is {pattern})"),
        );
    } else {
        checks.ok("core dumps", "crashes in containers leave no core dump");
    }
}
