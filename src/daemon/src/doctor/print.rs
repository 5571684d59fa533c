//! Checks as lines on standard output, as they come; or all of them as one JSON document in the end.
//!
//! It must never write anything else there, nor colour where nobody sees it.

use std::fmt::Display;
use std::io::{self, Write};

use anstream::AutoStream;
use anstyle::{AnsiColor, Style};

use super::check::{Check, Status, document, verdict};

/// Wide enough for every status and every group.
const INDENT: &str = "                     ";

/// Bytes of a line of advice.
const WIDTH: usize = 98;

/// Where checks go.
pub(super) struct Printer {
    json: bool,
    checks: Vec<Check>,
}

impl Printer {
    pub(super) fn new(json: bool) -> Self {
        Self { json, checks: Vec::new() }
    }

    /// The checks of one group. That nobody reads them any more is no reason to stop cleaning up.
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

    /// The verdict, and what to exit with.
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

/// Lines that are no longer than people like to read, where words let them.
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
