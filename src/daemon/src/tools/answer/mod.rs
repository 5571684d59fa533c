//! Answers: the document of each, the files and images in it, the hint beside it, and the text that a model
//! reads.
//!
//! ```text
//!  run_document ─┬─ explanation: why the program ended, where that was not its own doing
//!                ├─ artifacts: files with their links, images to look at
//!                ├─ hint: what a model should know of a failure that the sandbox caused
//!                └─ earlier_runs: runs that a restart of the daemon interrupted
//!  text: any document, as a model reads it
//! ```

mod artifacts;
mod earlier_runs;
mod explanation;
mod hint;
mod libraries;
mod listing;
mod run_document;
mod text;

pub(crate) use self::artifacts::mime_type;
pub(super) use self::artifacts::{SHOWN_IMAGES, images, public_path};
pub(super) use self::hint::{HINT_READS, ProgramNetwork, hint};
pub(super) use self::listing::{MAX_PAGE, PAGE, no_session};
pub(super) use self::run_document::{put_unsaved, run_document, status};
pub(super) use self::text::ShownOutput;
