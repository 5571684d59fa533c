//! What to grant where all programs may be executed but those of some names: a pure function over a listing.
//!
//! ```text
//!  names ─► the files that they lead to ─► /: every entry but the one above a denied file
//!                                            └─ /usr: the same ─ /usr/bin: each program but the denied
//! ```
//!
//! A directory that the run may write is granted as a whole: who may write there can copy a program as well.
//! It must never grant a denied file by another of its names in the same directories.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use super::Writable;
use super::ruleset::MAX_GRANTS;
use crate::program::DEFAULT_PATH;

/// Programs that have many others in one file, by the name that they are started with. Such a file is not
/// denied for one of its names: `ls` would be gone with `chroot`.
const MULTI_CALL: [&str; 3] = ["busybox", "coreutils", "toybox"];

/// Names one file, whatever its path.
pub(super) type FileId = (u64, u64);

/// An entry of a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) name: OsString,
    pub(super) kind: Kind,
    pub(super) id: FileId,
}

/// The kinds of entry that matter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Directory,
    /// A regular file that somebody may execute.
    Program,
    /// A link is one of these: the kernel asks of the file that it leads to.
    Other,
}

/// The directories of a container.
pub(super) trait Listing {
    /// The entries of a directory.
    fn entries(&self, dir: &Path) -> io::Result<Vec<Entry>>;

    /// Where a path leads, through all links; `None` if it leads to no file.
    fn real(&self, path: &Path) -> Option<(PathBuf, FileId)>;

    /// Whether the run may make files in a directory.
    fn is_writable(&self, dir: &Path) -> bool;
}

/// What to grant, so that everything but the programs of these names may be executed.
///
/// # Errors
/// The listing's; `E2BIG` where they are too many.
pub(super) fn grants(names: &[String], path: &str, listing: &dyn Listing) -> io::Result<Vec<PathBuf>> {
    let denied = denied(names, path, listing);
    let mut grants = Vec::new();
    walk(Path::new("/"), &denied, listing, &mut grants)?;
    Ok(grants)
}

/// The files that the names lead to.
fn denied(names: &[String], path: &str, listing: &dyn Listing) -> BTreeSet<(PathBuf, FileId)> {
    let dirs: BTreeSet<&str> =
        path.split(':').chain(DEFAULT_PATH.split(':')).filter(|dir| dir.starts_with('/')).collect();
    let mut denied = BTreeSet::new();
    for dir in dirs {
        for name in names {
            let Some((real, id)) = listing.real(&Path::new(dir).join(name)) else { continue };
            let is_fixed = real.parent().is_some_and(|parent| !listing.is_writable(parent));
            if is_fixed && !is_one_of_many(name, &real) {
                denied.insert((real, id));
            }
        }
    }
    denied
}

/// Whether a program of this name is one of many in a file.
fn is_one_of_many(name: &str, real: &Path) -> bool {
    let Some(file) = real.file_name().and_then(|file| file.to_str()) else { return false };
    let starts =
        |one: &&str| file.strip_prefix(*one).is_some_and(|rest| !rest.starts_with(char::is_alphanumeric));
    file != name && MULTI_CALL.iter().any(starts)
}

fn walk(
    dir: &Path,
    denied: &BTreeSet<(PathBuf, FileId)>,
    listing: &dyn Listing,
    grants: &mut Vec<PathBuf>,
) -> io::Result<()> {
    let holds_some = denied.iter().any(|(file, _)| file.starts_with(dir));
    if !holds_some {
        return grant(grants, dir.to_owned());
    }
    for entry in listing.entries(dir)? {
        let path = dir.join(&entry.name);
        match entry.kind {
            Kind::Directory => walk(&path, denied, listing, grants)?,
            Kind::Program if denied.iter().any(|(_, id)| *id == entry.id) => {}
            Kind::Program => grant(grants, path)?,
            Kind::Other => {}
        }
    }
    Ok(())
}

fn grant(grants: &mut Vec<PathBuf>, path: PathBuf) -> io::Result<()> {
    if grants.len() == MAX_GRANTS {
        return Err(io::Error::from_raw_os_error(libc::E2BIG));
    }
    grants.push(path);
    Ok(())
}

/// The directories of this container.
pub(super) struct FileSystem {
    pub(super) is_writable: Writable,
}

impl Listing for FileSystem {
    fn entries(&self, dir: &Path) -> io::Result<Vec<Entry>> {
        let read = |entry: io::Result<std::fs::DirEntry>| {
            let entry = entry?;
            let found = entry.metadata()?; // of a link itself
            let kind = if found.is_dir() {
                Kind::Directory
            } else if found.is_file() && found.permissions().mode() & 0o111 != 0 {
                Kind::Program
            } else {
                Kind::Other
            };
            Ok(Entry { name: entry.file_name(), kind, id: (found.dev(), found.ino()) })
        };
        let is_there = |entry: &io::Result<Entry>| {
            !entry.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::NotFound) // gone meanwhile
        };
        std::fs::read_dir(dir)?.map(read).filter(is_there).collect()
    }

    fn real(&self, path: &Path) -> Option<(PathBuf, FileId)> {
        let real = path.canonicalize().ok()?;
        let found = real.metadata().ok().filter(std::fs::Metadata::is_file)?;
        Some((real, (found.dev(), found.ino())))
    }

    fn is_writable(&self, dir: &Path) -> bool {
        (self.is_writable)(dir)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::collection::{btree_map, btree_set};
    use proptest::prelude::*;

    use super::*;

    /// A made-up container: files by their path, with their number, and links.
    #[derive(Default)]
    struct World {
        files: BTreeMap<PathBuf, u64>,
        links: BTreeMap<PathBuf, PathBuf>,
        writable: Vec<PathBuf>,
    }

    impl World {
        fn new(files: &[&str], links: &[(&str, &str)]) -> Self {
            let files = (1..).zip(files).map(|(id, path)| (PathBuf::from(path), id)).collect();
            let links = links.iter().map(|(link, target)| (link.into(), target.into())).collect();
            Self { files, links, writable: vec!["/data".into(), "/tmp".into()] }
        }

        fn grants(&self, names: &[&str], path: &str) -> Vec<String> {
            let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
            let grants = grants(&names, path, self).expect("few enough");
            grants.into_iter().map(|path| path.to_str().expect("text").to_owned()).collect()
        }

        /// Whether a file may be executed by what is granted.
        fn may(&self, grants: &[String], file: &str) -> bool {
            let (real, _) = self.real(Path::new(file)).expect("a file");
            grants.iter().any(|grant| real.starts_with(grant))
        }
    }

    impl Listing for World {
        fn entries(&self, dir: &Path) -> io::Result<Vec<Entry>> {
            let mut entries = BTreeMap::new();
            for (path, id) in &self.files {
                let Ok(below) = path.strip_prefix(dir) else { continue };
                let mut parts = below.iter();
                let Some(name) = parts.next() else { continue };
                let kind = if parts.next().is_some() { Kind::Directory } else { Kind::Program };
                entries.insert(name.to_owned(), Entry { name: name.to_owned(), kind, id: (1, *id) });
            }
            Ok(entries.into_values().collect())
        }

        fn real(&self, path: &Path) -> Option<(PathBuf, FileId)> {
            let mut path = path.to_owned();
            for _ in 0..40 {
                let link = path.ancestors().find(|above| self.links.contains_key(*above));
                let Some(link) = link.map(Path::to_owned) else { break };
                path = self.links[&link].join(path.strip_prefix(&link).expect("it is above"));
            }
            let path: PathBuf = path.components().collect();
            let id = *self.files.get(&path)?;
            Some((path, (1, id)))
        }

        fn is_writable(&self, dir: &Path) -> bool {
            self.writable.iter().any(|one| dir.starts_with(one))
        }
    }

    const FILES: [&str; 9] = [
        "/usr/bin/ssh",
        "/usr/bin/git",
        "/usr/bin/nc.openbsd",
        "/usr/bin/busybox",
        "/usr/lib/git-core/git-http",
        "/usr/sbin/chroot",
        "/data/run",
        "/tmp/x",
        "/opt/agent/bin/agent",
    ];
    const LINKS: [(&str, &str); 5] = [
        ("/bin", "/usr/bin"),
        ("/sbin", "/usr/sbin"),
        ("/usr/bin/nc", "/etc/alternatives/nc"),
        ("/etc/alternatives/nc", "/bin/nc.openbsd"),
        ("/usr/bin/su", "/usr/bin/busybox"),
    ];

    #[test]
    fn a_name_denies_the_file_that_it_leads_to_and_nothing_beside_it() {
        let world = World::new(&FILES, &LINKS);
        let grants = world.grants(&["ssh", "nc", "chroot", "su", "docker"], "/usr/bin");
        for denied in ["/usr/bin/ssh", "/bin/ssh", "/usr/bin/nc", "/bin/nc.openbsd", "/usr/sbin/chroot"] {
            assert!(!world.may(&grants, denied), "{denied}: {grants:?}");
        }
        for allowed in [
            "/usr/bin/git",
            "/usr/lib/git-core/git-http",
            "/data/run",
            "/tmp/x",
            "/opt/agent/bin/agent",
            "/usr/bin/su", // one of many in a file
        ] {
            assert!(world.may(&grants, allowed), "{allowed}: {grants:?}");
        }
        assert!(
            grants.contains(&"/usr/lib".to_owned()) && grants.contains(&"/data".to_owned()),
            "{grants:?}"
        );
        assert!(!world.may(&world.grants(&["busybox"], ""), "/usr/bin/busybox"), "it is named itself");
    }

    #[test]
    fn without_a_denied_file_the_root_is_granted_as_a_whole() {
        assert_eq!(World::new(&FILES, &LINKS).grants(&["kubectl"], "/usr/bin"), ["/"]);
    }

    #[test]
    fn a_second_name_of_a_denied_file_beside_it_is_denied_and_a_directory_of_path_is_looked_at() {
        let mut world = World::new(&FILES, &LINKS);
        world.files.insert("/usr/bin/slogin".into(), world.files[Path::new("/usr/bin/ssh")]);
        let grants = world.grants(&["ssh", "agent"], "relative:/opt/agent/bin");
        for denied in ["/usr/bin/ssh", "/usr/bin/slogin", "/opt/agent/bin/agent"] {
            assert!(!world.may(&grants, denied), "{denied}: {grants:?}");
        }
        assert!(world.may(&grants, "/usr/bin/git"));
    }

    #[test]
    fn a_directory_that_the_run_may_write_is_granted_as_a_whole() {
        let world = World::new(&FILES, &LINKS);
        let grants = world.grants(&["run", "ssh"], "/data");
        assert!(world.may(&grants, "/data/run") && grants.contains(&"/data".to_owned()), "{grants:?}");
    }

    #[test]
    fn more_programs_than_the_bound_are_an_error() {
        let files: Vec<_> = (0..=MAX_GRANTS).map(|n| format!("/usr/bin/p{n}")).collect();
        let mut files: Vec<_> = files.iter().map(String::as_str).collect();
        files.push("/usr/bin/ssh");
        let error = grants(&["ssh".to_owned()], "", &World::new(&files, &[])).expect_err("too many");
        assert_eq!(error.raw_os_error(), Some(libc::E2BIG));
    }

    proptest! {
        /// Of every made-up image: a file may be executed if and only if no denied name leads to it.
        #[test]
        fn everything_but_the_denied_may_be_executed(
            files in btree_set("(/usr/bin|/usr/sbin|/opt|/usr/lib/x|/data)/[a-d]", 1..16),
            links in btree_map("/usr/bin/[e-g]", "(/usr/sbin|/opt|/data)/[a-d]", 0..4),
            names in btree_set("[a-g]", 0..4),
        ) {
            let files: Vec<&str> = files.iter().map(String::as_str).collect();
            let links: Vec<_> = links.iter().map(|(link, to)| (link.as_str(), to.as_str())).collect();
            let world = World::new(&files, &links);
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            let grants = world.grants(&names, "/usr/bin:/data");
            for file in files {
                let leads = |dir: &str, name: &str| {
                    let path = format!("{dir}/{name}");
                    let link = links.iter().find(|(link, _)| *link == path);
                    link.map_or(path.as_str(), |(_, to)| *to) == file
                };
                let is_named = names.iter().any(|name| leads("/usr/bin", name) || leads("/usr/sbin", name));
                let is_denied = is_named && !file.starts_with("/data");
                prop_assert_eq!(world.may(&grants, file), !is_denied, "{}: {:?}", file, grants);
            }
        }
    }
}
