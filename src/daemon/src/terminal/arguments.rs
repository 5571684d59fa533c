//! The command line of `paddock run`: which program, in which language, with which files and variables.
//!
//! It must never guess a language that it cannot know.

use std::io::{IsTerminal, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;

/// The command line of `paddock run`.
#[derive(Debug, Clone, Args)]
pub struct RunArguments {
    /// The file of the program; `-`, or no file, reads the program from standard input
    #[arg(value_name = "FILE", conflicts_with = "code")]
    pub program: Option<PathBuf>,
    /// The program as text
    #[arg(short, long, value_name = "CODE")]
    pub code: Option<String>,
    /// The language of the program: python, typescript, sh, or that of any other runner image; short names
    /// such as py, ts, js and bash work too. Not needed for files that end in .py, .ts, .js or .sh
    #[arg(short, long, value_name = "LANGUAGE")]
    pub language: Option<String>,
    /// Stop the program after this time, such as 30s or 2m
    #[arg(short, long, value_name = "DURATION", value_parser = duration)]
    pub timeout: Option<Duration>,
    /// A file or folder to copy into /data, under its own name or under NAME; can be repeated
    #[arg(short, long = "file", value_name = "PATH[:NAME]")]
    pub files: Vec<String>,
    /// Save the files that the program made or changed to this folder, but nothing of a .git; without it they
    /// are only listed
    #[arg(short, long, value_name = "FOLDER")]
    pub output: Option<PathBuf>,
    /// Set an environment variable; can be repeated
    #[arg(short, long = "env", value_name = "NAME=VALUE", value_parser = variable)]
    pub environment: Vec<(String, String)>,
    /// A package that the program needs beyond those of its image, such as polars==1.35.2; can be repeated
    #[arg(short, long = "package", value_name = "NAME==VERSION")]
    pub packages: Vec<String>,
    /// Pass standard input to the program
    #[arg(short = 'i', long)]
    pub stdin: bool,
    /// Run in this session, which keeps its files. Without it all files are deleted after the run
    #[arg(short, long, value_name = "ID")]
    pub session: Option<String>,
    /// Print only the output of the program
    #[arg(short, long)]
    pub quiet: bool,
    /// Print the complete result as JSON at the end, instead of the output
    #[arg(long)]
    pub json: bool,
}

/// Why the arguments cannot be run.
#[derive(Debug, thiserror::Error)]
pub enum Problem {
    /// The program cannot be read.
    #[error("cannot read {0}: {1}")]
    Unreadable(String, std::io::Error),
    /// The program is not text.
    #[error("{0} is not UTF-8 text")]
    NoText(String),
    /// The language is unknown.
    #[error("the language of {0} is not known: name it with -l, such as -l python")]
    NoLanguage(String),
    /// Both the program and its input would be standard input.
    #[error("-i takes standard input for the program: give the program as a file or with -c")]
    TwoInputs,
    /// The program would be typed at the terminal.
    #[error(
        "there is no program: name a file, give one with -c, or pipe one in (`-` reads it from this terminal)"
    )]
    Nothing,
}

/// A program with its language and input.
#[derive(Debug)]
pub(super) struct ProgramSource {
    pub(super) language: String,
    pub(super) code: String,
    pub(super) stdin: Option<String>,
}

impl RunArguments {
    /// Reads the program, and its input if `-i` is given.
    pub(super) fn program(&self) -> Result<ProgramSource, Problem> {
        let file = self.program.as_deref().filter(|file| *file != Path::new("-"));
        let from_stdin = file.is_none() && self.code.is_none();
        if from_stdin && self.stdin {
            return Err(Problem::TwoInputs);
        }
        if from_stdin && self.program.is_none() && std::io::stdin().is_terminal() {
            return Err(Problem::Nothing);
        }
        let shown = match file {
            Some(file) => file.display().to_string(),
            None if from_stdin => "standard input".to_owned(),
            None => "the code of -c".to_owned(),
        };
        let language = self.language.clone().or_else(|| file.and_then(language));
        let language = language.ok_or_else(|| Problem::NoLanguage(shown.clone()))?;
        let code = match (&self.code, file) {
            (Some(code), _) => code.clone(),
            (None, Some(file)) => {
                text(&shown, std::fs::read(file).map_err(|error| Problem::Unreadable(shown.clone(), error))?)?
            }
            (None, None) => input(&shown)?,
        };
        let stdin = if self.stdin { Some(input("standard input")?) } else { None };
        Ok(ProgramSource { language, code, stdin })
    }
}

fn input(shown: &str) -> Result<String, Problem> {
    let mut bytes = Vec::new();
    let read = std::io::stdin().lock().read_to_end(&mut bytes);
    read.map_err(|error| Problem::Unreadable(shown.to_owned(), error))?;
    text(shown, bytes)
}

fn text(shown: &str, bytes: Vec<u8>) -> Result<String, Problem> {
    String::from_utf8(bytes).map_err(|_| Problem::NoText(shown.to_owned()))
}

/// The language that a file's name implies.
fn language(file: &Path) -> Option<String> {
    let known = match file.extension()?.to_str()? {
        "py" => "python",
        "ts" | "mts" | "cts" => "typescript",
        "js" | "mjs" | "cjs" => "javascript",
        "sh" => "sh",
        "bash" => "bash",
        _ => return None,
    };
    Some(known.to_owned())
}

/// `30s`, or a number of seconds.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    let parsed = seconds.or_else(|| humantime::parse_duration(text).ok());
    parsed.filter(|time| !time.is_zero()).ok_or_else(|| "takes a duration such as 30s, 2m or 0.5".to_owned())
}

fn variable(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        Some(_) | None => Err("takes NAME=VALUE".to_owned()),
    }
}
