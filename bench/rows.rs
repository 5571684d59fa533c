//! What is measured. Each sample does its own preparation and cleaning outside of its time, checks what came out,
//! and leaves the machine at rest.

use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::json;

use crate::stand::Stand;
use crate::table::Times;
use crate::{Result, docker};

/// The file that goes in and out.
const FILE: usize = 1 << 20;
/// Samples that are not counted: caches, lazy set-up, the first fork of everything.
const WARM_UP: u32 = 3;
/// Of rows that start a container; each of their samples is long in any case.
const WARM_UP_HEAVY: u32 = 1;
/// Rows that start a container take part in one round of so many; others would get too few samples.
pub(crate) const HEAVY: usize = 8;

pub(crate) struct Row {
    /// What is run.
    pub(crate) group: &'static str,
    /// By what.
    pub(crate) name: &'static str,
    /// It takes part in one round of so many.
    pub(crate) every: usize,
    pub(crate) times: Times,
    work: Work,
}

/// A program and what it prints.
#[derive(Clone, Copy)]
struct Program {
    language: &'static str,
    name: &'static str,
    code: &'static str,
    prints: &'static str,
}

enum Work {
    /// `run_code` in the same session.
    Warm(Program),
    /// `run_code` in a session that never was, with a container standing ready.
    NewSession(Program),
    /// The engine's exec of the entrypoint.
    Exec(Program),
    /// `docker run`.
    DockerRun(Program),
    /// A run over the agent's link, without the daemon.
    Link(Program),
    /// The entrypoint alone; its command is made at the first sample.
    Entrypoint(Program, Option<String>),
    /// Another program alone.
    Alone(&'static str, &'static str),
    /// A program that does nothing, over the agent's link.
    Nothing,
    Health,
    ListRunners,
    /// Upload, run, answer with a link; and then, if so, the download too.
    Files {
        download: bool,
    },
    /// put_archive, exec, get_archive.
    Archives,
}

const PYTHON: Program = Program { language: "python", name: "python", code: "print('hi')", prints: "hi\n" };
const TYPESCRIPT: Program = Program {
    language: "typescript",
    name: "typescript",
    code: "const hi: string = 'hi'; console.log(hi)",
    prints: "hi\n",
};
const PANDAS: Program =
    Program { language: "python", name: "pandas", code: "import pandas; print('hi')", prints: "hi\n" };
const SH: Program = Program { language: "sh", name: "sh", code: "echo hi", prints: "hi\n" };

/// Makes a file of another; also what the engine's exec is given.
const COPY: &str = "import shutil\nshutil.copyfile('/data/in.bin', '/data/out.bin')";

/// Every row, by group; the first of a group is what the others are compared with.
pub(crate) fn all() -> Vec<Row> {
    let mut rows = Vec::new();
    let mut group = |group, works: Vec<(&'static str, usize, Work)>| {
        let row = |(name, every, work)| Row { group, name, every, times: Times::default(), work };
        rows.extend(works.into_iter().map(row));
    };
    let languages = [
        ("Python, print('hi')", PYTHON, "python3 alone", "python3 -c \"print('hi')\""),
        ("TypeScript, console.log('hi')", TYPESCRIPT, "node alone", "node -e \"console.log('hi')\""),
    ];
    for (name, program, alone, command) in languages {
        group(
            name,
            vec![
                ("paddock warm", 1, Work::Warm(program)),
                ("paddock new session", HEAVY, Work::NewSession(program)),
                ("engine exec", 1, Work::Exec(program)),
                ("docker run", HEAVY, Work::DockerRun(program)),
                ("agent over its link", 1, Work::Link(program)),
                ("entrypoint alone", 1, Work::Entrypoint(program, None)),
                (alone, 1, Work::Alone(program.language, command)),
            ],
        );
    }
    group(
        "Python, import pandas, print('hi')",
        vec![
            ("paddock warm", 4, Work::Warm(PANDAS)),
            ("engine exec", 4, Work::Exec(PANDAS)),
            ("entrypoint alone", 4, Work::Entrypoint(PANDAS, None)),
        ],
    );
    group(
        "1 MiB file in, copied by Python, out",
        vec![
            ("paddock, a link as answer", 2, Work::Files { download: false }),
            ("paddock, and its download", 2, Work::Files { download: true }),
            ("engine put, exec, get", 2, Work::Archives),
        ],
    );
    group(
        "sh, echo hi",
        vec![
            ("paddock warm", 1, Work::Warm(SH)),
            ("engine exec", 1, Work::Exec(SH)),
            ("agent over its link", 1, Work::Link(SH)),
            ("entrypoint alone", 1, Work::Entrypoint(SH, None)),
        ],
    );
    group(
        "What the layers cost",
        vec![
            ("agent: /bin/true", 1, Work::Nothing),
            ("HTTP: GET /health", 1, Work::Health),
            ("MCP: list_runners", 1, Work::ListRunners),
        ],
    );
    rows
}

impl Row {
    pub(crate) fn warm_up(&self) -> u32 {
        if self.every == HEAVY { WARM_UP_HEAVY } else { WARM_UP }
    }

    /// One sample.
    pub(crate) async fn sample(&mut self, stand: &mut Stand) -> Result<Duration> {
        let sampled = self.work.sample(stand).await;
        sampled.map_err(|error| format!("{}, {}: {error}", self.group, self.name).into())
    }
}

impl Work {
    async fn sample(&mut self, stand: &mut Stand) -> Result<Duration> {
        match self {
            Self::Warm(p) => {
                let session = format!("bench-warm-{}", p.name);
                Ok(stand.client.run(p.language, &session, p.code, p.prints).await?.1)
            }
            Self::NewSession(p) => {
                let before = stand.daemon.armed(p.language);
                let session = stand.new_session();
                let (_, taken) = stand.client.run(p.language, &session, p.code, p.prints).await?;
                stand.daemon.wait_for_armed(p.language, before + 1).await?;
                Ok(taken)
            }
            Self::Exec(p) => stand.twin(p.language)?.exec(p.code, p.prints).await,
            Self::DockerRun(p) => {
                let (engine, dir) = (stand.engine.clone(), stand.dir.path().to_owned());
                docker::run(&engine, &stand.twin(p.language)?.specimen, &dir, p.code, p.prints).await
            }
            Self::Link(p) => stand.twin(p.language)?.link(None, p.code, p.prints).await,
            Self::Entrypoint(p, command) => {
                let twin = stand.twin(p.language)?;
                let command = match command {
                    Some(command) => command,
                    None => command.insert(twin.entrypoint(p.name, p.code).await?),
                };
                twin.shell(command, p.prints).await
            }
            Self::Alone(language, command) => stand.twin(language)?.shell(command, "hi\n").await,
            Self::Nothing => stand.twin(SH.language)?.link(Some(&["/bin/true"]), "", "").await,
            Self::Health => Ok(stand.client.get("/health").await?.1),
            Self::ListRunners => Ok(stand.client.call("list_runners", json!({})).await?.1),
            Self::Files { download } => files(stand, *download).await,
            Self::Archives => stand.twin(PYTHON.language)?.files(&content(), COPY).await,
        }
    }
}

async fn files(stand: &mut Stand, download: bool) -> Result<Duration> {
    let session = "bench-files";
    let content = content();
    let text = BASE64_STANDARD.encode(&content);
    let upload =
        json!({ "session_id": session, "filename": "in.bin", "content_base64": text, "overwrite": true });
    let (_, uploading) = stand.client.call("upload_file", upload).await?;
    let (document, running) = stand.client.run(PYTHON.language, session, COPY, "").await?;
    let artifacts = document["artifacts"].as_array().ok_or("no artifacts")?;
    let made = artifacts.iter().find(|artifact| artifact["filename"] == "out.bin").ok_or("no out.bin")?;
    let link = made["download_url"].as_str().ok_or("no link")?;
    // Got in either case, to see that it is the file; counted only where it is said to be.
    let (got, getting) = stand.client.get(link).await?;
    if got != content {
        return Err("what came out is not what went in".into());
    }
    Ok(uploading + running + if download { getting } else { Duration::ZERO })
}

/// Another content each time, so that nothing can know it.
fn content() -> Vec<u8> {
    let mut state = paddock::id::random_u64() | 1;
    let words = std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    });
    words.flatten().take(FILE).collect()
}
