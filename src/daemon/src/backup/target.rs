//! The new file of a backup.
//!
//! It must never have its name before it is complete, never be readable by others, never replace or follow
//! what somebody else has put in its folder, and never be shared by two backups.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;

use super::BackupError;
use crate::id::random_hex;

/// Makes a file with what `write` writes to it.
pub(super) async fn to_new_file(
    file: &Path,
    write: impl AsyncFnOnce(&mut File) -> Result<u64, BackupError>,
) -> Result<u64, BackupError> {
    let failed = || BackupError::io(format!("cannot write {}", file.display()));
    if file.symlink_metadata().is_ok() {
        return Err(taken(file));
    }
    let partial = file.with_file_name(format!(".paddock-backup-{}.partial", random_hex::<8>()));
    let made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&partial);
    let mut to = made.map_err(failed())?;
    let written = async {
        let bytes = write(&mut to).await?;
        to.sync_all().map_err(failed())?;
        name(&partial, file).map_err(|error| {
            if error.kind() == io::ErrorKind::AlreadyExists { taken(file) } else { failed()(error) }
        })?;
        let parent = file.parent().filter(|parent| !parent.as_os_str().is_empty());
        let synced = File::open(parent.unwrap_or(Path::new("."))).and_then(|parent| parent.sync_all());
        synced.map_err(failed())?;
        Ok(bytes)
    };
    let written = written.await;
    if written.is_err() {
        let _ = fs::remove_file(&partial);
    }
    written
}

fn taken(file: &Path) -> BackupError {
    BackupError::Refused(format!("{} exists already: name a new file", file.display()))
}

/// Gives the file its name, unless something has that name.
fn name(partial: &Path, file: &Path) -> io::Result<()> {
    match renameat_with(CWD, partial, CWD, file, RenameFlags::NOREPLACE) {
        // The file system replaces whatever it renames over; a second name replaces nothing either.
        Err(Errno::INVAL | Errno::NOSYS) => {
            fs::hard_link(partial, file)?;
            fs::remove_file(partial)
        }
        other => Ok(other?),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let mut names: Vec<_> =
            fs::read_dir(folder).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[tokio::test]
    async fn two_backups_at_once_have_a_file_each() {
        let dir = tempfile::tempdir().unwrap();
        let (first, second) = (dir.path().join("a.tar"), dir.path().join("b.tar"));
        let outer = to_new_file(&first, async |to: &mut File| {
            to.write_all(b"fir").unwrap();
            let inner = to_new_file(&second, async |to: &mut File| {
                to.write_all(b"second").unwrap();
                Ok(6)
            });
            assert_eq!(inner.await.unwrap(), 6);
            to.write_all(b"st").unwrap();
            Ok(5)
        });
        assert_eq!(outer.await.unwrap(), 5);
        assert_eq!(fs::read(&first).unwrap(), b"first");
        assert_eq!(fs::read(&second).unwrap(), b"second");
        assert_eq!(names(dir.path()), ["a.tar", "b.tar"]);
        assert_eq!(fs::metadata(&first).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[tokio::test]
    async fn what_gets_the_name_meanwhile_stays() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("a.tar");
        let other = || fs::write(&file, "other").unwrap();
        let done = to_new_file(&file, async |_: &mut File| {
            other();
            Ok(0)
        });
        let why = done.await.unwrap_err().to_string();
        assert!(why.contains("exists already"), "{why}");
        assert_eq!((fs::read(&file).unwrap(), names(dir.path())), (b"other".to_vec(), vec!["a.tar".into()]));
        let before = to_new_file(&file, async |_: &mut File| panic!("work begins")).await;
        assert!(before.unwrap_err().to_string().contains("exists already"));
    }
}
