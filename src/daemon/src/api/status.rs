//! `GET /status`: how the daemon stands and what the caller ran last, for people who look on; the page shows it.
//!
//! Needs a token where one is configured. It must never tell of another owner's runs, nor what any program said.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use http::{StatusCode, Uri};
use percent_encoding::percent_decode_str;
use serde_json::{Value, json};

use super::body::{Answer, json as answer};
use crate::build;
use crate::execution::Execution;
use crate::recent::Ran;
use crate::tools::Tools;

/// Runs and executions of one answer, together.
const RECENT: usize = 50;

/// `{version, commit, uptime_seconds, engine, pool: [{language, image, …}], sessions, executions, recent: […]}`; with
/// `?session=ID` only what ran in that session is in `recent`.
pub(super) async fn status(tools: &Tools, owner: &str, uri: &Uri, begun: Instant) -> Answer {
    let asked = session(uri);
    let (running, most) = tools.executions.under_way();
    let document = json!({
        "version": build::VERSION,
        "commit": build::COMMIT,
        "uptime_seconds": begun.elapsed().as_secs(),
        "engine": { "up": tools.pool.engine_up() },
        "pool": pool(tools).await,
        "sessions": { "live": tools.sessions.live(), "max": tools.sessions.bounds().max },
        "executions": { "running": running, "max": most },
        "recent": recent(tools, owner, asked.as_deref()),
    });
    answer(StatusCode::OK, &document)
}

/// The session that is asked for.
fn session(uri: &Uri) -> Option<String> {
    let given = uri.query()?.split('&').find_map(|pair| pair.strip_prefix("session="))?;
    let given = given.replace('+', " ");
    Some(percent_decode_str(&given).decode_utf8_lossy().into_owned()).filter(|id| !id.is_empty())
}

/// A line for each runner.
async fn pool(tools: &Tools) -> Vec<Value> {
    let snapshot = tools.pool.snapshot().await;
    let runners = tools.pool.runners();
    let line = |(language, (id, runner)): (&String, &(_, std::sync::Arc<crate::pool::Runner>))| {
        let now = snapshot.as_ref().and_then(|all| all.runners.get(id)).copied().unwrap_or_default();
        json!({
            "language": language,
            "image": runner.image,
            "warm": !runner.warm.is_empty(),
            "idle": now.idle,
            "starting": now.starting,
            "leased": now.leased,
            "waiting": now.waiters,
            "target": tools.pool.settings().idle_per_runner,
        })
    };
    runners.iter().map(line).collect()
}

/// What the owner ran last, code and commands, the newest first.
fn recent(tools: &Tools, owner: &str, session: Option<&str>) -> Vec<Value> {
    let runs = tools.recent.list(owner, session).into_iter();
    let mut all: Vec<(SystemTime, Value)> = runs.map(|run| (run.began, of_run(&run))).collect();
    let is_asked = |one: &&std::sync::Arc<Execution>| session.is_none_or(|id| one.session.as_str() == id);
    let commands = tools.executions.newest(owner, usize::MAX);
    all.extend(commands.iter().filter(is_asked).take(RECENT).map(|one| {
        (UNIX_EPOCH + Duration::from_millis(one.about.started_ms), of_command(one, &tools.exec_runner))
    }));
    all.sort_by_key(|(began, _)| std::cmp::Reverse(*began));
    all.into_iter().take(RECENT).map(|(_, one)| one).collect()
}

fn of_run(run: &Ran) -> Value {
    json!({
        "kind": "run",
        "id": run.id,
        "session_id": run.session,
        "language": run.language,
        "status": run.status,
        "exit_code": run.exit_code,
        "began": time(run.began),
        "duration_ms": run.took.map(|took| (took.as_secs_f64() * 1e6).round() / 1e3),
    })
}

fn of_command(one: &Execution, language: &str) -> Value {
    let end = one.end();
    json!({
        "kind": "command",
        "id": one.id,
        "session_id": one.session.as_str(),
        "language": language,
        "status": one.state().as_str(),
        "exit_code": end.as_ref().and_then(|end| end.exit_code),
        "began": time(UNIX_EPOCH + Duration::from_millis(one.about.started_ms)),
        "duration_ms": end.map(|end| end.duration_ms),
    })
}

fn time(at: SystemTime) -> String {
    humantime::format_rfc3339_millis(at).to_string()
}
