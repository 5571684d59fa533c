//! Limits of tenants that hold for all nodes of a cluster together: runs, sessions, requests a second, bytes
//! in an hour, dollars in a day.
//!
//! Each call goes to the node that has its session, so nothing but the limit itself is shared.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::cluster::{ANSWERS, Common, two_of};
use crate::model::Model;
use crate::services::stub::Stub;
use crate::sessions::hex_sha256;
use crate::support::{Daemon, PATIENCE, Request, Setup, within};
use crate::tenants::{call, document, python};

/// The token of the tenant that has limits.
const ANN: &str = "the-token-of-ann-of-these-tests";
/// The token of metrics.
const FIGURES: &str = "only-for-the-figures-1";

/// Nodes where `ann` has these limits.
fn limited(limits: &[(&str, toml::Value)]) -> Setup {
    let limits: toml::Table =
        limits.iter().map(|(name, limit)| ((*name).to_owned(), limit.clone())).collect();
    let mut token = toml::Table::new();
    token.insert("name".into(), "ann".into());
    token.insert("sha256".into(), hex_sha256(ANN).into());
    token.insert("limits".into(), limits.into());
    let tokens = toml::Value::Array(vec![token.into()]);
    Daemon::with().set("auth.tokens", tokens).set("metrics.token", FIGURES).set("pool.wait", "8s")
}

async fn two(limits: &[(&str, toml::Value)]) -> (Common, Daemon, Daemon) {
    two_of(|| limited(limits)).await
}

/// What `ann` uses at a node.
async fn in_use(d: &Daemon, kind: &str) -> f64 {
    let text = Request::new(d.addr, "GET", "/metrics").bearer(FIGURES).send().await.expect(200).text();
    let line = format!("paddock_tenant_in_use{{kind=\"{kind}\",tenant=\"ann\"}} ");
    text.lines().find_map(|at| at.strip_prefix(&line)?.parse().ok()).unwrap_or(0.0)
}

async fn wait_for(d: &Daemon, kind: &str, count: f64) {
    let reached = async {
        while (in_use(d, kind).await - count).abs() > 0.5 {
            tokio::time::sleep(Duration::from_millis(50)).await; // as an operator who looks again
        }
    };
    within(PATIENCE, kind, reached).await;
}

/// A run that lasts until its client goes away.
fn long(d: &Daemon, session: &str) -> tokio::task::JoinHandle<()> {
    let call = python(d, ANN, session, "import time; time.sleep(300)");
    tokio::spawn(async move { drop(call.try_send().await) })
}

fn refusal(answer: &Value) -> (&Value, &Value, &Value, &Value) {
    let limit = &answer["limit"];
    (&answer["error"], &limit["name"], &limit["allowed"], &limit["used"])
}

#[tokio::test]
async fn runs_are_counted_over_all_nodes_and_a_place_that_comes_free_at_one_serves_another() {
    let (common, a, b) = two(&[("runs", 2.into())]).await;
    for (session, node) in [("s", "a"), ("t", "b"), ("u", "a")] {
        common.give_of("ann", session, node);
    }
    let (first, second) = (long(&a, "s"), long(&b, "t"));
    wait_for(&a, "runs", 1.0).await;
    wait_for(&b, "runs", 1.0).await;
    // Both nodes are full together, although each has one run only.
    // A node that has not heard of the other's run yet may let one more in: that is the bound.
    let refused = async {
        loop {
            let ran = document(&python(&b, ANN, "u", "print(1)").send().await.expect(200));
            if ran["error"].is_string() {
                return ran;
            }
        }
    };
    let refused = within(PATIENCE, "a refusal", refused).await;
    let told = (&json!("rate_limited"), &json!("runs"), &json!(2), &json!(2));
    assert_eq!(refusal(&refused), told, "{refused}");
    // A run ends at b, and a call that waits at a has its place.
    let waiting = tokio::spawn(python(&a, ANN, "u", "print(6 * 7)").send());
    wait_for(&a, "waiting", 1.0).await;
    second.abort();
    let ran = document(&within(PATIENCE, "the place", waiting).await.expect("a call").expect(200));
    assert_eq!(ran["output"], "42\n", "{ran}");
    first.abort();
    a.stop().await;
    b.stop().await;
}

#[tokio::test]
async fn a_session_that_rests_at_one_node_makes_room_for_another_s() {
    let (common, a, b) = two(&[("sessions", 1.into())]).await;
    common.give_of("ann", "s", "a");
    common.give_of("ann", "t", "b");
    document(&python(&a, ANN, "s", "print(1)").send().await.expect(200));
    wait_for(&a, "sessions", 1.0).await;
    let ran = document(&python(&a, ANN, "t", "print(6 * 7)").send().await.expect(200));
    assert_eq!(ran["output"], "42\n", "{ran}");
    wait_for(&a, "sessions", 0.0).await;
    // One that works does not.
    let works = long(&a, "t");
    wait_for(&b, "runs", 1.0).await;
    let told = (&json!("rate_limited"), &json!("sessions"), &json!(1), &json!(1));
    // A node that has not heard of the other's session yet may let one more in: that is the bound.
    let refused = async {
        while refusal(&document(&python(&b, ANN, "s", "print(1)").send().await.expect(200))) != told {}
    };
    within(PATIENCE, "a refusal", refused).await;
    works.abort();
    a.stop().await;
    b.stop().await;
}

#[tokio::test]
async fn requests_a_second_are_divided_between_the_nodes_that_get_them() {
    const A_SECOND: u32 = 8;
    const LASTS: Duration = Duration::from_secs(6);
    let (common, a, b) = two(&[("requests_per_second", f64::from(A_SECOND).into())]).await;
    common.give_of("ann", "s", "b");
    let ask = |d: &Daemon, path: &str| Request::new(d.addr, "GET", path).bearer(ANN);
    let hammer = async |d: &Daemon| {
        let (begun, mut taken, mut last) = (Instant::now(), 0, 0);
        while begun.elapsed() < LASTS {
            let answer = ask(d, "/status").send().await;
            match answer.status {
                200 => taken += 1,
                429 => last = answer.json()["limit"]["allowed"].as_u64().unwrap_or(0),
                other => panic!("{other}: {}", answer.text()),
            }
            tokio::time::sleep(Duration::from_millis(20)).await; // fifty a second: far more than allowed
        }
        (taken, last)
    };
    let ((at_a, allowed), (at_b, _)) = tokio::join!(hammer(&a), hammer(&b));
    let seconds = u32::try_from(LASTS.as_secs()).expect("few");
    // Two seconds' worth at once, since parts move, and one more a second until they are settled.
    let most = A_SECOND * (seconds + 2) + 4;
    eprintln!("{at_a} and {at_b} requests of at most {most} were taken");
    assert!(at_a + at_b <= most && at_a + at_b >= A_SECOND * seconds / 2, "{at_a} and {at_b}");
    assert!(at_a > 0 && at_b > 0 && allowed == u64::from(A_SECOND), "{at_a} {at_b} {allowed}");
    // If only one node gets requests, it has the whole limit as soon as the other has given up its part.
    hammer(&a).await;
    let (at_a, _) = hammer(&a).await;
    assert!(at_a >= A_SECOND * seconds * 3 / 4, "{at_a}");
    a.stop().await;
    b.stop().await;
}

/// Nodes without any network but the service `api` and the model `local`, where `ann` has this limit.
fn with_services(limit: (&str, toml::Value), port: u16) -> Setup {
    let url = format!("http://127.0.0.1:{port}/v1/");
    let table = |document: Value| -> toml::Value { serde_json::from_value(document).expect("a table") };
    let price = json!({ "input": 1000.0, "output": 10000.0, "cache_read": 100.0, "cache_write": 2000.0 });
    let (prices, at) = (json!({ "m": price }), url.replace("/v1/", ""));
    let model = json!({ "provider": "openai", "url": at, "prices": prices, "tenants": ["ann"] });
    limited(&[limit])
        .set("egress.mode", "none")
        .set("egress.services", vec![table(json!({ "name": "api", "url": url, "tenants": ["ann"] }))])
        .set("models.local", table(model))
}

/// What a program of `ann` has printed, and what is told of its network.
async fn uses(d: &Daemon, session: &str, service: &str, code: &str) -> (String, String) {
    let network = json!({ "services": [service] });
    let run = json!({ "language": "python", "code": code, "conversationId": session, "network": network });
    let ran = document(&call(d, ANN, "run_code", run).send().await.expect(200));
    (ran["output"].as_str().unwrap_or_default().to_owned(), ran["network"].to_string())
}

/// Uses it until it is refused; returns how often it was not, and the refusal.
async fn until_refused(
    once: impl AsyncFn() -> (String, String),
    is_refused: fn(&(String, String)) -> bool,
) -> (u32, (String, String)) {
    let refused = async {
        let mut taken = 0;
        loop {
            let used = once().await;
            if is_refused(&used) {
                return (taken, used);
            }
            taken += 1;
        }
    };
    within(PATIENCE, "a refusal", refused).await
}

/// A node is killed; returns once the other has lost it, and it was started again with its store.
async fn killed_and_started_again(
    killed: Daemon,
    other: &Daemon,
    while_lost: impl AsyncFnOnce(&Daemon),
    again: Setup,
) -> Daemon {
    let store = killed.crash().await;
    let lost = other.log.mark_behind(0, "a node of the cluster does not answer any more").await;
    while_lost(other).await;
    let again = again.store(&store).start().await;
    again.log.line(ANSWERS).await;
    other.log.line_since(lost, ANSWERS).await;
    again
}

#[tokio::test]
async fn bytes_that_were_moved_at_one_node_count_at_the_others_whatever_becomes_of_it() {
    const LIMIT: u32 = 1_000_000;
    let stub = Stub::plain().await;
    let setup = || with_services(("egress_bytes_per_hour", LIMIT.into()), stub.port);
    let (common, a, b) = two_of(setup).await;
    common.give_of("ann", "s", "a");
    common.give_of("ann", "t", "b");
    let send = async |d: &Daemon, session, bytes: u32| {
        let code = format!(
            "import requests
try: print(requests.post('http://api.paddock/x', data=b'x' * {bytes}).text)
except requests.RequestException: print('broken')"
        );
        uses(d, session, "api", &code).await
    };
    let is_refused = |(output, network): &(String, String)| {
        let is_told = network.contains("(limits.egress_bytes_per_hour)");
        assert_eq!(output == "broken\n", is_told, "{output} {network}");
        is_told
    };
    let (output, network) = send(&a, "s", 960_000).await;
    assert_eq!(output, "POST /v1/x 960000\n", "{network}");
    // Alone, b would take a hundred of these. Four are left; more only until b has heard of the others.
    let (taken, _) = until_refused(async || send(&b, "t", 10_000).await, is_refused).await;
    eprintln!("{taken} were taken where 4 were left");
    assert!(taken < 50, "{taken}");
    let still = async |d: &Daemon| assert!(is_refused(&send(d, "t", 10_000).await), "it was given back");
    let a = killed_and_started_again(a, &b, still, common.node_of(setup(), "a")).await;
    still(&b).await;
    a.stop().await;
    b.stop().await;
}

#[tokio::test]
async fn dollars_that_were_spent_at_one_node_count_at_the_others_and_once_after_a_restart() {
    let mut model = Model::start().await;
    let port = model.port;
    let setup = || with_services(("model_usd_per_day", 1.0.into()), port);
    let (common, a, b) = two_of(setup).await;
    common.give_of("ann", "s", "a");
    common.give_of("ann", "t", "b");
    let ask = async |d: &Daemon, session| {
        let code = "import requests
body = {'model': 'm', 'max_tokens': 50, 'messages': [{'role': 'user', 'content': 'hi'}]}
r = requests.post('http://local.paddock/v1/chat/completions', json=body)
print(r.status_code, (r.json().get('error') or {}).get('message'))";
        uses(d, session, "local", code).await
    };
    let is_refused = |(output, network): &(String, String)| {
        assert!(output.starts_with("402 ") || output == "200 None\n", "{output} {network}");
        output.starts_with("402 ")
    };
    // 1.01 dollars at once; then 0.06 for each.
    model.says(json!([{ "text": "dear", "usage": { "input": 10, "output": 100 } }])).await;
    assert!(!is_refused(&ask(&a, "s").await));
    let (taken, (said, _)) = until_refused(async || ask(&b, "t").await, is_refused).await;
    eprintln!("{taken} were taken where none were left");
    assert!(taken < 10, "alone, it would take seventeen: {taken}");
    let spent = f64::from(101 + 6 * taken) / 100.0;
    let used_up = format!(
        "402 the budget of this caller for all models, 1 dollars a day (limits.model_usd_per_day), is used \
         up: {spent} dollars were spent today (UTC)\n"
    );
    assert_eq!(said, used_up);
    let still = async |d: &Daemon| assert_eq!(ask(d, "t").await.0, used_up);
    let a = killed_and_started_again(a, &b, still, common.node_of(setup(), "a")).await;
    still(&b).await;
    assert_eq!(ask(&a, "s").await.0, used_up);
    assert_eq!(u32::try_from(model.seen().await.len()).expect("few"), 1 + taken);
    a.stop().await;
    b.stop().await;
}
