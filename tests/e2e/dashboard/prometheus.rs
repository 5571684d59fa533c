//! A real Prometheus that scrapes a daemon with the configuration of `deploy/prometheus`, and its tool.
//!
//! `tests/clients/install` installs both. It must never use a scrape configuration of its own: it takes
//! the configuration that people copy, and replaces only the address and the interval.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;
use tempfile::TempDir;
use tokio::time::sleep;

use crate::support::{Daemon, Log, PATIENCE, Request, field, within};

/// The address and the interval in the example scrape configuration.
const EXAMPLE: [&str; 2] = ["127.0.0.1:8080", "15s"];

/// Time between two requests to its API, which sends no notifications.
const LOOK: Duration = Duration::from_millis(200);

/// A file or folder of this repository.
pub(super) fn repo(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

/// The text of one.
pub(super) fn read(path: &str) -> String {
    std::fs::read_to_string(repo(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn program(name: &str) -> Command {
    let path = repo("tests/clients/prometheus/usr/bin").join(name);
    assert!(path.exists(), "{name} is not there: tests/clients/install installs it");
    Command::new(path)
}

/// Runs promtool, which must succeed without any remark.
pub(super) fn promtool(args: &[&str], stdin: &str) {
    let input = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(input.path(), stdin).expect("a file");
    let mut command = program("promtool");
    let command = command.args(args).stdin(input.reopen().expect("a file"));
    let done = command.output().expect("promtool");
    let said = [done.stdout, done.stderr].map(|said| String::from_utf8_lossy(&said).into_owned()).concat();
    assert!(done.status.success(), "promtool {args:?}: {}\n{said}", done.status);
}

/// A running Prometheus; dropping it stops it.
pub(super) struct Prometheus {
    child: Child,
    log: Log,
    addr: SocketAddr,
    _home: TempDir,
}

impl Prometheus {
    /// Starts a Prometheus that scrapes this daemon with this token.
    pub(super) async fn of(d: &Daemon, token: &str) -> Prometheus {
        let home = TempDir::new().expect("a directory");
        let file = |name: &str| home.path().join(name);
        let mut config = read("deploy/prometheus/prometheus.yml");
        for (example, ours) in EXAMPLE.into_iter().zip([d.addr.to_string().as_str(), "1s"]) {
            assert!(config.contains(example), "the example has no {example}");
            config = config.replace(example, ours);
        }
        std::fs::write(file("prometheus.yml"), config).expect("a file");
        std::fs::write(file("rules.yml"), read("deploy/prometheus/rules.yml")).expect("a file");
        std::fs::write(file("paddock.token"), token).expect("a file");
        promtool(&["check", "config", &file("prometheus.yml").to_string_lossy()], "");
        let mut child = program("prometheus")
            .arg(format!("--config.file={}", file("prometheus.yml").display()))
            .arg(format!("--storage.tsdb.path={}", file("data").display()))
            .arg("--web.listen-address=127.0.0.1:0")
            .env_clear()
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("prometheus");
        let (log, _) = Log::read(child.stderr.take().expect("it is piped"));
        let line = log.line(r#"msg="Listening on""#).await;
        log.line("Server is ready to receive web requests").await;
        let addr = field(&line, "address").and_then(|addr| addr.parse().ok()).expect("an address");
        Prometheus { child, log, addr, _home: home }
    }

    /// The answer of its API, or why there is none.
    pub(super) async fn ask(&self, path: &str) -> Result<Value, String> {
        let mut answer = Request::new(self.addr, "GET", &format!("/api/v1/{path}")).send().await.json();
        match answer["status"].as_str() {
            Some("success") => Ok(answer["data"].take()),
            _ => Err(answer["error"].to_string()),
        }
    }

    /// The answer of a request that always succeeds.
    pub(super) async fn get(&self, path: &str) -> Value {
        self.ask(path).await.unwrap_or_else(|error| panic!("{path}: {error}"))
    }

    /// The rules that it has loaded.
    pub(super) async fn rules(&self) -> Vec<Value> {
        let loaded = self.get("rules").await;
        let groups = loaded["groups"].as_array().expect("groups");
        groups.iter().filter_map(|group| group["rules"].as_array()).flatten().cloned().collect()
    }

    /// The alerts that fire.
    pub(super) async fn firing(&self) -> BTreeSet<String> {
        let alerts = self.get("alerts").await;
        let firing = alerts["alerts"].as_array().expect("alerts").iter();
        let firing = firing.filter(|alert| alert["state"] == "firing");
        firing.filter_map(|alert| alert["labels"]["alertname"].as_str()).map(str::to_owned).collect()
    }

    /// The numbers that an expression returns.
    pub(super) async fn numbers(&self, expr: &str) -> Result<Vec<f64>, String> {
        let data = self.ask(&format!("query?query={}", encoded(expr))).await?;
        let found = data["result"].as_array().ok_or("no result")?;
        let number = |sample: &Value| sample["value"][1].as_str().and_then(|text| text.parse().ok());
        Ok(found.iter().filter_map(number).filter(|number: &f64| number.is_finite()).collect())
    }

    /// Waits until an expression returns a number.
    pub(super) async fn until(&self, expr: &str) {
        let come = async {
            while self.numbers(expr).await.expect("an expression").is_empty() {
                sleep(LOOK).await;
            }
        };
        within(PATIENCE, expr, come).await;
    }

    /// Waits for this many more scrapes, and for the rules to be evaluated after each.
    pub(super) async fn rounds(&self, more: u32) {
        for series in ["up", "instance:paddock_fds_used:ratio"] {
            let count = format!("count_over_time({series}[1h])");
            let had = self.numbers(&count).await.expect("a number").first().copied().unwrap_or_default();
            self.until(&format!("{count} >= {}", had + f64::from(more))).await;
        }
    }
}

/// Encodes a text as a part of a URL.
pub(super) fn encoded(text: &str) -> String {
    utf8_percent_encode(text, NON_ALPHANUMERIC).to_string()
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("prometheus said:\n{}", self.log.text());
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
