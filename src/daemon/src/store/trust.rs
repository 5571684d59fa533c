//! Checks the owner and the mode of the store's folder and of its secrets.
//!
//! A user who can write there can give the daemon a secret, a session's files or an owner of their own
//! choosing, and one who can read a secret can sign links. The daemon must never repair such a mode: others
//! may have used it already, and only the operator can know.

use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Mode bits that let other users than the owner write.
const WRITABLE: u32 = 0o022;
/// Mode bits that let other users than the owner do anything.
const OPEN: u32 = 0o077;

/// What is wrong with the folder of a store, if it exists, and what would be right.
pub(crate) fn of_root(root: &Path) -> Option<String> {
    let meta = fs::metadata(root).ok().filter(Metadata::is_dir)?;
    let path = root.display();
    if let Some(why) = of_another(meta.uid(), own()) {
        return Some(format!("{path} {why}"));
    }
    (meta.mode() & WRITABLE != 0).then(|| {
        format!(
            "{path} can be written by other users than its owner (mode {:03o}): `chmod go-w {path}` if you \
             trust what is in it, or let store.root name a folder below it, which is made for this user \
             alone",
            meta.mode() & 0o777
        )
    })
}

/// Refuses a secret that other users can read or change, or that one of them wrote.
pub(super) fn of_secret(file: &File) -> io::Result<()> {
    let meta = file.metadata()?;
    let mode = meta.mode() & 0o777;
    let why = of_another(meta.uid(), own()).or_else(|| {
        (mode & OPEN != 0).then(|| {
            format!(
                "is open to other users (mode {mode:03o}): `chmod 600` it if none of them can have read it, \
                 else remove it and a new one is made"
            )
        })
    });
    why.map_or(Ok(()), |why| Err(io::Error::new(io::ErrorKind::PermissionDenied, format!("it {why}"))))
}

fn own() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Whether it belongs neither to this user nor to the superuser, who can do anything anyway.
fn of_another(owner: u32, own: u32) -> Option<String> {
    (owner != own && owner != 0).then(|| {
        format!(
            "belongs to the user with the id {owner}, who can change it, while the daemon runs as {own}: run \
             it as that user, or `chown` it to {own}"
        )
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_folder_that_others_can_write_is_refused_with_what_would_be_right() {
        let dir = tempfile::tempdir().unwrap();
        for (mode, good) in
            [(0o700, true), (0o755, true), (0o750, true), (0o770, false), (0o702, false), (0o1777, false)]
        {
            fs::set_permissions(dir.path(), fs::Permissions::from_mode(mode)).unwrap();
            let why = of_root(dir.path());
            assert_eq!(why.is_none(), good, "{mode:o}: {why:?}");
            assert!(why.is_none_or(|why| why.contains("chmod go-w") && why.contains("store.root")));
        }
        assert_eq!(of_root(&dir.path().join("not there yet")), None);
    }

    #[test]
    fn a_secret_that_others_can_read_is_refused() {
        let mut secret = tempfile::NamedTempFile::new().unwrap();
        for (mode, good) in [(0o600, true), (0o400, true), (0o640, false), (0o604, false), (0o620, false)] {
            fs::set_permissions(secret.path(), fs::Permissions::from_mode(mode)).unwrap();
            let refused = of_secret(secret.as_file_mut());
            assert_eq!(refused.is_ok(), good, "{mode:o}: {refused:?}");
            assert!(refused.is_ok() || refused.unwrap_err().to_string().contains("chmod 600"));
        }
    }

    #[test]
    fn a_folder_or_secret_of_another_user_is_refused() {
        assert_eq!((of_another(1000, 1000), of_another(0, 1000), of_another(0, 0)), (None, None, None));
        for (owner, own) in [(1000, 1001), (1000, 0)] {
            let why = of_another(owner, own).unwrap();
            assert!(
                why.contains(&owner.to_string()) && why.contains(&format!("chown` it to {own}")),
                "{why}"
            );
        }
    }
}
