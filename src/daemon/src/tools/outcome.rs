//! What a tool answers: a document, images, and how to write it as text.

use std::time::Duration;

use serde_json::{Map, Value};

use super::answer::ShownOutput;
use super::registry::AnswerForm;
use super::{ArgumentError, Code, ReadPermit};

/// What a tool answers.
#[derive(Debug, Default)]
pub struct Outcome {
    /// The answer, as data.
    pub document: Map<String, Value>,
    /// True if the call did not do what it was asked to.
    pub failed: bool,
    /// Images that are part of the answer.
    pub images: Vec<Image>,
    /// Where the time of a run went.
    pub timing: Option<Timing>,
    /// Kept until the answer is sent.
    pub permit: Option<ReadPermit>,
    /// How the answer is written as text.
    pub(super) form: AnswerForm,
    /// Whether the tool is one of the set `exec`.
    pub(super) is_of_a_command: bool,
    /// Whether the session was made for this call, so that the caller does not know its id yet.
    pub(super) is_new_session: bool,
    /// A command's output, shortened for a model.
    pub(super) output: Option<ShownOutput>,
}

impl Outcome {
    /// The code of its failure, if it has one.
    pub(crate) fn code(&self) -> Option<Code> {
        Code::of(self.document.get("error")?.as_str()?)
    }

    /// Whether the answer is about a shell command.
    pub(crate) fn is_of_a_command(&self) -> bool {
        self.is_of_a_command
    }
}

/// Where the time of a run went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timing {
    /// Until the session's turn came, and a container was leased.
    pub queued: Duration,
    /// To bring files and code into the container.
    pub files_in: Duration,
    /// The program, from the sending of its code to the death of its last process.
    pub program: Duration,
    /// To find and save the files that it changed.
    pub files_out: Duration,
    /// From the checked call to its answer. What is in none of the others is the daemon's own.
    pub total: Duration,
}

/// An image for a model to look at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    /// `image/png` and the like.
    pub mime_type: String,
    /// Base64.
    pub data: String,
}

/// Why no tool can answer a call.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// No tool has this name.
    #[error("there is no tool `{0}`; there are: {1}")]
    UnknownTool(String, String),
    /// The arguments are not what the tool takes.
    #[error(transparent)]
    Arguments(#[from] ArgumentError),
    /// The daemon failed. Its log says what went wrong, the sentence is for the caller.
    #[error("{0}")]
    Internal(String),
}
