//! The daemon that has the store, or this process in its place: what `paddock stdio` and `paddock run` go to.
//!
//! ```text
//!  reach ─► a socket in the store ─► somebody answers: that is it
//!        └─ nobody: this process takes the store, and is the daemon until `end`
//! ```
//!
//! It must never start a second daemon beside one that lives, nor leave the one that it started.

use std::io::ErrorKind;
use std::path::Path;
use std::time::{Duration, Instant};

use tokio::net::UnixStream;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tracing::info;

use crate::api::Door;
use crate::app::{self, AppError, Port};
use crate::config::Config;
use crate::metrics::Metrics;

/// How long it may take until a daemon can be talked to: one that starts proves its containers first.
const PATIENCE: Duration = Duration::from_secs(60);
/// Between two looks for it.
const LOOK: Duration = Duration::from_millis(50);

/// The daemon of one store.
pub(crate) struct Nearby {
    config: Config,
    metrics: Metrics,
    /// The daemon in this process, and what ends it.
    own: Option<(JoinHandle<Result<(), AppError>>, CancellationToken)>,
}

impl Nearby {
    /// The one of the store that is configured. Nothing is looked for yet.
    pub(crate) fn new(config: Config, metrics: Metrics) -> Self {
        Self { config, metrics, own: None }
    }

    /// The folder of the store.
    pub(crate) fn store(&self) -> &Path {
        &self.config.store.root
    }

    /// A connection to the daemon that has the store; this process becomes it if there is none for `leave`.
    ///
    /// # Errors
    /// None could be reached, nor started here.
    pub(crate) async fn reach(&mut self, door: Door, leave: Duration) -> Result<UnixStream, AppError> {
        let (begun, until) = (Instant::now(), Instant::now() + PATIENCE);
        let mut why = AppError::Failed(format!("nobody answers in {}", self.config.store.root.display()));
        loop {
            match door.connect(&self.config.store.root).await {
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
                Some((own, _)) if own.is_finished() => {
                    if let Some((own, _)) = self.own.take() {
                        match own.await {
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
        let stop = CancellationToken::new();
        let until = {
            let stop = stop.clone();
            async move {
                stop.cancelled().await;
                "the client is gone"
            }
        };
        let running = app::run(self.config.clone(), self.metrics.clone(), Port::OrAny, until);
        self.own = Some((tokio::spawn(running), stop));
    }

    /// Ends the daemon in this process, if there is one; others of its clients find another.
    ///
    /// # Errors
    /// What it ended of, if that was not its client's going.
    pub(crate) async fn end(&mut self) -> Result<(), AppError> {
        let Some((own, stop)) = self.own.take() else { return Ok(()) };
        stop.cancel();
        match own.await {
            Ok(Err(AppError::InUse(_))) | Err(_) => Ok(()),
            Ok(ended) => ended,
        }
    }
}
