//! Where Claude Code keeps its conversations, and which of them a further task goes on with.
//!
//! They are files of the session like any other: they outlive the container, and a program of level 3 can
//! change them. So nothing is read from them but the name of one, which must be a UUID: no setting, no level.

use paddock_proto::message::{Entry, EntryKind};

use crate::agents::STATE_DIR;

/// The newest conversation of Claude Code in this directory of the container, if one is among these files:
/// its id.
pub(in crate::agents) fn last_conversation<'a>(
    files: impl Iterator<Item = &'a Entry>,
    directory: &str,
) -> Option<String> {
    let folder = format!("{STATE_DIR}/claude-code/projects/{}/", slug(directory));
    let named = files.filter_map(|entry| {
        let name = entry.path.as_bytes().strip_prefix(folder.as_bytes())?;
        let id = std::str::from_utf8(name).ok()?.strip_suffix(".jsonl")?;
        let is_file = matches!(entry.kind, EntryKind::File(_));
        (is_file && is_uuid(id)).then_some((entry.mtime_ns, &entry.path, id))
    });
    let newest = named.max_by_key(|(mtime, path, _)| (*mtime, (*path).clone()));
    newest.map(|(.., id)| id.to_owned())
}

/// The name that Claude Code gives the folder of a directory's conversations.
fn slug(directory: &str) -> String {
    directory.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect()
}

/// Whether a text is a UUID as Claude Code writes it. No other text may become an argument of its program.
fn is_uuid(text: &str) -> bool {
    text.len() == 36 && uuid::Uuid::try_parse(text).is_ok()
}

#[cfg(test)]
mod tests {
    use paddock_proto::RelPath;

    use super::*;

    const OLD: &str = "11111111-2222-4333-8444-555555555555";
    const NEW: &str = "99999999-2222-4333-8444-555555555555";

    fn file(path: &str, mtime_ns: i64) -> Entry {
        Entry {
            path: RelPath::new(path.as_bytes()).unwrap(),
            kind: EntryKind::File(1),
            mode: 0o600,
            mtime_ns,
        }
    }

    #[test]
    fn the_newest_conversation_of_the_directory_goes_on() {
        let root = ".agent/claude-code/projects/-workspace";
        let mut files = vec![
            file(&format!("{root}/{OLD}.jsonl"), 8),
            file(&format!("{root}/{NEW}.jsonl"), 5),
            file(&format!("{root}-src/{NEW}.jsonl"), 9),
        ];
        let last = |files: &[Entry], directory| last_conversation(files.iter(), directory);
        assert_eq!(last(&files, "/workspace").as_deref(), Some(OLD));
        assert_eq!(last(&files, "/workspace/src").as_deref(), Some(NEW));
        assert_eq!(last(&files, "/workspace/other"), None);
        files[1].mtime_ns = 80;
        assert_eq!(last(&files, "/workspace").as_deref(), Some(NEW));
    }

    #[test]
    fn what_is_no_conversation_is_none() {
        let root = ".agent/claude-code/projects/-workspace";
        let mut dir = file(&format!("{root}/{OLD}.jsonl"), 1);
        dir.kind = EntryKind::Dir;
        let files = [
            dir,
            file(&format!("{root}/--dangerously-skip-permissions.jsonl"), 1),
            file(&format!("{root}/{{{OLD}}}.jsonl"), 1),
            file(&format!("{root}/{OLD}"), 1),
            file(&format!("{root}/sub/{OLD}.jsonl"), 1),
            file(&format!("{OLD}.jsonl"), 1),
        ];
        assert_eq!(last_conversation(files.iter(), "/workspace"), None);
    }
}
