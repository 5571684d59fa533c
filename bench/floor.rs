//! The floor: `floor.py` in a container made as the daemon makes its own, behind one exec stream of the
//! engine that stays open. It is what a warm run costs when nothing but the run is done.
//!
//! A bare floor has imported nothing: no method of running Python can be faster.
//!
//! It must never have an advantage that a runner of ours could not have: same image, same settings.

use std::time::{Duration, Instant};

use paddock::engine::{Engine, ExecSpec, Hijacked, Stdio};
use paddock::pool::{PoolConfig, Specimen};
use tokio::io::AsyncWriteExt;

use crate::Result;
use crate::engine_only::EngineContainer;
use crate::load::LoadTarget;
use crate::programs::PYTHON;
use crate::reference_container::environment;

const SERVER: &str = include_str!("floor.py");
/// How long its imports may take while other containers of it start.
const READY: Duration = Duration::from_secs(240);

pub(crate) struct Floor {
    container: FloorContainer,
    stream: Hijacked,
}

/// What the process that forks has imported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FloorKind {
    /// What people import.
    Heavy,
    /// Nothing.
    Bare,
}

enum FloorContainer {
    /// Armed by the daemon's own code.
    Armed(Box<Specimen>),
    /// One of many. It has no warm part: with so many there would not be enough memory.
    EngineContainer(EngineContainer),
}

impl Floor {
    pub(crate) async fn start(
        engine: &Engine,
        config: &PoolConfig,
        uid: u32,
        kind: FloorKind,
    ) -> Result<Self> {
        let specimen = Specimen::start(engine, config, PYTHON.language, uid).await?;
        let exec = engine.exec_create(&specimen.armed.id, &server(&specimen, kind)).await?;
        let stream = engine.exec_start(&exec).await?;
        Self { container: FloorContainer::Armed(Box::new(specimen)), stream }.ready().await
    }

    /// Another floor, in a container like this specimen's.
    pub(crate) async fn another(engine: &Engine, like: &Specimen) -> Result<Self> {
        let container = EngineContainer::start(engine, &like.plan).await?;
        let stream = container.exec(&server(like, FloorKind::Heavy)).await?;
        Self { container: FloorContainer::EngineContainer(container), stream }.ready().await
    }

    async fn ready(mut self) -> Result<Self> {
        let said = tokio::time::timeout(READY, self.answer(false)).await;
        match said.map_err(|_| format!("the floor was not ready within {READY:?}"))?? {
            (output, end) if output.is_empty() && end == "ready" => {}
            (output, end) => return Err(format!("the floor began with {output:?}, {end:?}").into()),
        }
        self.run(PYTHON.code, PYTHON.prints).await?;
        Ok(self)
    }

    /// The time from the code written to output and exit code read; the process is dead then.
    pub(crate) async fn run(&mut self, code: &str, prints: &str) -> Result<Duration> {
        let (output, taken) = self.answered(code, false).await?;
        if output == prints { Ok(taken) } else { Err(format!("the floor answered {output:?}").into()) }
    }

    /// The output of a program that may write to standard error too, and its time.
    pub(crate) async fn output(&mut self, code: &str) -> Result<(String, Duration)> {
        self.answered(code, true).await
    }

    async fn answered(&mut self, code: &str, may_complain: bool) -> Result<(String, Duration)> {
        let mut message = u32::try_from(code.len())?.to_be_bytes().to_vec();
        message.extend_from_slice(code.as_bytes());
        let begun = Instant::now();
        self.stream.write_all(&message).await?;
        let (output, end) = self.answer(may_complain).await?;
        let taken = begun.elapsed();
        if end == "0" {
            Ok((output, taken))
        } else {
            Err(format!("the floor answered {output:?}, exit code {end}").into())
        }
    }

    /// The output, and what comes behind its NUL.
    async fn answer(&mut self, may_complain: bool) -> Result<(String, String)> {
        let mut said = Vec::new();
        loop {
            let chunk = self.stream.chunk().await?.ok_or("the floor ended")?;
            if chunk.stdio != Stdio::Stdout && may_complain {
                continue;
            }
            if chunk.stdio != Stdio::Stdout {
                return Err(format!("the floor: {}", String::from_utf8_lossy(&chunk.bytes)).into());
            }
            said.extend_from_slice(&chunk.bytes);
            if let Some(line) = said.strip_suffix(b"\n")
                && let Some(nul) = line.iter().position(|byte| *byte == 0)
            {
                let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
                return Ok((text(&line[..nul]), text(&line[nul + 1..])));
            }
        }
    }

    pub(crate) async fn remove(self) -> Result<()> {
        drop(self.stream);
        match self.container {
            FloorContainer::Armed(specimen) => Ok(specimen.remove().await?),
            FloorContainer::EngineContainer(container) => container.remove().await,
        }
    }
}

fn server(specimen: &Specimen, kind: FloorKind) -> ExecSpec {
    let mut cmd = ["python3", "-c", SERVER].map(str::to_owned).to_vec();
    if kind == FloorKind::Bare {
        cmd.push("bare".to_owned());
    }
    ExecSpec { cmd, env: environment(specimen), stdin: true, ..ExecSpec::default() }
}

impl LoadTarget for Floor {
    async fn run(&mut self) -> Result<Duration> {
        Floor::run(self, PYTHON.code, PYTHON.prints).await
    }
}
