//! `paddock doctor`: what this host's engine really enforces, and what to do about each lack.
//!
//! ```text
//!  configuration ─► store ─► engine ─► images ─► container ─► way in ─► room ─► verdict
//!       each: look (facts, plain values) ─► judge (pure) ─► checks ─► print
//! ```
//!
//! What an engine says of itself is not believed where it can be tried: a throwaway container is made as the pool makes
//! them, and a process in it says what it sees and what it could take.
//!
//! It must never disturb a daemon that lives on the same store or engine, nor leave anything behind, also when it is
//! interrupted; and every wait has a bound, for what is asked may hang.

mod check;
mod configuration;
mod container;
mod down;
mod engine;
mod images;
mod print;
mod room;
mod runc;
mod store;
mod way_in;

use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use tokio_util::sync::CancellationToken;

use self::check::{Check, Checks, Group};
use self::print::Printer;
use crate::app::pool;
use crate::config::{Config, Loaded, Log, LogLevel, Overrides};
use crate::engine::Engine;
use crate::holder::{self, Held};
use crate::id::random_bytes;
use crate::metrics::Metrics;
use crate::pool::{Runner, trial};
use crate::signals::ended_by_signal;

/// For the place of the store to answer: a server that is gone does not.
const STORE: Duration = Duration::from_secs(8);
/// For what was begun in a container to end, once it was told to: each of its steps has a bound of its own.
const ENDING: Duration = Duration::from_secs(40);

/// What the process exits with for a configuration that cannot be used.
const UNUSABLE: u8 = 2;
/// As shells say it of a program that a signal ended.
const INTERRUPTED: u8 = 130;

/// The command line.
#[derive(Debug, Clone, Args)]
pub struct Arguments {
    /// The configuration, the same as the daemon's
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// One JSON document in place of lines
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    overrides: Overrides,
}

/// Looks, and prints what it finds. What to exit with: 0 if a daemon would serve, 1 if it would not or must not, 2 for a
/// configuration that cannot be used.
pub fn run(arguments: &Arguments, env: &BTreeMap<String, String>) -> u8 {
    let mut loaded = match Config::load(arguments.config.as_deref(), env, &arguments.overrides) {
        Ok(loaded) => loaded,
        Err(error) => return complain(&error, UNUSABLE),
    };
    // What is looked at is the daemon that `paddock run` and `paddock stdio` would go to.
    let store = &mut loaded.config.store;
    if !store.is_named
        && holder::of_lock(&store.root.join("lock")) == Held::Free
        && let Some(there) = holder::store_at(loaded.config.http.addr)
    {
        store.root = there;
    }
    // What the parts that are tried out have to say stands in the checks.
    let level = if loaded.config.log.level == LogLevel::Error { LogLevel::Error } else { LogLevel::Warn };
    let logged = Log { level, file: None, ..loaded.config.log.clone() };
    let _flush = crate::log::init(&logged, &Metrics::default());
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
    // A look at a disk that hangs can be under way for ever.
    runtime.shutdown_background();
    match whole {
        Some(()) => printer.finish(),
        None => complain(&"interrupted", INTERRUPTED),
    }
}

/// All groups, one after the other; `None` if it was interrupted.
async fn examine(
    arguments: &Arguments,
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
    let stored = unless(stop, tokio::time::timeout(STORE, looking)).await?;
    printer.print(match stored {
        Ok(Ok(facts)) => store::judge(&facts),
        Ok(Err(_)) | Err(_) => silent_store(config),
    });
    let (asked, reached) = unless(stop, engine::look(config)).await?;
    let mut judged = engine::judge(&asked);
    let failure = judged.iter_mut().find(|check| check.status == check::Status::Fail);
    let failed = failure.is_some();
    if let Some(advice) = failure.and_then(|check| check.advice.as_mut()) {
        advice.push_str(". Images, containers and room are not looked at before that");
    }
    printer.print(judged);
    if let (Ok(up), Some(reached), false) = (&asked.answer, reached, failed) {
        in_containers(config, &up.info, &reached, printer, stop).await?;
    }
    (!stop.is_cancelled()).then_some(())
}

/// What takes an engine that does.
async fn in_containers(
    config: &Config,
    info: &crate::engine::EngineInfo,
    engine: &Engine,
    printer: &mut Printer,
    stop: &CancellationToken,
) -> Option<()> {
    let pool = pool(config, trial::owner(), random_bytes());
    let found = match unless(stop, images::look(engine, config, &pool)).await? {
        Ok(found) => found,
        Err(error) => {
            printer.print(images::unasked(&error));
            return Some(());
        }
    };
    printer.print(images::judge(&found));
    let mut memory = None;
    // The one that the daemon proves itself by.
    if let Some(runner) = found.runners.first().cloned() {
        memory = in_one(engine, &pool, runner, printer, stop).await?;
    }
    let facts = room::look(config, info, &pool.bounds, found.runners.len(), memory);
    printer.print(room::judge(&facts));
    Some(())
}

/// Tries a container out; how much memory it may have.
async fn in_one(
    engine: &Engine,
    pool: &crate::pool::PoolConfig,
    runner: Runner,
    printer: &mut Printer,
    stop: &CancellationToken,
) -> Option<Option<u64>> {
    let warm = !runner.warm.is_empty();
    // Never broken off in the middle: it looks by itself whether it is to stop, and removes what it made.
    let (tried, left) = trial::run(engine, pool, runner, stop).await;
    if stop.is_cancelled() {
        return None;
    }
    printer.print(container::judge(&container::Facts::new(&tried, left.as_ref(), warm, &pool.owner)));
    let tried = tried.ok();
    if let Some(tried) = &tried {
        printer.print(way_in::judge(&tried.way));
    }
    Some(tried.map(|tried| tried.asked.memory))
}

fn silent_store(config: &Config) -> Vec<Check> {
    let mut checks = Checks::of(Group::Store);
    checks.fail(
        "writable",
        format!("the place of the store {} does not answer within {STORE:?}", config.store.root.display()),
        "nothing could be saved: its disk, or the server that it is mounted from, hangs; store.root (SANDBOX_ROOT, --store) \
         names the place",
    );
    checks.done()
}

/// What comes of it, unless it is interrupted before.
async fn unless<T>(stop: &CancellationToken, future: impl Future<Output = T>) -> Option<T> {
    tokio::select! {
        done = future => Some(done),
        () = stop.cancelled() => None,
    }
}

fn complain(error: &dyn std::fmt::Display, code: u8) -> u8 {
    let _ = writeln!(std::io::stderr(), "paddock: {error}");
    code
}
