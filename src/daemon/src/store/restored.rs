//! A store that is put in the place of what is in a folder, so that a crash at any moment leaves either what
//! was there before, or the whole new store.
//!
//! ```text
//!  restoring/new/…   filled and checked, then synced          the old store is as it was
//!  restoring/begun   made: from here on the new store counts
//!  restoring/old/…   everything else moves here               ┐ done again from here by whoever has the
//!  new/…             moves to the top; then restoring/ goes   ┘ store's lock next, a daemon included
//! ```
//!
//! Each step can be repeated. A `restoring/` without `begun` counts for nothing and is removed.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use super::make_dir;

/// The folder of a restore at the top of the store.
const FOLDER: &str = "restoring";
/// In it: the new store.
const NEW: &str = "new";
/// The old one.
const OLD: &str = "old";
/// The mark that the new one counts, and the one that the old one is away.
const BEGUN: &str = "begun";
const CLEARED: &str = "cleared";
/// What is left of a restore that is over.
const DONE: &str = "restoring.done";
/// What stays where it is: the lock that the caller has, and a folder that some file systems need.
const STAYS: [&str; 4] = [FOLDER, DONE, "lock", "lost+found"];

/// Whether a name at the top of a folder is no part of the store in it.
pub(super) fn is_apart(name: &str) -> bool {
    STAYS.contains(&name)
}

/// Whether a folder has no store in it that a restore would replace.
pub(crate) fn is_vacant(root: &Path) -> io::Result<bool> {
    for entry in fs::read_dir(root)? {
        if !entry?.file_name().to_str().is_some_and(is_apart) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Makes the folder for a new store in that of another. The caller has the lock, and has called [`finish`].
pub(super) fn begin(root: &Path) -> io::Result<PathBuf> {
    let new = root.join(FOLDER).join(NEW);
    make_dir(&new)?;
    Ok(new)
}

/// Puts the new store in its place.
pub(super) fn commit(root: &Path) -> io::Result<()> {
    let folder = root.join(FOLDER);
    let on = File::open(&folder)?;
    rustix::fs::syncfs(&on)?;
    mark(&folder, BEGUN)?;
    finish(root)
}

/// Finishes a restore that was cut off, or removes what one left that did not come to count.
pub(super) fn finish(root: &Path) -> io::Result<()> {
    let (folder, gone) = (root.join(FOLDER), root.join(DONE));
    if gone.exists() {
        fs::remove_dir_all(&gone)?;
    }
    if !folder.exists() {
        return Ok(());
    }
    if folder.join(BEGUN).exists() {
        if !folder.join(CLEARED).exists() {
            let old = folder.join(OLD);
            make_dir(&old)?;
            move_all(root, &old, &STAYS)?;
            mark(&folder, CLEARED)?;
        }
        let new = folder.join(NEW);
        if new.exists() {
            move_all(&new, root, &[])?;
            File::open(root)?.sync_all()?;
        }
        tracing::info!(store = %root.display(), "the store was restored from a backup");
    }
    // First the mark goes, in one step with the rest: a part of the folder without it counts for nothing.
    fs::rename(&folder, &gone)?;
    File::open(root)?.sync_all()?;
    fs::remove_dir_all(&gone)
}

/// Moves everything of a folder but `except` into another one.
fn move_all(from: &Path, to: &Path, except: &[&str]) -> io::Result<()> {
    for entry in fs::read_dir(from)? {
        let name = entry?.file_name();
        if !except.iter().any(|stays| name == *stays) {
            fs::rename(from.join(&name), to.join(&name))?;
        }
    }
    File::open(to)?.sync_all()?;
    File::open(from)?.sync_all()
}

fn mark(folder: &Path, name: &str) -> io::Result<()> {
    File::create(folder.join(name))?.sync_all()?;
    File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn top(root: &Path) -> BTreeSet<String> {
        let names = fs::read_dir(root).unwrap().map(|entry| entry.unwrap().file_name());
        names.map(|name| name.into_string().unwrap()).collect()
    }

    fn prepared() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for name in ["lock", "owner", "old-only"] {
            fs::write(dir.path().join(name), "old").unwrap();
        }
        let new = begin(dir.path()).unwrap();
        for name in ["owner", "new-only"] {
            fs::write(new.join(name), "new").unwrap();
        }
        dir
    }

    fn expect_new(root: &Path) {
        assert_eq!(top(root), ["lock", "new-only", "owner"].map(str::to_owned).into());
        assert_eq!(fs::read_to_string(root.join("owner")).unwrap(), "new");
    }

    #[test]
    fn the_new_store_replaces_the_old_one_as_a_whole() {
        let dir = prepared();
        commit(dir.path()).unwrap();
        expect_new(dir.path());
        finish(dir.path()).unwrap();
        expect_new(dir.path());
    }

    #[test]
    fn before_it_counts_a_cut_off_leaves_the_old_store() {
        let dir = prepared();
        finish(dir.path()).unwrap();
        assert_eq!(top(dir.path()), ["lock", "old-only", "owner"].map(str::to_owned).into());
        assert_eq!(fs::read_to_string(dir.path().join("owner")).unwrap(), "old");
    }

    #[test]
    fn from_every_moment_after_that_it_is_finished() {
        let step = |name: &str, steps: &[&dyn Fn(&Path)]| {
            let dir = prepared();
            mark(&dir.path().join(FOLDER), BEGUN).unwrap();
            steps.iter().for_each(|step| step(dir.path()));
            finish(dir.path()).unwrap();
            expect_new(dir.path());
            println!("{name}");
        };
        let half_cleared = |root: &Path| {
            fs::create_dir_all(root.join("restoring/old")).unwrap();
            fs::rename(root.join("owner"), root.join("restoring/old/owner")).unwrap();
        };
        let cleared = |root: &Path| {
            move_all(root, &root.join("restoring/old"), &STAYS).unwrap();
            mark(&root.join(FOLDER), CLEARED).unwrap();
        };
        let half_moved =
            |root: &Path| fs::rename(root.join("restoring/new/owner"), root.join("owner")).unwrap();
        let moved = |root: &Path| move_all(&root.join("restoring/new"), root, &[]).unwrap();
        let emptied = |root: &Path| fs::remove_dir(root.join("restoring/new")).unwrap();
        step("begun", &[]);
        step("half cleared", &[&half_cleared]);
        step("cleared", &[&half_cleared, &cleared]);
        step("half moved", &[&half_cleared, &cleared, &half_moved]);
        step("moved", &[&half_cleared, &cleared, &half_moved, &moved]);
        step("emptied", &[&half_cleared, &cleared, &half_moved, &moved, &emptied]);
    }
}
