//! The model that the daemon is compared with: what a client's part of `/data` must hold.

use std::collections::BTreeMap;
use std::fmt;

use sha2::{Digest, Sha256};

/// Everything below one directory, by its path in `/data`.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub(super) struct Tree(pub(super) BTreeMap<String, Node>);

#[derive(Clone, PartialEq, Eq)]
pub(super) enum Node {
    Dir,
    Link(String),
    /// A file, with the SHA-256 of its content.
    File(String),
}

/// The smallest operations of a program on files, the same in every language.
#[derive(Clone, Debug)]
pub(super) enum Step {
    Remove(String),
    /// Makes a directory, with all above it.
    Dir(String),
    Write(String, Content),
    Move(String, String),
    Link(String, String),
    /// Waits, so that kills come in the middle.
    Nap,
}

/// Lines that contain their file and their position, so that no piece of any content equals another.
#[derive(Clone, Debug)]
pub(super) struct Content {
    pub(super) tag: String,
    pub(super) size: usize,
}

impl Content {
    pub(super) fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.size + 32);
        let mut line = 0u32;
        while bytes.len() < self.size {
            bytes.extend_from_slice(self.tag.as_bytes());
            bytes.extend_from_slice(format!(" {line}\n").as_bytes());
            line += 1;
        }
        bytes.truncate(self.size);
        bytes
    }
}

pub(super) fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

impl Tree {
    pub(super) fn get(&self, path: &str) -> Option<&Node> {
        self.0.get(path)
    }

    pub(super) fn files(&self) -> impl Iterator<Item = (&String, &String)> {
        self.0.iter().filter_map(|(path, node)| match node {
            Node::File(sha) => Some((path, sha)),
            Node::Dir | Node::Link(_) => None,
        })
    }

    pub(super) fn after(&self, steps: &[Step]) -> Tree {
        let mut tree = self.clone();
        steps.iter().for_each(|step| tree.apply(step));
        tree
    }

    pub(super) fn apply(&mut self, step: &Step) {
        match step {
            Step::Remove(path) => self.remove(path),
            Step::Dir(path) => {
                self.dirs_above(path);
                self.0.insert(path.clone(), Node::Dir);
            }
            Step::Write(path, content) => {
                self.dirs_above(path);
                self.0.insert(path.clone(), Node::File(sha256(&content.bytes())));
            }
            Step::Move(from, to) => {
                let below = format!("{from}/");
                let moved: Vec<_> = self
                    .0
                    .iter()
                    .filter(|(path, _)| *path == from || path.starts_with(&below))
                    .map(|(path, node)| (format!("{to}{}", &path[from.len()..]), node.clone()))
                    .collect();
                self.remove(from);
                self.0.extend(moved);
            }
            Step::Link(target, path) => {
                self.0.insert(path.clone(), Node::Link(target.clone()));
            }
            Step::Nap => {}
        }
    }

    fn remove(&mut self, path: &str) {
        let below = format!("{path}/");
        self.0.retain(|known, _| known != path && !known.starts_with(&below));
    }

    fn dirs_above(&mut self, path: &str) {
        for (at, _) in path.match_indices('/') {
            self.0.entry(path[..at].to_owned()).or_insert(Node::Dir);
        }
    }

    /// Adds the steps that make room for something at `path`: removals, and the directories above it.
    pub(super) fn room(&self, path: &str, steps: &mut Vec<Step>) {
        let mut parent = None;
        for (at, _) in path.match_indices('/') {
            let above = &path[..at];
            if matches!(self.get(above), Some(Node::File(_) | Node::Link(_))) {
                steps.push(Step::Remove(above.to_owned()));
            }
            parent = Some(above);
        }
        steps.extend(parent.map(|parent| Step::Dir(parent.to_owned())));
        if self.get(path).is_some() {
            steps.push(Step::Remove(path.to_owned()));
        }
    }

    /// Whether a file can be put at `path` from outside, where only another file is replaced.
    pub(super) fn takes_file(&self, path: &str) -> bool {
        let above =
            path.match_indices('/').all(|(at, _)| matches!(self.get(&path[..at]), None | Some(Node::Dir)));
        above && matches!(self.get(path), None | Some(Node::File(_)))
    }

    /// The differences, for the message of a failed test.
    pub(super) fn unlike(&self, other: &Tree) -> Vec<String> {
        let paths: std::collections::BTreeSet<_> = self.0.keys().chain(other.0.keys()).collect();
        let unlike = paths.into_iter().filter(|path| self.get(path) != other.get(path));
        unlike.map(|path| format!("{path:?}: {:?} / {:?}", self.get(path), other.get(path))).collect()
    }

    /// Whether a program that ended somewhere within these `steps` can have left this tree: every path is as
    /// it was at some moment, and a path that no step touched is as before.
    pub(super) fn is_within(&self, before: &Tree, steps: &[Step]) -> Result<(), String> {
        let mut moments = vec![before.clone()];
        let mut torn = Vec::new();
        for step in steps {
            let next = moments.last().expect("one").after(std::slice::from_ref(step));
            moments.push(next);
            if let Step::Write(path, _) = step {
                torn.push(path.clone());
            }
        }
        let paths = moments.iter().flat_map(|tree| tree.0.keys()).chain(self.0.keys());
        for path in paths {
            let is = self.get(path);
            let was_so = moments.iter().any(|tree| tree.get(path) == is);
            let is_torn = torn.contains(path) && matches!(is, Some(Node::File(_)));
            if !(was_so || is_torn) {
                return Err(format!("{path:?} is {is:?}, which it never was"));
            }
        }
        Ok(())
    }
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Node::Dir => f.write_str("dir"),
            Node::Link(target) => write!(f, "link to {target:?}"),
            Node::File(sha) => write!(f, "file {}", &sha[..12]),
        }
    }
}

/// The steps as a program in this language.
pub(super) fn program(language: &str, steps: &[Step]) -> String {
    let python = language == "python";
    let mut code = if python { PYTHON.to_owned() } else { "set -e\n".to_owned() };
    for step in steps {
        let line = match (step, python) {
            (Step::Remove(path), false) => format!("rm -rf '{path}'"),
            (Step::Remove(path), true) => format!("remove({path:?})"),
            (Step::Dir(path), false) => format!("mkdir -p '{path}'"),
            (Step::Dir(path), true) => format!("os.makedirs({path:?}, exist_ok=True)"),
            (Step::Write(path, Content { tag, size }), false) => {
                format!("seq -f '{tag} %.0f' 0 999999 2>/dev/null | head -c {size} > '{path}'")
            }
            (Step::Write(path, Content { tag, size }), true) => format!("write({path:?}, {tag:?}, {size})"),
            (Step::Move(from, to), false) => format!("mv -T '{from}' '{to}'"),
            (Step::Move(from, to), true) => format!("os.rename({from:?}, {to:?})"),
            (Step::Link(target, path), false) => format!("ln -s '{target}' '{path}'"),
            (Step::Link(target, path), true) => format!("os.symlink({target:?}, {path:?})"),
            (Step::Nap, false) => "sleep 0.2".to_owned(),
            (Step::Nap, true) => "time.sleep(0.2)".to_owned(),
        };
        code.push_str(&line);
        code.push('\n');
    }
    code
}

const PYTHON: &str = "import os, shutil, time
def remove(p):
    if os.path.isdir(p) and not os.path.islink(p): shutil.rmtree(p)
    elif os.path.lexists(p): os.remove(p)
def write(p, tag, size):
    lines, have, n = [], 0, 0
    while have < size:
        lines.append(f'{tag} {n}\\n'); have += len(lines[-1]); n += 1
    with open(p, 'w') as f: f.write(''.join(lines)[:size])
";

/// A program that prints all of `/data`, one entry a line: kind, content or target, path.
pub(super) fn look(language: &str) -> &'static str {
    match language {
        "python" => {
            "import hashlib, os
for at, dirs, files in os.walk('.'):
    for name in dirs + files:
        p = os.path.join(at, name)
        if os.path.islink(p): print('l', os.readlink(p), p[2:], sep='\\t')
        elif os.path.isdir(p): print('d', '', p[2:], sep='\\t')
        else: print('f', hashlib.sha256(open(p, 'rb').read()).hexdigest(), p[2:], sep='\\t')
"
        }
        _ => {
            r"find . -mindepth 1 \( -type d -printf 'd\t\t%P\n' -o -type l -printf 'l\t%l\t%P\n' \)
find . -type f -exec sha256sum {} + | sed 's/^\([0-9a-f]*\)  \.\//f\t\1\t/'"
        }
    }
}

/// The output of [`look`], by the first part of each path.
pub(super) fn seen(told: &str) -> BTreeMap<String, Tree> {
    let mut trees = BTreeMap::<String, Tree>::new();
    for line in told.lines() {
        let mut parts = line.splitn(3, '\t');
        let mut part = || parts.next().unwrap_or_else(|| panic!("no entry: {line:?}"));
        let (kind, what, path) = (part(), part().to_owned(), part());
        let node = match kind {
            "d" => Node::Dir,
            "l" => Node::Link(what),
            "f" => Node::File(what),
            _ => panic!("no entry: {line:?}"),
        };
        let first = path.split('/').next().unwrap_or_default();
        trees.entry(first.to_owned()).or_default().0.insert(path.to_owned(), node);
    }
    trees
}
