//! What an archive has named so far, so that no entry silently takes away what an earlier one brought.
//!
//! An archive may name a file twice: the later one wins, as everywhere. It may not name one path as a directory and as
//! something else, for whatever came first would be dropped, and an archive is unpacked whole or not at all. A
//! directory is also what some name goes through. This must never hold more than one kind for each name.

use std::collections::HashMap;

use paddock_proto::RelPath;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Named {
    Directory,
    /// A file, a link, or another name of a file.
    Leaf,
}

/// The names of an archive, with the directories that they imply.
#[derive(Debug, Default)]
pub(super) struct Names(HashMap<RelPath, Named>);

impl Names {
    /// Notes an entry.
    ///
    /// # Errors
    /// What the entry is that it cannot be, as the end of a sentence about it.
    pub(super) fn note(&mut self, path: &RelPath, is_dir: bool) -> Result<(), &'static str> {
        let named = if is_dir { Named::Directory } else { Named::Leaf };
        match self.0.insert(path.clone(), named) {
            Some(Named::Leaf) if is_dir => {
                return Err("is a directory, and was none earlier in this archive");
            }
            Some(Named::Directory) if !is_dir => {
                return Err("is no directory, and was one earlier in this archive");
            }
            Some(Named::Directory | Named::Leaf) => return Ok(()),
            None => {}
        }
        for above in std::iter::successors(path.parent(), RelPath::parent) {
            match self.0.insert(above, Named::Directory) {
                Some(Named::Leaf) => return Err("lies below an entry of this archive that is no directory"),
                Some(Named::Directory) => break, // and so is all that is above it
                None => {}
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Notes these in their order, directories with a `/` behind; the refusal of the last.
    #[track_caller]
    fn last(names: &[&str]) -> Option<&'static str> {
        let mut seen = Names::default();
        let (last, first) = names.split_last().expect("a name");
        let mut note = |name: &str| {
            let path = RelPath::new(name.trim_end_matches('/')).expect("a path");
            seen.note(&path, name.ends_with('/'))
        };
        first.iter().for_each(|name| assert_eq!(note(name), Ok(()), "{name}"));
        note(last).err()
    }

    #[test]
    fn a_name_is_a_directory_or_something_else_and_stays_it() {
        for good in
            [&["a", "a"][..], &["a/", "a/"], &["a/b", "a/"], &["a/", "a/b", "a/c/d", "a/c/"], &["a", "ab/c"]]
        {
            assert_eq!(last(good), None, "{good:?}");
        }
        for (bad, why) in [
            (&["a", "a/"][..], "is a directory"),
            (&["a", "a/b"], "lies below"),
            (&["a", "a/b/"], "lies below"),
            (&["d/a", "d/a/b/c/d"], "lies below"),
            (&["a/", "a"], "is no directory"),
            (&["a/b", "a"], "is no directory"),
            (&["a/b/c", "a/b"], "is no directory"),
            (&["a", "a", "a/b"], "lies below"),
        ] {
            let said = last(bad).unwrap_or_else(|| panic!("taken: {bad:?}"));
            assert!(said.starts_with(why), "{bad:?}: {said}");
        }
    }
}
