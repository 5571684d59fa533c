//! Prints checks: as lines on standard output while they are made, or all of them as one JSON document at the
//! end.
//!
//! It must never print anything else there, nor colours where nobody sees them.

use std::fmt::Display;
use std::io::{self, Write};

use anstream::AutoStream;
use anstyle::{AnsiColor, Style};

use super::check::{Check, Status, document, verdict};

/// As wide as the columns of status and group.
const INDENT: &str = "                     ";

/// Bytes of a line of advice.
const WIDTH: usize = 98;

/// Collects and prints checks.
pub(super) struct Printer {
    json: bool,
    checks: Vec<Check>,
}

impl Printer {
    pub(super) fn new(json: bool) -> Self {
        Self { json, checks: Vec::new() }
    }

    /// Prints the checks of one group. A failure is ignored: the doctor must still clean up when nobody
    /// reads.
    pub(super) fn print(&mut self, checks: Vec<Check>) {
        if !self.json {
            let mut out = AutoStream::auto(io::stdout().lock());
            for check in &checks {
                let _ = line(&mut out, check);
            }
            let _ = out.flush();
        }
        self.checks.extend(checks);
    }

    /// Prints the verdict; returns the exit code.
    pub(super) fn finish(self) -> u8 {
        let verdict = verdict(&self.checks);
        let mut out = AutoStream::auto(io::stdout().lock());
        let _ = if self.json {
            writeln!(out, "{:#}", document(&self.checks))
        } else {
            writeln!(out, "\n{}", verdict.text)
        };
        let _ = out.flush();
        verdict.code
    }
}

fn line(out: &mut impl Write, check: &Check) -> io::Result<()> {
    let (word, style) = match check.status {
        Status::Ok => ("ok", AnsiColor::Green.on_default()),
        Status::Warn => ("warn", AnsiColor::Yellow.on_default()),
        Status::Fail => ("FAIL", AnsiColor::Red.on_default().bold()),
    };
    writeln!(out, "{} {:<14} {}", styled(style, &format!("{word:<5}")), check.group.name(), check.found)?;
    if let Some(advice) = &check.advice {
        for line in wrapped(advice) {
            writeln!(out, "{INDENT}{line}")?;
        }
    }
    Ok(())
}

/// Lines of a readable length, broken between words.
fn wrapped(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.len() + 1 + word.len() <= WIDTH => {
                line.push(' ');
                line.push_str(word);
            }
            Some(_) | None => lines.push(word.to_owned()),
        }
    }
    lines
}

fn styled(style: Style, text: &str) -> impl Display {
    format!("{style}{text}{style:#}")
}
