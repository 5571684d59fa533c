//! The daemon for `paddock stdio` and `paddock run`: the running one of the store, or this process in its
//! place.
//!
//! ```text
//!  reach ─► the socket in the store ─► a daemon answers: use it
//!        ├─ no store was configured, and this user's daemon of another store listens at `http.addr`: use it
//!        └─ none: this process opens the store, and is the daemon until `end`
//! ```
//!
//! It must never start a second daemon beside a running one, leave a daemon running that it has started, or
//! connect to a daemon of another user.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use tokio::net::UnixStream;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tracing::info;

use crate::api::SocketKind;
use crate::app::{self, AppError, Port, Until};
use crate::config::Config;
use crate::holder;
use crate::metrics::Metrics;

/// The longest wait for a daemon. A daemon that starts first proves its containers, which takes time.
const PATIENCE: Duration = Duration::from_secs(60);
/// Time between two attempts to connect.
const LOOK: Duration = Duration::from_millis(50);

/// The daemon of one store.
pub(crate) struct LocalDaemon {
    config: Config,
    /// The folder of the store whose daemon answered last.
    store: PathBuf,
    metrics: Metrics,
    /// The daemon in this process.
    own: Option<OwnDaemon>,
}

/// A daemon in this process, and the means to stop it.
struct OwnDaemon {
    running: JoinHandle<Result<(), AppError>>,
    stop: CancellationToken,
    hurry: CancellationToken,
}

impl LocalDaemon {
    /// The daemon of the configured store; does not connect yet.
    pub(crate) fn new(config: Config, metrics: Metrics) -> Self {
        Self { store: config.store.root.clone(), config, metrics, own: None }
    }

    /// The folder of the store whose daemon was reached.
    pub(crate) fn store(&self) -> &Path {
        &self.store
    }

    /// Connects to the daemon of the store, or, if none was configured, to the one at `http.addr`.
    pub(crate) async fn connect(&mut self, door: SocketKind) -> std::io::Result<UnixStream> {
        let error = match door.connect(&self.config.store.root).await {
            Ok(socket) => {
                self.store.clone_from(&self.config.store.root);
                return Ok(socket);
            }
            Err(error) => error,
        };
        if self.config.store.is_named || self.own.is_some() || error.kind() == ErrorKind::PermissionDenied {
            return Err(error);
        }
        let addr = self.config.http.addr;
        let looked = tokio::task::spawn_blocking(move || holder::store_at(addr)).await;
        let Ok(Some(store)) = looked else { return Err(error) };
        let socket = door.connect(&store).await?;
        if self.store != store {
            info!(
                store = %store.display(),
                %addr,
                "reached the daemon at http.addr, which has another store"
            );
        }
        self.store = store;
        Ok(socket)
    }

    /// Connects to the daemon of the store; if there is none for `leave`, this process becomes it.
    ///
    /// # Errors
    /// No daemon could be reached, and none could be started in this process.
    pub(crate) async fn reach(&mut self, door: SocketKind, leave: Duration) -> Result<UnixStream, AppError> {
        let (begun, until) = (Instant::now(), Instant::now() + PATIENCE);
        let mut why = AppError::NoDaemon(self.config.store.root.clone());
        loop {
            match self.connect(door).await {
                Ok(socket) => return Ok(socket),
                Err(error) if error.kind() == ErrorKind::PermissionDenied => {
                    return Err(AppError::OtherUser(self.config.store.root.clone()));
                }
                Err(_) => {}
            }
            match &self.own {
                Some(own) if own.running.is_finished() => {
                    if let Some(own) = self.own.take() {
                        match own.running.await {
                            // Another daemon was quicker; it will listen soon.
                            Ok(Err(error @ AppError::InUse(_))) => why = error,
                            Ok(Err(error)) => return Err(error),
                            Ok(Ok(())) | Err(_) => {}
                        }
                    }
                }
                None if begun.elapsed() >= leave => self.start(),
                Some(_) | None => {}
            }
            if Instant::now() > until {
                return Err(why);
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Starts the daemon in this process.
    fn start(&mut self) {
        info!(store = %self.config.store.root.display(), "no daemon answers: starting one in this process");
        let (stop, hurry) = (CancellationToken::new(), CancellationToken::new());
        let stopped = stop.clone();
        let why = async move {
            stopped.cancelled().await;
            "the client is gone"
        };
        let until = Until { why, hurry: hurry.clone() };
        let running = app::run(self.config.clone(), self.metrics.clone(), Port::OrAnother, until);
        self.own = Some(OwnDaemon { running: tokio::spawn(running), stop, hurry });
    }

    /// Tells the daemon in this process to stop, and to end its runs; false if the daemon is another process.
    pub(crate) fn hurry(&self) -> bool {
        if let Some(own) = &self.own {
            own.stop.cancel();
            own.hurry.cancel();
        }
        self.own.is_some()
    }

    /// How long runs may continue while the daemon stops (`shutdown.drain`).
    pub(crate) fn drain(&self) -> Duration {
        self.config.shutdown.drain
    }

    /// Stops the daemon in this process, if there is one; its other clients find another. Runs for them may
    /// continue for `shutdown.drain`, or until `hurry`.
    ///
    /// # Errors
    /// Why the daemon stopped, if it stopped by itself.
    pub(crate) async fn end(&mut self, hurry: &CancellationToken) -> Result<(), AppError> {
        let Some(mut own) = self.own.take() else { return Ok(()) };
        own.stop.cancel();
        let ended = tokio::select! {
            ended = &mut own.running => ended,
            () = hurry.cancelled() => {
                own.hurry.cancel();
                own.running.await
            }
        };
        match ended {
            Ok(Err(AppError::InUse(_))) | Err(_) => Ok(()),
            Ok(ended) => ended,
        }
    }
}
