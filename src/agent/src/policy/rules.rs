//! What a policy says about a path: patterns made ready once, then asked for every file that is opened or changed.
//!
//! A path comes in as the kernel resolved it. All names of the session's volume are one here, `/data`. It must never do
//! input or output: where a pattern's own beginning leads is asked of whoever makes the rules, once.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use paddock_proto::FilePolicy;
use paddock_proto::glob::Glob;
use paddock_proto::limits::DATA_DIR;

use super::place::{Place, components, one_name};

/// What programs write without changing any file: a shell needs the first of them for `>/dev/null`.
const DEVICES: [&[u8]; 7] =
    [b"/dev/null", b"/dev/zero", b"/dev/full", b"/dev/tty", b"/dev/random", b"/dev/urandom", b"/dev/ptmx"];

/// Directories that a run may write without a policy.
const WRITABLE: [&str; 3] = [DATA_DIR, "/tmp", "/dev/shm"];

/// Terminals that programs make.
const TERMINALS: &[u8] = b"/dev/pts";

/// What `sem_open(3)` makes: files with this beginning, directly in `/dev/shm`. Memory that a program has in common
/// with itself, as is System V's, and no file to it.
const SEMAPHORES: &[u8] = b"/dev/shm/sem.";

/// A policy, ready to be asked.
#[derive(Debug)]
pub(super) struct Rules {
    /// The working directory that names are looked for below of.
    cwd: Vec<u8>,
    allow: Option<Vec<Place>>,
    deny_read: List,
    deny_write: List,
}

/// A list that denies.
#[derive(Debug, Default)]
struct List {
    names: Vec<Glob>,
    places: Vec<Place>,
}

impl Rules {
    /// Makes a policy ready for a run with this working directory and home. `real` follows the links of a path as far as
    /// it exists.
    ///
    /// # Errors
    /// As of [`FilePolicy::check`].
    pub(super) fn new(
        policy: &FilePolicy,
        cwd: &str,
        home: &str,
        real: &dyn Fn(&str) -> Vec<u8>,
    ) -> Result<Self, String> {
        policy.check()?;
        let places = |pattern: &str| -> Result<Vec<Place>, String> {
            match pattern.strip_prefix('~') {
                Some(rest) => Place::parse(home, rest, real),
                None if pattern.starts_with('/') => Place::parse("/", pattern, real),
                None => Place::parse(cwd, pattern, real),
            }
        };
        let list = |patterns: &[String]| -> Result<List, String> {
            let mut list = List::default();
            for pattern in patterns {
                let name = pattern.trim_end_matches('/');
                if name.is_empty() || name.contains('/') || matches!(name, "." | ".." | "~") {
                    list.places.extend(places(pattern)?);
                } else {
                    list.names.push(Glob::parse(name)?);
                }
            }
            Ok(list)
        };
        let allow = policy.allow_write.as_ref().map(|patterns| {
            let all = patterns.iter().map(|pattern| places(pattern)).collect::<Result<Vec<_>, _>>();
            all.map(|all| all.into_iter().flatten().collect())
        });
        Ok(Self {
            cwd: one_name(&real(cwd)).into_owned(),
            allow: allow.transpose()?,
            deny_read: list(&policy.deny_read)?,
            deny_write: list(&policy.deny_write)?,
        })
    }

    /// Whether what is at this path may be written, made, removed, renamed or changed in any way.
    pub(super) fn may_write(&self, path: &[u8]) -> bool {
        let path = &*one_name(path);
        self.may_write_any(path) || (is_semaphore(path) && !self.denies(&self.deny_write, path))
    }

    /// As [`Rules::may_write`], of what is no regular file: nothing else is a semaphore.
    pub(super) fn may_write_any(&self, path: &[u8]) -> bool {
        let path = &*one_name(path);
        is_device(path)
            || (!self.denies(&self.deny_write, path)
                && self.allow.as_ref().is_none_or(|allow| allow.iter().any(|place| place.covers(path))))
    }

    /// Whether what is at this path may be read, or listed.
    pub(super) fn may_read(&self, path: &[u8]) -> bool {
        let path = &*one_name(path);
        is_device(path) || !self.denies(&self.deny_read, path)
    }

    /// Whether a list denies it, whatever the one that allows says: as (reading, writing).
    pub(super) fn denied(&self, path: &[u8]) -> (bool, bool) {
        let path = &*one_name(path);
        (self.denies(&self.deny_read, path), self.denies(&self.deny_write, path))
    }

    /// Whether names below this path are denied that are not denied below `target`: a link here that leads there would
    /// lead round the rule. Without a target, whether any names below it are.
    pub(super) fn leads_round(&self, path: &[u8], target: Option<&[u8]>) -> bool {
        let path = &*one_name(path);
        let target = target.map(one_name);
        let target = target.as_deref();
        [&self.deny_read, &self.deny_write].iter().any(|list| {
            // Below the working directory a name is denied at any depth; below what has such a name, everything.
            let by_name = !list.names.is_empty()
                && self.is_here(path)
                && !target.is_some_and(|target| self.is_here(target) || self.denies(list, target));
            by_name
                || list.places.iter().any(|place| {
                    let there = target.map(|target| place.reach(target)).unwrap_or_default();
                    let is_denied = |part: usize| there.get(part) == Some(&true);
                    let mut reach = place.reach(path);
                    let is_matched = reach.pop(); // it, and all below it, is not made at all
                    let whole = is_denied(reach.len()) || is_matched == Some(true);
                    !whole && reach.iter().enumerate().any(|(part, open)| *open && !is_denied(part))
                })
        })
    }

    /// Whether this is the working directory, or below it.
    fn is_here(&self, path: &[u8]) -> bool {
        let rest = path.strip_prefix(self.cwd.strip_suffix(b"/").unwrap_or(&self.cwd));
        rest.is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
    }

    /// Whether a list denies anything at all.
    pub(super) fn deny_anything(&self) -> bool {
        !self.deny_read.is_empty() || !self.deny_write.is_empty()
    }

    /// The directories, without patterns, that everything may be written below, whatever its name.
    pub(super) fn free_dirs(&self) -> Vec<PathBuf> {
        let dirs: Vec<Vec<u8>> = match &self.allow {
            Some(allow) => allow.iter().filter_map(Place::path).collect(),
            None => WRITABLE.iter().map(|dir| dir.as_bytes().to_vec()).collect(),
        };
        let List { names, places } = &self.deny_write;
        let is_free = |dir: &Vec<u8>| {
            let mut here = components(&self.cwd).zip(components(dir));
            (names.is_empty() || here.any(|(name, other)| name != other))
                && !places.iter().any(|place| place.reaches(dir))
        };
        dirs.into_iter()
            .filter(is_free)
            .map(|dir| OsString::from_vec([&dir[..], b"/"].concat()).into())
            .collect()
    }

    /// Whether anything may not be read.
    pub(super) fn deny_reading(&self) -> bool {
        !self.deny_read.is_empty()
    }

    fn denies(&self, list: &List, path: &[u8]) -> bool {
        let below = path.strip_prefix(self.cwd.strip_suffix(b"/").unwrap_or(&self.cwd));
        let below = below.filter(|rest| rest.first() == Some(&b'/')).unwrap_or_default();
        list.places.iter().any(|place| place.covers(path))
            || components(below).any(|name| list.names.iter().any(|glob| glob.matches(name)))
    }
}

impl List {
    fn is_empty(&self) -> bool {
        self.names.is_empty() && self.places.is_empty()
    }
}

/// Whether this is the name of a POSIX semaphore.
fn is_semaphore(path: &[u8]) -> bool {
    path.strip_prefix(SEMAPHORES).is_some_and(|name| !name.is_empty() && !name.contains(&b'/'))
}

fn is_device(path: &[u8]) -> bool {
    DEVICES.contains(&path) || path.strip_prefix(TERMINALS).is_some_and(|rest| rest.first() == Some(&b'/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(allow: Option<&[&str]>, deny_read: &[&str], deny_write: &[&str]) -> Rules {
        let list = |patterns: &[&str]| patterns.iter().map(|p| (*p).to_owned()).collect();
        let policy = FilePolicy {
            allow_write: allow.map(list),
            deny_read: list(deny_read),
            deny_write: list(deny_write),
        };
        let real = |path: &str| path.replace("/data/link", "/data/target").into_bytes();
        Rules::new(&policy, "/workspace/project", "/data", &real).expect("good")
    }

    #[test]
    fn the_example_of_the_coding_agents_holds() {
        let rules = rules(Some(&["/tmp", "."]), &["~/.ssh", "~/.aws"], &[".env", "*.key"]);
        for path in
            ["/tmp/x", "/data/project", "/workspace/project/a/b", "/mnt/data/project/.envrc", "/dev/null"]
        {
            assert!(rules.may_write(path.as_bytes()), "{path}");
        }
        for path in [
            "/data/project/.env",
            "/mnt/data/project/a/.env",
            "/workspace/project/a/b.key",
            "/data/project/x.key/inside",
            "/data/other",
            "/data",
            "/tmpx",
            "/etc/passwd",
            "/dev/nullx",
        ] {
            assert!(!rules.may_write(path.as_bytes()), "{path}");
        }
        assert!(rules.may_write(b"/tmp/.env"), "a name is looked for below the working directory");
        assert!(!rules.may_read(b"/workspace/.ssh/id_rsa") && !rules.may_read(b"/data/.aws"));
        assert!(rules.may_read(b"/data/project/.env") && rules.may_read(b"/data/.sshx"));
        assert!(rules.deny_reading() && rules.deny_anything());
    }

    #[test]
    fn places_are_matched_from_the_root_on() {
        for (pattern, yes, no) in [
            (
                "a/*.txt",
                &["/data/project/a/x.txt", "/data/project/a/x.txt/y"][..],
                &["/data/project/a/b/x.txt"][..],
            ),
            ("./x", &["/data/project/x"], &["/data/project/a/x"]),
            ("**/x", &["/data/project/x", "/data/project/a/b/x/y"], &["/data/x"]),
            ("a/**/z", &["/data/project/a/z", "/data/project/a/b/c/z"], &["/data/project/a/b"]),
            ("a/**", &["/data/project/a/b"], &["/data/project/a"]),
            ("../up/", &["/data/up", "/data/up/x"], &["/data/project/up"]),
            ("/", &["/", "/any"], &[]),
            ("/data/link/x", &["/data/link/x", "/data/target/x"], &["/data/target"]),
            ("~", &["/data/project", "/data"], &["/tmp"]),
            ("/mnt/**", &["/data/s", "/mnt/data/s/x"], &["/tmp/s"]),
            ("/work*/s", &["/data/s", "/workspace/s/x"], &["/data/t"]),
            ("/workspace/s", &["/data/s", "/mnt/data/s/x"], &["/workspaces"]),
        ] {
            let (write, read) = (rules(None, &[], &[pattern]), rules(None, &[pattern], &[]));
            for path in yes {
                assert!(
                    !write.may_write(path.as_bytes()) && !read.may_read(path.as_bytes()),
                    "{pattern} {path}"
                );
                assert_eq!(write.denied(path.as_bytes()), (false, true));
            }
            for path in no {
                assert!(
                    write.may_write(path.as_bytes()) && read.may_read(path.as_bytes()),
                    "{pattern} {path}"
                );
            }
            let allow = rules(Some(&[pattern]), &[], &[]);
            assert!(yes.iter().all(|path| allow.may_write(path.as_bytes())), "{pattern}");
        }
        let nothing = rules(Some(&[]), &[], &[]);
        assert!(nothing.may_write(b"/dev/shm/sem.x") && !nothing.may_write(b"/dev/shm/x"));
        assert!(!nothing.may_write(b"/dev/shm/sem.x/y") && !nothing.may_write(b"/dev/shm/sem."));
        assert!(!nothing.may_write_any(b"/dev/shm/sem.x"), "a directory, a link or a pipe is no semaphore");
        assert!(!rules(Some(&[]), &[], &["/dev/shm/sem.x"]).may_write(b"/dev/shm/sem.x"));
        assert!(
            !nothing.may_write(b"/tmp/x") && nothing.may_write(b"/dev/pts/0") && !nothing.deny_anything()
        );
    }

    #[test]
    fn a_directory_with_odd_characters_is_no_pattern() {
        let policy = FilePolicy { allow_write: Some(vec![".".to_owned()]), ..FilePolicy::default() };
        let rules = Rules::new(&policy, "/data/[x*", "/data", &|path| path.into()).expect("good");
        assert!(rules.may_write(b"/data/[x*/y") && !rules.may_write(b"/data/[xx/y"));
    }

    #[test]
    fn sockets_may_be_made_where_nothing_is_denied() {
        let dirs =
            |rules: Rules| rules.free_dirs().into_iter().map(|d| d.display().to_string()).collect::<Vec<_>>();
        assert_eq!(dirs(rules(Some(&["/tmp", "."]), &["~/.ssh"], &[".env"])), ["/tmp/"]);
        assert_eq!(dirs(rules(Some(&["/tmp", ".", "*.x"]), &[], &[])), ["/tmp/", "/data/project/"]);
        assert_eq!(dirs(rules(Some(&["/tmp", "/data/a"]), &[], &["/tmp/*/x"])), ["/data/a/"]);
        assert_eq!(dirs(rules(None, &[], &["/data/a"])), ["/tmp/", "/dev/shm/"]);
        assert!(dirs(rules(None, &[], &["/**/x"])).is_empty());
    }

    #[test]
    fn a_directory_above_a_denied_place_is_known() {
        let rules = rules(None, &["~/a/b/c"], &["/tmp/*/x"]);
        for (path, above) in [
            ("/data", true),
            ("/mnt/data/a/b", true),
            ("/data/a/b/c", false),
            ("/tmp/q", true),
            ("/data/b", false),
        ] {
            assert_eq!(rules.leads_round(path.as_bytes(), None), above, "{path}");
            assert_eq!(rules.leads_round(path.as_bytes(), Some(b"/data/other")), above, "{path}");
        }
    }

    #[test]
    fn a_link_leads_round_a_rule_unless_the_same_is_denied_where_it_leads() {
        for (deny, path, target, round) in [
            // What the pattern names behind its `**`, wherever that is.
            ("**/.git/hooks", "/data/project/.git", "/data/project/real", true),
            ("**/.git/hooks", "/data/project/a/.git", "/data/project/a/b", true),
            ("**/.git/hooks", "/data/project/.git", "/data/project/sub/.git", false),
            ("**/.git/hooks", "/data/project/.git", "/data/project/.git/hooks/x", false),
            ("**/.git/hooks", "/data/project/.gitx", "/data/project/real", false),
            // A directory on the way there: below another of the same tree the same is denied, elsewhere it is not.
            ("**/.git/hooks", "/data/project/sub", "/workspace/project/real", false),
            ("**/.git/hooks", "/data/project/sub", "/data/project", false),
            ("**/.git/hooks", "/data/project/sub", "/data/elsewhere", true),
            ("**/.git/hooks", "/data/project/sub", "/tmp", true),
            ("**/.git/hooks", "/tmp/sub", "/tmp/real", false),
            ("a/**/x", "/data/project/a", "/data/project/b", true),
            ("a/**/x", "/data/project/a/b", "/data/project/a/c", false),
            ("a/**/b/*/x", "/data/project/a/b", "/data/project/a/c", true),
            ("a/**/b/*/x", "/data/project/a/c", "/data/project/a/b", false),
            ("/tmp/*/x", "/tmp/q", "/tmp/r", false),
            ("/tmp/*/x", "/tmp/q", "/tmp", true),
            ("/mnt/**/x", "/data/q", "/data/r", false),
            ("/mnt/**/x", "/data/q", "/tmp", true),
            // A name is denied at any depth below the working directory.
            (".env", "/data/project/sub", "/data/project/a/b", false),
            (".env", "/data/project/sub", "/workspace/project", false),
            (".env", "/data/project/sub", "/data", true),
            (".env", "/data/project/sub", "/tmp", true),
            (".env", "/data/other", "/tmp", false),
            (".env", "/tmp/sub", "/tmp/x", false),
        ] {
            for rules in [rules(None, &[], &[deny]), rules(None, &[deny], &[])] {
                let leads = rules.leads_round(path.as_bytes(), Some(target.as_bytes()));
                assert_eq!(leads, round, "{deny}: {path} -> {target}");
            }
        }
        let rules = rules(None, &[], &["**/.git/hooks"]);
        assert!(rules.leads_round(b"/data/project/sub", None) && !rules.leads_round(b"/tmp/sub", None));
        assert!(!rules.leads_round(b"/data/project/.git/hooks/x", None), "it may not be made at all");
    }
}
