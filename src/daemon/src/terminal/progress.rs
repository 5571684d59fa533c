//! Reports progress in one line of the terminal, which disappears when there is other output.
//!
//! It must never write if standard error is not a terminal, nor beside the program's output.

use std::io::{self, IsTerminal, Write};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::Value;
use tokio_util::task::AbortOnDropHandle;

use crate::printable::printable;

/// How often the seconds are updated.
const TICK: Duration = Duration::from_millis(200);

/// A run that takes longer than this shows its seconds.
const AFTER: Duration = Duration::from_secs(1);

/// The progress of `paddock run`.
pub(super) struct ProgressLine {
    quiet: bool,
    line: Arc<StatusLine>,
    counting: Mutex<Option<AbortOnDropHandle<()>>>,
}

struct StatusLine {
    shows: bool,
    /// Whether there is text in the line.
    is_there: Mutex<bool>,
}

impl StatusLine {
    fn write(&self, text: &str) {
        if !self.shows {
            return;
        }
        let mut is_there = self.is_there.lock().unwrap_or_else(PoisonError::into_inner);
        if !text.is_empty() || *is_there {
            let mut terminal = io::stderr().lock();
            let _ = write!(terminal, "\r\x1b[2K{text}").and_then(|()| terminal.flush());
        }
        *is_there = !text.is_empty();
    }
}

impl ProgressLine {
    pub(super) fn new(quiet: bool) -> Self {
        let shows = !quiet && io::stderr().is_terminal();
        Self {
            quiet,
            line: Arc::new(StatusLine { shows, is_there: Mutex::new(false) }),
            counting: Mutex::new(None),
        }
    }

    fn count(&self, counting: Option<AbortOnDropHandle<()>>) {
        *self.counting.lock().unwrap_or_else(PoisonError::into_inner) = counting;
    }

    /// Shows the current step.
    pub(super) fn say(&self, what: &str) {
        self.count(None);
        self.line.write(&format!("paddock: {what} …"));
    }

    /// Shows that a program runs; if it prints nothing for a while, its seconds are counted.
    pub(super) fn run(&self, language: &str) {
        self.say(&format!("waiting for a container of {}", printable(language)));
        if !self.line.shows {
            return;
        }
        let (line, begun) = (self.line.clone(), Instant::now());
        let counting = tokio::spawn(async move {
            loop {
                tokio::time::sleep(TICK).await;
                if begun.elapsed() >= AFTER {
                    line.write(&format!("paddock: {:.0} s …", begun.elapsed().as_secs_f64()));
                }
            }
        });
        self.count(Some(AbortOnDropHandle::new(counting)));
    }

    /// Removes the line.
    pub(super) fn clear(&self) {
        self.count(None);
        self.line.write("");
    }

    /// Names the files that the program made and that were not downloaded.
    pub(super) fn made(&self, document: &Value) {
        let artifacts = document["artifacts"].as_array().map(Vec::as_slice).unwrap_or_default();
        if self.quiet || artifacts.is_empty() {
            return;
        }
        let names = artifacts.iter().filter_map(|artifact| artifact["path"].as_str());
        let names: Vec<_> =
            names.map(|path| printable(path.trim_start_matches("/mnt/data/"))).take(10).collect();
        let more = if artifacts.len() > names.len() { ", …" } else { "" };
        let _ = writeln!(
            io::stderr(),
            "paddock: the program made {}{more}; -o FOLDER downloads its files",
            names.join(", ")
        );
    }

    /// Prints a note that stays.
    pub(super) fn note(&self, what: &str) {
        if !self.quiet {
            self.complain(&what);
        }
    }

    /// Prints an error.
    pub(super) fn complain(&self, error: &dyn std::fmt::Display) {
        self.clear();
        let _ = writeln!(io::stderr(), "paddock: {error}");
    }
}
