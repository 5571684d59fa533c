//! The command line of `paddock task`.
//!
//! It must never take a folder for the task, or the task for a folder.

use std::io::Read;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use serde_json::{Map, Value, json};

use super::super::Failed;
use super::super::arguments::duration;

/// What `paddock task --help` ends with.
const EXAMPLES: &str = "\
Examples:
  # have the project in this folder changed, look at the diff, and take the changes over
  paddock task \"fix the failing test\" -d . --apply

  # one file in, the files that the agent makes out
  paddock task \"draw a chart of the sales of each month\" -f sales.csv -o report/

  # go on in the same session, with the agent's memory of it
  paddock task -s task-1f0c2a9e7b3d4c5a \"and now in colour\"

  # only the diff, for a review or a pipe
  paddock task \"add type hints\" -d src -q > hints.diff

Exit code: 0 the task is completed, 1 it failed or its changes could not be applied, 124 it ran out of time,
125 nothing could be run, 130 it was interrupted. Ctrl-C cancels the task and shows what it has done up to
then; a second Ctrl-C leaves at once.";

/// The command line of `paddock task`.
#[derive(Debug, Clone, Args)]
#[command(after_help = EXAMPLES)]
pub struct TaskArguments {
    /// What to do, in words; `-` reads it from standard input
    #[arg(value_name = "TASK")]
    pub task: String,
    /// A file or folder to bring into /workspace, under its own name or under NAME; can be repeated
    #[arg(short, long = "file", value_name = "PATH[:NAME]")]
    pub files: Vec<String>,
    /// Bring the files of this folder into /workspace, except those that .gitignore files ignore, symbolic
    /// links, and everything in .git
    #[arg(short, long, value_name = "FOLDER")]
    pub directory: Option<PathBuf>,
    /// Which coding agent, such as claude-code
    #[arg(long, value_name = "NAME")]
    pub agent: Option<String>,
    /// What it may do without asking: 1 files, 2 and the web, 3 and commands and packages, 4 everything
    /// [default: 3]
    #[arg(long, value_name = "1-4", value_parser = clap::value_parser!(u64).range(1..=4))]
    pub level: Option<u64>,
    /// The model, by a name that the agent knows
    #[arg(long, value_name = "NAME")]
    pub model: Option<String>,
    /// Stop the task after this time, 60s to 30m [default: 10m]
    #[arg(short, long, value_name = "DURATION", value_parser = duration)]
    pub timeout: Option<Duration>,
    /// Stop the task after so many turns of the model
    #[arg(long, value_name = "COUNT")]
    pub max_turns: Option<u32>,
    /// Stop the task when it has cost so many dollars
    #[arg(long, value_name = "DOLLARS")]
    pub max_budget_usd: Option<f64>,
    /// Go on in this session, with its files and the agent's memory. Without it a new session begins, which
    /// stays, with its files, as long as the daemon keeps sessions
    #[arg(short, long, value_name = "ID")]
    pub session: Option<String>,
    /// Make the changes of a completed task in this folder, or in that of -d. If a file there is no longer as
    /// the agent got it, nothing is changed
    #[arg(long, value_name = "FOLDER", require_equals = true, num_args = 0..=1)]
    pub apply: Option<Option<PathBuf>>,
    /// Save the files that the task made or changed to this folder, but nothing of a .git
    #[arg(short, long, value_name = "FOLDER")]
    pub output: Option<PathBuf>,
    /// Print only the diff, and errors
    #[arg(short, long, conflicts_with = "json")]
    pub quiet: bool,
    /// Print the complete answer as JSON at the end, and nothing else
    #[arg(long)]
    pub json: bool,
}

impl TaskArguments {
    /// The folder that the changes are made in, if they are to be.
    pub(super) fn apply_to(&self) -> Result<Option<PathBuf>, Failed> {
        match (&self.apply, &self.directory) {
            (None, _) => Ok(None),
            (Some(Some(folder)), _) | (Some(None), Some(folder)) => Ok(Some(folder.clone())),
            (Some(None), None) => {
                Err(Failed::new("--apply needs a folder: name it, as in --apply=src, or bring one with -d"))
            }
        }
    }

    /// The arguments of the tool; reads the task from standard input if that is asked for.
    pub(super) fn call(&self, session: &str) -> Result<Value, Failed> {
        let task = if self.task == "-" {
            let mut text = String::new();
            let read = std::io::stdin().lock().read_to_string(&mut text);
            read.map_err(|error| Failed::Message(format!("cannot read the task: {error}")))?;
            text
        } else {
            self.task.clone()
        };
        let mut call = Map::new();
        call.insert("task_description".into(), json!(task));
        call.insert("session_id".into(), json!(session));
        let optional = [
            ("agent", self.agent.as_ref().map(|name| json!(name))),
            ("yolo_level", self.level.map(|level| json!(level))),
            ("model", self.model.as_ref().map(|name| json!(name))),
            ("timeout", self.timeout.map(|time| json!(time.as_secs()))),
            ("max_turns", self.max_turns.map(|turns| json!(turns))),
            ("max_budget_usd", self.max_budget_usd.map(|dollars| json!(dollars))),
        ];
        call.extend(optional.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))));
        Ok(Value::Object(call))
    }
}
