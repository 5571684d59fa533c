//! Folders of the engine's host that an operator lets programs read, at `/mnt/NAME`.
//!
//! ```text
//!  [[mounts]] ─► HostMount ─► look at the folder ─► a bind mount of the container: read-only,
//!                             (each start)           and without the mounts below it
//! ```
//!
//! A folder is looked at when the daemon starts and before each container starts, so a link that took its
//! place is never followed. Between this look and the engine's mount the folder can still be replaced, by a
//! user who may rename one of the folders above it: [`HostMount::replaceable_by`] says who that is. Inside of
//! the folder links lead nowhere else, because a program follows them in its own container; devices cannot be
//! opened and set-user-id bits have no effect, as everywhere in a container. Sockets and FIFOs can be used by
//! whom their mode lets, read-only or not.
//!
//! This must never give a container a mount that can be written.

use std::collections::BTreeMap;
use std::fs::{FileType, Metadata};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::engine::{BindOptions, Mount, MountType};

/// The folder of all mounts in a container.
pub(crate) const PARENT: &str = "/mnt";

/// Time for a folder to be looked at: a file system whose server is gone never answers.
const LOOK: Duration = Duration::from_secs(5);

/// Steps to the folder that a path leads to, links and folders that do not exist yet together.
const LINKS: usize = 256;

/// Mode bits that let other users than the owner rename what is in a folder.
const WRITABLE: u32 = 0o022;
/// In a folder with this bit, only the owner of an entry renames it.
const STICKY: u32 = 0o1000;

/// One of `mounts` in the configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostMount {
    /// Its name: programs see it at `/mnt/NAME`.
    pub name: String,
    /// The absolute path on the engine's host.
    pub path: PathBuf,
    /// What is in it, for models to read.
    pub about: String,
    /// The runners whose containers have it. None: those of all languages, and no coding agent's.
    pub runners: Vec<String>,
    /// Whether the engine's host is this one, so that the daemon can look at the folder.
    pub is_here: bool,
}

/// Why a folder is not mounted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the folder of mounts \"{name}\", {}, {why}", path.display())]
pub struct MountError {
    name: String,
    path: PathBuf,
    why: String,
}

impl HostMount {
    /// Where programs see it.
    pub fn target(&self) -> String {
        format!("{PARENT}/{}", self.name)
    }

    /// Whether the containers of this runner have it.
    pub(super) fn is_for(&self, runner: &str, coding_agent: bool) -> bool {
        if self.runners.is_empty() { !coding_agent } else { self.runners.iter().any(|name| name == runner) }
    }

    /// The mount of a container.
    pub(super) fn mount(&self) -> Mount {
        Mount {
            kind: MountType::Bind,
            source: self.path.to_string_lossy().into_owned(),
            target: self.target(),
            read_only: true,
            volume_options: None,
            // An engine makes only the topmost of several mounts read-only.
            bind_options: Some(BindOptions { non_recursive: true }),
        }
    }

    /// Refuses what is no folder. `closed` are folders of the engine that no program may see.
    pub(crate) async fn look(&self, closed: &[PathBuf]) -> Result<(), MountError> {
        let places = |closed: &PathBuf| if self.is_here { places(closed) } else { vec![closed.clone()] };
        if let Some(why) = closed.iter().flat_map(places).find_map(|closed| touches(&self.path, &closed)) {
            return Err(self.fail(why));
        }
        if !self.is_here {
            return Ok(());
        }
        let path = self.path.clone();
        let looking = async move {
            let one = one_look(&path).lock_owned().await;
            let looking = move || {
                let _one = one;
                look(&path)
            };
            tokio::task::spawn_blocking(looking).await
        };
        match tokio::time::timeout(LOOK, looking).await {
            Ok(Ok(found)) => found.map_err(|why| self.fail(why)),
            Ok(Err(error)) => Err(self.fail(error.to_string())),
            Err(_) => Err(self.fail(format!("does not answer within {LOOK:?}: its file system hangs"))),
        }
    }

    /// The folder above it in which other users than root and the daemon's own can put something else in its
    /// place.
    pub(crate) fn replaceable_by(&self) -> Option<String> {
        if self.is_here { replaceable(&self.path, rustix::process::geteuid().as_raw()) } else { None }
    }

    fn fail(&self, why: String) -> MountError {
        MountError { name: self.name.clone(), path: self.path.clone(), why }
    }
}

/// The lock of whoever looks at a folder: a thread that hangs keeps it, so that there is only one.
fn one_look(path: &Path) -> Arc<tokio::sync::Mutex<()>> {
    static LOOKS: Mutex<BTreeMap<PathBuf, Arc<tokio::sync::Mutex<()>>>> = Mutex::new(BTreeMap::new());
    let mut looks = LOOKS.lock().unwrap_or_else(PoisonError::into_inner);
    looks.entry(path.to_owned()).or_default().clone()
}

/// Why a path is refused beside a folder that no program may see: it is that folder, or in it, or above it.
pub(crate) fn touches(path: &Path, closed: &Path) -> Option<String> {
    let shown = closed.display();
    if path == closed {
        Some("may not be mounted: it holds what programs must not reach".to_owned())
    } else if path.starts_with(closed) {
        Some(format!("may not be mounted: it is in {shown}, which holds what programs must not reach"))
    } else if closed.starts_with(path) {
        Some(format!("may not be mounted: {shown} is in it, which holds what programs must not reach"))
    } else {
        None
    }
}

/// A path as it is, and as links on its way lead to it. What does not exist yet is taken as it will be made,
/// in the nearest folder above it that exists.
pub(crate) fn places(path: &Path) -> Vec<PathBuf> {
    let mut places = vec![path.to_owned()];
    places.extend(behind_links(path).filter(|behind| behind != path));
    places
}

fn behind_links(path: &Path) -> Option<PathBuf> {
    let (mut at, mut rest) = (path.to_owned(), PathBuf::new());
    for _ in 0..LINKS {
        if let Ok(found) = at.canonicalize() {
            // To join nothing would add a slash.
            return Some(if rest.as_os_str().is_empty() { found } else { found.join(rest) });
        }
        let above = at.parent()?.to_owned();
        at = match std::fs::read_link(&at) {
            // A link to what does not exist yet.
            Ok(target) => above.join(target),
            Err(_) => {
                rest = if rest.as_os_str().is_empty() {
                    PathBuf::from(at.file_name()?)
                } else {
                    Path::new(at.file_name()?).join(rest)
                };
                above
            }
        };
    }
    None
}

/// All folders on the way to a path, and the path.
fn way(path: &Path) -> Vec<&Path> {
    let mut way: Vec<_> = path.ancestors().collect();
    way.reverse();
    way
}

/// Refuses a path that is no folder, or has a link on its way.
pub(crate) fn look(path: &Path) -> Result<(), String> {
    for part in way(path) {
        let shown = part.display();
        let is_it = part == path;
        let meta = match std::fs::symlink_metadata(part) {
            Ok(meta) => meta,
            Err(error) if error.kind() == io::ErrorKind::NotFound && is_it => {
                return Err("does not exist: make it, or remove this entry of mounts".to_owned());
            }
            Err(error) => return Err(format!("cannot be looked at: {shown}: {}", error.kind())),
        };
        let kind = meta.file_type();
        if kind.is_symlink() {
            let target = std::fs::read_link(part).unwrap_or_default();
            let what =
                if is_it { "is a link".to_owned() } else { format!("has a link on its way, {shown},") };
            return Err(format!("{what} to {}: name the folder itself", target.display()));
        }
        if !kind.is_dir() {
            let what = if is_it { "is".to_owned() } else { format!("has on its way, {shown},") };
            return Err(format!("{what} {}: a folder is needed", name_of(kind)));
        }
    }
    Ok(())
}

fn name_of(kind: FileType) -> &'static str {
    if kind.is_file() {
        "a file"
    } else if kind.is_fifo() {
        "a FIFO"
    } else if kind.is_socket() {
        "a socket"
    } else {
        "a device"
    }
}

fn replaceable(path: &Path, own: u32) -> Option<String> {
    let trusted = |owner: u32| owner == 0 || owner == own;
    way(path).windows(2).find_map(|pair| {
        let [above, below] = pair else { return None };
        let (folder, entry) = (look_at(above)?, look_at(below)?);
        if !trusted(folder.uid()) {
            return Some(format!("the user with the id {}, who owns {}", folder.uid(), above.display()));
        }
        let is_kept = folder.mode() & STICKY != 0 && trusted(entry.uid());
        (folder.mode() & WRITABLE != 0 && !is_kept).then(|| {
            format!("every user who may write to {} (mode {:03o})", above.display(), folder.mode() & 0o7777)
        })
    })
}

fn look_at(path: &Path) -> Option<Metadata> {
    std::fs::symlink_metadata(path).ok()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::os::unix::net::UnixListener;

    use super::*;

    fn at(path: &Path) -> HostMount {
        HostMount {
            name: "docs".into(),
            path: path.to_owned(),
            about: String::new(),
            runners: Vec::new(),
            is_here: true,
        }
    }

    async fn why(path: &Path) -> String {
        at(path).look(&[]).await.expect_err("it was not refused").to_string()
    }

    #[test]
    fn a_mount_is_read_only_and_has_nothing_that_is_mounted_below_it() {
        let mount = serde_json::json!(at(Path::new("/srv/docs")).mount());
        assert_eq!(
            mount,
            serde_json::json!({
                "Type": "bind", "Source": "/srv/docs", "Target": "/mnt/docs", "ReadOnly": true,
                "BindOptions": {"NonRecursive": true}
            })
        );
    }

    #[test]
    fn it_is_for_all_languages_or_for_the_named_runners() {
        let all = at(Path::new("/srv/docs"));
        assert!(all.is_for("python", false) && !all.is_for("claude-code", true));
        let some = HostMount { runners: vec!["typescript".into(), "claude-code".into()], ..all };
        assert!(some.is_for("typescript", false) && some.is_for("claude-code", true));
        assert!(!some.is_for("python", false) && !some.is_for("opencode", true));
    }

    #[tokio::test]
    async fn only_a_folder_that_no_link_leads_to_is_mounted() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let folder = root.join("docs");
        fs::create_dir(&folder).unwrap();
        at(&folder).look(&[]).await.unwrap();
        assert!(why(&root.join("gone")).await.contains("does not exist"));
        fs::write(root.join("file"), "").unwrap();
        assert!(why(&root.join("file")).await.ends_with("is a file: a folder is needed"));
        assert!(why(&root.join("file/below")).await.contains("has on its way"));
        rustix::fs::mknodat(
            rustix::fs::CWD,
            root.join("fifo"),
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RUSR,
            0,
        )
        .unwrap();
        assert!(why(&root.join("fifo")).await.contains("is a FIFO"));
        let _socket = UnixListener::bind(root.join("socket")).unwrap();
        assert!(why(&root.join("socket")).await.contains("is a socket"));
        assert!(why(Path::new("/dev/null")).await.contains("is a device"));
        symlink(&folder, root.join("link")).unwrap();
        assert!(why(&root.join("link")).await.contains("is a link to"));
        fs::create_dir(folder.join("in")).unwrap();
        assert!(why(&root.join("link/in")).await.contains("has a link on its way"));
    }

    #[tokio::test(start_paused = true)]
    async fn while_a_look_hangs_there_is_no_second_one() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().canonicalize().unwrap();
        let hanging = one_look(&folder).lock_owned().await;
        assert!(why(&folder).await.contains("its file system hangs"));
        drop(hanging);
        at(&folder).look(&[]).await.unwrap();
    }

    #[tokio::test]
    async fn a_link_that_took_the_place_of_the_folder_is_refused_at_the_next_look() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().canonicalize().unwrap().join("docs");
        fs::create_dir(&folder).unwrap();
        at(&folder).look(&[]).await.unwrap();
        fs::remove_dir(&folder).unwrap();
        symlink("/etc", &folder).unwrap();
        assert!(why(&folder).await.contains("is a link to /etc"));
    }

    #[tokio::test]
    async fn what_the_engine_keeps_is_not_mounted_nor_anything_above_or_in_it() {
        let closed = [PathBuf::from("/srv/engine/docker")];
        for path in ["/srv", "/srv/engine", "/srv/engine/docker", "/srv/engine/docker/volumes"] {
            let remote = HostMount { is_here: false, ..at(Path::new(path)) };
            assert!(remote.look(&closed).await.is_err(), "{path}");
        }
        let remote = HostMount { is_here: false, ..at(Path::new("/srv/engine/docker2")) };
        remote.look(&closed).await.unwrap();
    }

    #[test]
    fn a_place_is_known_behind_its_links_even_if_it_does_not_exist_yet() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        fs::create_dir(root.join("store2")).unwrap();
        symlink("store2", root.join("link")).unwrap();
        symlink(root.join("later"), root.join("dangling")).unwrap();
        symlink("round", root.join("round")).unwrap();
        for (path, behind) in
            [("link", "store2"), ("link/a/b", "store2/a/b"), ("dangling", "later"), ("dangling/a", "later/a")]
        {
            assert_eq!(places(&root.join(path)), [root.join(path), root.join(behind)], "{path}");
        }
        for path in ["store2", "new/folder", "round"] {
            assert_eq!(places(&root.join(path)), [root.join(path)], "{path}");
        }
    }

    #[test]
    fn it_is_known_who_can_put_something_else_in_its_place() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let own = rustix::process::geteuid().as_raw();
        let (above, folder) = (root.join("above"), root.join("above/docs"));
        fs::create_dir_all(&folder).unwrap();
        assert_eq!(replaceable(&folder, own), None);
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o777)).unwrap();
        assert_eq!(replaceable(&folder, own), None, "its own mode is about what is in it");
        for (mode, kept) in [(0o775, false), (0o757, false), (0o1777, true), (0o755, true)] {
            fs::set_permissions(&above, fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(replaceable(&folder, own).is_none(), kept, "{mode:o}");
        }
        let of_another = replaceable(&folder, own + 1);
        assert!(own == 0 || of_another.is_some_and(|who| who.contains(&format!("the id {own}"))));
    }
}
