//! The version of this build: `--version` prints it, and metrics and status pages contain it.
//!
//! It must never be used to decide anything.

/// The version, `0.1.0`.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The first digits of its commit, with `-dirty` if its sources differed; empty if unknown.
pub const COMMIT: &str = env!("PADDOCK_BUILD_COMMIT");

/// The date of that commit, `2026-11-22`; empty if unknown.
pub const COMMIT_DATE: &str = env!("PADDOCK_BUILD_DATE");

/// Both in one line: `0.1.0 (a1b2c3d4 2026-11-22)`, or `0.1.0 (unknown commit)`.
pub const LONG: &str = concat!(env!("CARGO_PKG_VERSION"), " (", env!("PADDOCK_BUILD"), ")");

#[cfg(test)]
#[path = "../build/commit.rs"]
mod commit;

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;
    use std::process::Command;

    use super::commit::Commit;

    fn git(dir: &Path, args: &[&str]) {
        let mut command = Command::new("git");
        command.args(["-c", "user.name=a", "-c", "user.email=a@b", "-c", "init.defaultBranch=trunk"]);
        let done = command.current_dir(dir).args(args).output().expect("git");
        assert!(done.status.success(), "{args:?}: {}", String::from_utf8_lossy(&done.stderr));
    }

    /// The time and the length of each watched file.
    fn marks(commit: &Commit) -> Vec<(u64, std::time::SystemTime)> {
        let mark = |path: &std::path::PathBuf| {
            let meta = fs::metadata(path).expect("what is watched is there");
            (meta.len(), meta.modified().expect("a time"))
        };
        commit.watch.iter().map(mark).collect()
    }

    fn checkout(dir: &Path) {
        fs::create_dir_all(dir.join("src")).expect("a folder");
        fs::write(dir.join("src/a"), "1").expect("a file");
        git(dir, &["init", "-q"]);
        git(dir, &["add", "."]);
        git(dir, &["commit", "-qm", "one"]);
    }

    #[test]
    fn the_commit_and_every_later_one_are_noticed_also_in_a_worktree_and_when_packed() {
        let dir = tempfile::tempdir().expect("a folder");
        let main = dir.path().join("main");
        checkout(&main);
        git(&main, &["worktree", "add", "-q", "-b", "side", "../side"]);
        for name in ["main", "side"] {
            let place = dir.path().join(name);
            let commit = Commit::of(&place, None);
            assert!(commit.hash.len() == 8 && commit.date.len() == 10, "{commit:?}");
            assert_eq!(commit.describe(), format!("{} {}", commit.hash, commit.date));
            git(&main, &["pack-refs", "--all"]);
            let packed = Commit::of(&place, None);
            let before = marks(&packed);
            fs::write(place.join("src/a"), name).expect("a file");
            assert_eq!(Commit::of(&place, None).hash, format!("{}-dirty", commit.hash));
            git(&place, &["status"]);
            assert_eq!(marks(&packed), before, "reading the commit changes no watched file");
            git(&place, &["commit", "-qam", "two"]);
            assert_ne!(marks(&packed), before, "a commit changes a watched file: {packed:?}");
            assert_ne!(Commit::of(&place, None).hash, commit.hash);
        }
        // A commit on another branch is not noticed.
        let before = marks(&Commit::of(&main, None));
        git(&dir.path().join("side"), &["commit", "-q", "--allow-empty", "-m", "three"]);
        assert_eq!(marks(&Commit::of(&main, None)), before);
        // Files that nothing is built from may differ.
        fs::write(main.join("notes"), "x").expect("a file");
        assert!(!Commit::of(&main, None).hash.ends_with("-dirty"));
    }

    #[test]
    fn without_git_the_commit_is_unknown_and_a_packager_can_name_it() {
        let dir = tempfile::tempdir().expect("a folder");
        assert_eq!(Commit::of(dir.path(), None).describe(), "unknown commit");
        assert_eq!(Commit::of(&dir.path().join("missing"), None).describe(), "unknown commit");
        checkout(dir.path());
        let below = dir.path().join("src");
        assert_eq!(Commit::of(&below, None).describe(), "unknown commit", "the repository is not paddock's");
        for (given, expected) in [
            ("a1b2c3d4 2026-11-22", "a1b2c3d4 2026-11-22"),
            ("a1b2c3d4\n", "a1b2c3d4"),
            ("", "unknown commit"),
            ("a\u{1b}b", "unknown commit"),
        ] {
            assert_eq!(Commit::of(&below, Some(given)).describe(), expected, "{given:?}");
        }
    }
}
