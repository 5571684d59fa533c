//! The number of the store's format, in a file at its top: an older daemon must not use what a newer one has
//! written in a way that it does not understand.
//!
//! ```text
//!  1   everything described on the page of the module `store`
//! ```
//!
//! A store without the file was written before there was one, in format 1. Raise the number with every change
//! that a daemon of the format before would misread, and read the format before from then on. The tests keep
//! a store of every format. The file must be written before anything in the new format is.

use std::fs;
use std::io;
use std::path::Path;

use super::StoreError;
use super::replace::replace;

/// The format that this daemon writes. It reads this one and all before it.
pub(crate) const FORMAT: u32 = 1;

/// The name of the file.
pub(crate) const NAME: &str = "format";

/// Refuses a store of a newer format, and notes the format of any other. The caller has the lock.
pub(super) fn check(root: &Path, tmp: &Path) -> Result<(), StoreError> {
    let path = root.join(NAME);
    let failed = || StoreError::io(format!("cannot use {}", path.display()));
    match read(&path).map_err(failed())? {
        Some(found) if found > FORMAT => Err(StoreError::Newer { root: root.to_owned(), found }),
        Some(FORMAT) => Ok(()),
        Some(_) | None => {
            let write = || {
                super::make_dir(tmp)?;
                let staged = tmp.join(crate::id::random_hex::<12>());
                replace(&path, &staged, format!("{FORMAT}\n").as_bytes(), true)?;
                fs::File::open(root)?.sync_all()
            };
            write().map_err(failed())
        }
    }
}

/// The number in the file; `None` if there is no file.
fn read(path: &Path) -> io::Result<Option<u32>> {
    let text = match fs::read_to_string(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        other => other?,
    };
    let number = text.trim().parse();
    number.map(Some).map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "it does not hold a number"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_newer_format_is_refused_and_an_older_one_noted() {
        let dir = tempfile::tempdir().unwrap();
        let (root, tmp) = (dir.path(), dir.path().join("tmp"));
        check(root, &tmp).unwrap();
        assert_eq!(read(&root.join(NAME)).unwrap(), Some(FORMAT));
        check(root, &tmp).unwrap();
        fs::write(root.join(NAME), "2\n").unwrap();
        let refused = check(root, &tmp).unwrap_err().to_string();
        assert!(refused.contains("format 2") && refused.contains("up to 1"), "{refused}");
        fs::write(root.join(NAME), "x").unwrap();
        assert!(check(root, &tmp).unwrap_err().to_string().contains("cannot use"));
        assert_eq!(fs::read_to_string(root.join(NAME)).unwrap(), "x", "it is left as it is");
    }
}
