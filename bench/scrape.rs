//! Runs while a scraper reads the metrics ten times a second, and runs without a scraper, in alternating
//! slices.
//!
//! It must never count a slice with a scraper in which nothing was scraped.

use std::cell::Cell;
use std::time::{Duration, Instant};

use crate::Result;
use crate::programs::PYTHON;
use crate::report::Measurements;
use crate::setup::Setup;
use crate::times::Times;

pub(crate) const TITLE: &str = "Runs beside a scraper, print('hi')";
pub(crate) const ALONE: &str = "paddock warm, nobody scrapes";
pub(crate) const BESIDE: &str = "paddock warm, scraped at 10 Hz";

/// Slices of each kind, and runs of a slice.
const SLICES: u32 = 40;
const RUNS: u32 = 25;
/// Between two runs, so that a slice is long enough for some scrapes.
const REST: Duration = Duration::from_millis(15);
const EVERY: Duration = Duration::from_millis(100);

pub(crate) async fn measure(setup: &mut Setup, report: &mut Measurements) -> Result<()> {
    let session = setup.new_session();
    let client = setup.client()?;
    let mut scraper = client.another().await?;
    let (bytes, scrapes, mut taken) = (Cell::new(0), Cell::new(0), Times::default());
    let (mut alone, mut beside) = (Times::default(), Times::default());
    client.run(PYTHON.language, &session, PYTHON.code, PYTHON.prints).await?;
    let mut slice = async |times: &mut Times| -> Result<()> {
        for _ in 0..RUNS {
            tokio::time::sleep(REST).await;
            times.record(client.run(PYTHON.language, &session, PYTHON.code, PYTHON.prints).await?.1)?;
        }
        Ok(())
    };
    for _ in 0..SLICES {
        slice(&mut alone).await?;
        let before = scrapes.get();
        let scraping = async {
            let mut due = tokio::time::interval(EVERY);
            loop {
                due.tick().await;
                let begun = Instant::now();
                let (text, _) = scraper.get("/metrics").await?;
                taken.record(begun.elapsed())?;
                bytes.set(text.len());
                scrapes.set(scrapes.get() + 1);
            }
        };
        tokio::select! {
            done = slice(&mut beside) => done?,
            failed = scraping => { let never: Result<()> = failed; never?; }
        }
        if scrapes.get() == before {
            return Err("nothing was scraped".into());
        }
    }
    let block = report.block(TITLE);
    block.line(ALONE, alone, None);
    block.line(BESIDE, beside, None);
    block.line("a scrape", taken, None);
    block.fact("a scrape", f64::from(u32::try_from(bytes.get())?) / 1024.0, "KiB");
    Ok(())
}
