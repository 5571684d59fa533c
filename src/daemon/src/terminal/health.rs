//! `paddock health`: whether the daemon of the store answers, for the health check of a container and for
//! scripts. It needs no shell, no `curl` and no token.
//!
//! It must never start a daemon, and never wait longer than its bound.

use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use http::StatusCode;
use serde_json::Value;

use super::client::Client;
use crate::api::SocketKind;
use crate::config::Config;
use crate::local_daemon::LocalDaemon;
use crate::metrics::Metrics;

/// The longest wait for an answer: the daemon gives it from memory.
const PATIENCE: Duration = Duration::from_secs(5);

/// The command line.
#[derive(Debug, Clone, Args)]
pub struct HealthArguments {
    /// Fail also if a run would not be served: without an engine, a runner image, or a store that can be
    /// written
    #[arg(long)]
    ready: bool,
}

/// Asks the daemon and prints its answer in one line. Returns the exit code: 0, or 1 if no daemon answers
/// or, with `--ready`, if it would not serve a run.
pub async fn health(arguments: HealthArguments, config: Config) -> ExitCode {
    let store = config.store.root.display().to_string();
    let asked = tokio::time::timeout(PATIENCE, ask(arguments.ready, config)).await;
    let (line, code) = match asked {
        Ok(Ok((status, body))) => (sentence(&body), if status.is_success() { 0 } else { 1 }),
        Ok(Err(why)) => (format!("no daemon of the store {store} answers: {why}"), 1),
        Err(_) => (format!("the daemon of the store {store} does not answer within {PATIENCE:?}"), 1),
    };
    let _ = writeln!(std::io::stdout(), "{line}");
    ExitCode::from(code)
}

/// What the running daemon of the store says that does not work, or why it says nothing; `None` if none runs.
pub(crate) async fn degraded_now(config: Config) -> Option<Result<Vec<String>, String>> {
    let mut local = LocalDaemon::new(config, Metrics::default());
    drop(local.connect(SocketKind::Http).await.ok()?);
    let asked = tokio::time::timeout(PATIENCE, Client::of(&local).state("/health")).await;
    Some(match asked {
        Ok(Ok((_, body))) => Ok(reasons(&body)),
        Ok(Err(why)) => Err(why.to_string()),
        Err(_) => Err(format!("it does not answer within {PATIENCE:?}")),
    })
}

async fn ask(ready: bool, config: Config) -> Result<(StatusCode, Value), super::Failed> {
    let mut local = LocalDaemon::new(config, Metrics::default());
    drop(local.connect(SocketKind::Http).await.map_err(super::Failed::new)?);
    Client::of(&local).state(if ready { "/ready" } else { "/health" }).await
}

/// The state as a sentence: `healthy`, or `unready: no runner image was found`.
fn sentence(body: &Value) -> String {
    let state = body["status"].as_str().unwrap_or("the answer has no status");
    let reasons = reasons(body);
    if reasons.is_empty() { state.to_owned() } else { format!("{state}: {}", reasons.join(", ")) }
}

fn reasons(body: &Value) -> Vec<String> {
    let reasons = body["degraded"].as_array().or_else(|| body["missing"].as_array());
    reasons.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_state_is_one_sentence_with_its_reasons() {
        assert_eq!(sentence(&json!({ "status": "healthy" })), "healthy");
        assert_eq!(sentence(&json!({ "status": "healthy", "degraded": ["a", "b"] })), "healthy: a, b");
        assert_eq!(sentence(&json!({ "status": "unready", "missing": ["a"] })), "unready: a");
        assert_eq!(sentence(&json!(1)), "the answer has no status");
    }
}
