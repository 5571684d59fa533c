//! Servers outside of the containers, on this host's loopback: what programs reach through the daemon.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// A server, which ends when it is dropped.
pub(crate) struct Upstream {
    pub(crate) addr: SocketAddr,
    connections: Arc<AtomicUsize>,
    task: JoinHandle<()>,
}

impl Upstream {
    /// Serves each connection with `serve`.
    pub(crate) async fn start<F: Future<Output = ()> + Send + 'static>(
        serve: impl Fn(TcpStream) -> F + Send + 'static,
    ) -> Upstream {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let addr = listener.local_addr().expect("an address");
        let connections = Arc::<AtomicUsize>::default();
        let count = connections.clone();
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                count.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(serve(stream));
            }
        });
        Upstream { addr, connections, task }
    }

    /// An HTTP server that answers each request with its first line, and closes.
    pub(crate) async fn http() -> Upstream {
        Upstream::start(|mut stream| async move {
            let mut head = Vec::new();
            let mut bytes = [0; 4096];
            while !head.windows(4).any(|end| end == b"\r\n\r\n") {
                match stream.read(&mut bytes).await {
                    Ok(n) if n > 0 => head.extend_from_slice(&bytes[..n]),
                    _ => return,
                }
            }
            let text = String::from_utf8_lossy(&head);
            let line = text.lines().next().unwrap_or_default();
            let answer = format!(
                "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{line}",
                line.len()
            );
            let _ = stream.write_all(answer.as_bytes()).await;
        })
        .await
    }

    /// Sends back what it receives, until the end of that, and then ends its own half.
    pub(crate) async fn echo() -> Upstream {
        Upstream::start(|mut stream| async move {
            let (mut from, mut to) = stream.split();
            let _ = tokio::io::copy(&mut from, &mut to).await;
            let _ = to.shutdown().await;
        })
        .await
    }

    pub(crate) fn port(&self) -> u16 {
        self.addr.port()
    }

    /// How many connections it has accepted.
    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.task.abort();
    }
}
