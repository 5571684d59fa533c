//! What an operator with Prometheus and Grafana uses: the rules, the scrape configuration and the dashboard
//! of `deploy`, with a real Prometheus that scrapes a real daemon under load.
//!
//! Grafana itself does not run: its own types check the dashboard. No test may use a copy: each reads the
//! files that people import.

#[path = "dashboard/files.rs"]
mod files;
#[path = "dashboard/load.rs"]
mod load;
#[path = "dashboard/prometheus.rs"]
mod prometheus;

use std::collections::BTreeSet;

use serde_json::Value;
use tokio::join;

use self::files::{Dashboard, words};
use self::load::load;
use self::prometheus::{Prometheus, promtool, read, repo};
use crate::cluster;
use crate::support::{self, Daemon, field};

/// A token that gives access only to the metrics.
const TOKEN: &str = "only-for-the-metrics-1";

#[test]
fn promtool_accepts_the_rules_and_each_alert_fires_when_it_should() {
    let path = |name: &str| repo("deploy/prometheus").join(name).display().to_string();
    promtool(&["check", "rules", &path("rules.yml")], "");
    promtool(&["check", "config", "--syntax-only", &path("prometheus.yml")], "");
    promtool(&["test", "rules", &path("rules_test.yml")], "");
}

fn alerts_of(rules: &str) -> BTreeSet<String> {
    rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).map(str::to_owned).collect()
}

#[test]
fn each_alert_has_a_case_in_which_it_fires_and_one_in_which_it_does_not() {
    let (rules, cases) = (read("deploy/prometheus/rules.yml"), read("deploy/prometheus/rules_test.yml"));
    let alerts = alerts_of(&rules);
    assert!(alerts.len() >= 15, "{alerts:?}");
    let (mut fires, mut silent) = (BTreeSet::new(), BTreeSet::new());
    for case in cases.split("- alertname: ").skip(1) {
        let name = case.lines().next().expect("a name");
        let side = if case.contains("exp_alerts: []") { &mut silent } else { &mut fires };
        side.insert(name.to_owned());
    }
    assert_eq!(fires, alerts);
    assert_eq!(silent, alerts);
    for alert in alerts {
        assert!(alert.starts_with("Paddock"), "{alert}");
    }
}

#[tokio::test]
async fn grafanas_own_types_accept_the_dashboard() {
    let node = repo("tests/clients/venv/bin/node");
    assert!(node.exists(), "the clients are not there: tests/clients/install installs them");
    let done = tokio::process::Command::new(node)
        .arg(repo("tests/clients/dashboard.mjs"))
        .arg(repo("deploy/grafana"))
        .output()
        .await
        .expect("node");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    assert_eq!(String::from_utf8_lossy(&done.stdout), "done\n");
}

#[test]
fn each_panel_has_a_description_and_a_position_of_its_own() {
    let dashboard = Dashboard::read();
    let (mut ids, mut cells) = (BTreeSet::new(), BTreeSet::new());
    for panel in dashboard.panels() {
        let title = panel["title"].as_str().expect("a title");
        assert!(ids.insert(panel["id"].as_u64()), "{title}: an id of two panels");
        let at = |key: &str| panel["gridPos"][key].as_u64().unwrap_or_else(|| panic!("{title}: no {key}"));
        assert!(at("x") + at("w") <= 24, "{title} is wider than the dashboard");
        for cell in
            (at("x")..at("x") + at("w")).flat_map(|x| (at("y")..at("y") + at("h")).map(move |y| (x, y)))
        {
            assert!(cells.insert(cell), "{title} lies on another panel");
        }
        if panel["type"] != "row" {
            assert!(
                panel["description"].as_str().is_some_and(|text| text.len() > 30),
                "{title}: what is it?"
            );
            let (lines, heat) = (&panel["fieldConfig"]["defaults"], &panel["options"]["yAxis"]);
            let unit = lines["unit"].is_string() || heat["unit"].is_string();
            assert!(unit || panel["type"] == "table", "{title}: in what?");
        }
    }
    // Other programs have `up` and process_* too: All must mean the jobs that were found, not every job.
    assert_eq!(dashboard.variable("job")["allValue"], Value::Null);
    // The data source may have any name in an operator's Grafana.
    for uid in dashboard.text().split(r#""uid": ""#).skip(1) {
        let uid = uid.split('"').next().expect("a uid");
        assert!(
            ["${datasource}", "-- Grafana --", "paddock-overview"].contains(&uid),
            "{uid} is the uid of what?"
        );
    }
}

#[tokio::test]
async fn every_expression_has_data_from_a_daemon_at_work() {
    let setup = Daemon::with().set("metrics.token", TOKEN).set("pool.idle", 1);
    // Ten seconds: one call of the load is refused, after waiting that long.
    let d = setup.set("exec.runner", "sh").set("exec.max", 1).set("pool.wait", "10s");
    let d = d.set("agent.snapshots", true).start().await;
    // The load would keep it from being taken.
    d.snapshot_in_use().await;
    let p = Prometheus::of(&d, TOKEN).await;
    p.until("count_over_time(up[1h]) > 1").await;
    // Twice: a series that begins in the first round has no rate before the second.
    for _ in 0..2 {
        load(&d).await;
        p.rounds(2).await;
    }
    let metrics = d.request("GET", "/metrics").bearer(TOKEN).send().await.expect(200).text();
    promtool(&["check", "metrics"], &metrics);
    let (dashboard, rules) = (Dashboard::read(), p.rules().await);
    let instance = d.addr.to_string();
    let panels = dashboard.expressions(&instance);
    assert!(panels.len() > 50, "{}", panels.len());
    let recorded: BTreeSet<_> = names(&rules, "recording");

    let records = recorded.iter().map(|name| (format!("the rule {name}"), name.clone()));
    // A daemon that is alone has no figures of a cluster.
    let alone = panels.iter().filter(|(_, expr)| !expr.contains("paddock_cluster_")).cloned();
    all_have_data(&p, alone.chain(records)).await;
    for (name, path) in dashboard.variables(&instance) {
        let values = p.get(&path).await;
        assert!(values.as_array().is_some_and(|values| !values.is_empty()), "the variable {name}: {values}");
    }
    let queries = rules.iter().map(|rule| rule["query"].as_str().expect("a query").to_owned());
    let all = panels.iter().cloned().map(|(_, expr)| expr).chain(queries);
    let all = all.filter(|expr| !expr.contains("paddock_cluster_"));
    let of_itself: Vec<&str> = metrics.lines().filter(|line| !line.contains("paddock_cluster_")).collect();
    each_family_is_looked_at(&of_itself.join("\n"), all, &recorded);

    let ill: Vec<_> = rules.iter().filter(|rule| rule["health"] != "ok").collect();
    assert!(ill.is_empty(), "{ill:#?}");
    assert_eq!(names(&rules, "alerting"), alerts_of(&read("deploy/prometheus/rules.yml")));
    assert_eq!(p.firing().await, BTreeSet::new());
    an_alert_fires_at_the_first_time(&d, &p).await;
    let unmasked = panels
        .into_iter()
        .filter_map(|(whose, expr)| expr.strip_suffix(" or vector(0)").map(|expr| (whose, expr.to_owned())));
    all_have_data(&p, unmasked).await;
    drop(p);
    d.stop().await;
}

/// At a node that passes calls on, each panel of a cluster has data, and each metric of a cluster is looked
/// at.
#[tokio::test]
async fn every_expression_of_a_cluster_has_data_from_a_node() {
    let (common, a, b) = cluster::two().await;
    common.give("far", "b");
    let p = Prometheus::of(&a, support::TOKEN).await;
    // Twice: a series that begins in the first round has no rate before the second.
    for _ in 0..2 {
        a.session("far").sh("true").await.expect_success();
        p.rounds(2).await;
    }
    let of_cluster = |(_, expr): &(String, String)| expr.contains("paddock_cluster_");
    let panels: Vec<_> =
        Dashboard::read().expressions(&a.addr.to_string()).into_iter().filter(of_cluster).collect();
    assert!(panels.len() > 4, "{panels:?}");
    all_have_data(&p, panels.iter().cloned()).await;
    let rules = p.rules().await;
    let queries = rules.iter().map(|rule| rule["query"].as_str().expect("a query").to_owned());
    let all = panels.into_iter().map(|(_, expr)| expr).chain(queries);
    let all = all.filter(|expr| expr.contains("paddock_cluster_"));
    let metrics = a.request("GET", "/metrics").bearer(support::TOKEN).send().await.expect(200).text();
    let lines: Vec<&str> = metrics.lines().filter(|line| line.contains("paddock_cluster_")).collect();
    each_family_is_looked_at(&lines.join("\n"), all, &names(&rules, "recording"));
    drop(p);
    a.stop().await;
    b.stop().await;
}

/// Expects at least one number from each expression.
async fn all_have_data(p: &Prometheus, expressions: impl Iterator<Item = (String, String)>) {
    let mut empty = Vec::new();
    for (whose, expr) in expressions {
        let numbers = p.numbers(&expr).await;
        if numbers.as_ref().map_or(0, Vec::len) == 0 {
            empty.push(format!("{whose}: {numbers:?} of {expr}"));
        }
    }
    assert!(empty.is_empty(), "{empty:#?}");
}

/// The names of the rules of one type.
fn names(rules: &[Value], of: &str) -> BTreeSet<String> {
    let these = rules.iter().filter(|rule| rule["type"] == of);
    these.map(|rule| rule["name"].as_str().expect("a name").to_owned()).collect()
}

/// Expects that every family of paddock's is in some expression, and that every expression names existing
/// families.
fn each_family_is_looked_at(
    metrics: &str,
    expressions: impl Iterator<Item = String>,
    recorded: &BTreeSet<String>,
) {
    let types = metrics.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next());
    let families: BTreeSet<_> = types.collect();
    let mut unused: BTreeSet<_> =
        families.iter().filter(|name| name.starts_with("paddock_")).copied().collect();
    for expr in expressions {
        for word in words(&expr) {
            if word.contains(':') {
                assert!(recorded.contains(word), "{word} is recorded by no rule: {expr}");
            } else if word.starts_with("paddock_") || word.starts_with("process_") {
                let parts = ["", "_bucket", "_sum", "_count"].into_iter();
                let mut bare = parts.filter_map(|part| word.strip_suffix(part));
                let family = bare.find(|name| families.contains(name));
                unused.remove(family.unwrap_or_else(|| panic!("there is no {word}: {expr}")));
            }
        }
    }
    assert!(unused.is_empty(), "nobody looks at {unused:?}");
}

/// Removes a container under its running program: one alert must fire, although the metric never counted
/// before.
async fn an_alert_fires_at_the_first_time(d: &Daemon, p: &Prometheus) {
    let (s, view, mark) = (d.session("s"), d.view().await, d.log.mark());
    s.sh("true").await.expect_success();
    let line = d.log.line_since(mark, " ended ").await;
    let container = field(&line, "container").expect("a container");
    let mut containers = view.containers_for("sh").await.into_iter().map(|one| one.id);
    let container = containers.find(|id| id.as_str().starts_with(&container)).expect("that of the session");
    let lose = async {
        view.begun(&container).await;
        view.kill(&container).await;
    };
    let (ran, ()) = join!(async { s.sh("touch /tmp/begun; sleep 60").await }, lose);
    ran.expect_error("lost");
    p.until(r#"ALERTS{alertname="PaddockRunsLost",alertstate="firing"}"#).await;
    assert_eq!(p.firing().await, BTreeSet::from(["PaddockRunsLost".to_owned()]));
}
