//! The part of a diff that is about one path, in the form of `git diff --full-index`.
//!
//! It must never write a line that `git apply` would take for something else.

use super::content::{Content, GitMode, Side};
use super::lines::hunks;
use super::name::quoted;

/// What git writes for the identity of nothing.
pub(super) const NOTHING: &str = "0000000000000000000000000000000000000000";

/// The part about one path.
#[derive(Debug, Default)]
pub(super) struct Section {
    pub(super) text: Vec<u8>,
    pub(super) insertions: u64,
    pub(super) deletions: u64,
    /// Whether it leaves out the content of a text.
    pub(super) lacks_text: bool,
}

/// The change of one path. Where the kind of entry changes, git knows a removal and an addition.
pub(super) struct Change<'a> {
    pub(super) name: &'a [u8],
    pub(super) before: Option<&'a Side>,
    pub(super) after: Option<&'a Side>,
}

impl Change<'_> {
    /// The section with its hunks.
    pub(super) fn whole(&self) -> Section {
        let mut section = Section { text: self.header(), ..Section::default() };
        if self.has_one_content() {
            return section;
        }
        let text = |side: Option<&Side>| match side.map(|side| &side.content) {
            None => Some(Vec::new()),
            Some(Content::Text(text)) => Some(text.clone()),
            Some(Content::Binary | Content::Large | Content::Unread) => None,
        };
        let (Some(before), Some(after)) = (text(self.before), text(self.after)) else {
            let sides = [self.before, self.after];
            let is_binary = sides.iter().flatten().any(|side| side.content == Content::Binary);
            return self.without_content(!is_binary);
        };
        let hunks = hunks(&before, &after);
        if !hunks.text.is_empty() {
            for (mark, name) in ["---", "+++"].into_iter().zip(self.labels()) {
                // Programs other than git take a space for the end of a name, if no tab follows.
                let tab: &[u8] = if name.contains(&b' ') { b"\t" } else { b"" };
                section.text.extend([mark.as_bytes(), b" ", &name, tab, b"\n"].concat());
            }
        }
        section.text.extend(hunks.text);
        (section.insertions, section.deletions) = (hunks.insertions, hunks.deletions);
        section
    }

    /// The section that names the change, without the content.
    pub(super) fn without_content(&self, lacks_text: bool) -> Section {
        let mut section = Section { text: self.header(), lacks_text, ..Section::default() };
        if !self.has_one_content() {
            let [before, after] = self.labels();
            section.text.extend([b"Binary files ", &before[..], b" and ", &after, b" differ\n"].concat());
        }
        section
    }

    fn has_one_content(&self) -> bool {
        matches!((self.before, self.after), (Some(before), Some(after)) if before.is_same_content(after))
    }

    /// The names on both sides.
    fn labels(&self) -> [Vec<u8>; 2] {
        let label = |prefix, side: Option<&Side>| match side {
            Some(_) => quoted(prefix, self.name),
            None => b"/dev/null".to_vec(),
        };
        [label("a/", self.before), label("b/", self.after)]
    }

    fn header(&self) -> Vec<u8> {
        let (old, new) = (quoted("a/", self.name), quoted("b/", self.name));
        let mut text = [b"diff --git ", &old[..], b" ", &new, b"\n"].concat();
        let mut line = |line: String| text.extend(line.into_bytes());
        let mode = |side: &Side| side.mode.as_str();
        let mut shared: Option<GitMode> = None;
        match (self.before, self.after) {
            (None, Some(after)) => line(format!("new file mode {}\n", mode(after))),
            (Some(before), None) => line(format!("deleted file mode {}\n", mode(before))),
            (Some(before), Some(after)) if before.mode != after.mode => {
                line(format!("old mode {}\nnew mode {}\n", mode(before), mode(after)));
            }
            (Some(before), Some(_)) => shared = Some(before.mode),
            (None, None) => {}
        }
        let id = |side: Option<&Side>| match side {
            None => Some(NOTHING.to_owned()),
            Some(side) => side.id.clone(),
        };
        if let (Some(before), Some(after)) = (id(self.before), id(self.after))
            && before != after
        {
            let mode = shared.map_or_else(String::new, |mode| format!(" {}", mode.as_str()));
            line(format!("index {before}..{after}{mode}\n"));
        }
        text
    }
}
