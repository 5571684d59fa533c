//! `agent tidy NAME...`: removes everything from the volume of layers but the entries of these names.
//!
//! The daemon starts it in a container of its own, in which nothing else runs and which has no network. It
//! must never leave the directory of the layers, nor follow a link.

use std::collections::HashSet;
use std::ffi::OsString;
use std::path::Path;
use std::{fs, io};

use paddock_proto::limits::PACKAGES_DIR;

/// Removes what is not to be kept.
///
/// # Errors
/// The first of the system's; everything else that could be removed is.
pub(crate) fn main(keep: impl Iterator<Item = String>) -> io::Result<()> {
    tidy(Path::new(PACKAGES_DIR), &keep.map(OsString::from).collect())
}

fn tidy(layers: &Path, keep: &HashSet<OsString>) -> io::Result<()> {
    let mut done = Ok(());
    for entry in fs::read_dir(layers)? {
        let entry = entry?;
        if keep.contains(&entry.file_name()) {
            continue;
        }
        let path = entry.path();
        // Of a link, file_type() is the link's own.
        let removed =
            if entry.file_type()?.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
        if done.is_ok() {
            done = removed;
        }
    }
    done
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_named_stays_and_links_are_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let outside = tempfile::tempdir().unwrap();
        fs::write(outside.path().join("f"), "x").unwrap();
        let layers = dir.path().join("packages");
        for name in ["keep", "old/deep"] {
            fs::create_dir_all(layers.join(name)).unwrap();
            fs::write(layers.join(name).join("f"), "x").unwrap();
        }
        std::os::unix::fs::symlink(outside.path(), layers.join("link")).unwrap();
        std::os::unix::fs::symlink(outside.path(), layers.join("old/link")).unwrap();
        fs::write(layers.join("file"), "x").unwrap();
        tidy(&layers, &HashSet::from([OsString::from("keep"), OsString::from("absent")])).unwrap();
        let left: Vec<_> = fs::read_dir(&layers).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left, ["keep"]);
        assert!(layers.join("keep/f").exists() && outside.path().join("f").exists());
    }
}
