//! The warm part of a runner's image: a process with the interpreter's libraries loaded, from which runs
//! start faster.
//!
//! The pool has the part loaded when a container is armed, before anyone's code runs in it. The container
//! serves at once: until the part stands, its runs start their interpreters themselves. Only some parts are
//! loaded at the same time ([`load_queue`]). Loading must never keep a container from being used.
//!
//! A container that has a snapshot restores its lightest part in milliseconds, at once and before it is
//! leased, and the others a moment later. Nothing rations that. If the part cannot be restored, it imports,
//! by its turn in the queue.

mod load_queue;

use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use paddock_proto::message::{RestoreFailure, WarmSpec};
use paddock_proto::{Event, Request};
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use self::load_queue::{LoadPermit, LoadQueue, LoadReason, LoadTicket};
use super::container::ArmedContainer;
use super::millis;
use super::runner::Runner;
use super::snapshots::{RestoreNews, SnapshotMount};
use crate::engine::Engine;
use crate::link::{Incoming, Link};

/// How long the daemon waits for the agent's answer. An agent answers within 30 s.
const PATIENCE: Duration = Duration::from_secs(60);

/// How long one part may keep its permit while it is being loaded: several times what our images need.
const PERMIT_FOR: Duration = Duration::from_secs(5);

/// The state of a container's warm part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WarmStage {
    /// It waits for a permit to be loaded.
    Waiting,
    /// It is loading.
    Loading,
    /// The agent has reported that it stands.
    Stands,
    /// The image has none, or loading it failed.
    Absent,
}

/// The warm part of one container, as the daemon knows it.
pub struct WarmPart {
    stage: watch::Sender<WarmStage>,
    loading: Mutex<LoadRequest>,
    /// Why it could not be restored from its snapshot.
    not_restored: OnceLock<(String, RestoreFailure)>,
    /// Code may run in the container from now on.
    leased: CancellationToken,
}

/// What decides when the part is loaded.
#[derive(Default)]
struct LoadRequest {
    is_leased: bool,
    /// Its ticket while it waits for a permit.
    ticket: Option<LoadTicket>,
}

impl Default for WarmPart {
    fn default() -> Self {
        Self {
            stage: watch::Sender::new(WarmStage::Absent),
            loading: Mutex::default(),
            not_restored: OnceLock::new(),
            leased: CancellationToken::new(),
        }
    }
}

impl WarmPart {
    /// Its state at this moment.
    pub fn stage(&self) -> WarmStage {
        *self.stage.borrow()
    }

    /// Resolves when the part stands, or when it is known that it will not.
    pub async fn settled(&self) -> WarmStage {
        let mut stage = self.stage.subscribe();
        let is_settled = |stage: &WarmStage| matches!(stage, WarmStage::Stands | WarmStage::Absent);
        let settled = stage.wait_for(is_settled).await;
        settled.map_or(WarmStage::Absent, |stage| *stage)
    }

    /// Resolves when the part stands, when it is known that it will not, or when it could not be restored.
    pub(super) async fn restored(&self) -> Result<WarmStage, (String, RestoreFailure)> {
        let mut stage = self.stage.subscribe();
        let is_known = |stage: &WarmStage| {
            matches!(stage, WarmStage::Stands | WarmStage::Absent) || self.not_restored.get().is_some()
        };
        let known = stage.wait_for(is_known).await.map_or(WarmStage::Absent, |stage| *stage);
        self.not_restored.get().map_or(Ok(known), |failed| Err(failed.clone()))
    }

    /// The container now belongs to a session, whose first run must have the processor for itself.
    pub(super) fn leased(&self) {
        self.leased.cancel();
        self.with(|loading| {
            loading.is_leased = true;
            loading.change(|_| None);
        });
    }

    /// A run has ended in the container.
    pub fn used(&self) {
        self.with(|loading| loading.change(|reason| reason.or(Some(LoadReason::Used))));
    }

    /// A conversation goes on in the container, and is slower until the part stands.
    pub fn wanted(&self) {
        self.with(|loading| loading.change(|_| Some(LoadReason::Wanted)));
    }

    fn with(&self, change: impl FnOnce(&mut LoadRequest)) {
        change(&mut self.loading.lock().unwrap_or_else(PoisonError::into_inner));
    }

    fn set(&self, stage: WarmStage) {
        self.stage.send_replace(stage);
    }
}

impl LoadRequest {
    fn change(&self, change: impl FnOnce(Option<LoadReason>) -> Option<LoadReason>) {
        if let Some(ticket) = &self.ticket {
            ticket.change(change);
        }
    }
}

/// What warm parts of all containers share.
#[derive(Clone)]
pub(super) struct Warming {
    queue: LoadQueue,
    /// Who hears of parts that cannot be restored.
    news: Option<mpsc::UnboundedSender<RestoreNews>>,
}

impl Warming {
    /// With a load queue for the processors of the engine's machine.
    pub(super) async fn of(engine: &Engine, news: Option<mpsc::UnboundedSender<RestoreNews>>) -> Self {
        let processors = engine.info().await.map_or(1, |info| info.ncpu);
        Self { queue: LoadQueue::new(usize::try_from(processors).unwrap_or(1)), news }
    }
}

/// Has the container's warm part restored, if the container has a snapshot; if that fails, it is loaded.
pub(super) fn restore(armed: &ArmedContainer, warming: &Warming) {
    let (runner, part) = (armed.runner.clone(), armed.warm.clone());
    let SnapshotMount::Restored(volume) = runner.snapshot.clone() else { return };
    let Some(labels) = &runner.snapshot_labels else { return };
    let (argv, restore, env) = (runner.warm.clone(), labels.restore.clone(), runner.environment(&[]));
    let levels = labels.levels.clone();
    // Asked for now, in front of everything that the container is asked for later.
    let Ok(stream) = armed.link.request(&Request::Warm(WarmSpec { argv, env, restore, levels })) else {
        return;
    };
    part.set(WarmStage::Loading);
    let (container, news) = (armed.id.short().to_owned(), warming.news.clone());
    let import = Import::of(armed, warming);
    tokio::spawn(async move {
        let mut settle = SettleOnDrop { part: part.clone(), stage: Some(WarmStage::Absent) };
        let (language, begun) = (&runner.language, Instant::now());
        loop {
            let answer = tokio::select! {
                answer = stream.next() => answer,
                // What happens from now on may be the code's doing.
                () = part.leased.cancelled(), if part.stage() == WarmStage::Stands => return,
                () = tokio::time::sleep(PATIENCE), if part.stage() != WarmStage::Stands => return,
            };
            match answer {
                Ok(Incoming::Event(Event::Warm { restored })) => {
                    let ms = millis(begun.elapsed());
                    info!(language, container, ms, restored, "warm");
                    settle.stage = Some(WarmStage::Stands);
                    part.set(WarmStage::Stands);
                    if !restored {
                        return;
                    }
                }
                Ok(Incoming::Event(Event::NotRestored { why, failure })) => {
                    let _ = part.not_restored.set((why.clone(), failure));
                    if let Some(news) = &news {
                        let (language, volume) = (language.clone(), volume.clone());
                        let _ = news.send(RestoreNews { language, volume, container, why, failure });
                    }
                    // It imports like all others: many containers may be here at this moment.
                    settle.stage = None;
                    return import.begin();
                }
                Ok(Incoming::Event(Event::Failed { what })) => {
                    warn!(language, container, image = runner.image, what, "runs of it start cold");
                    return;
                }
                // Most likely the container was removed meanwhile.
                Ok(_) | Err(_) => return,
            }
        }
    });
}

/// Has the container's warm part loaded as soon as the queue permits, if its image has one, and if there is
/// no snapshot that it is restored from.
pub(super) fn load(armed: &ArmedContainer, warming: &Warming) {
    if !armed.runner.warm.is_empty() && armed.runner.snapshot == SnapshotMount::None {
        Import::of(armed, warming).begin();
    }
}

/// A warm part that imports its libraries.
struct Import {
    runner: Arc<Runner>,
    link: Link,
    part: Arc<WarmPart>,
    container: String,
    queue: LoadQueue,
}

impl Import {
    fn of(armed: &ArmedContainer, warming: &Warming) -> Self {
        Self {
            runner: armed.runner.clone(),
            link: armed.link.clone(),
            part: armed.warm.clone(),
            container: armed.id.short().to_owned(),
            queue: warming.queue.clone(),
        }
    }

    /// Enters the queue, and loads the part when it is its turn.
    fn begin(self) {
        let Self { runner, link, part, container, queue } = self;
        part.set(WarmStage::Waiting);
        let mut granted = None;
        part.with(|loading| {
            let (ticket, permit) = queue.enter((!loading.is_leased).then_some(LoadReason::Idle));
            (loading.ticket, granted) = (Some(ticket), Some(permit));
        });
        let Some(granted) = granted else { return };
        tokio::spawn(async move {
            let mut settle = SettleOnDrop { part: part.clone(), stage: Some(WarmStage::Absent) };
            let permit = tokio::select! {
                permit = granted => permit.ok(),
                _ = link.lost() => return,
            };
            part.with(|loading| loading.ticket = None);
            part.set(WarmStage::Loading);
            let begun = Instant::now();
            let answer = async {
                let (argv, env) = (runner.warm.clone(), runner.environment(&[]));
                let spec = WarmSpec { argv, env, restore: Vec::new(), levels: Vec::new() };
                let stream = link.request(&Request::Warm(spec))?;
                // From here on only the stream keeps the container's link open.
                drop(link);
                stream.next().await
            };
            let language = &runner.language;
            match within_permit(answer, permit).await {
                Some(Ok(Incoming::Event(Event::Warm { .. }))) => {
                    let ms = millis(begun.elapsed());
                    info!(language, container, ms, restored = false, "warm");
                    settle.stage = Some(WarmStage::Stands);
                }
                Some(Ok(Incoming::Event(Event::Failed { what }))) => {
                    warn!(language, container, image = runner.image, what, "runs of it start cold");
                }
                // Most likely the container was removed meanwhile.
                Some(Ok(_) | Err(_)) | None => {}
            }
        });
    }
}

/// Waits for an answer, for at most [`PERMIT_FOR`] and then [`PATIENCE`]. The permit is returned with the
/// answer, or after [`PERMIT_FOR`] without one: code in the container may have stopped the part, and must not
/// stop the queue.
async fn within_permit<T>(answer: impl Future<Output = T>, permit: Option<LoadPermit>) -> Option<T> {
    let mut answer = std::pin::pin!(answer);
    let early = tokio::time::timeout(PERMIT_FOR, &mut answer).await;
    drop(permit);
    match early {
        Ok(answer) => Some(answer),
        Err(_) => tokio::time::timeout(PATIENCE, answer).await.ok(),
    }
}

/// Publishes the result of loading a part when it is dropped, however the loading task ends. `None`: another
/// task goes on.
struct SettleOnDrop {
    part: Arc<WarmPart>,
    stage: Option<WarmStage>,
}

impl Drop for SettleOnDrop {
    fn drop(&mut self) {
        if let Some(stage) = self.stage {
            self.part.with(|loading| loading.ticket = None);
            self.part.set(stage);
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::{Instant, sleep};

    use super::*;

    /// A queue that loads one part at a time, with a permit for the first and the second waiting.
    fn busy() -> (LoadPermit, impl Future<Output = LoadPermit>) {
        let queue = LoadQueue::new(1);
        let (_, mut first) = queue.enter(Some(LoadReason::Idle));
        let (ticket, second) = queue.enter(Some(LoadReason::Idle));
        let first = first.try_recv().expect("nothing else is loading");
        let second = async move {
            let permit = second.await.expect("a permit");
            drop(ticket);
            permit
        };
        (first, second)
    }

    #[tokio::test(start_paused = true)]
    async fn a_part_that_does_not_answer_holds_up_the_next_for_a_while_only() {
        let (permit, next) = busy();
        let begun = Instant::now();
        let answer = async { sleep(PERMIT_FOR * 4).await };
        let (answer, waited) =
            tokio::join!(within_permit(answer, Some(permit)), async { (next.await, begun.elapsed()).1 });
        assert!((PERMIT_FOR..PERMIT_FOR * 2).contains(&waited), "the next part waited {waited:?}");
        assert_eq!(answer, Some(()), "its answer still counts");
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_returns_the_permit_at_once() {
        let (permit, next) = busy();
        let begun = Instant::now();
        assert_eq!(within_permit(std::future::ready(1), Some(permit)).await, Some(1));
        next.await;
        assert!(begun.elapsed() < PERMIT_FOR, "{:?}", begun.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn the_wait_for_an_answer_ends() {
        let (begun, longest) = (Instant::now(), PERMIT_FOR + PATIENCE);
        let waiting = within_permit(std::future::pending::<()>(), None);
        assert_eq!(tokio::time::timeout(2 * longest, waiting).await.expect("it ends"), None);
        assert_eq!(begun.elapsed().as_secs(), longest.as_secs());
    }
}
