//! The file of an audit log: lines are appended to it, also after somebody has renamed it away (rotation),
//! and after a restart the chain goes on where it ended.
//!
//! It must never change or remove a line, nor begin a second chain where the first can be found.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::Access;
use serde_json::{Map, Value};

use super::chain::Chain;

/// The most bytes of one line: the daemon's own are much shorter.
const LINE: u64 = 1 << 20;
/// The key of lines that tell of the daemon itself, and the value in its last one.
pub(super) const EVENT: &str = "event";
pub(super) const STOPPED: &str = "stopped";

/// Digits in the name of a file that was rotated: the number of its last line. So names sort by age.
const DIGITS: usize = 12;

/// An open log.
pub(super) struct AuditFile {
    path: PathBuf,
    file: File,
    inode: (u64, u64),
    length: u64,
    chain: Chain,
    /// Bytes after which it is rotated.
    rotate: Option<u64>,
    /// A part of a line that could not be taken back may stand at the end.
    may_be_cut: bool,
}

/// How an earlier daemon left a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Left {
    /// It wrote its last line: nothing was lost.
    pub(super) is_closed: bool,
    /// The last line is cut off.
    pub(super) is_cut: bool,
}

/// The end of a file of the log.
struct End {
    chain: Chain,
    left: Left,
}

impl AuditFile {
    /// Opens the log, or makes it, for its owner alone. The chain goes on after its last line; in a new file,
    /// after the last line of the file that it was rotated to. Also: how an earlier daemon left it, if there
    /// was one.
    pub(super) fn open(path: &Path, rotate: Option<u64>) -> io::Result<(Self, Option<Left>)> {
        let end = match end_of(path)? {
            Some(end) => Some(end),
            None => end_of_rotated(path)?,
        };
        let left = end.as_ref().map(|end| end.left);
        let chain = end.map(|end| end.chain).unwrap_or_default();
        Ok((Self::with(path, chain, rotate)?, left))
    }

    fn with(path: &Path, chain: Chain, rotate: Option<u64>) -> io::Result<Self> {
        let mut file = OpenOptions::new().append(true).create(true).mode(0o600).open(path)?;
        let meta = file.metadata()?;
        if !meta.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a file"));
        }
        if !ends_a_line(path)? {
            file.write_all(b"\n")?; // a daemon was killed in the middle of a line
        }
        let (path, inode) = (path.to_owned(), (meta.dev(), meta.ino()));
        Ok(Self { path, file, inode, length: meta.len(), chain, rotate, may_be_cut: false })
    }

    /// Appends one line. After an error nothing of it counts.
    pub(super) fn append(&mut self, fields: Map<String, Value>) -> io::Result<()> {
        self.follow_rotation()?;
        let mut chain = self.chain;
        let line = chain.line(fields);
        if let Err(error) = self.file.write_all(&line) {
            // A half of a line would be taken for one.
            self.may_be_cut = self.file.set_len(self.length).is_err();
            return Err(error);
        }
        self.chain = chain;
        self.length += line.len() as u64;
        Ok(())
    }

    /// If the file is long enough: gives it another name, which says the number of its last line, and goes on
    /// in a new one.
    pub(super) fn rotate_if_due(&mut self) -> io::Result<()> {
        if self.rotate.is_none_or(|most| self.length < most) {
            return Ok(());
        }
        self.sync()?;
        let mut name = self.path.clone().into_os_string();
        name.push(format!(".{:0width$}", self.chain.seq, width = DIGITS));
        let (old, name) = (&self.path, PathBuf::from(name));
        if name.try_exists()? {
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, "its name for rotation is taken"));
        }
        fs::rename(old, name)?;
        *self = Self::with(&self.path, self.chain, self.rotate)?;
        Ok(())
    }

    /// Waits until what was appended is on the disk.
    pub(super) fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    /// Opens the file again if it has another name by now, or is gone; and if a part of a line is in it.
    fn follow_rotation(&mut self) -> io::Result<()> {
        if self.may_be_cut
            && let Some(end) = end_of(&self.path)?
        {
            *self = Self::with(&self.path, end.chain, self.rotate)?;
        }
        match fs::metadata(&self.path) {
            Ok(meta) if (meta.dev(), meta.ino()) == self.inode => self.length = meta.len(),
            Ok(_) | Err(_) => *self = Self::with(&self.path, self.chain, self.rotate)?,
        }
        Ok(())
    }
}

/// Why a log in this file could not be opened; `None` if it could. Writes nothing.
pub(super) fn unusable(path: &Path) -> Option<String> {
    let open = OpenOptions::new().append(true).open(path);
    let wrong = match open.and_then(|file| file.metadata()) {
        Ok(meta) if !meta.is_file() => "it is not a file".to_owned(),
        Ok(meta) if meta.mode() & 0o077 != 0 => {
            format!("others can read it (mode {:o}): chmod 600", meta.mode() & 0o777)
        }
        Ok(_) => return None,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let folder = path.parent().unwrap_or(path);
            rustix::fs::access(folder, Access::WRITE_OK | Access::EXEC_OK)
                .err()
                .map(|error| format!("it cannot be made in {}: {error}", folder.display()))?
        }
        Err(error) => error.to_string(),
    };
    Some(format!("{}: {wrong}", path.display()))
}

fn ends_a_line(path: &Path) -> io::Result<bool> {
    let mut file = File::open(path)?;
    if file.metadata()?.len() == 0 {
        return Ok(true);
    }
    file.seek(SeekFrom::End(-1))?;
    let mut last = [0];
    file.read_exact(&mut last)?;
    Ok(last == *b"\n")
}

/// The end of a file; `None` if it has no line, or is not there.
fn end_of(path: &Path) -> io::Result<Option<End>> {
    let mut file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(2 * LINE)))?;
    let mut tail = Vec::new();
    file.take(2 * LINE).read_to_end(&mut tail)?;
    let is_cut = !tail.ends_with(b"\n");
    let text = tail.strip_suffix(b"\n").unwrap_or(&tail);
    let mut lines = text.rsplit(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    let Some(last) = lines.next() else { return Ok(None) };
    let before = lines.next().map_or(0, |line| Chain::after(line, 0).seq);
    let fields: Option<Map<String, Value>> = serde_json::from_slice(last).ok();
    let is_closed = fields.is_some_and(|fields| fields.get(EVENT).is_some_and(|event| event == STOPPED));
    Ok(Some(End { chain: Chain::after(last, before), left: Left { is_closed, is_cut } }))
}

/// The end of the chain in the newest file beside `path` whose name begins with its name and `.` or `-`, as
/// logrotate names them.
fn end_of_rotated(path: &Path) -> io::Result<Option<End>> {
    let (Some(folder), Some(name)) = (path.parent(), path.file_name().and_then(|name| name.to_str())) else {
        return Ok(None);
    };
    let mut rotated = Vec::new();
    for entry in fs::read_dir(folder)?.flatten() {
        let other = entry.file_name();
        let rest = other.to_str().and_then(|other| other.strip_prefix(name)).unwrap_or_default();
        if rest.starts_with(['.', '-'])
            && let Ok(meta) = entry.metadata()
            && meta.is_file()
        {
            rotated.push((meta.modified()?, entry.path()));
        }
    }
    rotated.sort();
    // A compressed file is passed over: nothing here can read it.
    for (_, path) in rotated.iter().rev().filter(|(_, path)| path.extension().is_none_or(|end| end != "gz")) {
        if let Some(end) = end_of(path)? {
            return Ok(Some(end));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::chain::Verifier;
    use super::*;

    fn append(file: &mut AuditFile, n: u32) {
        file.append(Map::from_iter([("n".to_owned(), json!(n))])).unwrap();
    }

    fn open(path: &Path) -> AuditFile {
        AuditFile::open(path, None).unwrap().0
    }

    fn verify(paths: &[&Path]) -> (u64, usize) {
        let mut verifier = Verifier::default();
        let mut flaws = 0;
        for path in paths {
            let text = fs::read(path).unwrap();
            for line in text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
                flaws += usize::from(verifier.line(line).is_some());
            }
        }
        (verifier.end().0, flaws)
    }

    #[test]
    fn the_chain_goes_on_across_restarts_and_rotations() {
        let folder = tempfile::tempdir().unwrap();
        let (path, old) = (folder.path().join("audit.log"), folder.path().join("audit.log.1"));
        let older = folder.path().join("audit.log.2");
        let mut file = open(&path);
        (0..3).for_each(|n| append(&mut file, n));
        drop(file);
        let mut file = open(&path);
        append(&mut file, 3);
        fs::rename(&path, &older).unwrap();
        append(&mut file, 4);
        file.sync().unwrap();
        fs::rename(&path, &old).unwrap();
        drop(file); // rotated while no daemon runs
        let mut file = open(&path);
        append(&mut file, 5);
        assert_eq!(verify(&[&older, &old, &path]), (6, 0));
        assert_eq!(verify(&[&older, &path]), (5, 1), "a missing file shows");
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
    }

    #[test]
    fn a_file_that_is_long_enough_is_rotated_and_the_chain_goes_on_in_the_next() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.log");
        let mut file = AuditFile::open(&path, Some(300)).unwrap().0;
        for n in 0..10 {
            append(&mut file, n);
            file.rotate_if_due().unwrap();
        }
        let mut all: Vec<PathBuf> =
            fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
        all.sort();
        all.rotate_left(1); // as a shell lists `audit.log.* audit.log`
        assert!(all.len() > 2 && *all.last().unwrap() == path, "{all:?}");
        let paths: Vec<&Path> = all.iter().map(PathBuf::as_path).collect();
        assert_eq!(verify(&paths), (10, 0), "{all:?}");
        for path in &paths[..paths.len() - 1] {
            assert!(fs::metadata(path).unwrap().len() >= 300);
            assert_eq!(fs::metadata(path).unwrap().mode() & 0o777, 0o600);
        }
    }

    #[test]
    fn a_line_that_was_cut_off_stays_and_the_next_one_begins_a_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.log");
        let mut file = open(&path);
        (0..2).for_each(|n| append(&mut file, n));
        drop(file);
        let text = fs::read(&path).unwrap();
        fs::write(&path, &text[..text.len() - 7]).unwrap();
        let (mut file, left) = AuditFile::open(&path, None).unwrap();
        assert_eq!(left, Some(Left { is_closed: false, is_cut: true }));
        append(&mut file, 2);
        assert_eq!(verify(&[&path]), (3, 1), "it is told, and nothing else is wrong");
    }
}
