//! The daemon's changes, applied to `/data`.
//!
//! What is in the way of an entry is removed. It must never write through a link, leave a baseline that
//! differs from what was written, nor leave a part of a file when the daemon dies while it sends it.

use std::cell::RefCell;
use std::io::Write;
use std::rc::Rc;

use paddock_proto::message::{Entry, EntryKind, Request};
use paddock_proto::{Channel, Event, Inbound, RelPath};
use rustix::fs::{self, AtFlags, Mode, Timespec, Timestamps};

use crate::container::Container;
use crate::files;
use crate::fingerprint::{Baseline, Fingerprint};
use crate::link::Stream;
use crate::pause::Pause;

/// Answers [`Request::Apply`]: applies the daemon's changes in their order.
pub(crate) async fn serve(container: &Container, stream: &Stream) {
    files::unlock_root();
    let done = apply_all(stream, &container.baseline).await;
    match done {
        Ok(()) => stream.event(&Event::Applied).await,
        Err(what) => stream.event(&Event::Failed { what }).await,
    }
    stream.close().await;
}

async fn apply_all(stream: &Stream, baseline: &RefCell<Rc<Baseline>>) -> Result<(), String> {
    let mut pause = Pause::default();
    loop {
        pause.if_due().await;
        match stream.request().await {
            Ok(Request::Put(entry)) => {
                let what =
                    |e: rustix::io::Errno| format!("cannot write {:?} in the container: {e}", entry.path);
                match entry.kind {
                    EntryKind::Dir => {
                        files::put_dir(&entry.path, entry.mode).map_err(what)?;
                        note(Rc::make_mut(&mut baseline.borrow_mut()), &entry.path);
                    }
                    EntryKind::Link(ref target) => {
                        files::put_link(&entry.path, target).map_err(what)?;
                        note(Rc::make_mut(&mut baseline.borrow_mut()), &entry.path);
                    }
                    EntryKind::File(size) => {
                        let file = std::fs::File::from(files::put_file(&entry.path).map_err(what)?);
                        // What was there is gone: until the file is whole the baseline has nothing here.
                        entry.path.remove_from(Rc::make_mut(&mut baseline.borrow_mut()));
                        match receive_file(stream, &entry, &file, size, &mut pause).await {
                            Ok(own) => {
                                let baseline = &mut *baseline.borrow_mut();
                                Rc::make_mut(baseline).insert(entry.path.clone(), own);
                            }
                            Err(what) => {
                                remove_part(&entry.path, &file);
                                return Err(what);
                            }
                        }
                    }
                }
                // The directories above it are there now, if they were not before.
                let mut above = entry.path.parent();
                while let Some(dir) = above {
                    if baseline
                        .borrow()
                        .get(&dir)
                        .is_some_and(|fingerprint| fingerprint.kind == EntryKind::Dir)
                    {
                        break;
                    }
                    note(Rc::make_mut(&mut baseline.borrow_mut()), &dir);
                    above = dir.parent();
                }
            }
            Ok(Request::Remove(path)) => {
                files::remove(&path).map_err(|e| format!("cannot remove {path:?} in the container: {e}"))?;
                path.remove_from(Rc::make_mut(&mut baseline.borrow_mut()));
            }
            Ok(Request::Agreed(entry)) => {
                let own = look(&entry.path).filter(|own| own.is_of(&entry));
                let own = own.unwrap_or_else(|| Fingerprint::outdated(&entry));
                Rc::make_mut(&mut baseline.borrow_mut()).insert(entry.path, own);
            }
            Err(Inbound::Close) => return Ok(()),
            Ok(_) | Err(_) => return Err("the daemon closed the stream in between".into()),
        }
    }
}

/// Takes what is at this path now into the baseline.
fn note(baseline: &mut Baseline, path: &RelPath) {
    match look(path) {
        Some(fingerprint) => baseline.insert(path.clone(), fingerprint),
        None => baseline.remove(path),
    };
}

/// What is at this path now.
fn look(path: &RelPath) -> Option<Fingerprint> {
    let dir = files::open_dir(path.parent().as_ref()).ok()?;
    Fingerprint::at(&dir, path.file_name()).ok()?
}

/// Removes a file that did not arrive whole, unless a program has put something else in its place. A
/// collection would report it as a file of a program.
fn remove_part(path: &RelPath, file: &std::fs::File) {
    let found = files::open_dir(path.parent().as_ref())
        .and_then(|dir| fs::statat(&dir, path.file_name(), AtFlags::SYMLINK_NOFOLLOW));
    let is_same = |found: &fs::Stat| {
        fs::fstat(file).is_ok_and(|own| (own.st_dev, own.st_ino) == (found.st_dev, found.st_ino))
    };
    if found.is_ok_and(|found| is_same(&found)) {
        // It was made just now, in a directory of ours; and a next change removes what is in its way.
        let _ = files::remove(path);
    }
}

async fn receive_file(
    stream: &Stream,
    entry: &Entry,
    mut file: &std::fs::File,
    size: u64,
    pause: &mut Pause,
) -> Result<Fingerprint, String> {
    let what = |e: &dyn std::fmt::Display| format!("cannot write {:?} in the container: {e}", entry.path);
    let mut left = size;
    while left > 0 {
        let Inbound::Data(Channel::File, bytes) = stream.recv().await else {
            return Err(what(&"the daemon closed the stream in between"));
        };
        left = left.checked_sub(bytes.len() as u64).ok_or_else(|| what(&"more bytes than announced"))?;
        file.write_all(&bytes).map_err(|e| what(&e))?;
        pause.if_due().await;
    }
    let time =
        |ns: i64| Timespec { tv_sec: ns.div_euclid(1_000_000_000), tv_nsec: ns.rem_euclid(1_000_000_000) };
    let times = Timestamps { last_access: time(entry.mtime_ns), last_modification: time(entry.mtime_ns) };
    fs::futimens(file, &times).map_err(|e| what(&e))?;
    fs::fchmod(file, Mode::from_raw_mode(entry.mode & 0o777)).map_err(|e| what(&e))?;
    let stat = fs::fstat(file).map_err(|e| what(&e))?;
    Fingerprint::of(&stat).ok_or_else(|| what(&"it is no file any more"))
}
