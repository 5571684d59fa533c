//! The warm part of a runner's image: asked for when a container is armed, so that it stands before anyone's code.
//!
//! The container serves at once; until the part stands its runs go the plain way. Loading a part takes a processor for a
//! second or more, and all of many that are loaded at once would come too late: they come in turns, and a part of the
//! processors is left to runs. It must never keep a container from being used.

use std::sync::Arc;
use std::time::{Duration, Instant};

use paddock_proto::message::WarmSpec;
use paddock_proto::{Event, Request};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tracing::{info, warn};

use super::container::Armed;
use crate::engine::Engine;
use crate::link::Incoming;

/// How long the answer is waited for; an agent answers after 30 s at the latest.
const PATIENCE: Duration = Duration::from_secs(60);

/// The places of those that are being loaded.
#[derive(Clone)]
pub(super) struct Places(Arc<Semaphore>);

impl Places {
    /// Half of what the engine's machine has of processors.
    pub(super) async fn of(engine: &Engine) -> Self {
        let processors = engine.info().await.map_or(1, |info| info.ncpu);
        Self(Arc::new(Semaphore::new(usize::try_from(processors / 2).unwrap_or(1).max(1))))
    }
}

/// Asks for the warm part when it has its turn, if the image has one; true in the end if it stands.
pub(super) fn ask(armed: &Armed, places: &Places) -> JoinHandle<bool> {
    let places = places.0.clone();
    let (runner, link) = (armed.runner.clone(), armed.link.clone());
    let container = armed.id.as_str().get(..12).unwrap_or_default().to_owned();
    tokio::spawn(async move {
        if runner.warm.is_empty() {
            return false;
        }
        let turn = tokio::select! {
            turn = places.acquire_owned() => turn,
            _ = link.lost() => return false,
        };
        let begun = Instant::now();
        let asked = async {
            let spec = WarmSpec { argv: runner.warm.clone(), env: runner.environment(&[]) };
            let stream = link.request(&Request::Warm(spec))?;
            // Only the stream holds on to the container's link from here on.
            drop(link);
            stream.next().await
        };
        let language = &runner.language;
        let asked = tokio::time::timeout(PATIENCE, asked).await;
        drop(turn);
        match asked {
            Ok(Ok(Incoming::Event(Event::Warm))) => {
                let ms = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
                info!(language, container, ms, "warm");
                true
            }
            Ok(Ok(Incoming::Event(Event::Failed { what }))) => {
                warn!(language, container, image = runner.image, what, "runs of it start cold");
                false
            }
            // It was let go of before, most likely.
            Ok(Ok(_) | Err(_)) | Err(_) => false,
        }
    })
}
