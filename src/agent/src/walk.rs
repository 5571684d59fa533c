//! A walk over all of `/data`: what is there, without opening any file. A walk over a workspace on a disk
//! leaves out what git would ignore: it does not enter such a directory, and opens the files that say so.
//!
//! It must never follow a link, nor take an entry that it could not look at for removed, nor keep PID 1 from
//! its other streams.

use std::collections::VecDeque;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use paddock_proto::RelPath;
use paddock_proto::ignore::{self, Rules};
use paddock_proto::limits::AGENTS_DIR;
use paddock_proto::message::{EntryKind, SkipReason};
use rustix::fs::{self, AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;

use crate::files;
use crate::fingerprint::{Baseline, Fingerprint};
use crate::pause::Pause;

/// How long a walk over a workspace may take: the daemon gives up an agent of which it hears nothing for
/// twice as long.
const WITHIN: Duration = Duration::from_secs(15);

/// What a walk leaves out.
#[derive(Clone, Copy)]
pub(crate) enum Scope<'a> {
    /// Nothing.
    All,
    /// What git would ignore, but for entries that are in this baseline; and what is more than so many
    /// entries, outermost first.
    Workspace { known: &'a Baseline, most: usize },
}

impl Scope<'_> {
    fn is_known(self, path: &RelPath) -> bool {
        matches!(self, Self::Workspace { known, .. } if known.contains_key(path))
    }

    fn is_more(self, found: usize, begun: Instant) -> bool {
        matches!(self, Self::Workspace { most, .. } if found >= most || begun.elapsed() > WITHIN)
    }
}

/// A directory that is yet to be read, and the rules that hold in it.
type Unread = (Option<RelPath>, Rules);

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
    /// Walks over `/data`, outermost first. The number of entries is bounded by the volume's inodes, or by
    /// the scope.
    pub(crate) async fn run(scope: Scope<'_>) -> Self {
        files::unlock_root();
        let mut walk = Self::default();
        let mut pause = Pause::default();
        let begun = Instant::now();
        let mut dirs: VecDeque<Unread> = VecDeque::from([(None, Rules::default())]);
        while let Some((dir, rules)) = dirs.pop_front() {
            if scope.is_more(walk.found.len(), begun) {
                walk.skipped.push((dir.map_or_else(|| b".".to_vec(), RelPath::into), SkipReason::TooMany));
                continue;
            }
            if walk.read(dir.as_ref(), rules, scope, &mut dirs, (&mut pause, begun)).await.is_err() {
                walk.skipped.extend(dir.clone().map(|dir| (dir.into(), SkipReason::Unreadable)));
                walk.unread.push(dir);
            }
        }
        if let Scope::Workspace { known, .. } = scope {
            walk.look_at_known(known, &mut pause).await;
        }
        walk
    }

    /// Looks at what the baseline has and the walk did not come by: it is below a directory that is ignored,
    /// or beyond the bound, or it is gone.
    async fn look_at_known(&mut self, known: &Baseline, pause: &mut Pause) {
        for path in known.keys() {
            if self.found.contains_key(path) {
                continue;
            }
            pause.if_due().await;
            let looked = files::open_dir(path.parent().as_ref())
                .and_then(|dir| Fingerprint::at(&dir, path.file_name()));
            match looked {
                Ok(Some(fingerprint)) => drop(self.found.insert(path.clone(), fingerprint)),
                Ok(None) | Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {}
                Err(_) => self.unread.push(Some(path.clone())),
            }
        }
    }

    /// Whether an entry that was there before is known to be gone.
    pub(crate) fn is_gone(&self, path: &RelPath) -> bool {
        let unread = |dir: &Option<RelPath>| dir.as_ref().is_none_or(|dir| path == dir || path.is_below(dir));
        !self.found.contains_key(path) && !self.unread.iter().any(unread)
    }

    async fn read(
        &mut self,
        dir: Option<&RelPath>,
        rules: Rules,
        scope: Scope<'_>,
        dirs: &mut VecDeque<Unread>,
        (pause, begun): (&mut Pause, Instant),
    ) -> rustix::io::Result<()> {
        let fd = match files::open_dir(dir) {
            Err(Errno::NOENT) if dir.is_some() => return Ok(()), // it went meanwhile
            other => other?,
        };
        let rules = match scope {
            Scope::All => rules,
            Scope::Workspace { .. } => with_own(rules, dir, &fd),
        };
        for entry in fs::Dir::read_from(&fd)? {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if name == b"." || name == b".." {
                continue;
            }
            if scope.is_more(self.found.len(), begun) {
                let dir = dir.map_or_else(|| b".".to_vec(), |dir| dir.as_bytes().to_vec());
                self.skipped.push((dir, SkipReason::TooMany));
                return Ok(());
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
            let is_dir = fingerprint.kind == EntryKind::Dir;
            let is_ignored = is_ignored(&rules, &path, is_dir);
            if is_ignored && !scope.is_known(&path) {
                pause.if_due().await;
                continue;
            }
            if is_dir && !is_ignored {
                if fingerprint.mode & 0o700 != 0o700 {
                    let stat = fs::statat(&fd, name, AtFlags::SYMLINK_NOFOLLOW)?;
                    let mode = Mode::from_raw_mode(stat.st_mode & 0o7777);
                    fs::chmodat(&fd, name, mode | Mode::RWXU, AtFlags::empty())?;
                    self.forced.0.push((path.clone(), mode));
                }
                dirs.push_back((Some(path.clone()), rules.clone()));
            }
            self.found.insert(path, fingerprint);
            pause.if_due().await;
        }
        Ok(())
    }
}

/// Whether git would ignore an entry. The agents' own files and `.gitignore` files are never ignored,
/// whatever a repository says: a reader of the saved files must see why others are missing.
fn is_ignored(rules: &Rules, path: &RelPath, is_dir: bool) -> bool {
    let is_own = path.components().next() == Some(AGENTS_DIR.as_bytes());
    let has_rules = !is_dir && path.file_name() == ignore::FILE;
    !is_own && !has_rules && rules.ignore(path.as_bytes(), is_dir)
}

/// The rules that hold in this directory: those of all above it, what its repository excludes if one begins
/// here, and what its own file says.
fn with_own(rules: Rules, path: Option<&RelPath>, dir: &OwnedFd) -> Rules {
    let base = path.map_or(&[][..], RelPath::as_bytes);
    let [git, info, exclude] = ignore::EXCLUDE;
    let open = |dir: &OwnedFd, name| {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        fs::openat(dir, name, flags, Mode::empty()).ok()
    };
    let excluded = open(dir, git).and_then(|git| open(&git, info)).and_then(|info| text_of(&info, exclude));
    let rules = excluded.map_or_else(|| rules.clone(), |text| rules.with(base, &text));
    text_of(dir, ignore::FILE).map_or_else(|| rules.clone(), |text| rules.with(base, &text))
}

/// The beginning of a regular file, as much as rules are read of.
fn text_of(dir: &OwnedFd, name: &[u8]) -> Option<Vec<u8>> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = fs::openat(dir, name, flags, Mode::empty()).ok()?;
    let stat = fs::fstat(&file).ok()?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return None;
    }
    let mut text = Vec::new();
    std::fs::File::from(file).take(ignore::MAX_FILE as u64).read_to_end(&mut text).ok()?;
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_of_a_repository_are_read_and_its_own_exclusions_count_less() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name);
        std::fs::create_dir_all(path(".git/info")).expect("a repository");
        std::fs::write(path(".git/info/exclude"), "*.env\nsecret\n").expect("a file");
        std::fs::write(path(".gitignore"), "!kept.env\n").expect("a file");
        let dir = OwnedFd::from(std::fs::File::open(folder.path()).expect("a directory"));
        let base = RelPath::new("repo").expect("a path");
        let rules = with_own(Rules::default(), Some(&base), &dir);
        let ignored = |text: &str| is_ignored(&rules, &RelPath::new(text).expect("a path"), false);
        assert!(ignored("repo/a.env") && ignored("repo/secret") && !ignored("repo/kept.env"));
        std::fs::remove_file(path(".gitignore")).expect("it is there");
        std::os::unix::fs::symlink(path(".git/info/exclude"), path(".gitignore")).expect("a link");
        std::fs::remove_file(path(".git/info/exclude")).expect("it is there");
        std::fs::create_dir(path(".git/info/exclude")).expect("a directory");
        let rules = with_own(Rules::default(), Some(&base), &dir);
        assert!(!rules.ignore(b"repo/a.env", false), "neither a link nor a directory has rules");
        let all = Rules::default().with(b"", b"*");
        assert!(!is_ignored(&all, &RelPath::new(".agent/x").expect("a path"), false));
    }

    #[test]
    fn an_entry_that_could_not_be_looked_at_is_not_gone() {
        let path = |text: &str| RelPath::new(text).unwrap();
        let mut walk = DataWalk { unread: vec![Some(path("shut"))], ..DataWalk::default() };
        assert!(walk.is_gone(&path("a")) && walk.is_gone(&path("shu")));
        assert!(!walk.is_gone(&path("shut/in")) && !walk.is_gone(&path("shut/in/deep")));
        assert!(!DataWalk { unread: vec![Some(path("a"))], ..DataWalk::default() }.is_gone(&path("a")));
        walk.unread.push(None);
        assert!(!walk.is_gone(&path("a")), "all of /data could not be read");
    }
}
