//! Changes to a session's files that become visible, and durable, together at the end.
//!
//! ```text
//!  file ─ write… ─ keep        (small ones wait in memory, others in tmp/)
//!  dir, remove                 (noted)
//!  commit: write the rest, sync all files, then remove / make / rename in order, then sync the directories
//! ```
//!
//! Dropped without a commit it leaves nothing but what the next start of the daemon wipes. It must never
//! acknowledge before the last sync returned.

use std::collections::BTreeSet;
use std::fs::{self, File, FileTimes, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use paddock_proto::RelPath;
use paddock_proto::message::{Entry, EntryKind};

use super::{Manifest, Space, StoreError, blocking, make_dir, sync_dir};

/// Content that may wait in memory, over all files of a batch.
const IN_MEMORY: usize = 1 << 20;

/// Changes from which on the file system is synced as a whole, twice: 16,000 small files one by one take 16 s.
const MANY: usize = 256;

/// Changes under way.
pub struct Batch {
    space: Arc<Space>,
    changes: Vec<Change>,
    writing: Option<Staged>,
    buffered: usize,
    /// The session as it would be after `changes`; made when it is asked for first.
    planned: Option<Manifest>,
}

enum Change {
    Remove(RelPath),
    Dir(Entry),
    Link(Entry),
    File(Staged),
}

impl Change {
    fn note(&self, manifest: &mut Manifest) {
        match self {
            Self::Remove(path) => manifest.remove(path),
            Self::Dir(entry) | Self::Link(entry) => manifest.put(entry.clone()),
            Self::File(staged) => manifest.put(staged.entry.clone()),
        }
    }
}

/// One file's new content.
struct Staged {
    entry: Entry,
    buffer: Vec<u8>,
    /// Where the content before `buffer` is. Only a name: a batch can have more files than the process may open.
    on_disk: Option<PathBuf>,
}

impl Drop for Staged {
    fn drop(&mut self) {
        if let Some(path) = &self.on_disk {
            let _ = fs::remove_file(path); // after a commit it is not there any more
        }
    }
}

impl Batch {
    /// Nothing changed yet.
    pub fn new(space: Arc<Space>) -> Self {
        Self { space, changes: Vec::new(), writing: None, buffered: 0, planned: None }
    }

    /// A path, and all below it, is to go.
    pub fn remove(&mut self, path: RelPath) {
        self.change(Change::Remove(path));
    }

    /// A directory is to be.
    pub fn dir(&mut self, entry: Entry) {
        self.change(Change::Dir(entry));
    }

    /// A symbolic link is to be.
    pub fn link(&mut self, entry: Entry) {
        self.change(Change::Link(entry));
    }

    /// Checks that an entry would fit what the session may hold, together with everything changed so far.
    ///
    /// # Errors
    /// [`StoreError::Quota`].
    pub fn admit(&mut self, entry: &Entry) -> Result<(), StoreError> {
        let planned = self.planned.get_or_insert_with(|| {
            let mut planned = self.space.manifest().clone();
            self.changes.iter().for_each(|change| change.note(&mut planned));
            planned
        });
        planned.admit(entry, self.space.shared.options.quota)
    }

    fn change(&mut self, change: Change) {
        if let Some(planned) = &mut self.planned {
            change.note(planned);
        }
        self.changes.push(change);
    }

    /// A file's new content begins. One that was begun before and not kept is dropped.
    pub fn file(&mut self, entry: Entry) {
        self.writing = Some(Staged { entry, buffer: Vec::new(), on_disk: None });
    }

    /// More of the content of the file begun last.
    ///
    /// # Errors
    /// What the file system says; the batch is then only good to be dropped.
    pub async fn write(&mut self, bytes: &[u8]) -> Result<(), StoreError> {
        let Some(staged) = &mut self.writing else { return Ok(()) };
        staged.buffer.extend_from_slice(bytes);
        self.buffered += bytes.len();
        if self.buffered > IN_MEMORY {
            self.spill().await?;
        }
        Ok(())
    }

    /// The content begun last is complete.
    pub fn keep(&mut self) {
        if let Some(staged) = self.writing.take() {
            self.change(Change::File(staged));
        }
    }

    /// The content begun last is not to be saved.
    pub fn discard(&mut self) {
        self.writing = None;
    }

    async fn spill(&mut self) -> Result<(), StoreError> {
        let mut changes = std::mem::take(&mut self.changes);
        let mut writing = self.writing.take();
        let tmp = self.space.shared.tmp.clone();
        let work = move || {
            let kept = changes.iter_mut().filter_map(|change| match change {
                Change::File(staged) => Some(staged),
                Change::Remove(_) | Change::Dir(_) | Change::Link(_) => None,
            });
            for staged in kept.chain(&mut writing).filter(|staged| !staged.buffer.is_empty()) {
                staged.spill(&tmp)?;
            }
            Ok((changes, writing))
        };
        (self.changes, self.writing) = blocking(work).await?;
        self.buffered = 0;
        Ok(())
    }

    /// Makes everything so, durably; the entries that were put, with their sizes as written.
    ///
    /// # Errors
    /// [`StoreError::Gone`], [`StoreError::Full`] and what else the file system says. Up to the sync of the last file nothing has
    /// changed then; after it, the manifest says what did.
    pub async fn commit(mut self) -> Result<Vec<Entry>, StoreError> {
        self.writing = None;
        if self.changes.is_empty() {
            return Ok(Vec::new());
        }
        let turn = self.space.turn().await;
        blocking(move || {
            let _turn = turn;
            self.commit_now()
        })
        .await
    }

    fn commit_now(mut self) -> Result<Vec<Entry>, StoreError> {
        let tmp = self.space.shared.tmp.clone();
        if self.space.is_gone() {
            return Err(StoreError::Gone);
        }
        self.space.make()?;
        let many = self.changes.len() > MANY;
        for change in &mut self.changes {
            if let Change::File(staged) = change {
                staged.seal(&tmp, !many)?;
            }
        }
        if many {
            sync_file_system(&tmp)?;
        }
        let mut put = Vec::new();
        let mut dirs = BTreeSet::new();
        let applied = self.changes.iter().try_for_each(|change| self.apply(change, &mut put, &mut dirs));
        // A removal may have taken directories that were noted for a sync. Looked at once: a look at all of them
        // after each change would be a square of what code can make.
        dirs.retain(|dir| dir.exists());
        let synced = applied.and_then(|()| {
            if many { sync_file_system(&tmp) } else { dirs.iter().try_for_each(|dir| sync_dir(dir)) }
        });
        if let Err(error) = synced {
            self.space.reload()?;
            return Err(error);
        }
        let mut manifest = self.space.manifest();
        self.changes.iter().for_each(|change| change.note(&mut manifest));
        drop(manifest);
        Ok(put)
    }

    fn apply(
        &self,
        change: &Change,
        put: &mut Vec<Entry>,
        dirs: &mut BTreeSet<PathBuf>,
    ) -> Result<(), StoreError> {
        let (path, entry) = match change {
            Change::Remove(path) => (path, None),
            Change::Dir(entry) | Change::Link(entry) => (&entry.path, Some(entry)),
            Change::File(staged) => (&staged.entry.path, Some(&staged.entry)),
        };
        let target = self.space.path(path);
        let mut act = || -> io::Result<()> {
            match change {
                Change::Remove(_) => remove(&target)?,
                Change::Dir(entry) => {
                    self.make_dirs(path, dirs)?;
                    fs::set_permissions(&target, Permissions::from_mode(entry.mode & 0o777 | 0o700))?;
                }
                Change::Link(_) => {
                    if let Some(parent) = path.parent() {
                        self.make_dirs(&parent, dirs)?;
                    }
                    remove(&target)?; // no link is ever made here
                }
                Change::File(staged) => {
                    if let Some(parent) = path.parent() {
                        self.make_dirs(&parent, dirs)?;
                    }
                    let Some(from) = &staged.on_disk else { return Ok(()) };
                    match fs::rename(from, &target) {
                        Err(e) if e.kind() == io::ErrorKind::IsADirectory => {
                            remove(&target)?;
                            fs::rename(from, &target)?;
                        }
                        other => other?,
                    }
                }
            }
            Ok(())
        };
        act().map_err(StoreError::io(format!("cannot save {path:?}")))?;
        if let Some(parent) = target.parent() {
            dirs.insert(parent.to_owned());
        }
        put.extend(entry.cloned());
        Ok(())
    }

    /// Makes every directory down to `path`; a file in the way goes.
    fn make_dirs(&self, path: &RelPath, dirs: &mut BTreeSet<PathBuf>) -> io::Result<()> {
        let mut at = self.space.files();
        for name in path.components() {
            dirs.insert(at.clone());
            at.push(<std::ffi::OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(name));
            match fs::symlink_metadata(&at) {
                Ok(found) if found.is_dir() => continue,
                Ok(_) => fs::remove_file(&at)?,
                Err(_) => {}
            }
            make_dir(&at)?;
            dirs.insert(at.clone());
        }
        Ok(())
    }
}

impl Staged {
    /// Moves what is buffered to disk.
    fn spill(&mut self, tmp: &Path) -> Result<(), StoreError> {
        let what = format!("cannot save {:?}", self.entry.path);
        let mut write = || {
            let mut options = OpenOptions::new();
            let (path, file) = match &self.on_disk {
                Some(path) => (path.clone(), options.append(true).open(path)),
                None => {
                    let path = tmp.join(crate::id::random_hex::<12>());
                    (path.clone(), options.write(true).create_new(true).mode(0o600).open(path))
                }
            };
            let mut file = file?;
            self.on_disk = Some(path);
            file.write_all(&self.buffer)
        };
        write().map_err(StoreError::io(what))?;
        self.buffer = Vec::new();
        Ok(())
    }

    /// Brings the whole content to disk, with its mode and time; for good, if `sync`.
    fn seal(&mut self, tmp: &Path, sync: bool) -> Result<(), StoreError> {
        if self.on_disk.is_none() || !self.buffer.is_empty() {
            self.spill(tmp)?;
        }
        let what = format!("cannot save {:?}", self.entry.path);
        let Some(path) = &self.on_disk else { return Ok(()) };
        let entry = &mut self.entry;
        let mut seal = || {
            let file = OpenOptions::new().write(true).open(path)?;
            entry.kind = EntryKind::File(file.metadata()?.len());
            // The daemon must be able to read it again, whatever the program made of it.
            file.set_permissions(Permissions::from_mode(entry.mode & 0o777 | 0o400))?;
            file.set_times(FileTimes::new().set_modified(time(entry.mtime_ns)))?;
            if sync { file.sync_all() } else { Ok(()) }
        };
        seal().map_err(StoreError::io(what))
    }
}

/// Syncs the whole file system that the store is on.
fn sync_file_system(on: &Path) -> Result<(), StoreError> {
    let sync = || rustix::fs::syncfs(File::open(on)?).map_err(io::Error::from);
    sync().map_err(StoreError::io(format!("cannot sync the file system of {}", on.display())))
}

fn remove(target: &Path) -> io::Result<()> {
    let gone = match fs::symlink_metadata(target) {
        Ok(found) if found.is_dir() => fs::remove_dir_all(target),
        Ok(_) => fs::remove_file(target),
        Err(error) => Err(error),
    };
    match gone {
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            Ok(())
        }
        other => other,
    }
}

fn time(ns: i64) -> SystemTime {
    let distance = Duration::from_nanos(ns.unsigned_abs());
    let moved = if ns >= 0 {
        SystemTime::UNIX_EPOCH.checked_add(distance)
    } else {
        SystemTime::UNIX_EPOCH.checked_sub(distance)
    };
    moved.unwrap_or(SystemTime::UNIX_EPOCH)
}
