//! Which files git would ignore: the rules of `.gitignore` files and of `.git/info/exclude` (gitignore(5)).
//!
//! Rules come from the files of programs, so they are data: nothing is ever run by them, and a rule that
//! cannot be read ignores nothing. The rules of a directory hold for everything below it, and those nearest
//! to a file count first, whether or not there is a git repository. Reading and matching must never take more
//! than the bounds below say, whatever a file holds.

use std::sync::Arc;

use crate::glob::Glob;

/// The name of a file with rules for its directory.
pub const FILE: &[u8] = b".gitignore";

/// Below a directory: its own rules of a git repository, which count less than those of any [`FILE`].
pub const EXCLUDE: [&[u8]; 3] = [b".git", b"info", b"exclude"];

/// Bytes that are read of one file of rules. Those of templates for all languages have a tenth of that.
pub const MAX_FILE: usize = 64 << 10;

/// Rules of one file.
const MAX_RULES: usize = 2048;

/// Bytes of one rule: longer than any path.
const MAX_RULE: usize = 2048;

/// One line of a file of rules.
#[derive(Debug, PartialEq, Eq)]
struct Rule {
    /// It says that a file is not ignored.
    negated: bool,
    /// It holds for directories only.
    only_dirs: bool,
    pattern: Pattern,
}

#[derive(Debug, PartialEq, Eq)]
enum Pattern {
    /// The name of an entry, wherever it is.
    Name(Glob),
    /// The path of an entry below the directory of the rule.
    Path(Vec<Part>),
}

/// One component of a path's pattern.
#[derive(Debug, PartialEq, Eq)]
enum Part {
    /// `**`: any number of components.
    Any,
    Name(Glob),
}

/// The rules that hold in one directory: its own, and those of all above it.
#[derive(Debug, Clone, Default)]
pub struct Rules(Option<Arc<Level>>);

#[derive(Debug)]
struct Level {
    above: Rules,
    /// Bytes of the path of the directory that these rules are relative to, with its `/`; 0 for the root.
    base: usize,
    rules: Vec<Rule>,
}

impl Rules {
    /// These rules, and over them those of a file's text in the directory `dir`, which is a path from the
    /// root (empty for the root itself).
    #[must_use]
    pub fn with(&self, dir: &[u8], text: &[u8]) -> Self {
        let rules = parse(text);
        if rules.is_empty() {
            return self.clone();
        }
        let base = if dir.is_empty() { 0 } else { dir.len() + 1 };
        Self(Some(Arc::new(Level { above: self.clone(), base, rules })))
    }

    /// Whether git would ignore the entry of this path from the root. Its directory must not be ignored.
    pub fn ignore(&self, path: &[u8], is_dir: bool) -> bool {
        let mut next = self;
        while let Some(level) = &next.0 {
            let below = path.get(level.base..).unwrap_or_default();
            if let Some(rule) = level.rules.iter().rev().find(|rule| rule.matches(below, is_dir)) {
                return !rule.negated;
            }
            next = &level.above;
        }
        false
    }
}

impl Rule {
    /// `None` for a line without a rule, and for one that git could not match with anything either.
    fn parse(line: &[u8]) -> Option<Self> {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let text = std::str::from_utf8(line).ok().filter(|text| text.len() <= MAX_RULE)?;
        let text = without_spaces(text);
        if text.is_empty() || text.starts_with('#') {
            return None;
        }
        let (negated, text) = match text.strip_prefix('!') {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        let (only_dirs, text) = match text.strip_suffix('/') {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        let pattern = if text.contains('/') {
            let parts = text.strip_prefix('/').unwrap_or(text).split('/');
            let part = |part: &str| if part == "**" { Some(Part::Any) } else { name(part).map(Part::Name) };
            Pattern::Path(parts.map(part).collect::<Option<_>>()?)
        } else {
            Pattern::Name(name(text)?)
        };
        Some(Self { negated, only_dirs, pattern })
    }

    fn matches(&self, path: &[u8], is_dir: bool) -> bool {
        if self.only_dirs && !is_dir {
            return false;
        }
        match &self.pattern {
            Pattern::Name(glob) => path.rsplit(|b| *b == b'/').next().is_some_and(|name| glob.matches(name)),
            Pattern::Path(parts) => {
                let names: Vec<&[u8]> = path.split(|b| *b == b'/').collect();
                matches_parts(parts, &names)
            }
        }
    }
}

/// As [`Glob::matches`], of components: the last `**` takes one more as long as the rest does not match.
fn matches_parts(parts: &[Part], names: &[&[u8]]) -> bool {
    let (mut at, mut part) = (0, 0);
    let mut retry: Option<(usize, usize)> = None;
    while at < names.len() || part < parts.len() {
        match parts.get(part) {
            // At the end it stands for what is inside, so for one component at least.
            Some(Part::Any) if part + 1 == parts.len() => return at < names.len(),
            Some(Part::Any) => {
                retry = Some((at, part));
                part += 1;
                continue;
            }
            Some(Part::Name(glob)) if names.get(at).is_some_and(|name| glob.matches(name)) => {
                (at, part) = (at + 1, part + 1);
                continue;
            }
            Some(Part::Name(_)) | None => {}
        }
        match retry {
            Some((from, any)) if from < names.len() => {
                retry = Some((from + 1, any));
                (at, part) = (from + 1, any + 1);
            }
            _ => return false,
        }
    }
    true
}

/// The pattern of one component.
fn name(text: &str) -> Option<Glob> {
    (!text.is_empty()).then(|| Glob::parse(text).ok()).flatten()
}

/// Without the spaces at its end, unless a `\` keeps them.
fn without_spaces(text: &str) -> &str {
    let bare = text.trim_end_matches(' ');
    let escapes = bare.bytes().rev().take_while(|b| *b == b'\\').count();
    if escapes % 2 == 1 && bare.len() < text.len() { &text[..=bare.len()] } else { bare }
}

fn parse(text: &[u8]) -> Vec<Rule> {
    let text = text.get(..MAX_FILE).unwrap_or(text);
    let text = text.strip_prefix("\u{feff}".as_bytes()).unwrap_or(text);
    text.split(|b| *b == b'\n').filter_map(Rule::parse).take(MAX_RULES).collect()
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    /// What is ignored of these paths; a path that ends in `/` is a directory.
    fn ignored<'a>(rules: &Rules, paths: &[&'a str]) -> Vec<&'a str> {
        let is_ignored = |path: &&str| {
            let bare = path.trim_end_matches('/');
            rules.ignore(bare.as_bytes(), bare.len() < path.len())
        };
        paths.iter().copied().filter(is_ignored).collect()
    }

    #[test]
    fn a_file_is_ignored_as_git_ignores_it() {
        for (text, paths, expected) in [
            ("node_modules/", &["node_modules/", "a/node_modules/", "node_modules"][..], &[0, 1][..]),
            ("*.log\n!keep.log", &["a.log", "x/y.log", "keep.log", "x/keep.log", "a.logs"], &[0, 1]),
            ("!keep.log\n*.log", &["keep.log"], &[0]),
            ("/build", &["build", "build/", "a/build"], &[0, 1]),
            ("doc/*.txt", &["doc/a.txt", "doc/b/a.txt", "x/doc/a.txt"], &[0]),
            ("**/foo", &["foo", "a/foo", "a/b/foo", "a/foox"], &[0, 1, 2]),
            ("foo/**", &["foo", "foo/", "foo/a", "foo/a/b"], &[2, 3]),
            ("a/**/b", &["a/b", "a/x/b", "a/x/y/b", "a/x/y/c", "x/a/b"], &[0, 1, 2]),
            ("a/**/b/**/c", &["a/b/c", "a/x/b/y/z/c", "a/b", "a/x/c"], &[0, 1]),
            ("a**b", &["axyb", "ax/yb"], &[0]),
            ("# no\n\n  \n\\#yes\n\\!both", &["# no", "#yes", "!both"], &[1, 2]),
            ("tail  \nkept\\ ", &["tail", "kept ", "kept"], &[0, 1]),
            ("[a-c]?\r\n[!x]1", &["a1", "bz", "x1", "d1"], &[0, 1, 3]),
            ("\u{feff}first", &["first"], &[0]),
            ("[broken\n[]\nok\n/\n!", &["[broken", "ok", "x"], &[1]),
            ("*", &["a", ".b", "c/d"], &[0, 1, 2]),
        ] {
            let expected: Vec<&str> = expected.iter().map(|at: &usize| paths[*at]).collect();
            assert_eq!(ignored(&Rules::default().with(b"", text.as_bytes()), paths), expected, "{text:?}");
        }
    }

    #[test]
    fn the_nearest_rules_count_and_are_relative_to_their_directory() {
        let root = Rules::default().with(b"", b"*.tmp\n/out\n");
        let below = root.with(b"sub", b"!keep.tmp\n/local\n");
        assert_eq!(
            ignored(&below, &["sub/keep.tmp", "sub/a.tmp", "sub/out", "sub/local", "sub/x/local"]),
            ["sub/a.tmp", "sub/local"]
        );
        assert_eq!(ignored(&root, &["keep.tmp", "out"]), ["keep.tmp", "out"]);
        assert_eq!(ignored(&Rules::default(), &["a", "b/"]), [""; 0]);
        // What a repository excludes for itself counts less than its files say.
        let both = Rules::default().with(b"", b"*.env\n").with(b"", b"!kept.env\n");
        assert_eq!(ignored(&both, &["a.env", "kept.env"]), ["a.env"]);
    }

    #[test]
    fn hostile_rules_are_bounded() {
        let many = "a\n".repeat(MAX_RULES + 5) + "last";
        assert_eq!(ignored(&Rules::default().with(b"", many.as_bytes()), &["a", "last"]), ["a"]);
        let long = format!("{}\nok", "x".repeat(MAX_RULE + 1));
        assert_eq!(ignored(&Rules::default().with(b"", long.as_bytes()), &["ok"]), ["ok"]);
        let beyond = "#".repeat(MAX_FILE) + "\nlast";
        assert_eq!(ignored(&Rules::default().with(b"", beyond.as_bytes()), &["last"]), [""; 0]);
        let deep = ["**/a"; 200].join("/");
        let path = ["b"; 60].join("/");
        let begun = Instant::now();
        assert_eq!(ignored(&Rules::default().with(b"", deep.as_bytes()), &[&path]), [""; 0]);
        assert!(begun.elapsed() < Duration::from_secs(1));
    }

    #[test]
    fn bytes_that_are_no_text_break_nothing() {
        let rules = Rules::default().with(b"", b"\xff\xfe\n*.o\n\0");
        assert!(rules.ignore(b"\xff.o", false) && !rules.ignore(b"\xff", false));
    }
}
