//! Connections to peers: HTTP/1.1 over TLS, kept open, so that a hop costs a round trip and no handshake.
//!
//! A peer that vanishes without a word is noticed by the kernel: within the time of `SILENT` while an answer
//! is awaited, since probes then go unanswered, and within that of `UNREAD` while bytes are on their way,
//! which a client that reads slowly can hold up as well. Sooner, `super::pass` gives up what waits for a node
//! that has ended. It must never bound the time of an answer: a call
//! may take as long as its program.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::Uri;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Empty};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rustix::net::sockopt;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;
use tower::Service;

use super::tls::ClusterTls;

/// How long a connection to a peer may take, with its handshake: they are in one data centre.
const CONNECT: Duration = Duration::from_secs(2);
/// After this long without a sign of life a connection is broken.
const SILENT: Duration = Duration::from_secs(10);
/// Bytes that nobody takes for this long break a connection: a client may pause for `http.write_timeout`,
/// which is less by default.
const UNREAD: Duration = Duration::from_secs(150);
/// Connections to one peer that are kept while nothing uses them, and for how long.
const KEPT: usize = 128;
const KEPT_FOR: Duration = Duration::from_secs(90);

/// The body of a request to a peer, and that of an answer to a client.
pub type PassedBody = UnsyncBoxBody<Bytes, io::Error>;

/// A body without a byte.
#[must_use]
pub fn nothing() -> PassedBody {
    Empty::new().map_err(|never| match never {}).boxed_unsync()
}

/// The client of all peers.
pub type PeerClient = Client<PeerConnector, PassedBody>;

/// A client that connects with this TLS.
#[must_use]
pub fn client(tls: ClusterTls) -> PeerClient {
    Client::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(KEPT_FOR)
        .pool_max_idle_per_host(KEPT)
        .build(PeerConnector(tls))
}

/// Connects to a peer by the host and the port of a URI.
#[derive(Clone)]
pub struct PeerConnector(ClusterTls);

impl Service<Uri> for PeerConnector {
    type Response = TokioIo<PeerStream>;
    type Error = io::Error;
    type Future = BoxFuture<'static, io::Result<TokioIo<PeerStream>>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let tls = self.0.clone();
        Box::pin(async move {
            let host = uri.authority().map(|authority| authority.as_str().to_owned()).unwrap_or_default();
            let connecting = async {
                let stream = TcpStream::connect(&host).await?;
                tune(&stream)?;
                tls.connect(stream).await
            };
            let connected = tokio::time::timeout(CONNECT, connecting).await;
            let late = |_| io::Error::new(io::ErrorKind::TimedOut, "no connection within 2 s");
            Ok(TokioIo::new(PeerStream(connected.map_err(late)??)))
        })
    }
}

/// Sets what connections between nodes have, at either end.
pub fn tune(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, SILENT / 2)?;
    sockopt::set_tcp_keepintvl(stream, Duration::from_secs(1))?;
    sockopt::set_tcp_keepcnt(stream, 5)?;
    sockopt::set_tcp_user_timeout(stream, u32::try_from(UNREAD.as_millis()).unwrap_or(u32::MAX))?;
    Ok(())
}

/// A connection to a peer.
pub struct PeerStream(TlsStream<TcpStream>);

impl Connection for PeerStream {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

impl AsyncRead for PeerStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, into)
    }
}

impl AsyncWrite for PeerStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        from: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, from)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}
