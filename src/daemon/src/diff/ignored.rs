//! Which files the `.gitignore` files of a workspace ignore, as git would say.
//!
//! The rules come out of a container: this module must never read more of them than its bounds, and decides
//! nothing but whether a new file is shown in a diff.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use ignore::Match;
use ignore::gitignore::{Gitignore, GitignoreBuilder};
use paddock_proto::RelPath;

/// The name of such a file.
pub(super) const NAME: &[u8] = b".gitignore";
/// Bytes of such a file that are read.
pub(super) const LONGEST: u64 = 64 << 10;
/// Such files that are read, those of the outermost directories first.
pub(super) const MOST: usize = 256;
/// Rules of one file that count.
const RULES: usize = 1000;

/// The rules of a workspace.
#[derive(Default)]
pub(super) struct IgnoreRules {
    /// By the directory that they are in; the workspace itself is `None`.
    files: BTreeMap<Option<RelPath>, Gitignore>,
    /// What was found out of directories.
    directories: BTreeMap<RelPath, bool>,
}

impl IgnoreRules {
    /// Adds the content of the `.gitignore` in this directory. Rules that cannot be read do not count.
    pub(super) fn add(&mut self, directory: Option<RelPath>, content: &[u8]) {
        let mut builder = GitignoreBuilder::new(".");
        let lines = String::from_utf8_lossy(content);
        for line in lines.lines().take(RULES) {
            let _ = builder.add_line(None, line);
        }
        if let Ok(rules) = builder.build()
            && !rules.is_empty()
        {
            self.files.insert(directory, rules);
        }
    }

    /// Whether a file is ignored.
    pub(super) fn ignore(&mut self, file: &RelPath) -> bool {
        if self.files.is_empty() {
            return false;
        }
        let is_below_one = file.parent().is_some_and(|directory| self.ignore_directory(&directory));
        is_below_one || self.matches(file, false)
    }

    fn ignore_directory(&mut self, directory: &RelPath) -> bool {
        if let Some(known) = self.directories.get(directory) {
            return *known;
        }
        // Nothing below a directory that is ignored can be taken out again.
        let ignored = directory.parent().is_some_and(|above| self.ignore_directory(&above))
            || self.matches(directory, true);
        self.directories.insert(directory.clone(), ignored);
        ignored
    }

    /// What the rules say of this path alone; those of the innermost directory decide.
    fn matches(&self, path: &RelPath, is_directory: bool) -> bool {
        let parent = |directory: &Option<RelPath>| directory.as_ref().map(RelPath::parent);
        let above = std::iter::successors(Some(path.parent()), parent);
        for directory in above {
            let Some(rules) = self.files.get(&directory) else { continue };
            let skipped = directory.as_ref().map_or(0, |directory| directory.as_bytes().len() + 1);
            let below = Path::new(OsStr::from_bytes(&path.as_bytes()[skipped..]));
            match rules.matched(below, is_directory) {
                Match::Ignore(_) => return true,
                Match::Whitelist(_) => return false,
                Match::None => {}
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> RelPath {
        RelPath::new(text).unwrap()
    }

    #[test]
    fn rules_are_those_of_git() {
        let mut rules = IgnoreRules::default();
        rules.add(None, b"*.log\nbuild/\n/top\n!keep.log\n# x\nsub/*.tmp\n");
        rules.add(Some(path("sub")), b"!a.log\nown\n");
        for (name, ignored) in [
            ("x.log", true),
            ("deep/er/x.log", true),
            ("keep.log", false),
            ("build/x", true),
            ("a/build/x/y", true),
            ("build", false), // a file, not a directory
            ("top", true),
            ("a/top", false),
            ("sub/a.log", false),
            ("sub/b.log", true),
            ("sub/own", true),
            ("own", false),
            ("sub/x.tmp", true),
            ("sub/er/x.tmp", false),
            ("src/app.py", false),
        ] {
            assert_eq!(rules.ignore(&path(name)), ignored, "{name}");
        }
    }

    #[test]
    fn nothing_below_an_ignored_directory_is_taken_out_again() {
        let mut rules = IgnoreRules::default();
        rules.add(None, b"node_modules/\n");
        rules.add(Some(path("node_modules/x")), b"!*\n");
        assert!(rules.ignore(&path("node_modules/x/index.js")));
        assert!(!IgnoreRules::default().ignore(&path("node_modules/x")));
    }

    #[test]
    fn rules_that_make_no_sense_do_not_count() {
        let mut rules = IgnoreRules::default();
        rules.add(None, b"[z-a]\n\xff\xfe\n{a,\n**/**/**\n*.o\n");
        assert!(rules.ignore(&path("x.o")));
        rules.add(None, "x\n".repeat(100_000).as_bytes());
        assert!(rules.ignore(&path("x")));
    }
}
