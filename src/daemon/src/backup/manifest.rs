//! The list of everything in a backup, as text: a line for each file and folder, in the order of the archive.
//!
//! ```text
//!  d 700 1700000000000000000 0 - mcp
//!  f 600 1700000000000000000 33 <SHA-256> owner
//!  end <SHA-256 of all lines before>
//! ```
//!
//! Every byte of a path that is not plain is written as %XX. A line must name a path below the store, without
//! `.` and `..`.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode, percent_encode};
use sha2::{Digest, Sha256};

use crate::id::hex;

const PLAIN: &AsciiSet = &NON_ALPHANUMERIC.remove(b'/').remove(b'.').remove(b'-').remove(b'_');

/// One file or folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Line {
    pub(super) path: PathBuf,
    pub(super) mode: u32,
    pub(super) mtime_ns: i64,
    pub(super) size: u64,
    /// In hex; `None` for a folder.
    pub(super) sha256: Option<String>,
}

impl Line {
    /// Whether both have the same path and content.
    pub(super) fn has_same_content(&self, other: &Line) -> bool {
        (&self.path, self.size, &self.sha256) == (&other.path, other.size, &other.sha256)
    }
}

/// A path that leads to one place below the folder that it is joined to.
pub(super) fn is_plain(path: &Path) -> bool {
    let mut parts = path.components().peekable();
    parts.peek().is_some() && parts.all(|part| matches!(part, Component::Normal(_)))
}

/// The whole text.
pub(super) fn write(lines: &[Line]) -> String {
    let mut text = String::new();
    for Line { path, mode, mtime_ns, size, sha256 } in lines {
        let (kind, sha256) = sha256.as_ref().map_or(('d', "-"), |sha256| ('f', sha256.as_str()));
        let path = percent_encode(path.as_os_str().as_bytes(), PLAIN);
        text.push_str(&format!("{kind} {mode:o} {mtime_ns} {size} {sha256} {path}\n"));
    }
    let all = hex(&Sha256::digest(text.as_bytes()));
    text.push_str(&format!("end {all}\n"));
    text
}

/// The lines of a text.
///
/// # Errors
/// What is wrong with it.
pub(super) fn parse(text: &str) -> Result<Vec<Line>, String> {
    let whole = text.strip_suffix('\n').ok_or("its list is cut off")?;
    let (lines, end) = whole.rsplit_once('\n').ok_or("its list is cut off")?;
    let lines = format!("{lines}\n");
    if end.strip_prefix("end ") != Some(hex(&Sha256::digest(lines.as_bytes())).as_str()) {
        return Err("its list is cut off, or was changed".to_owned());
    }
    let line = |line: &str| {
        let mut words = line.split(' ');
        let (kind, mode) = (words.next()?, u32::from_str_radix(words.next()?, 8).ok()?);
        let (mtime_ns, size) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        let (sha256, path) = (words.next()?, words.next()?);
        let path = PathBuf::from(OsString::from_vec(percent_decode(path.as_bytes()).collect()));
        let sha256 = match kind {
            "d" => None,
            "f" => Some(sha256.to_owned()),
            _ => return None,
        };
        let is_whole = words.next().is_none() && mode <= 0o777 && is_plain(&path);
        is_whole.then_some(Line { path, mode, mtime_ns, size, sha256 })
    };
    let parsed = |text: &str| line(text).ok_or_else(|| format!("a line of its list is unknown: {text:?}"));
    lines.lines().map(parsed).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines() -> Vec<Line> {
        let odd = PathBuf::from(OsString::from_vec(b"a b/\xff%\n".to_vec()));
        vec![
            Line { path: "mcp".into(), mode: 0o700, mtime_ns: -5, size: 0, sha256: None },
            Line { path: odd, mode: 0o644, mtime_ns: 7, size: 3, sha256: Some("ab".into()) },
        ]
    }

    #[test]
    fn what_is_written_is_read_again() {
        assert_eq!(parse(&write(&lines())).unwrap(), lines());
    }

    #[test]
    fn no_change_of_one_byte_goes_unnoticed() {
        let text = write(&lines());
        for at in 0..text.len() {
            let mut other = text.clone().into_bytes();
            other[at] ^= 1;
            let other = String::from_utf8_lossy(&other).into_owned();
            assert!(parse(&other).is_err(), "byte {at}");
            assert!(parse(&text[..at]).is_err(), "cut at {at}");
        }
    }

    #[test]
    fn no_path_leads_out_of_the_store() {
        for path in ["", "/etc/passwd", "..", "a/../../b", ".", "./a"] {
            let line = Line { path: path.into(), mode: 0o600, mtime_ns: 0, size: 0, sha256: None };
            assert!(parse(&write(&[line])).is_err(), "{path}");
        }
    }
}
