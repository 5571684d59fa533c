//! The soak: a mixed load for as long as one wants, all faults at random, and a model of what must be true.
//!
//! ```text
//!  load ─► a fault, mended ─► service is back ─► load ends ─► all files, runs and containers are compared ─┐
//!   ▲                                                                                                     │
//!   └──────────────────────── memory and descriptors of the daemon are read ──────────────────────────────┘
//! ```
//!
//! One daemon lives through the first half, so that its memory can be judged; in the second half daemons are
//! killed and stopped as well. `SOAK_MINUTES` is how long it takes (otherwise a short form, with one
//! language), `SOAK_SEED` determines the faults, `SOAK_REPORT` names a file for the table. The soak must
//! never end with anything left on the engine, on the disk, or in the store.

#[path = "soak/crew.rs"]
mod crew;
#[path = "soak/fault.rs"]
mod fault;
#[path = "soak/figures.rs"]
mod figures;
#[path = "soak/load.rs"]
mod load;

use std::cell::Cell;
use std::time::{Duration, Instant};

use tokio::join;

use self::crew::Crew;
use self::fault::{Deck, Fault, Stage};
use self::figures::{Figures, Sample};
use super::{RETRY_AFTER, expect_clean, expect_tidy, verify};
use crate::support::{Chance, Daemon, PATIENCE, Ran, Setup, View, within};

/// The longest that service may take to return, on a machine that does other things as well. The table says
/// how long it took.
const BACK: Duration = Duration::from_secs(60);

/// How long, and what of it.
struct Plan {
    time: Duration,
    images: &'static [&'static str],
    /// In which clients write files, and in which they count.
    languages: [&'static [&'static str]; 2],
    /// The longest suspension of the engine.
    longest: Duration,
    /// Whether every kind of fault must have happened, however long that takes.
    every: bool,
}

impl Plan {
    fn from_env() -> Plan {
        match std::env::var("SOAK_MINUTES").ok() {
            None => Plan {
                time: Duration::from_secs(25),
                images: &["paddock-example-sh"],
                languages: [&["sh"], &["sh"]],
                longest: Duration::from_secs(2),
                every: false,
            },
            Some(minutes) => Plan {
                time: Duration::from_secs_f64(minutes.parse::<f64>().expect("a number") * 60.0),
                images: &["paddock-example-sh", "paddock-runner-python", "paddock-runner-typescript"],
                languages: [&["sh", "sh", "python"], &["sh", "sh", "python", "typescript"]],
                longest: Duration::from_secs(30),
                every: true,
            },
        }
    }
}

fn setup(stage: &Stage) -> Setup {
    super::setup(&stage.store)
        .set("pool.idle", 1)
        .set("sessions.max", 14)
        .set("exec.runner", "sh")
        .set("metrics.token", figures::FIGURES)
        .env("DOCKER_HOST", &stage.proxy.host())
        .env("SANDBOX_LOG_LEVEL", "info")
}

/// One daemon, from its start to its end.
struct Life {
    d: Daemon,
    view: View,
    samples: Vec<Sample>,
    /// Runs that had certainly ended, and that may have begun, before it started.
    before: (u64, u64),
    /// Those of the life before that may have begun and may end in this one.
    inherited: u64,
}

impl Life {
    async fn begin(stage: &Stage, crew: &Crew, inherited: u64) -> Life {
        let d = setup(stage).start().await;
        let view = View::on(&stage.host.parse().expect("a host"), &stage.store.owner()).await;
        Life { d, view, samples: Vec::new(), before: crew.runs(), inherited }
    }

    /// The runs that it counted are those that its clients know of. Returns how many were unsure.
    async fn expect_exact(&self, crew: &Crew) -> u64 {
        let (certain, unsure) = crew.runs();
        let (certain, unsure) = (certain - self.before.0, unsure - self.before.1);
        let counted = figures::runs_counted(&self.d).await;
        assert!(
            (certain..=certain + unsure + self.inherited).contains(&counted),
            "the daemon counted {counted} runs; {certain} ended, {unsure} may have begun, {} before it",
            self.inherited
        );
        unsure
    }
}

/// How long a new session takes to be served, from now on.
async fn served(d: &Daemon, n: usize) -> Duration {
    let begun = Instant::now();
    let name = format!("probe-{n}");
    let trying = async {
        loop {
            let ran = d.session(&name).tool("execute_code").with("command", "echo served").await;
            if !ran.is_error {
                assert_eq!(ran.command_stdout(), "served\n", "{}", ran.document);
                return;
            }
            expect_passing(&ran);
            tokio::time::sleep(RETRY_AFTER).await;
        }
    };
    within(BACK, "service", trying).await;
    let took = begun.elapsed();
    close(d, &name).await;
    took
}

/// Closes a session, with its files.
async fn close(d: &Daemon, name: &str) {
    let closing = async {
        loop {
            let ran = d.session(name).tool("close_session").with("delete_files", true).await;
            if !ran.is_error || ran.document["error"] == "session_not_found" {
                return;
            }
            expect_passing(&ran);
            tokio::time::sleep(RETRY_AFTER).await;
        }
    };
    within(PATIENCE, "a session to be closed", closing).await;
}

#[track_caller]
fn expect_passing(ran: &Ran) {
    let code = ran.document["error"].as_str().unwrap_or_default();
    let passing = ["engine_unavailable", "queue_full", "max_sessions", "lost", "quota_exceeded"];
    assert!(passing.contains(&code), "{}", ran.document);
}

/// One fault under load. Returns how long service took to return, if this daemon lives on.
async fn round(
    stage: &mut Stage,
    d: &Daemon,
    crew: &mut Crew,
    (n, fault): (usize, &Fault),
    chance: &mut Chance,
) -> Option<Duration> {
    let before = Duration::from_millis(200 + chance.below(1500));
    let enough = Cell::new(false);
    let is_enough = || enough.get();
    let faulting = async {
        tokio::time::sleep(before).await;
        fault.happen(stage, d).await;
        let back = if fault.ends_daemon() { None } else { Some(served(d, n).await) };
        tokio::time::sleep(Duration::from_secs(1)).await;
        enough.set(true);
        back
    };
    join!(crew.work(d, &is_enough), faulting).1
}

#[tokio::test]
async fn everything_holds_under_all_faults() {
    let mut chance = Chance::from_env("SOAK_SEED");
    let plan = Plan::from_env();
    let mut stage = Stage::set(plan.images).await;
    let mut crew = Crew::new(plan.languages, &mut chance);
    let mut deck = Deck::new(plan.longest);
    let mut figures = Figures::default();
    let begun = Instant::now();
    let mut life = Life::begin(&stage, &crew, 0).await;
    for n in 0.. {
        let steady = begun.elapsed() < plan.time / 2;
        let over = begun.elapsed() >= plan.time;
        if over && !plan.every {
            break;
        }
        let Some(fault) = deck.draw(steady, over, &mut chance) else { break };
        let lived = round(&mut stage, &life.d, &mut crew, (n, &fault), &mut chance).await;
        let (mut well, mut back) = (Instant::now(), lived);
        if fault.ends_daemon() {
            let unsure = crew.runs().1 - life.before.1;
            figures.lived(&life.samples);
            fault.end(life.d, &stage).await;
            well = Instant::now();
            life = Life::begin(&stage, &crew, unsure).await;
            served(&life.d, n).await;
            back = Some(well.elapsed());
        }
        verify(&life.d, &mut crew.clients, "sh").await;
        crew.verify(&life.d, fault.stops_daemon()).await;
        // An engine whose containerd was killed waits long for the end of a container that nobody told it.
        expect_tidy(&life.d, &life.view, 1, BACK).await;
        let back = back.unwrap_or_default();
        figures.note(&fault, back, well.elapsed());
        life.samples.push(Sample::of(&life.d, figures::runs_counted(&life.d).await));
        life.expect_exact(&crew).await;
        eprintln!("{n}: {fault:?}; served after {back:?}, all compared after {:?}", well.elapsed());
        if fault.wants_restart() {
            let unsure = life.expect_exact(&crew).await;
            figures.lived(&life.samples);
            life.d.crash().await;
            life = Life::begin(&stage, &crew, unsure).await;
            verify(&life.d, &mut crew.clients, "sh").await;
        }
    }
    figures.lived(&life.samples);
    crew.close(&life.d).await;
    let log = life.d.stop_on(&stage.host).await;
    assert!(!log.text().contains("panicked"), "{}", log.text());
    expect_clean(&stage.store);
    stage.expect_nothing_left().await;
    let table = figures.table(begun.elapsed(), &crew);
    eprintln!("{table}");
    if let Ok(path) = std::env::var("SOAK_REPORT") {
        std::fs::write(path, table).expect("a report");
    }
    figures.expect_flat();
}
