//! Other programs that run code in sandboxes. They run beside ours, so that their samples come between ours.
//! A script in `peers/` for each keeps it running, runs what a line asks for and says by its own clock how
//! long that took.
//!
//! It must never count the time of our scripts as a peer's, nor leave a peer out that the command line did
//! not leave out.

use std::fs::File;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use crate::Result;
use crate::programs::Program;

pub(crate) const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../bench/peers");
/// From its start to `ready`, and one run.
const START: Duration = Duration::from_secs(60);
const RUN: Duration = Duration::from_secs(60);
/// From the end of its input to its own.
const END: Duration = Duration::from_secs(30);

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum PeerKind {
    LlmSandbox,
    SandboxRuntime,
}

pub(crate) struct Peer {
    script: &'static str,
    child: Child,
    stdin: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
}

impl Peer {
    /// `label`: the label of its containers, so that none is left behind. Its standard error goes to a file
    /// in `dir`.
    pub(crate) async fn start(kind: PeerKind, image: &str, label: &str, dir: &Path) -> Result<Self> {
        let folder = Path::new(FOLDER);
        let (python, server) = (folder.join("venv/bin/python"), folder.join("venv/bin/srt-mcp-server"));
        if !python.exists() {
            return Err("the peers are not installed: bench/peers/install, or the word no-peers".into());
        }
        let mut command = Command::new(python);
        let script = match kind {
            PeerKind::LlmSandbox => "llm_sandbox_pool.py",
            PeerKind::SandboxRuntime => "sandbox_runtime_server.py",
        };
        command.arg(folder.join(script));
        match kind {
            PeerKind::LlmSandbox => command.args([image, label]),
            PeerKind::SandboxRuntime => command.arg(server).arg(dir),
        };
        let log = dir.join(format!("{script}.log"));
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(File::create(&log)?)
            // A Ctrl-C must not reach it: it ends when its input does, and removes its containers.
            .process_group(0)
            .kill_on_drop(true)
            .spawn()?;
        let stdin = child.stdin.take().ok_or("no standard input")?;
        let answers = BufReader::new(child.stdout.take().ok_or("no standard output")?).lines();
        let mut peer = Self { script, child, stdin, answers };
        match peer.answer(START).await {
            Ok(answer) if answer["ready"] == true => Ok(peer),
            other => {
                let said = std::fs::read_to_string(&log).unwrap_or_default();
                let last = said.lines().last().unwrap_or("nothing on standard error");
                Err(format!("{script} does not come up: {other:?}, {last}; the word no-peers leaves it out")
                    .into())
            }
        }
    }

    pub(crate) async fn run(&mut self, way: &str, program: Program) -> Result<Duration> {
        let asked = json!({ "way": way, "code": program.code });
        self.stdin.write_all(format!("{asked}\n").as_bytes()).await?;
        let answer = self.answer(RUN).await?;
        let fine = answer["stdout"] == program.prints && answer["exit_code"] == 0;
        let micros = answer["micros"].as_u64().filter(|_| fine);
        Ok(Duration::from_micros(micros.ok_or_else(|| format!("{}: {answer}", self.script))?))
    }

    async fn answer(&mut self, within: Duration) -> Result<Value> {
        let line = tokio::time::timeout(within, self.answers.next_line()).await;
        let line = line.map_err(|_| format!("{}: no answer within {within:?}", self.script))??;
        Ok(serde_json::from_str(&line.ok_or_else(|| format!("{} ended", self.script))?)?)
    }

    /// Closes its input and waits until it has ended, with everything that it started.
    pub(crate) async fn stop(mut self) -> Result<()> {
        drop(self.stdin);
        let status = tokio::time::timeout(END, self.child.wait()).await;
        let status = status.map_err(|_| format!("{} did not end within {END:?}", self.script))??;
        if status.success() { Ok(()) } else { Err(format!("{} ended with {status}", self.script).into()) }
    }
}
