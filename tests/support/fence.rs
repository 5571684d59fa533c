//! A control group of a test's own around a daemon, with one bound that can change while it runs. It needs
//! root. Containers are not in it: the engine starts them.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::process::Pid;

static NEXT: AtomicU32 = AtomicU32::new(0);

/// What is bounded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Bytes of memory.
    Memory,
    /// Processes and threads.
    Pids,
}

pub(crate) struct Fence {
    kind: Kind,
    folder: PathBuf,
}

impl Fence {
    /// A bound for this process and all that it starts; without a bound at first.
    pub(crate) fn around(pid: Pid, kind: Kind) -> Fence {
        let controller = match kind {
            Kind::Memory => "memory",
            Kind::Pids => "pids",
        };
        let version_1 = PathBuf::from("/sys/fs/cgroup").join(controller);
        let parent = if version_1.exists() {
            version_1
        } else {
            let parent = PathBuf::from("/sys/fs/cgroup");
            std::fs::write(parent.join("cgroup.subtree_control"), format!("+{controller}")).expect("root");
            parent
        };
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let folder = parent.join(format!("paddock-e2e-{}-{number}", std::process::id()));
        std::fs::create_dir(&folder).expect("these tests need root, for a control group");
        let fence = Fence { kind, folder };
        fence.write("cgroup.procs", &pid.as_raw_nonzero().to_string());
        fence
    }

    fn write(&self, name: &str, value: &str) {
        let path = self.folder.join(name);
        std::fs::write(&path, value).unwrap_or_else(|e| panic!("{}: {value}: {e}", path.display()));
    }

    fn exists(&self, name: &str) -> bool {
        self.folder.join(name).exists()
    }

    /// How much is in use.
    pub(crate) fn used(&self) -> u64 {
        let names = ["pids.current", "memory.usage_in_bytes", "memory.current"];
        let name = names.into_iter().find(|name| self.exists(name)).expect("a figure");
        let text = std::fs::read_to_string(self.folder.join(name)).expect("a figure");
        text.trim().parse().expect("a number")
    }

    /// From now on no more than this.
    pub(crate) fn bound(&self, most: u64) {
        let most = most.to_string();
        match self.kind {
            Kind::Pids => self.write("pids.max", &most),
            Kind::Memory if self.exists("memory.max") => self.write("memory.max", &most),
            Kind::Memory => self.write("memory.limit_in_bytes", &most),
        }
    }

    /// No bound any more.
    pub(crate) fn lift(&self) {
        match self.kind {
            Kind::Pids => self.write("pids.max", "max"),
            Kind::Memory if self.exists("memory.max") => self.write("memory.max", "max"),
            Kind::Memory => self.write("memory.limit_in_bytes", "-1"),
        }
    }
}

impl Drop for Fence {
    /// A group is removed when it is empty: what is left of it moves up.
    fn drop(&mut self) {
        let left = std::fs::read_to_string(self.folder.join("cgroup.procs")).unwrap_or_default();
        for pid in left.lines() {
            let _ = std::fs::write(self.folder.join("../cgroup.procs"), pid);
        }
        let _ = std::fs::remove_dir(&self.folder);
    }
}
