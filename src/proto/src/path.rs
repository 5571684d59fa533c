//! A path below `/data`, checked once and then trusted.
//!
//! A name reaches a file, on the host and in the container, only as a [`RelPath`]. A [`RelPath`] never has an
//! empty, `.` or `..` component, a NUL, or more than the limits allow. It is bytes, because Linux file names
//! are. It must never touch a file system itself.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::limits::{DATA_ALIASES, DATA_DIR, MAX_DEPTH, MAX_NAME, MAX_PATH};

/// A checked relative path: components joined by single `/`, none of them special.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "Vec<u8>", into = "Vec<u8>")]
pub struct RelPath(Vec<u8>);

/// Why a name is not a [`RelPath`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    /// Nothing is left of it.
    #[error("the name is empty; give a file name such as data.csv")]
    Empty,
    /// It contains a NUL byte.
    #[error("the name contains a NUL byte")]
    Nul,
    /// It begins with `/` and is not below one of the mounts of `/data`.
    #[error("the absolute path is outside /data; give a path below /data, or a relative one")]
    Absolute,
    /// It contains `..`.
    #[error("the path contains `..`, which could leave /data")]
    Parent,
    /// It contains `.` or an empty component (`a//b`, `a/`).
    #[error("the path contains an empty or `.` component")]
    Special,
    /// A component longer than [`MAX_NAME`].
    #[error("a component of {0} bytes; at most {MAX_NAME} are possible")]
    NameTooLong(usize),
    /// Longer than [`MAX_PATH`].
    #[error("a path of {0} bytes; at most {MAX_PATH} are possible")]
    TooLong(usize),
    /// Deeper than [`MAX_DEPTH`].
    #[error("{0} directories deep; at most {MAX_DEPTH} are possible")]
    TooDeep(usize),
}

impl RelPath {
    /// Takes bytes that are already relative, as a walk or the wire gives them.
    ///
    /// # Errors
    /// The first rule that the bytes break, see [`PathError`].
    pub fn new(bytes: impl Into<Vec<u8>>) -> Result<Self, PathError> {
        let bytes = bytes.into();
        if bytes.is_empty() {
            return Err(PathError::Empty);
        }
        if bytes.contains(&0) {
            return Err(PathError::Nul);
        }
        if bytes[0] == b'/' {
            return Err(PathError::Absolute);
        }
        if bytes.len() > MAX_PATH {
            return Err(PathError::TooLong(bytes.len()));
        }
        let mut depth = 0;
        for part in bytes.split(|b| *b == b'/') {
            depth += 1;
            match part {
                b"" | b"." => return Err(PathError::Special),
                b".." => return Err(PathError::Parent),
                long if long.len() > MAX_NAME => return Err(PathError::NameTooLong(long.len())),
                _ => {}
            }
        }
        if depth > MAX_DEPTH {
            return Err(PathError::TooDeep(depth));
        }
        Ok(Self(bytes))
    }

    /// Takes what a person or a model wrote: a relative path, or an absolute one below `/data`, `/mnt/data`
    /// or `/workspace`. Nothing is normalised: `a//b` and `./a` are refused, so that one file has one name.
    ///
    /// # Errors
    /// The first rule that the text breaks, see [`PathError`].
    pub fn from_user(text: &str) -> Result<Self, PathError> {
        let mut rest = text;
        for mount in std::iter::once(DATA_DIR).chain(DATA_ALIASES) {
            if let Some(below) = text.strip_prefix(mount).and_then(|r| r.strip_prefix('/')) {
                rest = below;
                break;
            }
        }
        Self::new(rest.as_bytes())
    }

    /// This path with one more component.
    ///
    /// # Errors
    /// As [`RelPath::new`].
    pub fn join(&self, name: &[u8]) -> Result<Self, PathError> {
        let mut bytes = Vec::with_capacity(self.0.len() + 1 + name.len());
        bytes.extend_from_slice(&self.0);
        bytes.push(b'/');
        bytes.extend_from_slice(name);
        Self::new(bytes)
    }

    /// The bytes, `/` between components.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The components, outermost first.
    pub fn components(&self) -> impl DoubleEndedIterator<Item = &[u8]> {
        self.0.split(|b| *b == b'/')
    }

    /// The last component.
    pub fn file_name(&self) -> &[u8] {
        self.components().next_back().unwrap_or(&self.0)
    }

    /// All but the last component; `None` for a path of one component.
    pub fn parent(&self) -> Option<Self> {
        let cut = self.0.iter().rposition(|b| *b == b'/')?;
        Some(Self(self.0[..cut].to_vec()))
    }

    /// True if `self` lies somewhere below `dir`.
    pub fn is_below(&self, dir: &Self) -> bool {
        self.0.len() > dir.0.len() && self.0.starts_with(&dir.0) && self.0[dir.0.len()] == b'/'
    }

    /// Removes this path, and everything below it, from a map, in a time that does not grow with the rest of
    /// the map.
    pub fn remove_from<T>(&self, map: &mut BTreeMap<Self, T>) {
        map.remove(self);
        // Everything that begins with `path/`: the byte `0` comes right behind `/`.
        let [from, to] = [b'/', b'0'].map(|end| Self([&self.0[..], &[end]].concat()));
        let below: Vec<Self> = map.range(&from..&to).map(|(path, _)| path.clone()).collect();
        for path in below {
            map.remove(&path);
        }
    }

    /// The path as text, with U+FFFD where it is not UTF-8.
    pub fn to_text(&self) -> std::borrow::Cow<'_, str> {
        String::from_utf8_lossy(&self.0)
    }
}

impl TryFrom<Vec<u8>> for RelPath {
    type Error = PathError;
    fn try_from(bytes: Vec<u8>) -> Result<Self, PathError> {
        Self::new(bytes)
    }
}

impl From<RelPath> for Vec<u8> {
    fn from(path: RelPath) -> Self {
        path.0
    }
}

impl fmt::Debug for RelPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.to_text())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_person_writes() {
        for (text, want) in [
            ("a.csv", "a.csv"),
            ("/data/a.csv", "a.csv"),
            ("/mnt/data/b/c", "b/c"),
            ("/workspace/x y", "x y"),
            ("-rf", "-rf"),
            ("..%2f..%2fetc", "..%2f..%2fetc"),
            ("..\\..\\x", "..\\..\\x"),
            ("a\nb", "a\nb"),
            ("e\u{301}.txt", "e\u{301}.txt"),
        ] {
            assert_eq!(
                RelPath::from_user(text).map(|p| p.to_text().into_owned()),
                Ok(want.into()),
                "{text:?}"
            );
        }
        for (text, want) in [
            ("", PathError::Empty),
            ("/data/", PathError::Empty),
            ("/data", PathError::Absolute),
            ("/etc/passwd", PathError::Absolute),
            ("/database/x", PathError::Absolute),
            ("/data//x", PathError::Absolute),
            ("..", PathError::Parent),
            ("a/../../b", PathError::Parent),
            ("/data/../etc", PathError::Parent),
            (".", PathError::Special),
            ("a//b", PathError::Special),
            ("a/", PathError::Special),
            ("a\0b", PathError::Nul),
        ] {
            assert_eq!(RelPath::from_user(text), Err(want), "{text:?}");
        }
        assert_eq!(RelPath::from_user(&"a".repeat(256)), Err(PathError::NameTooLong(256)));
        assert!(RelPath::from_user(&"a".repeat(255)).is_ok());
        assert_eq!(RelPath::from_user(&"a/".repeat(2000)), Err(PathError::TooLong(4000)));
        assert_eq!(RelPath::from_user(&format!("{}x", "a/".repeat(64))), Err(PathError::TooDeep(65)));
    }

    #[test]
    fn the_wire_is_checked_like_everything_else() {
        let good = postcard::to_stdvec(&RelPath::new("a/b").unwrap()).unwrap();
        assert_eq!(postcard::from_bytes::<RelPath>(&good).unwrap().as_bytes(), b"a/b");
        let bad = postcard::to_stdvec(&b"../x".to_vec()).unwrap();
        assert!(postcard::from_bytes::<RelPath>(&bad).is_err());
    }

    #[test]
    fn a_path_goes_with_all_below_it_and_nothing_beside_it() {
        let names = ["a", "a!", "a-b", "a.c", "a/b", "a/b/c", "a/\u{ff}", "a0", "ab", "b/a"];
        let map = names.map(|name| (RelPath::new(name).unwrap(), ()));
        for gone in map.each_ref().map(|(path, ())| path) {
            let mut left = BTreeMap::from(map.clone());
            gone.remove_from(&mut left);
            let mut want = BTreeMap::from(map.clone());
            want.retain(|path, ()| path != gone && !path.is_below(gone));
            assert_eq!(left, want, "{gone:?}");
        }
    }

    #[test]
    fn parents_and_names() {
        let path = RelPath::new("a/b/c").unwrap();
        assert_eq!(path.file_name(), b"c");
        let parent = path.parent().unwrap();
        assert_eq!(parent.as_bytes(), b"a/b");
        assert!(path.is_below(&parent));
        assert!(!parent.is_below(&path));
        assert!(!RelPath::new("a/bc").unwrap().is_below(&parent));
        assert_eq!(RelPath::new("a").unwrap().parent(), None);
    }
}
