//! The names of an archive so far, so that no entry silently removes what an earlier one brought.
//!
//! An archive may name a file twice: the later entry wins, as with every tool. It may not name one path both
//! as a directory and as something else, since one of the two would be lost, and an archive is unpacked
//! completely or not at all. Every path above a name counts as a directory. This must never keep more than
//! one kind for each name.

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
    /// Why the entry cannot be taken, as the end of a sentence about it.
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
                Some(Named::Directory) => break, // and so is everything above it
                None => {}
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Notes these names in their order, directories with a `/` at the end; returns the refusal of the last.
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
    fn a_name_that_was_a_directory_stays_one_and_any_other_never_becomes_one() {
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
