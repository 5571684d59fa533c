//! The list of everything in a backup, as text: a line for each file and folder, in the order of the archive.
//!
//! ```text
//!  d 700 1700000000000000000 0 - mcp
//!  f 600 1700000000000000000 33 <SHA-256> owner
//!  end <SHA-256 of all lines before>
//! ```
//!
//! Every byte of a path that is not plain is written as %XX. A line must name a path below the store, without
//! `.` and `..`. Tenants decide how long the list is: of it no more than a line must ever be in memory.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Seek, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode, percent_encode};
use sha2::{Digest, Sha256};

use crate::id::hex;

/// Bytes of a list, which the disk of the store has while a backup is made: that of ten million files with
/// the longest paths.
pub(super) const MAX_LIST: u64 = 64 << 30;
/// Bytes of a line: the longest path that Linux takes, three bytes for each of its own, and the numbers.
pub(super) const MAX_LINE: u64 = 16 * 1024;

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

/// Writes a list into a file, line by line.
pub(super) struct ListWriter {
    to: BufWriter<File>,
    digest: Sha256,
    bytes: u64,
    most: u64,
}

impl ListWriter {
    /// A list of at most `most` bytes in an empty file.
    pub(super) fn new(to: File, most: u64) -> Self {
        Self { to: BufWriter::new(to), digest: Sha256::new(), bytes: 0, most }
    }

    /// # Errors
    /// That of the file; or that a bound is exceeded.
    pub(super) fn line(&mut self, Line { path, mode, mtime_ns, size, sha256 }: &Line) -> io::Result<()> {
        let (kind, sha256) = sha256.as_ref().map_or(('d', "-"), |sha256| ('f', sha256.as_str()));
        let name = percent_encode(path.as_os_str().as_bytes(), PLAIN);
        let line = format!("{kind} {mode:o} {mtime_ns} {size} {sha256} {name}\n");
        if line.len() as u64 > MAX_LINE {
            let why = format!("the path is too long for a backup: {}", path.display());
            return Err(io::Error::other(why));
        }
        self.digest.update(line.as_bytes());
        self.write(&line)
    }

    /// Ends the list. Returns its file, from the begin, and its size.
    ///
    /// # Errors
    /// As for a line.
    pub(super) fn end(mut self) -> io::Result<(BufReader<File>, u64)> {
        let all = hex(&self.digest.finalize_reset());
        self.write(&format!("end {all}\n"))?;
        let mut file = self.to.into_inner().map_err(io::IntoInnerError::into_error)?;
        file.rewind()?;
        Ok((BufReader::new(file), self.bytes))
    }

    fn write(&mut self, line: &str) -> io::Result<()> {
        self.bytes += line.len() as u64;
        if self.bytes > self.most {
            let why = format!(
                "the list of its files would have more than {} bytes: there are too many files, or their \
                 paths are too long",
                self.most
            );
            return Err(io::Error::other(why));
        }
        self.to.write_all(line.as_bytes())
    }
}

/// Checks a list line by line.
#[derive(Default)]
pub(super) struct ListReader {
    digest: Sha256,
    is_over: bool,
}

impl ListReader {
    /// What the next line says, which comes with its line break; `None` for the last one.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(super) fn line(&mut self, bytes: &[u8]) -> Result<Option<Line>, String> {
        if self.is_over {
            return Err("something follows the end of its list".to_owned());
        }
        let text = bytes.strip_suffix(b"\n").ok_or("its list is cut off, or has a line that is too long")?;
        if let Some(said) = text.strip_prefix(b"end ") {
            self.is_over = true;
            let is_right = said == hex(&self.digest.finalize_reset()).as_bytes();
            return if is_right { Ok(None) } else { Err("its list was changed".to_owned()) };
        }
        self.digest.update(bytes);
        let line = std::str::from_utf8(text).ok().and_then(parse);
        let unknown = || format!("a line of its list is unknown: {:?}", String::from_utf8_lossy(text));
        line.map(Some).ok_or_else(unknown)
    }

    /// # Errors
    /// The last line did not come.
    pub(super) fn end(&self) -> Result<(), String> {
        if self.is_over { Ok(()) } else { Err("its list is cut off".to_owned()) }
    }
}

fn parse(line: &str) -> Option<Line> {
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
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, Read};

    use super::*;

    fn write(lines: &[Line]) -> String {
        let mut list = ListWriter::new(tempfile::tempfile().unwrap(), MAX_LIST);
        lines.iter().for_each(|line| list.line(line).unwrap());
        let (mut file, size) = list.end().unwrap();
        let mut text = String::new();
        file.read_to_string(&mut text).unwrap();
        assert_eq!(text.len() as u64, size);
        text
    }

    fn parse(mut text: &[u8]) -> Result<Vec<Line>, String> {
        let (mut list, mut lines, mut line) = (ListReader::default(), Vec::new(), Vec::new());
        while text.read_until(b'\n', &mut line).unwrap() > 0 {
            lines.extend(list.line(&line)?);
            line.clear();
        }
        list.end().map(|()| lines)
    }

    fn lines() -> Vec<Line> {
        let odd = PathBuf::from(OsString::from_vec(b"a b/\xff%\n".to_vec()));
        vec![
            Line { path: "mcp".into(), mode: 0o700, mtime_ns: -5, size: 0, sha256: None },
            Line { path: odd, mode: 0o644, mtime_ns: 7, size: 3, sha256: Some("ab".into()) },
        ]
    }

    #[test]
    fn what_is_written_is_read_again() {
        assert_eq!(parse(write(&lines()).as_bytes()).unwrap(), lines());
    }

    #[test]
    fn no_change_of_one_byte_goes_unnoticed() {
        let text = write(&lines());
        for at in 0..text.len() {
            let mut other = text.clone().into_bytes();
            other[at] ^= 1;
            assert!(parse(&other).is_err(), "byte {at}");
            assert!(parse(&text.as_bytes()[..at]).is_err(), "cut at {at}");
        }
    }

    #[test]
    fn no_path_leads_out_of_the_store() {
        for path in ["", "/etc/passwd", "..", "a/../../b", ".", "./a"] {
            let line = Line { path: path.into(), mode: 0o600, mtime_ns: 0, size: 0, sha256: None };
            assert!(parse(write(&[line]).as_bytes()).is_err(), "{path}");
        }
    }

    #[test]
    fn nothing_follows_the_end() {
        let text = write(&lines());
        assert!(parse(format!("{text}{text}").as_bytes()).is_err());
    }

    #[test]
    fn a_list_within_its_bound_is_written_and_a_larger_one_is_an_error() {
        let most = write(&lines()).len() as u64;
        let written = |most| {
            let mut list = ListWriter::new(tempfile::tempfile().unwrap(), most);
            lines().iter().try_for_each(|line| list.line(line)).and_then(|()| list.end())
        };
        assert_eq!(written(most).unwrap().1, most);
        for most in [most - 1, 20] {
            let why = written(most).unwrap_err().to_string();
            assert!(why.contains(&format!("more than {most} bytes")), "{why}");
        }
        let path = PathBuf::from("%".repeat(6000));
        let line = Line { path, mode: 0o600, mtime_ns: 0, size: 0, sha256: None };
        let mut list = ListWriter::new(tempfile::tempfile().unwrap(), MAX_LIST);
        assert!(list.line(&line).unwrap_err().to_string().contains("too long for a backup"));
    }
}
