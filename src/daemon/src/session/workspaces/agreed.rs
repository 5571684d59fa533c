//! What a workspace has of its session's files, on disk: for the container that begins over it later.
//!
//! ```text
//!  workspaces/<name of the container>   a JSON list of what both sides agreed on last
//! ```
//!
//! From it follows what is whose when the next container begins: what the store has changed or deleted since
//! is the store's; what differs only in the workspace was made there; what is not in the list at all was
//! never saved, and stays. It is written before a container gets files, when it has got them, and after each
//! run. So at each moment it has every path that the container may have from the store.
//!
//! It must never say that both sides agree on an entry unless they do. It is not synced: after a machine's
//! sudden end it may be missing or torn, and the workspace is then removed.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

use paddock_proto::message::{Entry, EntryKind};
use paddock_proto::{Event, RelPath, Request};
use serde::{Deserialize, Serialize};

use crate::link::{Incoming, Link, LinkError};
use crate::session::port::{accepted, next};
use crate::session::sync::baseline::{Baseline, agrees};
use crate::store::{Manifest, Space};

/// Ends the names of files that are being written.
const STAGED: &str = ".new";

/// A path that a workspace may have from the store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Agreed {
    path: RelPath,
    /// `None` if both sides do not agree on it, or did so on something that the store has no more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    was: Option<Was>,
}

/// What both sides agreed on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Was {
    kind: EntryKind,
    mode: u32,
    mtime_ns: i64,
}

/// What a container with this baseline may have from a store with this manifest.
pub(super) fn list(baseline: &Baseline, manifest: &Manifest) -> Vec<Agreed> {
    let stored = manifest.known();
    let paths = baseline.paths.keys().chain(stored.keys().filter(|path| !baseline.paths.contains_key(*path)));
    let agreed = |path: &RelPath| {
        let known = baseline.paths.get(path);
        let same = manifest.get(path).filter(|stored| known == Some(&stored.generation));
        let was = same.map(|stored| {
            let Entry { kind, mode, mtime_ns, .. } = stored.entry.clone();
            Was { kind, mode, mtime_ns }
        });
        Agreed { path: path.clone(), was }
    };
    paths.map(agreed).collect()
}

/// What the container is to be told of this list, and what it has then.
fn settled(list: Vec<Agreed>, manifest: &Manifest) -> (Vec<Entry>, Baseline) {
    let (mut told, mut baseline) = (Vec::new(), Baseline::default());
    for Agreed { path, was } in list {
        let was = was.map(|Was { kind, mode, mtime_ns }| Entry { path: path.clone(), kind, mode, mtime_ns });
        let same =
            manifest.get(&path).filter(|stored| was.as_ref().is_some_and(|was| agrees(&stored.entry, was)));
        // The rest is removed, or brought in again: the store has it otherwise, or not at all.
        baseline.paths.insert(path, same.map_or(0, |stored| stored.generation));
        told.extend(was.filter(|_| same.is_some()));
    }
    (told, baseline)
}

/// Tells the agent of a new container over a workspace what both sides agree on. The answer says what the
/// container has.
pub(super) async fn settle(space: &Space, link: &Link, list: Vec<Agreed>) -> Result<Baseline, LinkError> {
    let (told, baseline) = settled(list, &space.manifest());
    let stream = link.request(&Request::Apply)?;
    for entry in told {
        accepted(stream.say(&Request::Agreed(entry))).await?;
    }
    accepted(stream.close()).await?;
    match next(&stream).await? {
        Incoming::Event(Event::Applied) => Ok(baseline),
        Incoming::Event(_) | Incoming::Data(..) | Incoming::End => Err(LinkError::Refused),
    }
}

/// The folder of these lists.
#[derive(Debug, Clone)]
pub(super) struct AgreedFiles(PathBuf);

impl AgreedFiles {
    /// In this directory, which exists.
    pub(super) fn new(dir: PathBuf) -> Self {
        Self(dir)
    }

    pub(super) fn write(&self, container: &str, list: &[Agreed]) -> io::Result<()> {
        let staged = self.0.join(format!("{container}{STAGED}"));
        let mut options = OpenOptions::new();
        let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(&staged)?;
        file.write_all(&serde_json::to_vec(list)?)?;
        fs::rename(&staged, self.0.join(container))
    }

    pub(super) fn read(&self, container: &str) -> io::Result<Vec<Agreed>> {
        Ok(serde_json::from_slice(&fs::read(self.0.join(container))?)?)
    }

    pub(super) fn has(&self, container: &str) -> bool {
        self.0.join(container).exists()
    }

    pub(super) fn remove(&self, container: &str) {
        let _ = fs::remove_file(self.0.join(container));
    }

    /// Removes every file but those of these containers.
    pub(super) fn keep_only(&self, is_kept: impl Fn(&str) -> bool) {
        for entry in fs::read_dir(&self.0).into_iter().flatten().flatten() {
            if !entry.file_name().to_str().is_some_and(&is_kept) {
                let _ = fs::remove_file(entry.path());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn path(text: &str) -> RelPath {
        RelPath::new(text).unwrap()
    }

    fn file(at: &str, size: u64) -> Entry {
        Entry { path: path(at), kind: EntryKind::File(size), mode: 0o644, mtime_ns: 7 }
    }

    fn manifest(files: &[(&str, u64)]) -> Manifest {
        let mut manifest = Manifest::default();
        files.iter().for_each(|(at, size)| manifest.put(file(at, *size)));
        manifest
    }

    fn after(known: BTreeMap<RelPath, u64>) -> Baseline {
        Baseline { paths: known, ..Baseline::default() }
    }

    /// The paths that the agent is told, what the container then lacks, and what it is to remove.
    fn settles(list: Vec<Agreed>, store: &Manifest) -> (Vec<String>, Vec<String>, Vec<String>) {
        let (told, baseline) = settled(list, store);
        let difference = store.lacking(&baseline.paths);
        let text = |path: &RelPath| path.to_text().into_owned();
        (
            told.iter().map(|entry| text(&entry.path)).collect(),
            difference.put.iter().map(|stored| text(&stored.entry.path)).collect(),
            difference.remove.iter().map(text).collect(),
        )
    }

    #[test]
    fn what_the_store_changed_since_is_the_stores_and_the_rest_stays() {
        let store = manifest(&[("same", 1), ("changed", 1), ("deleted", 1)]);
        let list = list(&after(store.known()), &store);
        // A daemon that was started since has other generations.
        let later = manifest(&[("new", 1), ("changed", 2), ("same", 1)]);
        let (told, put, remove) = settles(list, &later);
        assert_eq!(told, ["same"]);
        assert_eq!((put, remove), (vec!["changed".into(), "new".into()], vec!["deleted".to_owned()]));
    }

    #[test]
    fn what_a_container_may_have_got_and_nobody_knows_is_brought_in_again_or_removed() {
        let mut store = manifest(&[("old", 1)]);
        let known = store.known();
        store.put(file("upload", 1));
        store.put(file("old", 2));
        // The container was lost while it was brought `upload` and the new `old`.
        let list = list(&after(known), &store);
        assert_eq!(list.iter().filter(|agreed| agreed.was.is_none()).count(), 2, "{list:?}");
        let (told, put, remove) = settles(list, &manifest(&[("old", 2)]));
        assert_eq!((told, put), (vec![], vec!["old".to_owned()]));
        assert_eq!(remove, ["upload"], "it was deleted since, and must not come back");
    }

    #[test]
    fn a_list_is_read_as_it_was_written_and_a_torn_one_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let files = AgreedFiles::new(dir.path().to_owned());
        let mut store = manifest(&[("a/b", 1)]);
        store.put(Entry { path: RelPath::new(b"\xff".to_vec()).unwrap(), ..file("x", 2) });
        let list = list(&after(store.known()), &store);
        files.write("c", &list).unwrap();
        assert_eq!(files.read("c").unwrap(), list);
        fs::write(dir.path().join("d"), "[{\"path\":").unwrap();
        assert!(files.read("d").is_err() && files.read("e").is_err());
        files.keep_only(|name| name == "d");
        assert!(!files.has("c") && files.has("d"));
        files.remove("d");
        assert!(!files.has("d"));
    }
}
