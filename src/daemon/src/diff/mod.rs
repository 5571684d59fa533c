//! What a task changed: the files before and after it, as a diff that `git apply` and `patch -p1` take.
//!
//! ```text
//!  before, after ─► the paths that differ ─► content: read within bounds ─► lines: hunks
//!    ─► section: git's form ─► the diff, and its summary
//! ```
//!
//! The daemon makes it itself, outside of the container, and runs no git: no configuration, attribute, filter
//! or hook of a repository has any effect. Every name and every content comes out of a container. It must
//! never take longer than its bounds, and never leave out a saved file without counting it. What git ignores
//! is not saved, so it is in neither state.

mod content;
#[cfg(test)]
mod fuzz_tests;
mod lines;
mod name;
mod parse;
mod section;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io;
use std::time::{Duration, Instant};

use paddock_proto::RelPath;
use paddock_proto::message::{Entry, EntryKind};
use serde::{Deserialize, Serialize};

pub(crate) use self::content::blob_id;
use self::content::{Content, GitMode, Side, is_one_file};
pub(crate) use self::parse::{ChangeKind, ParsedChange, parse};
use self::section::Change;
use crate::agents::STATE_DIR;

/// The folder of a git repository, or the file that stands for it.
const REPOSITORY: &[u8] = b".git";

/// What a diff may take.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DiffBounds {
    /// Bytes of a file that is compared by line.
    pub(crate) file: u64,
    /// Bytes of the diff.
    pub(crate) total: usize,
    /// Time to make it.
    pub(crate) time: Duration,
}

impl DiffBounds {
    /// What a person would still read, made in a time that nobody notices after a task.
    pub(crate) const OF_A_TASK: Self = Self { file: 4 << 20, total: 8 << 20, time: Duration::from_secs(5) };
}

/// What a diff contains, and what it leaves out.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiffSummary {
    /// Files that were added, changed or removed.
    pub files_changed: u64,
    /// Lines that were added.
    pub insertions: u64,
    /// Lines that were removed.
    pub deletions: u64,
    /// Changed texts that the diff names without their lines, because of its bounds.
    #[serde(default)]
    pub without_lines: u64,
    /// Changed files that are not even named.
    #[serde(default)]
    pub left_out: u64,
}

impl DiffSummary {
    /// Whether a bound made the diff leave out something.
    pub fn is_truncated(&self) -> bool {
        self.without_lines > 0 || self.left_out > 0
    }
}

/// Opens the file at a path.
type OpenFile<'a> = dyn Fn(&RelPath) -> io::Result<File> + 'a;

/// The files of a workspace at one time.
pub(crate) struct TreeState<'a> {
    pub(crate) entries: BTreeMap<RelPath, Entry>,
    /// Opens the file at one of these paths.
    pub(crate) open: Box<OpenFile<'a>>,
}

/// Whether a path can be in a diff: nothing of a git repository itself, and nothing that agents keep for
/// themselves.
pub(crate) fn is_compared(path: &RelPath) -> bool {
    let is_of_an_agent = path.components().next().is_some_and(|first| first == STATE_DIR.as_bytes());
    !is_of_an_agent && !path.components().any(|name| name == REPOSITORY)
}

/// The diff between two states, and what is in it. It blocks.
pub(crate) fn compare(
    before: &TreeState<'_>,
    after: &TreeState<'_>,
    bounds: DiffBounds,
) -> (Vec<u8>, DiffSummary) {
    let mut comparison = Comparison {
        bounds,
        deadline: Instant::now() + bounds.time,
        diff: Vec::new(),
        summary: DiffSummary::default(),
    };
    let paths: BTreeSet<&RelPath> = before.entries.keys().chain(after.entries.keys()).collect();
    for path in paths.into_iter().filter(|path| is_compared(path)) {
        let of = |tree: &TreeState<'_>| {
            let entry = tree.entries.get(path)?;
            Some((entry.clone(), GitMode::of(entry)?))
        };
        let (old, new) = (of(before), of(after));
        if old.is_some() || new.is_some() {
            comparison.path(path, (before, old), (after, new));
        }
    }
    (comparison.diff, comparison.summary)
}

struct Comparison {
    bounds: DiffBounds,
    deadline: Instant,
    diff: Vec<u8>,
    summary: DiffSummary,
}

type Found<'a, 'b> = (&'a TreeState<'b>, Option<(Entry, GitMode)>);

impl Comparison {
    /// Adds what changed at one path.
    fn path(&mut self, path: &RelPath, (before, old): Found<'_, '_>, (after, new): Found<'_, '_>) {
        let open = |tree: &TreeState<'_>, found: &Option<(Entry, GitMode)>| {
            let is_file = found.as_ref().is_some_and(|(entry, _)| matches!(entry.kind, EntryKind::File(_)));
            is_file.then(|| (tree.open)(path))
        };
        let (old_file, new_file) = (open(before, &old), open(after, &new));
        let mode = |found: &Option<(Entry, GitMode)>| found.as_ref().map(|(_, mode)| *mode);
        if let (Some(Ok(a)), Some(Ok(b))) = (&old_file, &new_file)
            && mode(&old) == mode(&new)
            && is_one_file(a, b)
        {
            return;
        }
        let is_late = Instant::now() > self.deadline;
        let side = |found: Option<(Entry, GitMode)>, file: Option<io::Result<File>>| {
            let (entry, mode) = found?;
            Some(match (entry.kind, file) {
                (EntryKind::Link(target), _) => Side::link(target.as_bytes()),
                (_, Some(Ok(file))) if !is_late => Side::file(mode, file, self.bounds.file, self.deadline),
                _ => Side::unread(mode),
            })
        };
        let (old, new) = (side(old, old_file), side(new, new_file));
        let name = path.as_bytes();
        let is_other_kind = |a: &Side, b: &Side| (a.mode == GitMode::Link) != (b.mode == GitMode::Link);
        let changes = match (&old, &new) {
            (Some(a), Some(b)) if a.mode == b.mode && a.is_same_content(b) => return,
            (Some(a), Some(b)) if is_other_kind(a, b) => vec![
                Change { name, before: Some(a), after: None },
                Change { name, before: None, after: Some(b) },
            ],
            (a, b) => vec![Change { name, before: a.as_ref(), after: b.as_ref() }],
        };
        self.summary.files_changed += 1;
        changes.iter().for_each(|change| self.add(change));
    }

    /// Adds a section, without its lines where they do not fit.
    fn add(&mut self, change: &Change<'_>) {
        let is_late = Instant::now() > self.deadline;
        let is_unread = |side: &&Side| side.content == Content::Unread;
        let has_unread = [change.before, change.after].iter().flatten().any(is_unread);
        let mut section = if is_late || has_unread { change.without_content(true) } else { change.whole() };
        let room = self.bounds.total.saturating_sub(self.diff.len());
        if section.text.len() > room {
            section = change.without_content(true);
        }
        if section.text.len() > room {
            self.summary.left_out += 1;
            return;
        }
        self.diff.append(&mut section.text);
        self.summary.insertions += section.insertions;
        self.summary.deletions += section.deletions;
        self.summary.without_lines += u64::from(section.lacks_text);
    }
}

#[cfg(test)]
mod tests;
