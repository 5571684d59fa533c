//! How long things take: this daemon against the engine's own exec and `docker run`, same container settings, same
//! run. What each row means and what is in its time stands in `README.md` beside this file.
//!
//! ```text
//!  main ─► stand     the daemon, and one container alike for each language, outside of it
//!   │        ├ daemon ─ client     paddock serve; MCP and raw files over one kept-alive connection
//!   │        └ twin   ─ docker     engine exec, archives, the agent's link, a shell loop; docker run
//!   ├────► rows      what is measured with it, in turns: A B C A B C …
//!   ├────► data       what goes in, what has to come out
//!   └────► table     medians and percentiles; machine: where that was
//! ```
//!
//! `PADDOCK_BENCH_SECONDS` (default 90) is how long the turns go on; words of the command line, as in
//! `cargo bench --bench paddock -- files MiB`, leave only the blocks that contain one of them. Needs a Docker engine with the runner images
//! and the `docker` command; without them it fails, nothing is skipped. It must never compare figures of two runs,
//! nor leave a container or volume behind.

mod client;
mod daemon;
mod data;
mod docker;
mod machine;
mod rows;
mod stand;
mod table;
mod twin;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use rows::Row;
use stand::Stand;

/// Whatever goes wrong ends the run: there are no figures then.
type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

const SECONDS: &str = "PADDOCK_BENCH_SECONDS";
const DEFAULT_SECONDS: u64 = 90;

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
    // `cargo test --benches` and `cargo bench -- --list` ask what there is; a measurement is neither.
    if std::env::args().any(|argument| matches!(argument.as_str(), "--test" | "--list")) {
        return Ok(());
    }
    let seconds = match std::env::var(SECONDS) {
        Ok(text) => text.parse().map_err(|_| format!("{SECONDS} is {text:?}, expected whole seconds"))?,
        Err(_) => DEFAULT_SECONDS,
    };
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
        let mut stand = Stand::set_up().await?;
        let mut rows = rows::all();
        let words: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
        rows.retain(|row| words.is_empty() || words.iter().any(|word| row.group.contains(word)));
        if rows.is_empty() {
            return Err(format!("no block of rows contains any of {words:?}").into());
        }
        let measured = tokio::select! {
            measured = measure(&mut stand, &mut rows, Duration::from_secs(seconds)) => measured,
            _ = tokio::signal::ctrl_c() => Err("interrupted".into()),
        };
        let machine = machine::describe(&stand.engine).await;
        let gone = stand.take_down().await;
        measured?;
        gone?;
        table::print(&machine?, seconds, &rows)
    })
}

/// Takes samples in turns, each row once a round (or once in so many), until the time is over.
async fn measure(stand: &mut Stand, rows: &mut [Row], time: Duration) -> Result<()> {
    for row in &mut *rows {
        for _ in 0..row.warm_up() {
            row.sample(stand).await?;
        }
    }
    let until = Instant::now() + time;
    for round in 0.. {
        for (place, row) in rows.iter_mut().enumerate() {
            // The expensive rows are spread over the rounds.
            if (round + place).is_multiple_of(row.every) {
                let taken = row.sample(stand).await?;
                row.times.record(u64::try_from(taken.as_micros())?)?;
            }
        }
        // Every row has had a turn, however short the time.
        if Instant::now() >= until && round >= rows::HEAVY {
            break;
        }
    }
    Ok(())
}
