//! A container tried out for whoever wants to know what containers are on this engine: made as the pool makes them, looked
//! at, removed, with the volume that its agent comes from.
//!
//! It must never use anything that a daemon has (its owner id, its agent volume, a UID of its containers), nor leave
//! anything behind that the engine lets go of.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use paddock_proto::message::{Facts, Quotas};
use tokio_util::sync::CancellationToken;

use super::container::{self, Armed, StartError};
use super::core::Uid;
use super::leftovers::Leftovers;
use super::proof::{self, Fault};
use super::runner::{self, Runner};
use super::spec::{APP, Blueprint, OWNER};
use super::warm::Stage;
use super::{AgentError, Bounds, PoolConfig, agent, warm};
use crate::engine::{Engine, EngineError, NameError};
use crate::id::random_hex;
use crate::link::{LinkError, may_trace};

/// How long a warm part is waited for.
const WARM: Duration = Duration::from_secs(20);
/// A container of a trial that was killed ends itself after this.
const ORPHAN_AFTER: Duration = Duration::from_secs(60);
/// What a trial that was killed left is removed by a later one, once it is as old as this.
const OLD: Duration = Duration::from_secs(60 * 60);
/// What trials are owned by begins so; then the time and something random follow.
const OWNERS: &str = "doctor-";
/// What is filled to try a quota out: more takes its time, and memory that others may want.
const CHEAP: Quotas = Quotas { data: 512 << 20, data_inodes: 100_000, tmp: 512 << 20 };

/// Why nothing could be tried.
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
    Start(#[from] StartError),
    /// It came up and could not be asked.
    #[error("the container came up and could not be asked: {0}")]
    Link(#[from] LinkError),
    /// Cannot happen: the names are made here.
    #[error(transparent)]
    Name(#[from] NameError),
    /// Cannot happen either.
    #[error("no name can be made for it")]
    NoName,
    /// It was broken off.
    #[error("it was broken off")]
    Stopped,
}

/// What a container turned out to be.
#[derive(Debug, Clone)]
pub struct Tried {
    /// What it was made of.
    pub image: String,
    /// What a process in it sees.
    pub facts: Facts,
    /// What of that must not be.
    pub faults: Vec<Fault>,
    /// What it was to be.
    pub asked: Asked,
    /// From nothing to an agent that answers.
    pub armed: Duration,
    /// How long its warm part took after that; `None` if it does not stand, or there is none.
    pub warm: Option<Duration>,
    /// The way in.
    pub way: Way,
}

/// The bounds of a container, with what its warm part has on top.
#[derive(Debug, Clone, PartialEq)]
pub struct Asked {
    /// What it runs as.
    pub uid: u32,
    /// What is configured.
    pub bounds: Bounds,
    /// Bytes of memory in all.
    pub memory: u64,
    /// Processes in all.
    pub pids: u64,
}

/// How bytes reach an agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Way {
    /// Without the engine.
    Direct,
    /// Through the engine: this process may not trace others.
    NotAllowed,
    /// Through the engine, whose address is not a Unix socket.
    Remote,
    /// Through the engine: it was tried, and this is what happened.
    Failed(String),
}

/// Looks at an engine's images for all that runs, and for what is to be said about those left out.
///
/// # Errors
/// The engine's.
pub async fn survey(engine: &Engine, config: &PoolConfig) -> Result<(Vec<Runner>, Vec<String>), EngineError> {
    let found = runner::find(engine, &config.images, config.warm_parts, &BTreeMap::new()).await?;
    Ok((found.runners.into_values().collect(), found.warnings))
}

/// An owner id that nobody else has.
pub fn owner() -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    format!("{OWNERS}{now:x}-{}", random_hex::<6>())
}

/// Makes a container of `runner` and looks at it; the second value says what could not be removed again. Between two
/// steps it looks whether it is to stop.
pub async fn run(
    engine: &Engine,
    config: &PoolConfig,
    runner: Runner,
    stop: &CancellationToken,
) -> (Result<Tried, TrialError>, Option<EngineError>) {
    remove_old(engine).await;
    let owned = [APP.to_owned(), format!("{OWNER}={}", config.owner)];
    let tried = attempt(engine, config, runner, &owned, stop).await;
    (tried, clear(engine, &owned).await.err())
}

async fn attempt(
    engine: &Engine,
    config: &PoolConfig,
    runner: Runner,
    owned: &[String; 2],
    stop: &CancellationToken,
) -> Result<Tried, TrialError> {
    let go_on = || if stop.is_cancelled() { Err(TrialError::Stopped) } else { Ok(()) };
    let used = Leftovers::find(engine, &[APP.to_owned(), APP.to_owned()]).await?.uids();
    let free = config.settings.uid_range.clone().rev().map(Uid).find(|uid| !used.contains(uid));
    let uid = free.unwrap_or(Uid(*config.settings.uid_range.end()));
    let volume: crate::engine::VolumeName = format!("paddock-agent-{}", config.owner).parse()?;
    let labels = owned.iter().filter_map(|label| label.split_once('='));
    let labels = labels.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    go_on()?;
    agent::put(engine, &runner.image_id, owned, volume.clone(), labels).await?;
    go_on()?;
    let maps_users = engine.info().await?.maps_users();
    let (owner, bounds) = (config.owner.clone(), config.bounds.clone());
    let blueprint = Blueprint { owner, agent: volume, bounds, maps_users };
    let runner = Arc::new(runner);
    let plan = blueprint.plan(&runner, uid).ok_or(TrialError::NoName)?;
    let amount = |n: Option<i64>| n.and_then(|n| u64::try_from(n).ok()).unwrap_or(u64::MAX);
    let host = &plan.container.host_config;
    let (memory, pids) = (amount(host.memory), amount(host.pids_limit));
    let asked = Asked { uid: uid.0, bounds: config.bounds.clone(), memory, pids };
    let mut terms = config.terms.clone();
    terms.orphan_after = ORPHAN_AFTER;
    let begun = Instant::now();
    let container = container::start(engine, plan, uid, runner.clone(), &terms).await?;
    let armed = begun.elapsed();
    go_on()?;
    let warm = warmed(engine, &container, stop).await;
    go_on()?;
    let facts = proof::ask(&container, quotas(&config.bounds)).await?;
    let faults = proof::faults(&facts, &config.bounds, uid);
    let way = way(engine, &container);
    Ok(Tried { image: runner.image.clone(), facts, faults, asked, armed, warm, way })
}

async fn warmed(engine: &Engine, container: &Armed, stop: &CancellationToken) -> Option<Duration> {
    let begun = Instant::now();
    warm::ask(container, &warm::turns(engine).await);
    tokio::select! {
        stage = container.warm.settled() => (stage == Stage::Stands).then(|| begun.elapsed()),
        () = tokio::time::sleep(WARM) => None,
        () = stop.cancelled() => None,
    }
}

fn quotas(bounds: &Bounds) -> Option<Quotas> {
    let quotas = Quotas { data: bounds.data, data_inodes: bounds.data_inodes, tmp: bounds.tmp };
    let cheap =
        quotas.data <= CHEAP.data && quotas.data_inodes <= CHEAP.data_inodes && quotas.tmp <= CHEAP.tmp;
    cheap.then_some(quotas)
}

fn way(engine: &Engine, container: &Armed) -> Way {
    if container.link.is_direct() {
        Way::Direct
    } else if engine.host().unix_path().is_none() {
        Way::Remote
    } else if !may_trace() {
        Way::NotAllowed
    } else {
        Way::Failed(container.link.why_indirect().unwrap_or("the agent offered none").to_owned())
    }
}

/// Removes all of one owner, which nobody but a trial has.
async fn clear(engine: &Engine, owned: &[String; 2]) -> Result<(), EngineError> {
    // What was asked last may still have been under way when it was looked the first time.
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

/// Removes what trials left that were killed.
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
