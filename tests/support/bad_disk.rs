//! A disk of a test's own whose syncs can take long and whose sectors can fail: a file system with one file,
//! which the test serves itself, a loop device on that file, and ext4 on the device. It needs root.
//!
//! ```text
//!  ext4 at the store ─► loop device ─► FUSE: one file, "disk" ─► the faults ─► an ordinary sparse file
//! ```
//!
//! Device mapper has targets for the same, but not every kernel has device mapper.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, UNIX_EPOCH};

use fuser::consts::FOPEN_DIRECT_IO;
use fuser::{
    BackgroundSession, FileAttr, FileType, Filesystem, MountOption, ReplyAttr, ReplyData, ReplyEmpty,
    ReplyEntry, ReplyOpen, ReplyWrite, Request,
};
use rustix::fs::FallocateFlags;
use rustix::io::Errno;
use tempfile::TempDir;

const SECTOR: u64 = 512;
/// The only file, beside its directory 1.
const DISK: u64 = 2;
/// How long the kernel may remember names and attributes, which never change.
const LONG: Duration = Duration::from_secs(3600);

/// What is wrong with the disk. All of it can change at any time.
#[derive(Default)]
struct Faults {
    /// Milliseconds that each sync takes.
    sync_ms: AtomicU64,
    /// Sectors that can be neither read nor written.
    failing: Mutex<BTreeSet<u64>>,
    /// The first sector in which these bytes are to be written begins to fail.
    marks: Mutex<Vec<Vec<u8>>>,
    /// Reads and writes that failed.
    failed: AtomicU64,
    /// Bytes of the writes that did not.
    written: AtomicU64,
}

impl Faults {
    fn fails(&self, at: u64, length: usize) -> bool {
        let sectors = at / SECTOR..(at + length as u64).div_ceil(SECTOR);
        let fails = self.failing.lock().expect("whole").range(sectors).next().is_some();
        self.failed.fetch_add(fails.into(), Ordering::Relaxed);
        fails
    }

    fn look_for_marks(&self, at: u64, data: &[u8]) {
        for mark in self.marks.lock().expect("whole").iter() {
            self.fail_in(at, data, mark);
        }
    }

    /// Lets every sector of `data` fail that has the beginning of this mark.
    fn fail_in(&self, at: u64, data: &[u8], mark: &[u8]) {
        for place in memchr::memmem::find_iter(data, mark) {
            self.failing.lock().expect("whole").insert((at + place as u64) / SECTOR);
        }
    }
}

/// A mounted disk. Dropping it removes it.
pub(crate) struct BadDisk {
    mounted: PathBuf,
    device: String,
    faults: Arc<Faults>,
    image: PathBuf,
    serving: Option<BackgroundSession>,
    _dir: TempDir,
}

impl BadDisk {
    /// A disk of this size with a file system, mounted at this folder.
    pub(crate) fn at(folder: &Path, bytes: u64) -> BadDisk {
        let dir = TempDir::new().expect("a directory");
        let (image, front) = (dir.path().join("image"), dir.path().join("front"));
        File::create(&image).and_then(|file| file.set_len(bytes)).expect("a sparse file");
        std::fs::create_dir(&front).expect("a directory");
        run("mkfs.ext4", &["-q".as_ref(), "-F".as_ref(), image.as_ref()]);
        let faults = Arc::new(Faults::default());
        let file = File::options().read(true).write(true).open(&image).expect("the file");
        let one = OneFile { file: Arc::new(file), bytes, faults: faults.clone() };
        let options = [MountOption::FSName("paddock-test".to_owned())];
        let serving = fuser::spawn_mount2(one, &front, &options).expect("these tests need root, for FUSE");
        let disk = front.join("disk");
        let device = run("losetup", &["--find".as_ref(), "--show".as_ref(), disk.as_ref()]);
        // No more than one request of FUSE carries: the loop device takes a write that is cut short for a
        // whole one.
        let name = device.trim_start_matches("/dev/");
        std::fs::write(format!("/sys/block/{name}/queue/max_sectors_kb"), "64").expect("a loop device");
        let mounted = folder.to_owned();
        run("mount", &[device.as_ref(), mounted.as_ref()]);
        BadDisk { mounted, device, faults, image, serving: Some(serving), _dir: dir }
    }

    /// From now on each sync takes so long.
    pub(crate) fn sync_takes(&self, time: Duration) {
        let ms = u64::try_from(time.as_millis()).expect("short");
        self.faults.sync_ms.store(ms, Ordering::Relaxed);
    }

    /// Every sector in which these bytes are to be written from now on fails.
    pub(crate) fn fail_at(&self, mark: &[u8]) {
        self.faults.marks.lock().expect("whole").push(mark.to_vec());
    }

    /// The sectors that have these bytes now fail. The kernel forgets what it has read from the disk.
    pub(crate) fn fail_where(&self, mark: &[u8]) {
        rustix::fs::sync();
        let image = std::fs::read(&self.image).expect("the disk");
        self.faults.fail_in(0, &image, mark);
        assert!(!self.faults.failing.lock().expect("whole").is_empty(), "the bytes are on no sector");
        run("blockdev", &["--flushbufs".as_ref(), self.device.as_ref()]);
        forget(&self.mounted);
    }

    /// The sectors work again, as after the disk has replaced them by others.
    pub(crate) fn mend(&self) {
        self.faults.marks.lock().expect("whole").clear();
        self.faults.failing.lock().expect("whole").clear();
    }

    /// Takes all of its free space, until the result is dropped.
    pub(crate) fn fill(&self) -> Filler {
        let path = self.mounted.join("filler");
        let file = File::create(&path).expect("a file");
        let mut step = 64 << 20;
        let mut at = 0;
        while step >= 4096 {
            match rustix::fs::fallocate(&file, FallocateFlags::empty(), at, step) {
                Ok(()) => at += step,
                Err(_) => step /= 2,
            }
        }
        Filler(path)
    }

    /// Bytes that were written to it.
    pub(crate) fn written(&self) -> u64 {
        self.faults.written.load(Ordering::Relaxed)
    }

    /// The number of reads and writes that failed.
    pub(crate) fn failed(&self) -> u64 {
        self.faults.failed.load(Ordering::Relaxed)
    }
}

/// A file that has all the space of a disk.
pub(crate) struct Filler(PathBuf);

impl Drop for Filler {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

impl Drop for BadDisk {
    fn drop(&mut self) {
        self.mend();
        let _ = Command::new("umount").arg("--lazy").arg(&self.mounted).status();
        let _ = Command::new("losetup").args(["--detach", &self.device]).status();
        drop(self.serving.take());
    }
}

/// Drops the pages of all files below.
fn forget(folder: &Path) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => forget(&path),
            Ok(kind) if kind.is_file() => {
                let file = File::open(&path).expect("a file");
                rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).expect("forgotten");
            }
            Ok(_) | Err(_) => {}
        }
    }
}

fn run(program: &str, arguments: &[&OsStr]) -> String {
    let done = Command::new(program).args(arguments).output().unwrap_or_else(|e| panic!("{program}: {e}"));
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "these tests need root, for {program} {arguments:?}: {said}");
    String::from_utf8_lossy(&done.stdout).trim().to_owned()
}

/// What the kernel sees: a directory with the file `disk`.
struct OneFile {
    file: Arc<File>,
    bytes: u64,
    faults: Arc<Faults>,
}

impl OneFile {
    fn attributes(&self, ino: u64) -> FileAttr {
        let (kind, perm, size) = match ino {
            DISK => (FileType::RegularFile, 0o600, self.bytes),
            _ => (FileType::Directory, 0o700, 0),
        };
        let [atime, mtime, ctime, crtime] = [UNIX_EPOCH; 4];
        FileAttr {
            ino,
            size,
            blocks: size / SECTOR,
            atime,
            mtime,
            ctime,
            crtime,
            kind,
            perm,
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        }
    }
}

impl Filesystem for OneFile {
    fn lookup(&mut self, _: &Request<'_>, _: u64, name: &OsStr, reply: ReplyEntry) {
        if name == "disk" {
            reply.entry(&LONG, &self.attributes(DISK), 0);
        } else {
            reply.error(Errno::NOENT.raw_os_error());
        }
    }

    fn getattr(&mut self, _: &Request<'_>, ino: u64, _: Option<u64>, reply: ReplyAttr) {
        reply.attr(&LONG, &self.attributes(ino));
    }

    fn open(&mut self, _: &Request<'_>, _: u64, _: i32, reply: ReplyOpen) {
        // Without a cache of its own, so that every read and write arrives here.
        reply.opened(0, FOPEN_DIRECT_IO);
    }

    fn read(
        &mut self,
        _: &Request<'_>,
        _: u64,
        _: u64,
        offset: i64,
        size: u32,
        _: i32,
        _: Option<u64>,
        reply: ReplyData,
    ) {
        let at = offset.cast_unsigned();
        let mut data =
            vec![0; usize::try_from(u64::from(size).min(self.bytes.saturating_sub(at))).expect("small")];
        if self.faults.fails(at, data.len()) || self.file.read_exact_at(&mut data, at).is_err() {
            reply.error(Errno::IO.raw_os_error());
        } else {
            reply.data(&data);
        }
    }

    fn write(
        &mut self,
        _: &Request<'_>,
        _: u64,
        _: u64,
        offset: i64,
        data: &[u8],
        _: u32,
        _: i32,
        _: Option<u64>,
        reply: ReplyWrite,
    ) {
        let at = offset.cast_unsigned();
        self.faults.look_for_marks(at, data);
        if self.faults.fails(at, data.len()) || self.file.write_all_at(data, at).is_err() {
            reply.error(Errno::IO.raw_os_error());
        } else {
            self.faults.written.fetch_add(data.len() as u64, Ordering::Relaxed);
            reply.written(u32::try_from(data.len()).expect("small"));
        }
    }

    fn fsync(&mut self, _: &Request<'_>, _: u64, _: u64, _: bool, reply: ReplyEmpty) {
        let time = Duration::from_millis(self.faults.sync_ms.load(Ordering::Relaxed));
        // In a thread of its own: reads and other writes go on meanwhile.
        std::thread::spawn(move || {
            std::thread::sleep(time);
            reply.ok();
        });
    }
}
