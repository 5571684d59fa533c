//! Finds out from /proc which process holds a lock, or listens at an address, without occupying either.
//!
//! It must never wait for a lock or an address, nor keep one.

use std::fs::{self, File, OpenOptions};
use std::io::Read;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::FlockOperation;

/// A process that holds a lock or an address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HoldingProcess {
    pub(crate) pid: u32,
    /// The name of its program.
    pub(crate) name: String,
}

impl std::fmt::Display for HoldingProcess {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} (pid {})", self.name, self.pid)
    }
}

/// Whether a lock is held.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum LockState {
    /// Nobody.
    Free,
    /// Held by this process.
    HeldBy(HoldingProcess),
    /// Held by a process that is not visible from here: in another container, or on another machine.
    Unseen,
}

/// Most bytes of a table of the kernel that one read asks for.
const TABLE_READ: usize = 64 << 10;

/// How often the table of locks is read for a lock that is held and not in it.
const TABLE_TRIES: usize = 4;

/// The state of a file's lock.
pub(crate) fn of_lock(path: &Path) -> LockState {
    let Ok(meta) = fs::metadata(path) else { return LockState::Free };
    for _ in 0..TABLE_TRIES {
        let locks = table("/proc/locks");
        if let Some(pid) = locks.lines().find_map(|line| locker(line, meta.dev(), meta.ino())) {
            return LockState::HeldBy(named(pid));
        }
        // A daemon that starts at this very moment would meet this lock, but it is released at once.
        let Ok(file) = OpenOptions::new().read(true).open(path) else { return LockState::Free };
        let taken = rustix::fs::flock(&file, FlockOperation::NonBlockingLockShared);
        let _ = rustix::fs::flock(&file, FlockOperation::Unlock);
        if taken != Err(rustix::io::Errno::WOULDBLOCK) {
            return LockState::Free;
        }
    }
    // Locks of processes outside this PID namespace are never listed.
    LockState::Unseen
}

/// A table in /proc; what cannot be read is left out.
///
/// The kernel prints as many whole lines as a read has room for, up to a page, and finds the next line by its
/// number: a line that is removed between two reads makes it leave out another. `fs::read_to_string` asks for
/// 32 bytes first, and so for one line.
fn table(path: &str) -> String {
    let Ok(mut file) = File::open(path) else { return String::new() };
    let (mut text, mut part) = (Vec::new(), vec![0; TABLE_READ]);
    while let Ok(read @ 1..) = file.read(&mut part) {
        text.extend_from_slice(&part[..read]);
    }
    String::from_utf8_lossy(&text).into_owned()
}

/// The process in a line of /proc/locks for this file: `1: FLOCK  ADVISORY  WRITE 123 fe:00:4711 0 EOF`.
fn locker(line: &str, device: u64, inode: u64) -> Option<u32> {
    let mut words = line.split_ascii_whitespace().skip(1);
    let kind = words.next()?;
    let (pid, place) = (words.nth(2)?.parse().ok()?, words.next()?);
    let mut parts = place.split(':');
    let (major, minor) = (hex(parts.next()?)?, hex(parts.next()?)?);
    let same = kind == "FLOCK" && parts.next()?.parse() == Ok(inode);
    let on = rustix::fs::makedev(major, minor);
    (same && on == device && pid > 0).then_some(pid)
}

/// The process that listens at an address, as far as this user may see it.
pub(crate) fn of_address(addr: SocketAddr) -> Option<HoldingProcess> {
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"].map(table);
    let inodes: Vec<u64> =
        tables.iter().flat_map(|table| table.lines().filter_map(|line| listener(line, addr))).collect();
    if inodes.is_empty() {
        return None;
    }
    let sockets: Vec<String> = inodes.iter().map(|inode| format!("socket:[{inode}]")).collect();
    let processes = fs::read_dir("/proc").ok()?.flatten();
    processes.filter_map(|process| process.file_name().to_str()?.parse::<u32>().ok()).find_map(|pid| {
        let open = fs::read_dir(format!("/proc/{pid}/fd")).ok()?.flatten();
        let mut targets = open.filter_map(|fd| fs::read_link(fd.path()).ok());
        let has = targets.any(|target| sockets.iter().any(|socket| target.as_os_str() == socket.as_str()));
        has.then(|| named(pid))
    })
}

/// The store of the daemon that listens at an address: the folder whose lock it holds. Only for a daemon of
/// this user, so that no other user can lead a client to a daemon of theirs.
pub(crate) fn store_at(addr: SocketAddr) -> Option<PathBuf> {
    let daemon = of_address(addr)?;
    let process = PathBuf::from(format!("/proc/{}", daemon.pid));
    if fs::metadata(&process).ok()?.uid() != rustix::process::geteuid().as_raw() {
        return None;
    }
    let open = fs::read_dir(process.join("fd")).ok()?.flatten();
    let mut locks = open.filter_map(|fd| fs::read_link(fd.path()).ok()).filter(|path| path.ends_with("lock"));
    // Compared by inode, so that a path of another mount namespace never matches.
    let lock =
        locks.find(|path| matches!(of_lock(path), LockState::HeldBy(holder) if holder.pid == daemon.pid))?;
    lock.parent().map(Path::to_owned)
}

/// The inode of a listening socket in /proc/net/tcp that occupies this address.
fn listener(line: &str, addr: SocketAddr) -> Option<u64> {
    let words: Vec<&str> = line.split_ascii_whitespace().collect();
    let (local, state, inode) = (words.get(1)?, words.get(3)?, words.get(9)?);
    let (ip, port) = local.split_once(':')?;
    let ip = address(ip)?;
    let same = ip == addr.ip() || ip.is_unspecified() || addr.ip().is_unspecified();
    (*state == "0A" && hex(port)? == u32::from(addr.port()) && same).then(|| inode.parse().ok())?
}

/// Parses an address of 32-bit words in the machine's byte order, as the kernel prints them.
fn address(digits: &str) -> Option<IpAddr> {
    let words: Option<Vec<u32>> =
        (0..digits.len()).step_by(8).map(|at| hex(digits.get(at..at + 8)?)).collect();
    match words?.as_slice() {
        [one] => Some(Ipv4Addr::from(one.to_ne_bytes()).into()),
        [a, b, c, d] => {
            let mut bytes = [0; 16];
            for (part, word) in bytes.chunks_mut(4).zip([a, b, c, d]) {
                part.copy_from_slice(&word.to_ne_bytes());
            }
            Some(Ipv6Addr::from(bytes).to_canonical())
        }
        _ => None,
    }
}

fn hex(digits: &str) -> Option<u32> {
    u32::from_str_radix(digits, 16).ok()
}

fn named(pid: u32) -> HoldingProcess {
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    let name = name.trim();
    HoldingProcess { pid, name: if name.is_empty() { "a process" } else { name }.to_owned() }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
    use std::sync::mpsc;

    use rustix::thread::CpuSet;

    use super::*;

    #[test]
    fn a_lock_and_a_listener_of_this_process_are_found() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        assert_eq!(of_lock(file.path()), LockState::Free);
        assert_eq!(of_lock(Path::new("/nowhere/lock")), LockState::Free);
        rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).expect("it is free");
        let LockState::HeldBy(holder) = of_lock(file.path()) else { panic!("{:?}", of_lock(file.path())) };
        assert_eq!(holder.pid, std::process::id());
        for addr in ["127.0.0.1:0", "[::1]:0"] {
            let listener = TcpListener::bind(addr).expect("a port");
            let addr = listener.local_addr().expect("an address");
            assert_eq!(of_address(addr).map(|holder| holder.pid), Some(std::process::id()), "{addr}");
            drop(listener);
            assert_eq!(of_address(addr), None);
        }
    }

    #[test]
    fn a_lock_is_found_while_others_change() {
        let file = || tempfile::NamedTempFile::new().expect("a file");
        let (held, others) = (file(), [file(), file(), file()]);
        let (take, leave) = (FlockOperation::NonBlockingLockExclusive, FlockOperation::Unlock);
        let (begin, taken) = mpsc::channel();
        let stop = AtomicBool::new(false);
        // The kernel lists the locks that one processor took together, the newest first.
        let here = rustix::thread::sched_getaffinity(None).expect("its processors");
        let first = (0..CpuSet::MAX_CPU).find(|cpu| here.is_set(*cpu)).expect("a processor");
        let mut one = CpuSet::new();
        one.set(first);
        std::thread::scope(|threads| {
            threads.spawn(|| {
                rustix::thread::sched_setaffinity(None, &one).expect("a processor");
                rustix::fs::flock(&held, take).expect("it is free");
                begin.send(()).expect("somebody waits");
                while !stop.load(Relaxed) {
                    for other in &others {
                        rustix::fs::flock(other, take).expect("it is free");
                    }
                    for other in &others {
                        rustix::fs::flock(other, leave).expect("it is taken");
                    }
                }
            });
            taken.recv().expect("the lock is taken");
            let missed = (0..2000).filter(|_| !matches!(of_lock(held.path()), LockState::HeldBy(_))).count();
            stop.store(true, Relaxed);
            // A table of more than a page can lack it four times. Reads of one line missed it 65 times.
            assert!(missed < 10, "{missed} of 2000");
        });
    }
}
