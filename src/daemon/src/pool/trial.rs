//! A trial: `doctor` makes one container as the pool makes them, examines it, and removes it again with the
//! volume that holds its agent.
//!
//! A trial must never use anything that belongs to a daemon (its owner id, its agent volume, a UID of its
//! containers), nor leave anything behind that the engine can remove.

mod engine_weight;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use paddock_proto::message::{ProbeReport, Quotas};
use tokio_util::sync::CancellationToken;

pub use self::engine_weight::EngineWeight;
use super::container::{self, ArmedContainer, ContainerStartError};
use super::leftovers::Leftovers;
use super::proof::{self, Aspect, Violation};
use super::runner::{self, Runner};
use super::runtimes::{self, Runtimes};
use super::spec::{APP, Blueprint, OWNER};
use super::warm::WarmStage;
use super::weights::MOUNTED;
use super::{AgentError, Bounds, DataPlace, PoolConfig, RunnerTerms, agent, disk, loopback, snapshots, warm};
use crate::engine::{Engine, EngineError, EngineInfo, NameError, VolumeName};
use crate::id::random_hex;
use crate::link::{LinkError, may_trace};

/// How long a trial waits for the warm part.
const WARM: Duration = Duration::from_secs(20);
/// After this long, the container of a trial that was killed ends itself.
const ORPHAN_AFTER: Duration = Duration::from_secs(60);
/// At this age, a later trial removes what a killed one left.
const OLD: Duration = Duration::from_secs(60 * 60);
/// The beginning of a trial's owner id; the time and a random number follow.
const OWNERS: &str = "doctor-";
/// The largest quotas that the probe fills up: larger ones take too long, and memory that other programs may
/// need.
const CHEAP: Quotas = Quotas { data: 512 << 20, data_inodes: 100_000, tmp: 512 << 20 };

/// Why a trial gave no report.
#[derive(Debug, thiserror::Error)]
pub enum TrialError {
    /// The engine's.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The agent could not be put on the engine.
    #[error(transparent)]
    Agent(#[from] AgentError),
    /// The container did not come up.
    #[error(transparent)]
    Start(#[from] ContainerStartError),
    /// The container came up, but its agent did not answer.
    #[error("the container came up, but its agent could not be asked: {0}")]
    Link(#[from] LinkError),
    /// Cannot happen: this module makes the names.
    #[error(transparent)]
    Name(#[from] NameError),
    /// Cannot happen either.
    #[error("no name can be made for it")]
    NoName,
    /// The trial was cancelled.
    #[error("the trial was stopped")]
    Stopped,
}

/// What a trial found out about its container.
#[derive(Debug, Clone)]
pub struct TrialReport {
    /// The image that the container was made from.
    pub image: String,
    /// What a process in it sees.
    pub facts: ProbeReport,
    /// The demands that it does not meet.
    pub violations: Vec<Violation>,
    /// The bounds that the engine was asked for.
    pub asked: TrialBounds,
    /// The time from the first call until its agent answered.
    pub armed: Duration,
    /// The time until its warm part stood after that; `None` if it does not stand, or there is none.
    pub warm: Option<Duration>,
    /// How bytes reach its agent.
    pub carrier: TrialCarrier,
    /// The name of its runtime.
    pub runtime: String,
    /// Whether the engine made its network, and not the runtime, which takes less time.
    pub engine_makes_network: bool,
    /// What programs lack under this runtime, one sentence each.
    pub lacks: Vec<String>,
    /// How much the engine weighs beside this container.
    pub engine_weight: EngineWeight,
}

/// The bounds of a container, including its warm part.
#[derive(Debug, Clone, PartialEq)]
pub struct TrialBounds {
    /// The user and group of its processes.
    pub uid: u32,
    /// The configured bounds.
    pub bounds: Bounds,
    /// Bytes of memory in all.
    pub memory: u64,
    /// Processes in all.
    pub pids: u64,
}

/// How bytes reach an agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TrialCarrier {
    /// Directly, without the engine.
    Direct,
    /// Through the engine, because this process may not trace others.
    NotAllowed,
    /// Through the engine, because its address is not a Unix socket.
    Remote,
    /// Through the engine, because an attempt at a direct carrier failed for this reason.
    Failed(String),
}

/// Finds the engine's runners, and warnings about the images that were left out.
///
/// # Errors
/// The engine's.
pub async fn survey(engine: &Engine, config: &PoolConfig) -> Result<(Vec<Runner>, Vec<String>), EngineError> {
    let terms = RunnerTerms { disk: disk::bound(engine, &config.owner).await?, ..config.runners.clone() };
    let found = runner::find(engine, &terms, config.warm_parts, &BTreeMap::new()).await?;
    let runners = found.runners.into_values().filter(|runner| !runner.fetches);
    Ok((runners.collect(), found.warnings))
}

/// A new owner id, for one trial.
pub fn owner() -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    format!("{OWNERS}{now:x}-{}", random_hex::<6>())
}

/// Makes a container of `runner`, examines it and removes it; the second value is the error of the removal,
/// if it failed. Between two steps the trial ends early if `stop` is cancelled.
pub async fn run(
    engine: &Engine,
    config: &PoolConfig,
    runner: Runner,
    stop: &CancellationToken,
) -> (Result<TrialReport, TrialError>, Option<EngineError>) {
    remove_old(engine).await;
    let owned = [APP.to_owned(), format!("{OWNER}={}", config.owner)];
    let tried = try_both(engine, config, runner, &owned, stop).await;
    (tried, clear(engine, &owned).await.err())
}

/// Lets the engine make the network if the runtime's may be at fault, as a daemon does.
async fn try_both(
    engine: &Engine,
    config: &PoolConfig,
    runner: Runner,
    owned: &[String; 2],
    stop: &CancellationToken,
) -> Result<TrialReport, TrialError> {
    let info = engine.info().await?;
    let runtimes = Runtimes::new(&info.default_runtime);
    let runner = Arc::new(runner);
    let tried = attempt(engine, (&info, &runtimes), config, &runner, owned, stop).await;
    let is_good = match &tried {
        Ok(report) => report.violations.iter().all(|violation| violation.aspect != Aspect::Network),
        Err(error) => !matches!(error, TrialError::Start(_)),
    };
    if is_good || !loopback::leave_to_engine(&runtimes, &runner.bounds.runtime) {
        return tried;
    }
    let _ = clear(engine, owned).await; // at the end once more, with what comes of it
    attempt(engine, (&info, &runtimes), config, &runner, owned, stop).await
}

async fn attempt(
    engine: &Engine,
    (info, runtimes): (&EngineInfo, &Runtimes),
    config: &PoolConfig,
    runner: &Arc<Runner>,
    owned: &[String; 2],
    stop: &CancellationToken,
) -> Result<TrialReport, TrialError> {
    let go_on = || if stop.is_cancelled() { Err(TrialError::Stopped) } else { Ok(()) };
    let containers = Leftovers::find(engine, &[APP.to_owned(), APP.to_owned()]).await?;
    let uid = containers.free_uid(&config.settings.uid_range);
    let agent: VolumeName = format!("paddock-agent-{}", config.owner).parse()?;
    let readable: VolumeName = format!("paddock-agent-{}-readable", config.owner).parse()?;
    let labels = owned.iter().filter_map(|label| label.split_once('='));
    let labels: BTreeMap<_, _> = labels.map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
    go_on()?;
    let blueprint = Blueprint {
        owner: config.owner.clone(),
        agent,
        readable,
        files: config.agent_files.clone(),
        layers: None, // the trial would leave their volume behind
        maps_users: info.maps_users(),
        first_user: info.first_user(),
        runtimes: runtimes.clone(),
    };
    let runtime = runner.bounds.runtime.as_str();
    let mut terms = config.terms.clone();
    terms.orphan_after = ORPHAN_AFTER;
    let start = async || -> Result<_, TrialError> {
        agent::ready(engine, &runner.image_id, &blueprint, runtime, labels.clone()).await?;
        go_on()?;
        let plan = blueprint.plan(runner, uid).ok_or(TrialError::NoName)?;
        let host = plan.container.host_config.clone();
        let begun = Instant::now();
        let container = container::start(engine, plan, uid, runner.clone(), &terms).await?;
        Ok((container, host, begun.elapsed()))
    };
    let started = match start().await {
        Err(TrialError::Start(error)) if runtimes::could_not_read(&error.to_string()) => {
            blueprint.runtimes.reads(runtime);
            loopback::leave_to_engine(runtimes, runtime);
            start().await
        }
        started => started,
    };
    let (container, host, armed) = started?;
    let amount = |n: Option<i64>| n.and_then(|n| u64::try_from(n).ok()).unwrap_or(u64::MAX);
    let (memory, pids) = (amount(host.memory), amount(host.pids_limit));
    let asked = TrialBounds { uid: uid.0, bounds: runner.bounds.clone(), memory, pids };
    go_on()?;
    let warm = warmed(engine, &container, stop).await;
    go_on()?;
    let facts = proof::probe(&container, quotas(&runner.bounds)).await?;
    let violations = proof::violations(&facts, &runner.bounds, uid);
    let carrier = carrier(engine, &container);
    let engine_weight = match engine.host().unix_path() {
        // It is only a hint: an engine that does not answer now has been found good.
        Some(_) => engine.container_inspect(&container.id).await.map_or(EngineWeight::Unknown, |found| {
            engine_weight::of(found.state.pid, Path::new("/proc"), Path::new(MOUNTED))
        }),
        None => EngineWeight::Unknown,
    };
    let lacks = runtimes::lacks(&facts, &info.kernel_version);
    let engine_makes_network = !blueprint.loopback(runner).is_of_runtime();
    let runtime = blueprint.runtimes.name(runtime).to_owned();
    let image = runner.image.clone();
    Ok(TrialReport {
        image,
        facts,
        violations,
        asked,
        armed,
        warm,
        carrier,
        runtime,
        engine_makes_network,
        lacks,
        engine_weight,
    })
}

async fn warmed(engine: &Engine, container: &ArmedContainer, stop: &CancellationToken) -> Option<Duration> {
    let begun = Instant::now();
    warm::load(container, &warm::Warming::of(engine, None).await);
    tokio::select! {
        stage = container.warm.settled() => (stage == WarmStage::Stands).then(|| begun.elapsed()),
        () = tokio::time::sleep(WARM) => None,
        () = stop.cancelled() => None,
    }
}

fn quotas(bounds: &Bounds) -> Option<Quotas> {
    let quotas = Quotas { data: bounds.data, data_inodes: bounds.data_inodes, tmp: bounds.tmp };
    let cheap =
        quotas.data <= CHEAP.data && quotas.data_inodes <= CHEAP.data_inodes && quotas.tmp <= CHEAP.tmp;
    // Nothing refuses what is only watched.
    (cheap && bounds.place == DataPlace::Memory).then_some(quotas)
}

fn carrier(engine: &Engine, container: &ArmedContainer) -> TrialCarrier {
    if container.link.is_direct() {
        TrialCarrier::Direct
    } else if engine.host().unix_path().is_none() {
        TrialCarrier::Remote
    } else if !may_trace() {
        TrialCarrier::NotAllowed
    } else {
        TrialCarrier::Failed(container.link.why_indirect().unwrap_or("the agent offered none").to_owned())
    }
}

/// Removes all containers and volumes of one owner, which must be a trial's.
async fn clear(engine: &Engine, owned: &[String; 2]) -> Result<(), EngineError> {
    // Twice, since the engine may still have been carrying out the last call when the first list was made.
    for _ in 0..2 {
        if Leftovers::find(engine, owned).await?.remove_all_but(&BTreeSet::new()).await == 0 {
            break;
        }
    }
    for container in engine.container_list(owned).await? {
        container::gone(engine.container_remove(&container.id).await)?;
    }
    for volume in engine.volume_list(owned).await? {
        container::gone(engine.volume_remove(&volume.name).await)?;
    }
    Ok(())
}

/// The volumes of other builds' agents that no container has.
///
/// # Errors
/// The engine's.
pub async fn unused_agents(engine: &Engine, config: &PoolConfig) -> Result<Vec<VolumeName>, AgentError> {
    agent::unused(engine, &config.agent_files).await
}

/// The volumes of snapshots that no container has and that daemons of other stores than this one's made: each
/// stays for the next daemon of its store, even if that store is gone.
///
/// # Errors
/// The engine's.
pub async fn unused_snapshots(engine: &Engine, owner: Option<&str>) -> Result<Vec<VolumeName>, EngineError> {
    snapshots::unused_of_others(engine, owner).await
}

/// Removes what killed trials have left.
async fn remove_old(engine: &Engine) {
    let mut owners = BTreeSet::new();
    for container in engine.container_list(&[APP.to_owned()]).await.unwrap_or_default() {
        owners.extend(container.labels.get(OWNER).cloned());
    }
    for volume in engine.volume_list(&[APP.to_owned()]).await.unwrap_or_default() {
        owners.extend(volume.labels.get(OWNER).cloned());
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    for owner in owners.into_iter().filter(|owner| is_old(owner, now)) {
        let _ = clear(engine, &[APP.to_owned(), format!("{OWNER}={owner}")]).await;
    }
}

fn is_old(owner: &str, now: Duration) -> bool {
    let made = owner.strip_prefix(OWNERS).and_then(|rest| rest.split_once('-'));
    let made = made.and_then(|(time, _)| u64::from_str_radix(time, 16).ok());
    made.is_some_and(|made| Duration::from_secs(made) + OLD < now)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_a_trial_left_long_ago_is_removed() {
        let own = owner();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock");
        assert!(!is_old(&own, now), "{own}");
        assert!(is_old(&own, now + 2 * OLD), "{own}");
        for foreign in ["0123456789abcdef0123456789abcdef", "doctor-", "doctor-zz-1", "doctor-1"] {
            assert!(!is_old(foreign, now), "{foreign}");
        }
    }
}
