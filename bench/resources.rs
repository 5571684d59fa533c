//! What the daemon and the agent use: processor time of a run, memory of a session, and whether memory grows.
//!
//! It must never be measured with anything else on the daemon: it comes before all other blocks.

use std::time::Duration;

use paddock::engine::Engine;

use crate::Result;
use crate::client::Caller;
use crate::load::Target;
use crate::report::Report;
use crate::rows::PYTHON;
use crate::stand::Stand;

pub(crate) const TITLE: &str = "Daemon and agent: CPU and memory";
pub(crate) const CPU: &str = "daemon, CPU of a run";
pub(crate) const RESIDENT: &str = "daemon, resident with 10 sessions";
pub(crate) const RUNS: &str = "runs, one after the other";
pub(crate) const GROWTH: &str = "daemon, growth over the last nine tenths of them";

/// Sessions that rest, each with its container.
const SESSIONS: usize = 10;
/// For what a run leaves to be done behind its answer.
const SETTLE: Duration = Duration::from_millis(300);
/// The kernel's unit of processor time in `/proc`, the same on every Linux there is.
const TICKS: f64 = 100.0;

pub(crate) async fn measure(stand: &mut Stand, runs: u32, report: &mut Report) -> Result<()> {
    let (daemon, client) = stand.ours()?;
    let (pid, label) = (daemon.pid, daemon.label.clone());
    let block = report.block(TITLE);
    let mut one = Caller::new(client, "bench-resources".to_owned(), PYTHON).await?;
    one.run().await?;
    settle().await;
    let none = status(pid, "VmRSS")?;
    let mut sessions = Vec::new();
    for n in 1..SESSIONS {
        let mut caller = Caller::new(client, format!("bench-resting-{n}"), PYTHON).await?;
        caller.run().await?;
        sessions.push(caller);
    }
    daemon.wait_for_warm().await?;
    settle().await;
    let resting = status(pid, "VmRSS")?;
    block.fact(RESIDENT, resting / 1024.0, "MiB");
    block.fact(
        "daemon, an idle session",
        (resting - none) / f64::from(u32::try_from(sessions.len())?),
        "KiB",
    );

    let agents = agents(&stand.engine, &label).await?;
    let block = report.block(TITLE);
    block.fact("agent, proportional set (PSS), median", median(&agents, |agent| agent.pss), "KiB");
    block.fact("agent, resident set, median", median(&agents, |agent| agent.rss), "KiB");

    // Of all agents, for the session does not say which container is its own. One that rests may be replaced.
    let used = || agents.iter().map(|agent| ticks(agent.pid).ok()).collect::<Vec<_>>();
    let (before, before_agents) = (ticks(pid)?, used());
    for _ in 0..runs / 10 {
        one.run().await?;
    }
    let early = status(pid, "VmRSS")?;
    for _ in runs / 10..runs {
        one.run().await?;
    }
    settle().await;
    block.fact(RUNS, f64::from(runs), "");
    let a_run = |ticks: f64| ticks / TICKS / f64::from(runs) * 1e6;
    block.fact(CPU, a_run(ticks(pid)? - before), "µs");
    let by_agents =
        before_agents.iter().zip(used()).filter_map(|(before, after)| Some(after? - (*before)?)).sum();
    block.fact("agent, CPU of a run, its own children's not", a_run(by_agents), "µs");
    block.fact(GROWTH, status(pid, "VmRSS")? - early, "KiB");
    for mut session in sessions {
        session.close().await?;
    }
    one.close().await
}

pub(crate) struct Agent {
    pid: u32,
    pss: f64,
    pub(crate) rss: f64,
}

/// PID 1 of each of the daemon's containers, as the host sees it.
pub(crate) async fn agents(engine: &Engine, label: &str) -> Result<Vec<Agent>> {
    let mut all = Vec::new();
    for container in engine.container_list(&[label.to_owned()]).await? {
        let pid = u32::try_from(engine.container_inspect(&container.id).await?.state.pid)?;
        let field = |name| field(&format!("/proc/{pid}/smaps_rollup"), name);
        all.push(Agent { pid, pss: field("Pss")?, rss: field("Rss")? });
    }
    Ok(all)
}

fn median(agents: &[Agent], of: impl Fn(&Agent) -> f64) -> f64 {
    let mut all: Vec<_> = agents.iter().map(of).collect();
    all.sort_by(f64::total_cmp);
    all.get(all.len() / 2).copied().unwrap_or(f64::NAN)
}

/// In KiB.
pub(crate) fn status(pid: u32, name: &str) -> Result<f64> {
    field(&format!("/proc/{pid}/status"), name)
}

/// A line `Name:   number kB`.
fn field(file: &str, name: &str) -> Result<f64> {
    let text = std::fs::read_to_string(file).map_err(|error| format!("{file}: {error}"))?;
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    let number = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
    number.ok_or_else(|| format!("{file} has no {name}").into())
}

/// Processor time of a process, its threads included, in the kernel's ticks.
fn ticks(pid: u32) -> Result<f64> {
    let file = format!("/proc/{pid}/stat");
    let text = std::fs::read_to_string(&file).map_err(|error| format!("{file}: {error}"))?;
    // Behind the name, which may contain anything: utime and stime are the 14th and 15th of the whole line.
    let fields: Vec<_> = text.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let field = |n: usize| fields.get(n).and_then(|field| field.parse::<f64>().ok());
    let both = field(11).zip(field(12)).map(|(user, system)| user + system);
    both.ok_or_else(|| format!("{file} is not what proc(5) says").into())
}

async fn settle() {
    tokio::time::sleep(SETTLE).await;
}
