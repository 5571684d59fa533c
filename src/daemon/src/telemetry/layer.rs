//! The layer that makes spans of OpenTelemetry from those of `tracing`.
//!
//! A span with the fields `trace_id`, `span_id` and `parent_id` has these ids; any other is a child of the
//! span around it, in its trace. Lines of the log are events of the innermost span.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use opentelemetry::trace::{Event, SpanContext, SpanId, SpanKind, Status, TraceFlags, TraceId, TraceState};
use opentelemetry::{InstrumentationScope, KeyValue};
use opentelemetry_sdk::trace::{SpanData, SpanEvents, SpanLinks};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::LookupSpan;

use super::SpanQueue;
use crate::id::random_bytes;

/// The most events of one span: a stream that stays open for days must not grow without end.
const EVENTS: usize = 64;
/// The most characters of one value.
const VALUE: usize = 1024;

/// Spans that serve somebody outside; others are parts of their work.
const OF_SERVER: [&str; 3] = ["request", "call", "port"];

/// Takes the daemon's spans.
pub struct SpanLayer {
    queue: Arc<SpanQueue>,
}

/// A span that is open.
struct OpenSpan {
    trace: TraceId,
    span: SpanId,
    parent: SpanId,
    parent_is_remote: bool,
    begun: SystemTime,
    attributes: Vec<KeyValue>,
    events: Vec<Event>,
    dropped: u32,
    failed: bool,
}

impl SpanLayer {
    pub(super) fn new(queue: Arc<SpanQueue>) -> Self {
        Self { queue }
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for SpanLayer {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        let mut fields = SpanFields::default();
        attributes.record(&mut fields);
        let around = span
            .parent()
            .and_then(|parent| parent.extensions().get::<OpenSpan>().map(|open| (open.trace, open.span)));
        let (trace, own, parent) = match (fields.trace, fields.span, around) {
            (Some(trace), Some(own), _) => (trace, own, fields.parent.unwrap_or(SpanId::INVALID)),
            (_, _, Some((trace, parent))) => (trace, new_span(), parent),
            (_, _, None) => (TraceId::from_bytes(random_bytes()), new_span(), SpanId::INVALID),
        };
        span.extensions_mut().insert(OpenSpan {
            trace,
            span: own,
            parent,
            parent_is_remote: fields.parent.is_some(),
            begun: SystemTime::now(),
            attributes: fields.attributes,
            events: Vec::new(),
            dropped: 0,
            failed: false,
        });
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        let mut fields = SpanFields::default();
        values.record(&mut fields);
        if let Some(open) = span.extensions_mut().get_mut::<OpenSpan>() {
            open.attributes.extend(fields.attributes);
        }
    }

    fn on_event(&self, event: &tracing::Event<'_>, context: Context<'_, S>) {
        let Some(span) = context.event_span(event) else { return };
        let mut extensions = span.extensions_mut();
        let Some(open) = extensions.get_mut::<OpenSpan>() else { return };
        open.failed |= *event.metadata().level() == Level::ERROR;
        if open.events.len() >= EVENTS {
            open.dropped += 1;
            return;
        }
        let mut fields = SpanFields::default();
        event.record(&mut fields);
        let name = fields.message.map_or(Cow::Borrowed("event"), Cow::Owned);
        open.events.push(Event::new(name, SystemTime::now(), fields.attributes, 0));
    }

    fn on_close(&self, id: Id, context: Context<'_, S>) {
        let Some(span) = context.span(&id) else { return };
        let Some(open) = span.extensions_mut().remove::<OpenSpan>() else { return };
        let name = span.name();
        let mut events = SpanEvents::default();
        (events.events, events.dropped_count) = (open.events, open.dropped);
        let sampled = TraceFlags::SAMPLED;
        self.queue.send(SpanData {
            span_context: SpanContext::new(open.trace, open.span, sampled, false, TraceState::default()),
            parent_span_id: open.parent,
            parent_span_is_remote: open.parent_is_remote,
            span_kind: if OF_SERVER.contains(&name) { SpanKind::Server } else { SpanKind::Internal },
            name: Cow::Borrowed(name),
            start_time: open.begun,
            end_time: SystemTime::now(),
            attributes: open.attributes,
            dropped_attributes_count: 0,
            events,
            links: SpanLinks::default(),
            status: if open.failed { Status::error("") } else { Status::Unset },
            instrumentation_scope: InstrumentationScope::builder("paddock").build(),
        });
    }
}

fn new_span() -> SpanId {
    SpanId::from_bytes(random_bytes())
}

/// The fields of a span or of an event.
#[derive(Default)]
struct SpanFields {
    trace: Option<TraceId>,
    span: Option<SpanId>,
    parent: Option<SpanId>,
    message: Option<String>,
    attributes: Vec<KeyValue>,
}

impl Visit for SpanFields {
    fn record_i64(&mut self, field: &Field, value: i64) {
        self.attributes.push(KeyValue::new(field.name(), value));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        match i64::try_from(value) {
            Ok(value) => self.record_i64(field, value),
            Err(_) => self.record_str(field, &value.to_string()),
        }
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.attributes.push(KeyValue::new(field.name(), value));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.attributes.push(KeyValue::new(field.name(), value));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "trace_id" => self.trace = TraceId::from_hex(value).ok(),
            "span_id" => self.span = SpanId::from_hex(value).ok(),
            "parent_id" => self.parent = SpanId::from_hex(value).ok(),
            "message" => self.message = Some(shortened(value)),
            name => self.attributes.push(KeyValue::new(name, shortened(value))),
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.record_str(field, &format!("{value:?}"));
    }
}

fn shortened(value: &str) -> String {
    value.chars().take(VALUE).collect()
}
