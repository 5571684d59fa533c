//! The summary behind everything else: what is to be reached, what it is now, and whether it is reached.
//!
//! It must never contain a figure that no block above it has.

use crate::names::{BACK_TO_BACK, BARE, NEW, PANDAS_TITLE, PYTHON_TITLE, TYPESCRIPT_TITLE, WARM};
use crate::programs::{PYTHON, TYPESCRIPT};
use crate::report::Measurements;
use crate::verdict::{Goal, GoalVerdict, exact};
use crate::{before, churn, cold, concurrency, memory, processor};

/// Every one, in the order of the table.
pub(crate) fn all(report: &Measurements) -> Vec<GoalVerdict> {
    use Goal::{AtLeast, AtMost};
    let median = |title, name: &str| report.figures(title, name).map(|figures| exact(figures.median));
    let ratio = |a: Option<f64>, b: Option<f64>| a.zip(b).map(|(a, b)| a / b);
    let bare = median(PYTHON_TITLE, BARE);
    let to_bare = |title, name| ratio(median(title, name), bare);
    let rate = |title, name: &str| report.per_second(title, name);
    let eight =
        ratio(rate(before::TITLE, &concurrency::ours(before::SESSIONS)), rate(before::TITLE, before::BEFORE));
    let cpu = report.fact(processor::TITLE, &processor::in_all(processor::HELLO));
    let idle = |language| report.fact(memory::TITLE, &memory::idle(language));
    // Whatever it imports: the slowest counts.
    let started = cold::python().map(|row| median(cold::TITLE, &row)).reduce(|a, b| Some(a?.max(b?)));
    let churn = ratio(rate(churn::TITLE, churn::OURS), rate(churn::TITLE, churn::RAW));
    let millis = |micros: Option<f64>| micros.map(|micros| micros / 1e3);
    [
        ("warm Python / the bare floor", to_bare(PYTHON_TITLE, WARM), "×", AtMost(1.2)),
        ("all processor time of that run", millis(cpu), "ms", AtMost(3.0)),
        ("8 sessions / the earlier build, runs a second", eight, "×", AtLeast(2.5)),
        ("import pandas and a DataFrame / the bare floor", to_bare(PANDAS_TITLE, WARM), "×", AtMost(2.5)),
        ("new session, idle container / the bare floor", to_bare(PYTHON_TITLE, NEW), "×", AtMost(3.0)),
        ("TypeScript with rests / the bare floor", to_bare(TYPESCRIPT_TITLE, WARM), "×", AtMost(2.5)),
        (
            "TypeScript back to back / the bare floor",
            to_bare(TYPESCRIPT_TITLE, BACK_TO_BACK),
            "×",
            AtMost(4.0),
        ),
        (
            "TypeScript, 8 sessions",
            rate(concurrency::TITLE, &concurrency::of_typescript()),
            "/s",
            AtLeast(150.0),
        ),
        ("an idle Python container's own memory", idle(PYTHON.language), "MiB", AtMost(4.0)),
        ("an idle TypeScript container's own memory", idle(TYPESCRIPT.language), "MiB", AtMost(16.0)),
        ("the default set-up, nobody calling", report.fact(memory::TITLE, memory::ALL), "MiB", AtMost(80.0)),
        ("a Python run in a container that just started", millis(started.flatten()), "ms", AtMost(15.0)),
        ("new sessions / raw create, start, remove", churn, "×", AtLeast(0.9)),
    ]
    .into_iter()
    .map(|(what, value, unit, reach)| GoalVerdict { what: what.to_owned(), value, unit, reach })
    .collect()
}

/// The table, with its title.
pub(crate) fn table(all: &[GoalVerdict]) -> String {
    let mut text = format!("\n{:<52}{:>12}{:>12}   met\n", "In short", "now", "reach");
    for verdict in all {
        let now =
            verdict.value.map_or_else(|| "-".to_owned(), |value| format!("{value:.2} {}", verdict.unit));
        let reach = match verdict.reach {
            Goal::AtMost(bound) => format!("≤ {bound}"),
            Goal::AtLeast(bound) => format!("≥ {bound}"),
        };
        let met = match verdict.reached() {
            Some(true) => "yes",
            Some(false) => "NO",
            None => "not measured",
        };
        text.push_str(&format!("  {:<50}{now:>12}{reach:>12}   {met}\n", verdict.what));
    }
    text
}
