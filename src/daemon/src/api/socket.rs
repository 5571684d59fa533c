//! Unix sockets in the store's folder: the ways to the daemon for its own user, without a token.
//!
//! They are 0600, and served as the owner `default`. One must never be open to others, not for a moment, nor survive a daemon
//! that another one took the store from.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

use tokio::net::{UnixListener, UnixStream};

/// One of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Door {
    /// MCP, a line for each message: `paddock stdio`.
    Lines,
    /// HTTP, as on the daemon's address: `paddock run`.
    Http,
}

impl Door {
    /// Its name in the store's folder.
    fn name(self) -> &'static str {
        match self {
            Self::Lines => "daemon.sock",
            Self::Http => "http.sock",
        }
    }

    /// A connection to whoever listens in the folder of a store.
    ///
    /// # Errors
    /// Nobody does.
    pub(crate) async fn connect(self, store: &Path) -> io::Result<UnixStream> {
        let (_held, path) = short(store, self.name())?;
        UnixStream::connect(path).await
    }
}

/// A socket that listens; its file goes with it.
pub(crate) struct Socket {
    pub(super) listener: UnixListener,
    path: PathBuf,
}

impl Socket {
    /// Listens in the folder of a store, which the caller has the lock of.
    ///
    /// # Errors
    /// What the system says.
    pub(crate) fn bind(store: &Path, door: Door) -> io::Result<Self> {
        let path = store.join(door.name());
        // Bound where nobody else may look, then moved: there is no moment at which others could open it.
        let private = store.join("tmp").join("socket");
        let _ = std::fs::remove_dir_all(&private);
        std::fs::DirBuilder::new().mode(0o700).create(&private)?;
        let beside = private.join(door.name());
        let (_held, path_to_bind) = short(&private, door.name())?;
        let listener = UnixListener::bind(path_to_bind)?;
        std::fs::set_permissions(&beside, std::fs::Permissions::from_mode(0o600))?;
        std::fs::rename(&beside, &path)?;
        let _ = std::fs::remove_dir(&private);
        Ok(Self { listener, path })
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// A path to the same file that is short enough for a socket however deep the folder is; good while the folder is held.
fn short(folder: &Path, name: &str) -> io::Result<(File, PathBuf)> {
    let held = File::open(folder)?;
    let path = PathBuf::from(format!("/proc/self/fd/{}/{name}", held.as_raw_fd()));
    Ok((held, path))
}
