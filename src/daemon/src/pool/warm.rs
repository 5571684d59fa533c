//! The warm part of a runner's image: asked for when a container is armed, so that it stands before anyone's code.
//!
//! The container serves at once; until the part stands its runs start their interpreters. Parts are loaded in turns
//! ([`turns`]). It must never keep a container from being used.

mod turns;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use paddock_proto::message::WarmSpec;
use paddock_proto::{Event, Request};
use tokio::sync::watch;
use tracing::{info, warn};

pub(super) use self::turns::Turns;
use self::turns::{Claim, Ticket};
use super::container::Armed;
use crate::engine::Engine;
use crate::link::Incoming;

/// How long the answer is waited for; an agent answers after 30 s at the latest.
const PATIENCE: Duration = Duration::from_secs(60);

/// How long a part that is being loaded keeps others from it: several times what ours takes.
const TURN: Duration = Duration::from_secs(5);

/// How far the warm part of a container has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// It waits for its turn to be loaded.
    Waiting,
    /// It is loading.
    Loading,
    /// It stood when the agent was last heard of.
    Stands,
    /// The image has none, or it did not come to stand.
    Absent,
}

/// The warm part of one container, as the daemon knows it.
pub struct WarmPart {
    stage: watch::Sender<Stage>,
    place: Mutex<Place>,
}

/// Its place among those that are to be loaded.
#[derive(Default)]
struct Place {
    is_leased: bool,
    ticket: Option<Ticket>,
}

impl Default for WarmPart {
    fn default() -> Self {
        Self { stage: watch::Sender::new(Stage::Absent), place: Mutex::default() }
    }
}

impl WarmPart {
    /// How far it has come.
    pub fn stage(&self) -> Stage {
        *self.stage.borrow()
    }

    /// Resolves when it stands, or when it is known that it does not.
    pub async fn settled(&self) -> Stage {
        let mut stage = self.stage.subscribe();
        let is_settled = |stage: &Stage| matches!(stage, Stage::Stands | Stage::Absent);
        let settled = stage.wait_for(is_settled).await;
        settled.map_or(Stage::Absent, |stage| *stage)
    }

    /// The container is a session's from now on, whose first run shall have the processor for itself.
    pub(super) fn leased(&self) {
        self.with(|place| {
            place.is_leased = true;
            place.claim(|_| None);
        });
    }

    /// A run has ended in the container.
    pub fn used(&self) {
        self.with(|place| place.claim(|claim| claim.or(Some(Claim::Used))));
    }

    /// A conversation goes on in the container, and is slower until the part stands.
    pub fn wanted(&self) {
        self.with(|place| place.claim(|_| Some(Claim::Wanted)));
    }

    fn with(&self, change: impl FnOnce(&mut Place)) {
        change(&mut self.place.lock().unwrap_or_else(PoisonError::into_inner));
    }

    fn set(&self, stage: Stage) {
        self.stage.send_replace(stage);
    }
}

impl Place {
    fn claim(&self, change: impl FnOnce(Option<Claim>) -> Option<Claim>) {
        if let Some(ticket) = &self.ticket {
            ticket.claim(change);
        }
    }
}

/// The turns of an engine's machine.
pub(super) async fn turns(engine: &Engine) -> Turns {
    let processors = engine.info().await.map_or(1, |info| info.ncpu);
    Turns::new(usize::try_from(processors).unwrap_or(1))
}

/// Asks for the warm part when it has its turn, if the image has one.
pub(super) fn ask(armed: &Armed, turns: &Turns) {
    let (runner, link, part) = (armed.runner.clone(), armed.link.clone(), armed.warm.clone());
    if runner.warm.is_empty() {
        return;
    }
    part.set(Stage::Waiting);
    let mut granted = None;
    part.with(|place| {
        let (ticket, turn) = turns.enter((!place.is_leased).then_some(Claim::Idle));
        (place.ticket, granted) = (Some(ticket), Some(turn));
    });
    let Some(granted) = granted else { return };
    let container = armed.id.as_str().get(..12).unwrap_or_default().to_owned();
    tokio::spawn(async move {
        let mut outcome = Outcome { part: part.clone(), stage: Stage::Absent };
        let turn = tokio::select! {
            turn = granted => turn,
            _ = link.lost() => return,
        };
        part.with(|place| place.ticket = None);
        part.set(Stage::Loading);
        let begun = Instant::now();
        let asked = async {
            let spec = WarmSpec { argv: runner.warm.clone(), env: runner.environment(&[]) };
            let stream = link.request(&Request::Warm(spec))?;
            // Only the stream holds on to the container's link from here on.
            drop(link);
            stream.next().await
        };
        let language = &runner.language;
        let mut asked = std::pin::pin!(asked);
        // The next part has its turn after a while, whatever becomes of this one: code may have stopped it.
        let early = tokio::time::timeout(TURN, &mut asked).await;
        drop(turn);
        let asked = match early {
            Ok(answer) => Ok(answer),
            Err(_) => tokio::time::timeout(PATIENCE, asked).await,
        };
        match asked {
            Ok(Ok(Incoming::Event(Event::Warm))) => {
                let ms = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
                info!(language, container, ms, "warm");
                outcome.stage = Stage::Stands;
            }
            Ok(Ok(Incoming::Event(Event::Failed { what }))) => {
                warn!(language, container, image = runner.image, what, "runs of it start cold");
            }
            // The container was given up before, most likely.
            Ok(Ok(_) | Err(_)) | Err(_) => {}
        }
    });
}

/// What came of a part: told to whoever waits for it when this is dropped, however its task ends.
struct Outcome {
    part: Arc<WarmPart>,
    stage: Stage,
}

impl Drop for Outcome {
    fn drop(&mut self) {
        self.part.with(|place| place.ticket = None);
        self.part.set(self.stage);
    }
}
