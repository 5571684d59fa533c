//! The figures, as a table for people and as JSON for programs.
//!
//! It must never print a percentile that so few samples cannot have.

use std::io::Write;

use hdrhistogram::{CreationError, Histogram, RecordError};
use serde_json::{Value, json};

use crate::Result;
use crate::rows::Row;
use crate::stand;

/// Microseconds, to three digits.
pub(crate) struct Times(std::result::Result<Histogram<u64>, CreationError>);

/// One minute: no sample is longer, the daemon's own bounds see to that.
const LONGEST: u64 = 60_000_000;

/// A percentile stands for something from so many samples on.
const FOR_P95: u64 = 20;
const FOR_P99: u64 = 100;

impl Default for Times {
    fn default() -> Self {
        Self(Histogram::new_with_bounds(1, LONGEST, 3))
    }
}

impl Times {
    pub(crate) fn record(&mut self, micros: u64) -> Result<()> {
        let histogram = self.0.as_mut().map_err(|error| error.to_string())?;
        histogram.record(micros.max(1)).map_err(|error: RecordError| error.to_string().into())
    }

    fn figures(&self) -> Option<Figures> {
        let histogram = self.0.as_ref().ok().filter(|histogram| !histogram.is_empty())?;
        let n = histogram.len();
        let percentile = |q, least| (n >= least).then(|| histogram.value_at_quantile(q));
        Some(Figures {
            n,
            min: histogram.min(),
            median: histogram.value_at_quantile(0.5),
            p95: percentile(0.95, FOR_P95),
            p99: percentile(0.99, FOR_P99),
            max: histogram.max(),
        })
    }
}

struct Figures {
    n: u64,
    min: u64,
    median: u64,
    p95: Option<u64>,
    p99: Option<u64>,
    max: u64,
}

/// Prints the table and writes the JSON.
pub(crate) fn print(machine: &Value, seconds: u64, rows: &[Row]) -> Result<()> {
    let mut text = String::new();
    for (name, value) in machine.as_object().into_iter().flatten() {
        text.push_str(&format!(
            "{name}: {}\n",
            value.as_str().map_or_else(|| value.to_string(), str::to_owned)
        ));
    }
    text.push_str("times in milliseconds; ratio to the first row of each block, medians\n");
    let mut group = "";
    let mut base = 0;
    let mut all = Vec::new();
    for row in rows {
        let figures = row.times.figures().ok_or_else(|| format!("no sample of {}", row.name))?;
        if row.group != group {
            group = row.group;
            base = figures.median;
            let head = ["n", "min", "median", "p95", "p99", "max", "ratio"];
            text.push_str(&format!("\n{group:<36}{}\n", head.map(|h| format!("{h:>9}")).concat()));
        }
        let ratio = exact(figures.median) / exact(base);
        let cells = [
            figures.n.to_string(),
            millis(figures.min),
            millis(figures.median),
            figures.p95.map_or_else(|| "-".to_owned(), millis),
            figures.p99.map_or_else(|| "-".to_owned(), millis),
            millis(figures.max),
            format!("{ratio:.2}"),
        ];
        text.push_str(&format!("  {:<34}{}\n", row.name, cells.map(|c| format!("{c:>9}")).concat()));
        all.push(json!({
            "group": row.group, "row": row.name, "n": figures.n, "min_us": figures.min,
            "median_us": figures.median, "p95_us": figures.p95, "p99_us": figures.p99, "max_us": figures.max,
            "ratio": ratio,
        }));
    }
    say(&text);
    let file = stand::results()?.join("paddock.json");
    let document = json!({ "machine": machine, "seconds": seconds, "rows": all });
    std::fs::write(&file, format!("{document:#}\n"))?;
    say(&file.display().to_string());
    Ok(())
}

pub(crate) fn say(text: &str) {
    let _ = writeln!(std::io::stdout(), "{text}");
}

#[expect(clippy::cast_precision_loss, reason = "at most a minute in microseconds")]
fn exact(micros: u64) -> f64 {
    micros as f64
}

fn millis(micros: u64) -> String {
    let millis = exact(micros) / 1e3;
    if millis < 10.0 { format!("{millis:.2}") } else { format!("{millis:.1}") }
}
