//! `GET /status`: the daemon's state and the caller's latest runs, for people; the page shows it.
//!
//! It requires a token if one is configured. It must never reveal another owner's runs, nor any program's
//! output.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use http::{StatusCode, Uri};
use percent_encoding::percent_decode_str;
use serde_json::{Value, json};

use super::body::{Answer, json as answer};
use crate::build;
use crate::execution::Execution;
use crate::pool::SnapshotState;
use crate::run_history::{PastRun, title};
use crate::tools::Tools;

/// The most runs and executions in one answer, together.
const RECENT: usize = 50;

/// Answers `{version, commit, uptime_seconds, engine, pool: [{language, image, …}], workspaces, sessions,`
/// `executions, network, agents: [{agent, model}], recent: […]}`; `workspaces` counts the kept ones, which
/// have no container; `network` is `egress.mode`, and `model` whether the caller has a model that the agent
/// could use; `snapshot` of a runner is null if its image takes none, else `{age_seconds, bytes}` of the one
/// that new containers restore, or `{none}` with the reason why they import, and where one is being compared
/// with its digest also `{bytes_checked, bytes}`. `title` in `recent` is the first
/// line of the code, the command or the task.
///
/// With `?session=ID`, `recent` has only the runs of that session.
pub(super) async fn status(tools: &Tools, owner: &str, uri: &Uri, begun: Instant) -> Answer {
    let asked = session(uri);
    let (running, most) = tools.services.executions.under_way();
    let (kept, most_kept) = tools.services.sessions.kept_workspaces();
    let document = json!({
        "version": build::VERSION,
        "commit": build::COMMIT,
        "uptime_seconds": begun.elapsed().as_secs(),
        "engine": { "up": tools.services.pool.engine_up() },
        "pool": pool(tools).await,
        "agents": agents(tools, owner),
        "workspaces": { "kept": kept, "max": most_kept },
        "sessions": { "live": tools.services.sessions.live(), "max": tools.services.sessions.bounds().max },
        "executions": { "running": running, "max": most },
        "network": tools.services.egress.mode().as_str(),
        "recent": recent(tools, owner, asked.as_deref()),
    });
    answer(StatusCode::OK, &document)
}

/// The session that the query asks for.
fn session(uri: &Uri) -> Option<String> {
    let given = uri.query()?.split('&').find_map(|pair| pair.strip_prefix("session="))?;
    let given = given.replace('+', " ");
    Some(percent_decode_str(&given).decode_utf8_lossy().into_owned()).filter(|id| !id.is_empty())
}

/// An object for each language.
async fn pool(tools: &Tools) -> Vec<Value> {
    let snapshot = tools.services.pool.snapshot().await;
    let runners = tools.services.pool.languages();
    let snapshots = tools.services.pool.snapshots();
    let line = |(language, (id, runner)): (&String, &(_, std::sync::Arc<crate::pool::Runner>))| {
        let now = snapshot.as_ref().and_then(|all| all.runners.get(id)).copied().unwrap_or_default();
        json!({
            "language": language,
            "image": runner.image,
            "warm": !runner.warm.is_empty(),
            "snapshot": snapshots.get(language).map(snapshot_of),
            "idle": now.idle,
            "starting": now.starting,
            "leased": now.leased,
            "waiting": now.waiters,
            "target": runner.idle,
        })
    };
    runners.iter().map(line).collect()
}

/// The snapshot that new containers of a runner restore their warm part from, or why they import.
fn snapshot_of(state: &SnapshotState) -> Value {
    match state {
        SnapshotState::Used(snapshot) => {
            json!({ "age_seconds": snapshot.age().as_secs(), "bytes": snapshot.bytes })
        }
        SnapshotState::Checking { bytes, read } => json!({
            "none": "that of an earlier daemon is being compared with its digest",
            "bytes_checked": read.load(Ordering::Relaxed),
            "bytes": bytes,
        }),
        SnapshotState::Unsupported(why) => json!({ "none": format!("it is not possible here: {why}") }),
        SnapshotState::Without(why) => json!({ "none": why }),
    }
}

/// The coding agents that there are.
fn agents(tools: &Tools, owner: &str) -> Vec<Value> {
    let all = tools.agents(owner).into_iter();
    all.map(|(agent, model)| json!({ "agent": agent, "model": model })).collect()
}

/// The owner's latest runs of code and commands, the newest first.
fn recent(tools: &Tools, owner: &str, session: Option<&str>) -> Vec<Value> {
    let runs = tools.services.run_history.list(owner, session).into_iter();
    let mut all: Vec<(SystemTime, Value)> = runs.map(|run| (run.began, of_run(&run))).collect();
    let is_asked = |one: &&std::sync::Arc<Execution>| session.is_none_or(|id| one.session.as_str() == id);
    let commands = tools.services.executions.newest(owner, usize::MAX);
    all.extend(commands.iter().filter(is_asked).take(RECENT).map(|one| {
        (UNIX_EPOCH + Duration::from_millis(one.spec.started_ms), of_command(one, &tools.exec_runner))
    }));
    all.sort_by_key(|(began, _)| std::cmp::Reverse(*began));
    all.into_iter().take(RECENT).map(|(_, one)| one).collect()
}

fn of_run(run: &PastRun) -> Value {
    json!({
        "kind": "run",
        "id": run.id,
        "session_id": run.session,
        "language": run.language,
        "title": run.title,
        "status": run.status,
        "exit_code": run.exit_code,
        "began": time(run.began),
        "duration_ms": run.took.map(|took| (took.as_secs_f64() * 1e6).round() / 1e3),
    })
}

fn of_command(one: &Execution, language: &str) -> Value {
    let end = one.end();
    let task = one.spec.task.as_ref();
    json!({
        "kind": if task.is_some() { "task" } else { "command" },
        "id": one.id,
        "session_id": one.session.as_str(),
        "language": task.map_or(language, |task| &task.agent),
        "title": title(&one.spec.command),
        "status": one.state().as_str(),
        "exit_code": end.as_ref().and_then(|end| end.exit_code),
        "began": time(UNIX_EPOCH + Duration::from_millis(one.spec.started_ms)),
        "duration_ms": end.map(|end| end.duration_ms),
    })
}

fn time(at: SystemTime) -> String {
    humantime::format_rfc3339_millis(at).to_string()
}
