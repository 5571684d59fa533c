//! Many sessions at a time against as many containers of the floor: the same load generator on the same
//! cores, in alternating slices.
//!
//! It must never count a session's first run: that one starts a container.

use std::time::Duration;

use futures_util::future::join_all;

use crate::Result;
use crate::client::{Client, LoadSession};
use crate::load::{Load, LoadTarget};
use crate::programs::{PYTHON, Program, TYPESCRIPT};
use crate::report::Measurements;
use crate::setup::Setup;

pub(crate) const TITLE: &str = "Concurrent sessions, closed loop";
pub(crate) const MANY_TITLE: &str = "64 concurrent sessions, closed loop";
pub(crate) const OPEN_TITLE: &str = "Open loop, from when a run was due";

const FEW: [usize; 4] = [1, 4, 8, 16];
/// Sessions of TypeScript; as many of Python are in the same block.
const TYPESCRIPT_SESSIONS: usize = 8;
const MANY: usize = 64;
/// Sessions that begin at one time; fewer than may wait for a container.
const TOGETHER: usize = 8;
/// Slices of each, in turns.
pub(crate) const SLICES: u32 = 2;
pub(crate) const SLICE: Duration = Duration::from_secs(3);
const OPEN_SLICE: Duration = Duration::from_secs(4);

/// Runs a second of one session; far fewer than one session can have.
const PYTHON_RATE: f64 = 25.0;
/// The same.
const TYPESCRIPT_RATE: f64 = 4.0;

pub(crate) fn ours(sessions: usize) -> String {
    format!("paddock, {sessions} {}", if sessions == 1 { "session" } else { "sessions" })
}

pub(crate) fn floor(sessions: usize) -> String {
    format!("the floor, {sessions} {}", if sessions == 1 { "container" } else { "containers" })
}

pub(crate) fn of_typescript() -> String {
    format!("paddock, {TYPESCRIPT_SESSIONS} sessions of TypeScript")
}

/// 1, 4, 8 and 16 of Python, and 8 of TypeScript.
pub(crate) async fn few(setup: &mut Setup, report: &mut Measurements) -> Result<()> {
    let mut callers = Vec::new();
    for sessions in FEW {
        closed(setup, &mut callers, sessions, TITLE, report).await?;
    }
    end(callers).await?;
    let mut typescript = Vec::new();
    open_sessions(setup.client()?, &mut typescript, TYPESCRIPT_SESSIONS, TYPESCRIPT).await?;
    setup.ours()?.0.wait_for_warm().await?;
    let mut load = Load::default();
    for _ in 0..SLICES {
        load.closed(&mut typescript, SLICE).await?;
    }
    let rate = load.per_second();
    report.block(TITLE).line(of_typescript(), load.times, Some(rate));
    end(typescript).await
}

/// 64.
pub(crate) async fn many(setup: &mut Setup, report: &mut Measurements) -> Result<()> {
    let mut callers = Vec::new();
    closed(setup, &mut callers, MANY, MANY_TITLE, report).await?;
    end(callers).await
}

/// A constant rate of runs, each counted from when it was due.
pub(crate) async fn open(setup: &mut Setup, report: &mut Measurements) -> Result<()> {
    let mut python = Vec::new();
    open_sessions(setup.client()?, &mut python, 1, PYTHON).await?;
    let mut typescript = Vec::new();
    open_sessions(setup.client()?, &mut typescript, 1, TYPESCRIPT).await?;
    setup.ours()?.0.wait_for_warm().await?;
    let (mut ours, mut floor, mut ours_typescript) = (Load::default(), Load::default(), Load::default());
    for _ in 0..SLICES {
        ours.open(&mut python, PYTHON_RATE, OPEN_SLICE).await?;
        floor.open(&mut setup.floors[..1], PYTHON_RATE, OPEN_SLICE).await?;
        ours_typescript.open(&mut typescript, TYPESCRIPT_RATE, OPEN_SLICE).await?;
    }
    let block = report.block(OPEN_TITLE);
    block.line("the floor, 25/s", floor.times, None);
    block.line("paddock, Python, 25/s", ours.times, None);
    block.line("paddock, TypeScript, 4/s", ours_typescript.times, None);
    end(python).await?;
    end(typescript).await
}

async fn closed(
    setup: &mut Setup,
    callers: &mut Vec<LoadSession>,
    sessions: usize,
    title: &'static str,
    report: &mut Measurements,
) -> Result<()> {
    open_sessions(setup.client()?, callers, sessions, PYTHON).await?;
    setup.ours()?.0.wait_for_warm().await?;
    setup.floors(sessions).await?;
    let (mut ours, mut floor) = (Load::default(), Load::default());
    for _ in 0..SLICES {
        floor.closed(&mut setup.floors[..sessions], SLICE).await?;
        ours.closed(&mut callers[..sessions], SLICE).await?;
    }
    let (floor_rate, our_rate) = (floor.per_second(), ours.per_second());
    let block = report.block(title);
    block.line(self::floor(sessions), floor.times, Some(floor_rate));
    block.line(self::ours(sessions), ours.times, Some(our_rate));
    Ok(())
}

/// Opens sessions until there are this many, each with a container and a connection of its own.
pub(crate) async fn open_sessions(
    client: &Client,
    callers: &mut Vec<LoadSession>,
    sessions: usize,
    program: Program,
) -> Result<()> {
    while callers.len() < sessions {
        let some = callers.len()..sessions.min(callers.len() + TOGETHER);
        let each = some.map(|n| async move {
            let name = format!("bench-load-{}-{sessions}-{n}", program.name);
            let mut caller = LoadSession::new(client, name, program).await?;
            caller.run().await?;
            Ok(caller)
        });
        for caller in join_all(each).await {
            let caller: Result<LoadSession> = caller;
            callers.push(caller?);
        }
    }
    Ok(())
}

pub(crate) async fn end(callers: Vec<LoadSession>) -> Result<()> {
    for mut caller in callers {
        caller.close().await?;
    }
    Ok(())
}
