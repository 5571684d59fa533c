//! New sessions a second, sustained: each is made, runs once and is closed, by several clients at a time.
//! Beside it the engine's ceiling: containers that the engine alone makes, starts and removes, and the same
//! with one exec in between, as many at a time as gives the highest rate.
//!
//! It must never count work that is still to be done: a slice of ours ends when as many containers are ready
//! as when it began.

use std::time::{Duration, Instant};

use futures_util::TryStreamExt;
use futures_util::stream::FuturesUnordered;
use paddock::engine::{Engine, ExecSpec};
use paddock::pool::Plan;

use crate::Result;
use crate::client::Client;
use crate::daemon::Daemon;
use crate::engine_only::EngineContainer;
use crate::programs::PYTHON;
use crate::reference_container::environment;
use crate::report::Measurements;
use crate::setup::Setup;
use crate::times::Times;

pub(crate) const TITLE: &str = "New sessions, sustained";
pub(crate) const OURS: &str = "paddock: session, run, close";
pub(crate) const RAW: &str = "the engine: create, start, remove";
const RAW_EXEC: &str = "the engine: the same, with an exec";

/// How many at a time the engine is tried with, and for how long each.
const AT_A_TIME: [usize; 5] = [1, 2, 3, 4, 6];
const TRIAL: Duration = Duration::from_secs(2);
/// Clients that make sessions: enough that the pool always has someone waiting.
const CLIENTS: usize = 6;
/// Slices of each, in turns.
const SLICES: u32 = 2;
const SLICE: Duration = Duration::from_secs(8);
/// For the pool to be as it was before.
const REST: Duration = Duration::from_secs(20);
const LOOK: Duration = Duration::from_millis(20);

/// What a runner with a warm part imports before it is ready; without one, nothing.
const WARM_IMPORT: &str = "import numpy, pandas, matplotlib.pyplot, seaborn; ";
const WARM_LABEL: &str = "sandbox.warm";

#[derive(Default)]
struct Rate {
    times: Times,
    done: u32,
    taken: Duration,
}

impl Rate {
    fn per_second(&self) -> f64 {
        f64::from(self.done) / self.taken.as_secs_f64()
    }
}

pub(crate) async fn measure(setup: &mut Setup, report: &mut Measurements) -> Result<()> {
    let engine = setup.engine.clone();
    let specimen = &setup.reference(PYTHON.language)?.specimen;
    let (plan, env) = (specimen.plan.clone(), environment(specimen));
    let image = engine.image_inspect(&plan.container.image.parse()?).await?;
    let warm = image.config.labels.contains_key(WARM_LABEL);
    let code = format!("{}{}", if warm { WARM_IMPORT } else { "" }, PYTHON.code);
    let raw = EngineCeiling { engine: engine.clone(), plan: plan.clone(), exec: None };
    let with_exec = EngineCeiling { engine, plan, exec: Some((env, code)) };

    let best = raw.best("", report).await?;
    let best_exec = with_exec.best(", with an exec", report).await?;
    let (mut ceiling, mut ceiling_exec, mut ours) = (Rate::default(), Rate::default(), Rate::default());
    for _ in 0..SLICES {
        raw.slice(best, SLICE, &mut ceiling).await?;
        sessions(setup, SLICE, &mut ours).await?;
        with_exec.slice(best_exec, SLICE, &mut ceiling_exec).await?;
    }
    let block = report.block(TITLE);
    block.fact("the engine's exec imports as a warm runner", f64::from(u8::from(warm)), "(1 yes, 0 no)");
    for (name, rate) in [(RAW, ceiling), (RAW_EXEC, ceiling_exec), (OURS, ours)] {
        let per_second = rate.per_second();
        block.line(name, rate.times, Some(per_second));
    }
    Ok(())
}

/// As many sessions as the daemon can have in this time, and the time until its pool is as before.
async fn sessions(setup: &mut Setup, time: Duration, rate: &mut Rate) -> Result<()> {
    let names: Vec<String> = (0..CLIENTS).map(|_| setup.new_session()).collect();
    let engine = setup.engine.clone();
    let (daemon, client) = setup.ours()?;
    let labels = [daemon.label.clone()];
    let (armed, standing) = (daemon.armed(PYTHON.language), engine.container_list(&labels).await?.len());
    let begun = Instant::now();
    let each: FuturesUnordered<_> = names.iter().map(|name| one_client(client, name, begun, time)).collect();
    let all: Vec<Vec<Duration>> = each.try_collect().await?;
    let done = u32::try_from(all.iter().map(Vec::len).sum::<usize>())?;
    at_rest(daemon, &engine, &labels, armed + done, standing).await?;
    rate.taken += begun.elapsed();
    rate.done += done;
    all.into_iter().flatten().try_for_each(|taken| rate.times.record(taken))
}

/// Session after session: how long each waited for its run.
async fn one_client(client: &Client, name: &str, begun: Instant, time: Duration) -> Result<Vec<Duration>> {
    let mut client = client.another().await?;
    let mut all = Vec::new();
    while begun.elapsed() < time {
        let session = format!("{name}-{}", all.len());
        all.push(client.run(PYTHON.language, &session, PYTHON.code, PYTHON.prints).await?.1);
        let arguments = serde_json::json!({ "session_id": session, "delete_files": true });
        client.call("close_session", arguments).await?;
    }
    Ok(all)
}

/// Waits until this many containers came up in all, and no more exist than before.
async fn at_rest(
    daemon: &Daemon,
    engine: &Engine,
    labels: &[String],
    armed: u32,
    standing: usize,
) -> Result<()> {
    let until = Instant::now() + REST;
    loop {
        let now = engine.container_list(labels).await?.len();
        let up = daemon.armed(PYTHON.language);
        if up >= armed && now <= standing {
            return Ok(());
        }
        if Instant::now() > until {
            return Err(format!(
                "the pool does not come to rest: {now} containers, before {standing}; {up} came up of {armed}"
            )
            .into());
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// The engine alone, with the daemon's own settings.
struct EngineCeiling {
    engine: Engine,
    plan: Plan,
    /// The variables and the code of an exec between start and removal.
    exec: Option<(Vec<String>, String)>,
}

impl EngineCeiling {
    /// How many at a time give the highest rate.
    async fn best(&self, what: &str, report: &mut Measurements) -> Result<usize> {
        let mut best = (0, 0.0);
        for at_a_time in AT_A_TIME {
            let mut rate = Rate::default();
            self.slice(at_a_time, TRIAL, &mut rate).await?;
            let name = format!("the engine, {at_a_time} at a time{what}");
            report.block(TITLE).fact(name, rate.per_second(), "/s");
            if rate.per_second() > best.1 {
                best = (at_a_time, rate.per_second());
            }
        }
        Ok(best.0)
    }

    async fn slice(&self, at_a_time: usize, time: Duration, rate: &mut Rate) -> Result<()> {
        let begun = Instant::now();
        let each = (0..at_a_time).map(|_| async {
            let mut all = Vec::new();
            while begun.elapsed() < time {
                let one = Instant::now();
                self.one().await?;
                all.push(one.elapsed());
            }
            Result::Ok(all)
        });
        let all: Vec<Vec<Duration>> = each.collect::<FuturesUnordered<_>>().try_collect().await?;
        rate.taken += begun.elapsed();
        rate.done += u32::try_from(all.iter().map(Vec::len).sum::<usize>())?;
        all.into_iter().flatten().try_for_each(|taken| rate.times.record(taken))
    }

    /// One container, made and removed.
    async fn one(&self) -> Result<()> {
        let container = EngineContainer::start(&self.engine, &self.plan).await?;
        let Some((env, code)) = &self.exec else {
            return container.remove().await;
        };
        let cmd = ["python3", "-c", code].map(str::to_owned).to_vec();
        let spec = ExecSpec { cmd, env: env.clone(), ..ExecSpec::default() };
        let mut stream = container.exec(&spec).await?;
        let mut output = Vec::new();
        while let Some(chunk) = stream.chunk().await? {
            output.extend_from_slice(&chunk.bytes);
        }
        if output != PYTHON.prints.as_bytes() {
            return Err(format!("the exec printed {:?}", String::from_utf8_lossy(&output)).into());
        }
        container.remove().await
    }
}
