//! The rows that are measured one at a time, in turns: A B C A B C …
//!
//! It must never take two samples of a row back to back, unless the row is about just that.

use std::time::Duration;

use crate::data::Payload;
use crate::names::{
    BACK_TO_BACK, BARE, DOCKER_RUN, EMPTY, EXEC, FLOOR, LLM_SANDBOX, NEW, PANDAS_TITLE, PEERS_TITLE,
    PYTHON_TITLE, SANDBOX_RUNTIME, TYPESCRIPT_TITLE, WARM,
};
use crate::peers::PeerKind;
use crate::programs::{PANDAS, PYTHON, Program, SH, TYPESCRIPT};
use crate::setup::{Need, Setup};
use crate::times::Times;
use crate::workload::Workload;
use crate::{Result, commands};

/// Samples that are not counted: they fill caches and do set-up that happens once.
const WARM_UP: u32 = 3;
/// The same for rows that start a container; each of their samples is long in any case.
const WARM_UP_HEAVY: u32 = 1;
/// Rows that start a container take part in one of this many rounds, or the others would get too few samples.
const HEAVY: usize = 6;
/// The same for rows that carry 100 MiB. After this many rounds every row has had a turn.
pub(crate) const RARE: usize = 12;
/// The rows that are compared most take part this often in a round, in turns.
pub(crate) const PASSES: usize = 6;

/// When a row has its turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Schedule {
    /// This many times a round, never twice in a row.
    Often(usize),
    /// Once in this many rounds.
    OnceIn(usize),
    /// In one of `every` rounds, `times` in a row, behind a sample that does not count.
    InARow { every: usize, times: u32 },
}

pub(crate) struct BenchRow {
    /// What is run: the title of its block.
    pub(crate) title: &'static str,
    /// What runs it.
    pub(crate) name: &'static str,
    pub(crate) times: Times,
    turn: Schedule,
    work: Workload,
}

/// Every row, by block; the others of a block are compared with its first.
pub(crate) fn all() -> Vec<BenchRow> {
    let mut rows = Vec::new();
    let mut block = |title, works: Vec<(&'static str, Schedule, Workload)>| {
        let row = |(name, turn, work)| BenchRow { title, name, times: Times::default(), turn, work };
        rows.extend(works.into_iter().map(row));
    };
    let once = Schedule::Often(1);
    block(PYTHON_TITLE, {
        let mut all = of_a_language(PYTHON, "python3 alone", "python3 -c \"print('hi')\"");
        all[0].1 = Schedule::Often(PASSES);
        all.insert(1, (FLOOR, Schedule::Often(PASSES), Workload::Floor(PYTHON)));
        all.insert(2, (BARE, Schedule::Often(PASSES), Workload::Bare(PYTHON)));
        all.insert(4, (EMPTY, Schedule::OnceIn(HEAVY), Workload::EmptyPool(PYTHON)));
        all
    });
    block(
        PEERS_TITLE,
        vec![
            (LLM_SANDBOX, Schedule::OnceIn(HEAVY), Workload::Peer(PeerKind::LlmSandbox, "pooled", PYTHON)),
            (
                "llm-sandbox, a session held",
                Schedule::OnceIn(HEAVY),
                Workload::Peer(PeerKind::LlmSandbox, "held", PYTHON),
            ),
            (
                SANDBOX_RUNTIME,
                Schedule::OnceIn(HEAVY),
                Workload::Peer(PeerKind::SandboxRuntime, "python", PYTHON),
            ),
        ],
    );
    block(TYPESCRIPT_TITLE, {
        let mut all = of_a_language(TYPESCRIPT, "node alone", "node -e \"console.log('hi')\"");
        all.insert(1, (BACK_TO_BACK, Schedule::InARow { every: 4, times: 5 }, Workload::Warm(TYPESCRIPT)));
        all
    });
    block(
        PANDAS_TITLE,
        vec![
            (WARM, Schedule::OnceIn(4), Workload::Warm(PANDAS)),
            (FLOOR, Schedule::OnceIn(4), Workload::Floor(PANDAS)),
            (EXEC, Schedule::OnceIn(8), Workload::Exec(PANDAS)),
            ("entrypoint alone", Schedule::OnceIn(8), Workload::Entrypoint(PANDAS, None)),
        ],
    );
    for (name, every, shape) in [
        ("1 KiB in, read and written, out", 4, Payload::One(1 << 10)),
        ("1 MiB in, read and written, out", 4, Payload::One(1 << 20)),
        ("100 MiB in, read and written, out", RARE, Payload::One(100 << 20)),
        ("1,000 files in, read and written, out", 6, Payload::Many),
    ] {
        block(
            name,
            vec![
                ("paddock put, run, get", Schedule::OnceIn(every), Workload::Files(shape)),
                ("engine put, exec, get, and synced", Schedule::OnceIn(every), Workload::Archives(shape)),
            ],
        );
    }
    block(
        "sh, echo hi",
        vec![
            (WARM, once, Workload::Warm(SH)),
            (EXEC, once, Workload::Exec(SH)),
            ("agent over its link", once, Workload::Link(SH)),
            ("entrypoint alone", once, Workload::Entrypoint(SH, None)),
        ],
    );
    block(
        commands::ECHO_TITLE,
        vec![
            (commands::WAITED, once, Workload::Wait),
            (EXEC, once, Workload::ExecCommand(commands::ECHO)),
            (commands::BEGUN, once, Workload::Begin),
            (
                SANDBOX_RUNTIME,
                Schedule::OnceIn(HEAVY),
                Workload::Peer(PeerKind::SandboxRuntime, "command", commands::ECHO),
            ),
        ],
    );
    block(
        commands::LINE_TITLE,
        vec![
            (commands::POLLED, Schedule::OnceIn(2), Workload::Poll),
            (commands::WATCHED, Schedule::OnceIn(2), Workload::Watch),
            (EXEC, Schedule::OnceIn(2), Workload::ExecLine),
        ],
    );
    block(
        commands::OUTPUT_TITLE,
        vec![
            (commands::PAGED, Schedule::OnceIn(4), Workload::Pages),
            (EXEC, Schedule::OnceIn(4), Workload::ExecOutput),
        ],
    );
    block(
        "What the layers cost",
        vec![
            ("agent: /bin/true", once, Workload::Nothing),
            ("HTTP: GET /health", once, Workload::Health),
            ("MCP: list_runners", once, Workload::ListRunners),
        ],
    );
    rows
}

fn of_a_language(
    program: Program,
    alone: &'static str,
    command: &'static str,
) -> Vec<(&'static str, Schedule, Workload)> {
    vec![
        (WARM, Schedule::Often(1), Workload::Warm(program)),
        (NEW, Schedule::OnceIn(HEAVY), Workload::NewSession(program)),
        (EXEC, Schedule::Often(1), Workload::Exec(program)),
        (DOCKER_RUN, Schedule::OnceIn(HEAVY), Workload::DockerRun(program)),
        ("agent over its link", Schedule::Often(1), Workload::Link(program)),
        ("entrypoint alone", Schedule::Often(1), Workload::Entrypoint(program, None)),
        (alone, Schedule::Often(1), Workload::Alone(program.language, command)),
    ]
}

impl BenchRow {
    pub(crate) fn need(&self) -> Option<Need> {
        self.work.need()
    }

    /// Takes the samples that do not count.
    pub(crate) async fn warm_up(&mut self, setup: &mut Setup) -> Result<()> {
        let heavy = matches!(self.turn, Schedule::OnceIn(HEAVY | RARE));
        let samples = if heavy { WARM_UP_HEAVY } else { WARM_UP };
        for _ in 0..samples {
            self.sample(setup).await?;
        }
        Ok(())
    }

    /// Takes its samples of this pass of this round; `place` spreads the expensive rows over the rounds.
    pub(crate) async fn turn(
        &mut self,
        setup: &mut Setup,
        round: usize,
        pass: usize,
        place: usize,
    ) -> Result<()> {
        let comes = |every| pass == 0 && (round + place).is_multiple_of(every);
        let samples = match self.turn {
            Schedule::Often(passes) => u32::from(pass < passes),
            Schedule::OnceIn(every) => u32::from(comes(every)),
            Schedule::InARow { every, times } if comes(every) => {
                self.sample(setup).await?;
                times
            }
            Schedule::InARow { .. } => 0,
        };
        for _ in 0..samples {
            let taken = self.sample(setup).await?;
            self.times.record(taken)?;
        }
        Ok(())
    }

    /// One sample.
    async fn sample(&mut self, setup: &mut Setup) -> Result<Duration> {
        let sampled = self.work.sample(setup).await;
        sampled.map_err(|error| format!("{}, {}: {error}", self.title, self.name).into())
    }
}
