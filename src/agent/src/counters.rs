//! What the container's cgroup counted: out-of-memory kills, refused forks, memory in use, time of the
//! processors. Version 1 and 2.
//!
//! It must never fail a run: a counter that cannot be read is zero, and only a *growth* is evidence. Where
//! memory cannot be read it counts as short.

use std::fs::File;
use std::os::unix::fs::FileExt;

/// More bytes than any of the files has.
const LARGEST: usize = 512;

/// The cgroup's files, kept open: they are read before each run.
pub(crate) struct CgroupFiles {
    memory: Option<File>,
    pids: Option<File>,
    memory_used: Option<File>,
    memory_limit: Option<File>,
    processors: Option<File>,
}

/// Counts since the container's start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counters {
    oom_kills: u64,
    refused_forks: u64,
}

impl CgroupFiles {
    pub(crate) fn open() -> Self {
        let first = |paths: [&str; 2]| paths.into_iter().find_map(|path| File::open(path).ok());
        Self {
            memory: first(["/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control"]),
            pids: first(["/sys/fs/cgroup/pids.events", "/sys/fs/cgroup/pids/pids.events"]),
            memory_used: first([
                "/sys/fs/cgroup/memory.current",
                "/sys/fs/cgroup/memory/memory.usage_in_bytes",
            ]),
            memory_limit: first(["/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"]),
            processors: first(["/sys/fs/cgroup/cpu.stat", "/sys/fs/cgroup/cpuacct/cpuacct.usage"]),
        }
    }

    /// As where none of them can be read but this one.
    #[cfg(test)]
    pub(crate) fn only(processors: Option<File>) -> Self {
        Self { memory: None, pids: None, memory_used: None, memory_limit: None, processors }
    }

    pub(crate) fn read(&self) -> Counters {
        Counters {
            oom_kills: count(self.memory.as_ref(), "oom_kill"),
            refused_forks: count(self.pids.as_ref(), "max"),
        }
    }

    /// Microseconds of the processors that the container has used; `None` where that cannot be read.
    pub(crate) fn processor_us(&self) -> Option<u64> {
        read(self.processors.as_ref(), processor_us)
    }

    /// Whether less than half of the memory is free.
    pub(crate) fn memory_is_short(&self) -> bool {
        let number = |file: &Option<File>| read(file.as_ref(), |text| text.trim().parse::<u64>().ok());
        match (number(&self.memory_used), number(&self.memory_limit)) {
            (Some(used), Some(limit)) => used > limit / 2,
            _ => true,
        }
    }
}

impl Counters {
    /// The limit that was hit between `before` and this reading, if one was.
    pub(crate) fn limit_since(self, before: Self) -> Option<paddock_proto::message::Limit> {
        use paddock_proto::message::Limit;
        if self.oom_kills > before.oom_kills {
            Some(Limit::Memory)
        } else if self.refused_forks > before.refused_forks {
            Some(Limit::Pids)
        } else {
            None
        }
    }
}

fn count(file: Option<&File>, name: &str) -> u64 {
    read(file, |text| value(text, name)).unwrap_or(0)
}

fn read<T>(file: Option<&File>, parse: impl FnOnce(&str) -> Option<T>) -> Option<T> {
    let mut bytes = [0; LARGEST];
    let read = file?.read_at(&mut bytes, 0).ok()?;
    parse(std::str::from_utf8(&bytes[..read]).ok()?)
}

/// Version 2 has a line for it, in microseconds; version 1 has nothing else, in nanoseconds.
fn processor_us(text: &str) -> Option<u64> {
    value(text, "usage_usec").or_else(|| Some(text.trim().parse::<u64>().ok()? / 1000))
}

fn value(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    #[test]
    fn both_versions_read_alike() {
        let v1 = "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n";
        let v2 = "low 0\nhigh 0\nmax 12\noom 1\noom_kill 2\noom_group_kill 0\n";
        assert_eq!(super::value(v1, "oom_kill"), Some(3));
        assert_eq!(super::value(v2, "oom_kill"), Some(2));
        assert_eq!(super::value("max 7\n", "max"), Some(7));
        assert_eq!(super::value("", "max"), None);
        assert_eq!(super::processor_us("usage_usec 1234\nuser_usec 1000\nsystem_usec 234\n"), Some(1234));
        assert_eq!((super::processor_us("1234567\n"), super::processor_us("")), (Some(1234), None));
    }
}
