//! Why a daemon did not start, or ended.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use crate::api::TlsFilesError;
use crate::engine::{EngineError, HostError};
use crate::pool::PoolError;
use crate::store::StoreError;

/// Why a daemon did not start, or ended: one sentence for the person who started it.
#[derive(Debug, thiserror::Error)]
pub enum AppError {
    /// Another daemon has the store.
    #[error("{0}")]
    InUse(StoreError),
    /// The store cannot be opened, read or written.
    #[error("{0}")]
    Store(StoreError),
    /// A folder for drop folders cannot be used.
    #[error("{0}")]
    Drops(String),
    /// The file of tokens cannot be used.
    #[error("auth.tokens_file: {0}")]
    Tokens(String),
    /// The audit log cannot be opened.
    #[error("audit.file: {0}")]
    Audit(io::Error),
    /// The cluster cannot be joined.
    #[error("cluster: {0}")]
    Cluster(String),
    /// An address cannot be listened on.
    #[error("cannot listen on {addr} ({setting}): {error}")]
    Listen {
        /// The address.
        addr: SocketAddr,
        /// The setting that names it.
        setting: &'static str,
        /// What the system said.
        error: io::Error,
    },
    /// The sockets in the store's folder cannot be made.
    #[error("cannot listen in {}: {error}", folder.display())]
    ListenInStore {
        /// The folder.
        folder: PathBuf,
        /// What the system said.
        error: io::Error,
    },
    /// The files of TLS cannot be used.
    #[error("{0}")]
    Tls(#[from] TlsFilesError),
    /// The engine's address cannot be used.
    #[error("engine.host: {0}")]
    EngineHost(HostError),
    /// The engine and this daemon do not agree on TLS.
    #[error("{error}: {why} (engine.certificates, DOCKER_CERT_PATH)")]
    EngineTls {
        /// What the connection failed with.
        error: EngineError,
        /// What is wrong with the certificates.
        why: String,
    },
    /// The engine cannot be reached by ssh.
    #[error("{error}: {why}")]
    EngineSsh {
        /// What the connection failed with.
        error: EngineError,
        /// What ssh said.
        why: String,
    },
    /// This user may not use the engine.
    #[error("{0}, which this user may not use: sudo usermod -aG docker $USER, then log in again")]
    EngineDenied(EngineError),
    /// The engine does not answer.
    #[error("{0}; is Docker running? (DOCKER_HOST or engine.host names it)")]
    EngineUnreachable(EngineError),
    /// The engine answers, but the daemon cannot use it.
    #[error("{0}")]
    Engine(EngineError),
    /// The pool cannot serve on this engine.
    #[error("cannot serve: {0}")]
    CannotServe(PoolError),
    /// The pool had to stop.
    #[error("cannot go on: {0}")]
    CannotGoOn(Arc<PoolError>),
    /// No daemon answers, and none could be started in its place.
    #[error("no daemon answers in {}", .0.display())]
    NoDaemon(PathBuf),
    /// The daemon that answers belongs to another user.
    #[error("the daemon of {} belongs to another user, and serves only that user here", .0.display())]
    OtherUser(PathBuf),
    /// The process cannot listen for signals.
    #[error("cannot listen for signals: {0}")]
    Signals(io::Error),
    /// The client of `paddock stdio` does not read.
    #[error("cannot write to standard output: {0}")]
    Output(io::Error),
}

impl From<StoreError> for AppError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::InUse(_) => Self::InUse(error),
            StoreError::Newer { .. }
            | StoreError::Quota { .. }
            | StoreError::Full(_)
            | StoreError::Unwritable(_)
            | StoreError::Pending(_)
            | StoreError::Gone
            | StoreError::Ledger(_)
            | StoreError::Io { .. } => Self::Store(error),
        }
    }
}

impl AppError {
    /// The failure to connect to the engine, with what to do about it.
    pub(super) fn connecting(error: EngineError) -> Self {
        if let Some(why) = error.by_tls() {
            Self::EngineTls { error, why }
        } else if let Some(why) = error.by_ssh() {
            Self::EngineSsh { error, why }
        } else if is_denied(&error) {
            Self::EngineDenied(error)
        } else if error.is_unreachable() {
            Self::EngineUnreachable(error)
        } else {
            Self::Engine(error)
        }
    }
}

/// Whether the system forbids it.
fn is_denied(error: &(dyn std::error::Error + 'static)) -> bool {
    let mut causes = std::iter::successors(Some(error), |error| error.source());
    causes.any(|cause| {
        cause.downcast_ref::<io::Error>().is_some_and(|io| io.kind() == io::ErrorKind::PermissionDenied)
    })
}
