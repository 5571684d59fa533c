//! New sessions a second, kept up: each is made, runs once and is closed, by so many clients at a time. Against it
//! the raw ceiling: a container made, started, one exec in it, and removed, by the engine alone, at whatever number of
//! them at a time does most.
//!
//! It must never count what is not paid for: a slice of ours ends when as many containers stand ready as when it began.

use std::time::{Duration, Instant};

use futures_util::TryStreamExt;
use futures_util::stream::FuturesUnordered;
use paddock::engine::{Engine, ExecSpec};
use paddock::pool::Plan;

use crate::Result;
use crate::bare::Bare;
use crate::client::Client;
use crate::daemon::Daemon;
use crate::report::Report;
use crate::rows::PYTHON;
use crate::stand::Stand;
use crate::times::Times;
use crate::twin::environment;

pub(crate) const TITLE: &str = "New sessions, sustained";
pub(crate) const OURS: &str = "paddock: session, run, close";
pub(crate) const RAW: &str = "the engine: create, start, exec, remove";

/// How many at a time the engine is tried with, and for how long each.
const AT_A_TIME: [usize; 5] = [1, 2, 3, 4, 6];
const TRIAL: Duration = Duration::from_secs(2);
/// Clients that make sessions: enough that the pool always has someone waiting.
const CLIENTS: usize = 6;
/// Slices of each, in turns.
const SLICES: u32 = 2;
const SLICE: Duration = Duration::from_secs(8);
/// For the pool to stand as it stood before.
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

pub(crate) async fn measure(stand: &mut Stand, report: &mut Report) -> Result<()> {
    let engine = stand.engine.clone();
    let specimen = &stand.twin(PYTHON.language)?.specimen;
    let (plan, env) = (specimen.plan.clone(), environment(specimen));
    let image = engine.image_inspect(&plan.container.image.parse()?).await?;
    let warm = image.config.labels.contains_key(WARM_LABEL);
    let code = format!("{}{}", if warm { WARM_IMPORT } else { "" }, PYTHON.code);
    let raw = Raw { engine, plan, env, code };

    let mut best = (0, 0.0);
    for at_a_time in AT_A_TIME {
        let mut rate = Rate::default();
        raw.slice(at_a_time, TRIAL, &mut rate).await?;
        report.block(TITLE).fact(format!("the engine, {at_a_time} at a time"), rate.per_second(), "/s");
        if rate.per_second() > best.1 {
            best = (at_a_time, rate.per_second());
        }
    }
    let (mut ceiling, mut ours) = (Rate::default(), Rate::default());
    for _ in 0..SLICES {
        raw.slice(best.0, SLICE, &mut ceiling).await?;
        sessions(stand, SLICE, &mut ours).await?;
    }
    let block = report.block(TITLE);
    block.fact("the engine's exec imports as a warm runner", f64::from(u8::from(warm)), "(1 yes, 0 no)");
    let (raw_rate, our_rate) = (ceiling.per_second(), ours.per_second());
    block.line(RAW, ceiling.times, Some(raw_rate));
    block.line(OURS, ours.times, Some(our_rate));
    Ok(())
}

/// As many sessions as the daemon can, for so long, and until it stands as before.
async fn sessions(stand: &mut Stand, time: Duration, rate: &mut Rate) -> Result<()> {
    let names: Vec<String> = (0..CLIENTS).map(|_| stand.new_session()).collect();
    let engine = stand.engine.clone();
    let (daemon, client) = stand.ours()?;
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

/// Session after session: what each waited for its run.
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

/// Waits until so many containers came up in all, and no more stand than before.
async fn at_rest(
    daemon: &Daemon,
    engine: &Engine,
    labels: &[String],
    armed: u32,
    standing: usize,
) -> Result<()> {
    let until = Instant::now() + REST;
    loop {
        let stand = engine.container_list(labels).await?.len();
        let up = daemon.armed(PYTHON.language);
        if up >= armed && stand <= standing {
            return Ok(());
        }
        if Instant::now() > until {
            return Err(format!(
                "the pool does not come to rest: {stand} containers, {standing} before; {up} came up, {armed} due"
            )
            .into());
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// The engine alone, with the daemon's own settings.
struct Raw {
    engine: Engine,
    plan: Plan,
    env: Vec<String>,
    code: String,
}

impl Raw {
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

    /// One container from nothing to nothing, one run in between.
    async fn one(&self) -> Result<()> {
        let container = Bare::start(&self.engine, &self.plan).await?;
        let cmd = ["python3", "-c", &self.code].map(str::to_owned).to_vec();
        let spec = ExecSpec { cmd, env: self.env.clone(), ..ExecSpec::default() };
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
