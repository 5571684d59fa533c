//! `GET /metrics`: who may read it, what it reports, and that no caller can make it grow.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use serde_json::json;

use crate::support::{Daemon, Request, field, within};

/// The samples, by name and labels.
async fn scrape(d: &Daemon) -> BTreeMap<String, f64> {
    let answer = d.request("GET", "/metrics").send().await.expect(200);
    assert_eq!(answer.header("content-type"), "text/plain; version=0.0.4; charset=utf-8");
    let text = answer.text();
    let samples = text.lines().filter(|line| !line.starts_with('#'));
    samples
        .map(|line| {
            let (name, value) = line.rsplit_once(' ').expect("a sample");
            (name.to_owned(), value.parse().expect("a number"))
        })
        .collect()
}

#[track_caller]
fn value(samples: &BTreeMap<String, f64>, name: &str) -> f64 {
    *samples.get(name).unwrap_or_else(|| panic!("{name} is not in {samples:#?}"))
}

#[tokio::test]
async fn any_token_gives_access_and_its_own_token_gives_access_to_nothing_else() {
    let d = Daemon::with().set("metrics.token", "only-for-the-metrics-1").start().await;
    let with = async |path: &str, token: &str| {
        let request = d.request("GET", path).without("authorization");
        if token.is_empty() { request.send().await } else { request.bearer(token).send().await }
    };
    let refused = with("/metrics", "").await.expect(401);
    assert!(refused.header("www-authenticate").starts_with("Bearer") && !refused.text().contains("paddock_"));
    with("/metrics", "wrong").await.expect(401);
    with("/metrics", "only-for-the-metrics-1").await.expect(200);
    d.request("GET", "/metrics").send().await.expect(200);
    d.request("POST", "/metrics").send().await.expect(405);
    for path in ["/status", "/sessions/s/files", "/mcp/events"] {
        with(path, "only-for-the-metrics-1").await.expect(401);
    }
    let log = d.stop().await;
    assert!(!log.text().contains("only-for-the-metrics-1"), "the log has the token");
}

#[tokio::test]
async fn without_a_token_it_is_open_unless_it_has_one_of_its_own() {
    let d = Daemon::with().without_token().start().await;
    d.request("GET", "/metrics").without("authorization").send().await.expect(200);
    d.stop().await;
    let d = Daemon::with().without_token().set("metrics.token", "only-for-the-metrics-1").start().await;
    d.request("GET", "/metrics").without("authorization").send().await.expect(401);
    let own = d.request("GET", "/metrics").without("authorization").bearer("only-for-the-metrics-1");
    own.send().await.expect(200);
    d.stop().await;
}

#[tokio::test]
async fn its_own_listener_serves_only_the_metrics_to_everyone() {
    let d = Daemon::with().set("metrics.addr", "127.0.0.1:0").start().await;
    let line = d.log.line("serving the metrics").await;
    let addr: SocketAddr = field(&line, "addr").and_then(|addr| addr.parse().ok()).expect("an address");
    let ask = |method: &str, path: &str| Request::new(addr, method, path);
    // The host name that a Prometheus in another container uses.
    let answer = ask("GET", "/metrics").set("host", "paddock:9464").send().await.expect(200);
    assert!(answer.text().contains("paddock_build_info{"), "{}", answer.text());
    for path in ["/", "/mcp", "/status", "/health", "/metrics/", "//metrics"] {
        ask("GET", path).send().await.expect(404);
    }
    ask("POST", "/metrics").send().await.expect(405);

    // Silent connections do not exclude a client that sends a request.
    let mut silent = Vec::new();
    for _ in 0..300 {
        silent.push(tokio::net::TcpStream::connect(addr).await.expect("a connection"));
    }
    within(std::time::Duration::from_secs(8), "a scrape beside them", ask("GET", "/metrics").send())
        .await
        .expect(200);
    d.stop().await;
}

#[tokio::test]
async fn events_are_counted() {
    let d = Daemon::with().set("pool.idle", 1).start().await;
    let s = d.session("s");
    s.sh("echo out; echo err >&2; head -c 1000 /dev/zero > /data/f").await.expect_success();
    s.sh("exit 3").await.expect_exit(3);
    s.sh("sleep 60").timeout(0.5).await.expect_limit(Some("wall_time"));
    d.session("t").tool("execute_code").with("command", "echo hello").await;
    d.tool("run_code", json!({ "language": "cobol", "code": "x" })).await.expect_error("unknown_language");
    d.rpc("tools/call", json!({ "name": "rm_rf" })).await;
    let s2 = d.session("u");
    s2.upload("g", &[b'x'; 500]).await.expect_success();
    s2.sh("cat g").await.expect_success();
    s2.tool("close_session").await.expect_success();

    let now = scrape(&d).await;
    let is = |name: &str, expected: f64| {
        assert!(
            (value(&now, name) - expected).abs() < 1e-9,
            "{name} is {}, not {expected}",
            value(&now, name)
        );
    };
    let at_least = |name: &str, least: f64| {
        assert!(value(&now, name) >= least, "{name} is {}, under {least}", value(&now, name));
    };
    is(r#"paddock_runs_total{kind="code",language="sh",outcome="completed"}"#, 2.0);
    is(r#"paddock_runs_total{kind="code",language="sh",outcome="failed"}"#, 1.0);
    is(r#"paddock_runs_total{kind="code",language="sh",outcome="timeout"}"#, 1.0);
    is(r#"paddock_runs_total{kind="command",language="python",outcome="completed"}"#, 1.0);
    is(r#"paddock_limits_hit_total{limit="wall_time"}"#, 1.0);
    is(r#"paddock_tool_calls_total{outcome="unknown_language",tool="run_code"}"#, 1.0);
    is(r#"paddock_tool_calls_total{outcome="failed",tool="run_code"}"#, 2.0);
    is(r#"paddock_tool_calls_total{outcome="unknown_tool",tool="other"}"#, 1.0);
    is(r#"paddock_output_bytes_total{stream="stdout"}"#, 4.0 + 6.0 + 500.0);
    is(r#"paddock_output_bytes_total{stream="stderr"}"#, 4.0);
    is(r#"paddock_files_carried_bytes_total{direction="out"}"#, 1000.0);
    is(r#"paddock_files_carried_bytes_total{direction="in"}"#, 500.0);
    is(r#"paddock_sessions_released_total{reason="closed"}"#, 1.0);
    is("paddock_sessions_live", 2.0);
    is("paddock_sessions_live_max", 10.0);
    is("paddock_executions_kept", 1.0);
    is("paddock_executions_running", 0.0);
    at_least("paddock_store_used_bytes", 1500.0); // and the files of the command
    is("paddock_engine_up", 1.0);
    is(r#"paddock_pool_idle_target{language="sh"}"#, 1.0);
    is(r#"paddock_pool_containers{language="sh",state="leased"}"#, 1.0);
    is(r#"paddock_runs_in_progress{kind="code"}"#, 0.0);
    is("paddock_http_requests_in_flight", 1.0); // this request
    at_least(r#"paddock_engine_calls_total{operation="container_start",outcome="ok"}"#, 3.0);
    at_least("paddock_store_fsync_seconds_count", 2.0);
    at_least(r#"paddock_log_lines_total{level="info"}"#, 20.0);
    is("paddock_log_lines_lost_total", 0.0);
    // A counter of events that never happened exists too: an alert needs an increase, not a series that
    // begins at 1.
    is(r#"paddock_pool_refusals_total{reason="full"}"#, 0.0);
    is(r#"paddock_pool_start_failures_total{language="sh",step="arm"}"#, 0.0);
    is(r#"paddock_tool_calls_total{outcome="max_sessions",tool="run_code"}"#, 0.0);
    is(r#"paddock_runs_total{kind="command",language="sh",outcome="lost"}"#, 0.0);
    is(r#"paddock_sessions_released_total{reason="evicted"}"#, 0.0);
    is(r#"paddock_limits_hit_total{limit="pids"}"#, 0.0);
    at_least(r#"paddock_run_overhead_seconds_count{language="sh"}"#, 4.0);
    at_least(r#"paddock_http_requests_total{code="200",method="POST",route="mcp"}"#, 9.0);
    at_least(r#"paddock_http_received_bytes_total{route="mcp"}"#, 1000.0);
    at_least(r#"paddock_http_sent_bytes_total{route="mcp"}"#, 1000.0);
    at_least("process_resident_memory_bytes", 1e6);
    let leases = |result: &str| {
        value(&now, &format!(r#"paddock_pool_leases_total{{language="sh",result="{result}"}}"#))
    };
    assert!(leases("hit") + leases("miss") >= 2.0);
    d.stop().await;
}

/// Whatever names callers use, and however many sessions they have.
#[tokio::test]
async fn nothing_from_a_caller_makes_it_grow() {
    let d = Daemon::start().await;
    d.session("s").sh("true").await;
    d.request("GET", "/nothing").send().await.expect(404);
    d.session("s").upload("f", b"x").await.expect_success();
    let names = |samples: &BTreeMap<String, f64>| samples.keys().cloned().collect::<BTreeSet<_>>();
    let before = names(&scrape(&d).await);
    let mut left = 10_000;
    // A hundred at a time, each over a connection of its own.
    while left > 0 {
        let some = (0..100).map(|n| {
            let n = left - n;
            let d = &d;
            async move {
                match n % 5 {
                    0 => drop(d.request(&format!("M{n}"), &format!("/p{n}")).send().await),
                    1 => drop(d.rpc("tools/call", json!({ "name": format!("tool_{n}") })).await),
                    2 => drop(d.run(&format!("lang{n}"), "x").await),
                    3 => drop(d.rpc(&format!("method/{n}"), json!({})).await),
                    _ => {
                        let path = format!("/sessions/session-{n}/files/f{n}.txt");
                        d.request("PUT", &path).body("x").send().await.expect(201);
                    }
                }
            }
        });
        futures_util::future::join_all(some).await;
        left -= 100;
    }
    let begun = std::time::Instant::now();
    let answer = d.request("GET", "/metrics").send().await.expect(200);
    let (took, size) = (begun.elapsed(), answer.body.len());
    let after = names(&scrape(&d).await);
    let more: Vec<_> = after.difference(&before).collect();
    assert!(more.len() < 50, "{} more series: {more:#?}", more.len());
    assert!(size < 1 << 20 && took.as_millis() < 2000, "{size} bytes in {took:?}");
    assert!(!answer.text().contains("session-") && !answer.text().contains("lang9"), "{}", answer.text());
    d.stop().await;
}
