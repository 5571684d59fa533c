//! The families follow Prometheus' rules, and no text from a caller makes a new series.

use std::time::Duration;

use ::http::{Method, StatusCode};

use super::*;

fn lines(metrics: &Metrics) -> Vec<String> {
    let python = RunnerContainers { language: "python".to_owned(), idle: 2, ..RunnerContainers::default() };
    let now = DaemonState { engine_up: true, runners: vec![python], ..DaemonState::default() };
    metrics.text(&now).lines().map(str::to_owned).collect()
}

#[test]
fn every_event_is_counted() {
    let metrics = Metrics::of_process();
    metrics.granted("python", Duration::ZERO);
    metrics.granted("python", Duration::from_millis(3));
    metrics.synced(Duration::from_micros(300), true);
    let lines = lines(&metrics);
    for line in [
        r#"paddock_pool_leases_total{language="python",result="hit"} 1"#,
        r#"paddock_pool_leases_total{language="python",result="miss"} 1"#,
        r#"paddock_pool_lease_wait_seconds_bucket{language="python",le="0.0025"} 1"#,
        r#"paddock_pool_lease_wait_seconds_bucket{language="python",le="0.005"} 2"#,
        r#"paddock_pool_containers{language="python",state="idle"} 2"#,
        r#"paddock_runs_total{kind="code",language="python",outcome="completed"} 0"#,
        r#"paddock_store_fsync_seconds_bucket{le="0.0005"} 1"#,
        "paddock_engine_up 1",
    ] {
        assert!(lines.iter().any(|at| at == line), "{line} is not in {lines:#?}");
    }
    assert!(lines.iter().any(|line| line.starts_with("process_resident_memory_bytes ")));
}

#[test]
fn an_unusual_method_is_counted_as_other() {
    let metrics = Metrics::default();
    let before = lines(&metrics).len();
    for n in 0..1000 {
        let method = Method::from_bytes(format!("M{n}").as_bytes()).expect("a method");
        metrics.answered("page", &method, StatusCode::NOT_FOUND, Duration::ZERO);
    }
    let after = lines(&metrics);
    let counted = r#"paddock_http_requests_total{code="404",method="other",route="page"} 1000"#;
    assert!(after.iter().any(|line| line == counted), "{after:#?}");
    assert!(after.len() < before + 40, "{} lines became {}", before, after.len());
}

#[test]
fn a_runner_that_is_gone_has_no_containers() {
    let metrics = Metrics::default();
    assert!(lines(&metrics).iter().any(|line| line.contains("paddock_pool_containers{")));
    let text = metrics.text(&DaemonState::default());
    assert!(!text.contains("paddock_pool_containers{"), "{text}");
}
