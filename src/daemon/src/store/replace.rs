//! Replaces a file as a whole: the new content is written beside it and renamed.
//!
//! Neither a reader nor a crash may ever find a part of the content under the file's own name.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Puts `content` at `path`, by way of the new file `staged` on the same file system; mode 0600. With `sync`
/// the content is on the disk before it has its name.
pub(super) fn replace(path: &Path, staged: &Path, content: &[u8], sync: bool) -> io::Result<()> {
    let write = || {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(staged)?;
        file.write_all(content)?;
        if sync {
            file.sync_all()?;
        }
        fs::rename(staged, path)
    };
    write().inspect_err(|_| drop(fs::remove_file(staged)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_replacement_leaves_the_old_content_and_nothing_beside_it() {
        let dir = tempfile::tempdir().unwrap();
        let (path, staged) = (dir.path().join("f"), dir.path().join("staged"));
        for content in ["one", "two"] {
            replace(&path, &staged, content.as_bytes(), true).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), content);
        }
        assert!(replace(&dir.path().join("missing/f"), &staged, b"three", false).is_err());
        assert_eq!(fs::read_to_string(&path).unwrap(), "two");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }
}
