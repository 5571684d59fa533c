//! What a tenant has stored counts at every node, and a link opens at any of them: over one PostgreSQL and
//! one S3 server.

use serde_json::json;

use crate::cluster_store::Common;
use crate::sessions::hex_sha256;
use crate::support::{Answer, Daemon, PATIENCE, Request, Setup, within};
use crate::tenants::{call, document};

/// The token of the tenant that has a limit.
const ANN: &str = "the-token-of-ann-of-these-tests";
/// The token of metrics.
const FIGURES: &str = "only-for-the-figures-1";
/// What it may store.
const LIMIT: usize = 1 << 20;

fn limited(common: &Common, name: &str) -> Setup {
    let mut limits = toml::Table::new();
    limits.insert("stored_bytes".into(), i64::try_from(LIMIT).expect("small").into());
    let mut token = toml::Table::new();
    token.insert("name".into(), "ann".into());
    token.insert("sha256".into(), hex_sha256(ANN).into());
    token.insert("limits".into(), limits.into());
    common.node(name).set("auth.tokens", toml::Value::Array(vec![token.into()])).set("metrics.token", FIGURES)
}

async fn put(d: &Daemon, session: &str, file: &str, bytes: usize) -> Answer {
    let path = format!("/sessions/{session}/files/{file}");
    Request::new(d.addr, "PUT", &path).bearer(ANN).body(vec![7; bytes]).send().await
}

/// How many requests a node has passed on.
async fn passed(d: &Daemon) -> f64 {
    let text = Request::new(d.addr, "GET", "/metrics").bearer(FIGURES).send().await.expect(200).text();
    let line = "paddock_cluster_passed_total{outcome=\"answered\"} ";
    text.lines().find_map(|at| at.strip_prefix(line)?.parse().ok()).expect("the metric")
}

/// Makes a session with a small file at node `d`, and one that the other node has; returns their names.
async fn one_here_and_one_elsewhere(d: &Daemon) -> (String, String) {
    let (mut here, mut elsewhere) = (None, None);
    for n in 0.. {
        let name = format!("s{n}");
        put(d, &name, "small", 10).await.expect(201);
        let before = passed(d).await;
        Request::new(d.addr, "GET", &format!("/sessions/{name}/files")).bearer(ANN).send().await.expect(200);
        let place = if passed(d).await > before { &mut elsewhere } else { &mut here };
        place.get_or_insert(name);
        if let (Some(here), Some(elsewhere)) = (&here, &elsewhere) {
            return (here.clone(), elsewhere.clone());
        }
    }
    unreachable!("the nodes are many")
}

#[tokio::test]
async fn what_is_stored_at_one_node_counts_at_another_and_links_open_at_both() {
    let common = Common::new();
    let (a, b) = tokio::join!(limited(&common, "a").start(), limited(&common, "b").start());
    for node in [&a, &b] {
        node.log.line("a node of the cluster answers").await;
    }
    let (here, elsewhere) = one_here_and_one_elsewhere(&a).await;
    put(&a, &here, "large", LIMIT - (200 << 10)).await.expect(201);
    let half = LIMIT / 2;
    let refused = async {
        loop {
            let answer = put(&b, &elsewhere, "more", half).await;
            if answer.status != 201 {
                return answer;
            }
            // It was stored before the other node's bytes were counted.
            let path = format!("/sessions/{elsewhere}/files/more");
            Request::new(b.addr, "DELETE", &path).bearer(ANN).send().await.expect(204);
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
    };
    let refused = within(PATIENCE, "a refusal", refused).await;
    let said = refused.json();
    assert_eq!(said["error"], "quota_exceeded", "{} {said}", refused.status);
    // A link that one node signed opens at the other, which has the file or not.
    let listed = call(&b, ANN, "list_artifacts", json!({ "session_id": here })).send().await.expect(200);
    let listed = document(&listed);
    let link =
        listed["artifacts"][0]["url"].as_str().unwrap_or_else(|| panic!("a link in {listed}")).to_owned();
    let (_, path) = link.split_once("://").expect("a URL");
    let path = &path[path.find('/').expect("a path")..];
    for node in [&a, &b] {
        Request::new(node.addr, "GET", path).send().await.expect(200);
    }
    // What is deleted at one node makes room at the other.
    let large = format!("/sessions/{here}/files/large");
    Request::new(a.addr, "DELETE", &large).bearer(ANN).send().await.expect(204);
    let room = async {
        while put(&b, &elsewhere, "more", half).await.status != 201 {
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
    };
    within(PATIENCE, "room", room).await;
    a.stop().await;
    b.stop().await;
}
