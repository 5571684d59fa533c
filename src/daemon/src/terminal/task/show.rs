//! What `paddock task` prints: the agent's steps as they come, then its answer, its diff and what it cost.
//!
//! Everything here was written by an agent or a program in a container: no character of it may control the
//! terminal. Into a pipe the diff goes as it is, so that git can apply it.

use std::io::{self, IsTerminal, Write};

use anstream::{AutoStream, ColorChoice};
use anstyle::{AnsiColor, Style};
use serde_json::Value;

use crate::printable::{printable, printable_json};

/// Prints a task.
pub(super) struct TaskPrinter {
    quiet: bool,
    json: bool,
    /// The beginning of a line whose end has not come.
    unended: String,
    /// What the agent said last: its last words are also its answer, and are not printed twice.
    words: Vec<String>,
}

impl TaskPrinter {
    pub(super) fn new(quiet: bool, json: bool) -> Self {
        Self { quiet, json, unended: String::new(), words: Vec::new() }
    }

    /// Prints what the agent does, of a piece of its progress.
    pub(super) fn progress(&mut self, piece: &str) -> io::Result<()> {
        self.unended.push_str(piece);
        while let Some((line, rest)) = self.unended.split_once('\n') {
            let line = line.to_owned();
            self.unended = rest.to_owned();
            match line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
                Some(step) => {
                    let words = std::mem::take(&mut self.words);
                    words.iter().try_for_each(|line| self.note(line))?;
                    self.note(step)?;
                }
                None => self.words.push(line),
            }
        }
        Ok(())
    }

    /// Prints the answer of a task.
    pub(super) fn answer(&mut self, document: &Value) -> io::Result<()> {
        if self.json {
            let mut out = io::stdout().lock();
            for line in format!("{document:#}").lines() {
                writeln!(out, "{}", printable_json(line.to_owned()))?;
            }
            return out.flush();
        }
        let text = |key: &str| document[key].as_str().unwrap_or_default();
        let error = text("error");
        if !self.quiet {
            let mut out = io::stdout().lock();
            // The words of a task that failed are often the error itself.
            for line in text("output").lines().filter(|_| text("output") != error) {
                writeln!(out, "{}", shown(line))?;
            }
            out.flush()?;
        }
        for denied in document["denied"].as_array().into_iter().flatten() {
            let text = |key: &str| denied[key].as_str().unwrap_or("?");
            self.note(&format!("denied: {}: {}", text("tool"), text("what")))?;
        }
        if !error.is_empty() {
            complain(error)?;
        }
        Ok(())
    }

    /// Prints the diff.
    pub(super) fn diff(&self, diff: &[u8]) -> io::Result<()> {
        if self.json {
            return Ok(());
        }
        let stdout = io::stdout();
        let is_terminal = stdout.is_terminal();
        let has_colour = AutoStream::choice(&stdout) != ColorChoice::Never;
        let mut out = io::BufWriter::new(stdout.lock());
        if is_terminal {
            String::from_utf8_lossy(diff).lines().try_for_each(|line| {
                let style = style(line).filter(|_| has_colour).unwrap_or_default();
                writeln!(out, "{style}{}{style:#}", shown(line))
            })?;
        } else {
            out.write_all(diff)?;
        }
        out.flush()
    }

    /// Prints how the task ended, in one line, and how to go on.
    pub(super) fn summary(&self, document: &Value, session: &str) -> io::Result<()> {
        if let Some(note) = document["diff_note"].as_str() {
            self.note(&format!("about the diff: {note}"))?;
        }
        self.note(&summary(document))?;
        self.note(&format!("session {session}: paddock task -s {session} \"…\" goes on"))
    }

    /// Prints a line that is not of the answer.
    pub(super) fn note(&self, line: &str) -> io::Result<()> {
        if self.quiet || self.json {
            return Ok(());
        }
        complain(line)
    }
}

/// Prints a line to standard error.
pub(super) fn complain(line: &str) -> io::Result<()> {
    let mut terminal = io::stderr().lock();
    writeln!(terminal, "paddock: {}", shown(line))?;
    terminal.flush()
}

/// How a task ended: `completed in 12.3 s, 3 turns, $0.03, 3 files changed, +10 -2`.
fn summary(document: &Value) -> String {
    let mut parts = vec![document["status"].as_str().unwrap_or("ended").to_owned()];
    if let Some(seconds) = document["duration_seconds"].as_f64() {
        parts[0].push_str(&format!(" in {seconds:.1} s"));
    }
    let count = |count: u64, one: &str| format!("{count} {one}{}", if count == 1 { "" } else { "s" });
    parts.extend(document["turns"].as_u64().map(|turns| count(turns, "turn")));
    parts.extend(document["cost_usd"].as_f64().map(|dollars| format!("${dollars:.4}")));
    let stat = &document["diff_stat"];
    if let (Some(files), Some(more), Some(less)) =
        (stat["files_changed"].as_u64(), stat["insertions"].as_u64(), stat["deletions"].as_u64())
    {
        parts.push(format!("{} changed, +{more} -{less}", count(files, "file")));
    }
    parts.join(", ")
}

/// A line with tabs, and otherwise nothing that controls a terminal.
fn shown(line: &str) -> String {
    line.split('\t').map(printable).collect::<Vec<_>>().join("\t")
}

/// How a line of a diff is shown.
fn style(line: &str) -> Option<Style> {
    let colour = |colour: AnsiColor| Some(Style::new().fg_color(Some(colour.into())));
    match line.chars().next()? {
        '+' => colour(AnsiColor::Green),
        '-' => colour(AnsiColor::Red),
        '@' => colour(AnsiColor::Cyan),
        'd' => Some(Style::new().bold()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_summary_has_what_is_known() {
        assert_eq!(summary(&json!({ "status": "timeout" })), "timeout");
        let all = json!({ "status": "completed", "duration_seconds": 12.34, "turns": 1, "cost_usd": 0.03,
            "diff_stat": { "files_changed": 2, "insertions": 10, "deletions": 3 } });
        assert_eq!(summary(&all), "completed in 12.3 s, 1 turn, $0.0300, 2 files changed, +10 -3");
    }

    #[test]
    fn no_line_controls_the_terminal() {
        assert_eq!(shown("+a\tb\u{1b}[2J\r\u{202e}"), "+a\tb\\u{1b}[2J\\r\\u{202e}");
    }

    #[test]
    fn the_last_words_are_kept_back_for_the_answer() {
        let mut printer = TaskPrinter::new(true, false);
        printer.progress("I write").unwrap();
        printer.progress(" it.\n[edits a.py]\nDone.\nAll ").unwrap();
        printer.progress("of it.\n").unwrap();
        assert_eq!(printer.words, ["Done.", "All of it."]);
    }
}
