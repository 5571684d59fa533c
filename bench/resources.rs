//! What the daemon and the agents use: processor time of a run, memory of a session, and whether memory
//! grows.
//!
//! It must never be measured beside any other load of the daemon: it comes before all other blocks.

use std::time::Duration;

use crate::Result;
use crate::client::LoadSession;
use crate::host::{AgentMemory, TICKS, agents, status, ticks};
use crate::load::LoadTarget;
use crate::programs::PYTHON;
use crate::report::Measurements;
use crate::setup::Setup;

pub(crate) const TITLE: &str = "Daemon and agent: CPU and memory";
pub(crate) const CPU: &str = "daemon, CPU of a run";
pub(crate) const RESIDENT: &str = "daemon, resident with 10 sessions";
pub(crate) const RUNS: &str = "runs, one after the other";
pub(crate) const GROWTH: &str = "daemon, growth over the last nine tenths of them";

/// Idle sessions, each with its container.
const SESSIONS: usize = 10;
/// For the work that is left behind a run's answer.
const SETTLE: Duration = Duration::from_millis(300);

pub(crate) async fn measure(setup: &mut Setup, runs: u32, report: &mut Measurements) -> Result<()> {
    let (daemon, client) = setup.ours()?;
    let (pid, label) = (daemon.pid, daemon.label.clone());
    let block = report.block(TITLE);
    let mut one = LoadSession::new(client, "bench-resources".to_owned(), PYTHON).await?;
    one.run().await?;
    settle().await;
    let none = status(pid, "VmRSS")?;
    let mut sessions = Vec::new();
    for n in 1..SESSIONS {
        let mut caller = LoadSession::new(client, format!("bench-resting-{n}"), PYTHON).await?;
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

    let agents = agents(&setup.engine, &label).await?;
    let block = report.block(TITLE);
    block.fact("agent, proportional set (PSS), median", median(&agents, |agent| agent.pss), "KiB");
    block.fact("agent, resident set, median", median(&agents, |agent| agent.rss), "KiB");

    // Of all agents, since a session does not say which container it has. An idle one may be replaced
    // meanwhile.
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

fn median(agents: &[AgentMemory], of: impl Fn(&AgentMemory) -> f64) -> f64 {
    let mut all: Vec<_> = agents.iter().map(of).collect();
    all.sort_by(f64::total_cmp);
    all.get(all.len() / 2).copied().unwrap_or(f64::NAN)
}

async fn settle() {
    tokio::time::sleep(SETTLE).await;
}
