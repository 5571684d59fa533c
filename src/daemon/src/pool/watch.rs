//! Follows the engine: which images there are, which containers ended, whether it answers at all, and whether
//! something of ours is there that nobody knows.
//!
//! It must never let a runner into the pool before a container was proved to be confined.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch as latest};
use tokio::time::Instant;
use tracing::{info, warn};

use super::core::{Event, Uid};
use super::driver::Message;
use super::leftovers::{Leftovers, Survivor};
use super::runner::{self, Runner};
use super::spec::{Blueprint, Bounds};
use super::{AgentTerms, PoolConfig, PoolError, agent, proof};
use crate::engine::{ContainerAction, Engine, EventFilter, EventKind, Followed, Occurrence};

/// After an image event others follow (a build tags and untags): one look serves them all.
const SETTLE: Duration = Duration::from_millis(200);

/// After the start, and after the engine answers again, what is left is looked for once more: what was asked of the
/// engine before may have happened since.
const FIRST_SWEEP: Duration = Duration::from_secs(5);

/// Between two such looks.
const SWEEP: Duration = Duration::from_secs(60);

pub(super) struct Watch {
    engine: Engine,
    owner: String,
    bounds: Bounds,
    terms: AgentTerms,
    images: BTreeMap<String, String>,
    warm_parts: bool,
    /// The throwaway container has one of these that no other container has, as the pool has none yet.
    uids: std::ops::RangeInclusive<u32>,
    sender: mpsc::UnboundedSender<Message>,
    engine_up: latest::Sender<bool>,
    fatal: latest::Sender<Option<Arc<PoolError>>>,
    proved: bool,
    warned: Vec<String>,
}

impl Watch {
    pub(super) fn new(engine: Engine, config: &PoolConfig, sender: mpsc::UnboundedSender<Message>) -> Self {
        Self {
            engine,
            owner: config.owner.clone(),
            bounds: config.bounds.clone(),
            terms: config.terms.clone(),
            images: config.images.clone(),
            warm_parts: config.warm_parts,
            uids: config.settings.uid_range.clone(),
            sender,
            engine_up: latest::Sender::new(true),
            fatal: latest::Sender::new(None),
            proved: false,
            warned: Vec::new(),
        }
    }

    pub(super) fn engine_up(&self) -> latest::Receiver<bool> {
        self.engine_up.subscribe()
    }

    pub(super) fn fatal(&self) -> latest::Receiver<Option<Arc<PoolError>>> {
        self.fatal.subscribe()
    }

    /// What happens before anything is served; also which containers of an earlier daemon live on.
    pub(super) async fn first_look(
        &mut self,
    ) -> Result<(Arc<Blueprint>, Vec<Runner>, Vec<Survivor>), PoolError> {
        let blueprint = self.blueprint()?;
        let left = Leftovers::find(&self.engine, &blueprint.owned()).await?;
        let used = left.uids();
        let free = self.uids.clone().rev().map(Uid).find(|uid| !used.contains(uid));
        let found = self.look(&blueprint, free.unwrap_or(Uid(*self.uids.end()))).await?;
        let survivors = left.take_over(&blueprint, &found, &self.terms).await;
        if !survivors.is_empty() {
            info!(containers = survivors.len(), "containers of an earlier daemon live on");
        }
        Ok((blueprint, found, survivors))
    }

    fn blueprint(&self) -> Result<Arc<Blueprint>, PoolError> {
        let agent = agent::volume_name().map_err(PoolError::Agent)?;
        Ok(Arc::new(Blueprint { owner: self.owner.clone(), agent, bounds: self.bounds.clone() }))
    }

    /// The runners that there are; the first time that there are any, with the agent put there and the proof.
    async fn look(&mut self, blueprint: &Blueprint, uid: Uid) -> Result<Vec<Runner>, PoolError> {
        let found = runner::find(&self.engine, &self.images, self.warm_parts).await?;
        for warning in found.warnings {
            if !self.warned.contains(&warning) {
                warn!("{warning}");
                self.warned.push(warning);
            }
        }
        let runners: Vec<Runner> = found.runners.into_values().collect();
        let Some(first) = runners.first() else {
            warn!("no runner image found: none has the label {}; `make images` builds ours", runner::LABEL);
            return Ok(runners);
        };
        if !self.proved {
            agent::ensure(&self.engine, &first.image_id, &blueprint.owned()).await?;
            let first = Arc::new(first.clone());
            let facts = proof::prove(&self.engine, blueprint, &first, uid, &self.terms).await?;
            info!(image = first.image, landlock = facts.landlock, "containers are confined as they must be");
            self.proved = true;
        }
        Ok(runners)
    }

    /// Follows until the pool is gone.
    pub(super) async fn run(mut self) {
        let Ok(blueprint) = self.blueprint() else { return };
        let filter = EventFilter {
            kinds: vec![EventKind::Container, EventKind::Image],
            actions: ["die", "pause", "tag", "untag", "delete", "import", "load", "pull"]
                .map(String::from)
                .to_vec(),
            ..EventFilter::default()
        };
        let mut events = self.engine.events(filter);
        let mut look_again = false;
        let mut sweep_at = Instant::now() + FIRST_SWEEP;
        loop {
            let next = async {
                if look_again {
                    tokio::time::timeout(SETTLE, events.next()).await.ok()
                } else {
                    Some(events.next().await)
                }
            };
            let followed = tokio::select! {
                followed = next => followed,
                () = tokio::time::sleep_until(sweep_at) => {
                    self.sweep(&blueprint).await;
                    sweep_at = Instant::now() + SWEEP;
                    continue;
                }
            };
            let Some(followed) = followed else {
                look_again = !self.look_again(&blueprint).await;
                if look_again {
                    tokio::time::sleep(SETTLE).await;
                }
                continue;
            };
            match followed {
                Followed::Connected => look_again = true,
                Followed::Reconnected => {
                    info!("the engine answers again");
                    self.engine_up.send_replace(true);
                    let _ = self.sender.send(Message::Event(Event::EngineUp));
                    look_again = true;
                    sweep_at = Instant::now() + FIRST_SWEEP;
                }
                Followed::Disconnected(error) => {
                    warn!(%error, "the engine does not answer");
                    self.engine_up.send_replace(false);
                    let _ = self.sender.send(Message::Event(Event::EngineDown));
                }
                Followed::Event(event) => match event.what {
                    // Nobody here pauses one: it answers no more, and its run would only be late.
                    Occurrence::Container {
                        id,
                        action: ContainerAction::Die { .. } | ContainerAction::Pause,
                        ..
                    } => {
                        let _ = self.sender.send(Message::Ended(id));
                    }
                    Occurrence::Image { .. } => look_again = true,
                    Occurrence::Container { .. } | Occurrence::Volume { .. } => {}
                },
            }
        }
    }

    /// Removes what carries our label and no member's name: what the engine did after we had given up on its answer.
    async fn sweep(&self, blueprint: &Blueprint) {
        let Ok(left) = Leftovers::find(&self.engine, &blueprint.owned()).await else { return };
        let (reply, names) = oneshot::channel();
        let _ = self.sender.send(Message::Names(reply));
        if let Ok(names) = names.await {
            let removed = left.remove_all_but(&names).await;
            if removed > 0 {
                warn!(removed, "containers or volumes were there that nobody knew of");
            }
        }
    }

    /// Whether the look gave an answer, good or fatal.
    async fn look_again(&mut self, blueprint: &Blueprint) -> bool {
        // Only the first runners that there are have a proof to come, and no container has a UID before them.
        match self.look(blueprint, Uid(*self.uids.end())).await {
            Ok(found) => {
                let _ = self.sender.send(Message::Found(found));
                true
            }
            Err(PoolError::Engine(error)) => {
                warn!(%error, "the images could not be listed");
                !*self.engine_up.borrow()
            }
            Err(error) => {
                self.fatal.send_replace(Some(Arc::new(error)));
                true
            }
        }
    }
}
