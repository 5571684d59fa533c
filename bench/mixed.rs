//! A mixed load: the programs of `tests/programs`, which the end-to-end tests run as well. Half are plain
//! Python, a third use pandas, the rest draw, make files, query, learn, or are TypeScript.
//!
//! It must never count a program whose output was not checked, and gives both sides the same programs.

use std::path::Path;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use serde_json::json;

use crate::client::Client;
use crate::floor::Floor;
use crate::host::{TICKS, busy};
use crate::programs::{PYTHON, TYPESCRIPT};
use crate::reference_container::ReferenceContainer;
use crate::report::Measurements;
use crate::setup::Setup;
use crate::times::Times;
use crate::{Result, concurrency};

pub(crate) const TITLE: &str = "A mixed load of programs";
pub(crate) const CPU: &str = "paddock, processor time of a run";
pub(crate) const FLOOR_CPU: &str = "the floor, processor time of a run";
/// Callers, each with a session for each language; of the floor, containers.
pub(crate) const CALLERS: usize = 4;

/// Rounds, in turns; in each, every caller runs this many programs.
const ROUNDS: usize = 3;
const RUNS: usize = 24;
/// Of six programs in a row.
const PATTERN: [Kind; 6] = [Kind::Plain, Kind::Pandas, Kind::Plain, Kind::Pandas, Kind::Plain, Kind::Other];
const LIMIT: f64 = 120.0;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Plain,
    Pandas,
    Other,
}

struct MixedProgram {
    name: String,
    kind: Kind,
    language: &'static str,
    source: String,
    /// Lines that its output must contain.
    prints: Vec<String>,
}

impl MixedProgram {
    /// `None` for a program that needs a server.
    fn read(path: &Path) -> Result<Option<Self>> {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let source = std::fs::read_to_string(path)?;
        let head = || source.lines().map_while(|line| line.strip_prefix("# ").or(line.strip_prefix("// ")));
        if head().any(|line| line == "network: true") {
            return Ok(None);
        }
        let prints: Vec<_> =
            head().filter_map(|line| line.strip_prefix("prints: ")).map(str::to_owned).collect();
        let kind = match name.split('_').next() {
            Some("plain") => Kind::Plain,
            Some("pandas") => Kind::Pandas,
            Some(_) | None => Kind::Other,
        };
        let language = if name.ends_with(".py") { PYTHON.language } else { TYPESCRIPT.language };
        Ok(Some(Self { name, kind, language, source, prints }))
    }

    fn check(&self, output: &str) -> Result<()> {
        match self.prints.iter().find(|line| !output.lines().any(|own| own == *line)) {
            Some(line) => Err(format!("{} did not print {line:?}, but {output:?}", self.name).into()),
            None => Ok(()),
        }
    }
}

/// The programs in the order in which they are run: of each kind one after the other, as the pattern says.
fn sequence() -> Result<Vec<MixedProgram>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/programs");
    let mut paths = std::fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    paths.sort();
    let read = paths.iter().filter_map(|path| MixedProgram::read(path).transpose());
    read.collect()
}

/// The programs of one caller in one round; callers and rounds begin at different ones.
fn turn(programs: &[MixedProgram], caller: usize, round: usize) -> Vec<&MixedProgram> {
    let first = (round * CALLERS + caller) * RUNS;
    let nth = |at: usize| {
        let place = at % PATTERN.len();
        let kind = PATTERN[place];
        let of_kind: Vec<_> = programs.iter().filter(|program| program.kind == kind).collect();
        let in_pattern = PATTERN.iter().filter(|other| **other == kind).count();
        let before = PATTERN[..place].iter().filter(|other| **other == kind).count();
        of_kind[(at / PATTERN.len() * in_pattern + before) % of_kind.len()]
    };
    (first..first + RUNS).map(nth).collect()
}

/// A client and its sessions.
struct Caller {
    client: Client,
    name: String,
}

impl Caller {
    fn session(&self, language: &str) -> String {
        format!("{}-{language}", self.name)
    }

    async fn run(&mut self, program: &MixedProgram) -> Result<Duration> {
        let session = self.session(program.language);
        let arguments = json!({ "language": program.language, "session_id": session,
            "code": program.source, "timeout_seconds": LIMIT });
        let (document, taken) = self.client.call("run_code", arguments).await?;
        program.check(document["stdout"].as_str().unwrap_or_default())?;
        Ok(taken)
    }
}

/// Python in a fork of the floor; TypeScript by an engine exec of the image's entrypoint, as node cannot
/// fork.
struct FloorCaller<'a> {
    floor: &'a mut Floor,
    node: &'a ReferenceContainer,
}

impl FloorCaller<'_> {
    async fn run(&mut self, program: &MixedProgram) -> Result<Duration> {
        let (output, taken) = if program.language == PYTHON.language {
            self.floor.output(&program.source).await?
        } else {
            self.node.output(&program.source).await?
        };
        program.check(&output)?;
        Ok(taken)
    }
}

/// What one side has taken so far.
#[derive(Default)]
struct Side {
    times: Times,
    runs: u32,
    taken: Duration,
    busy: f64,
}

impl Side {
    async fn round(&mut self, each: Vec<impl Future<Output = Result<Vec<Duration>>>>) -> Result<()> {
        let (begun, before) = (Instant::now(), busy()?);
        for all in join_all(each).await {
            for taken in all? {
                self.times.record(taken)?;
                self.runs += 1;
            }
        }
        self.taken += begun.elapsed();
        self.busy += busy()? - before;
        Ok(())
    }

    fn per_second(&self) -> f64 {
        f64::from(self.runs) / self.taken.as_secs_f64()
    }

    /// Milliseconds of all processors.
    fn cpu(&self) -> f64 {
        self.busy / TICKS * 1e3 / f64::from(self.runs)
    }
}

pub(crate) async fn measure(setup: &mut Setup, report: &mut Measurements) -> Result<()> {
    let programs = sequence()?;
    setup.floors(CALLERS).await?;
    let mut callers = Vec::new();
    for number in 0..CALLERS {
        let client = setup.client()?.another().await?;
        let mut caller = Caller { client, name: format!("bench-mixed-{number}") };
        for of in [PYTHON, TYPESCRIPT] {
            let session = caller.session(of.language);
            caller.client.run(of.language, &session, of.code, of.prints).await?;
        }
        callers.push(caller);
    }
    setup.ours()?.0.wait_for_warm().await?;
    let (mut ours, mut floor) = (Side::default(), Side::default());
    for round in 0..ROUNDS {
        let (floors, node) = setup.floors_and_reference(CALLERS, TYPESCRIPT.language)?;
        let each = floors.iter_mut().enumerate().map(|(number, floor)| {
            let (mut caller, programs) = (FloorCaller { floor, node }, turn(&programs, number, round));
            async move {
                let mut all = Vec::new();
                for program in programs {
                    all.push(caller.run(program).await?);
                }
                Ok(all)
            }
        });
        floor.round(each.collect()).await?;
        let each = callers.iter_mut().enumerate().map(|(number, caller)| {
            let programs = turn(&programs, number, round);
            async move {
                let mut all = Vec::new();
                for program in programs {
                    all.push(caller.run(program).await?);
                }
                Ok(all)
            }
        });
        ours.round(each.collect()).await?;
    }
    let (rate, floor_rate) = (ours.per_second(), floor.per_second());
    let (cpu, floor_cpu) = (ours.cpu(), floor.cpu());
    let block = report.block(TITLE);
    block.line(concurrency::floor(CALLERS), floor.times, Some(floor_rate));
    block.line(concurrency::ours(CALLERS), ours.times, Some(rate));
    block.fact(FLOOR_CPU, floor_cpu, "ms");
    block.fact(CPU, cpu, "ms");
    for mut caller in callers {
        for of in [PYTHON, TYPESCRIPT] {
            let arguments = json!({ "session_id": caller.session(of.language), "delete_files": true });
            caller.client.call("close_session", arguments).await?;
        }
    }
    Ok(())
}
