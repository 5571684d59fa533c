//! How taking a snapshot ends, and what each error of a step means for it.

use super::super::core::LeaseRefusal;
use super::core::TakeFailure;
use super::volume::VolumeError;
use crate::engine::EngineError;
use crate::link::LinkError;

/// How taking a snapshot ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum TakeOutcome {
    /// It was taken and proved.
    Ok,
    /// There was no container to take it in, or callers needed its place.
    Busy,
    /// The engine's disk has too little room for it.
    Disk,
    /// No snapshot is possible on this machine.
    Unsupported,
    /// The save command failed, or took too long.
    Save,
    /// What the save command left cannot be a snapshot.
    Unfit,
    /// The part could not be restored from it.
    Restore,
    /// The proof program did not come out alike.
    Proof,
    /// The engine refused a step, or a container was lost.
    Engine,
    /// It could not be noted in the store.
    Store,
}

impl TakeOutcome {
    /// All of them.
    pub const ALL: [Self; 10] = [
        Self::Ok,
        Self::Busy,
        Self::Disk,
        Self::Unsupported,
        Self::Save,
        Self::Unfit,
        Self::Restore,
        Self::Proof,
        Self::Engine,
        Self::Store,
    ];

    /// A stable word for metrics and logs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Busy => "busy",
            Self::Disk => "disk",
            Self::Unsupported => "unsupported",
            Self::Save => "save",
            Self::Unfit => "unfit",
            Self::Restore => "restore",
            Self::Proof => "proof",
            Self::Engine => "engine",
            Self::Store => "store",
        }
    }
}

/// Why there is no snapshot.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{why}")]
pub(super) struct TakeError {
    pub(super) outcome: TakeOutcome,
    pub(super) why: String,
}

impl TakeError {
    pub(super) fn new(outcome: TakeOutcome, why: impl Into<String>) -> Self {
        Self { outcome, why: why.into() }
    }

    /// What it means for the next attempt.
    pub(super) fn failure(self) -> TakeFailure {
        match self.outcome {
            TakeOutcome::Busy => TakeFailure::Busy,
            TakeOutcome::Unsupported => TakeFailure::Unsupported(self.why),
            TakeOutcome::Ok
            | TakeOutcome::Disk
            | TakeOutcome::Save
            | TakeOutcome::Unfit
            | TakeOutcome::Restore
            | TakeOutcome::Proof
            | TakeOutcome::Engine
            | TakeOutcome::Store => TakeFailure::Failed,
        }
    }
}

impl From<VolumeError> for TakeError {
    fn from(error: VolumeError) -> Self {
        let outcome = match error {
            VolumeError::Engine(_) | VolumeError::Name(_) | VolumeError::Archive(_) => TakeOutcome::Engine,
            VolumeError::TooLarge | VolumeError::Unfit(_) | VolumeError::Differs => TakeOutcome::Unfit,
        };
        Self::new(outcome, error.to_string())
    }
}

impl From<EngineError> for TakeError {
    fn from(error: EngineError) -> Self {
        Self::new(TakeOutcome::Engine, error.to_string())
    }
}

impl From<LinkError> for TakeError {
    fn from(error: LinkError) -> Self {
        Self::new(TakeOutcome::Engine, format!("a container for a snapshot was lost: {error}"))
    }
}

impl From<LeaseRefusal> for TakeError {
    fn from(refusal: LeaseRefusal) -> Self {
        Self::new(TakeOutcome::Busy, format!("no container to take a snapshot in: {refusal}"))
    }
}
