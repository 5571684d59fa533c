//! A run in a container that has just started, because none stood ready: how long the engine needs for the
//! container, and how long the run then takes, whatever it imports.
//!
//! It must never measure beside a container of the sample before: each is removed first.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::Result;
use crate::engine_only::EngineContainer;
use crate::programs::{PYTHON, Program, TYPESCRIPT};
use crate::report::Measurements;
use crate::setup::Setup;
use crate::times::Times;

pub(crate) const TITLE: &str = "A container that has just started";
const ENGINE: &str = "the engine: create, start";
const STARTING: &str = "paddock: until the container is armed";

const NAME: &str = "cold";
/// No container stands ready.
const CONFIG: &str = r#"
http.addr = "127.0.0.1:0"
pool = { idle = 0, uids = "36000-36999" }
runners = { python = "paddock-runner-python", typescript = "paddock-runner-typescript" }
"#;

/// What models import most.
const HEAVY: Program = Program {
    language: "python",
    name: "heavy",
    code: "import numpy, pandas, matplotlib.pyplot, seaborn; print('hi')",
    prints: "hi\n",
};
const CASES: [(&str, Program); 3] =
    [("print('hi')", PYTHON), ("pandas, pyplot, seaborn", HEAVY), ("TypeScript", TYPESCRIPT)];
/// How often each program is measured, in turns. Each is run once before that, and this run does not count.
const TURNS: usize = 7;
/// For the removal of a container, and between two looks at it.
const GONE: Duration = Duration::from_secs(20);
const LOOK: Duration = Duration::from_millis(10);

/// The row of a run after its container is armed: what the engine's start leaves of the call.
pub(crate) fn run(case: &str) -> String {
    format!("paddock: the run, {case}")
}

/// The cases in Python: what a run may import must not matter.
pub(crate) fn python() -> impl Iterator<Item = String> {
    CASES.into_iter().filter(|(_, program)| program.language == PYTHON.language).map(|(case, _)| run(case))
}

pub(crate) async fn measure(setup: &mut Setup, report: &mut Measurements) -> Result<()> {
    let plan = setup.reference(PYTHON.language)?.specimen.plan.clone();
    let engine = setup.engine.clone();
    let (daemon, client) = setup.other(NAME, CONFIG).await?;
    let label = [daemon.label.clone()];
    let (mut starting, mut by_engine) = (Times::default(), Times::default());
    let (mut calls, mut runs): (Vec<_>, Vec<_>) =
        CASES.iter().map(|_| (Times::default(), Times::default())).unzip();
    for turn in 0..=TURNS {
        let begun = Instant::now();
        let container = EngineContainer::start(&engine, &plan).await?;
        let taken = begun.elapsed();
        container.remove().await?;
        if turn > 0 {
            by_engine.record(taken)?;
        }
        for (n, (case, program)) in CASES.iter().enumerate() {
            let session = format!("bench-cold-{turn}-{n}");
            let armed = daemon.armed(program.language);
            let (_, call) = client.run(program.language, &session, program.code, program.prints).await?;
            let arming = daemon.arming(program.language, armed + 1).await?;
            let run = call.checked_sub(arming).ok_or_else(|| {
                format!("{case}: the call took {call:?}, and its container alone {arming:?}")
            })?;
            if turn > 0 {
                starting.record(arming)?;
                calls[n].record(call)?;
                runs[n].record(run)?;
            }
            client.call("close_session", json!({ "session_id": session, "delete_files": true })).await?;
            let until = Instant::now() + GONE;
            while !engine.container_list(&label).await?.is_empty() {
                if Instant::now() > until {
                    return Err(format!("the container of a closed session is there after {GONE:?}").into());
                }
                tokio::time::sleep(LOOK).await;
            }
        }
    }
    let block = report.block(TITLE);
    block.line(ENGINE, by_engine, None);
    block.line(STARTING, starting, None);
    for ((case, _), (call, took)) in CASES.iter().zip(calls.into_iter().zip(runs)) {
        block.line(format!("paddock: the call, {case}"), call, None);
        block.line(run(case), took, None);
    }
    setup.end(NAME).await
}
