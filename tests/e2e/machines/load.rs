//! The same load over one, three and eight machines of one host: what each further node costs. Since they
//! share the processors, runs a second cannot grow; what a run costs the host must not.

use std::time::{Duration, Instant};

use super::Machines;
use crate::support::Daemon;

/// Callers at one time, each with a session.
const CALLERS: usize = 8;
/// How long each load lasts.
const LOAD: Duration = Duration::from_secs(30);
/// How long nobody calls.
const REST: Duration = Duration::from_secs(20);

/// Seconds of processor that this host has used, of all processors.
fn processor() -> f64 {
    let text = std::fs::read_to_string("/proc/stat").expect("/proc/stat");
    let first = text.lines().next().expect("a line");
    let fields: Vec<u64> = first.split_whitespace().skip(1).map(|f| f.parse().expect("ticks")).collect();
    // user, nice, system, irq, softirq; not idle and waiting for disks.
    let used: u64 = [0, 1, 2, 5, 6].iter().map(|&at| fields[at]).sum();
    used as f64 / 100.0 // USER_HZ is 100 on every architecture that Linux supports for containers
}

/// What one cluster did.
struct Figures {
    nodes: usize,
    /// Runs a second.
    rate: f64,
    /// Milliseconds of the host's processors for each run.
    each: f64,
    /// Processors in use while nobody called.
    resting: f64,
    /// Requests that were passed on, of all.
    passed: f64,
}

/// Calls through the nodes in turns, each session through every one of them.
async fn load(nodes: &[Daemon]) -> (u64, Duration) {
    let caller = |number: usize| async move {
        let id = format!("caller-{number}");
        let (begun, mut done) = (Instant::now(), 0);
        while begun.elapsed() < LOAD {
            let node = &nodes[(number + usize::try_from(done).expect("few")) % nodes.len()];
            node.session(&id).sh("echo 42").await.expect_stdout("42\n");
            done += 1;
        }
        done
    };
    let begun = Instant::now();
    let done = futures_util::future::join_all((0..CALLERS).map(caller)).await;
    (done.into_iter().sum(), begun.elapsed())
}

async fn passed(nodes: &[Daemon]) -> f64 {
    let mut all = 0.0;
    for node in nodes {
        let text = node.request("GET", "/metrics").send().await.text();
        let line = "paddock_cluster_passed_total{outcome=\"answered\"} ";
        all += text.lines().find_map(|l| l.strip_prefix(line)?.parse::<f64>().ok()).unwrap_or_default();
    }
    all
}

async fn measure(machines: &Machines, count: usize) -> Figures {
    let nodes = machines.cluster(count).await;
    for number in 0..CALLERS {
        let session = format!("caller-{number}");
        nodes[number % count].session(&session).sh("echo 42").await.expect_stdout("42\n");
    }
    let (before, hops) = (processor(), passed(&nodes).await);
    let (runs, time) = load(&nodes).await;
    let (used, hops) = (processor() - before, passed(&nodes).await - hops);
    let before = processor();
    tokio::time::sleep(REST).await;
    let resting = (processor() - before) / REST.as_secs_f64();
    for (node, machine) in nodes.into_iter().zip(&machines.all) {
        node.stop_on(&machine.engine.host()).await;
    }
    let runs = runs as f64;
    let (rate, each) = (runs / time.as_secs_f64(), used * 1e3 / runs);
    Figures { nodes: count, rate, each, resting, passed: hops / runs }
}

#[tokio::test]
#[ignore = "it measures: make machines"]
async fn a_run_costs_the_host_the_same_over_one_three_and_eight_machines() {
    let machines = Machines::start(8).await;
    let mut all = Vec::new();
    for count in [1, 3, 8] {
        all.push(measure(&machines, count).await);
    }
    eprintln!(
        "| nodes | runs a second | processor of the host for each run | passed on | processors at rest |"
    );
    eprintln!("|---|---|---|---|---|");
    for of in &all {
        let passed = of.passed * 100.0;
        eprintln!(
            "| {} | {:.0} | {:.1} ms | {passed:.0} % | {:.3} |",
            of.nodes, of.rate, of.each, of.resting
        );
    }
    for (count, of) in [1, 3, 8].into_iter().zip(&all) {
        assert!(of.rate > 0.0 && (count == 1) == (of.passed == 0.0), "{count} nodes: {}", of.passed);
    }
}
