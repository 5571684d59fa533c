//! What a client does next: paths, contents, and the steps of a program, drawn from its random numbers.
//!
//! It must never change the client's model: a plan is only what will be requested.

use super::Client;
use crate::crash::tree::{Content, Step, Tree};

/// Names of a client's files: some are directories of others, some are a file at one time and a directory at
/// another.
const NAMES: [&str; 12] = [
    "a",
    "b.csv",
    "d",
    "d/x",
    "d/y/z",
    "e/f",
    "e",
    "\u{fc}ber.txt",
    "\u{65e5}\u{672c}/\u{7d50}\u{679c} 1.csv",
    "sp ace",
    "-rf",
    ".hidden",
];

/// Files that a program makes in one directory.
const MANY: u32 = 30;

impl Client {
    fn path(&mut self) -> String {
        format!("{}/{}", self.dir, self.chance.of(&NAMES))
    }

    pub(super) fn content(&mut self) -> Content {
        self.files += 1;
        let tag =
            format!("{:?}-{}-{}-{}", self.caller.token, self.caller.session.len(), self.dir, self.files);
        let tag = tag.replace(|c: char| !c.is_ascii_alphanumeric() && c != '-', "");
        let bound = match self.chance.below(20) {
            0..3 => 1,
            3..12 => 5000,
            12..18 => 100_000,
            18 => 700_000,
            _ => 3_000_000,
        };
        Content { tag, size: usize::try_from(self.chance.below(bound)).expect("small") }
    }

    /// A path where a file can be put from outside.
    pub(super) fn free_path(&mut self) -> String {
        loop {
            let path = self.path();
            if self.has.takes_file(&path) {
                return path;
            }
        }
    }

    /// Adds what a program does next to files as in `tree`.
    pub(super) fn plan(&mut self, tree: &Tree, steps: &mut Vec<Step>) {
        let path = self.path();
        match self.chance.below(10) {
            0 if tree.get(&path).is_some() => steps.push(Step::Remove(path)),
            1 => {
                tree.room(&path, steps);
                steps.push(Step::Dir(path));
            }
            2 => {
                tree.room(&path, steps);
                let target = self.chance.of(&["a", "d", "/etc/passwd", "nowhere", "../.."]).to_owned();
                steps.push(Step::Link(target, path));
            }
            3..6 => {
                let paths: Vec<_> = tree.0.keys().filter(|path| path.contains('/')).cloned().collect();
                if paths.is_empty() {
                    return;
                }
                let from = self.chance.of(&paths);
                let apart = |a: &str, b: &str| a != b && !a.starts_with(&format!("{b}/"));
                if apart(&from, &path) && apart(&path, &from) {
                    tree.room(&path, steps);
                    steps.push(Step::Move(from, path));
                }
            }
            6 => steps.push(Step::Nap),
            7 if self.chance.once_in(2) => {
                // Many files at once take a moment to be applied.
                tree.room(&path, steps);
                let content = self.content();
                let file = |n| {
                    Step::Write(
                        format!("{path}/{n}"),
                        Content { size: content.size % 4000, ..content.clone() },
                    )
                };
                steps.push(Step::Dir(path.clone()));
                steps.extend((0..MANY).map(file));
            }
            _ => {
                tree.room(&path, steps);
                let content = self.content();
                steps.push(Step::Write(path, content));
            }
        }
    }
}
