//! What is measured. Each sample does its own preparation and cleaning outside of its time, checks what came out,
//! and leaves the machine at rest.

use std::time::Duration;

use serde_json::json;

use crate::data::{Files, Shape};
use crate::peers::Kind;
use crate::stand::Stand;
use crate::times::Times;
use crate::{Result, commands, data, docker};

/// Samples that are not counted: caches, lazy set-up, the first fork of everything.
const WARM_UP: u32 = 3;
/// Of rows that start a container; each of their samples is long in any case.
const WARM_UP_HEAVY: u32 = 1;
/// Rows that start a container take part in one round of so many; others would get too few samples.
const HEAVY: usize = 6;
/// Rows that carry 100 MiB. After so many rounds every row has had a turn.
pub(crate) const RARE: usize = 12;
/// What is compared most takes part so often in a round, in turns with what it is compared with.
pub(crate) const PASSES: usize = 6;

pub(crate) const PYTHON_TITLE: &str = "Python, print('hi')";
pub(crate) const TYPESCRIPT_TITLE: &str = "TypeScript, console.log('hi')";
pub(crate) const PANDAS_TITLE: &str = "Python, import pandas, print('hi')";
pub(crate) const PEERS_TITLE: &str = "Peers, print('hi')";
pub(crate) const WARM: &str = "paddock warm";
pub(crate) const BACK_TO_BACK: &str = "paddock warm, back to back";
pub(crate) const NEW: &str = "paddock new session";
pub(crate) const EMPTY: &str = "paddock new session, empty pool";
pub(crate) const FLOOR: &str = "the floor";
pub(crate) const EXEC: &str = "engine exec";
pub(crate) const DOCKER_RUN: &str = "docker run";
pub(crate) const LLM_SANDBOX: &str = "llm-sandbox, from its pool";
pub(crate) const SANDBOX_RUNTIME: &str = "sandbox-runtime's server";

/// When a row has its turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Turn {
    /// So many times a round, never twice in a row.
    Often(usize),
    /// Once in so many rounds.
    OnceIn(usize),
    /// In one round of so many, so many times in a row, behind one that does not count.
    InARow { every: usize, times: u32 },
}

/// What a row takes beside the daemon, its twins and the floor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Need {
    EmptyPool,
    Peer(Kind),
}

pub(crate) struct Row {
    /// What is run.
    pub(crate) title: &'static str,
    /// By what.
    pub(crate) name: &'static str,
    pub(crate) times: Times,
    turn: Turn,
    work: Work,
}

/// A program and what it prints.
#[derive(Clone, Copy)]
pub(crate) struct Program {
    pub(crate) language: &'static str,
    pub(crate) name: &'static str,
    pub(crate) code: &'static str,
    pub(crate) prints: &'static str,
}

enum Work {
    /// `run_code` in the same session.
    Warm(Program),
    /// `run_code` in a session that never was, with a container standing ready.
    NewSession(Program),
    /// The same where none stands ready and one is started for it.
    EmptyPool(Program),
    /// A fork of a warm interpreter behind an open exec stream.
    Floor(Program),
    /// By another program, used so.
    Peer(Kind, &'static str, Program),
    /// `execute_code`; what stands in the block's title.
    Wait,
    /// `execute_code_async`, and its end.
    Begin,
    /// A line of one, by a long poll.
    Poll,
    /// A line of one, by the event stream.
    Watch,
    /// The line of an engine exec.
    ExecLine,
    /// A lot of output, page by page.
    Pages,
    /// A lot of output of an engine exec.
    ExecOutput,
    /// A shell command as an engine exec.
    ExecCommand(Program),
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

pub(crate) const PYTHON: Program =
    Program { language: "python", name: "python", code: "print('hi')", prints: "hi\n" };
pub(crate) const TYPESCRIPT: Program = Program {
    language: "typescript",
    name: "typescript",
    code: "const hi: string = 'hi'; console.log(hi)",
    prints: "hi\n",
};
const PANDAS: Program =
    Program { language: "python", name: "pandas", code: "import pandas; print('hi')", prints: "hi\n" };
const SH: Program = Program { language: "sh", name: "sh", code: "echo hi", prints: "hi\n" };

/// Every row, by block; the first of a block is what the others are compared with.
pub(crate) fn all() -> Vec<Row> {
    let mut rows = Vec::new();
    let mut block = |title, works: Vec<(&'static str, Turn, Work)>| {
        let row = |(name, turn, work)| Row { title, name, times: Times::default(), turn, work };
        rows.extend(works.into_iter().map(row));
    };
    let once = Turn::Often(1);
    block(PYTHON_TITLE, {
        let mut all = of_a_language(PYTHON, "python3 alone", "python3 -c \"print('hi')\"");
        all[0].1 = Turn::Often(PASSES);
        all.insert(1, (FLOOR, Turn::Often(PASSES), Work::Floor(PYTHON)));
        all.insert(3, (EMPTY, Turn::OnceIn(HEAVY), Work::EmptyPool(PYTHON)));
        all
    });
    block(
        PEERS_TITLE,
        vec![
            (LLM_SANDBOX, Turn::OnceIn(HEAVY), Work::Peer(Kind::LlmSandbox, "pooled", PYTHON)),
            (
                "llm-sandbox, a session held",
                Turn::OnceIn(HEAVY),
                Work::Peer(Kind::LlmSandbox, "held", PYTHON),
            ),
            (SANDBOX_RUNTIME, Turn::OnceIn(HEAVY), Work::Peer(Kind::SandboxRuntime, "python", PYTHON)),
        ],
    );
    block(TYPESCRIPT_TITLE, {
        let mut all = of_a_language(TYPESCRIPT, "node alone", "node -e \"console.log('hi')\"");
        all.insert(1, (BACK_TO_BACK, Turn::InARow { every: 4, times: 5 }, Work::Warm(TYPESCRIPT)));
        all
    });
    block(
        PANDAS_TITLE,
        vec![
            (WARM, Turn::OnceIn(4), Work::Warm(PANDAS)),
            (FLOOR, Turn::OnceIn(4), Work::Floor(PANDAS)),
            (EXEC, Turn::OnceIn(8), Work::Exec(PANDAS)),
            ("entrypoint alone", Turn::OnceIn(8), Work::Entrypoint(PANDAS, None)),
        ],
    );
    for (name, every, shape) in [
        ("1 KiB in, read and written, out", 4, Shape::One(1 << 10)),
        ("1 MiB in, read and written, out", 4, Shape::One(1 << 20)),
        ("100 MiB in, read and written, out", RARE, Shape::One(100 << 20)),
        ("1,000 files in, read and written, out", 6, Shape::Many),
    ] {
        block(
            name,
            vec![
                ("paddock put, run, get", Turn::OnceIn(every), Work::Files(shape)),
                ("engine put, exec, get, and synced", Turn::OnceIn(every), Work::Archives(shape)),
            ],
        );
    }
    block(
        "sh, echo hi",
        vec![
            (WARM, once, Work::Warm(SH)),
            (EXEC, once, Work::Exec(SH)),
            ("agent over its link", once, Work::Link(SH)),
            ("entrypoint alone", once, Work::Entrypoint(SH, None)),
        ],
    );
    block(
        commands::ECHO_TITLE,
        vec![
            (commands::WAITED, once, Work::Wait),
            (EXEC, once, Work::ExecCommand(commands::ECHO)),
            (commands::BEGUN, once, Work::Begin),
            (
                SANDBOX_RUNTIME,
                Turn::OnceIn(HEAVY),
                Work::Peer(Kind::SandboxRuntime, "command", commands::ECHO),
            ),
        ],
    );
    block(
        commands::LINE_TITLE,
        vec![
            (commands::POLLED, Turn::OnceIn(2), Work::Poll),
            (commands::WATCHED, Turn::OnceIn(2), Work::Watch),
            (EXEC, Turn::OnceIn(2), Work::ExecLine),
        ],
    );
    block(
        commands::OUTPUT_TITLE,
        vec![(commands::PAGED, Turn::OnceIn(4), Work::Pages), (EXEC, Turn::OnceIn(4), Work::ExecOutput)],
    );
    block(
        "What the layers cost",
        vec![
            ("agent: /bin/true", once, Work::Nothing),
            ("HTTP: GET /health", once, Work::Health),
            ("MCP: list_runners", once, Work::ListRunners),
        ],
    );
    rows
}

fn of_a_language(
    program: Program,
    alone: &'static str,
    command: &'static str,
) -> Vec<(&'static str, Turn, Work)> {
    vec![
        (WARM, Turn::Often(1), Work::Warm(program)),
        (NEW, Turn::OnceIn(HEAVY), Work::NewSession(program)),
        (EXEC, Turn::Often(1), Work::Exec(program)),
        (DOCKER_RUN, Turn::OnceIn(HEAVY), Work::DockerRun(program)),
        ("agent over its link", Turn::Often(1), Work::Link(program)),
        ("entrypoint alone", Turn::Often(1), Work::Entrypoint(program, None)),
        (alone, Turn::Often(1), Work::Alone(program.language, command)),
    ]
}

impl Row {
    pub(crate) fn need(&self) -> Option<Need> {
        if let Work::Peer(kind, ..) = self.work {
            Some(Need::Peer(kind))
        } else {
            matches!(self.work, Work::EmptyPool(_)).then_some(Need::EmptyPool)
        }
    }

    /// Samples that do not count.
    pub(crate) async fn warm_up(&mut self, stand: &mut Stand) -> Result<()> {
        let heavy = matches!(self.turn, Turn::OnceIn(HEAVY | RARE));
        let samples = if heavy { WARM_UP_HEAVY } else { WARM_UP };
        for _ in 0..samples {
            self.sample(stand).await?;
        }
        Ok(())
    }

    /// Its samples of this pass of this round; `place` spreads the expensive rows over the rounds.
    pub(crate) async fn turn(
        &mut self,
        stand: &mut Stand,
        round: usize,
        pass: usize,
        place: usize,
    ) -> Result<()> {
        let comes = |every| pass == 0 && (round + place).is_multiple_of(every);
        let samples = match self.turn {
            Turn::Often(passes) => u32::from(pass < passes),
            Turn::OnceIn(every) => u32::from(comes(every)),
            Turn::InARow { every, times } if comes(every) => {
                self.sample(stand).await?;
                times
            }
            Turn::InARow { .. } => 0,
        };
        for _ in 0..samples {
            let taken = self.sample(stand).await?;
            self.times.record(taken)?;
        }
        Ok(())
    }

    /// One sample.
    async fn sample(&mut self, stand: &mut Stand) -> Result<Duration> {
        let sampled = self.work.sample(stand).await;
        sampled.map_err(|error| format!("{}, {}: {error}", self.title, self.name).into())
    }
}

impl Work {
    async fn sample(&mut self, stand: &mut Stand) -> Result<Duration> {
        match self {
            Self::Warm(p) => {
                let session = format!("bench-warm-{}", p.name);
                Ok(stand.client()?.run(p.language, &session, p.code, p.prints).await?.1)
            }
            Self::NewSession(p) => {
                let session = stand.new_session();
                let (daemon, client) = stand.ours()?;
                let before = daemon.armed(p.language);
                let (_, taken) = client.run(p.language, &session, p.code, p.prints).await?;
                daemon.wait_for_armed(p.language, before + 1).await?;
                Ok(taken)
            }
            Self::EmptyPool(p) => {
                let session = stand.new_session();
                Ok(stand.empty()?.run(p.language, &session, p.code, p.prints).await?.1)
            }
            Self::Floor(p) => stand.floors[0].run(p.code, p.prints).await,
            Self::Peer(kind, way, p) => stand.peer(*kind)?.run(way, *p).await,
            Self::Wait => commands::wait(stand.client()?).await,
            Self::Begin => commands::begin_and_wait(stand.client()?).await,
            Self::Poll => commands::poll(stand.client()?).await,
            Self::Watch => commands::watch(stand.client()?).await,
            Self::ExecLine => stand.twin(PYTHON.language)?.line().await,
            Self::Pages => commands::pages(stand.client()?).await,
            Self::ExecOutput => {
                let (output, taken) = stand.twin(PYTHON.language)?.command(commands::OUTPUT).await?;
                commands::expect_output(&output)?;
                Ok(taken)
            }
            Self::ExecCommand(p) => {
                let (output, taken) = stand.twin(PYTHON.language)?.command(p.code).await?;
                if output == p.prints.as_bytes() {
                    Ok(taken)
                } else {
                    Err("it printed something else".into())
                }
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
            Self::Health => Ok(stand.client()?.get("/health").await?.1),
            Self::ListRunners => Ok(stand.client()?.call("list_runners", json!({})).await?.1),
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
    let client = stand.client()?;
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
