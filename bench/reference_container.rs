//! A container made as the daemon makes its own, used without the daemon: by engine exec and the archive API,
//! by the agent's link alone, and by a shell in it that starts programs (to measure what the programs cost by
//! themselves).
//!
//! It must never differ from the daemon's containers in anything that costs time.

use std::path::Path;
use std::time::{Duration, Instant};

use bytes::Bytes;
use paddock::engine::{CreatedExec, Engine, ExecSpec, Hijacked, Stdio};
use paddock::link::Incoming;
use paddock::pool::{PoolConfig, Specimen};
use paddock_proto::limits::DATA_DIR;
use paddock_proto::message::{CollectRules, Input, Outcome, RunLimits, RunSpec};
use paddock_proto::{Channel, Event, Request};
use tempfile::TempDir;
use tokio::io::AsyncWriteExt;

use crate::data::Payload;
use crate::{Result, commands, data};

/// Reads commands, one a line, runs each and prints a mark behind it.
const SHELL: &str = "while read -r command; do eval \"$command\"; echo '#'; done";
const DONE: &str = "#\n";

/// Bytes that an archive of the measured files may have.
const ARCHIVE: u64 = 256 << 20;
/// Between two looks at an exec whose stream has ended and whose status is not known yet.
const PAUSE: Duration = Duration::from_micros(500);

pub(crate) struct ReferenceContainer {
    pub(crate) specimen: Specimen,
    engine: Engine,
    uid: u32,
    shell: Hijacked,
}

impl ReferenceContainer {
    pub(crate) async fn start(
        engine: &Engine,
        config: &PoolConfig,
        language: &str,
        uid: u32,
    ) -> Result<Self> {
        let specimen = Specimen::start(engine, config, language, uid).await?;
        let cmd = ["/bin/sh", "-c", SHELL].map(str::to_owned).to_vec();
        let spec = ExecSpec { cmd, env: environment(&specimen), stdin: true, ..ExecSpec::default() };
        let exec = engine.exec_create(&specimen.armed.id, &spec).await?;
        let shell = engine.exec_start(&exec).await?;
        Ok(Self { specimen, engine: engine.clone(), uid, shell })
    }

    /// The image's entrypoint with this code on standard input, as an engine exec: create, start, all output,
    /// status.
    pub(crate) async fn exec(&self, code: &str, prints: &str) -> Result<Duration> {
        let begun = Instant::now();
        let mut exec = self.begin(self.specimen.armed.runner.argv.clone(), Some(code)).await?;
        let output = exec.end(&self.engine).await?;
        let taken = begun.elapsed();
        expect("engine exec", &output, prints)?;
        Ok(taken)
    }

    /// The output of the same, of a program whose output is not the same each time.
    pub(crate) async fn output(&self, code: &str) -> Result<(String, Duration)> {
        let begun = Instant::now();
        let mut exec = self.begin(self.specimen.armed.runner.argv.clone(), Some(code)).await?;
        let output = exec.end(&self.engine).await?;
        let taken = begun.elapsed();
        Ok((String::from_utf8_lossy(&output).into_owned(), taken))
    }

    /// A shell command, as an engine exec without input: create, start, all output, status.
    pub(crate) async fn command(&self, command: &str) -> Result<(Vec<u8>, Duration)> {
        let begun = Instant::now();
        let mut exec = self.begin(shell(command), None).await?;
        let output = exec.end(&self.engine).await?;
        Ok((output, begun.elapsed()))
    }

    /// The time of a line of such an exec, from written to read.
    pub(crate) async fn line(&self) -> Result<Duration> {
        let mut exec = self.begin(shell(commands::LINE), None).await?;
        let mut said = String::new();
        let taken = loop {
            let chunk = exec.stream.chunk().await?.ok_or("the exec ended before its line")?;
            said.push_str(std::str::from_utf8(&chunk.bytes)?);
            if let Some(line) = said.strip_prefix("up\n").and_then(|rest| rest.strip_suffix('\n')) {
                break commands::since_written(line)?;
            }
        };
        expect("engine exec", &exec.end(&self.engine).await?, "")?;
        Ok(taken)
    }

    async fn begin(&self, cmd: Vec<String>, input: Option<&str>) -> Result<StartedExec> {
        let spec =
            ExecSpec { cmd, env: environment(&self.specimen), stdin: input.is_some(), ..ExecSpec::default() };
        let exec = self.engine.exec_create(&self.specimen.armed.id, &spec).await?;
        let mut stream = self.engine.exec_start(&exec).await?;
        if let Some(input) = input {
            stream.write_all(input.as_bytes()).await?;
            stream.shutdown().await?;
        }
        Ok(StartedExec { exec, stream })
    }

    /// Runs one command in the shell in the container.
    pub(crate) async fn shell(&mut self, command: &str, prints: &str) -> Result<Duration> {
        let begun = Instant::now();
        self.shell.write_all(format!("{command}\n").as_bytes()).await?;
        let mut output = Vec::new();
        while !output.ends_with(DONE.as_bytes()) {
            let chunk = self.shell.chunk().await?.ok_or("the shell in the container ended")?;
            if chunk.stdio == Stdio::Stdout {
                output.extend_from_slice(&chunk.bytes);
            } else {
                return Err(format!("{command}: {}", String::from_utf8_lossy(&chunk.bytes)).into());
            }
        }
        let taken = begun.elapsed();
        expect(command, &output, &format!("{prints}{DONE}"))?;
        Ok(taken)
    }

    /// A command that is the image's entrypoint with this code, one line, on standard input.
    pub(crate) async fn entrypoint(&mut self, name: &str, code: &str) -> Result<String> {
        let file = format!("/tmp/bench-{name}");
        self.shell(&format!("printf %s {} > {file}", quoted(code)), "").await?;
        let argv: Vec<_> = self.specimen.armed.runner.argv.iter().map(|word| quoted(word)).collect();
        Ok(format!("{} < {file}", argv.join(" ")))
    }

    /// A run over the agent's link, as the daemon makes it, without the daemon around it. `argv`: a program
    /// in place of the image's entrypoint.
    pub(crate) async fn link(&self, argv: Option<&[&str]>, code: &str, prints: &str) -> Result<Duration> {
        let entrypoint = &self.specimen.armed.runner.argv;
        let spec = RunSpec {
            id: paddock::id::random_hex::<8>(),
            argv: argv
                .map_or_else(|| entrypoint.clone(), |argv| argv.iter().map(|s| (*s).to_owned()).collect()),
            env: environment(&self.specimen),
            cwd: DATA_DIR.to_owned(),
            wall_ms: 30_000,
            output_cap: 1 << 20,
            input: Input::Code { stdin: false },
            limits: RunLimits::default(),
            warm: argv.is_none(),
            files: None,
            execute: None,
            network: false,
        };
        let begun = Instant::now();
        let stream = self.specimen.armed.link.request(&Request::Run(spec))?;
        stream.data(Channel::Code, Bytes::copy_from_slice(code.as_bytes())).await?;
        stream.eof(Channel::Code).await?;
        let mut output = Vec::new();
        loop {
            match stream.next().await? {
                Incoming::Data(_, bytes) => output.extend_from_slice(&bytes),
                Incoming::Event(Event::Ended(end)) if end.outcome != Outcome::Exited(0) => {
                    return Err(format!("{:?}", end.outcome).into());
                }
                Incoming::Event(Event::Ended(_)) => stream.say(&Request::Collect(CollectRules::All)).await?,
                Incoming::Event(Event::Collected { .. }) => break,
                Incoming::Event(_) => {}
                Incoming::End => return Err("the agent broke off".into()),
            }
        }
        stream.say(&Request::Commit).await?;
        stream.close().await?;
        let taken = begun.elapsed();
        expect("link", &output, prints)?;
        Ok(taken)
    }

    /// Files in by the archive API, a run that changes them, and the changed files out by the archive API
    /// onto the disk at `dir`.
    pub(crate) async fn files(&mut self, shape: Payload, dir: &Path) -> Result<Duration> {
        let files = shape.content();
        let tar = data::tar(&files, self.uid).await?;
        let dir = TempDir::new_in(dir)?;
        let id = &self.specimen.armed.id;
        let begun = Instant::now();
        self.engine.archive_put(id, DATA_DIR, tar).await?;
        self.exec(shape.code(), "").await?;
        let reader = self.engine.archive_get(id, &format!("{DATA_DIR}/{}", shape.out()), ARCHIVE).await?;
        data::save(reader.into_async_read(), dir.path()).await?;
        let taken = begun.elapsed();
        // So that the next run over the link does not find them.
        self.shell(&format!("rm -r {DATA_DIR}/*"), "").await?;
        let expected = shape.made_of(&files);
        let read = |name: &String| Ok((name.clone(), std::fs::read(dir.path().join(name))?));
        data::compare(&expected.keys().map(read).collect::<Result<_>>()?, &expected)?;
        Ok(taken)
    }

    pub(crate) async fn remove(self) -> Result<()> {
        drop(self.shell);
        Ok(self.specimen.remove().await?)
    }
}

/// An engine exec under way.
struct StartedExec {
    exec: CreatedExec,
    stream: Hijacked,
}

impl StartedExec {
    /// The rest of its output, checked to end with exit code 0.
    async fn end(&mut self, engine: &Engine) -> Result<Vec<u8>> {
        let mut output = Vec::new();
        while let Some(chunk) = self.stream.chunk().await? {
            output.extend_from_slice(&chunk.bytes);
        }
        let status = loop {
            let status = engine.exec_inspect(&self.exec.id).await?;
            if !status.running {
                break status.exit_code;
            }
            tokio::time::sleep(PAUSE).await;
        };
        if status == Some(0) { Ok(output) } else { Err(format!("engine exec: exit code {status:?}").into()) }
    }
}

fn shell(command: &str) -> Vec<String> {
    ["/bin/sh", "-c", command].map(str::to_owned).to_vec()
}

/// The variables that the daemon adds to the image's own.
pub(crate) fn environment(specimen: &Specimen) -> Vec<String> {
    let own = std::iter::once("HOME=/tmp".to_owned());
    own.chain(specimen.armed.runner.env.iter().cloned()).collect()
}

fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

fn expect(what: &str, output: &[u8], prints: &str) -> Result<()> {
    let text = String::from_utf8_lossy(output);
    if text == prints { Ok(()) } else { Err(format!("{what} printed {text:?}, not {prints:?}").into()) }
}
