//! Tenants: their tokens, their limits, and a tenant that floods the daemon while another one works.

#[path = "tenants/tokens.rs"]
mod tokens;

use std::process::{Command, Output};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::support::{Answer, Daemon, PATIENCE, Request, Setup, Store, TOKEN, program, within};

/// `paddock token …` for the store of a daemon.
fn token(store: &Store, arguments: &[&str]) -> Output {
    let mut command = Command::new(program());
    command.arg("token").args(arguments).arg("--store").arg(store.path());
    command.env_clear().output().expect("the command")
}

/// Adds a token and returns it.
pub(crate) fn add(store: &Store, arguments: &[&str]) -> String {
    let added = token(store, &[&["add"], arguments].concat());
    assert!(added.status.success(), "{added:?}");
    String::from_utf8(added.stdout).expect("text").trim().to_owned()
}

/// The token of metrics in these tests: there are several tenants.
const FIGURES: &str = "only-for-the-figures-1";

/// A daemon with this token.
pub(crate) fn daemon() -> Setup {
    Daemon::with().set("metrics.token", FIGURES)
}

pub(crate) async fn metrics(d: &Daemon) -> String {
    Request::new(d.addr, "GET", "/metrics").bearer(FIGURES).send().await.expect(200).text()
}

pub(crate) fn call(d: &Daemon, token: &str, tool: &str, arguments: Value) -> Request {
    let params = json!({ "name": tool, "arguments": arguments });
    let call = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params });
    Request::new(d.addr, "POST", "/mcp").header("accept", "application/json").bearer(token).json(&call)
}

pub(crate) fn python(d: &Daemon, token: &str, session: &str, code: &str) -> Request {
    call(d, token, "run_code", json!({ "language": "python", "code": code, "conversationId": session }))
}

/// The document of a tool's answer.
pub(crate) fn document(answer: &Answer) -> Value {
    let text = &answer.json()["result"]["content"][0]["text"];
    serde_json::from_str(text.as_str().unwrap_or_default())
        .unwrap_or_else(|_| answer.json()["result"]["structuredContent"].clone())
}

#[tokio::test]
async fn each_limit_is_told_with_what_is_used_and_when_to_come_back() {
    let store = Store::new();
    let slow = add(&store, &["slow", "--limit", "requests_per_second=0.1"]);
    let limits = ["--limit", "runs=1", "--limit", "sessions=1", "--limit", "executions=1"];
    let small = add(&store, &[&["small", "--limit", "stored_bytes=64KiB"], &limits[..]].concat());
    let d = daemon().store(&store).set("pool.wait", "2s").start().await;

    let list = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list" });
    let post = || {
        Request::new(d.addr, "POST", "/mcp").header("accept", "application/json").bearer(&slow).json(&list)
    };
    post().send().await.expect(200);
    let refused = post().send().await.expect(429);
    let again = refused.header("retry-after").parse::<u32>();
    assert!(again.as_ref().is_ok_and(|again| (1..=10).contains(again)), "{refused:?}");
    let data = &refused.json()["error"]["data"];
    assert_eq!(
        (&data["error"], &data["limit"]["name"]),
        (&json!("rate_limited"), &json!("requests_per_second"))
    );
    assert!(data["retry_after_ms"].as_u64().is_some_and(|ms| (1..=10_000).contains(&ms)), "{data}");
    let raw = Request::new(d.addr, "GET", "/sessions/a/files").bearer(&slow).send().await.expect(429);
    assert_eq!(raw.json()["error"], "rate_limited");
    d.request("GET", "/status").send().await.expect(200);

    // Beside other tests a container can take longer than calls wait here.
    within(PATIENCE, "a container", async {
        while document(&python(&d, &small, "a", "print(1)").send().await.expect(200))["output"] != "1\n" {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    // One run at a time, in one session: the second waits, and is told when the wait is over.
    let code = "import os, time\nwhile not os.path.exists('/tmp/go'): time.sleep(0.05)\nprint('done')";
    let long = tokio::spawn(python(&d, &small, "a", code).send());
    let metrics = || metrics(&d);
    within(PATIENCE, "the run", async {
        while !metrics().await.contains(r#"paddock_tenant_in_use{kind="runs",tenant="small"} 1"#) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    let second = document(&python(&d, &small, "b", "print(1)").send().await.expect(200));
    assert_eq!(
        (&second["error"], &second["limit"]["name"]),
        (&json!("rate_limited"), &json!("runs")),
        "{second}"
    );
    let status = python(&d, &small, "b", "print(1)").header("prefer", "http-status").send().await.expect(429);
    assert!(!status.header("retry-after").is_empty());
    let command = json!({ "command": "echo hi", "session_id": "b" });
    let third = document(&call(&d, &small, "execute_code", command).send().await.expect(200));
    assert_eq!(
        (&third["error"], &third["limit"]["name"]),
        (&json!("rate_limited"), &json!("sessions")),
        "{third}"
    );
    let view = d.view().await;
    let container = view.the_container("python").await;
    assert_eq!(view.exec(&container, &["touch", "/tmp/go"]).await, "");
    assert_eq!(document(&long.await.expect("a task").expect(200))["output"], "done\n");

    let big = "open('big', 'wb').write(bytes(100_000))";
    let full = document(&python(&d, &small, "a", big).send().await.expect(200));
    let said = full.to_string();
    assert!(
        said.contains("of all sessions of this token") || said.contains("what this token may store"),
        "{said}"
    );
    python(&d, TOKEN, "a", big).send().await.expect(200);
    let put = Request::new(d.addr, "PUT", "/sessions/a/files/big").bearer(&small).body(vec![0; 100_000]);
    let put = put.send().await.expect(507).json();
    assert_eq!(
        (&put["error"], &put["limit"]["name"]),
        (&json!("quota_exceeded"), &json!("stored_bytes")),
        "{put}"
    );
    let text = metrics().await;
    for line in [
        r#"paddock_tenant_limits_hit_total{limit="requests_per_second",tenant="slow"} 2"#,
        r#"paddock_tenant_limits_hit_total{limit="runs",tenant="small"} 2"#,
    ] {
        assert!(text.contains(line), "{line} is not in\n{text}");
    }
    d.stop().await;
}

#[tokio::test]
async fn a_call_that_waits_for_a_place_hears_at_once_that_its_session_is_closed() {
    /// Less than calls wait, and than the run takes.
    const SOON: Duration = Duration::from_secs(15);
    let store = Store::new();
    let one = add(&store, &["one", "--limit", "runs=1"]);
    let d = daemon().store(&store).set("pool.wait", "60s").start().await;
    let come_to = async |kind: &str| {
        let line = format!(r#"paddock_tenant_in_use{{kind="{kind}",tenant="one"}} 1"#);
        within(PATIENCE, &line, async {
            while !metrics(&d).await.contains(&line) {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        })
        .await;
    };
    let close = async |session: &str| {
        let closed = call(&d, &one, "close_session", json!({ "session_id": session })).send();
        let closed = within(SOON, "the end of a session", closed).await.expect(200);
        assert_eq!(document(&closed)["status"], "closed");
    };
    let runs = tokio::spawn(python(&d, &one, "a", "import time; time.sleep(300)").send());
    come_to("runs").await;
    let waits = tokio::spawn(python(&d, &one, "b", "print(1)").send());
    come_to("waiting").await;
    close("b").await;
    let told = within(SOON, "an answer", waits).await.expect("a task");
    let told = document(&told.expect(200));
    assert_eq!(told["error"], "session_not_found", "{told}");
    close("a").await;
    let told = document(&within(PATIENCE, "an answer", runs).await.expect("a task").expect(200));
    assert_eq!(told["error"], "session_not_found", "{told}");
    d.stop().await;
}

/// The calls of a tenant that were served.
fn calls_of(metrics: &str, tenant: &str) -> u64 {
    let line = format!(r#"paddock_tenant_tool_calls_total{{outcome="ok",tenant="{tenant}"}} "#);
    metrics.lines().find_map(|text| text.strip_prefix(&line)).map_or(0, |n| n.parse().expect("a number"))
}

/// The 95th percentile.
fn p95(times: &mut [Duration]) -> Duration {
    times.sort();
    times[times.len() * 95 / 100]
}

/// How long so many short runs of a conversation take, one after the other.
async fn work(d: &Daemon, token: &str, runs: usize) -> Vec<Duration> {
    let mut times = Vec::new();
    for n in 0..runs {
        let begun = Instant::now();
        let answer = python(d, token, "steady", &format!("print({n})")).send().await.expect(200);
        assert_eq!(document(&answer)["output"], format!("{n}\n"));
        times.push(begun.elapsed());
    }
    times
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tenant_that_floods_with_everything_it_has_hurts_nobody_else() {
    const RUNS: usize = 60;
    let store = Store::new();
    let (flood, quiet) = (add(&store, &["flood"]), add(&store, &["quiet"]));
    let setup: Setup = daemon().store(&store).set("pool.idle", 1).set("sessions.max", 4);
    let d = setup.set("pool.wait", "60s").set("pool.queue", 16).set("store.max_files", 20_000).start().await;
    work(&d, &quiet, 5).await;
    let alone = p95(&mut work(&d, &quiet, RUNS).await);

    let mut callers = JoinSet::new();
    let over = tokio_util::sync::CancellationToken::new();
    for n in 0..48 {
        let (addr, token, over) = (d.addr, flood.clone(), over.clone());
        let arguments = json!({
            "language": "python",
            "code": "import time; time.sleep(0.3); open('f', 'w').write('x' * 100_000)",
            "conversationId": format!("f{}", n % 24),
        });
        let params = json!({ "name": "run_code", "arguments": arguments });
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params });
        callers.spawn(async move {
            let (mut served, mut refused) = (0, 0);
            while !over.is_cancelled() {
                let call = Request::new(addr, "POST", "/mcp").header("accept", "application/json");
                match call.bearer(&token).json(&body).try_send().await {
                    Some(answer) if document(&answer)["success"] == json!(true) => served += 1,
                    Some(_) | None => {
                        refused += 1;
                        // It is made on the same processors as what is measured.
                        tokio::time::sleep(Duration::from_millis(50)).await;
                    }
                }
            }
            (served, refused)
        });
    }
    let waiting = || async {
        let text = metrics(&d).await;
        text.lines().any(|line| line == r#"paddock_tenant_in_use{kind="sessions",tenant="flood"} 3"#)
    };
    within(PATIENCE, "the flood", async {
        while !waiting().await {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    let before = calls_of(&metrics(&d).await, "quiet");
    let beside = p95(&mut work(&d, &quiet, RUNS).await);
    // A conversation that it did not have before.
    let begun = Instant::now();
    let answer = python(&d, &quiet, "another", "print('new')").send().await.expect(200);
    let fresh = begun.elapsed();
    assert_eq!(document(&answer)["output"], "new\n", "{}", answer.text());
    over.cancel();
    let (mut served, mut refused) = (0, 0);
    while let Some(ended) = callers.join_next().await {
        let (some, others) = ended.expect("a caller");
        (served, refused) = (served + some, refused + others);
    }
    eprintln!(
        "p95 of {RUNS} runs alone {alone:?}, beside a flood of 48 callers {beside:?}; its first call in a \
         new conversation {fresh:?}; of the flood {served} calls were served and {refused} refused"
    );
    assert!(served > 0, "the flood is served too");
    let text = metrics(&d).await;
    // `work` has checked each answer; none of its calls was refused or tried again.
    assert_eq!(calls_of(&text, "quiet") - before, RUNS as u64 + 1, "{text}");
    assert!(!text.contains(r#"outcome="refused",tenant="quiet"} 1"#), "{text}");
    // Time is that of a machine which the flood's own callers keep busy; the bound of the waiting itself is
    // tested where time is counted in ticks (`tenants::fair`).
    assert!(beside < Duration::from_secs(10), "{beside:?}, alone {alone:?}");
    assert!(fresh < Duration::from_secs(30), "{fresh:?}");
    d.stop().await;
}

/// The programs of a tenant that do not begin yet.
async fn held_back(d: &Daemon, tenant: &str) -> u64 {
    let line = format!(r#"paddock_tenant_in_use{{kind="held_back",tenant="{tenant}"}} "#);
    let text = metrics(d).await;
    text.lines().find_map(|text| text.strip_prefix(&line)).map_or(0, |n| n.parse().expect("a number"))
}

#[tokio::test(flavor = "multi_thread")]
async fn programs_are_held_back_of_a_tenant_that_uses_more_than_its_part_while_the_processors_are_short() {
    // More sessions than have containers at one time: the flood pays for each container that it takes.
    const CALLERS: usize = 12;
    const SECONDS: f64 = 0.5;
    const WATCHED: Duration = Duration::from_secs(8);
    let store = Store::new();
    // Beside other tests the engine is slow, and the flood gets few containers: so its part is small.
    let (flood, quiet) = (add(&store, &["flood"]), add(&store, &["quiet", "--weight", "10"]));
    // However many processors this machine has, the daemon knows of one, and something waits for it.
    let d = daemon().store(&store).under(&["taskset", "--cpu-list", "0"]).start().await;
    let conversation = |caller: usize| format!("f{caller}");
    let spins = |_| {
        let mut spin = tokio::process::Command::new("taskset");
        let spin = spin.args(["--cpu-list", "0", "nice", "-n", "19", "sh", "-c", "while :; do :; done"]);
        spin.kill_on_drop(true).spawn().expect("a program that computes")
    };
    let spinning: Vec<_> = (0..2).map(spins).collect();
    let over = tokio_util::sync::CancellationToken::new();
    let (ends, mut ended) = tokio::sync::watch::channel((Vec::new(), Vec::new()));
    let mut callers = JoinSet::new();
    for caller in 0..CALLERS {
        let code = format!("import time\nwhile time.process_time() < {SECONDS}: pass\nprint('done')");
        // Its containers weigh little, so beside other tests half a second can take long.
        let session = conversation(caller);
        let run =
            json!({ "language": "python", "code": code, "conversationId": session, "timeout_seconds": 300 });
        let call = call(&d, &flood, "run_code", run);
        let (over, ends) = (over.clone(), ends.clone());
        callers.spawn(async move {
            while !over.is_cancelled() {
                let answer = document(&call.clone().send().await.expect(200));
                let took = Duration::from_millis(answer["duration_ms"].as_u64().unwrap_or_default());
                let began = Instant::now() - took;
                ends.send_modify(|(done, refused)| match &answer["output"] {
                    output if output == "done\n" => done.push(began),
                    _ => refused.push(answer),
                });
            }
        });
    }
    // The quiet tenant uses little, however slow this machine is: a shell starts in milliseconds, and there
    // is a pause.
    let small = json!({ "language": "sh", "code": "echo little", "conversationId": "steady" });
    let at_work = async {
        loop {
            let answer = call(&d, &quiet, "run_code", small.clone()).send().await.expect(200);
            assert_eq!(document(&answer)["output"], "little\n");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let held = async {
        // While the quiet tenant has calls in flight, at any moment of them.
        while held_back(&d, "flood").await == 0 {
            assert_eq!(held_back(&d, "quiet").await, 0, "it uses little");
        }
        let begun = Instant::now();
        // Whether one is refused until then depends on what else this machine does.
        let refused = ended.wait_for(|(_, refused)| !refused.is_empty());
        let _ = tokio::time::timeout(WATCHED, refused).await;
        let (done, refused) = ended.borrow().clone();
        let done = done.iter().filter(|began| **began >= begun).count();
        (begun.elapsed().as_secs_f64(), u32::try_from(done).expect("few"), refused)
    };
    let (took, done, refused) = within(PATIENCE, "a program that is held back for too long", async {
        tokio::select! { held = held => held, () = at_work => unreachable!("it works for ever") }
    })
    .await;
    // Without credits it would have all processors of this machine, of which the daemon knows one.
    let used = f64::from(done) * SECONDS;
    assert!(used < took + 2.0, "of one processor, and what it had saved: {used} s in {took} s");
    let full = |answer: &Value| ["queue_full", "max_sessions"].iter().any(|code| answer["error"] == **code);
    for answer in refused.iter().filter(|answer| !full(answer)) {
        assert_eq!(answer["error"], "rate_limited", "{answer}");
        assert_eq!(answer["limit"]["name"], "cpu_credits", "{answer}");
        assert!(
            answer["output"].as_str().unwrap_or_default().contains(" s spent); try again in "),
            "{answer}"
        );
    }
    assert_eq!(held_back(&d, "quiet").await, 0);
    drop(spinning);
    over.cancel();
    while let Some(ended) = callers.join_next().await {
        ended.expect("a caller");
    }
    assert_eq!(held_back(&d, "flood").await, 0);
    d.stop().await;
}
