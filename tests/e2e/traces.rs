//! Spans for a collector of OpenTelemetry: a collector of the test's own takes them and decodes them, and a
//! collector that is away disturbs nobody.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use http_body_util::{BodyExt, Empty};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message;
use tokio::net::TcpListener;

use crate::support::{Daemon, PATIENCE, TOKEN, within};

/// A collector: what it was sent, decoded and as it came.
#[derive(Clone, Default)]
struct Collector(Arc<Mutex<(Vec<Span>, Vec<u8>)>>);

impl Collector {
    async fn start() -> (Collector, String) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a listener");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let collector = Collector::default();
        let of_task = collector.clone();
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.expect("a connection");
                let collector = of_task.clone();
                let service = service_fn(move |request| collector.clone().take(request));
                let http = hyper::server::conn::http1::Builder::new();
                tokio::spawn(http.serve_connection(TokioIo::new(stream), service));
            }
        });
        (collector, url)
    }

    async fn take(
        self,
        request: http::Request<Incoming>,
    ) -> Result<http::Response<Empty<Bytes>>, hyper::Error> {
        assert_eq!(request.uri().path(), "/v1/traces");
        assert_eq!(request.headers()["content-type"], "application/x-protobuf");
        let body = request.into_body().collect().await?.to_bytes();
        let decoded = ExportTraceServiceRequest::decode(body.clone()).expect("protobuf");
        let mut taken = self.0.lock().expect("a lock");
        taken.1.extend_from_slice(&body);
        for of_resource in decoded.resource_spans {
            taken.0.extend(of_resource.scope_spans.into_iter().flat_map(|scope| scope.spans));
        }
        Ok(http::Response::new(Empty::new()))
    }

    fn spans(&self, trace: &str) -> Vec<Span> {
        let taken = self.0.lock().expect("a lock");
        taken.0.iter().filter(|span| hex(&span.trace_id) == trace).cloned().collect()
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[tokio::test]
async fn a_call_is_a_span_of_its_caller_s_trace_and_its_run_a_child_of_it() {
    const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
    let (collector, url) = Collector::start().await;
    let d = Daemon::with().env("OTEL_EXPORTER_OTLP_ENDPOINT", &url).start().await;
    let call = serde_json::json!({
        "jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": { "name": "run_code", "arguments": {
            "language": "python", "conversationId": "traced", "environment": { "KEY": "s3cret-value" },
            "code": "print('s3cret-in-code')" } },
    });
    let parent = format!("00-{TRACE}-00f067aa0ba902b7-01");
    let answer =
        d.request("POST", "/mcp").header("traceparent", &parent).json(&call).send().await.expect(200);
    assert!(answer.text().contains(r#""exit_code":0"#), "{}", answer.text());
    let told = answer.header("traceresponse");
    within(PATIENCE, "both spans", async {
        while collector.spans(TRACE).len() < 2 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    d.stop().await;
    let spans = collector.spans(TRACE);
    let one = |name: &str| {
        spans.iter().find(|span| span.name == name).unwrap_or_else(|| panic!("{name}: {spans:?}"))
    };
    let (request, run) = (one("request"), one("run"));
    assert_eq!(hex(&request.parent_span_id), "00f067aa0ba902b7");
    assert_eq!(told, format!("00-{TRACE}-{}-01", hex(&request.span_id)));
    assert_eq!(run.parent_span_id, request.span_id);
    assert!(run.start_time_unix_nano >= request.start_time_unix_nano);
    let fields: Vec<&str> = run.attributes.iter().map(|field| field.key.as_str()).collect();
    assert!(fields.contains(&"run_id") && fields.contains(&"session_id"), "{fields:?}");
    let sent = String::from_utf8_lossy(&collector.0.lock().expect("a lock").1).into_owned();
    assert!(!sent.contains("s3cret") && !sent.contains(TOKEN), "{sent}");
}

#[tokio::test]
async fn a_collector_that_never_answers_delays_neither_calls_nor_the_end() {
    // The connection is made, and nobody reads from it.
    let silent = TcpListener::bind("127.0.0.1:0").await.expect("a listener");
    let url = format!("http://{}", silent.local_addr().expect("an address"));
    let d = Daemon::with().set("telemetry.otlp_endpoint", url).start().await;
    for _ in 0..20 {
        d.run("python", "print(1)").await.expect_success();
    }
    within(PATIENCE, "lost spans", async {
        let lost = |text: &str| {
            text.lines()
                .any(|line| line.strip_prefix("paddock_spans_lost_total ").is_some_and(|lost| lost != "0"))
        };
        while !lost(&d.request("GET", "/metrics").send().await.expect(200).text()) {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    })
    .await;
    d.run("python", "print(1)").await.expect_success();
    let begun = Instant::now();
    d.stop().await;
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
}
