//! MCP over a Unix socket in the store's folder, a line for each message: `paddock stdio` connects to it.
//!
//! A client first sends a name of its own, [`CLIENT`] hexadecimal digits in a line. Its calls that name no
//! session share a session whose id is derived from this name. So the session stays the same when another
//! daemon serves the client.
//! Two clients must never share a session that they did not name.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use rmcp::ServerHandler;
use rmcp::service::serve_server_with_ct;
use rmcp::transport::async_rw::AsyncRwTransport;
use tokio::io::{AsyncRead, AsyncReadExt, ReadBuf};
use tokio::net::UnixStream;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{debug, info};

use super::accept;
use super::mcp::Handler;
use super::opening::Opening;
use super::server::{Ending, LAST_ANSWERS};
use super::socket::Socket;
use super::structure::{StructureCounter, StructureExcess};
use crate::session::SessionId;
use crate::sign::DEFAULT_OWNER;
use crate::tools::Tools;

/// The length of a client's name, in digits.
pub const CLIENT: usize = 32;
/// How long a client may take to send its name.
const HELLO: Duration = Duration::from_secs(5);
/// How long a client may then take to initialize: the program that started it may not be ready yet.
const BEGINNING: Duration = Duration::from_secs(60);
/// The most clients at the same time; others wait.
const CLIENTS: usize = 256;

/// Serves the local clients.
pub(crate) struct LocalServer {
    socket: Socket,
    tools: Arc<Tools>,
    key: [u8; 32],
    /// The most bytes of one message.
    max_message: usize,
}

impl LocalServer {
    pub(crate) fn new(socket: Socket, tools: Arc<Tools>, key: [u8; 32], max_message: u64) -> Self {
        Self { socket, tools, key, max_message: usize::try_from(max_message).unwrap_or(usize::MAX) }
    }

    /// Serves until `ending.stop`. Then each client's connection ends as soon as its calls are answered;
    /// calls that take longer than the drain are cancelled.
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

/// Reads from a client and bounds the structure of its messages. `paddock stdio` itself refuses, with an
/// answer, every message that exceeds a bound; the connection of any other client that sends one ends.
struct CountedLines<R> {
    from: R,
    counter: StructureCounter,
}

impl<R> CountedLines<R> {
    fn new(from: R) -> Self {
        Self { from, counter: StructureCounter::default() }
    }

    fn count(&mut self, mut bytes: &[u8]) -> Result<(), StructureExcess> {
        while let Some(end) = memchr::memchr(b'\n', bytes) {
            self.counter.count(&bytes[..end])?;
            (self.counter, bytes) = (StructureCounter::default(), &bytes[end + 1..]);
        }
        self.counter.count(bytes)
    }
}

impl<R: AsyncRead + Unpin> AsyncRead for CountedLines<R> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let had = into.filled().len();
        let polled = Pin::new(&mut self.from).poll_read(context, into);
        if let Err(excess) = self.count(&into.filled()[had..]) {
            into.set_filled(had);
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, excess)));
        }
        polled
    }
}

/// Serves one client until its connection ends.
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
    info!("a local client connected");
    let own = SessionId::derived(key, &format!("local\n{}", String::from_utf8_lossy(name)));
    let (from, to) = socket.into_split();
    let handler = Handler::new(tools, DEFAULT_OWNER.to_owned(), own, calls, end);
    let lines = AsyncRwTransport::new(CountedLines::new(from), to).with_max_line_length(max_message);
    let transport = Opening::new(lines, handler.supported_protocol_versions().into_owned());
    let begun = tokio::time::timeout(BEGINNING, serve_server_with_ct(handler, transport, cut)).await;
    let ended = match begun {
        Ok(Ok(running)) => {
            running.waiting().await.map_or_else(|error| error.to_string(), |why| format!("{why:?}"))
        }
        Ok(Err(error)) => error.to_string(),
        Err(_) => format!("it sent no `initialize` within {BEGINNING:?}"),
    };
    debug!(ended, "a local client disconnected");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn each_line_is_counted_on_its_own_and_one_that_exceeds_a_bound_ends_the_connection() {
        let line = format!("[{}0]\n", "0,".repeat(60_000));
        let three = line.repeat(3);
        let mut heard = Vec::new();
        CountedLines::new(three.as_bytes()).read_to_end(&mut heard).await.unwrap();
        assert_eq!(heard, three.as_bytes());
        let one = line.trim_end().repeat(2);
        let error = CountedLines::new(one.as_bytes()).read_to_end(&mut heard).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    }
}
