//! The way to the collector: requests of HTTP with protobuf in them, from a thread of their own.
//!
//! It must never take longer for one request than [`WITHIN`], nor repeat one: a collector that is away loses
//! spans, and the daemon keeps serving.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full, Limited};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use opentelemetry_http::{HttpClient, HttpError};
use opentelemetry_otlp::{Protocol, SpanExporter, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::SpanData;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use super::TelemetryError;
use crate::degradation::Degradation;
use crate::metrics::Metrics;

/// How long one request may take.
const WITHIN: Duration = Duration::from_secs(5);
/// The longest answer, in bytes: nobody reads it.
const ANSWER: usize = 64 * 1024;

/// Sends spans and counts what became of them.
#[derive(Debug)]
pub(super) struct CountedExporter {
    exporter: SpanExporter,
    waiting: Arc<AtomicUsize>,
    metrics: Shown<Metrics>,
}

/// A value that shows nothing of itself.
struct Shown<T>(T);

impl<T> fmt::Debug for Shown<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("…")
    }
}

impl CountedExporter {
    pub(super) fn new(
        endpoint: &str,
        waiting: Arc<AtomicUsize>,
        metrics: Metrics,
    ) -> Result<Self, TelemetryError> {
        let client = CollectorClient::open(endpoint.starts_with("https:"))?;
        // Headers, such as a key of the collector's, come from OTEL_EXPORTER_OTLP_HEADERS.
        let exporter = SpanExporter::builder()
            .with_http()
            .with_http_client(client)
            .with_protocol(Protocol::HttpBinary)
            .with_endpoint(format!("{}/v1/traces", endpoint.trim_end_matches('/')))
            .with_timeout(WITHIN)
            .with_headers(HashMap::new())
            .build()
            .map_err(|error| TelemetryError(error.to_string()))?;
        Ok(Self { exporter, waiting, metrics: Shown(metrics) })
    }
}

impl opentelemetry_sdk::trace::SpanExporter for CountedExporter {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let spans = batch.len();
        let sent = self.exporter.export(batch).await;
        self.waiting.fetch_sub(spans, Relaxed);
        let metrics = &self.metrics.0;
        if sent.is_ok() {
            metrics.spans_sent(spans)
        } else {
            metrics.spans_lost(spans)
        }
        metrics.degradations().note(Degradation::SpansLost, sent.is_err());
        sent
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.exporter.shutdown_with_timeout(timeout)
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.exporter.set_resource(resource);
    }
}

/// A client with a runtime of its own, since the thread that sends has none.
#[derive(Debug)]
struct CollectorClient {
    runtime: tokio::runtime::Runtime,
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
}

impl CollectorClient {
    fn open(is_encrypted: bool) -> Result<Self, TelemetryError> {
        let wrong = |error: &dyn fmt::Display| TelemetryError(error.to_string());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| wrong(&error))?;
        let mut roots = RootCertStore::empty();
        if is_encrypted {
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
        let tls = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let tls = tls.with_safe_default_protocol_versions().map_err(|error| wrong(&error))?;
        let tls = tls.with_root_certificates(roots).with_no_client_auth();
        let https = HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http().enable_http1().build();
        Ok(Self { runtime, client: Client::builder(TokioExecutor::new()).build(https) })
    }
}

#[async_trait]
impl HttpClient for CollectorClient {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let asked = self.client.request(request.map(Full::new));
        self.runtime.block_on(async {
            let answered = async {
                let (head, body) = asked.await?.into_parts();
                let body = Limited::new(body, ANSWER).collect().await?.to_bytes();
                Ok(Response::from_parts(head, body))
            };
            tokio::time::timeout(WITHIN, answered).await?
        })
    }
}
