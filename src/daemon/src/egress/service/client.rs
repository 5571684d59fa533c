//! The daemon's own connections to services: HTTP/1.1, or HTTP/2 where the other side offers it by ALPN, over
//! TLS that is verified.
//!
//! Each run has clients of its own, so that no answer to one run can come to another, and so that the
//! connections end with the run. This is the one place where connections to services are made: their TLS is
//! built in [`trust`], and they are dialled in [`Dial`].

use std::collections::HashMap;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use http::Uri;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder, MaybeHttpsStream};
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::net::TcpStream;
use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto::ring};
use tower::Service as TowerService;

use super::super::ca_bundle::{CaBundle, trusted};
use super::super::host_name::Host;
use super::super::resolve::Resolver;
use super::super::through_proxy::{ProxyWay, dial_service, service_addresses};
use super::body::RequestBody;

/// Connections that a client keeps for its next request.
const IDLE: usize = 2;

/// How long it keeps them.
const KEPT: Duration = Duration::from_secs(30);

/// Bytes that the other side may send ahead on one HTTP/2 stream, and on one connection: answers are passed
/// on and not collected.
const WINDOW: u32 = 256 * 1024;
const CONNECTION_WINDOW: u32 = 1024 * 1024;

/// The longest head of an answer, in bytes.
const HEAD: u32 = 64 * 1024;

/// A client of one run for one service.
pub(super) type ServiceClient = Client<Connect, RequestBody>;

/// What all clients share.
pub(super) struct Upstreams {
    connect: Connect,
}

/// The clients of one run, by service.
#[derive(Default)]
pub(in crate::egress) struct RunClients(Mutex<HashMap<String, ServiceClient>>);

impl Upstreams {
    /// `is_encrypted` says whether any service speaks TLS: only then are the roots of this system read.
    /// The certificates of `bundle` are trusted beside them.
    pub(super) fn new(dial: Dial, is_encrypted: bool, bundle: Option<&CaBundle>) -> Self {
        let config = trust(if is_encrypted { trusted(bundle) } else { RootCertStore::empty() });
        let within = dial.within;
        // Without a TLS configuration there is no client either; ring always has one.
        let https = HttpsConnectorBuilder::new()
            .with_tls_config(config)
            .https_or_http()
            .enable_all_versions()
            .wrap_connector(dial);
        Self { connect: Connect { https, within } }
    }
}

fn trust(roots: RootCertStore) -> ClientConfig {
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
    #[expect(clippy::expect_used, reason = "ring has cipher suites for both versions of TLS")]
    let versions = builder.with_safe_default_protocol_versions().expect("versions of TLS");
    versions.with_root_certificates(roots).with_no_client_auth()
}

impl RunClients {
    pub(super) fn client(&self, upstreams: &Upstreams, service: &str) -> ServiceClient {
        let mut clients = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let client = clients.entry(service.to_owned()).or_insert_with(|| {
            Client::builder(TokioExecutor::new())
                .pool_timer(TokioTimer::new())
                .pool_max_idle_per_host(IDLE)
                .pool_idle_timeout(KEPT)
                .http2_initial_stream_window_size(WINDOW)
                .http2_initial_connection_window_size(CONNECTION_WINDOW)
                .http2_max_header_list_size(HEAD)
                .build(upstreams.connect.clone())
        });
        client.clone()
    }

    /// Closes the connections that wait for a next request.
    pub(in crate::egress) fn close(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

/// Makes connections, each within a time: resolving, dialling and the TLS handshake.
#[derive(Clone)]
pub(super) struct Connect {
    https: HttpsConnector<Dial>,
    within: Duration,
}

type BoxError = Box<dyn std::error::Error + Send + Sync>;
type Connecting<T> = Pin<Box<dyn Future<Output = Result<T, BoxError>> + Send>>;

impl TowerService<Uri> for Connect {
    type Response = MaybeHttpsStream<TokioIo<TcpStream>>;
    type Error = BoxError;
    type Future = Connecting<Self::Response>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.https.poll_ready(context)
    }

    fn call(&mut self, to: Uri) -> Self::Future {
        let connecting = tokio::time::timeout(self.within, self.https.call(to));
        Box::pin(async {
            connecting.await.unwrap_or_else(|_| Err(io::Error::from(io::ErrorKind::TimedOut).into()))
        })
    }
}

/// Makes TCP connections as for any other host: `egress.hosts` first, then DNS, then each address in turn, or
/// the upstream proxy. An operator wrote the URL, so that its addresses are not judged.
#[derive(Clone)]
pub(super) struct Dial {
    pub(super) resolver: Arc<Resolver>,
    /// The way through `egress.upstream_proxy`, if there is one.
    pub(super) proxy: Option<Arc<ProxyWay>>,
    /// The time for a whole connection.
    pub(super) within: Duration,
}

impl TowerService<Uri> for Dial {
    type Response = TokioIo<TcpStream>;
    type Error = BoxError;
    type Future = Connecting<Self::Response>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, to: Uri) -> Self::Future {
        let way = self.clone();
        Box::pin(async move {
            let host = to.host().ok_or_else(|| io::Error::other("the URL has no host"))?;
            let port = to.port_u16().unwrap_or(if to.scheme_str() == Some("https") { 443 } else { 80 });
            let inner = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host);
            let host = match inner.parse() {
                Ok(address) => Host::Address(address),
                Err(_) => Host::Name(host.parse()?),
            };
            let socket = match &way.proxy {
                Some(proxy) => proxy.reach_service(&way.resolver, &host, port, way.within).await?,
                None => dial_service(&service_addresses(&way.resolver, &host).await?, port).await?,
            };
            Ok(TokioIo::new(socket))
        })
    }
}
