use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::sync::mpsc::{Receiver, channel};
use std::time::Instant;

use tracing::{info, info_span};
use tracing_subscriber::layer::SubscriberExt;

use super::*;
use crate::degradation::Degradation;
use crate::metrics::DaemonState;

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

/// A collector that takes requests, answers them with this status, and passes their paths and bodies on.
fn collector(status: &'static str) -> (String, Receiver<(String, Vec<u8>)>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (heard, hears) = channel();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut reader = BufReader::new(stream.unwrap());
            let (mut line, mut first, mut length) = (String::new(), String::new(), 0);
            while reader.read_line(&mut line).unwrap_or(0) > 2 {
                let lower = line.to_ascii_lowercase();
                if let Some(given) = lower.strip_prefix("content-length:") {
                    length = given.trim().parse().unwrap();
                }
                first = if first.is_empty() { line.clone() } else { first };
                line.clear();
            }
            let mut body = vec![0; length];
            reader.read_exact(&mut body).unwrap();
            write!(reader.get_mut(), "HTTP/1.1 {status}\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
                .unwrap();
            let _ = heard.send((first, body));
        }
    });
    (url, hears)
}

fn spans(layer: SpanLayer) {
    tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
        let request = info_span!(
            "request",
            token = "n8n",
            trace_id = TRACE,
            span_id = "9d3e000000000001",
            parent_id = "00f067aa0ba902b7"
        );
        let _in_request = request.enter();
        let run = info_span!("run", run_id = "r1", exit_code = tracing::field::Empty);
        run.record("exit_code", 7);
        run.in_scope(|| info!(files = 2, "ended"));
    });
}

fn has(body: &[u8], part: &[u8]) -> bool {
    body.windows(part.len()).any(|window| window == part)
}

#[test]
fn spans_reach_the_collector_with_the_ids_of_the_log_and_as_children_of_the_caller_s() {
    let (url, heard) = collector("200 OK");
    let (layer, flush) = open(&url, Metrics::default()).unwrap();
    spans(layer);
    drop(flush);
    let (first, body) = heard.recv_timeout(Duration::from_secs(10)).unwrap();
    assert!(first.starts_with("POST /v1/traces "), "{first}");
    let trace: [u8; 16] = crate::id::from_hex(TRACE).unwrap();
    let (own, parent): ([u8; 8], [u8; 8]) =
        (crate::id::from_hex("9d3e000000000001").unwrap(), crate::id::from_hex("00f067aa0ba902b7").unwrap());
    assert_eq!(body.windows(16).filter(|window| *window == trace).count(), 2, "both are of the trace");
    assert_eq!(body.windows(8).filter(|window| *window == own).count(), 2, "the run is its child");
    assert!(has(&body, &parent));
    for part in ["request", "n8n", "run_id", "exit_code", "ended", "service.name", "paddock"] {
        assert!(has(&body, part.as_bytes()), "{part}");
    }
}

#[test]
fn a_collector_that_is_away_or_refuses_delays_nothing_and_its_spans_are_counted() {
    let lost = |metrics: &Metrics| {
        let text = metrics.text(&DaemonState::default());
        let line = text.lines().find(|line| line.starts_with("paddock_spans_lost_total")).unwrap();
        line.rsplit(' ').next().unwrap().parse::<f64>().unwrap()
    };
    let (refuses, _heard) = collector("503 Service Unavailable");
    // Nobody accepts there: the connection is made, and never answered.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let silent = format!("http://{}", silent.local_addr().unwrap());
    let is_silent = {
        let silent = silent.clone();
        move |url: &str| url == silent
    };
    for url in [refuses, "http://127.0.0.1:1".to_owned(), silent] {
        let metrics = Metrics::default();
        let (layer, flush) = open(&url, metrics.clone()).unwrap();
        let begun = Instant::now();
        spans(layer);
        assert!(begun.elapsed() < Duration::from_millis(500), "{url}");
        drop(flush);
        assert!(begun.elapsed() < LAST_SPANS + Duration::from_secs(2), "{url}");
        assert_eq!(lost(&metrics), 2.0, "{url}");
        // What does not answer is known to fail only after a longer wait than that of the end.
        assert!(is_silent(&url) || metrics.degradations().fails(Degradation::SpansLost), "{url}");
    }
}

#[test]
fn spans_that_find_the_queue_full_are_lost_and_counted() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", silent.local_addr().unwrap());
    let metrics = Metrics::default();
    let (layer, flush) = open(&url, metrics.clone()).unwrap();
    tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
        for _ in 0..QUEUE + 100 {
            drop(info_span!("run"));
        }
    });
    let text = metrics.text(&DaemonState::default());
    let line = text.lines().find(|line| line.starts_with("paddock_spans_lost_total")).unwrap();
    assert_eq!(line, "paddock_spans_lost_total 100");
    drop((flush, silent));
}
