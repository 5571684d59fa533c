//! The process that made a stopped call, as /proc shows it: what its pointers point to, where its relative
//! paths begin.
//!
//! PID 1 reads each value once. Another thread may change the value meanwhile; then PID 1 still has a value
//! that was there. [`CallingProcess::is_waiting`] tells whether the values belong to this caller at all, so
//! PID 1 calls it after the last read and before it does anything. If PID 1 may not read a caller's memory,
//! because the caller has made itself undumpable, it must always refuse the call.

use std::cell::OnceCell;
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;

use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::notify::StoppedCall;

/// The longest path that the kernel takes, its NUL included.
const PATH_MAX: usize = 4096;
const PAGE: u64 = paddock_proto::limits::PAGE;
/// A descriptor of a thread (Linux 6.9). Not in rustix.
const PIDFD_THREAD: PidfdFlags = PidfdFlags::from_bits_retain(OFlags::EXCL.bits());

pub(crate) struct CallingProcess<'a> {
    pub(crate) call: &'a StoppedCall,
    listener: BorrowedFd<'a>,
    memory: OnceCell<File>,
    leader: OnceCell<u32>,
    opened: OnceCell<Opened>,
}

/// A caller's process.
struct Opened {
    process: OwnedFd,
    /// Whether the caller is its first thread, whose number is the process' own.
    is_first_thread: bool,
}

impl<'a> CallingProcess<'a> {
    pub(crate) fn new(call: &'a StoppedCall, listener: BorrowedFd<'a>) -> Self {
        let (memory, leader, opened) = (OnceCell::new(), OnceCell::new(), OnceCell::new());
        Self { call, listener, memory, leader, opened }
    }

    /// Fails if the caller is gone: another process may have its number by now.
    pub(crate) fn is_waiting(&self) -> Result<(), Errno> {
        if self.call.is_waiting(self.listener) { Ok(()) } else { Err(Errno::SRCH) }
    }

    /// The path at this address.
    pub(crate) fn path(&self, address: u64) -> Result<Vec<u8>, Errno> {
        let mut text = Vec::new();
        loop {
            // Only up to the end of the page: the next page may not be mapped.
            let at = address.checked_add(text.len() as u64).ok_or(Errno::FAULT)?;
            let room = usize::try_from(PAGE - at % PAGE).unwrap_or(PATH_MAX).min(PATH_MAX - text.len());
            let piece = self.bytes(at, room.min(256))?;
            match piece.iter().position(|byte| *byte == 0) {
                Some(end) => {
                    text.extend_from_slice(&piece[..end]);
                    return if text.is_empty() { Err(Errno::NOENT) } else { Ok(text) };
                }
                None => text.extend_from_slice(&piece),
            }
            if text.len() >= PATH_MAX {
                return Err(Errno::NAMETOOLONG);
            }
        }
    }

    /// This many bytes at this address.
    pub(crate) fn bytes(&self, address: u64, length: usize) -> Result<Vec<u8>, Errno> {
        let memory = match self.memory.get() {
            Some(memory) => memory,
            None => {
                let file = File::open(format!("/proc/{}/mem", self.call.tid)).map_err(|_| Errno::ACCESS)?;
                self.memory.get_or_init(|| file)
            }
        };
        let mut bytes = vec![0; length];
        memory.read_exact_at(&mut bytes, address).map_err(|_| Errno::FAULT)?;
        Ok(bytes)
    }

    /// Where a relative path begins: at the directory of this descriptor, or at the working directory.
    pub(crate) fn start(&self, dir: i32) -> Result<OwnedFd, Errno> {
        if dir == libc::AT_FDCWD {
            let cwd = format!("/proc/{}/cwd", self.call.tid);
            return rustix::fs::openat(CWD, cwd, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
                .map_err(|_| Errno::ACCESS);
        }
        self.descriptor(dir)
    }

    /// What is open under this number.
    pub(crate) fn descriptor(&self, fd: i32) -> Result<OwnedFd, Errno> {
        if fd < 0 {
            return Err(Errno::BADF);
        }
        let name = format!("/proc/{}/fd/{fd}", self.call.tid);
        rustix::fs::openat(CWD, name, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
            .map_err(|errno| if errno == Errno::NOENT { Errno::BADF } else { Errno::ACCESS })
    }

    /// The number of the socket that is open under this number; `None` if it is no socket, or PID 1 may not
    /// look.
    pub(crate) fn socket(&self, fd: i32) -> Option<u64> {
        let link = std::fs::read_link(format!("/proc/{}/fd/{fd}", self.call.tid)).ok()?;
        link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
    }

    /// The PID of the thread's process.
    pub(crate) fn leader(&self) -> Result<u32, Errno> {
        if let Some(leader) = self.leader.get() {
            return Ok(*leader);
        }
        let leader = match self.opened() {
            // Most callers have one thread; /proc takes ten times as long.
            Ok(Opened { is_first_thread: true, .. }) => self.call.tid,
            Ok(_) | Err(_) => self.status("Tgid:", 10)?,
        };
        Ok(*self.leader.get_or_init(|| leader))
    }

    /// Its process, as a descriptor that stands for no other process later. The descriptors of a thread are
    /// those of its process, unless it was made in an unusual way.
    pub(crate) fn process(&self) -> Result<BorrowedFd<'_>, Errno> {
        Ok(self.opened()?.process.as_fd())
    }

    fn opened(&self) -> Result<&Opened, Errno> {
        if let Some(opened) = self.opened.get() {
            return Ok(opened);
        }
        // The kernel makes such a descriptor of no other thread than the first.
        let opened = match pidfd_open(pid(self.call.tid)?, PidfdFlags::empty()) {
            Ok(process) => Opened { process, is_first_thread: true },
            Err(_) => Opened { process: self.of_thread()?, is_first_thread: false },
        };
        Ok(self.opened.get_or_init(|| opened))
    }

    fn of_thread(&self) -> Result<OwnedFd, Errno> {
        match pidfd_open(pid(self.call.tid)?, PIDFD_THREAD) {
            Err(Errno::INVAL) => pidfd_open(pid(self.status("Tgid:", 10)?)?, PidfdFlags::empty()),
            process => process,
        }
    }

    /// Its umask.
    pub(crate) fn umask(&self) -> Result<Mode, Errno> {
        Ok(Mode::from_raw_mode(self.status("Umask:", 8)? & 0o777))
    }

    fn status(&self, field: &str, radix: u32) -> Result<u32, Errno> {
        let text =
            std::fs::read_to_string(format!("/proc/{}/status", self.call.tid)).map_err(|_| Errno::SRCH)?;
        let value = text.lines().find_map(|line| line.strip_prefix(field)).map(str::trim);
        value.and_then(|value| u32::from_str_radix(value, radix).ok()).ok_or(Errno::SRCH)
    }
}

fn pid(number: u32) -> Result<Pid, Errno> {
    Pid::from_raw(number.cast_signed()).ok_or(Errno::SRCH)
}
