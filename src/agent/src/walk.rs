//! A walk over all of `/data`: what is there, without opening any file.
//!
//! It must never follow a link, nor take an entry that it could not look at for removed, nor keep PID 1 from
//! its other streams.

use paddock_proto::RelPath;
use paddock_proto::message::{EntryKind, SkipReason};
use rustix::fs::{self, AtFlags, Mode};
use rustix::io::Errno;

use crate::files;
use crate::fingerprint::{Baseline, Fingerprint};
use crate::pause::Pause;

/// What a walk found.
#[derive(Default)]
pub(crate) struct DataWalk {
    pub(crate) found: Baseline,
    pub(crate) skipped: Vec<(Vec<u8>, SkipReason)>,
    pub(crate) forced: Forced,
    pub(crate) entries: u64,
    /// Directories that could not be read to their end; `None` is `/data` itself.
    unread: Vec<Option<RelPath>>,
}

/// Directories whose mode was changed so that they can be read, and their own modes.
#[derive(Default)]
pub(crate) struct Forced(Vec<(RelPath, Mode)>);

impl Forced {
    /// Gives them their own modes back.
    pub(crate) fn restore(self) {
        for (path, mode) in self.0.into_iter().rev() {
            if let Ok(parent) = files::open_dir(path.parent().as_ref()) {
                let _ = fs::chmodat(&parent, path.file_name(), mode, AtFlags::empty());
            }
        }
    }
}

impl DataWalk {
    /// Walks all of `/data`, outermost first. The number of entries is bounded by the volume's inodes.
    pub(crate) async fn run() -> Self {
        let mut walk = Self::default();
        let mut pause = Pause::default();
        let mut dirs: Vec<Option<RelPath>> = vec![None];
        while let Some(dir) = dirs.pop() {
            if walk.read(dir.as_ref(), &mut dirs, &mut pause).await.is_err() {
                walk.skipped.extend(dir.clone().map(|dir| (dir.into(), SkipReason::Unreadable)));
                walk.unread.push(dir);
            }
        }
        walk
    }

    /// Whether an entry that was there before is known to be gone.
    pub(crate) fn is_gone(&self, path: &RelPath) -> bool {
        let unread = |dir: &Option<RelPath>| dir.as_ref().is_none_or(|dir| path.is_below(dir));
        !self.found.contains_key(path) && !self.unread.iter().any(unread)
    }

    async fn read(
        &mut self,
        dir: Option<&RelPath>,
        dirs: &mut Vec<Option<RelPath>>,
        pause: &mut Pause,
    ) -> rustix::io::Result<()> {
        let fd = match files::open_dir(dir) {
            Err(Errno::NOENT) if dir.is_some() => return Ok(()), // it went meanwhile
            other => other?,
        };
        for entry in fs::Dir::read_from(&fd)? {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if name == b"." || name == b".." {
                continue;
            }
            self.entries += 1;
            let path = match dir {
                Some(dir) => dir.join(name),
                None => RelPath::new(name),
            };
            let Ok(path) = path else {
                let full = dir.map_or(name.to_vec(), |d| [d.as_bytes(), b"/", name].concat());
                self.skipped.push((full, SkipReason::Path));
                continue;
            };
            let fingerprint = match Fingerprint::at(&fd, name) {
                Ok(Some(fingerprint)) => fingerprint,
                Ok(None) => {
                    self.skipped.push((path.into(), SkipReason::Special));
                    continue;
                }
                Err(Errno::NOENT) => continue, // it went meanwhile
                Err(error) => return Err(error),
            };
            if fingerprint.kind == EntryKind::Dir {
                if fingerprint.mode & 0o700 != 0o700 {
                    let stat = fs::statat(&fd, name, AtFlags::SYMLINK_NOFOLLOW)?;
                    let mode = Mode::from_raw_mode(stat.st_mode & 0o7777);
                    fs::chmodat(&fd, name, mode | Mode::RWXU, AtFlags::empty())?;
                    self.forced.0.push((path.clone(), mode));
                }
                dirs.push(Some(path.clone()));
            }
            self.found.insert(path, fingerprint);
            pause.if_due().await;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_that_could_not_be_looked_at_is_not_gone() {
        let path = |text: &str| RelPath::new(text).unwrap();
        let mut walk = DataWalk { unread: vec![Some(path("shut"))], ..DataWalk::default() };
        assert!(walk.is_gone(&path("a")) && walk.is_gone(&path("shut")));
        assert!(!walk.is_gone(&path("shut/in")) && !walk.is_gone(&path("shut/in/deep")));
        walk.unread.push(None);
        assert!(!walk.is_gone(&path("a")), "all of /data could not be read");
    }
}
