//! The target of a symbolic link: bytes for `symlink(2)`, never a path that anything of ours follows.
//!
//! A target may be absolute, lead out of `/data`, dangle or loop: inside the container that concerns only the
//! session. The daemon must never resolve it.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::limits::MAX_TARGET;

/// A checked target: what `symlink(2)` takes.
#[derive(Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "Vec<u8>", into = "Vec<u8>")]
pub struct LinkTarget(Vec<u8>);

/// Why bytes are not a target.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TargetError {
    /// Linux has no empty symbolic links.
    #[error("the target of a symbolic link is empty")]
    Empty,
    /// It contains a NUL byte.
    #[error("the target of a symbolic link contains a NUL byte")]
    Nul,
    /// Longer than [`MAX_TARGET`].
    #[error("the target of a symbolic link has {0} bytes; at most {MAX_TARGET} are possible")]
    TooLong(usize),
}

impl LinkTarget {
    /// Takes the bytes as they are.
    ///
    /// # Errors
    /// See [`TargetError`].
    pub fn new(bytes: impl Into<Vec<u8>>) -> Result<Self, TargetError> {
        let bytes = bytes.into();
        if bytes.is_empty() {
            return Err(TargetError::Empty);
        }
        if bytes.len() > MAX_TARGET {
            return Err(TargetError::TooLong(bytes.len()));
        }
        if bytes.contains(&0) {
            return Err(TargetError::Nul);
        }
        Ok(Self(bytes))
    }

    /// The bytes, verbatim.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Pages of `/data` that it takes: tmpfs keeps a short target in the inode.
    pub fn pages(&self) -> u64 {
        u64::from(self.0.len() >= IN_INODE)
    }
}

/// tmpfs' `SHORT_SYMLINK_LEN`, which counts the closing NUL.
const IN_INODE: usize = 128;

impl TryFrom<Vec<u8>> for LinkTarget {
    type Error = TargetError;
    fn try_from(bytes: Vec<u8>) -> Result<Self, TargetError> {
        Self::new(bytes)
    }
}

impl From<LinkTarget> for Vec<u8> {
    fn from(target: LinkTarget) -> Self {
        target.0
    }
}

impl fmt::Debug for LinkTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", String::from_utf8_lossy(&self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_takes_is_taken_verbatim() {
        for good in [&b"/usr/bin/python3"[..], b"../../../x", b".", b"a//b/", b"\xff\n", &[b'x'; 4095]] {
            assert_eq!(LinkTarget::new(good).map(|t| t.as_bytes().to_vec()), Ok(good.to_vec()));
        }
        assert_eq!(LinkTarget::new(""), Err(TargetError::Empty));
        assert_eq!(LinkTarget::new("a\0b"), Err(TargetError::Nul));
        assert_eq!(LinkTarget::new("x".repeat(4096)), Err(TargetError::TooLong(4096)));
    }

    #[test]
    fn the_wire_is_checked_like_everything_else() {
        for bad in [vec![], b"a\0".to_vec(), vec![b'x'; 4096]] {
            let wire = postcard::to_stdvec(&bad).unwrap();
            assert!(postcard::from_bytes::<LinkTarget>(&wire).is_err(), "{} bytes", bad.len());
        }
    }

    #[test]
    fn a_long_target_costs_a_page() {
        assert_eq!(LinkTarget::new("x".repeat(127)).unwrap().pages(), 0);
        assert_eq!(LinkTarget::new("x".repeat(128)).unwrap().pages(), 1);
    }
}
