//! Packages beyond the image: the first use of a list, the next ones, and runs without any.
//!
//! The index is the tests' own, on this host's loopback, so that no row measures the internet. Each first use
//! asks for a version that nobody fetched before.
//!
//! It must never count a call that fetched as a call that found its layer.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::json;

use crate::Result;
use crate::report::Measurements;
use crate::setup::Setup;
use crate::times::Times;

pub(crate) const TITLE: &str = "Packages: 400 files, 40 MB";
pub(crate) const NONE: &str = "print('hi'), no packages";
pub(crate) const AGAIN: &str = "print('hi'), packages that are there";
const FIRST: &str = "first use of a list";
const ELSEWHERE: &str = "next use, in a new session";

const INDEX: &str = include_str!("../tests/e2e/packages/index.py");
/// Versions that the index has: samples of a first use.
const VERSIONS: usize = 5;
/// Runs of each of the quick rows.
const RUNS: usize = 200;

fn config(port: u16) -> String {
    format!(
        r#"
http.addr = "127.0.0.1:0"
pool = {{ idle = 2, max_containers = 20, uids = "35000-35999" }}
egress = {{ mode = "none", hosts = {{ "index.lan" = "127.0.0.1" }} }}
packages = {{ python_index = "http://index.lan:{port}/simple/" }}
"#
    )
}

/// The index, ended when this is dropped.
struct Index(Child);

impl Drop for Index {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

impl Index {
    fn start(dir: &Path) -> Result<(Self, u16)> {
        let path = dir.join("index.py");
        std::fs::write(&path, INDEX)?;
        let mut python = Command::new("python3");
        python.arg("-B").arg(path).args(["weighty", &VERSIONS.to_string()]);
        let mut index = Self(python.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?);
        let mut said = BufReader::new(index.0.stdout.take().ok_or("no output")?);
        let mut line = String::new();
        said.read_line(&mut line)?;
        Ok((index, line.trim().parse()?))
    }
}

pub(crate) async fn measure(setup: &mut Setup, report: &mut Measurements) -> Result<()> {
    let (_index, port) = Index::start(setup.dir.path())?;
    let (daemon, client) = setup.other("packages", &config(port)).await?;
    daemon.wait_for_warm().await?;
    let (mut none, mut again) = (Times::default(), Times::default());
    let (mut first, mut elsewhere) = (Times::default(), Times::default());
    for version in 1..=VERSIONS {
        let packages = json!([format!("weighty=={version}.0")]);
        for (times, session) in [(&mut first, "first"), (&mut elsewhere, "elsewhere")] {
            let arguments = json!({
                "language": "python", "code": "import weighty", "packages": packages,
                "conversationId": format!("bench-packages-{session}-{version}"),
            });
            let (document, took) = client.call("run_code", arguments).await?;
            if document["success"] != true {
                return Err(format!("unexpected: {document}").into());
            }
            times.record(took)?;
        }
    }
    for turn in 0..RUNS {
        for (times, packages) in [(&mut none, json!([])), (&mut again, json!(["weighty==1.0"]))] {
            let arguments = json!({
                "language": "python", "code": "print('hi')", "packages": packages,
                "conversationId": "bench-packages-first-1",
            });
            let (document, took) = client.call("run_code", arguments).await?;
            if document["stdout"] != "hi\n" {
                return Err(format!("unexpected: {document}").into());
            }
            // The first ones wait for the warm part of their container.
            if turn > RUNS / 10 {
                times.record(took)?;
            }
        }
    }
    let block = report.block(TITLE);
    block.line(NONE, none, None);
    block.line(AGAIN, again, None);
    block.line(FIRST, first, None);
    block.line(ELSEWHERE, elsewhere, None);
    Ok(())
}
