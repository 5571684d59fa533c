//! `paddock audit verify FILE…`: whether an audit log is whole.
//!
//! The files are read in the order in which they are given, the oldest first: the chain goes on from one to
//! the next. It must never need the daemon.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};

use super::chain::{Finding, Verifier};
use crate::id::{from_hex, hex};

/// The most bytes of one line that are read.
const LINE: u64 = 1 << 20;
/// Flaws that are told one by one.
const SHOWN: usize = 20;

/// The command line.
#[derive(Debug, Args)]
pub struct AuditArguments {
    #[command(subcommand)]
    what: AuditCommand,
}

#[derive(Debug, Subcommand)]
enum AuditCommand {
    /// Check that no line of an audit log is missing, changed, added or moved. The exit code is 1 if one is.
    /// Files that were rotated are given in their order, the oldest first
    Verify {
        /// The files of the log
        #[arg(required = true, value_name = "FILE")]
        files: Vec<PathBuf>,
        /// A hash that an earlier verification has told: a line of the log must still have it
        #[arg(long, value_name = "HASH")]
        has: Option<String>,
    },
}

/// What a verification has found so far.
#[derive(Default)]
struct Report {
    flaws: usize,
    /// The lines for people, and whether each tells of a flaw.
    lines: Vec<(String, bool)>,
}

impl Report {
    fn note(&mut self, at: &str, finding: &Finding) {
        if *finding == Finding::CutBefore {
            // It explains the finding before it.
            self.flaws -= 1;
            if let Some(last) = self.lines.last_mut().filter(|_| self.flaws < SHOWN) {
                last.1 = false;
                last.0.push_str("; the next line says that it was cut off when a daemon was killed");
            }
            return;
        }
        self.flaws += 1;
        if self.flaws <= SHOWN {
            self.lines.push((format!("{at}: {}", said(finding)), true));
        }
    }
}

/// Carries the command out: what it found, for people, and whether the log is whole.
///
/// # Errors
/// A file cannot be read, or the hash is none.
pub fn run(arguments: &AuditArguments) -> Result<(String, bool), String> {
    let AuditCommand::Verify { files, has } = &arguments.what;
    let wanted = has.as_deref().map(|hash| {
        let wrong = || format!("--has is {hash:?}, must be the 64 hexadecimal digits of a line's hash");
        from_hex(hash).ok_or_else(wrong)
    });
    let wanted: Option<[u8; 32]> = wanted.transpose()?;
    let (mut verifier, mut report, mut is_there) = (Verifier::default(), Report::default(), wanted.is_none());
    for path in files {
        each_line(path, |number, line| {
            if let Some(finding) = verifier.line(line) {
                report.note(&format!("{}:{number}", path.display()), &finding);
            }
            is_there |= wanted.is_some() && verifier.end().2.map(|chain| chain.last) == wanted;
        })
        .map_err(|error| format!("{}: {error}", path.display()))?;
    }
    let mut text: String = report.lines.iter().map(|(line, _)| format!("{line}\n")).collect();
    if report.flaws > SHOWN {
        text.push_str(&format!("and {} more\n", report.flaws - SHOWN));
    }
    if !is_there {
        text.push_str("no line has the hash of --has: lines up to it are missing or were changed\n");
    }
    let is_whole = report.flaws == 0 && is_there;
    match verifier.end() {
        (lines, Some(first), Some(end)) => {
            let whole = if is_whole { "whole" } else { "NOT whole" };
            text.push_str(&format!(
                "{lines} lines, number {first} to {}: {whole}. The last line's hash is {}; keep it \
                 elsewhere: with --has it shows later whether lines up to here are missing or changed.\n",
                end.seq,
                hex(&end.last)
            ));
        }
        (..) => text.push_str("there are no lines\n"),
    }
    Ok((text, is_whole))
}

fn said(finding: &Finding) -> String {
    match finding {
        Finding::Broken { after, seq } => format!(
            "this line, number {seq}, does not follow the line before it, number {after}: lines are missing \
             or moved, or that one was changed"
        ),
        Finding::Unreadable { after } => format!(
            "this line, after number {after}, is no line of an audit log: it was changed, or a daemon was \
             killed while it wrote it"
        ),
        Finding::CutBefore => "the line before was cut off when a daemon was killed".to_owned(),
    }
}

/// Reads a file line by line.
fn each_line(path: &Path, mut each: impl FnMut(u64, &[u8])) -> std::io::Result<()> {
    let mut reader = BufReader::new(File::open(path)?);
    let (mut line, mut number) = (Vec::new(), 0);
    loop {
        line.clear();
        if (&mut reader).take(LINE).read_until(b'\n', &mut line)? == 0 {
            return Ok(());
        }
        number += 1;
        each(number, line.strip_suffix(b"\n").unwrap_or(&line));
    }
}
