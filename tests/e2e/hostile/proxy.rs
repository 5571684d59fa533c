//! What a program can ask of the way out, one a line: `tests/hostile/proxy.jsonl` has bytes for the proxy of
//! the container, and destinations for `connect()`. The servers are in a network namespace of the test
//! ([`crate::far`]), which counts every packet: rows that must not leave are sent first, and the count is
//! zero then.

use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::rows;
use super::watch::{Watch, expect_none};
use crate::far::Far;

/// Bytes for the proxy, or a destination.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    id: String,
    attempt: String,
    /// `\xNN` is one byte; `<AUTH>` is the header with the credential of the run.
    send: Option<String>,
    /// Sent once the proxy has answered 200.
    #[serde(default)]
    after: String,
    /// In place of `send`: the host of a `connect()`, and its port.
    connect: Option<(String, u16)>,
    /// One of these statuses; 0 is the end of the connection. For `connect`, 0 is a failure and 200 success.
    status: Vec<u16>,
    /// Part of what comes back behind the first answer; empty: nothing comes.
    back: Option<String>,
}

const PROGRAM: &str = include_str!("ask_proxy.py");

#[tokio::test]
async fn what_attacks_the_way_out_leaves_nothing() {
    let far = Far::start(&[]).await;
    let address = far.address.to_string();
    let names = ["example.com", "pkg.test", "a.pkg.test", "secret.pkg.test", "evil.test", "raw.test"];
    let mut hosts: toml::Table =
        names.map(|name| (name.to_owned(), address.as_str().into())).into_iter().collect();
    for (name, address) in [
        ("metadata.pkg.test", "169.254.169.254"),
        ("loop.pkg.test", "127.0.0.1"),
        ("lan.pkg.test", "10.0.0.1"),
        ("docker.pkg.test", "172.17.0.1"),
        ("metadata.google.internal", "169.254.169.254"),
    ] {
        hosts.insert(name.to_owned(), address.into());
    }
    let setup = far.daemon().set("egress.hosts", hosts).set("egress.deny", vec!["secret.pkg.test"]);
    let d = setup.start().await;
    let watch = Watch::over(&d).await;
    let rows: Vec<Row> = rows("proxy.jsonl");
    let allowed = [
        "example.com",
        "*.pkg.test",
        "localhost",
        "metadata.google.internal",
        "foo.localhost",
        "host.docker.internal",
        "gateway.docker.internal",
        "instance-data",
        "127.0.0.1.nip.io",
    ];
    let network = json!({ "allowed_domains": allowed });
    let mut faults = Vec::new();
    for leaves in [false, true] {
        let mine: Vec<&Row> = rows.iter().filter(|row| row.status.contains(&200) == leaves).collect();
        let asked: Vec<_> =
            mine.iter().map(|row| json!([row.id, row.send, row.after, row.connect])).collect();
        let ran = d.session("s").python(PROGRAM).stdin(&json!(asked).to_string()).timeout(120.0);
        let ran = ran.with("network", network.clone()).await.expect_success();
        let last = ran.stdout().lines().last().unwrap_or_default().to_owned();
        let seen: Map<String, Value> = serde_json::from_str(&last).expect("a map");
        for row in mine {
            let status = seen[&row.id][0].as_u64().expect("a status");
            let back = seen[&row.id][1].as_str().expect("what came back");
            let fine = row.status.iter().any(|one| u64::from(*one) == status)
                && row
                    .back
                    .as_ref()
                    .is_none_or(|text| if text.is_empty() { back.is_empty() } else { back.contains(text) });
            if !fine {
                faults.push(format!("{}: {}\n  {status}, then {back:?}", row.id, row.attempt));
            }
        }
        if !leaves && far.packets() > 0 {
            let reached = ran.document["network"].as_array().into_iter().flatten();
            let reached: Vec<_> =
                reached.filter(|one| one["bytes_in"] != 0 || one["bytes_out"] != 0).collect();
            faults.push(format!("{} packets of rows that are refused: {reached:?}", far.packets()));
        }
        faults.extend(watch.row().await.err());
    }
    expect_none(&faults, rows.len());
    watch.end().await;
    d.stop().await;
}
