//! A pattern with a `/`: matched from the root on, with wildcards, against a path and every directory above
//! it.
//!
//! It must never miss a path because the path or the pattern uses another name of the volume.

use std::borrow::Cow;

use paddock_proto::glob::Glob;
use paddock_proto::limits::{DATA_DIR, DATA_NAMES};

/// Components of the longest name of the volume, `/mnt/data`.
const DEPTH_OF_NAMES: usize = 2;

/// A pattern from the root on. It covers what it matches and all below that.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct PathPattern(Vec<PatternPart>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum PatternPart {
    One(Glob),
    /// `**`: any number of directories.
    Many,
}

impl PathPattern {
    /// Parses a pattern that begins at this directory: as it is written, and with the links of its beginning
    /// followed.
    pub(super) fn parse(
        base: &str,
        pattern: &str,
        real: &dyn Fn(&str) -> Vec<u8>,
    ) -> Result<Vec<Self>, String> {
        let named = |name: &&str| !name.is_empty() && *name != ".";
        let literal = |name: &str| PatternPart::One(Glob::of(name.as_bytes()));
        let mut globs: Vec<PatternPart> = base.split('/').filter(named).map(literal).collect();
        for name in pattern.split('/').filter(named) {
            globs.push(if name == "**" { PatternPart::Many } else { PatternPart::One(Glob::parse(name)?) });
        }
        // A last `**` is everything below, without the directory itself.
        if let Some(last @ PatternPart::Many) = globs.last_mut() {
            *last = PatternPart::One(Glob::parse("*")?);
        }
        let fixed = globs.iter().map(PatternPart::literal).take_while(Option::is_some).flatten();
        let fixed: Vec<Vec<u8>> = fixed.collect();
        let rest = &globs[fixed.len()..];
        let plain: Vec<_> = fixed.iter().map(|name| String::from_utf8_lossy(name).into_owned()).collect();
        let mut lexical: Vec<Vec<u8>> = Vec::new();
        for name in &fixed {
            if name == b".." {
                lexical.pop();
            } else {
                lexical.push(name.clone());
            }
        }
        let mut patterns: Vec<Self> = Vec::new();
        let real = real(&format!("/{}", plain.join("/")));
        let spoken: Vec<u8> = lexical.iter().flat_map(|name| [b"/", name.as_slice()].concat()).collect();
        for beginning in [one_name(&spoken), one_name(&real)] {
            let parts = components(&beginning).map(|name| PatternPart::One(Glob::of(name)));
            let pattern = Self(parts.chain(rest.iter().cloned()).collect());
            if !patterns.contains(&pattern) {
                patterns.push(pattern);
            }
        }
        Ok(patterns)
    }

    /// Which of its parts may come next behind this path, under any name of the volume; the last flag says
    /// that the path or a directory above it is matched. Two paths with the same flags are denied the same
    /// names below them.
    pub(super) fn reach(&self, path: &[u8]) -> Vec<bool> {
        let mut all = self.next(path);
        // Only where a wildcard could match another name of the volume.
        let is_open = self.0.iter().take(DEPTH_OF_NAMES).any(|part| part.literal().is_none());
        let rest = path.strip_prefix(DATA_DIR.as_bytes()).filter(|rest| rest.is_empty() || rest[0] == b'/');
        if let Some(rest) = rest.filter(|_| is_open) {
            for alias in DATA_NAMES {
                let next = self.next(&[alias.as_bytes(), rest].concat());
                all.iter_mut().zip(next).for_each(|(all, next)| *all |= next);
            }
        }
        all
    }

    /// Whether it matches this path or a directory above it, under any name of the volume.
    pub(super) fn covers(&self, path: &[u8]) -> bool {
        self.reach(path).last() == Some(&true)
    }

    /// The one path that it matches, if it has no wildcard.
    pub(super) fn path(&self) -> Option<Vec<u8>> {
        let names = self.0.iter().map(PatternPart::literal).collect::<Option<Vec<_>>>()?;
        Some(names.iter().flat_map(|name| [b"/", name.as_slice()].concat()).collect())
    }

    /// Whether it can match anything in this directory or below it.
    pub(super) fn reaches(&self, dir: &[u8]) -> bool {
        let fixed = self.0.iter().map_while(PatternPart::literal);
        fixed.zip(components(dir)).all(|(name, other)| name == other)
    }

    /// As [`PathPattern::reach`], for the path as it is written.
    fn next(&self, path: &[u8]) -> Vec<bool> {
        let parts = &self.0;
        let mut next = vec![false; parts.len() + 1];
        next[0] = true;
        self.skip(&mut next);
        for name in components(path) {
            let mut after = vec![false; parts.len() + 1];
            after[parts.len()] = next[parts.len()];
            for (at, part) in parts.iter().enumerate().filter(|(at, _)| next[*at]) {
                match part {
                    PatternPart::Many => after[at] = true,
                    PatternPart::One(glob) => after[at + 1] |= glob.matches(name),
                }
            }
            next = after;
            self.skip(&mut next);
        }
        next
    }

    /// `**` also stands for no directory at all.
    fn skip(&self, next: &mut [bool]) {
        for (at, part) in self.0.iter().enumerate() {
            next[at + 1] |= next[at] && *part == PatternPart::Many;
        }
    }
}

impl PatternPart {
    fn literal(&self) -> Option<Vec<u8>> {
        match self {
            Self::One(glob) => glob.literal(),
            Self::Many => None,
        }
    }
}

/// The path under the volume's first name, `/data`, where it is on the volume.
pub(super) fn one_name(path: &[u8]) -> Cow<'_, [u8]> {
    for alias in DATA_NAMES {
        if let Some(rest) = path.strip_prefix(alias.as_bytes())
            && (rest.is_empty() || rest[0] == b'/')
        {
            return Cow::Owned([DATA_DIR.as_bytes(), rest].concat());
        }
    }
    Cow::Borrowed(path)
}

pub(super) fn components(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    path.split(|byte| *byte == b'/').filter(|name| !name.is_empty())
}
