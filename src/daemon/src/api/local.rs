//! MCP over a Unix socket in the store's folder, a line for each message: what `paddock stdio` talks to.
//!
//! A client first says a name of its own, [`CLIENT`] hex digits in a line: the session of its calls that name none is
//! the same for the same name, whichever daemon serves it. It must never give two clients one session that they did not name.

use std::sync::Arc;
use std::time::Duration;

use rmcp::service::serve_server_with_ct;
use rmcp::transport::async_rw::AsyncRwTransport;
use tokio::io::AsyncReadExt;
use tokio::net::UnixStream;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{debug, info};

use super::accept;
use super::mcp::Handler;
use super::server::{Ending, LAST_ANSWERS};
use super::socket::Socket;
use crate::session::SessionId;
use crate::sign::DEFAULT_OWNER;
use crate::tools::Tools;

/// Digits of a client's name.
pub const CLIENT: usize = 32;
/// How long a client may take to say it.
const HELLO: Duration = Duration::from_secs(5);
/// How long it may then take until it has initialized: its own client may take its time to be ready.
const BEGINNING: Duration = Duration::from_secs(60);
/// Clients at one time; more wait.
const CLIENTS: usize = 256;

/// Serves those clients.
pub(crate) struct Local {
    socket: Socket,
    tools: Arc<Tools>,
    key: [u8; 32],
    /// Bytes of one message.
    max_message: usize,
}

impl Local {
    pub(crate) fn new(socket: Socket, tools: Arc<Tools>, key: [u8; 32], max_message: u64) -> Self {
        Self { socket, tools, key, max_message: usize::try_from(max_message).unwrap_or(usize::MAX) }
    }

    /// Serves until it is to stop; then every client's connection ends once what it asked is answered: what takes
    /// longer than the drain is ended.
    pub(crate) async fn serve(self, ending: Ending) {
        let stop = &ending.stop;
        let serve = |(socket, _)| {
            let (tools, key, max, ending) = (self.tools.clone(), self.key, self.max_message, ending.clone());
            async move {
                let (calls, end, cut) =
                    (TaskTracker::new(), CancellationToken::new(), CancellationToken::new());
                let client = client(socket, (tools, calls.clone(), end.clone()), &key, max, cut.clone());
                let stopped = async {
                    ending.stop.cancelled().await;
                    calls.close();
                    ending.drained(calls.wait()).await;
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
        accept::each(CLIENTS, stop, || self.socket.listener.accept(), serve).await.wait().await;
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
