//! What is measured. Each sample does its own preparation and cleaning outside of its time, checks what came out,
//! and leaves the machine at rest.

use std::time::Duration;

use serde_json::json;

use crate::data::{Files, Shape};
use crate::stand::Stand;
use crate::table::Times;
use crate::{Result, data, docker};

/// Samples that are not counted: caches, lazy set-up, the first fork of everything.
const WARM_UP: u32 = 3;
/// Of rows that start a container; each of their samples is long in any case.
const WARM_UP_HEAVY: u32 = 1;
/// Rows that start a container take part in one round of so many; others would get too few samples.
pub(crate) const HEAVY: usize = 10;

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
    /// Put, run, get; and the session's files are saved.
    Files(Shape),
    /// put_archive, exec, get_archive; unpacked and synced.
    Archives(Shape),
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
            ("paddock warm", 8, Work::Warm(PANDAS)),
            ("engine exec", 8, Work::Exec(PANDAS)),
            ("entrypoint alone", 8, Work::Entrypoint(PANDAS, None)),
        ],
    );
    for (name, every, shape) in [
        ("1 KiB in, read and written, out", 4, Shape::One(1 << 10)),
        ("1 MiB in, read and written, out", 4, Shape::One(1 << 20)),
        ("100 MiB in, read and written, out", HEAVY, Shape::One(100 << 20)),
        ("1,000 files in, read and written, out", 6, Shape::Many),
    ] {
        group(
            name,
            vec![
                ("paddock put, run, get", every, Work::Files(shape)),
                ("engine put, exec, get, and synced", every, Work::Archives(shape)),
            ],
        );
    }
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
            Self::Files(shape) => files(stand, *shape).await,
            Self::Archives(shape) => {
                let dir = stand.dir.path().to_owned();
                stand.twin(PYTHON.language)?.files(*shape, &dir).await
            }
        }
    }
}

async fn files(stand: &mut Stand, shape: Shape) -> Result<Duration> {
    let session = match shape {
        Shape::One(size) => format!("bench-{size}"),
        Shape::Many => "bench-many".to_owned(),
    };
    let client = &mut stand.client;
    let files = shape.content();
    let expected = shape.made_of(&files);
    let (name, body) = match shape {
        Shape::One(_) => (Some("in.bin"), files.into_values().next().unwrap_or_default().into()),
        Shape::Many => (None, data::tar(&files, 0).await?),
    };
    let putting = client.put(&session, name, body).await?;
    let (_, running) = client.run(PYTHON.language, &session, shape.code(), "").await?;
    let (got, getting) = match shape {
        Shape::One(_) => {
            let (got, getting) = client.get(&format!("/sessions/{session}/files/{}", shape.out())).await?;
            (Files::from([(shape.out().to_owned(), got.to_vec())]), getting)
        }
        Shape::Many => {
            let (tar, getting) = client.all(&session).await?;
            (data::unpacked(&tar).await?, getting)
        }
    };
    data::compare(&got, &expected)?;
    Ok(putting + running + getting)
}
