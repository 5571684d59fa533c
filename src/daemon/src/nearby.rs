//! The daemon that has the store, or this process in its place: what `paddock stdio` and `paddock run` go to.
//!
//! ```text
//!  reach ─► a socket in the store ─► somebody answers: that is it
//!        ├─ no store was named, and this user's daemon of another store listens at `http.addr`: that is it
//!        └─ nobody: this process takes the store, and is the daemon until `end`
//! ```
//!
//! It must never start a second daemon beside one that lives, nor leave the one that it started, nor go to a daemon of
//! another user.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use tokio::net::UnixStream;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tracing::info;

use crate::api::Door;
use crate::app::{self, AppError, Port, Until};
use crate::config::Config;
use crate::holder;
use crate::metrics::Metrics;

/// How long it may take until a daemon can be talked to: one that starts proves its containers first.
const PATIENCE: Duration = Duration::from_secs(60);
/// Between two looks for it.
const LOOK: Duration = Duration::from_millis(50);

/// The daemon of one store.
pub(crate) struct Nearby {
    config: Config,
    /// The folder of the store whose daemon answered last.
    store: PathBuf,
    metrics: Metrics,
    /// The daemon in this process.
    own: Option<Own>,
}

/// A daemon in this process, and what ends it.
struct Own {
    running: JoinHandle<Result<(), AppError>>,
    stop: CancellationToken,
    hurry: CancellationToken,
}

impl Nearby {
    /// The one of the store that is configured. Nothing is looked for yet.
    pub(crate) fn new(config: Config, metrics: Metrics) -> Self {
        Self { store: config.store.root.clone(), config, metrics, own: None }
    }

    /// The folder of the store whose daemon was reached.
    pub(crate) fn store(&self) -> &Path {
        &self.store
    }

    /// A connection to the daemon of the store, or to the one at `http.addr` if nobody named a store.
    async fn connect(&mut self, door: Door) -> std::io::Result<UnixStream> {
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
            info!(store = %store.display(), %addr, "reached the daemon at http.addr, which has another store");
        }
        self.store = store;
        Ok(socket)
    }

    /// A connection to the daemon that has the store; this process becomes it if there is none for `leave`.
    ///
    /// # Errors
    /// None could be reached, nor started here.
    pub(crate) async fn reach(&mut self, door: Door, leave: Duration) -> Result<UnixStream, AppError> {
        let (begun, until) = (Instant::now(), Instant::now() + PATIENCE);
        let mut why = AppError::Failed(format!("nobody answers in {}", self.config.store.root.display()));
        loop {
            match self.connect(door).await {
                Ok(socket) => return Ok(socket),
                Err(error) if error.kind() == ErrorKind::PermissionDenied => {
                    let store = self.config.store.root.display();
                    let why =
                        format!("the daemon of {store} is another user's, and serves only that one here");
                    return Err(AppError::Failed(why));
                }
                Err(_) => {}
            }
            match &self.own {
                Some(own) if own.running.is_finished() => {
                    if let Some(own) = self.own.take() {
                        match own.running.await {
                            // Another one was quicker; it will listen soon.
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

    /// Begins to be the daemon.
    fn start(&mut self) {
        info!(store = %self.config.store.root.display(), "no daemon answers: this process is it now");
        let (stop, hurry) = (CancellationToken::new(), CancellationToken::new());
        let stopped = stop.clone();
        let why = async move {
            stopped.cancelled().await;
            "the client is gone"
        };
        let until = Until { why, hurry: hurry.clone() };
        let running = app::run(self.config.clone(), self.metrics.clone(), Port::OrAnother, until);
        self.own = Some(Own { running: tokio::spawn(running), stop, hurry });
    }

    /// Tells the daemon in this process to end, and to cut what runs; false if the daemon is another process.
    pub(crate) fn hurry(&self) -> bool {
        if let Some(own) = &self.own {
            own.stop.cancel();
            own.hurry.cancel();
        }
        self.own.is_some()
    }

    /// How long what runs may go on at the end (`shutdown.drain`).
    pub(crate) fn drain(&self) -> Duration {
        self.config.shutdown.drain
    }

    /// Ends the daemon in this process, if there is one; others of its clients find another. What runs for them may go
    /// on for `shutdown.drain`, or until `hurry`.
    ///
    /// # Errors
    /// What it ended of, if that was not its client's going.
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
