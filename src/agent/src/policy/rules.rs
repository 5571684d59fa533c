//! What a policy says about a path: patterns parsed once, then asked for every file that is opened or
//! changed.
//!
//! A path comes in as the kernel resolved it. All names of the session's volume are one here, `/data`. It
//! must never do input or output: the caller passes a function that follows the links of a pattern's
//! beginning, once.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use paddock_proto::FilePolicy;
use paddock_proto::glob::Glob;
use paddock_proto::limits::{DATA_DIR, HOME_DIR};

use super::path_pattern::{PathPattern, components, one_name};

/// Devices that programs write without changing any file: a shell needs the first of them for `>/dev/null`.
const DEVICES: [&[u8]; 7] =
    [b"/dev/null", b"/dev/zero", b"/dev/full", b"/dev/tty", b"/dev/random", b"/dev/urandom", b"/dev/ptmx"];

/// Directories that a run may write without a policy.
const WRITABLE: [&str; 4] = [DATA_DIR, HOME_DIR, "/tmp", "/dev/shm"];

/// Terminals that programs make.
const TERMINALS: &[u8] = b"/dev/pts";

/// `sem_open(3)` makes files with this beginning, directly in `/dev/shm`. To a program they are shared
/// memory, as System V's is, and no files.
const SEMAPHORES: &[u8] = b"/dev/shm/sem.";

/// A parsed policy.
#[derive(Debug)]
pub(super) struct Rules {
    /// The working directory. A name without a `/` is denied at any depth below it.
    cwd: Vec<u8>,
    allow: Option<Vec<PathPattern>>,
    deny_read: DenyList,
    deny_write: DenyList,
}

/// One list of what is denied.
#[derive(Debug, Default)]
struct DenyList {
    /// Patterns without a `/`.
    names: Vec<Glob>,
    paths: Vec<PathPattern>,
}

impl Rules {
    /// Parses a policy for a run with this working directory and home. `real` follows the links of a path as
    /// far as it exists.
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
        let paths = |pattern: &str| -> Result<Vec<PathPattern>, String> {
            match pattern.strip_prefix('~') {
                Some(rest) => PathPattern::parse(home, rest, real),
                None if pattern.starts_with('/') => PathPattern::parse("/", pattern, real),
                None => PathPattern::parse(cwd, pattern, real),
            }
        };
        let list = |patterns: &[String]| -> Result<DenyList, String> {
            let mut list = DenyList::default();
            for pattern in patterns {
                let name = pattern.trim_end_matches('/');
                if name.is_empty() || name.contains('/') || matches!(name, "." | ".." | "~") {
                    list.paths.extend(paths(pattern)?);
                } else {
                    list.names.push(Glob::parse(name)?);
                }
            }
            Ok(list)
        };
        let allow = policy.allow_write.as_ref().map(|patterns| {
            let all = patterns.iter().map(|pattern| paths(pattern)).collect::<Result<Vec<_>, _>>();
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

    /// As [`Rules::may_write`], for anything but a regular file, which cannot be a semaphore.
    pub(super) fn may_write_any(&self, path: &[u8]) -> bool {
        let path = &*one_name(path);
        is_device(path)
            || (!self.denies(&self.deny_write, path)
                && self.allow.as_ref().is_none_or(|allow| allow.iter().any(|pattern| pattern.covers(path))))
    }

    /// Whether what is at this path may be read, or listed.
    pub(super) fn may_read(&self, path: &[u8]) -> bool {
        let path = &*one_name(path);
        is_device(path) || !self.denies(&self.deny_read, path)
    }

    /// Whether the deny lists deny reading it and writing it, whatever `allow_write` says.
    pub(super) fn denied(&self, path: &[u8]) -> (bool, bool) {
        let path = &*one_name(path);
        (self.denies(&self.deny_read, path), self.denies(&self.deny_write, path))
    }

    /// Whether a link at this path that leads to `target` would bypass a rule: a name below the path is
    /// denied that is not denied below the target. Without a target, whether any name below the path is
    /// denied.
    pub(super) fn would_bypass(&self, path: &[u8], target: Option<&[u8]>) -> bool {
        let path = &*one_name(path);
        let target = target.map(one_name);
        let target = target.as_deref();
        [&self.deny_read, &self.deny_write].iter().any(|list| {
            // Below the working directory a name is denied at any depth; below what has such a name,
            // everything.
            let by_name = !list.names.is_empty()
                && self.is_here(path)
                && !target.is_some_and(|target| self.is_here(target) || self.denies(list, target));
            by_name
                || list.paths.iter().any(|pattern| {
                    let there = target.map(|target| pattern.reach(target)).unwrap_or_default();
                    let is_denied = |part: usize| there.get(part) == Some(&true);
                    let mut reach = pattern.reach(path);
                    let is_matched = reach.pop(); // the link itself may not be made
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

    /// The directories below which everything may be written, whatever its name.
    pub(super) fn free_dirs(&self) -> Vec<PathBuf> {
        let dirs: Vec<Vec<u8>> = match &self.allow {
            Some(allow) => allow.iter().filter_map(PathPattern::path).collect(),
            None => WRITABLE.iter().map(|dir| dir.as_bytes().to_vec()).collect(),
        };
        let DenyList { names, paths } = &self.deny_write;
        let is_free = |dir: &Vec<u8>| {
            let mut here = components(&self.cwd).zip(components(dir));
            (names.is_empty() || here.any(|(name, other)| name != other))
                && !paths.iter().any(|pattern| pattern.reaches(dir))
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

    /// Whether a list denies this path: by a pattern, or by the name of it or of a directory above it.
    fn denies(&self, list: &DenyList, path: &[u8]) -> bool {
        let below = path.strip_prefix(self.cwd.strip_suffix(b"/").unwrap_or(&self.cwd));
        let below = below.filter(|rest| rest.first() == Some(&b'/')).unwrap_or_default();
        list.paths.iter().any(|pattern| pattern.covers(path))
            || components(below).any(|name| list.names.iter().any(|glob| glob.matches(name)))
    }
}

impl DenyList {
    fn is_empty(&self) -> bool {
        self.names.is_empty() && self.paths.is_empty()
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
mod tests;
