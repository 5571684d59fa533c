//! The tool set `code`: programs in, their output and files out.
//!
//! ```text
//!  RunCode, RunPython ─► CheckedRun ─► run: turn ─► files ─► program ─► its answer
//!  UploadFile, ReadArtifact, ListArtifacts ─► the session's files as they are saved
//! ```

mod close_session;
mod list_artifacts;
mod list_runners;
mod notify;
mod read_artifact;
mod run;
mod run_code;
mod run_python;
mod upload_file;

pub(super) use self::close_session::CloseSession;
pub(super) use self::list_artifacts::ListArtifacts;
pub(super) use self::list_runners::ListRunners;
pub(super) use self::read_artifact::ReadArtifact;
pub use self::read_artifact::{ReadPermit, ReadPermits};
pub(super) use self::read_artifact::{open_saved, read_saved};
pub(super) use self::run::put_files;
pub(super) use self::run_code::RunCode;
pub(super) use self::run_python::RunPython;
pub(super) use self::upload_file::UploadFile;
pub(crate) use self::upload_file::{check_free, now_ns};
