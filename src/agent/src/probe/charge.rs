//! Whether the container is charged for kernel memory that its programs make the kernel use, measured.
//!
//! It must never take more than a few MiB: where the container is not charged, they are the host's.
#![expect(unsafe_code, reason = "fcntl's byte-range locks have no safe wrapper")]

use std::fs::File;
use std::io::{self, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;

use paddock_proto::message::Charged;

/// Bytes that are put into a pair of sockets, unless they take less.
const IN_SOCKETS: u64 = 4 << 20;
/// Files, and locks in each. The kernel looks at every lock of a file before it adds one, so many files are
/// quicker.
const FILES: u64 = 32;
const LOCKS: i64 = 500;
/// What a lock weighs at least (`struct file_lock`).
const LOCK_BYTES: u64 = 128;
/// Less than this proves nothing: the kernel charges in batches.
const LEAST: u64 = 1 << 20;

/// Measures sockets and locks.
pub(super) fn look() -> Charged {
    Charged { sockets: measure(fill_sockets), locks: measure(lock_files) }
}

/// Whether the charge grew by at least half of what `take` took; `None` where that proves nothing.
fn measure<T>(take: impl FnOnce() -> io::Result<(T, u64)>) -> Option<bool> {
    let before = usage()?;
    let (held, taken) = take().ok()?;
    let after = usage()?;
    drop(held);
    (taken >= LEAST).then(|| after.saturating_sub(before) >= taken / 2)
}

/// What the container is charged for now, by the files of its cgroup (version 2 or 1).
fn usage() -> Option<u64> {
    let files = ["/sys/fs/cgroup/memory.current", "/sys/fs/cgroup/memory/memory.usage_in_bytes"];
    files.into_iter().find_map(|path| std::fs::read_to_string(path).ok()?.trim().parse().ok())
}

/// Writes bytes that nobody reads.
fn fill_sockets() -> io::Result<([TcpStream; 2], u64)> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let mut one = TcpStream::connect(listener.local_addr()?)?;
    let (two, _) = listener.accept()?;
    one.set_nonblocking(true)?;
    let bytes = [0; 1 << 16];
    let mut taken = 0;
    while taken < IN_SOCKETS {
        match one.write(&bytes) {
            Ok(written) => taken += written as u64,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
            Err(error) => return Err(error),
        }
    }
    Ok(([one, two], taken))
}

/// Locks single bytes that do not touch, so that the kernel merges none of the locks.
fn lock_files() -> io::Result<(Vec<File>, u64)> {
    let mut files = Vec::new();
    for _ in 0..FILES {
        let file = File::from(super::fill::take("/tmp", 1)?);
        for n in 0..LOCKS {
            // SAFETY: plain data, for which all zeroes is a value; it outlives the call.
            let done = unsafe {
                let mut lock: libc::flock = std::mem::zeroed();
                lock.l_type = i16::try_from(libc::F_WRLCK).unwrap_or(1);
                (lock.l_start, lock.l_len) = (2 * n, 1);
                libc::fcntl(file.as_raw_fd(), libc::F_SETLK, &raw const lock)
            };
            if done != 0 {
                return Err(io::Error::last_os_error());
            }
        }
        files.push(file);
    }
    Ok((files, FILES * LOCKS.unsigned_abs() * LOCK_BYTES))
}
