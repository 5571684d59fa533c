//! A task: how long until a coding agent asks its model for the first time, beside the same program started
//! by hand on this host.
//!
//! The program is copied out of the agent's image. The model is a server of this process, which notes when a
//! request arrives and answers that the task is done. The daemon is one of its own, with an idle container
//! for the agent. It must never compare two versions of the program.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::process::Command;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::Result;
use crate::report::Measurements;
use crate::setup::Setup;
use crate::times::Times;

pub(crate) const TITLE: &str = "Task: to the agent's first request";
pub(crate) const BY_HAND: &str = "claude, started by hand";
pub(crate) const NEW: &str = "paddock, a new session";
pub(crate) const AGAIN: &str = "paddock, the next task of a session";

const AGENT: &str = "claude-code";
const IMAGE: &str = "paddock-runner-claude-code";
/// Where the image has its program.
const PROGRAM: &str = "/usr/local/bin/claude";
/// Samples of each row.
const TURNS: usize = 9;
/// For one start.
const PATIENCE: Duration = Duration::from_secs(60);

/// The answer of the model, as a stream: the words "done".
const ANSWER: &str = "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"id\":\"msg_1\",\
\"type\":\"message\",\"role\":\"assistant\",\"model\":\"m\",\"content\":[],\"stop_reason\":null,\
\"stop_sequence\":null,\"usage\":{\"input_tokens\":1,\"output_tokens\":1}}}\n\n\
event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":\
{\"type\":\"text\",\"text\":\"\"}}\n\n\
event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":\
{\"type\":\"text_delta\",\"text\":\"done\"}}\n\n\
event: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":0}\n\n\
event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\",\
\"stop_sequence\":null},\"usage\":{\"output_tokens\":1}}\n\n\
event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n";

fn config(port: u16) -> String {
    format!(
        r#"
http.addr = "127.0.0.1:0"
pool = {{ idle = 0, max_containers = 20, uids = "34000-34999" }}
runners = {{ "{AGENT}" = "{IMAGE}" }}
coding_agents = {{ idle = 1 }}
egress = {{ mode = "none" }}
models = {{ anthropic = {{ provider = "anthropic", url = "http://127.0.0.1:{port}" }} }}
"#
    )
}

pub(crate) async fn measure(setup: &mut Setup, report: &mut Measurements) -> Result<()> {
    let (port, mut asked) = model()?;
    let dir = setup.dir.path().to_owned();
    let program = program(&dir).await?;
    let (daemon, client) = setup.other("task", &config(port)).await?;
    let (mut by_hand, mut new, mut again) = (Times::default(), Times::default(), Times::default());
    for turn in 0..TURNS {
        by_hand.record(alone(&program, &dir, port, &mut asked).await?)?;
        daemon.wait_for_armed(AGENT, u32::try_from(turn + 1)?).await?;
        let session = format!("bench-task-{turn}");
        for times in [&mut new, &mut again] {
            while asked.try_recv().is_ok() {}
            let arguments = json!({ "task_description": "say done", "session_id": session, "resume": false });
            let begun = Instant::now();
            let (document, _) = client.call("execute_task", arguments).await?;
            if document["status"] != "completed" {
                return Err(format!("unexpected: {document}").into());
            }
            times.record(first(&mut asked, begun).await?)?;
        }
        client.call("cleanup_sandbox", json!({ "session_id": session })).await?;
    }
    let block = report.block(TITLE);
    block.line(BY_HAND, by_hand, None);
    block.line(NEW, new, None);
    block.line(AGAIN, again, None);
    Ok(())
}

/// From `begun` to the first request that the model has heard since.
async fn first(asked: &mut UnboundedReceiver<Instant>, begun: Instant) -> Result<Duration> {
    let heard = tokio::time::timeout(PATIENCE, asked.recv()).await;
    let heard = heard.map_err(|_| format!("the model was not asked within {PATIENCE:?}"))?;
    Ok(heard.ok_or("the model has ended")?.duration_since(begun))
}

/// The agent's program, out of its image.
async fn program(dir: &Path) -> Result<PathBuf> {
    let docker = async |arguments: &[&str]| -> Result<String> {
        let done = Command::new("docker").args(arguments).output().await?;
        if done.status.success() {
            Ok(String::from_utf8_lossy(&done.stdout).trim().to_owned())
        } else {
            let said = String::from_utf8_lossy(&done.stderr).into_owned();
            Err(format!("docker {}: {said} (make agents builds the image)", arguments[0]).into())
        }
    };
    let program = dir.join("claude");
    let container = docker(&["create", IMAGE]).await?;
    let copied = docker(&["cp", &format!("{container}:{PROGRAM}"), &program.to_string_lossy()]).await;
    docker(&["rm", &container]).await?;
    copied.map(|_| program)
}

/// Starts the program by hand, as its users do, in a folder and a home of its own.
async fn alone(
    program: &Path,
    dir: &Path,
    port: u16,
    asked: &mut UnboundedReceiver<Instant>,
) -> Result<Duration> {
    let home = dir.join(format!("home-{}", paddock::id::random_hex::<4>()));
    std::fs::create_dir(&home)?;
    while asked.try_recv().is_ok() {}
    let begun = Instant::now();
    let done = Command::new(program)
        .args(["-p", "say done", "--output-format", "stream-json", "--verbose", "--safe-mode"])
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env("HOME", &home)
        .env("ANTHROPIC_BASE_URL", format!("http://127.0.0.1:{port}"))
        .env("ANTHROPIC_API_KEY", "none")
        .env("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1")
        .env("DISABLE_AUTOUPDATER", "1")
        .current_dir(&home)
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output()
        .await?;
    if !done.status.success() {
        return Err(format!("claude: {}", String::from_utf8_lossy(&done.stdout)).into());
    }
    first(asked, begun).await
}

/// Starts the model: its port, and the times at which it is asked for a message.
fn model() -> io::Result<(u16, UnboundedReceiver<Instant>)> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let port = listener.local_addr()?.port();
    let (tell, asked) = unbounded_channel();
    std::thread::Builder::new().name("model".to_owned()).spawn(move || {
        while let Ok((stream, _)) = listener.accept() {
            let tell = tell.clone();
            // A client that breaks off says so itself.
            std::thread::spawn(move || serve(stream, &tell));
        }
    })?;
    Ok((port, asked))
}

/// Answers the requests of one connection.
fn serve(mut stream: TcpStream, tell: &UnboundedSender<Instant>) -> io::Result<()> {
    let mut lines = BufReader::new(stream.try_clone()?);
    loop {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if lines.read_line(&mut head)? == 0 {
                return Ok(());
            }
        }
        let arrived = Instant::now();
        let head = head.to_ascii_lowercase();
        let length = head.lines().find_map(|line| line.strip_prefix("content-length:")?.trim().parse().ok());
        let mut body = vec![0; length.unwrap_or(0)];
        lines.read_exact(&mut body)?;
        let is_message = head.starts_with("post /v1/messages");
        if is_message {
            let _ = tell.send(arrived);
        }
        let streams = serde_json::from_slice::<Value>(&body).is_ok_and(|asked| asked["stream"] == true);
        let (kind, answer) = match (is_message, streams) {
            (true, true) => ("text/event-stream", ANSWER.to_owned()),
            (true, false) => ("application/json", whole()),
            (false, _) => ("application/json", "{}".to_owned()),
        };
        let head =
            format!("HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ncontent-length: {}\r\n\r\n", answer.len());
        stream.write_all(head.as_bytes())?;
        stream.write_all(answer.as_bytes())?;
    }
}

/// The same answer in one piece.
fn whole() -> String {
    let usage = json!({ "input_tokens": 1, "output_tokens": 1 });
    json!({ "id": "msg_1", "type": "message", "role": "assistant", "model": "m", "stop_reason": "end_turn",
            "content": [{ "type": "text", "text": "done" }], "usage": usage })
    .to_string()
}
