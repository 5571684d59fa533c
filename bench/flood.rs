//! A quiet command beside 64 commands that write as fast as they can: how long an echo of a line takes, and
//! how much memory the daemon and its agents have meanwhile. It has a daemon of its own, which lets so many
//! commands run.
//!
//! It must never count an echo while fewer floods were running.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::Result;
use crate::client::Client;
use crate::daemon;
use crate::host::{agents, status};
use crate::report::Measurements;
use crate::setup::Setup;
use crate::times::Times;

pub(crate) const TITLE: &str = "A quiet command beside 64 floods";
pub(crate) const ALONE: &str = "a line in and out, alone";
pub(crate) const BESIDE: &str = "the same, beside 64 floods";
pub(crate) const GROWN: &str = "daemon, grown by 64 floods";

const FLOODS: usize = 64;
const SESSIONS: usize = 4;
const QUIET_SESSION: &str = "bench-quiet";
const ECHO: &str = "while read -r line; do echo \"$line\"; done";
const FLOOD: &str =
    "exec yes 'a line of a flood, of some length, as a build or a test run writes them by the thousand'";
const SAMPLES: u32 = 200;
/// Between two lines: nobody types faster.
const REST: Duration = Duration::from_millis(10);

pub(crate) async fn measure(setup: &mut Setup, report: &mut Measurements) -> Result<()> {
    let engine = setup.engine.clone();
    let (daemon, client) = setup.other("flood", daemon::FLOODED).await?;
    let quiet = begin(client, QUIET_SESSION, ECHO, true).await?;
    let mut since = 1;
    let mut alone = Times::default();
    echoes(client, &quiet, &mut since, &mut alone).await?;
    let before = status(daemon.pid, "VmRSS")?;

    let mut floods = Vec::new();
    for n in 0..FLOODS {
        floods.push(begin(client, &format!("bench-flood-{}", n % SESSIONS), FLOOD, false).await?);
    }
    let mut beside = Times::default();
    echoes(client, &quiet, &mut since, &mut beside).await?;
    let grown = status(daemon.pid, "VmRSS")? - before;
    let agents = agents(&engine, &daemon.label).await?;
    let largest = agents.iter().map(|agent| agent.rss).fold(0.0, f64::max);
    for flood in &floods {
        let (document, _) = client.call("get_execution_status", json!({ "execution_id": flood })).await?;
        if document["status"] != "running" {
            return Err(format!("a flood was over too soon: {document}").into());
        }
    }
    let block = report.block(TITLE);
    block.line(ALONE, alone, None);
    block.line(BESIDE, beside, None);
    block.fact(GROWN, grown / 1024.0, "MiB");
    block.fact("the largest agent, of 16 floods, resident", largest / 1024.0, "MiB");
    end(client).await
}

async fn begin(client: &mut Client, session: &str, command: &str, interactive: bool) -> Result<Value> {
    let arguments = json!({ "command": command, "session_id": session, "interactive": interactive });
    let (begun, _) = client.call("execute_code_async", arguments).await?;
    Ok(begun["execution_id"].clone())
}

/// Lines in and out, one after the other.
async fn echoes(client: &mut Client, quiet: &Value, since: &mut u64, times: &mut Times) -> Result<()> {
    for n in 0..SAMPLES {
        tokio::time::sleep(REST).await;
        let line = format!("line {n}");
        let sent = Instant::now();
        client.call("send_stdin", json!({ "execution_id": quiet, "input_data": line })).await?;
        let asked = json!({ "execution_id": quiet, "wait": true, "since": since });
        let (document, _) = client.call("get_execution_output", asked).await?;
        let taken = sent.elapsed();
        if document["output"][0]["data"] != json!(line) {
            return Err(format!("another echo: {document}").into());
        }
        *since = document["next_since"].as_u64().ok_or("no number")?;
        times.record(taken)?;
    }
    Ok(())
}

/// Ends the floods with their sessions.
async fn end(client: &mut Client) -> Result<()> {
    for n in 0..SESSIONS {
        let session = format!("bench-flood-{n}");
        client.call("close_session", json!({ "session_id": session, "delete_files": true })).await?;
    }
    Ok(())
}
