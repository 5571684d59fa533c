//! Opens connections to an engine, over a Unix socket, TCP, TLS or ssh, as one type to the rest of the
//! module.
//!
//! It knows no HTTP. It must never fall back from one address to another, nor from TLS to TCP: it connects
//! exactly as the configured host says.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use http::Uri;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::client::legacy::connect::{Connected, Connection, HttpConnector};
use hyper_util::rt::TokioIo;
use hyperlocal::UnixConnector;
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;
use tower::Service;

use super::error::BoxError;
use super::host::{Address, EngineHost};
use super::limits::KEEPALIVE;
use super::names::EngineNames;
use super::ssh::{Ssh, SshStream};
use super::tls::Tls;

/// Dials one engine. As a [`Service`] it ignores the request's authority, which is a placeholder.
#[derive(Debug, Clone)]
pub(super) struct Connector {
    target: DialTarget,
    within: Duration,
}

#[derive(Debug, Clone)]
enum DialTarget {
    Unix(UnixConnector, Uri),
    Tcp(HttpConnector<EngineNames>, Uri, Option<Tls>),
    Ssh(Ssh),
}

impl Connector {
    /// A connector for `host` that gives up on one connection after `within`.
    ///
    /// Errors: certificates that cannot be used.
    pub(super) fn new(host: &EngineHost, within: Duration) -> Result<Connector, BoxError> {
        let target = match host.address() {
            Address::Unix(path) => DialTarget::Unix(UnixConnector, hyperlocal::Uri::new(path, "/").into()),
            Address::Tcp { host, port, certificates } => {
                let tls = certificates.as_deref().map(|folder| Tls::new(folder, host)).transpose()?;
                let mut tcp = HttpConnector::new_with_resolver(EngineNames);
                tcp.set_nodelay(true);
                tcp.set_keepalive(Some(KEEPALIVE));
                tcp.set_keepalive_interval(Some(KEEPALIVE));
                let authority =
                    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
                let uri = Uri::builder().scheme("http").authority(authority).path_and_query("/").build()?;
                DialTarget::Tcp(tcp, uri, tls)
            }
            Address::Ssh(target) => DialTarget::Ssh(Ssh::new(target)),
        };
        Ok(Connector { target, within })
    }

    /// Opens one connection.
    pub(super) async fn open(&self) -> Result<EngineStream, BoxError> {
        let opened = async {
            match self.target.clone() {
                // It has a bound of its own.
                DialTarget::Ssh(ssh) => Ok(EngineStream::Ssh(Box::new(TokioIo::new(ssh.open().await?)))),
                DialTarget::Unix(mut unix, uri) => Ok(EngineStream::Unix(unix.call(uri).await?)),
                DialTarget::Tcp(mut tcp, uri, tls) => {
                    std::future::poll_fn(|cx| tcp.poll_ready(cx)).await?;
                    let plain = tcp.call(uri).await?;
                    match tls {
                        None => Ok(EngineStream::Tcp(plain)),
                        Some(tls) => {
                            let secured = tls.over(plain.into_inner()).await?;
                            Ok(EngineStream::Tls(Box::new(TokioIo::new(secured))))
                        }
                    }
                }
            }
        };
        if matches!(self.target, DialTarget::Ssh(_)) {
            return opened.await;
        }
        match tokio::time::timeout(self.within, opened).await {
            Ok(opened) => opened,
            Err(_) => {
                Err(io::Error::new(io::ErrorKind::TimedOut, format!("no connection in {:?}", self.within))
                    .into())
            }
        }
    }
}

impl Service<Uri> for Connector {
    type Response = EngineStream;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<EngineStream, BoxError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let connector = self.clone();
        Box::pin(async move { connector.open().await })
    }
}

/// One open connection.
#[derive(Debug)]
pub(super) enum EngineStream {
    Unix(hyperlocal::UnixStream),
    Tcp(TokioIo<TcpStream>),
    Tls(Box<TokioIo<TlsStream<TcpStream>>>),
    Ssh(Box<TokioIo<SshStream>>),
}

impl Connection for EngineStream {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

impl Read for EngineStream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            EngineStream::Unix(unix) => Read::poll_read(Pin::new(unix), cx, buf),
            EngineStream::Tcp(tcp) => Read::poll_read(Pin::new(tcp), cx, buf),
            EngineStream::Tls(tls) => Read::poll_read(Pin::new(tls), cx, buf),
            EngineStream::Ssh(ssh) => Read::poll_read(Pin::new(ssh), cx, buf),
        }
    }
}

impl Write for EngineStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            EngineStream::Unix(unix) => Write::poll_write(Pin::new(unix), cx, buf),
            EngineStream::Tcp(tcp) => Write::poll_write(Pin::new(tcp), cx, buf),
            EngineStream::Tls(tls) => Write::poll_write(Pin::new(tls), cx, buf),
            EngineStream::Ssh(ssh) => Write::poll_write(Pin::new(ssh), cx, buf),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            EngineStream::Unix(unix) => Write::poll_flush(Pin::new(unix), cx),
            EngineStream::Tcp(tcp) => Write::poll_flush(Pin::new(tcp), cx),
            EngineStream::Tls(tls) => Write::poll_flush(Pin::new(tls), cx),
            EngineStream::Ssh(ssh) => Write::poll_flush(Pin::new(ssh), cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            EngineStream::Unix(unix) => Write::poll_shutdown(Pin::new(unix), cx),
            EngineStream::Tcp(tcp) => Write::poll_shutdown(Pin::new(tcp), cx),
            EngineStream::Tls(tls) => Write::poll_shutdown(Pin::new(tls), cx),
            EngineStream::Ssh(ssh) => Write::poll_shutdown(Pin::new(ssh), cx),
        }
    }

    fn is_write_vectored(&self) -> bool {
        // hyperlocal forwards vectored writes only for tokio's trait, not for hyper's.
        false
    }
}
