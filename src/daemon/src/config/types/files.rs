//! Files: the store, links to what is in it, and folders of the host. This checks nothing.

use std::path::PathBuf;
use std::time::Duration;

use paddock_ledger::ObjectsConfig;
use serde::Deserialize;

use crate::config::value::Secret;

/// The directory of sessions on disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreSettings {
    /// An absolute path, which may not exist yet.
    pub root: PathBuf,
    /// Whether the operator set it; otherwise it is the state directory of this user's daemons.
    pub is_named: bool,
    /// PostgreSQL and S3, if many machines share what is stored.
    pub shared: Option<SharedStoreSettings>,
    /// The limit of all sessions' files together, in bytes.
    pub max_bytes: u64,
    /// The limit of their number, with directories and links.
    pub max_files: u64,
}

/// The servers of a store of many machines.
#[derive(Clone, PartialEq, Eq)]
pub struct SharedStoreSettings {
    /// The address of the database; there can be a password in it.
    pub url: String,
    /// Where contents are, with the settings of S3.
    pub objects: ObjectsConfig,
}

impl std::fmt::Debug for SharedStoreSettings {
    /// Without the address of the database.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SharedStoreSettings").field("objects", &self.objects).finish_non_exhaustive()
    }
}

/// Signed links and logs of runs.
#[derive(Debug, Clone)]
#[cfg_attr(test, derive(PartialEq))]
pub struct FilesSettings {
    /// The key; `None` lets the store make and keep one.
    pub secret: Option<Secret>,
    /// Previous keys: they verify links but never sign.
    pub previous_secrets: Vec<Secret>,
    /// How long a link is valid; `None` for ever.
    pub url_ttl: Option<Duration>,
    /// The form of new links.
    pub url_style: UrlStyle,
    /// The limit of a run's log of its whole output, in bytes.
    pub max_log: u64,
}

/// The form of links to files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum UrlStyle {
    /// `/files/{session}/{path}?sig=…`: each gives access to one file.
    Signed,
    /// `/files/{hash}/{path}`: each gives access to every file of its session.
    Hashed,
}

/// A folder of the engine's host that programs can read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MountSettings {
    /// Its name: programs see it at `/mnt/NAME`.
    pub name: String,
    /// Its absolute path.
    pub path: PathBuf,
    /// What is in it, for models to read.
    pub about: String,
    /// The runners that have it; none: every language.
    pub runners: Vec<String>,
}

/// The folder with the drop folders of one tenant's sessions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DropSettings {
    /// The name of the tenant's token.
    pub tenant: String,
    /// The folder, an absolute path.
    pub path: PathBuf,
}
