//! The HTTP client that S3 is reached with: hyper and rustls, as everywhere in the daemon.
//!
//! `object_store` would bring reqwest, which takes its TLS from features that any crate of the build can
//! change. It must never send a request twice: `object_store` knows which ones may be repeated.

use std::time::Duration;

use async_trait::async_trait;
use http_body_util::BodyExt;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector as TcpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpRequestBody, HttpResponse,
    HttpResponseBody, HttpService,
};
use tokio_rustls::rustls::{self, RootCertStore};

use crate::LedgerError;

/// How long the beginning of an answer may take, after the whole request was sent or not.
const HEAD: Duration = Duration::from_secs(30);
/// How long a connection may take.
const CONNECT: Duration = Duration::from_secs(3);

/// TLS of a client that trusts what this host trusts, and `SSL_CERT_FILE`.
pub(crate) fn tls() -> Result<rustls::ClientConfig, LedgerError> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    let provider = rustls::crypto::ring::default_provider();
    let config =
        rustls::ClientConfig::builder_with_provider(provider.into()).with_safe_default_protocol_versions();
    let config = config.map_err(|error| LedgerError::Local(std::io::Error::other(error)))?;
    Ok(config.with_root_certificates(roots).with_no_client_auth())
}

/// Makes [`Hyper`].
#[derive(Debug)]
pub(crate) struct Connector(pub(crate) Hyper);

impl HttpConnector for Connector {
    fn connect(&self, _: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(self.0.clone()))
    }
}

/// The client. Clones share its connections.
#[derive(Debug, Clone)]
pub(crate) struct Hyper(Client<HttpsConnector<TcpConnector>, HttpRequestBody>);

impl Hyper {
    pub(crate) fn new() -> Result<Self, LedgerError> {
        let mut tcp = TcpConnector::new();
        tcp.enforce_http(false);
        tcp.set_connect_timeout(Some(CONNECT));
        tcp.set_nodelay(true);
        let https = HttpsConnectorBuilder::new().with_tls_config(tls()?).https_or_http().enable_http1();
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(Duration::from_secs(20))
            .build(https.wrap_connector(tcp));
        Ok(Self(client))
    }
}

#[async_trait]
impl HttpService for Hyper {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let answer = match tokio::time::timeout(HEAD, self.0.request(request)).await {
            Err(late) => return Err(HttpError::new(HttpErrorKind::Timeout, late)),
            Ok(Err(error)) => {
                let kind =
                    if error.is_connect() { HttpErrorKind::Connect } else { HttpErrorKind::Interrupted };
                return Err(HttpError::new(kind, error));
            }
            Ok(Ok(answer)) => answer,
        };
        let (parts, body) = answer.into_parts();
        let body = body.map_err(|error| HttpError::new(HttpErrorKind::Interrupted, error));
        Ok(HttpResponse::from_parts(parts, HttpResponseBody::new(body)))
    }
}
