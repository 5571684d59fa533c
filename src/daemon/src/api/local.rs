//! MCP over a Unix socket in the store's folder, a line for each message: what `paddock stdio` talks to.
//!
//! A client first says a name of its own, [`CLIENT`] hex digits in a line: the session of its calls that name none is
//! the same for the same name, whichever daemon serves it. The socket is 0600: who can open it is the daemon's own user, and is served as the owner `default`. It must never
//! be left open to others, not for a moment, nor survive a daemon that another one took the store from.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rmcp::service::serve_server_with_ct;
use rmcp::transport::async_rw::AsyncRwTransport;
use tokio::io::AsyncReadExt;
use tokio::net::{UnixListener, UnixStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{debug, info};

use super::accept;
use super::mcp::Handler;
use super::server::LAST_ANSWERS;
use crate::session::SessionId;
use crate::sign::DEFAULT_OWNER;
use crate::tools::Tools;

/// The socket's name in the store's folder.
const NAME: &str = "daemon.sock";
/// Digits of a client's name.
pub const CLIENT: usize = 32;
/// How long a client may take to say it.
const HELLO: Duration = Duration::from_secs(5);
/// How long it may then take until it has initialized: its own client may take its time to be ready.
const BEGINNING: Duration = Duration::from_secs(60);
/// Clients at one time; more wait.
const CLIENTS: usize = 256;

/// Where the socket of a store is.
fn socket(store: &Path) -> PathBuf {
    store.join(NAME)
}

/// A path to the same file that is short enough for a socket however deep the folder is; good while the folder is held.
///
/// # Errors
/// The folder cannot be opened.
pub(crate) fn short(folder: &Path, name: &str) -> io::Result<(File, PathBuf)> {
    let held = File::open(folder)?;
    let path = PathBuf::from(format!("/proc/self/fd/{}/{name}", held.as_raw_fd()));
    Ok((held, path))
}

/// A connection to whoever listens in the folder of a store.
///
/// # Errors
/// Nobody does.
pub(crate) async fn connect(store: &Path) -> io::Result<UnixStream> {
    let (_held, path) = short(store, NAME)?;
    UnixStream::connect(path).await
}

/// A socket that listens; its file goes with it.
pub(crate) struct Local {
    listener: UnixListener,
    path: PathBuf,
    tools: Arc<Tools>,
    key: [u8; 32],
    /// Bytes of one message.
    max_message: usize,
}

impl Local {
    /// Listens in the folder of the store, which the caller has the lock of.
    ///
    /// # Errors
    /// What the system says.
    pub(crate) fn bind(store: &Path, tools: Arc<Tools>, key: [u8; 32], max_message: u64) -> io::Result<Self> {
        let path = socket(store);
        // Bound where nobody else may look, then moved: there is no moment at which others could open it.
        let private = store.join("tmp").join("socket");
        let _ = std::fs::remove_dir_all(&private);
        std::fs::DirBuilder::new().mode(0o700).create(&private)?;
        let beside = private.join(NAME);
        let (_held, path_to_bind) = short(&private, NAME)?;
        let listener = UnixListener::bind(path_to_bind)?;
        std::fs::set_permissions(&beside, std::fs::Permissions::from_mode(0o600))?;
        std::fs::rename(&beside, &path)?;
        let _ = std::fs::remove_dir(&private);
        Ok(Self {
            listener,
            path,
            tools,
            key,
            max_message: usize::try_from(max_message).unwrap_or(usize::MAX),
        })
    }

    /// Serves until `stop`; then every client's connection ends once what it asked is answered: what takes longer
    /// than `drain` is ended.
    pub(crate) async fn serve(self, stop: CancellationToken, drain: Duration) {
        let serve = |(socket, _)| {
            let (tools, key, max, stop) = (self.tools.clone(), self.key, self.max_message, stop.clone());
            async move {
                let (calls, end, cut) =
                    (TaskTracker::new(), CancellationToken::new(), CancellationToken::new());
                let client = client(socket, (tools, calls.clone(), end.clone()), &key, max, cut.clone());
                let stopped = async {
                    stop.cancelled().await;
                    calls.close();
                    let _ = tokio::time::timeout(drain, calls.wait()).await;
                    end.cancel();
                    let _ = tokio::time::timeout(LAST_ANSWERS, calls.wait()).await;
                    cut.cancel();
                    std::future::pending().await
                };
                tokio::select! {
                    () = client => {}
                    () = stopped => {}
                }
            }
        };
        accept::each(CLIENTS, &stop, || self.listener.accept(), serve).await.wait().await;
    }
}

impl Drop for Local {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// One client, to its end.
async fn client(
    mut socket: UnixStream,
    (tools, calls, end): (Arc<Tools>, TaskTracker, CancellationToken),
    key: &[u8; 32],
    max_message: usize,
    cut: CancellationToken,
) {
    let mut hello = [0; CLIENT + 1];
    let said = tokio::time::timeout(HELLO, socket.read_exact(&mut hello)).await;
    let (b'\n', name) = (hello[CLIENT], &hello[..CLIENT]) else { return };
    if !matches!(said, Ok(Ok(_))) || !name.iter().all(u8::is_ascii_hexdigit) {
        return;
    }
    info!("a local client came");
    let own = SessionId::derived(key, &format!("local\n{}", String::from_utf8_lossy(name)));
    let (from, to) = socket.into_split();
    let handler = Handler::new(tools, DEFAULT_OWNER.to_owned(), own, calls, end);
    let transport = AsyncRwTransport::new(from, to).with_max_line_length(max_message);
    let begun = tokio::time::timeout(BEGINNING, serve_server_with_ct(handler, transport, cut)).await;
    let ended = match begun {
        Ok(Ok(running)) => {
            running.waiting().await.map_or_else(|error| error.to_string(), |why| format!("{why:?}"))
        }
        Ok(Err(error)) => error.to_string(),
        Err(_) => format!("it said nothing of itself in {BEGINNING:?}"),
    };
    debug!(ended, "a local client went");
}
