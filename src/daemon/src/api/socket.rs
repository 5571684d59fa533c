//! Unix sockets in the store's folder, by which the daemon's own user connects without a token.
//!
//! They have mode 0600, and their requests are served as the owner `default`. A socket must never be open to
//! other users, not even for a moment, nor stay when another daemon has taken over the store.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

use tokio::net::{UnixListener, UnixStream};

/// One of the two sockets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SocketKind {
    /// MCP, a line for each message, for `paddock stdio`.
    Lines,
    /// HTTP, as on the daemon's address, for `paddock run`.
    Http,
}

impl SocketKind {
    /// Its name in the store's folder.
    fn name(self) -> &'static str {
        match self {
            Self::Lines => "daemon.sock",
            Self::Http => "http.sock",
        }
    }

    /// Connects to the daemon that listens in the folder of a store.
    ///
    /// # Errors
    /// No daemon listens there.
    pub(crate) async fn connect(self, store: &Path) -> io::Result<UnixStream> {
        let (_held, path) = short(store, self.name())?;
        UnixStream::connect(path).await
    }
}

/// A listening socket. Dropping it removes its file.
pub(crate) struct Socket {
    pub(super) listener: UnixListener,
    path: PathBuf,
}

impl Socket {
    /// Listens in the folder of a store. The caller must hold the store's lock.
    ///
    /// # Errors
    /// The operating system's.
    pub(crate) fn bind(store: &Path, kind: SocketKind) -> io::Result<Self> {
        let path = store.join(kind.name());
        // Bound in a folder that only this user can enter, and then moved: at no moment can others open it.
        let private = store.join("tmp").join("socket");
        let _ = std::fs::remove_dir_all(&private);
        std::fs::DirBuilder::new().mode(0o700).create(&private)?;
        let beside = private.join(kind.name());
        let (_held, path_to_bind) = short(&private, kind.name())?;
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

/// A path to the same file that is short enough for a socket, however deep the folder is. It is valid while
/// the returned folder is open.
fn short(folder: &Path, name: &str) -> io::Result<(File, PathBuf)> {
    let held = File::open(folder)?;
    let path = PathBuf::from(format!("/proc/self/fd/{}/{name}", held.as_raw_fd()));
    Ok((held, path))
}
