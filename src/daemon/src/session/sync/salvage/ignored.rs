//! What git would ignore of an archive, by the rules that the archive itself has brought so far.
//!
//! The engine packs depth first and in the order of names, so the rules of a directory come before nearly all
//! that they are about. In an archive of another order some files are taken that git would ignore. It must
//! never hold more than the rules of the directories above one entry.

use paddock_proto::RelPath;
use paddock_proto::ignore::{self, Rules};
use paddock_proto::limits::AGENTS_DIR;

/// The rules up to one entry of an archive.
#[derive(Default)]
pub(super) struct Ignored {
    /// Directories that hold each other, and what holds in each.
    rules: Vec<(Option<RelPath>, Rules)>,
    /// The last directory that is ignored as a whole.
    dir: Option<RelPath>,
}

impl Ignored {
    /// Whether git would ignore this entry, which comes next.
    pub(super) fn has(&mut self, path: &RelPath, is_dir: bool) -> bool {
        if path.components().next() == Some(AGENTS_DIR.as_bytes()) {
            return false;
        }
        if self.dir.as_ref().is_some_and(|dir| path.is_below(dir)) {
            return true;
        }
        let is_ignored = self.above(path).ignore(path.as_bytes(), is_dir);
        if is_ignored && is_dir {
            self.dir = Some(path.clone());
        }
        is_ignored
    }

    /// Whether the content of this file has rules.
    pub(super) fn is_about(path: &RelPath) -> bool {
        directory(path).is_some()
    }

    /// Takes the beginning of a file's content, if it has rules.
    pub(super) fn take(&mut self, path: &RelPath, text: &[u8]) {
        let Some(dir) = directory(path) else { return };
        let base = dir.as_ref().map_or(&[][..], RelPath::as_bytes);
        let rules = self.above(path).with(base, text);
        self.rules.push((dir, rules));
    }

    /// The rules of the nearest directory that holds this entry. Those of others are over.
    fn above(&mut self, path: &RelPath) -> Rules {
        let holds = |dir: &Option<RelPath>| dir.as_ref().is_none_or(|dir| path.is_below(dir));
        while self.rules.last().is_some_and(|(dir, _)| !holds(dir)) {
            self.rules.pop();
        }
        self.rules.last().map(|(_, rules)| rules.clone()).unwrap_or_default()
    }
}

/// The directory about which this file has rules, if it has some; `None` inside for the root.
fn directory(path: &RelPath) -> Option<Option<RelPath>> {
    let mut names: Vec<&[u8]> = path.components().collect();
    if names.last() == Some(&ignore::FILE) {
        names.pop();
    } else if names.ends_with(&ignore::EXCLUDE) {
        names.truncate(names.len() - ignore::EXCLUDE.len());
    } else {
        return None;
    }
    Some(RelPath::new(names.join(&b'/')).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rules_of_an_archive_hold_below_their_directories() {
        let path = |text: &str| RelPath::new(text).unwrap();
        let mut ignored = Ignored::default();
        ignored.take(&path(".git/info/exclude"), b"secret\n");
        ignored.take(&path(".gitignore"), b"node_modules/\n*.log\n");
        for (name, is_dir, expected) in [
            (".agent/a.log", false, false),
            ("a.log", false, true),
            ("node_modules", true, true),
            ("node_modules/x/y", false, true),
            ("secret", false, true),
            ("sub", true, false),
            ("sub/a.log", false, true),
        ] {
            assert_eq!(ignored.has(&path(name), is_dir), expected, "{name}");
        }
        ignored.take(&path("sub/.gitignore"), b"!a.log\n/only\n");
        assert!(!ignored.has(&path("sub/a.log"), false) && ignored.has(&path("sub/only"), false));
        assert!(ignored.has(&path("z/a.log"), false) && !ignored.has(&path("z/only"), false));
        assert_eq!(ignored.rules.len(), 2, "those of sub are over");
        assert!(Ignored::is_about(&path("x/.gitignore")) && !Ignored::is_about(&path("gitignore")));
    }
}
