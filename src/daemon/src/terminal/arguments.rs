//! What `paddock run` is told: which program, in which language, with what.
//!
//! It must never guess a language that it cannot know.

use std::io::{IsTerminal, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;

/// The command line of `paddock run`.
#[derive(Debug, Clone, Args)]
pub struct Arguments {
    /// The program; `-`, or none, for standard input
    #[arg(value_name = "FILE", conflicts_with = "code")]
    pub program: Option<PathBuf>,
    /// The program itself
    #[arg(short, long, value_name = "CODE")]
    pub code: Option<String>,
    /// What it is written in: python, typescript, sh, or any runner image found; py, ts, js, bash and the like are
    /// taken too. Known by itself for .py, .ts, .js and .sh
    #[arg(short, long, value_name = "LANGUAGE")]
    pub language: Option<String>,
    /// How long it may take, such as 30s or 2m
    #[arg(short, long, value_name = "DURATION", value_parser = duration)]
    pub timeout: Option<Duration>,
    /// A file or folder that it finds in /data, under its own name or under NAME; any number of them
    #[arg(short, long = "file", value_name = "PATH[:NAME]")]
    pub files: Vec<String>,
    /// Where the files go that it made or changed; without it they are only named
    #[arg(short, long, value_name = "FOLDER")]
    pub output: Option<PathBuf>,
    /// An environment variable; any number of them
    #[arg(short, long = "env", value_name = "NAME=VALUE", value_parser = variable)]
    pub environment: Vec<(String, String)>,
    /// What comes on standard input is the program's
    #[arg(short = 'i', long)]
    pub stdin: bool,
    /// Run in this session: its files are there, and stay. Without it everything is gone afterwards
    #[arg(short, long, value_name = "ID")]
    pub session: Option<String>,
    /// Say nothing but what the program says
    #[arg(short, long)]
    pub quiet: bool,
    /// Print the whole answer as JSON at the end, instead of the output
    #[arg(long)]
    pub json: bool,
}

/// What cannot be run as it is given.
#[derive(Debug, thiserror::Error)]
pub enum Problem {
    /// The program cannot be read.
    #[error("cannot read {0}: {1}")]
    Unreadable(String, std::io::Error),
    /// It is no text.
    #[error("{0} is no UTF-8 text")]
    NoText(String),
    /// Its language is not known.
    #[error("the language of {0} is not known: say it with -l, such as -l python")]
    NoLanguage(String),
    /// Both the program and its input would be standard input.
    #[error("-i takes standard input for the program: give the program as a file or with -c")]
    TwoInputs,
    /// The program would be typed in.
    #[error(
        "there is no program: name a file, give one with -c, or pipe one in (`-` reads what is typed here)"
    )]
    Nothing,
}

/// A program with all that belongs to it.
#[derive(Debug)]
pub(super) struct Program {
    pub(super) language: String,
    pub(super) code: String,
    pub(super) stdin: Option<String>,
}

impl Arguments {
    /// Reads the program, and its input if that is asked for.
    pub(super) fn program(&self) -> Result<Program, Problem> {
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
        Ok(Program { language, code, stdin })
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

/// What a file's name says of its language.
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
fn duration(text: &str) -> Result<Duration, String> {
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
