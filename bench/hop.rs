//! What one hop costs: the same request at the node that has the session and at another one, in turns.
//!
//! Two nodes on this host, over loopback, with TLS between them as always; the table of owners is a folder.
//! The difference of two medians is the cost of passing on: another look at the request, a round trip, and
//! the encryption of what goes by. It must never count a request that was served where it came in.

use std::time::{Duration, Instant};

use crate::Result;
use crate::programs::PYTHON;
use crate::report::Measurements;
use crate::setup::Setup;
use crate::times::Times;

pub(crate) const TITLE: &str = "One hop between two nodes";
pub(crate) const FILE_THERE: &str = "a small file, at its node";
pub(crate) const FILE_BY_HOP: &str = "a small file, by another node";
const RUN_THERE: &str = "a warm run, at its node";
const RUN_BY_HOP: &str = "a warm run, by another node";

const NODES: [&str; 2] = ["node-a", "node-b"];
const SESSION: &str = "of-node-b";
/// Requests of each kind.
const FILES: u32 = 2000;
const RUNS: u32 = 300;
/// How long the nodes may take to find each other.
const FOUND: Duration = Duration::from_secs(10);

/// The configuration of a node. Its peers have loopback addresses of this process.
fn config(name: &str, uids: &str) -> String {
    let [_, _, high, low] = std::process::id().to_be_bytes();
    let address = |node: &str| {
        let last = if node == NODES[0] { 1 } else { 2 };
        format!("127.{}.{low}.{last}:7946", high | 0x80)
    };
    let peers = NODES.map(|node| format!("\"{}\"", address(node))).join(", ");
    format!(
        "http.addr = \"127.0.0.1:0\"\nagent.snapshots = false\npool = {{ idle = 0, uids = \"{uids}\" }}\n\
         cluster = {{ name = \"{name}\", key = \"0123456789abcdef\", addr = \"{}\", peers = [{peers}] }}\n",
        address(name)
    )
}

pub(crate) async fn measure(setup: &mut Setup, report: &mut Measurements) -> Result<()> {
    let owners = setup.owners();
    std::fs::create_dir(&owners)?;
    let number = paddock::cluster::placement::session_number("default", SESSION);
    std::fs::write(owners.join(format!("{number:016x}")), NODES[1])?;
    let (_, a) = setup.other(NODES[0], &config(NODES[0], "38000-38499")).await?;
    let mut a = a.another().await?;
    let (_, b) = setup.other(NODES[1], &config(NODES[1], "38500-38999")).await?;
    let mut b = b.another().await?;
    b.put(SESSION, Some("small"), vec![7; 100].into()).await?;
    let path = format!("/sessions/{SESSION}/files/small");
    let until = Instant::now() + FOUND;
    while a.get(&path).await.is_err() {
        if Instant::now() > until {
            return Err("the nodes did not find each other".into());
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let [mut file_there, mut file_by_hop, mut run_there, mut run_by_hop]: [Times; 4] = Default::default();
    for _ in 0..FILES {
        file_there.record(b.get(&path).await?.1)?;
        file_by_hop.record(a.get(&path).await?.1)?;
    }
    for client in [&mut a, &mut b] {
        client.run(PYTHON.language, SESSION, PYTHON.code, PYTHON.prints).await?;
    }
    for _ in 0..RUNS {
        run_there.record(b.run(PYTHON.language, SESSION, PYTHON.code, PYTHON.prints).await?.1)?;
        run_by_hop.record(a.run(PYTHON.language, SESSION, PYTHON.code, PYTHON.prints).await?.1)?;
    }
    let (metrics, _) = a.get("/metrics").await?;
    let passed = String::from_utf8_lossy(&metrics).lines().find_map(|line| {
        line.strip_prefix("paddock_cluster_passed_total{outcome=\"answered\"} ")?.parse::<u32>().ok()
    });
    if passed.unwrap_or_default() < FILES + RUNS {
        return Err("some requests were not passed on".into());
    }
    let block = report.block(TITLE);
    for (name, times) in [
        (FILE_THERE, file_there),
        (FILE_BY_HOP, file_by_hop),
        (RUN_THERE, run_there),
        (RUN_BY_HOP, run_by_hop),
    ] {
        block.line(name, times, None);
    }
    drop((a, b));
    for node in NODES {
        setup.end(node).await?;
    }
    Ok(())
}
