//! A pattern that names a place: from the root on, with wildcards, and all that is below what it matches.
//!
//! It must never miss a path for the name of the volume that it was written with.

use std::borrow::Cow;

use paddock_proto::glob::Glob;
use paddock_proto::limits::{DATA_ALIASES, DATA_DIR};

/// Components of the longest name of the volume, `/mnt/data`.
const DEPTH_OF_NAMES: usize = 2;

/// A pattern from the root on; it covers what it matches and all below.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Place(Vec<Part>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    One(Glob),
    /// `**`: any number of directories.
    Many,
}

impl Place {
    /// Where a pattern points from this directory on: by its own words, and where the links of its beginning lead.
    pub(super) fn parse(
        base: &str,
        pattern: &str,
        real: &dyn Fn(&str) -> Vec<u8>,
    ) -> Result<Vec<Self>, String> {
        let named = |name: &&str| !name.is_empty() && *name != ".";
        let literal = |name: &str| Part::One(Glob::of(name.as_bytes()));
        let mut globs: Vec<Part> = base.split('/').filter(named).map(literal).collect();
        for name in pattern.split('/').filter(named) {
            globs.push(if name == "**" { Part::Many } else { Part::One(Glob::parse(name)?) });
        }
        // A last `**` is everything below, without the directory itself.
        if let Some(last @ Part::Many) = globs.last_mut() {
            *last = Part::One(Glob::parse("*")?);
        }
        let fixed = globs.iter().map(Part::literal).take_while(Option::is_some).flatten();
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
        let mut places: Vec<Self> = Vec::new();
        let real = real(&format!("/{}", plain.join("/")));
        let spoken: Vec<u8> = lexical.iter().flat_map(|name| [b"/", name.as_slice()].concat()).collect();
        for beginning in [one_name(&spoken), one_name(&real)] {
            let parts = components(&beginning).map(|name| Part::One(Glob::of(name)));
            let place = Self(parts.chain(rest.iter().cloned()).collect());
            if !places.contains(&place) {
                places.push(place);
            }
        }
        Ok(places)
    }

    /// Which of its parts may come next behind this path, under any of its names; the last one says that the path, or a
    /// directory that it is in, is matched. Whatever has the same ones is denied the same names below it.
    pub(super) fn reach(&self, path: &[u8]) -> Vec<bool> {
        let mut all = self.next(path);
        // Only where a wildcard could mean one of the volume's other names.
        let is_open = self.0.iter().take(DEPTH_OF_NAMES).any(|part| part.literal().is_none());
        let rest = path.strip_prefix(DATA_DIR.as_bytes()).filter(|rest| rest.is_empty() || rest[0] == b'/');
        if let Some(rest) = rest.filter(|_| is_open) {
            for alias in DATA_ALIASES {
                let next = self.next(&[alias.as_bytes(), rest].concat());
                all.iter_mut().zip(next).for_each(|(all, next)| *all |= next);
            }
        }
        all
    }

    /// Whether it matches this path or a directory that it is in, under any name.
    pub(super) fn covers(&self, path: &[u8]) -> bool {
        self.reach(path).last() == Some(&true)
    }

    /// The one path that it matches, if it has no wildcard.
    pub(super) fn path(&self) -> Option<Vec<u8>> {
        let names = self.0.iter().map(Part::literal).collect::<Option<Vec<_>>>()?;
        Some(names.iter().flat_map(|name| [b"/", name.as_slice()].concat()).collect())
    }

    /// Whether it can match anything in this directory, or below it.
    pub(super) fn reaches(&self, dir: &[u8]) -> bool {
        let fixed = self.0.iter().map_while(Part::literal);
        fixed.zip(components(dir)).all(|(name, other)| name == other)
    }

    /// As [`Place::reach`], of this very path.
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
                    Part::Many => after[at] = true,
                    Part::One(glob) => after[at + 1] |= glob.matches(name),
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
            next[at + 1] |= next[at] && *part == Part::Many;
        }
    }
}

impl Part {
    fn literal(&self) -> Option<Vec<u8>> {
        match self {
            Self::One(glob) => glob.literal(),
            Self::Many => None,
        }
    }
}

/// The path under the first name of the volume that it is on.
pub(super) fn one_name(path: &[u8]) -> Cow<'_, [u8]> {
    for alias in DATA_ALIASES {
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
