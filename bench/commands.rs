//! Shell commands by the daemon's tools: the time to the end of a command, waited for or asynchronous; of a
//! line from the moment when the program writes it to the moment when the client has it; and of much output.
//! The engine's exec does the same in [`reference_container`](crate::reference_container).
//!
//! It must never count an answer whose bytes, events and exit code were not all checked.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};

use crate::Result;
use crate::client::Client;
use crate::names::EXEC;
use crate::programs::Program;
use crate::report::Measurements;

pub(crate) const ECHO_TITLE: &str = "Shell command, echo hi";
pub(crate) const LINE_TITLE: &str = "A line, from written to read";
pub(crate) const OUTPUT_TITLE: &str = "4 MB of lines, written and read";
pub(crate) const WAITED: &str = "paddock execute_code";
pub(crate) const BEGUN: &str = "paddock async, then its output";
pub(crate) const POLLED: &str = "paddock, long poll";
pub(crate) const WATCHED: &str = "paddock, GET /mcp/events";
pub(crate) const PAGED: &str = "paddock async, page by page";

/// A session for each block, so that no block waits for the processor of another's container.
const ECHO_SESSION: &str = "bench-echo";
const LINE_SESSION: &str = "bench-line";
const OUTPUT_SESSION: &str = "bench-output";

pub(crate) const ECHO: Program = Program { language: "sh", name: "echo", code: "echo hi", prints: "hi\n" };

/// It writes one line, sleeps until that is done with, and writes the monotonic clock, which containers and
/// host share. Then it sleeps again, so that its end does not delay the line.
pub(crate) const LINE: &str = "exec python3 -c \"import time; print('up', flush=True); time.sleep(0.03); \
                               print(time.monotonic_ns(), flush=True); time.sleep(0.03)\"";

/// Lines of 80 bytes; less than the daemon keeps of one execution.
pub(crate) const OUTPUT: &str =
    "yes 0123456789012345678901234567890123456789012345678901234567890123456789012345678 | head -c 4000000";
pub(crate) const OUTPUT_LINE: &[u8] =
    b"0123456789012345678901234567890123456789012345678901234567890123456789012345678\n";
pub(crate) const OUTPUT_BYTES: usize = 4_000_000;

/// The time since this line was written, which is what it says.
pub(crate) fn since_written(line: &str) -> Result<Duration> {
    let now = clock_gettime(ClockId::Monotonic);
    let now = Duration::new(u64::try_from(now.tv_sec)?, u32::try_from(now.tv_nsec)?);
    let written = Duration::from_nanos(line.parse()?);
    now.checked_sub(written).ok_or_else(|| "a line was read before it was written".into())
}

/// Checks that all of the output came.
pub(crate) fn expect_output(got: &[u8]) -> Result<()> {
    let fine = got.len() == OUTPUT_BYTES && got.chunks(OUTPUT_LINE.len()).all(|line| line == OUTPUT_LINE);
    if fine { Ok(()) } else { Err(format!("{} bytes, or others than were written", got.len()).into()) }
}

/// `execute_code`.
pub(crate) async fn wait(client: &mut Client) -> Result<Duration> {
    let (document, taken) = client.call("execute_code", command(ECHO_SESSION, ECHO.code)).await?;
    echoed(&document)?;
    Ok(taken)
}

/// `execute_code_async`, and `get_execution_output` with `wait` up to its end.
pub(crate) async fn begin_and_wait(client: &mut Client) -> Result<Duration> {
    let (begun, beginning) = client.call("execute_code_async", command(ECHO_SESSION, ECHO.code)).await?;
    let (document, waiting) = client.call("get_execution_output", of(&begun, None)).await?;
    echoed(&document)?;
    Ok(beginning + waiting)
}

/// A line, by a long poll that waits for it.
pub(crate) async fn poll(client: &mut Client) -> Result<Duration> {
    let (begun, _) = client.call("execute_code_async", command(LINE_SESSION, LINE)).await?;
    let mut since = json!(0);
    let taken = loop {
        let (document, _) = client.call("get_execution_output", of(&begun, Some(&since))).await?;
        if let Some(line) = time_of(events(&document["output"])) {
            break since_written(line)?;
        }
        since = document["next_since"].clone();
    };
    ended(client, &begun).await?;
    Ok(taken)
}

/// A line, by the event stream of the caller's executions.
pub(crate) async fn watch(client: &mut Client) -> Result<Duration> {
    let mut feed = client.watch().await?;
    let (begun, _) = client.call("execute_code_async", command(LINE_SESSION, LINE)).await?;
    let taken = loop {
        let note = feed.next().await?;
        let own = note["params"]["execution_id"] == begun["execution_id"];
        if let Some(line) = time_of(events(&note["params"]["events"]).filter(|_| own)) {
            break since_written(line)?;
        }
    };
    ended(client, &begun).await?;
    Ok(taken)
}

/// Much output, page by page while it is written.
pub(crate) async fn pages(client: &mut Client) -> Result<Duration> {
    let began = Instant::now();
    let (begun, _) = client.call("execute_code_async", command(OUTPUT_SESSION, OUTPUT)).await?;
    let mut since = json!(0);
    let mut pages = Vec::new();
    loop {
        let (document, _) = client.call("get_execution_output", of(&begun, Some(&since))).await?;
        since = document["next_since"].clone();
        let over = document["status"] != "running" && document["more"] == false;
        pages.push(document);
        if over {
            break;
        }
    }
    let taken = began.elapsed();
    let last = pages.last().ok_or("no page")?;
    if last["status"] != "completed" || last["exit_code"] != 0 {
        return Err(format!("it ended with {} {}", last["status"], last["exit_code"]).into());
    }
    let mut got = Vec::with_capacity(OUTPUT_BYTES);
    for event in
        pages.iter().flat_map(|page| events(&page["output"])).filter(|event| event["type"] == "stdout")
    {
        got.extend_from_slice(event["data"].as_str().unwrap_or_default().as_bytes());
        got.extend((event["eol"] != false).then_some(b'\n'));
    }
    expect_output(&got)?;
    Ok(taken)
}

/// What the times of a lot come to.
pub(crate) fn rates(report: &mut Measurements) {
    for name in [PAGED, EXEC] {
        if let Some(rate) = rate(report, name) {
            report.block(OUTPUT_TITLE).fact(name, rate, "MB/s");
        }
    }
}

/// Bytes a microsecond, at the median.
pub(crate) fn rate(report: &Measurements, name: &str) -> Option<f64> {
    let median = report.figures(OUTPUT_TITLE, name)?.median;
    #[expect(clippy::cast_precision_loss, reason = "millions")]
    Some(OUTPUT_BYTES as f64 / median as f64)
}

fn command(session: &str, command: &str) -> Value {
    json!({ "command": command, "session_id": session })
}

fn of(begun: &Value, since: Option<&Value>) -> Value {
    let mut arguments = json!({ "execution_id": begun["execution_id"], "wait": true, "lines": true });
    if let Some(since) = since {
        arguments["since"] = since.clone();
    }
    arguments
}

fn events(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

/// The second line of [`LINE`], which says when it was written.
fn time_of<'e>(mut events: impl Iterator<Item = &'e Value>) -> Option<&'e str> {
    events.find_map(|event| {
        event["data"].as_str().filter(|data| data.starts_with(|c: char| c.is_ascii_digit()))
    })
}

fn echoed(document: &Value) -> Result<()> {
    let shape: Vec<_> = events(&document["output"]).map(|event| (&event["type"], &event["data"])).collect();
    let whole = matches!(&shape[..], [ready, (out, data), exit]
        if *ready.0 == "ready" && **out == "stdout" && **data == "hi" && *exit.0 == "exit");
    if whole && document["exit_code"] == 0 { Ok(()) } else { Err(format!("unexpected: {document}").into()) }
}

/// Waits for its end, outside of any measured time, so that it disturbs no other sample.
async fn ended(client: &mut Client, begun: &Value) -> Result<()> {
    let (document, _) = client.call("get_execution_output", of(begun, None)).await?;
    if document["exit_code"] == 0 { Ok(()) } else { Err(format!("unexpected: {document}").into()) }
}
