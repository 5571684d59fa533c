//! Limits of tenants that hold for all nodes of a cluster together: runs, sessions, requests a second.
//!
//! Each call goes to the node that has its session, so nothing but the limit itself is shared.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::cluster::{Common, two_of};
use crate::sessions::hex_sha256;
use crate::support::{Daemon, PATIENCE, Request, Setup, within};
use crate::tenants::{document, python};

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
    // One that only one node gets has all of it.
    let (at_a, _) = hammer(&a).await;
    assert!(at_a >= A_SECOND * seconds * 3 / 4, "{at_a}");
    a.stop().await;
    b.stop().await;
}
