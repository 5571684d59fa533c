//! Executions: commands that go on while nobody waits for them, and what was heard of each.
//!
//! ```text
//!  agent ── bytes, end ──► record (on disk, as they came) ──► events (numbered, a line each) ──► whoever asks, since any
//! ```
//!
//! What is acknowledged to the agent is in the record; what is in the record has its number for good. It must never hold
//! more of an execution's output in memory than a bounded tail, nor give two events one number.

mod event;
mod lines;
mod record;

pub use self::event::{Event, Mark, What};
