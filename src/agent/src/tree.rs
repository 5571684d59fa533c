//! The process tree as /proc shows it, and signals to a part of it.
//!
//! It must never signal PID 1, a job that still works, or the bridge (whose parent is outside of the
//! container).

use std::collections::HashMap;
use std::fs::File;
use std::io::Read;
use std::os::fd::AsFd;

use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};

use crate::sys;

/// A process by its PID and its start, in ticks since the machine's: another process that has the PID later
/// is not it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ProcessIdentity {
    pid: i32,
    parent: i32,
    started: u64,
}

impl ProcessIdentity {
    /// Of the process that has this PID now.
    pub(crate) fn look(pid: i32) -> Option<Self> {
        let stat = stat(pid)?;
        Some(Self { pid, parent: stat.parent, started: stat.started })
    }

    pub(crate) fn pid(self) -> i32 {
        self.pid
    }

    pub(crate) fn parent(self) -> i32 {
        self.parent
    }

    /// Whether the process that has this PID now is this one.
    pub(crate) fn is(self, pid: i32) -> bool {
        self.pid == pid && Self::look(pid).is_some_and(|now| now.started == self.started)
    }
}

/// Every process of the container at one look.
pub(crate) struct Tree(HashMap<i32, Vec<i32>>);

impl Tree {
    /// Looks. Zombies count: their parent has not reaped them yet.
    pub(crate) fn look() -> Self {
        let mut children: HashMap<i32, Vec<i32>> = HashMap::new();
        let pids = std::fs::read_dir("/proc").into_iter().flatten().flatten();
        for pid in pids.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok()) {
            if let Some(stat) = stat(pid) {
                children.entry(stat.parent).or_default().push(pid);
            }
        }
        Self(children)
    }

    /// The children of a process.
    pub(crate) fn children(&self, of: i32) -> &[i32] {
        self.0.get(&of).map_or(&[], Vec::as_slice)
    }

    /// Every process below `root`, in no order, without those for which `spare` is true and all below them.
    pub(crate) fn below(&self, root: i32, spare: impl Fn(i32) -> bool) -> Vec<i32> {
        let mut found = Vec::new();
        let mut next = vec![root];
        while let Some(pid) = next.pop() {
            let below = self.children(pid).iter().filter(|pid| !spare(**pid));
            next.extend(below.clone());
            found.extend(below);
        }
        found
    }
}

/// Bytes of a list of children that is read with one call.
const FEW_CHILDREN: usize = 512;

/// The children of a process, oldest first, if the kernel tells them (`CONFIG_PROC_CHILDREN`). Up to the
/// first that may be reaped while this looks, none is missing (proc_pid_children(5)): so an expected list is
/// the whole one.
pub(crate) fn children(of: i32) -> Option<Vec<i32>> {
    let path = format!("/proc/{of}/task/{of}/children");
    let mut some = [0; FEW_CHILDREN];
    let length = File::open(&path).ok()?.read(&mut some).ok()?;
    // The kernel gives as much as there is room for. What is longer is read again, as a whole.
    let text = match some.get(..length).filter(|_| length < FEW_CHILDREN) {
        Some(text) => std::str::from_utf8(text).ok()?,
        None => &std::fs::read_to_string(&path).ok()?,
    };
    text.split_ascii_whitespace().map(|pid| pid.parse().ok()).collect()
}

/// Every process below `root`.
pub(crate) fn descendants(root: i32) -> Vec<i32> {
    Tree::look().below(root, |_| false)
}

/// Whether a process stands stopped, with one thread and no child: unless another resumes it, it does
/// nothing.
pub(crate) fn is_still(pid: i32) -> bool {
    let stopped = || has_one_thread_in(pid, STOPPED);
    // A thread may have resumed it and gone.
    stopped() && children(pid).is_some_and(|children| children.is_empty()) && stopped()
}

/// Whether a process is dead, all of it, and only its parent's waiting for it is left.
pub(crate) fn is_dead(pid: i32) -> bool {
    has_one_thread_in(pid, b'Z')
}

/// Whether a process was stopped by a signal.
pub(crate) fn is_stopped(pid: i32) -> bool {
    stat(pid).is_some_and(|stat| stat.state == STOPPED)
}

/// Whether a process came from outside of the container: only the engine makes one whose parent is not in
/// here.
pub(crate) fn is_from_outside(pid: i32) -> bool {
    pid > 1 && stat(pid).is_some_and(|stat| stat.parent == 0)
}

/// Parent and session of a process; 0 for each that is not in this container.
pub(crate) fn parentage(pid: i32) -> Option<(i32, i32)> {
    parentage_by_descriptor(pid).or_else(|| stat(pid).map(|stat| (stat.parent, stat.session)))
}

/// The same without /proc, which takes ten times as long. `None` where the kernel does not tell (before Linux
/// 6.13), or the process is gone.
fn parentage_by_descriptor(pid: i32) -> Option<(i32, i32)> {
    let number = Pid::from_raw(pid)?;
    let process = pidfd_open(number, PidfdFlags::empty()).ok()?;
    let session = sys::session(pid).ok()?;
    // The kernel tells the parent only of a process that still has its number: so the session is its own.
    let parent = sys::parent(process.as_fd()).ok()?;
    Some((parent, session))
}

fn has_one_thread_in(pid: i32, state: u8) -> bool {
    stat(pid).is_some_and(|stat| stat.state == state && stat.threads == 1)
}

/// The state of a process that a signal stopped.
const STOPPED: u8 = b'T';

/// No line is longer: fifty-two fields of at most twenty digits, and a name.
const LONGEST_STAT: usize = 2048;

/// What this module reads of /proc/PID/stat (proc_pid_stat(5)).
#[derive(Debug, PartialEq, Eq)]
struct Stat {
    state: u8,
    parent: i32,
    session: i32,
    threads: u64,
    /// In ticks since the machine's start.
    started: u64,
}

fn stat(pid: i32) -> Option<Stat> {
    let mut line = [0; LONGEST_STAT];
    // The kernel gives all of it at once, if there is room for it.
    let length = File::open(format!("/proc/{pid}/stat")).ok()?.read(&mut line).ok()?;
    parse_stat(&line[..length])
}

/// The second field is the process' name in brackets, which may hold anything: the last `)` ends it.
fn parse_stat(line: &[u8]) -> Option<Stat> {
    let end = line.iter().rposition(|byte| *byte == b')')?;
    let text = std::str::from_utf8(&line[end + 1..]).ok()?;
    let mut fields = text.split_ascii_whitespace();
    Some(Stat {
        state: *fields.next()?.as_bytes().first()?,
        parent: fields.next()?.parse().ok()?,
        session: fields.nth(1)?.parse().ok()?,
        threads: fields.nth(13)?.parse().ok()?,
        started: fields.nth(1)?.parse().ok()?,
    })
}

/// SIGKILL to each; those already gone do not matter.
pub(crate) fn kill(pids: &[i32]) {
    signal(pids, Signal::KILL);
}

/// Sends SIGCONT to each process, so that stopped processes continue.
pub(crate) fn resume(pids: &[i32]) {
    signal(pids, Signal::CONT);
}

/// A signal to each; those already gone do not matter.
pub(crate) fn signal(pids: &[i32], signal: Signal) {
    for pid in pids.iter().filter(|p| **p > 1).filter_map(|p| Pid::from_raw(*p)) {
        let _ = kill_process(pid, signal);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_process_that_has_the_pid_later_is_not_it() {
        let pid = std::process::id().cast_signed();
        let identity = ProcessIdentity::look(pid).expect("this one");
        assert!(identity.is(pid) && !identity.is(1));
        assert_eq!(identity.parent(), std::os::unix::process::parent_id().cast_signed());
        assert!(!ProcessIdentity { started: identity.started - 1, ..identity }.is(pid));
        assert_eq!(ProcessIdentity::look(i32::MAX), None);
    }

    #[test]
    fn both_ways_tell_the_same_parent_and_session_and_nothing_of_the_dead() {
        let mut child = std::process::Command::new("/bin/sleep").arg("60").spawn().expect("a child");
        let pid = child.id().cast_signed();
        let by_proc = stat(pid).map(|stat| (stat.parent, stat.session));
        assert_eq!(by_proc.map(|(parent, _)| parent), Some(std::process::id().cast_signed()));
        assert_eq!(parentage(pid), by_proc);
        // Kernels before Linux 6.13 do not tell.
        assert!(parentage_by_descriptor(pid).is_none_or(|told| Some(told) == by_proc));
        child.kill().expect("it is there");
        child.wait().expect("it is dead");
        assert_eq!((parentage_by_descriptor(pid), parentage(pid)), (None, None));
    }

    /// Kernel threads have session 0, as has a process whose session's leader is outside of the container.
    #[test]
    fn a_session_without_a_number_in_here_is_told_as_zero_by_both_ways() {
        let told = |pid| stat(pid).map(|stat| (stat.parent, stat.session));
        for entry in std::fs::read_dir("/proc").expect("/proc").flatten() {
            let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
            let before = told(pid);
            let by_descriptor = parentage_by_descriptor(pid);
            // What changed or ended meanwhile proves nothing.
            if before == told(pid) {
                assert!(
                    by_descriptor.is_none() || by_descriptor == before,
                    "{pid}: {by_descriptor:?}, {before:?}"
                );
            }
        }
    }

    #[test]
    fn a_name_in_the_status_line_can_fake_no_field() {
        let rest = "T 7 1 4 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 3 0 99 1 2 3";
        for name in ["sh", "a) Z 1 1 (", ") R 1", "\u{20ac} (x"] {
            let line = format!("12 ({name}) {rest}\n");
            let stat = Stat { state: b'T', parent: 7, session: 4, threads: 3, started: 99 };
            assert_eq!(parse_stat(line.as_bytes()), Some(stat), "{name}");
        }
        for broken in ["", "12 (sh", "12 (sh)", "12 (sh) T", "12 (sh) T x", "12 (sh) T 7 1 1 0"] {
            assert_eq!(parse_stat(broken.as_bytes()), None, "{broken}");
        }
        assert!(parse_stat(b"12 (\xff) T 7 1 1 0 -1 0 0 0 0 0 0 0 0 0 0 0 1 0 5 0").is_some());
    }

    #[test]
    fn what_is_spared_is_spared_with_all_below_it() {
        let tree = Tree(HashMap::from([(1, vec![2, 3]), (2, vec![4]), (4, vec![5]), (3, vec![6])]));
        let mut all = tree.below(1, |_| false);
        all.sort_unstable();
        assert_eq!(all, [2, 3, 4, 5, 6]);
        let mut some = tree.below(1, |pid| pid == 2);
        some.sort_unstable();
        assert_eq!(some, [3, 6]);
        assert!(tree.below(9, |_| false).is_empty());
    }
}
