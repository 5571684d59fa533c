//! `paddock doctor`: reports what this host's engine really enforces, and what to do about each defect.
//!
//! ```text
//!  configuration ─► store ─► daemon ─► mounts ─► engine ─► images ─► container ─► way in ─► room ─►
//!                                                                                     way out ─► verdict
//!       each: look (collects facts, plain values) ─► judge (pure) ─► checks ─► print
//! ```
//!
//! The doctor does not believe an engine's claims where it can test them: it makes a throwaway container as
//! the pool would, and a process inside reports what it sees and how much it could use.
//!
//! It must never disturb a daemon that uses the same store or engine, nor leave anything behind, even when it
//! is interrupted. Every wait has a bound, since a disk or an engine may hang.

mod advisories;
mod capacity;
mod check;
mod configuration;
mod container;
mod daemon;
mod down;
mod engine;
mod host_users;
mod images;
mod leftovers;
mod mounts;
mod packages;
mod print;
mod runc;
mod runtimes;
mod shared_store;
mod shared_with_host;
mod snapshots;
mod store;
mod way_in;
mod way_out;
mod weights;

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use paddock_proto::message::ProbeReport;
use tokio_util::sync::CancellationToken;

use self::check::{Check, Checks, Group};
use self::print::Printer;
use crate::app::pool;
use crate::config::{Config, Loaded, LogLevel, LogSettings, Overrides};
use crate::engine::Engine;
use crate::holder::{self, LockState};
use crate::id::random_bytes;
use crate::metrics::Metrics;
use crate::pool::trial::TrialReport;
use crate::pool::{Bounds, Runner, trial};
use crate::signals::ended_by_signal;
use crate::tenants::tenants_of;

/// Time for the store's disk to answer: a mount whose server is gone never does.
const STORE: Duration = Duration::from_secs(8);
/// Time for the work in a container to stop after an interrupt: each of its steps has a bound of its own.
const ENDING: Duration = Duration::from_secs(40);

/// Exit code for an unusable configuration.
const UNUSABLE: u8 = 2;
/// Exit code after a signal, as shells report it.
const INTERRUPTED: u8 = 130;

/// The command line.
#[derive(Debug, Clone, Args)]
pub struct DoctorArguments {
    /// The configuration file of the daemon
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Print one JSON document instead of lines
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    overrides: Overrides,
}

/// Runs all checks and prints them. Returns the exit code: 0 if a daemon would serve, 1 if it would not or
/// must not, 2 for an unusable configuration.
pub fn run(arguments: &DoctorArguments, env: &BTreeMap<String, String>) -> u8 {
    let mut loaded = match Config::load(arguments.config.as_deref(), env, &arguments.overrides) {
        Ok(loaded) => loaded,
        Err(error) => return complain(&error, UNUSABLE),
    };
    // The doctor examines the daemon that `paddock run` and `paddock stdio` would use.
    let store = &mut loaded.config.store;
    if !store.is_named
        && holder::of_lock(&store.root.join("lock")) == LockState::Free
        && let Some(there) = holder::store_at(loaded.config.http.addr)
    {
        store.root = there;
    }
    // The checks report what the tried parts would log at lower levels.
    let level = if loaded.config.log.level == LogLevel::Error { LogLevel::Error } else { LogLevel::Warn };
    let logged = LogSettings { level, file: None, ..loaded.config.log.clone() };
    let _flush = crate::log::init(&logged, None, &Metrics::default());
    let runtime = match tokio::runtime::Runtime::new() {
        Ok(runtime) => runtime,
        Err(error) => return complain(&error, 1),
    };
    let stop = CancellationToken::new();
    let stopping = stop.clone();
    runtime.spawn(async move {
        ended_by_signal().await;
        stopping.cancel();
    });
    let mut printer = Printer::new(arguments.json);
    let whole = runtime.block_on(async {
        let examined = examine(arguments, &loaded, &mut printer, &stop);
        tokio::select! {
            examined = examined => examined,
            () = async { stop.cancelled().await; tokio::time::sleep(ENDING).await } => None,
        }
    });
    // A blocking thread may hang for ever on a disk that hangs.
    runtime.shutdown_background();
    match whole {
        Some(()) => printer.finish(),
        None => complain(&"interrupted", INTERRUPTED),
    }
}

/// Runs all groups in order; `None` if it was interrupted.
async fn examine(
    arguments: &DoctorArguments,
    loaded: &Loaded,
    printer: &mut Printer,
    stop: &CancellationToken,
) -> Option<()> {
    let config = &loaded.config;
    printer.print(configuration::judge(&configuration::look(arguments.config.as_deref(), loaded)));
    let looking = {
        let config = config.clone();
        tokio::task::spawn_blocking(move || store::look(&config))
    };
    let stored = stop.run_until_cancelled(tokio::time::timeout(STORE, looking)).await?;
    printer.print(match stored {
        Ok(Ok(facts)) => store::judge(&facts),
        Ok(Err(_)) | Err(_) => silent_store(config),
    });
    printer.print(daemon::judge(&stop.run_until_cancelled(daemon::look(config)).await?));
    printer.print(stop.run_until_cancelled(shared_store::examine(config)).await?);
    printer.print(stop.run_until_cancelled(mounts::examine(config)).await?);
    let (asked, reached) = stop.run_until_cancelled(engine::look(config)).await?;
    let mut judged = engine::judge(&asked);
    let failure = judged.iter_mut().find(|check| check.status == check::Status::Fail);
    let failed = failure.is_some();
    if let Some(advice) = failure.and_then(|check| check.advice.as_mut()) {
        advice.push_str(". Images, containers and room are checked only after that");
    }
    printer.print(judged);
    // Where the engine's host is another machine, nobody can be asked for its users.
    if config.engine.host.starts_with("unix:") {
        printer.print(host_users::judge(&config.pool.uid_range, &host_users::look()));
    }
    let mut seen = None;
    if let (Ok(up), Some(reached), false) = (&asked.answer, reached, failed) {
        seen = in_containers(config, &up.info, &reached, printer, stop).await?;
    }
    let found = stop.run_until_cancelled(way_out::look(config)).await?;
    printer.print(way_out::judge(&found, seen.as_ref()));
    (!stop.is_cancelled()).then_some(())
}

/// The groups that need a working engine. Returns what a process in a container saw, if there was one.
async fn in_containers(
    config: &Config,
    info: &crate::engine::EngineInfo,
    engine: &Engine,
    printer: &mut Printer,
    stop: &CancellationToken,
) -> Option<Option<ProbeReport>> {
    let pool = pool(config, trial::owner(), random_bytes());
    let found = match stop.run_until_cancelled(images::look(engine, config, &pool)).await? {
        Ok(found) => found,
        Err(error) => {
            printer.print(images::unasked(&error));
            return Some(None);
        }
    };
    printer.print(images::judge(&found));
    let left = stop.run_until_cancelled(leftovers::look(engine, &pool, config)).await?;
    printer.print(leftovers::judge(&left));
    printer.print(packages::judge(config, &found.runners));
    printer.print(snapshots::judge(config, &found.runners));
    let mut tried = None;
    // The runner that the daemon proves itself with.
    if let Some(runner) = found.runners.iter().min_by_key(|runner| runner.coding_agent).cloned() {
        let own = runner.bounds.runtime.clone();
        tried = in_one(engine, &pool, runner.clone(), printer, stop).await?;
        if let Some(tried) = &tried {
            printer.print(runtimes::judge(tried));
            let tenants = tenants_of(&config.auth.tokens, &config.auth.tokens_file.path);
            printer.print(weights::judge(&tried.engine_weight, &info.cgroup_driver, tenants));
            printer.print(way_in::judge(&tried.carrier));
        }
        let name = |asked: &str| match asked {
            "" => info.default_runtime.clone(),
            asked => asked.to_owned(),
        };
        let usual = config.engine.runtime.clone().unwrap_or_default();
        let asked = runtimes::asked(config).into_iter().map(|(_, name)| name).chain([usual]);
        let others: BTreeSet<String> =
            asked.map(|asked| name(&asked)).filter(|one| *one != name(&own)).collect();
        for runtime in others {
            let bounds = Bounds { runtime: runtime.clone(), ..runner.bounds.clone() };
            let other = Runner { bounds, warm: Vec::new(), ..runner.clone() };
            let pool = crate::app::pool(config, trial::owner(), random_bytes());
            let (tried, _) = trial::run(engine, &pool, other, stop).await;
            if stop.is_cancelled() {
                return None;
            }
            printer.print(runtimes::judge_other(&runtime, &tried.map_err(|error| error.to_string())));
        }
    }
    let facts = capacity::look(config, info, &found.runners);
    printer.print(capacity::judge(&facts));
    Some(tried.map(|tried| tried.facts))
}

/// Tries a container.
async fn in_one(
    engine: &Engine,
    pool: &crate::pool::PoolConfig,
    runner: Runner,
    printer: &mut Printer,
    stop: &CancellationToken,
) -> Option<Option<TrialReport>> {
    let warm = !runner.warm.is_empty();
    // Never cancelled from outside: it checks `stop` itself and removes everything that it made.
    let (tried, left) = trial::run(engine, pool, runner, stop).await;
    if stop.is_cancelled() {
        return None;
    }
    printer.print(container::judge(&container::ContainerFacts::new(
        &tried,
        left.as_ref(),
        warm,
        &pool.owner,
    )));
    Some(tried.ok())
}

fn silent_store(config: &Config) -> Vec<Check> {
    let mut checks = Checks::of(Group::Store);
    checks.fail(
        "writable",
        format!("the disk of the store {} does not answer within {STORE:?}", config.store.root.display()),
        "nothing could be saved: its disk hangs, or the server that it is mounted from; store.root \
         (SANDBOX_ROOT, --store) names the folder",
    );
    checks.done()
}

fn complain(error: &dyn std::fmt::Display, code: u8) -> u8 {
    let _ = writeln!(std::io::stderr(), "paddock: {error}");
    code
}
