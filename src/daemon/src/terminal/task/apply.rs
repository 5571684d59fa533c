//! Makes the changes of a diff in a folder of this machine.
//!
//! ```text
//!  diff ─► each change is compared with the folder ─► one does not fit: nothing is changed
//!                                                 └─► all fit: new contents ─► beside their places
//!                                                       ─► they are those of the diff ─► renamed
//! ```
//!
//! A file fits if it is as the diff says that it was. A file is replaced as a whole or not at all. The names
//! and the contents come out of a container: this module must never write outside of the folder, follow a
//! symbolic link, make one, touch anything of `.git`, or write a content that the diff did not show.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{AtFlags, Mode, OFlags, RenameFlags, ResolveFlags};
use rustix::io::Errno;

use super::super::Failed;
use super::super::client::Client;
use crate::diff::{ChangeKind, ParsedChange, blob_id, parse};

const DIR: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// What was done, and what was not: lines for a person.
#[derive(Debug, Default)]
pub(super) struct Applied {
    pub(super) done: Vec<String>,
    /// Why nothing was changed, file by file.
    pub(super) conflicts: Vec<String>,
    /// Changes that are never made here, or that failed.
    pub(super) not_done: Vec<String>,
}

/// A change that fits.
struct Step {
    name: String,
    change: ParsedChange,
}

/// What a change finds in the folder.
enum Fit {
    /// It can be made.
    Fits,
    /// It is made already.
    Already,
    /// It is never made here.
    Never(&'static str),
    /// The folder has changed.
    Conflict(String),
}

/// Makes the changes of a diff in a folder; contents come from the session.
pub(super) async fn apply(
    client: &Client,
    session: &str,
    diff: &[u8],
    folder: &Path,
) -> Result<Applied, Failed> {
    let changes = parse(diff).ok_or_else(|| Failed::new("the diff cannot be read"))?;
    let unusable = |error: io::Error| Failed::Message(format!("cannot use {}: {error}", folder.display()));
    let folder = Folder::open(folder).map_err(unusable)?;
    let mut applied = Applied::default();
    let mut steps = Vec::new();
    let mut sections: BTreeMap<&[u8], usize> = BTreeMap::new();
    changes.iter().for_each(|change| *sections.entry(&change.name).or_default() += 1);
    for change in &changes {
        let shown = String::from_utf8_lossy(&change.name).into_owned();
        let is_of_two = sections.get(&*change.name).is_some_and(|count| *count > 1);
        let fit = match std::str::from_utf8(&change.name) {
            _ if change.is_link || is_of_two => Fit::Never("it is or was a symbolic link"),
            Ok(name) => folder.fit(name, change).map_err(unusable)?,
            Err(_) => Fit::Never("its name is not UTF-8"),
        };
        match fit {
            Fit::Fits => steps.push(Step { name: shown, change: change.clone() }),
            Fit::Already => applied.done.push(format!("{shown} is so already")),
            Fit::Never(why) => applied.not_done.push(format!("{shown}: {why}")),
            Fit::Conflict(why) => applied.conflicts.push(format!("{shown} {why}")),
        }
    }
    if !applied.conflicts.is_empty() {
        applied.done.clear();
        return Ok(applied);
    }
    // Removals first: a file can have become a folder.
    steps.sort_by_key(|step| step.change.kind != ChangeKind::Removed);
    for step in steps {
        let (word, made) = match step.change.kind {
            ChangeKind::Removed => ("removed", folder.remove(&step.name, &step.change)),
            ChangeKind::Added => ("added", folder.put(client, session, &step).await),
            ChangeKind::Changed => ("changed", folder.put(client, session, &step).await),
        };
        match made {
            Ok(()) => applied.done.push(format!("{word} {}", step.name)),
            Err(error) => applied.not_done.push(format!("{}: {error}", step.name)),
        }
    }
    Ok(applied)
}

/// The folder, open.
struct Folder(OwnedFd);

impl Folder {
    fn open(folder: &Path) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Self(rustix::fs::open(folder, flags, Mode::empty())?))
    }

    /// Opens something below the folder, through no symbolic link.
    fn beneath(&self, name: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        rustix::fs::openat2(&self.0, name, flags | OFlags::CLOEXEC, Mode::empty(), resolve)
    }

    /// What is at a path: git's name of the content, and its mode. `None` if there is nothing.
    fn look(&self, name: &str) -> Result<Option<(String, u32)>, Fit> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let file = match self.beneath(Path::new(name), flags) {
            Ok(file) => File::from(file),
            Err(Errno::NOENT | Errno::NOTDIR) => return Ok(None),
            Err(Errno::LOOP) => {
                return Err(Fit::Conflict("is, or is below, a symbolic link here".to_owned()));
            }
            Err(error) => return Err(Fit::Conflict(format!("cannot be read: {error}"))),
        };
        let read = file.metadata().and_then(|about| {
            if !about.is_file() {
                return Ok(None);
            }
            Ok(Some((blob_id(&file, about.len())?, about.mode())))
        });
        match read {
            Ok(Some(found)) => Ok(Some(found)),
            Ok(None) => Err(Fit::Conflict("is no regular file here".to_owned())),
            Err(error) => Err(Fit::Conflict(format!("cannot be read: {error}"))),
        }
    }

    fn fit(&self, name: &str, change: &ParsedChange) -> io::Result<Fit> {
        let is_plain = paddock_proto::RelPath::new(name.as_bytes()).is_ok();
        let is_of_git = name.split('/').any(|part| part.eq_ignore_ascii_case(".git"));
        if !is_plain || is_of_git {
            return Ok(Fit::Never("nothing is written to such a path"));
        }
        let found = match self.look(name) {
            Ok(found) => found.map(|(id, mode)| (id, mode & 0o100 != 0)),
            Err(fit) => return Ok(fit),
        };
        let is_mode = |is: bool| change.executable.is_none_or(|executable| executable == is);
        Ok(match (change.kind, &change.ids, found) {
            (ChangeKind::Removed, _, None) => Fit::Already,
            (ChangeKind::Added, Some((_, new)), Some((id, mode))) if id == *new && is_mode(mode) => {
                Fit::Already
            }
            (ChangeKind::Changed, Some((_, new)), Some((id, mode))) if id == *new && is_mode(mode) => {
                Fit::Already
            }
            (ChangeKind::Added, Some(_), None) => Fit::Fits,
            (ChangeKind::Added, _, Some(_)) => Fit::Conflict("is new, and here is another".to_owned()),
            (ChangeKind::Changed, _, None) => Fit::Conflict("is not here any more".to_owned()),
            // Only the mode changes.
            (ChangeKind::Changed, None, Some(_)) if change.executable.is_some() && !change.is_opaque => {
                Fit::Fits
            }
            (_, None, _) => Fit::Conflict("was too large to be compared".to_owned()),
            (_, Some((old, _)), Some((id, _))) if id == *old => Fit::Fits,
            (_, Some(_), Some(_)) => Fit::Conflict("has changed here since the agent got it".to_owned()),
        })
    }

    /// The folder of a path, made if it is missing, and the path's own name.
    fn parent<'a>(&self, name: &'a str) -> io::Result<(OwnedFd, &'a str)> {
        let (above, own) = name.rsplit_once('/').map_or(("", name), |(above, own)| (above, own));
        let mut at = rustix::fs::openat(&self.0, ".", DIR, Mode::empty())?;
        for part in above.split('/').filter(|part| !part.is_empty()) {
            at = match rustix::fs::openat(&at, part, DIR, Mode::empty()) {
                Err(Errno::NOENT) => {
                    rustix::fs::mkdirat(&at, part, Mode::from_raw_mode(0o777))?;
                    rustix::fs::openat(&at, part, DIR, Mode::empty())?
                }
                other => other?,
            };
        }
        Ok((at, own))
    }

    /// Checks again, at the last moment, that a change fits.
    fn still_fits(&self, name: &str, change: &ParsedChange) -> io::Result<()> {
        match self.fit(name, change)? {
            Fit::Fits => Ok(()),
            Fit::Already | Fit::Never(_) | Fit::Conflict(_) => {
                Err(io::Error::other("it has just changed here"))
            }
        }
    }

    fn remove(&self, name: &str, change: &ParsedChange) -> Result<(), Failed> {
        let remove = || -> io::Result<()> {
            let (parent, own) = self.parent(name)?;
            self.still_fits(name, change)?;
            rustix::fs::unlinkat(&parent, own, AtFlags::empty())?;
            // Git knows no empty folders. One that has something else stays.
            let mut above = name;
            while let Some((folder, _)) = above.rsplit_once('/') {
                let (parent, own) = self.parent(folder)?;
                if rustix::fs::unlinkat(&parent, own, AtFlags::REMOVEDIR).is_err() {
                    break;
                }
                above = folder;
            }
            Ok(())
        };
        remove().map_err(Failed::new)
    }

    async fn put(&self, client: &Client, session: &str, step: &Step) -> Result<(), Failed> {
        let Step { name, change } = step;
        let (parent, own) = self.parent(name).map_err(Failed::new)?;
        let mode = match self.look(name) {
            Ok(Some((_, mode))) => Some(mode & 0o777),
            Ok(None) | Err(_) => None,
        };
        let Some((_, new)) = &change.ids else {
            // Only the mode changes.
            let set = |mode: u32| -> io::Result<()> {
                self.still_fits(name, change)?;
                let file =
                    self.beneath(Path::new(name), OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK)?;
                Ok(rustix::fs::fchmod(&file, with_mode(mode, change.executable))?)
            };
            return set(mode.unwrap_or(0o644)).map_err(Failed::new);
        };
        let made_with = if change.executable == Some(true) { 0o777 } else { 0o666 };
        let beside = Beside::new(&parent);
        let file = beside.make(Mode::from_raw_mode(made_with)).map_err(Failed::new)?;
        let put = async {
            let mut to = tokio::fs::File::from_std(file.try_clone().map_err(Failed::new)?);
            client.read(session, name, &mut to).await?;
            let place = || -> io::Result<()> {
                let mut content = file.try_clone()?;
                io::Seek::rewind(&mut content)?;
                if blob_id(&content, content.metadata()?.len())? != *new {
                    return Err(io::Error::other("the session has another content now than the diff"));
                }
                if let Some(mode) = mode {
                    rustix::fs::fchmod(&file, with_mode(mode, change.executable))?;
                }
                self.still_fits(name, change)?;
                beside.put(&file, own, change.kind)
            };
            place().map_err(Failed::new)
        };
        put.await
    }
}

/// A new content beside its place. It has no name until it is whole, so that a command that is killed leaves
/// nothing; where the file system cannot do that, it has one, which is removed with this.
struct Beside<'a> {
    parent: &'a OwnedFd,
    name: String,
}

impl<'a> Beside<'a> {
    fn new(parent: &'a OwnedFd) -> Self {
        Self { parent, name: format!(".paddock-{}", crate::id::random_hex::<8>()) }
    }

    fn make(&self, mode: Mode) -> io::Result<File> {
        let nameless = OFlags::RDWR | OFlags::TMPFILE | OFlags::CLOEXEC;
        let named = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(self.parent, ".", nameless, mode)
            .or_else(|_| rustix::fs::openat(self.parent, &self.name, named, mode))?;
        Ok(File::from(file))
    }

    /// Puts the whole content in its place: a new file where nothing is, a changed one over the old.
    fn put(&self, file: &File, own: &str, kind: ChangeKind) -> io::Result<()> {
        if file.metadata()?.nlink() == 0 {
            let at = format!("/proc/self/fd/{}", file.as_raw_fd());
            rustix::fs::linkat(rustix::fs::CWD, at, self.parent, &self.name, AtFlags::SYMLINK_FOLLOW)?;
        }
        let flags = match kind {
            ChangeKind::Added => RenameFlags::NOREPLACE,
            ChangeKind::Changed | ChangeKind::Removed => RenameFlags::empty(),
        };
        Ok(rustix::fs::renameat_with(self.parent, &self.name, self.parent, own, flags)?)
    }
}

impl Drop for Beside<'_> {
    fn drop(&mut self) {
        let _ = rustix::fs::unlinkat(self.parent, &self.name, AtFlags::empty());
    }
}

/// A mode with or without the right to execute, for those who may read.
fn with_mode(mode: u32, executable: Option<bool>) -> Mode {
    Mode::from_raw_mode(match executable {
        Some(true) => mode | (mode & 0o444) >> 2,
        Some(false) => mode & !0o111,
        None => mode,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: &str = "print('old')\n";
    const NEW: &str = "print('new')\n";

    fn id(content: &str) -> String {
        blob_id(content.as_bytes(), content.len() as u64).unwrap()
    }

    fn change(name: &str, kind: ChangeKind, ids: Option<(&str, &str)>) -> ParsedChange {
        ParsedChange {
            name: name.into(),
            kind,
            is_link: false,
            executable: Some(false),
            is_opaque: false,
            ids: ids.map(|(old, new)| (id(old), id(new))),
            range: 0..0,
        }
    }

    fn fit(folder: &Path, change: &ParsedChange) -> &'static str {
        let name = std::str::from_utf8(&change.name).unwrap();
        match Folder::open(folder).unwrap().fit(name, change).unwrap() {
            Fit::Fits => "fits",
            Fit::Already => "already",
            Fit::Never(_) => "never",
            Fit::Conflict(_) => "conflict",
        }
    }

    #[test]
    fn a_change_fits_only_what_the_agent_got() {
        use ChangeKind::{Added, Changed, Removed};
        let (top, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        for (name, content) in [("old", OLD), ("new", NEW), ("mine", "mine\n"), ("dir/x", "x")] {
            std::fs::create_dir_all(top.path().join(name).parent().unwrap()).unwrap();
            std::fs::write(top.path().join(name), content).unwrap();
        }
        std::os::unix::fs::symlink(outside.path(), top.path().join("link")).unwrap();
        std::os::unix::fs::symlink(top.path().join("old"), top.path().join("to-old")).unwrap();
        let (both, none) = (Some((OLD, NEW)), None);
        for (name, kind, ids, expected) in [
            ("old", Changed, both, "fits"),
            ("new", Changed, both, "already"),
            ("mine", Changed, both, "conflict"),
            ("missing", Changed, both, "conflict"),
            ("old", Changed, none, "fits"), // only its mode
            ("missing", Added, both, "fits"),
            ("a/b/c", Added, both, "fits"),
            ("new", Added, both, "already"),
            ("old", Added, both, "conflict"),
            ("dir", Added, both, "conflict"),
            ("old/below", Added, both, "fits"), // the diff removes `old` then
            ("old", Removed, both, "fits"),
            ("mine", Removed, both, "conflict"),
            ("missing", Removed, both, "already"),
            ("link/x", Added, both, "conflict"),
            ("to-old", Changed, both, "conflict"),
            ("to-old", Removed, both, "conflict"),
            ("../x", Added, both, "never"),
            ("/etc/x", Added, both, "never"),
            (".git/hooks/x", Added, both, "never"),
            ("sub/.GIT/x", Added, both, "never"),
        ] {
            assert_eq!(fit(top.path(), &change(name, kind, ids)), expected, "{name} {kind:?} {ids:?}");
        }
        let opaque = ParsedChange { is_opaque: true, ..change("old", Changed, None) };
        assert_eq!(fit(top.path(), &opaque), "conflict", "its content is not known");
    }

    #[test]
    fn a_removed_file_takes_its_empty_folders_along_and_no_more() {
        let top = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(top.path().join("a/b")).unwrap();
        std::fs::write(top.path().join("a/b/old"), OLD).unwrap();
        std::fs::write(top.path().join("a/keep"), OLD).unwrap();
        let folder = Folder::open(top.path()).unwrap();
        let removal = |name| change(name, ChangeKind::Removed, Some((OLD, "")));
        folder.remove("a/b/old", &removal("a/b/old")).unwrap();
        assert!(!top.path().join("a/b").exists() && top.path().join("a/keep").exists());
        std::fs::write(top.path().join("a/keep"), "changed").unwrap();
        assert!(folder.remove("a/keep", &removal("a/keep")).is_err());
        assert!(top.path().join("a/keep").exists());
    }
}
