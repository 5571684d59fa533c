//! `paddock cluster`: the nodes as the daemon of the store sees them, and draining this one.
//!
//! It must never start a daemon, and never wait longer than its bound.

use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand};
use http::{Method, StatusCode};
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
pub struct ClusterArguments {
    #[command(subcommand)]
    what: ClusterCommand,
}

#[derive(Debug, Clone, Subcommand)]
enum ClusterCommand {
    /// Show the nodes as this one sees them: their state, sessions and room
    Status {
        /// Print the answer of the daemon as JSON
        #[arg(long)]
        json: bool,
    },
    /// Take no new sessions at this node, and hand over those that it has. It stays so until it is undone, or
    /// the daemon is started again
    Drain {
        /// Take new sessions again
        #[arg(long)]
        undo: bool,
    },
}

/// Asks the daemon and prints its answer. Returns the exit code: 0, or 1 if no daemon answers or it is alone.
pub async fn cluster(arguments: ClusterArguments, config: Config) -> ExitCode {
    let store = config.store.root.display().to_string();
    let (method, path) = match arguments.what {
        ClusterCommand::Status { .. } => (Method::GET, "/cluster"),
        ClusterCommand::Drain { undo: false } => (Method::POST, "/cluster/drain"),
        ClusterCommand::Drain { undo: true } => (Method::POST, "/cluster/resume"),
    };
    let is_json = matches!(arguments.what, ClusterCommand::Status { json: true });
    let asked = tokio::time::timeout(PATIENCE, ask(method, path, config)).await;
    let (text, code) = match asked {
        Ok(Ok((status, body))) if !status.is_success() => {
            (body["message"].as_str().unwrap_or("the daemon refused").to_owned(), 1)
        }
        Ok(Ok((_, body))) if is_json => (body.to_string(), 0),
        Ok(Ok((_, body))) => (table(&body), 0),
        Ok(Err(why)) => (format!("no daemon of the store {store} answers: {why}"), 1),
        Err(_) => (format!("the daemon of the store {store} does not answer within {PATIENCE:?}"), 1),
    };
    let _ = writeln!(std::io::stdout(), "{text}");
    ExitCode::from(code)
}

async fn ask(
    method: Method,
    path: &'static str,
    config: Config,
) -> Result<(StatusCode, Value), super::Failed> {
    let mut local = LocalDaemon::new(config, Metrics::default());
    drop(local.connect(SocketKind::Http).await.map_err(super::Failed::new)?);
    Client::of(&local).ask_for(method, path).await
}

/// The nodes, one a line; this one first.
fn table(body: &Value) -> String {
    let nodes = body["nodes"].as_array().map_or(&[][..], Vec::as_slice);
    let number = |value: &Value| value.as_u64().map_or_else(|| "-".to_owned(), |number| number.to_string());
    let line = |node: &Value| {
        let silent = node["silent_ms"].as_u64().unwrap_or_default();
        let trip = node["round_trip_us"].as_u64();
        [
            node["name"].as_str().unwrap_or("-").to_owned(),
            node["address"].as_str().unwrap_or("this node").to_owned(),
            node["state"].as_str().unwrap_or("-").to_owned(),
            number(&node["owned"]),
            number(&node["sessions"]),
            number(&node["free"]),
            if trip.is_none() {
                "-".to_owned()
            } else {
                format!("{}.{} s ago", silent / 1000, silent % 1000 / 100)
            },
            trip.map_or_else(|| "-".to_owned(), |us| format!("{}.{} ms", us / 1000, us % 1000 / 100)),
            node["version"].as_str().unwrap_or("-").to_owned(),
        ]
    };
    let heads =
        ["NODE", "ADDRESS", "STATE", "OWNED", "WITH CONTAINER", "FREE", "SEEN", "ROUND TRIP", "VERSION"];
    let lines: Vec<_> = std::iter::once(heads.map(str::to_owned)).chain(nodes.iter().map(line)).collect();
    let widths: Vec<_> = (0..heads.len())
        .map(|at| lines.iter().map(|line| line[at].len()).max().unwrap_or_default())
        .collect();
    let padded = lines.iter().map(|line| {
        let cells = line.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    });
    padded.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_node_has_a_line() {
        let own = json!({ "name": "a", "address": null, "state": "draining", "owned": 12, "sessions": 3,
            "free": 7, "silent_ms": 0, "round_trip_us": null, "version": "0.1.0" });
        let other = json!({ "name": "node-b", "address": "10.0.0.2:7946", "state": "up", "owned": 1,
            "sessions": 0, "free": 10, "silent_ms": 1234, "round_trip_us": 987, "version": "0.1.0" });
        let shown = table(&json!({ "name": "a", "nodes": [own, other] }));
        let lines: Vec<_> = shown.lines().collect();
        assert_eq!(lines.len(), 3);
        assert!(lines[1].starts_with("a       this node      draining  12     3"), "{shown}");
        assert!(lines[2].ends_with("10    1.2 s ago  0.9 ms      0.1.0"), "{shown}");
    }
}
