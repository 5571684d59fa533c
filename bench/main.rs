//! How long things take: this daemon against the floor, the engine's own exec, `docker run` and other
//! programs that do the same; same container settings, same run. `README.md` beside this file says what each
//! row means and what its time includes.
//!
//! ```text
//!  main ─► setup        the daemon, and everything that it is compared with
//!   │        ├ daemon ── client    paddock serve; MCP and raw files over one kept-alive connection
//!   │        ├ floor               a fork of a warm interpreter, and nothing else
//!   │        ├ reference_container engine exec, archives, the agent's link, a shell loop; docker: docker run
//!   │        ├ engine_only         containers that the engine alone makes and uses
//!   │        └ peers               llm-sandbox's pool, sandbox-runtime's server
//!   ├────► resources    CPU and memory of daemon and agent, before any other load; host: as /proc shows them
//!   ├────► rows         what is measured one at a time, in turns: A B C A B C …; workload: a sample of each;
//!   │                   programs, names, data; commands: shell commands and their output
//!   ├────► concurrency  many sessions, and runs that fall due by the clock; load: the generator
//!   ├────► network      the way out, beside bare loopback; network_server: the other side
//!   ├────► task         a coding agent's start, up to its first request; its model
//!   ├────► packages     a list of packages: the first use, and the next ones
//!   ├────► scrape       runs while a scraper reads the metrics, and while nobody does
//!   ├────► neighbour    a tenant while another one floods the daemon; flooder makes the flood
//!   ├────► hop          a request at the node that has its session, and by another node
//!   ├────► mixed        programs as models write them, of many kinds: the headline
//!   ├────► processor    what a run costs, wherever it is spent; memory: of containers that nobody uses
//!   │        └ cgroup   both, as the kernel charges them
//!   ├────► cold         a run whose container has just started; burst: a hundred new sessions at once
//!   ├────► before       eight sessions beside an older build
//!   ├────► churn        new sessions a second
//!   └────► report       table, verdict, reach, chart; times: histograms; machine: where it was measured
//! ```
//!
//! With words on the command line only the blocks whose titles contain one of them are measured, as in `cargo
//! bench --bench paddock -- files MiB`; `no-` before a word leaves its blocks out. `PADDOCK_BENCH_SECONDS` is
//! how long the turns go on, `PADDOCK_BENCH_RUNS` during how many runs memory is watched. It needs a Docker
//! engine with the runner images and the `docker` command, root, and what `peers/install` installs; without
//! them it fails, and skips nothing. It must never compare figures of two runs, nor leave a container or
//! volume behind.

mod before;
mod burst;
mod cgroup;
mod chart;
mod churn;
mod client;
mod cold;
mod commands;
mod concurrency;
mod daemon;
mod data;
mod docker;
mod engine_only;
mod flood;
mod flooder;
mod floor;
mod hop;
mod host;
mod load;
mod machine;
mod memory;
mod mixed;
mod names;
mod neighbour;
mod network;
mod network_server;
mod packages;
mod peers;
mod processor;
mod programs;
mod reach;
mod reference_container;
mod report;
mod resources;
mod rows;
mod scrape;
mod setup;
mod table;
mod task;
mod times;
mod verdict;
mod workload;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use report::Measurements;
use rows::BenchRow;
use setup::{Need, Setup};
use tokio::signal::unix::{SignalKind, signal};

/// Any error ends the run, without figures.
type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

const SECONDS: &str = "PADDOCK_BENCH_SECONDS";
const DEFAULT_SECONDS: u64 = 90;
const RUNS: &str = "PADDOCK_BENCH_RUNS";
const DEFAULT_RUNS: u32 = 1000;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            table::say(&format!("bench: {error}"));
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<()> {
    // `cargo test --benches` and `cargo bench -- --list` want no measurement.
    if std::env::args().any(|argument| matches!(argument.as_str(), "--test" | "--list")) {
        return Ok(());
    }
    let plan = BenchPlan::read()?;
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
        let mut terminated = signal(SignalKind::terminate())?;
        let mut setup = Setup::new().await?;
        let mut report = Measurements::default();
        let measured = tokio::select! {
            measured = plan.measure(&mut setup, &mut report) => measured,
            _ = tokio::signal::ctrl_c() => Err("interrupted".into()),
            _ = terminated.recv() => Err("terminated".into()),
        };
        let machine = machine::describe(&setup.engine).await;
        let gone = setup.take_down().await;
        measured?;
        gone?;
        let machine = machine?;
        table::print(&machine, plan.seconds, &report)?;
        chart::write(&machine, &report)
    })
}

/// What the command line and the environment ask for.
struct BenchPlan {
    seconds: u64,
    runs: u32,
    wanted: Vec<String>,
    unwanted: Vec<String>,
}

impl BenchPlan {
    fn read() -> Result<Self> {
        let words = std::env::args().skip(1).filter(|word| !word.starts_with('-'));
        let (unwanted, wanted): (Vec<_>, Vec<_>) =
            words.map(|word| word.to_lowercase()).partition(|word| word.starts_with("no-"));
        let unwanted = unwanted.iter().map(|word| word.trim_start_matches("no-").to_owned()).collect();
        let (seconds, runs) = (number(SECONDS, DEFAULT_SECONDS)?, number(RUNS, DEFAULT_RUNS)?);
        let plan = Self { seconds, runs, wanted, unwanted };
        let others = [
            resources::TITLE,
            memory::TITLE,
            processor::TITLE,
            cold::TITLE,
            burst::TITLE,
            before::TITLE,
            concurrency::OPEN_TITLE,
            scrape::TITLE,
            flood::TITLE,
            hop::TITLE,
            churn::TITLE,
            task::TITLE,
            mixed::TITLE,
            packages::TITLE,
            concurrency::TITLE,
            concurrency::MANY_TITLE,
        ];
        if rows::all()
            .iter()
            .map(|row| row.title)
            .chain(others)
            .chain(network::TITLES)
            .chain(neighbour::TITLES)
            .any(|title| plan.has(title))
        {
            Ok(plan)
        } else {
            Err(format!("no block of rows is left by {:?} without {:?}", plan.wanted, plan.unwanted).into())
        }
    }

    fn has(&self, title: &str) -> bool {
        let title = title.to_lowercase();
        let named = |words: &[String]| words.iter().any(|word| title.contains(word));
        (self.wanted.is_empty() || named(&self.wanted)) && !named(&self.unwanted)
    }

    /// A peer's row in another block is left out with the peers.
    fn wants(&self, row: &BenchRow) -> bool {
        let peer = matches!(row.need(), Some(Need::Peer(_)));
        self.has(row.title) && !(peer && self.unwanted.iter().any(|word| word == "peers"))
    }

    /// Measures all blocks. Blocks that start many containers come last.
    async fn measure(&self, setup: &mut Setup, report: &mut Measurements) -> Result<()> {
        let mut rows = rows::all();
        rows.retain(|row| self.wants(row));
        let begun = Instant::now();
        let at = |step: &str| table::say(&format!("{:>4} s  {step}", begun.elapsed().as_secs()));
        at("set-up");
        setup.set_up(&rows.iter().filter_map(BenchRow::need).collect()).await?;
        if self.has(resources::TITLE) {
            at(resources::TITLE);
            resources::measure(setup, self.runs, report).await?;
        }
        if self.has(memory::TITLE) {
            at(memory::TITLE);
            memory::measure(setup, report).await?;
        }
        if self.has(processor::TITLE) {
            at(processor::TITLE);
            processor::measure(setup, report).await?;
        }
        if !rows.is_empty() {
            at("turns");
            turns(setup, &mut rows, Duration::from_secs(self.seconds)).await?;
        }
        for row in rows {
            report.block(row.title).line(row.name, row.times, None);
        }
        commands::rates(report);
        if self.has(concurrency::OPEN_TITLE) {
            at(concurrency::OPEN_TITLE);
            concurrency::open(setup, report).await?;
        }
        if self.has(scrape::TITLE) {
            at(scrape::TITLE);
            scrape::measure(setup, report).await?;
        }
        if self.has(flood::TITLE) {
            at(flood::TITLE);
            flood::measure(setup, report).await?;
        }
        if neighbour::TITLES.iter().any(|title| self.has(title)) {
            at("a tenant beside one that floods");
            neighbour::measure(setup, report).await?;
        }
        if self.has(hop::TITLE) {
            at(hop::TITLE);
            hop::measure(setup, report).await?;
        }
        if network::TITLES.iter().any(|title| self.has(title)) {
            at("network");
            let peers = !self.unwanted.iter().any(|word| word == "peers");
            network::measure(setup, |title| self.has(title), peers, report).await?;
        }
        if self.has(task::TITLE) {
            at(task::TITLE);
            task::measure(setup, report).await?;
        }
        if self.has(mixed::TITLE) {
            at(mixed::TITLE);
            mixed::measure(setup, report).await?;
        }
        if self.has(packages::TITLE) {
            at(packages::TITLE);
            packages::measure(setup, report).await?;
        }
        if self.has(cold::TITLE) {
            at(cold::TITLE);
            cold::measure(setup, report).await?;
        }
        if self.has(churn::TITLE) {
            at(churn::TITLE);
            churn::measure(setup, report).await?;
        }
        if self.has(concurrency::TITLE) {
            at(concurrency::TITLE);
            concurrency::few(setup, report).await?;
        }
        if self.has(concurrency::MANY_TITLE) {
            at(concurrency::MANY_TITLE);
            concurrency::many(setup, report).await?;
        }
        if self.has(before::TITLE) {
            at(before::TITLE);
            before::measure(setup, report).await?;
        }
        if self.has(burst::TITLE) {
            at(burst::TITLE);
            burst::measure(setup, report).await?;
        }
        report.begin_with(mixed::TITLE);
        at("clearing away");
        Ok(())
    }
}

fn number<T: std::str::FromStr>(name: &str, default: T) -> Result<T> {
    match std::env::var(name) {
        Ok(text) => text.parse().map_err(|_| format!("{name} is {text:?}, expected a whole number").into()),
        Err(_) => Ok(default),
    }
}

/// Takes samples in turns, each row once a round (some more often, or once in so many), until the time is
/// over.
async fn turns(setup: &mut Setup, rows: &mut [BenchRow], time: Duration) -> Result<()> {
    for row in &mut *rows {
        row.warm_up(setup).await?;
    }
    let until = Instant::now() + time;
    for round in 0.. {
        for pass in 0..rows::PASSES {
            for (place, row) in rows.iter_mut().enumerate() {
                row.turn(setup, round, pass, place).await?;
            }
        }
        // Every row has had a turn, however short the time.
        if Instant::now() >= until && round >= rows::RARE {
            break;
        }
    }
    Ok(())
}
