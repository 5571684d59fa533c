//! Follows the engine: which images there are, which containers ended, whether it answers at all.
//!
//! It must never let a runner into the pool before a container was proved to be confined.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch as latest};
use tracing::{info, warn};

use super::core::{Event, Uid};
use super::driver::Message;
use super::runner::{self, Runner};
use super::spec::{Blueprint, Bounds};
use super::{PoolConfig, PoolError, agent, container, proof};
use crate::engine::{ContainerAction, Engine, EventFilter, EventKind, Followed, Occurrence};
use crate::link::Terms;

/// After an image event others follow (a build tags and untags): one look serves them all.
const SETTLE: Duration = Duration::from_millis(200);

pub(super) struct Watch {
    engine: Engine,
    owner: String,
    bounds: Bounds,
    terms: Terms,
    images: BTreeMap<String, String>,
    /// The UID of the throwaway container: one that no member of the pool gets, as the pool has none yet.
    uid: Uid,
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
            uid: Uid(*config.settings.uid_range.end()),
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

    /// What happens before anything is served.
    pub(super) async fn first_look(&mut self) -> Result<Arc<Blueprint>, PoolError> {
        let blueprint = self.blueprint()?;
        let (containers, volumes) = container::remove_leftovers(&self.engine, &blueprint.owned()).await?;
        if containers + volumes > 0 {
            info!(containers, volumes, "removed what an earlier daemon of this store left");
        }
        let found = self.look(&blueprint).await?;
        let _ = self.sender.send(Message::Found(found));
        Ok(blueprint)
    }

    fn blueprint(&self) -> Result<Arc<Blueprint>, PoolError> {
        let agent = agent::volume_name().map_err(PoolError::Agent)?;
        Ok(Arc::new(Blueprint { owner: self.owner.clone(), agent, bounds: self.bounds.clone() }))
    }

    /// The runners that there are; the first time that there are any, with the agent put there and the proof.
    async fn look(&mut self, blueprint: &Blueprint) -> Result<Vec<Runner>, PoolError> {
        let found = runner::find(&self.engine, &self.images).await?;
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
            let facts = proof::prove(&self.engine, blueprint, &first, self.uid, &self.terms).await?;
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
        loop {
            let followed = if look_again {
                match tokio::time::timeout(SETTLE, events.next()).await {
                    Ok(followed) => followed,
                    Err(_) => {
                        look_again = !self.look_again(&blueprint).await;
                        if look_again {
                            tokio::time::sleep(SETTLE).await;
                        }
                        continue;
                    }
                }
            } else {
                events.next().await
            };
            match followed {
                Followed::Connected => look_again = true,
                Followed::Reconnected => {
                    info!("the engine answers again");
                    self.engine_up.send_replace(true);
                    let _ = self.sender.send(Message::Event(Event::EngineUp));
                    look_again = true;
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

    /// Whether the look gave an answer, good or fatal.
    async fn look_again(&mut self, blueprint: &Blueprint) -> bool {
        match self.look(blueprint).await {
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
