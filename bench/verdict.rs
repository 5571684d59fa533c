//! The goals, and whether the figures reach them.
//!
//! It must never leave out a goal: the report says of every goal that it is reached, missed or not measured.

use serde_json::{Value, json};

use crate::names::{
    BACK_TO_BACK, DOCKER_RUN, EXEC, FLOOR, LLM_SANDBOX, NEW, PANDAS_TITLE, PEERS_TITLE, PYTHON_TITLE,
    SANDBOX_RUNTIME, TYPESCRIPT_TITLE, WARM,
};
use crate::report::Measurements;
use crate::{burst, commands, concurrency, flood, hop, mixed, neighbour, network, resources, scrape, task};

/// The allocator keeps and returns up to this much memory.
const NO_GROWTH: f64 = 1024.0;

/// MB/s that are enough, however fast the bare loopback is.
const ENOUGH: f64 = 400.0;

#[derive(Clone, Copy)]
pub(crate) enum Goal {
    AtMost(f64),
    AtLeast(f64),
}

pub(crate) struct GoalVerdict {
    pub(crate) what: String,
    pub(crate) value: Option<f64>,
    pub(crate) unit: &'static str,
    pub(crate) reach: Goal,
}

/// Every one but those of [`reach`](crate::reach), in the order of the table.
pub(crate) fn all(report: &Measurements) -> Vec<GoalVerdict> {
    use Goal::{AtLeast, AtMost};
    let median = |title, name| report.figures(title, name).map(|figures| exact(figures.median));
    let ratio = |a: Option<f64>, b: Option<f64>| a.zip(b).map(|(a, b)| a / b);
    let floor = median(PYTHON_TITLE, FLOOR);
    let warm = median(PYTHON_TITLE, WARM);
    let p99 = report.figures(PYTHON_TITLE, WARM).and_then(|figures| figures.p99).map(exact);
    let rate = |title, name: &str| report.per_second(title, name);
    let sixteen = ratio(
        rate(concurrency::TITLE, &concurrency::ours(16)),
        rate(concurrency::TITLE, &concurrency::floor(16)),
    );
    let fact = |name| report.fact(resources::TITLE, name);
    let mut all = Vec::new();
    let mut verdict = |what: &str, value, unit, reach| {
        all.push(GoalVerdict { what: what.to_owned(), value, unit, reach });
    };
    verdict("warm Python / the floor", ratio(warm, floor), "×", AtMost(2.0));
    verdict("engine exec / warm Python", ratio(median(PYTHON_TITLE, EXEC), warm), "×", AtLeast(15.0));
    verdict("docker run / warm Python", ratio(median(PYTHON_TITLE, DOCKER_RUN), warm), "×", AtLeast(60.0));
    verdict(
        "llm-sandbox's pool / warm Python",
        ratio(median(PEERS_TITLE, LLM_SANDBOX), warm),
        "×",
        AtLeast(40.0),
    );
    verdict("warm Python, p99 / median", ratio(p99, warm), "×", AtMost(5.0));
    verdict(
        "new session on an idle container / the floor",
        ratio(median(PYTHON_TITLE, NEW), floor),
        "×",
        AtMost(3.0),
    );
    verdict("import pandas / the floor", ratio(median(PANDAS_TITLE, WARM), floor), "×", AtMost(4.0));
    verdict(
        "TypeScript, a run now and then / the floor",
        ratio(median(TYPESCRIPT_TITLE, WARM), floor),
        "×",
        AtMost(5.0),
    );
    verdict(
        "TypeScript, back to back / the floor",
        ratio(median(TYPESCRIPT_TITLE, BACK_TO_BACK), floor),
        "×",
        AtMost(5.0),
    );
    verdict("16 sessions / 16 of the floor, runs a second", percent(sixteen), "%", AtLeast(80.0));
    let echo = |name| median(commands::ECHO_TITLE, name);
    verdict("engine exec / execute_code", ratio(echo(EXEC), echo(commands::WAITED)), "×", AtLeast(5.0));
    verdict(
        "async, then its output / execute_code",
        ratio(echo(commands::BEGUN), echo(commands::WAITED)),
        "×",
        AtMost(1.5),
    );
    verdict(
        "sandbox-runtime's server / execute_code",
        ratio(echo(SANDBOX_RUNTIME), echo(commands::WAITED)),
        "×",
        AtLeast(40.0),
    );
    let line = |name| median(commands::LINE_TITLE, name);
    verdict("a line, long poll / engine exec", ratio(line(commands::POLLED), line(EXEC)), "×", AtMost(5.0));
    verdict(
        "a line, event stream / engine exec",
        ratio(line(commands::WATCHED), line(EXEC)),
        "×",
        AtMost(5.0),
    );
    for (what, name) in
        [("a line, long poll, p99", commands::POLLED), ("a line, event stream, p99", commands::WATCHED)]
    {
        let p99 = report.figures(commands::LINE_TITLE, name).and_then(|figures| figures.p99).map(exact);
        verdict(what, p99.map(|micros| micros / 1e3), "ms", AtMost(10.0));
    }
    let output = |name| commands::rate(report, name);
    verdict(
        "output, MB/s / engine exec",
        percent(ratio(output(commands::PAGED), output(EXEC))),
        "%",
        AtLeast(25.0),
    );
    let scraped = |name| median(scrape::TITLE, name);
    verdict(
        "runs scraped at 10 Hz / not scraped",
        ratio(scraped(scrape::BESIDE), scraped(scrape::ALONE)),
        "×",
        AtMost(1.05),
    );
    let worst = |name| report.figures(flood::TITLE, name).and_then(|figures| figures.p99).map(exact);
    verdict(
        "a line in and out beside 64 floods / alone, p99",
        ratio(worst(flood::BESIDE), worst(flood::ALONE)),
        "×",
        AtMost(3.0),
    );
    verdict("daemon, grown by 64 floods", report.fact(flood::TITLE, flood::GROWN), "MiB", AtMost(64.0));
    for title in neighbour::TITLES {
        let p95 = |name| report.figures(title, name).and_then(|figures| figures.p95).map(exact);
        let what = title.replace("Beside a tenant that floods:", "beside a flood / alone, p95:");
        verdict(&what, ratio(p95(neighbour::EVERYTHING), p95(neighbour::ALONE)), "×", AtMost(2.0));
    }
    let file = |name| median(hop::TITLE, name);
    let hop = file(hop::FILE_BY_HOP).zip(file(hop::FILE_THERE)).map(|(by_hop, there)| (by_hop - there) / 1e3);
    verdict("one hop between two nodes", hop, "ms", AtMost(1.0));
    let connect = |name| median(network::CONNECT_TITLE, name);
    let above = connect(network::OURS).zip(connect(network::BARE)).map(|(ours, bare)| (ours - bare) / 1e3);
    verdict("network: a connect, above a bare one", above, "ms", AtMost(0.3));
    for (what, title) in [
        ("network: 100 MiB down, or half of bare", network::DOWN_TITLE),
        ("network: 100 MiB up, or half of bare", network::UP_TITLE),
    ] {
        let rate = |name| network::rate(report, title, name);
        let bound = rate(network::BARE).map_or(ENOUGH, |bare| ENOUGH.min(bare / 2.0));
        verdict(what, rate(network::OURS), "MB/s", AtLeast(bound));
    }
    let unused = |name| median(network::UNUSED_TITLE, name);
    verdict(
        "network: true and unused / no network",
        ratio(unused(network::WITH), unused(network::WITHOUT)),
        "×",
        AtMost(1.05),
    );
    let started = |name| median(task::TITLE, name);
    verdict(
        "a task's first request / claude by hand",
        ratio(started(task::NEW), started(task::BY_HAND)),
        "×",
        AtMost(1.5),
    );
    let mixed = ratio(
        rate(mixed::TITLE, &concurrency::ours(mixed::CALLERS)),
        rate(mixed::TITLE, &concurrency::floor(mixed::CALLERS)),
    );
    verdict("mixed load / the floor, runs a second", percent(mixed), "%", AtLeast(100.0));
    let used = |name| report.fact(mixed::TITLE, name);
    verdict(
        "mixed load / the floor, processor time of a run",
        ratio(used(mixed::CPU), used(mixed::FLOOR_CPU)),
        "×",
        AtMost(1.0),
    );
    for name in burst::names() {
        let share = report.fact(burst::TITLE, &burst::answered(name));
        verdict(&format!("burst: {}", name.trim_start_matches("paddock, ")), share, "%", AtLeast(100.0));
    }
    verdict("daemon, CPU of a run", fact(resources::CPU).map(|micros| micros / 1e3), "ms", AtMost(0.5));
    verdict("daemon, resident with 10 sessions", fact(resources::RESIDENT), "MiB", AtMost(40.0));
    let runs = fact(resources::RUNS).unwrap_or(0.0);
    verdict(&format!("daemon, growth over {runs} runs"), fact(resources::GROWTH), "KiB", AtMost(NO_GROWTH));
    all
}

impl GoalVerdict {
    pub(crate) fn reached(&self) -> Option<bool> {
        let value = self.value?;
        Some(match self.reach {
            Goal::AtMost(bound) => value <= bound,
            Goal::AtLeast(bound) => value >= bound,
        })
    }

    /// A line of the table.
    pub(crate) fn text(&self) -> String {
        let (sign, bound) = match self.reach {
            Goal::AtMost(bound) => ("≤", bound),
            Goal::AtLeast(bound) => ("≥", bound),
        };
        let bound = (bound * 100.0).round() / 100.0;
        let value = self.value.map_or_else(|| "-".to_owned(), |value| format!("{value:.2}"));
        let said = match self.reached() {
            Some(true) => "reached",
            Some(false) => "MISSED",
            None => "not measured",
        };
        format!("  {:<46}{value:>10} {:<4}{sign} {bound:<8}{said}", self.what, self.unit)
    }

    pub(crate) fn json(&self) -> Value {
        let (at_most, at_least) = match self.reach {
            Goal::AtMost(bound) => (Some(bound), None),
            Goal::AtLeast(bound) => (None, Some(bound)),
        };
        json!({
            "what": self.what, "value": self.value, "unit": self.unit,
            "at_most": at_most, "at_least": at_least, "reached": self.reached(),
        })
    }
}

pub(crate) fn percent(ratio: Option<f64>) -> Option<f64> {
    ratio.map(|ratio| ratio * 100.0)
}

#[expect(clippy::cast_precision_loss, reason = "at most a minute in microseconds")]
pub(crate) fn exact(micros: u64) -> f64 {
    micros as f64
}
