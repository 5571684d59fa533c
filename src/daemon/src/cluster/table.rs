//! A table of owners in a folder, for tests of several daemons on one machine. Builds for use do not have it.
//!
//! A file for each session, whose name is a hash and whose content is the name of its owner; a claim is a
//! hard link, which only one of several can make. A test reads, writes and removes the files to cause
//! faults. It has no fence and no lease: it must never be used where a node can be cut off.

use std::collections::HashSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use async_trait::async_trait;

use super::owners::{Node, Owners, OwnersError, Ownership, SessionKey};
use crate::id::random_hex;

/// The variable that names the folder.
pub const FOLDER: &str = "PADDOCK_TEST_OWNERS";

/// The table.
pub struct TableInFolder {
    folder: PathBuf,
    name: String,
    owned: Mutex<HashSet<SessionKey>>,
}

impl TableInFolder {
    /// The table in this folder, as the node of this name sees it.
    #[must_use]
    pub fn new(folder: &Path, name: &str) -> Self {
        Self { folder: folder.to_owned(), name: name.to_owned(), owned: Mutex::default() }
    }

    fn path(&self, key: &SessionKey) -> PathBuf {
        self.folder.join(format!("{:016x}", key.number()))
    }

    fn read(&self, key: &SessionKey) -> Result<Option<Node>, OwnersError> {
        match std::fs::read_to_string(self.path(key)) {
            Ok(name) => Ok(Some(Node { name: name.trim().to_owned(), address: None })),
            Err(error) if error.kind() == io::ErrorKind::NotFound && self.folder.is_dir() => Ok(None),
            Err(error) => Err(OwnersError(error.to_string())),
        }
    }
}

#[async_trait]
impl Owners for TableInFolder {
    async fn owner_of(&self, key: &SessionKey) -> Result<Ownership, OwnersError> {
        Ok(self.read(key)?.map_or(Ownership::Unknown, Ownership::Of))
    }

    async fn claim(&self, key: &SessionKey) -> Result<Node, OwnersError> {
        let failed = |error: io::Error| OwnersError(error.to_string());
        let beside = self.folder.join(format!(".{}", random_hex::<8>()));
        std::fs::write(&beside, &self.name).map_err(failed)?;
        let claimed = std::fs::hard_link(&beside, self.path(key));
        std::fs::remove_file(&beside).map_err(failed)?;
        match claimed {
            Ok(()) => {
                self.owned.lock().unwrap_or_else(PoisonError::into_inner).insert(key.clone());
                Ok(Node { name: self.name.clone(), address: None })
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                self.read(key)?.ok_or_else(|| OwnersError("the claim of another node vanished".to_owned()))
            }
            Err(error) => Err(failed(error)),
        }
    }

    async fn all_owned(&self) -> Result<Vec<SessionKey>, OwnersError> {
        Ok(self.owned.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect())
    }

    async fn give(&self, _: &SessionKey, _: &str) -> Result<(), OwnersError> {
        Err(OwnersError("a table in a folder moves no files".to_owned()))
    }

    async fn has_ended(&self, node: &str) -> Result<bool, OwnersError> {
        Ok(self.folder.join(format!("{node}.ended")).exists()) // it has no leases: a test says so
    }

    fn owned(&self) -> usize {
        self.owned.lock().unwrap_or_else(PoisonError::into_inner).len()
    }
}
