//! Reads a diff that this daemon made: which paths it changes, and which contents it leads from and to.
//!
//! It must never take a line of a file's content for a line of the diff.

use super::name::unquoted;

/// What happens to a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ChangeKind {
    /// There was nothing.
    Added,
    /// Its content or its mode is another.
    Changed,
    /// There is nothing any more.
    Removed,
}

/// The change of one path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ParsedChange {
    /// The path below the workspace.
    pub(crate) name: Vec<u8>,
    /// What happens to it.
    pub(crate) kind: ChangeKind,
    /// Whether it is or was a symbolic link.
    pub(crate) is_link: bool,
    /// Whether its new file is executable; `None` if the diff does not say it, since it does not change.
    pub(crate) executable: Option<bool>,
    /// Whether the diff names the change of its content without showing it.
    pub(crate) is_opaque: bool,
    /// Git's names of the content before and after; `None` if the diff does not have them.
    pub(crate) ids: Option<(String, String)>,
    /// Where its part of the diff is.
    pub(crate) range: std::ops::Range<usize>,
}

/// The changes of a diff, in its order; `None` if it is not as this daemon writes them.
pub(crate) fn parse(diff: &[u8]) -> Option<Vec<ParsedChange>> {
    let mut all: Vec<ParsedChange> = Vec::new();
    let (mut at, mut hunk) = (0, (0u64, 0u64));
    for line in diff.split_inclusive(|byte| *byte == b'\n') {
        let begin = at;
        at += line.len();
        let line = line.strip_suffix(b"\n")?;
        if hunk != (0, 0) {
            let (before, after) = match line.first()? {
                b' ' => (1, 1),
                b'-' => (1, 0),
                b'+' => (0, 1),
                b'\\' => (0, 0),
                _ => return None,
            };
            hunk = (hunk.0.checked_sub(before)?, hunk.1.checked_sub(after)?);
        } else if let Some(names) = line.strip_prefix(b"diff --git ") {
            all.push(ParsedChange {
                name: name(names)?,
                kind: ChangeKind::Changed,
                is_link: false,
                executable: None,
                is_opaque: false,
                ids: None,
                range: begin..begin,
            });
        } else if let Some(places) = line.strip_prefix(b"@@ -") {
            hunk = lengths(std::str::from_utf8(places).ok()?)?;
        } else {
            header(line, all.last_mut()?)?;
        }
        all.last_mut()?.range.end = at;
    }
    (hunk == (0, 0)).then_some(all)
}

/// The path in `a/PATH b/PATH`.
fn name(names: &[u8]) -> Option<Vec<u8>> {
    let (first, _) = match unquoted(names) {
        Some(first) => first,
        // Both are the same, so the first is the first half.
        None => (names.get(..names.len() / 2)?.to_vec(), names),
    };
    first.strip_prefix(b"a/").map(<[u8]>::to_vec)
}

/// A line of the header.
fn header(line: &[u8], change: &mut ParsedChange) -> Option<()> {
    let Ok(line) = std::str::from_utf8(line) else { return Some(()) };
    let mut set_mode = |mode: &str| {
        change.is_link |= mode == "120000";
        change.executable = Some(mode == "100755");
    };
    if let Some(mode) = line.strip_prefix("new file mode ") {
        set_mode(mode);
        change.kind = ChangeKind::Added;
    } else if let Some(mode) = line.strip_prefix("deleted file mode ") {
        set_mode(mode);
        change.kind = ChangeKind::Removed;
    } else if let Some(mode) = line.strip_prefix("new mode ") {
        set_mode(mode);
    } else if line.starts_with("Binary files ") {
        change.is_opaque = true;
    } else if let Some(rest) = line.strip_prefix("index ") {
        let (ids, mode) = rest.split_once(' ').map_or((rest, None), |(ids, mode)| (ids, Some(mode)));
        let (before, after) = ids.split_once("..")?;
        change.ids = Some((before.to_owned(), after.to_owned()));
        if let Some(mode) = mode {
            set_mode(mode);
        }
    }
    Some(())
}

/// How many lines a hunk has before and after, from `1,2 +3,4 @@`.
fn lengths(places: &str) -> Option<(u64, u64)> {
    let (before, after) = places.strip_suffix(" @@")?.split_once(" +")?;
    let length = |place: &str| place.split_once(',').map_or(Some(1), |(_, length)| length.parse().ok());
    Some((length(before)?, length(after)?))
}
