//! The processor time of a run, wherever it is spent: in the daemon, and in the containers (PID 1, the warm
//! part, the program, and the kernel's work for all of these). Beside it what other load on the machine
//! hardly changes: page faults and context switches.
//!
//! What is used while nobody calls is measured before, and subtracted. It must never count the time of this
//! process, which makes the requests, except in the figures of the whole machine.

use std::time::{Duration, Instant};

use paddock::engine::{ContainerId, Engine};

use crate::Result;
use crate::cgroup::{self, Used};
use crate::host::{TICKS, busy, cpu, machine_switches, switches};
use crate::programs::{PANDAS, PYTHON, Program, TYPESCRIPT};
use crate::report::Measurements;
use crate::setup::Setup;

pub(crate) const TITLE: &str = "Processor time of a run";

/// Runs of each program. A new session starts a container each time.
const RUNS: u32 = 200;
const NEW_SESSIONS: u32 = 8;
/// Before each run: the machine is at rest when it comes.
const REST: Duration = Duration::from_millis(15);
/// Nobody calls for this long, so many times, while the background is measured. The least of them counts:
/// what comes once is not what is always there.
const QUIET: Duration = Duration::from_secs(1);
const QUIETS: usize = 3;
/// For the work that is left behind an answer.
const SETTLE: Duration = Duration::from_millis(500);
/// Runs of each session that do not count.
const WARM_UP: u32 = 10;

pub(crate) const HELLO: &str = "print('hi')";
const CASES: [(&str, Program); 3] =
    [(HELLO, PYTHON), ("import pandas, a DataFrame", PANDAS), ("TypeScript", TYPESCRIPT)];
const NEW: &str = "a new session";

/// The fact of a program: daemon and containers together.
pub(crate) fn in_all(program: &str) -> String {
    format!("{program}: in all")
}

/// Everything that is counted, at one moment.
struct Reading {
    at: Instant,
    daemon: f64,
    waited: f64,
    interrupted: f64,
    containers: Vec<(ContainerId, Used)>,
    machine: f64,
    machine_switches: f64,
}

impl Reading {
    async fn take(engine: &Engine, pid: u32, label: &str) -> Result<Self> {
        let mut containers = Vec::new();
        for group in cgroup::of_label(engine, label).await? {
            containers.push((group.id().clone(), group.used()?));
        }
        let [waited, interrupted] = switches(pid)?;
        Ok(Self {
            at: Instant::now(),
            daemon: cpu(pid)?,
            waited,
            interrupted,
            containers,
            machine: busy()? / TICKS * 1e6,
            machine_switches: machine_switches()?,
        })
    }

    /// The seconds and the differences since an earlier reading. A container that was made since then counts
    /// whole.
    fn since(&self, earlier: &Self) -> (f64, Spent) {
        let sum = |of: fn(&Used) -> f64| -> f64 {
            let was =
                |id| earlier.containers.iter().find(|(old, _)| old == id).map_or(0.0, |(_, used)| of(used));
            self.containers.iter().map(|(id, used)| of(used) - was(id)).sum()
        };
        let spent = Spent {
            daemon: self.daemon - earlier.daemon,
            containers: sum(|used| used.cpu),
            faults: sum(|used| used.faults),
            waited: self.waited - earlier.waited,
            interrupted: self.interrupted - earlier.interrupted,
            machine: self.machine - earlier.machine,
            machine_switches: self.machine_switches - earlier.machine_switches,
        };
        ((self.at - earlier.at).as_secs_f64(), spent)
    }
}

/// Times in microseconds.
struct Spent {
    daemon: f64,
    containers: f64,
    faults: f64,
    waited: f64,
    interrupted: f64,
    machine: f64,
    machine_switches: f64,
}

impl Spent {
    /// Of one of `runs`, without what so many seconds of the background have used.
    fn of_a_run(&self, runs: u32, seconds: f64, quiet: &[(f64, Self)]) -> Self {
        let of = |field: fn(&Self) -> f64| {
            let least = quiet.iter().map(|(seconds, spent)| field(spent) / seconds).reduce(f64::min);
            (field(self) - least.unwrap_or_default() * seconds) / f64::from(runs)
        };
        Self {
            daemon: of(|spent| spent.daemon),
            containers: of(|spent| spent.containers),
            faults: of(|spent| spent.faults),
            waited: of(|spent| spent.waited),
            interrupted: of(|spent| spent.interrupted),
            machine: of(|spent| spent.machine),
            machine_switches: of(|spent| spent.machine_switches),
        }
    }
}

pub(crate) async fn measure(setup: &mut Setup, report: &mut Measurements) -> Result<()> {
    let engine = setup.engine.clone();
    for (case, program) in CASES {
        let session = format!("bench-processor-{}", program.name);
        let (daemon, client) = setup.ours()?;
        let (pid, label, armed) = (daemon.pid, daemon.label.clone(), daemon.armed(program.language));
        client.run(program.language, &session, program.code, program.prints).await?;
        // The session has taken a container, and the pool starts another one in its place.
        daemon.wait_for_armed(program.language, armed + 1).await?;
        for _ in 0..WARM_UP {
            client.run(program.language, &session, program.code, program.prints).await?;
        }
        let quiet = background(&engine, pid, &label).await?;
        let before = Reading::take(&engine, pid, &label).await?;
        for _ in 0..RUNS {
            tokio::time::sleep(REST).await;
            client.run(program.language, &session, program.code, program.prints).await?;
        }
        tokio::time::sleep(SETTLE).await;
        let (seconds, spent) = Reading::take(&engine, pid, &label).await?.since(&before);
        note(report, case, &spent.of_a_run(RUNS, seconds, &quiet));
        let arguments = serde_json::json!({ "session_id": session, "delete_files": true });
        setup.client()?.call("close_session", arguments).await?;
    }
    new_sessions(setup, report).await
}

/// Each takes the idle container, and the pool starts another one: that is in the figures of the containers,
/// and the engine's work for it in those of the machine.
async fn new_sessions(setup: &mut Setup, report: &mut Measurements) -> Result<()> {
    let engine = setup.engine.clone();
    let names: Vec<_> = (0..NEW_SESSIONS).map(|_| setup.new_session()).collect();
    let (daemon, client) = setup.ours()?;
    daemon.wait_for_warm().await?;
    let (pid, label) = (daemon.pid, daemon.label.clone());
    let quiet = background(&engine, pid, &label).await?;
    let before = Reading::take(&engine, pid, &label).await?;
    for session in &names {
        let armed = daemon.armed(PYTHON.language);
        client.run(PYTHON.language, session, PYTHON.code, PYTHON.prints).await?;
        daemon.wait_for_armed(PYTHON.language, armed + 1).await?;
    }
    tokio::time::sleep(SETTLE).await;
    let (seconds, spent) = Reading::take(&engine, pid, &label).await?.since(&before);
    note(report, NEW, &spent.of_a_run(NEW_SESSIONS, seconds, &quiet));
    for session in names {
        let arguments = serde_json::json!({ "session_id": session, "delete_files": true });
        client.call("close_session", arguments).await?;
    }
    Ok(())
}

async fn background(engine: &Engine, pid: u32, label: &str) -> Result<Vec<(f64, Spent)>> {
    tokio::time::sleep(SETTLE).await;
    let mut all = Vec::new();
    for _ in 0..QUIETS {
        let before = Reading::take(engine, pid, label).await?;
        tokio::time::sleep(QUIET).await;
        all.push(Reading::take(engine, pid, label).await?.since(&before));
    }
    Ok(all)
}

fn note(report: &mut Measurements, case: &str, run: &Spent) {
    let block = report.block(TITLE);
    block.fact(in_all(case), run.daemon + run.containers, "µs");
    block.fact(format!("{case}: the daemon"), run.daemon, "µs");
    block.fact(format!("{case}: its containers"), run.containers, "µs");
    block.fact(format!("{case}: page faults in its containers"), run.faults, "");
    block.fact(format!("{case}: context switches of the daemon, waiting"), run.waited, "");
    block.fact(format!("{case}: context switches of the daemon, interrupted"), run.interrupted, "");
    block.fact(format!("{case}: the whole machine, this process too"), run.machine, "µs");
    block.fact(format!("{case}: context switches of the whole machine"), run.machine_switches, "");
}
