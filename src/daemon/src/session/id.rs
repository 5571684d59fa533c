//! Session ids. A caller chooses any text up to a certain length, or the daemon makes up an id. An id must
//! never become part of a path.

use std::fmt;
use std::str::FromStr;

/// The longest id, in bytes.
const MAX_ID: usize = 256;

/// A name that a caller gave a conversation, or that the daemon made up for one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(String);

/// Why a text is no session id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IdError {
    /// Empty.
    #[error("is empty; leave it out to get one made up, or give any text up to {MAX_ID} bytes")]
    Empty,
    /// Too long.
    #[error("has {0} bytes; at most {MAX_ID} are possible")]
    TooLong(usize),
}

impl SessionId {
    /// A new id that cannot be guessed: `sess_` and 12 hex digits.
    pub fn generate() -> Self {
        Self(format!("sess_{}", crate::id::random_hex::<6>()))
    }

    /// An id that cannot be guessed without the key: the same for the same name.
    pub fn derived(key: &[u8; 32], name: &str) -> Self {
        let digest = crate::sign::mac(key, name.as_bytes());
        Self(format!("sess_{}", crate::id::hex(&digest[..6])))
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for SessionId {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        match text.len() {
            0 => Err(IdError::Empty),
            1..=MAX_ID => Ok(Self(text.to_owned())),
            long => Err(IdError::TooLong(long)),
        }
    }
}

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
