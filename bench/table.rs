//! The figures, as a table for people and as JSON for programs.
//!
//! It must never show a figure that [`Times`](crate::times::Times) does not give.

use std::io::Write;

use serde_json::{Value, json};

use crate::Result;
use crate::reach;
use crate::report::{Block, MeasuredRow, Measurements};
use crate::setup;
use crate::times::Figures;
use crate::verdict::{self, GoalVerdict};

const COLUMNS: [&str; 8] = ["n", "min", "median", "p95", "p99", "max", "ratio", "/s"];

/// Prints the table and writes the JSON.
pub(crate) fn print(machine: &Value, seconds: u64, report: &Measurements) -> Result<()> {
    let (verdicts, summary) = (verdict::all(report), reach::all(report));
    let mut text = String::new();
    for (name, value) in machine.as_object().into_iter().flatten() {
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        text.push_str(&format!("{name}: {value}\n"));
    }
    text.push_str("times in milliseconds; ratio to the first row of each block, medians\n");
    let mut rows = Vec::new();
    let mut facts = Vec::new();
    for block in &report.blocks {
        text.push_str(&self::block(block, &mut rows)?);
        facts.extend(block.facts.iter().map(
            |fact| json!({ "group": block.title, "fact": fact.name, "value": fact.value, "unit": fact.unit }),
        ));
    }
    text.push_str("\nWhat is to be reached\n");
    verdicts.iter().for_each(|verdict| text.push_str(&format!("{}\n", verdict.text())));
    text.push_str(&reach::table(&summary));
    say(&text);
    let file = setup::results()?.join("paddock.json");
    let all = |verdicts: &[GoalVerdict]| verdicts.iter().map(GoalVerdict::json).collect::<Vec<_>>();
    let (reach, summary) = (all(&verdicts), all(&summary));
    let document = json!({ "machine": machine, "seconds": seconds, "rows": rows, "facts": facts,
        "reach": reach, "summary": summary });
    std::fs::write(&file, format!("{document:#}\n"))?;
    say(&file.display().to_string());
    Ok(())
}

fn block(block: &Block, rows: &mut Vec<Value>) -> Result<String> {
    let figures =
        |line: &MeasuredRow| line.times.figures().ok_or_else(|| format!("no sample of {}", line.name));
    let rates = block.lines.iter().any(|line| line.per_second.is_some());
    let mut text = format!("\n{:<36}", block.title);
    if let Some(first) = block.lines.first() {
        let base = figures(first)?.median;
        let columns = &COLUMNS[..COLUMNS.len() - usize::from(!rates)];
        columns.iter().for_each(|column| text.push_str(&format!("{column:>9}")));
        text.push('\n');
        for line in &block.lines {
            let figures = figures(line)?;
            let ratio = exact(figures.median) / exact(base);
            text.push_str(&row(line, &figures, ratio));
            rows.push(json(block.title, line, &figures, ratio));
        }
    } else {
        text.push('\n');
    }
    for fact in &block.facts {
        text.push_str(&format!("  {:<60}{:>12.1} {}\n", fact.name, fact.value, fact.unit));
    }
    Ok(text)
}

fn row(line: &MeasuredRow, figures: &Figures, ratio: f64) -> String {
    let cells = [
        figures.n.to_string(),
        millis(figures.min),
        millis(figures.median),
        figures.p95.map_or_else(|| "-".to_owned(), millis),
        figures.p99.map_or_else(|| "-".to_owned(), millis),
        millis(figures.max),
        format!("{ratio:.2}"),
        line.per_second.map_or_else(String::new, |rate| format!("{rate:.1}")),
    ];
    let cells = cells.map(|cell| format!("{cell:>9}")).concat();
    format!("  {:<34}{}\n", line.name, cells.trim_end())
}

fn json(title: &str, line: &MeasuredRow, figures: &Figures, ratio: f64) -> Value {
    json!({
        "group": title, "row": line.name, "n": figures.n, "min_us": figures.min,
        "median_us": figures.median, "p95_us": figures.p95, "p99_us": figures.p99, "max_us": figures.max,
        "ratio": ratio, "per_second": line.per_second,
    })
}

pub(crate) fn say(text: &str) {
    let _ = writeln!(std::io::stdout(), "{text}");
}

#[expect(clippy::cast_precision_loss, reason = "at most a minute in microseconds")]
fn exact(micros: u64) -> f64 {
    micros as f64
}

pub(crate) fn millis(micros: u64) -> String {
    let millis = exact(micros) / 1e3;
    if millis < 10.0 { format!("{millis:.2}") } else { format!("{millis:.1}") }
}
