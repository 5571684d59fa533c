//! The commit that is built. The build script uses this, and the library only for its tests.
//!
//! It must never fail a build: without git, or outside of a checkout, the commit is unknown. Nor may it make
//! cargo build again without need: it names the files that change with the commit, and none that other
//! branches or `git status` write.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The files and folders that the program is built from.
const SOURCES: [&str; 4] = ["src", "Cargo.toml", "Cargo.lock", "config.example.toml"];
/// The longest text of `PADDOCK_COMMIT` that is used.
const LONGEST: usize = 64;

/// A commit, as far as it is known.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Commit {
    /// Its first digits, with `-dirty` if what is built differs from it; empty if unknown.
    pub(crate) hash: String,
    /// Its day, `2026-11-22`; empty if unknown.
    pub(crate) date: String,
    /// Files that change when the commit does.
    pub(crate) watch: Vec<PathBuf>,
}

impl Commit {
    /// The commit that was given for a packaged build (`PADDOCK_COMMIT`, `hash` or `hash date`), or else
    /// git's.
    pub(crate) fn of(workspace: &Path, given: Option<&str>) -> Commit {
        let given = given.map(str::trim).filter(|text| {
            (1..=LONGEST).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_graphic() || b == b' ')
        });
        match given {
            Some(given) => {
                let (hash, date) = given.split_once(' ').unwrap_or((given, ""));
                Commit { hash: hash.to_owned(), date: date.trim().to_owned(), watch: Vec::new() }
            }
            None => by_git(workspace).unwrap_or_default(),
        }
    }

    /// For people: `a1b2c3d4 2026-11-22`, or `unknown commit`.
    pub(crate) fn describe(&self) -> String {
        match (self.hash.as_str(), self.date.as_str()) {
            ("", _) => "unknown commit".to_owned(),
            (hash, "") => hash.to_owned(),
            (hash, date) => format!("{hash} {date}"),
        }
    }
}

fn by_git(workspace: &Path) -> Option<Commit> {
    // A tarball that was unpacked inside another repository is not a checkout of ours.
    let top = PathBuf::from(git(workspace, &["rev-parse", "--show-toplevel"])?);
    if top.canonicalize().ok()? != workspace.canonicalize().ok()? {
        return None;
    }
    let mut hash = git(workspace, &["rev-parse", "--short=8", "HEAD"])?;
    let date = git(workspace, &["log", "-1", "--format=%cd", "--date=short", "HEAD"])?;
    let changed = [&["status", "--porcelain", "--"], &SOURCES[..]].concat();
    if git(workspace, &changed).is_none_or(|changed| !changed.is_empty()) {
        hash.push_str("-dirty");
    }
    // In a worktree these are not below .git, which is a file there. HEAD's own log changes with each commit,
    // also where the branch is in packed-refs, and does not change with other branches. Uncommitted changes
    // show in the sources, which the build script watches; the index says no more, and every `git status`
    // writes it.
    let mut names = vec!["HEAD".to_owned(), "logs/HEAD".to_owned()];
    names.extend(git(workspace, &["symbolic-ref", "-q", "HEAD"]));
    let paths = names.iter().filter_map(|name| git(workspace, &["rev-parse", "--git-path", name]));
    let watch = paths.map(|path| workspace.join(path)).filter(|path| path.exists()).collect();
    Some(Commit { hash, date, watch })
}

/// What git prints; `None` if it fails or is not installed.
fn git(workspace: &Path, args: &[&str]) -> Option<String> {
    let mut command = Command::new("git");
    // Hooks and `git rebase --exec` set these: git would look at another repository.
    for name in ["GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX"] {
        command.env_remove(name);
    }
    let done = command.arg("--no-optional-locks").args(args).current_dir(workspace).output().ok()?;
    let said = String::from_utf8(done.stdout).ok()?;
    done.status.success().then(|| said.trim().to_owned())
}
