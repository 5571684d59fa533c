//! What a run has used of its network so far: what the next daemon must know of a run that goes on if this
//! one is killed.
//!
//! Connections are not part of it: they end with the daemon. It must never grow with what a program does, so
//! names are only counted: one that is looked up again after a restart counts again.

use serde::{Deserialize, Serialize};

use super::ledger::Destination;
use super::service::model::ModelUsage;

/// What a run has used of its network so far.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetworkUsage {
    /// The destinations that are listed.
    pub destinations: Vec<Destination>,
    /// How many others there were.
    pub unlisted: usize,
    /// Bytes that came in to its programs, of all destinations.
    pub bytes_in: u64,
    /// Bytes that went out of them.
    pub bytes_out: u64,
    /// Bytes that its bound was charged for: all of it, once more was wanted.
    pub charged: u64,
    /// Names that were looked up.
    pub names: usize,
    /// Requests to services.
    pub requests: u64,
    /// What it used of models.
    #[serde(default)]
    pub models: ModelUsage,
}
