//! Quotas tried out: takes a little more than each allows, and gives it back.
//!
//! It must never take more than that: where nothing refuses, it stops by itself.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use paddock_proto::limits::{DATA_DIR, PAGE};
use paddock_proto::message::{Filled, Quotas, Taken};
use rustix::fs::{AtFlags, CWD, FallocateFlags, Mode, OFlags, fallocate, openat, unlinkat};
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

/// Files that are open at one time. Where so many do not exceed a quota, the bound of a file's size is too
/// low for it.
const FILES: u64 = 256;

/// Tries all of them.
pub(super) fn try_out(quotas: &Quotas) -> Filled {
    Filled {
        data: bytes(DATA_DIR, quotas.data),
        data_inodes: entries(DATA_DIR, quotas.data_inodes),
        tmp: bytes("/tmp", quotas.tmp),
    }
}

/// Takes bytes in files without a name, so that none stays whatever happens.
fn bytes(dir: &str, quota: u64) -> Taken {
    let goal = quota.next_multiple_of(PAGE).saturating_add(PAGE);
    // The kernel ends a process that makes a larger file.
    let largest = getrlimit(Resource::Fsize).current.unwrap_or(u64::MAX).max(PAGE);
    let mut held = Vec::new();
    let mut amount = 0;
    // One page first: a quota into which not even that fits is no evidence.
    let mut next = PAGE;
    while amount < goal && (held.len() as u64) < FILES {
        let took = take(dir, next);
        match took {
            Ok(file) => held.push(file),
            Err(error) => return Taken { amount, errno: error.raw_os_error() },
        }
        amount += next;
        next = largest.min(goal - amount);
    }
    let errno = if amount < goal { Errno::MFILE.raw_os_error() } else { 0 };
    Taken { amount, errno }
}

/// Takes one page.
///
/// # Errors
/// The system's, where not even that can be had.
pub(super) fn first(dir: &str) -> Result<(), Errno> {
    take(dir, PAGE).map(drop)
}

/// A file without a name that takes this many bytes.
pub(super) fn take(dir: &str, bytes: u64) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    let file = match openat(CWD, dir, OFlags::TMPFILE | flags, Mode::RUSR) {
        // A kernel that knows no file without a name, such as gVisor's.
        Err(Errno::OPNOTSUPP | Errno::ISDIR) => {
            let path = Path::new(dir).join(".paddock-probe-file");
            let file = openat(CWD, &path, OFlags::CREATE | OFlags::EXCL | flags, Mode::RUSR | Mode::WUSR)?;
            unlinkat(CWD, &path, AtFlags::empty())?;
            file
        }
        opened => opened?,
    };
    fallocate(&file, FallocateFlags::empty(), 0, bytes)?;
    Ok(file)
}

/// Whether a file that is made in `dir` is at once in each of these directories too: they are one, whatever
/// they are called.
pub(super) fn is_seen_in(dir: &str, others: &[&str]) -> bool {
    const NAME: &str = ".paddock-probe-name";
    let own = Path::new(dir).join(NAME);
    if File::create_new(&own).is_err() {
        return false;
    }
    let seen = others.iter().all(|other| Path::new(other).join(NAME).exists());
    let _ = std::fs::remove_file(own);
    seen
}

/// Takes entries in a directory of its own.
fn entries(dir: &str, quota: u64) -> Taken {
    let place = Path::new(dir).join(".paddock-probe");
    let mut taken = Taken::default();
    let mut make = || -> io::Result<()> {
        std::fs::create_dir(&place)?;
        taken.amount = 1;
        while taken.amount <= quota {
            File::create(place.join(taken.amount.to_string()))?;
            taken.amount += 1;
        }
        Ok(())
    };
    let made = make();
    taken.errno = made.err().map_or(0, |error| error.raw_os_error().unwrap_or(-1));
    let _ = std::fs::remove_dir_all(&place);
    taken
}
