//! What a soak measures: how soon service is back after each fault, and whether the daemon stays as large as
//! it is; and the table of that.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use super::crew::Crew;
use super::fault::Fault;
use crate::support::Daemon;

/// A slope is judged from this many runs on: before, it is that of buffers that fill for the first time.
const RUNS: f64 = 2000.0;
/// The largest growth of the daemon's memory, in KiB a run.
const KIB_A_RUN: f64 = 1.0;
/// The largest growth of the number of its descriptors, over one life.
const DESCRIPTORS: f64 = 24.0;

/// What stands above the tables.
const HEAD: &str = "# The last soak

`make soak` writes this page at its end; `tests/e2e/crash/soak.rs` says what it does.

";

/// The token of metrics: there are several tenants.
pub(super) const FIGURES: &str = "the-figures-of-these-tests";

/// The daemon while nobody calls.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample {
    runs: f64,
    /// KiB.
    resident: f64,
    descriptors: f64,
    threads: f64,
}

impl Sample {
    pub(super) fn of(d: &Daemon, runs: u64) -> Sample {
        let process = format!("/proc/{}", d.pid().as_raw_nonzero());
        let status = std::fs::read_to_string(format!("{process}/status")).expect("its status");
        let figure = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).expect("a figure");
            line.trim().trim_end_matches(" kB").parse::<f64>().expect("a number")
        };
        let open = std::fs::read_dir(format!("{process}/fd")).expect("its descriptors").count();
        let whole = |number: u64| f64::from(u32::try_from(number).expect("small"));
        Sample {
            runs: whole(runs),
            resident: figure("VmRSS:"),
            descriptors: whole(open as u64),
            threads: figure("Threads:"),
        }
    }
}

/// The runs of code that the daemon has counted, whatever their end, but those that never began.
pub(super) async fn runs_counted(d: &Daemon) -> u64 {
    let text = d.request("GET", "/metrics").bearer(FIGURES).send().await.expect(200).text();
    let runs = text.lines().filter_map(|line| line.strip_prefix("paddock_runs_total{")?.rsplit_once(' '));
    let code = runs.filter(|(labels, _)| {
        labels.contains("kind=\"code\"") && !labels.contains("outcome=\"not_started\"")
    });
    code.map(|(_, value)| value.trim_end_matches(".0").parse::<u64>().expect("a whole number")).sum()
}

/// How a figure grows with the runs, by least squares over the last two thirds of the samples.
fn slope(samples: &[Sample], of: impl Fn(&Sample) -> f64) -> f64 {
    let samples = &samples[samples.len() / 3..];
    let count = f64::from(u32::try_from(samples.len()).expect("few"));
    let mean = |of: &dyn Fn(&Sample) -> f64| samples.iter().map(of).sum::<f64>() / count;
    let (x, y) = (mean(&|one| one.runs), mean(&of));
    let (mut up, mut down) = (0.0, 0.0);
    for one in samples {
        up += (one.runs - x) * (of(one) - y);
        down += (one.runs - x).powi(2);
    }
    if down > 0.0 { up / down } else { 0.0 }
}

#[derive(Default)]
pub(super) struct Figures {
    /// By fault: until a new session was served, and until everything was compared.
    back: BTreeMap<&'static str, Vec<(Duration, Duration)>>,
    /// The samples of the life with the most runs.
    longest: Vec<Sample>,
    lives: u32,
}

impl Figures {
    pub(super) fn note(&mut self, fault: &Fault, back: Duration, compared: Duration) {
        self.back.entry(fault.name()).or_default().push((back, compared));
    }

    /// A daemon has ended.
    pub(super) fn lived(&mut self, samples: &[Sample]) {
        self.lives += 1;
        let runs = |samples: &[Sample]| samples.last().map_or(0.0, |last| last.runs);
        if runs(samples) > runs(&self.longest) {
            self.longest = samples.to_vec();
        }
    }

    pub(super) fn table(&self, took: Duration, crew: &Crew) -> String {
        let mut text = HEAD.to_owned();
        let (certain, unsure) = crew.runs();
        let faults: usize = self.back.values().map(Vec::len).sum();
        let mut line = |what: &str, figure: String| {
            let _ = writeln!(text, "| {what} | {figure} |");
        };
        line("what", "figure".to_owned());
        line("---", "---".to_owned());
        line("time, faults, lives of a daemon", format!("{} s, {faults}, {}", took.as_secs(), self.lives));
        line("runs that ended; that may have begun besides", format!("{certain}; {unsure}"));
        line("changes of files that were acknowledged, of them lost", format!("{}, 0", crew.acknowledged()));
        line("numbers appended, each found exactly once", crew.counted().to_string());
        let commands = &crew.commands;
        line(
            "commands completed, each with every line; cancelled; lost with the engine; ended by a full disk",
            format!("{}; {}; {}; {}", commands.completed, commands.cancelled, commands.lost, commands.unkept),
        );
        line("runs at a limit (time, memory, output)", crew.trouble.ended.to_string());
        let (first, last) = (self.longest.get(self.longest.len() / 3), self.longest.last());
        if let (Some(first), Some(last)) = (first, last) {
            let resident = slope(&self.longest, |one| one.resident);
            line(
                "memory of the daemon that lived longest, after a third of its life and at its end; slope",
                format!(
                    "{:.1} MiB, {:.1} MiB; {resident:.3} KiB a run over {:.0} runs",
                    first.resident / 1024.0,
                    last.resident / 1024.0,
                    last.runs - first.runs
                ),
            );
            let of = |one: &Sample| format!("{}, {}", one.descriptors, one.threads);
            line(
                "its descriptors, threads: after a third, at the end",
                format!("{}; {}", of(first), of(last)),
            );
        }
        line("left on the engine, in the store", "nothing".to_owned());
        let _ = writeln!(text, "\n| fault | times | a new session is served after: median, longest |");
        let _ = writeln!(text, "| --- | --- | --- |");
        for (name, all) in &self.back {
            let mut back: Vec<_> = all.iter().map(|(back, _)| back.as_secs_f64()).collect();
            back.sort_by(f64::total_cmp);
            let (median, longest) = (back[back.len() / 2], back[back.len() - 1]);
            let _ = writeln!(text, "| {name} | {} | {median:.2} s, {longest:.2} s |", back.len());
        }
        text
    }

    /// The daemon that lived longest did not grow, if it lived long enough to tell.
    #[track_caller]
    pub(super) fn expect_flat(&self) {
        let (Some(first), Some(last)) = (self.longest.first(), self.longest.last()) else { return };
        if last.runs - first.runs < RUNS {
            return;
        }
        let more = slope(&self.longest, |one| one.descriptors) * (last.runs - first.runs);
        assert!(more.abs() <= DESCRIPTORS, "descriptors grow by {more}: {:#?}", self.longest);
        let resident = slope(&self.longest, |one| one.resident);
        assert!(resident <= KIB_A_RUN, "{resident} KiB a run: {:#?}", self.longest);
    }
}
