//! The process tree as /proc shows it, and killing a part of it.
//!
//! It must never signal PID 1, a job that still works, or the bridge (which is nobody's descendant here).

use std::collections::HashMap;

use rustix::process::{Pid, Signal, kill_process};

/// A process and when it was started, in ticks since the machine was: another that has its PID later is not it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Known {
    pid: i32,
    parent: i32,
    started: u64,
}

impl Known {
    pub(crate) fn look(pid: i32) -> Option<Self> {
        let fields = fields(pid)?;
        let mut fields = fields.split_ascii_whitespace();
        let (_state, parent) = (fields.next()?, fields.next()?.parse().ok()?);
        Some(Self { pid, parent, started: fields.nth(17)?.parse().ok()? })
    }

    pub(crate) fn pid(self) -> i32 {
        self.pid
    }

    pub(crate) fn parent(self) -> i32 {
        self.parent
    }

    /// Whether this is it.
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
            if let Some(parent) = parent_of(pid) {
                children.entry(parent).or_default().push(pid);
            }
        }
        Self(children)
    }

    /// The children of a process.
    pub(crate) fn children(&self, of: i32) -> &[i32] {
        self.0.get(&of).map_or(&[], Vec::as_slice)
    }

    /// Every process below `root`, in no order, without what `spare` picks and all below that.
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

/// The children of a process, oldest first, if the kernel tells them (`CONFIG_PROC_CHILDREN`). Up to the first that may
/// be reaped while this looks, none is missing (proc_pid_children(5)): so an expected list is the whole one.
pub(crate) fn children(of: i32) -> Option<Vec<i32>> {
    let text = std::fs::read_to_string(format!("/proc/{of}/task/{of}/children")).ok()?;
    text.split_ascii_whitespace().map(|pid| pid.parse().ok()).collect()
}

/// Every process below `root`.
pub(crate) fn descendants(root: i32) -> Vec<i32> {
    Tree::look().below(root, |_| false)
}

/// Whether a process stands stopped, with one thread and no child: unless another wakes it, it does nothing.
pub(crate) fn is_still(pid: i32) -> bool {
    let stopped = || has_one_thread_in(pid, "T");
    // A thread may have woken it and gone.
    stopped() && children(pid).is_some_and(|children| children.is_empty()) && stopped()
}

/// Whether a process is dead, all of it, and only its parent's waiting for it is left.
pub(crate) fn is_dead(pid: i32) -> bool {
    has_one_thread_in(pid, "Z")
}

/// By the third and the twentieth field: state and number of threads.
fn has_one_thread_in(pid: i32, state: &str) -> bool {
    fields(pid).is_some_and(|fields| {
        let mut fields = fields.split_ascii_whitespace();
        fields.next() == Some(state) && fields.nth(16) == Some("1")
    })
}

/// The parent's PID.
fn parent_of(pid: i32) -> Option<i32> {
    fields(pid)?.split_ascii_whitespace().nth(1)?.parse().ok()
}

/// What stands in /proc/PID/stat from the third field on (proc_pid_stat(5)): the name before may hold anything up to the
/// last `)`.
fn fields(pid: i32) -> Option<String> {
    let mut stat = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
    let end = stat.iter().rposition(|b| *b == b')')?;
    String::from_utf8(stat.split_off(end + 1)).ok()
}

/// Whether a process came in from outside: only the engine makes one without a parent in here.
pub(crate) fn is_nobodys(pid: i32) -> bool {
    pid > 1 && parent_of(pid) == Some(0)
}

/// SIGKILL to each; those already gone do not matter.
pub(crate) fn kill(pids: &[i32]) {
    signal(pids, Signal::KILL);
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
    fn another_that_has_its_pid_later_is_not_it() {
        let pid = std::process::id().cast_signed();
        let known = Known::look(pid).expect("this one");
        assert!(known.is(pid) && !known.is(1));
        assert_eq!(known.parent(), std::os::unix::process::parent_id().cast_signed());
        assert!(!Known { started: known.started - 1, ..known }.is(pid));
        assert_eq!(Known::look(i32::MAX), None);
    }
}
