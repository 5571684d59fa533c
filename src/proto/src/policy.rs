//! Which files one run may write and read, as its caller says it; the agent enforces it.
//!
//! A policy must never be weakened: a run whose policy cannot be enforced is refused, see
//! [`crate::Event::Unsupported`].

use serde::{Deserialize, Serialize};

use crate::glob::Glob;

/// Patterns that one policy may have in all lists together: each is compared with each file that is opened.
pub const MAX_PATTERNS: usize = 256;

/// Bytes of one pattern: `PATH_MAX`.
pub const MAX_PATTERN: usize = 4096;

/// Bytes of all patterns together: beside the environment of a run they must fit into one message.
pub const MAX_PATTERN_BYTES: usize = 32 * 1024;

/// Which files a run may write and read, within what its user may.
///
/// `~` is the home directory of the run, and a relative pattern begins at its working directory; `*`, `?`,
/// `[…]` and `**` (any number of directories) match as in an ignore file. A pattern of a `deny` list without
/// a `/` is a name: it is matched at any depth below the working directory. A pattern that matches a
/// directory covers everything below it.
///
/// Patterns are about paths. A program under a policy cannot make a link that gives a denied path to
/// something that it may write; links that were there before stay as they are.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FilePolicy {
    /// Only this may be written; `None`: all that its user may write.
    pub allow_write: Option<Vec<String>>,
    /// This may not be read.
    pub deny_read: Vec<String>,
    /// This may not be written, whatever `allow_write` says.
    pub deny_write: Vec<String>,
}

impl FilePolicy {
    /// Whether there is nothing to enforce.
    pub fn is_empty(&self) -> bool {
        self.allow_write.is_none() && self.deny_read.is_empty() && self.deny_write.is_empty()
    }

    /// Every list, with its name.
    pub fn lists(&self) -> [(&'static str, &[String]); 3] {
        [
            ("allow_write", self.allow_write.as_deref().unwrap_or_default()),
            ("deny_read", &self.deny_read),
            ("deny_write", &self.deny_write),
        ]
    }

    /// Checks every pattern and their number.
    ///
    /// # Errors
    /// The list, the pattern, what is wrong with it and what would be right.
    pub fn check(&self) -> Result<(), String> {
        let (mut count, mut bytes) = (0, 0);
        for (list, patterns) in self.lists() {
            for pattern in patterns {
                check(pattern)
                    .map_err(|what| format!("{list}: the pattern {:?} {what}", beginning(pattern)))?;
                (count, bytes) = (count + 1, bytes + pattern.len());
                if count > MAX_PATTERNS {
                    return Err(format!("{list}: more than {MAX_PATTERNS} patterns in all lists together"));
                }
                if bytes > MAX_PATTERN_BYTES {
                    return Err(format!(
                        "{list}: more than {MAX_PATTERN_BYTES} bytes in all patterns together"
                    ));
                }
            }
        }
        Ok(())
    }
}

/// As much of a pattern as an error message has room for.
fn beginning(pattern: &str) -> String {
    pattern.chars().take(80).collect()
}

fn check(pattern: &str) -> Result<(), String> {
    if pattern.is_empty() {
        return Err("is empty; \".\" is the working directory".to_owned());
    }
    if pattern.contains('\0') {
        return Err("has a NUL, which no path can have".to_owned());
    }
    if pattern.len() > MAX_PATTERN {
        return Err(format!("has more than {MAX_PATTERN} bytes"));
    }
    if pattern.starts_with('~') && pattern != "~" && !pattern.starts_with("~/") {
        return Err("names another user's home; write `~/…`, or `./~…` for a file of that name".to_owned());
    }
    let mut is_open = false;
    for component in pattern.split('/') {
        let glob = Glob::parse(component).map_err(str::to_owned)?;
        if component.contains("**") && component != "**" {
            return Err(
                "has a `**` beside other characters; it stands for directories, as in `a/**/b`".to_owned()
            );
        }
        if is_open && component == ".." {
            return Err("has a `..` behind a wildcard; write the directory that it means".to_owned());
        }
        is_open |= glob.literal().is_none();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn deny(pattern: &str) -> FilePolicy {
        FilePolicy { deny_write: vec![pattern.to_owned()], ..FilePolicy::default() }
    }

    #[test]
    fn patterns_of_coding_agents_are_accepted() {
        for pattern in [
            ".env",
            "*.key",
            "/tmp",
            ".",
            "..",
            "~",
            "~/.ssh",
            "~/.aws/",
            "src/**/*.[ch]",
            "**/x",
            "./~a",
            "a\\*",
            "/",
        ] {
            assert_eq!(deny(pattern).check(), Ok(()), "{pattern}");
        }
        assert!(FilePolicy::default().is_empty() && FilePolicy::default().check().is_ok());
        assert!(!FilePolicy { allow_write: Some(Vec::new()), ..FilePolicy::default() }.is_empty());
    }

    #[test]
    fn an_error_has_the_list_and_the_pattern() {
        for (pattern, part) in [
            ("", "is empty"),
            ("a\0b", "NUL"),
            ("x/[a", "without its `]`"),
            ("~root/x", "another user's"),
            ("a**", "beside other"),
            ("*/../x", "behind a wildcard"),
        ] {
            let error = deny(pattern).check().expect_err(pattern);
            assert!(error.starts_with("deny_write: the pattern \"") && error.contains(part), "{error}");
        }
        let long = FilePolicy { deny_read: vec!["x".repeat(MAX_PATTERN + 1)], ..FilePolicy::default() };
        assert!(long.check().is_err_and(|e| e.starts_with("deny_read: ") && e.len() < 200));
        let each = vec!["x".to_owned(); MAX_PATTERNS];
        let mut many = FilePolicy { allow_write: Some(each), ..FilePolicy::default() };
        assert_eq!(many.check(), Ok(()));
        many.deny_write.push("y".to_owned());
        assert!(many.check().is_err_and(|e| e.contains("256")));
        let large = FilePolicy { deny_read: vec!["x".repeat(MAX_PATTERN); 9], ..FilePolicy::default() };
        assert!(large.check().is_err_and(|e| e.contains("bytes in all")));
    }
}
