//! Spans for a collector of OpenTelemetry (OTLP over HTTP, in protobuf), off unless
//! `telemetry.otlp_endpoint` names one.
//!
//! ```text
//!  span of `tracing` ─► layer: ids, fields, log lines ─► closed ─► bounded queue ─► a thread ─► collector
//! ```
//!
//! The ids are those of the log lines and of the `traceresponse` header, and an incoming `traceparent` is
//! continued. Attributes and events are the fields and lines that the log has, so the log's rule holds here
//! too: no token, secret, signature, code, content or environment value may ever be in one.
//!
//! It must never make the daemon wait: spans that find the queue full, or whose collector does not answer,
//! are lost, and counted.

mod export;
mod layer;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use opentelemetry::KeyValue;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{
    BatchConfigBuilder, BatchSpanProcessor, SpanData, SpanExporter as _, SpanProcessor as _,
};

use self::export::CountedExporter;
pub use self::layer::SpanLayer;
use crate::metrics::Metrics;

/// Spans that wait for the collector: some seconds of calls at the daemon's fastest. More are lost.
const QUEUE: usize = 8192;
/// Spans in one request to the collector.
const BATCH: usize = 512;
/// The longest time from the end of a span to its request.
const DELAY: Duration = Duration::from_secs(1);
/// How long the end of the process waits for the last spans to be sent.
const LAST_SPANS: Duration = Duration::from_secs(2);

/// Why spans cannot be exported.
#[derive(Debug, thiserror::Error)]
#[error("telemetry.otlp_endpoint: {0}")]
pub struct TelemetryError(String);

/// Spans on their way to the collector.
pub(crate) struct SpanQueue {
    processor: BatchSpanProcessor,
    /// Spans that were handed over and are neither sent nor lost.
    waiting: Arc<AtomicUsize>,
    metrics: Metrics,
}

/// Dropped at the end of the process, it waits up to two seconds until all spans are sent.
pub struct SpanFlush(Arc<SpanQueue>);

/// The layer that takes spans, for the collector at this URL, to which `/v1/traces` is added.
///
/// # Errors
/// The client of the collector cannot be made.
pub fn open(endpoint: &str, metrics: Metrics) -> Result<(SpanLayer, SpanFlush), TelemetryError> {
    let waiting = Arc::<AtomicUsize>::default();
    let mut exporter = CountedExporter::new(endpoint, waiting.clone(), metrics.clone())?;
    let version = KeyValue::new("service.version", env!("CARGO_PKG_VERSION"));
    // `OTEL_SERVICE_NAME` and `OTEL_RESOURCE_ATTRIBUTES` take precedence, as everywhere in OpenTelemetry.
    let resource = Resource::builder().with_attribute(version);
    let is_named = std::env::var_os("OTEL_SERVICE_NAME").is_some();
    let resource = if is_named { resource } else { resource.with_service_name("paddock") }.build();
    exporter.set_resource(&resource);
    let bounds = BatchConfigBuilder::default()
        .with_max_queue_size(QUEUE)
        .with_max_export_batch_size(BATCH)
        .with_scheduled_delay(DELAY);
    let processor = BatchSpanProcessor::builder(exporter).with_batch_config(bounds.build()).build();
    let queue = Arc::new(SpanQueue { processor, waiting, metrics });
    Ok((SpanLayer::new(queue.clone()), SpanFlush(queue)))
}

impl SpanQueue {
    /// Hands a span over, and never waits.
    fn send(&self, span: SpanData) {
        if self.waiting.fetch_add(1, Relaxed) >= QUEUE {
            self.waiting.fetch_sub(1, Relaxed);
            self.metrics.spans_lost(1);
            return;
        }
        self.processor.on_end(span);
    }
}

impl Drop for SpanFlush {
    fn drop(&mut self) {
        // What is not sent by then is lost: the process ends.
        if self.0.processor.shutdown_with_timeout(LAST_SPANS).is_err() {
            self.0.metrics.spans_lost(self.0.waiting.load(Relaxed));
        }
    }
}

#[cfg(test)]
mod tests;
