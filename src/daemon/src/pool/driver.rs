//! The doing half of the pool: one task that owns the core, tells it what happens and does what it says.
//!
//! It must never decide anything that the core could: it keeps the objects behind the core's numbers, and runs
//! the engine's calls in tasks of their own, whose ends come back as messages.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{Semaphore, mpsc, oneshot, watch};
use tracing::{debug, info, warn};

use super::container::{self, Armed};
use super::core::{Action, Core, Event, MemberId, Refusal, RunnerId, Snapshot, WaiterId};
use super::leftovers::Survivor;
use super::runner::Runner;
use super::spec::Blueprint;
use super::{Adopted, AgentTerms, Lease, Runners, warm};
use crate::engine::{ContainerId, Engine, VolumeName};
use crate::metrics::Metrics;

/// Everything that reaches the driver.
///
/// The channel is unbounded, its content is not: each message belongs to a member, a waiter or a runner, and
/// those are bounded by the settings. A bounded one could block a `Drop`.
pub(super) enum Message {
    /// Something the core is to know.
    Event(Event),
    /// Someone wants a container.
    Request { waiter: WaiterId, language: String, reply: oneshot::Sender<Result<Lease, Refusal>> },
    /// A start is over.
    Started { member: MemberId, armed: Box<Armed> },
    /// The engine said that a container ended.
    Ended(ContainerId),
    /// The images that there are now.
    Found(Vec<Runner>),
    /// The names of all containers that there are, are coming or are going.
    Names(oneshot::Sender<BTreeSet<VolumeName>>),
    /// How things stand.
    Snapshot(oneshot::Sender<Snapshot>),
}

pub(super) struct Driver {
    pub(super) engine: Engine,
    pub(super) blueprint: Arc<Blueprint>,
    pub(super) terms: AgentTerms,
    pub(super) metrics: Metrics,
    pub(super) core: Core,
    pub(super) messages: mpsc::UnboundedReceiver<Message>,
    pub(super) sender: mpsc::UnboundedSender<Message>,
    pub(super) runners: watch::Sender<Arc<Runners>>,
    pub(super) by_id: HashMap<RunnerId, Arc<Runner>>,
    pub(super) members: HashMap<MemberId, Held>,
    pub(super) waiters: HashMap<WaiterId, oneshot::Sender<Result<Lease, Refusal>>>,
    /// Removals under way at one time: the engine gets slower with more, not faster.
    pub(super) removals: Arc<Semaphore>,
    pub(super) warming: warm::Places,
    pub(super) next_runner: u32,
    pub(super) closing: bool,
}

/// What stands behind a member's number.
pub(super) struct Held {
    name: VolumeName,
    armed: Option<Arc<Armed>>,
}

impl Driver {
    /// Runs until the pool was shut down and its last container is gone.
    pub(super) async fn run(mut self) {
        loop {
            let deadline = self.core.next_deadline();
            tokio::select! {
                message = self.messages.recv() => match message {
                    Some(message) => self.take(message),
                    None => return,
                },
                () = sleep_until(deadline) => self.tell(Event::Tick),
            }
            if self.closing && self.members.is_empty() {
                return;
            }
        }
    }

    fn take(&mut self, message: Message) {
        match message {
            Message::Event(event) => {
                self.closing |= event == Event::Shutdown;
                self.tell(event);
            }
            Message::Request { waiter, language, reply } => {
                let runner = self.runners.borrow().get(&language).map(|(id, _)| *id);
                match runner {
                    Some(runner) => {
                        self.waiters.insert(waiter, reply);
                        self.tell(Event::Request { waiter, runner });
                    }
                    None => drop(reply.send(Err(Refusal::UnknownRunner))),
                }
            }
            Message::Started { member, armed } => {
                if self.members.contains_key(&member) {
                    self.watch(member, &armed);
                }
                if let Some(held) = self.members.get_mut(&member) {
                    held.armed = Some(Arc::from(armed));
                    self.tell(Event::Started { member });
                }
            }
            Message::Ended(id) => {
                let member = self.members.iter().find_map(|(member, held)| {
                    held.armed.as_ref().is_some_and(|armed| armed.id == id).then_some(*member)
                });
                if let Some(member) = member {
                    if let Some(armed) = self.members.get(&member).and_then(|held| held.armed.as_ref()) {
                        armed.link.give_up("the container ended, or was paused");
                    }
                    self.tell(Event::Died { member });
                }
            }
            Message::Found(found) => drop(self.found(found, Vec::new())),
            Message::Names(reply) => {
                drop(reply.send(self.members.values().map(|held| held.name.clone()).collect()));
            }
            Message::Snapshot(reply) => drop(reply.send(self.core.snapshot())),
        }
    }

    /// Tells the core when this member's link is lost.
    fn watch(&self, member: MemberId, armed: &Armed) {
        let (lost, sender) = (armed.link.lost(), self.sender.clone());
        tokio::spawn(async move {
            lost.await;
            let _ = sender.send(Message::Event(Event::Died { member }));
        });
    }

    /// Makes a container of an earlier daemon a member; a lease of it, if it is someone's.
    fn adopt(&mut self, member: MemberId, runner: RunnerId, survivor: Survivor) -> Option<Adopted> {
        let Survivor { armed, greeting } = survivor;
        let armed = Arc::new(armed);
        self.watch(member, &armed);
        warm::ask(&armed, &self.warming);
        self.members.insert(member, Held { name: armed.name.clone(), armed: Some(armed.clone()) });
        let leased = greeting.claim.is_some();
        self.tell(Event::Adopted { member, runner, uid: armed.uid, leased });
        let claim = greeting.claim?;
        let lease = Lease::new(armed, member, self.sender.clone());
        Some(Adopted { lease, claim, runs: greeting.runs })
    }

    /// Compares the images that there are with the runners that there were. Containers of an earlier daemon become
    /// members before anything is started in their place.
    pub(super) fn found(&mut self, found: Vec<Runner>, survivors: Vec<Survivor>) -> Vec<Adopted> {
        let before = self.runners.borrow().clone();
        let (mut after, mut new) = (Runners::new(), Vec::new());
        for runner in found {
            match before.get(&runner.language) {
                // It may have another name by now, or one of several.
                Some((id, old)) if **old == (Runner { image: old.image.clone(), ..runner.clone() }) => {
                    after.insert(runner.language.clone(), (*id, Arc::new(runner)));
                }
                _ => {
                    let id = RunnerId(self.next_runner);
                    self.next_runner += 1;
                    new.push(runner.language.clone());
                    after.insert(runner.language.clone(), (id, Arc::new(runner)));
                }
            }
        }
        self.runners.send_replace(Arc::new(after.clone()));
        // Said once a call finds it.
        for (_, runner) in new.iter().filter_map(|language| after.get(language)) {
            info!(language = runner.language, image = runner.image, "runner found");
        }
        let gone: Vec<_> =
            before.values().filter(|(id, _)| !after.values().any(|(other, _)| other == id)).collect();
        for (id, runner) in gone {
            info!(language = runner.language, image = runner.image, "runner gone or replaced");
            self.tell(Event::RunnerRemoved { runner: *id });
            self.by_id.remove(id);
        }
        let mut adopted = Vec::new();
        for (number, survivor) in (1..).zip(survivors) {
            if let Some((runner, _)) = after.get(&survivor.armed.runner.language) {
                adopted.extend(self.adopt(MemberId(number), *runner, survivor));
            }
        }
        for (id, runner) in after.values() {
            self.by_id.insert(*id, runner.clone());
            self.tell(Event::RunnerAdded { runner: *id });
        }
        adopted
    }

    fn tell(&mut self, event: Event) {
        debug!(?event, "event");
        for action in self.core.on(event, Instant::now()) {
            debug!(?action, "action");
            self.act(action);
        }
        if let Event::Destroyed { member } = event {
            self.members.remove(&member);
        }
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Start { member, runner, uid } => {
                let plan = self
                    .by_id
                    .get(&runner)
                    .cloned()
                    .and_then(|runner| self.blueprint.plan(&runner, uid).map(|plan| (plan, runner)));
                let Some((plan, runner)) = plan else {
                    let failure = super::core::StartFailure::Create;
                    let _ = self.sender.send(Message::Event(Event::StartFailed { member, failure }));
                    return;
                };
                self.members.insert(member, Held { name: plan.name.clone(), armed: None });
                let (engine, terms, sender) = (self.engine.clone(), self.terms.clone(), self.sender.clone());
                let (warming, metrics) = (self.warming.clone(), self.metrics.clone());
                tokio::spawn(async move {
                    let begun = Instant::now();
                    let language = runner.language.clone();
                    let message = match container::start(&engine, plan, uid, runner, &terms).await {
                        Ok(armed) => {
                            let ms = millis(begun.elapsed());
                            metrics.armed(&language, begun.elapsed());
                            info!(language, container = armed.id.short(), uid = uid.0, ms, "armed");
                            warm::ask(&armed, &warming);
                            Message::Started { member, armed: Box::new(armed) }
                        }
                        Err(error) => {
                            warn!(language, %error, "a container did not come up");
                            let failure = error.failure();
                            metrics.start_failed(&language, failure.as_str());
                            Message::Event(Event::StartFailed { member, failure })
                        }
                    };
                    let _ = sender.send(message);
                });
            }
            Action::Destroy { member } => {
                let Some(held) = self.members.get_mut(&member) else {
                    let _ = self.sender.send(Message::Event(Event::Destroyed { member }));
                    return;
                };
                let (name, armed) = (held.name.clone(), held.armed.clone());
                let (engine, sender) = (self.engine.clone(), self.sender.clone());
                let (places, metrics) = (self.removals.clone(), self.metrics.clone());
                tokio::spawn(async move {
                    let _place = places.acquire().await;
                    let id = armed.map(|armed| armed.id.clone());
                    let event = match container::destroy(&engine, &name, id.as_ref()).await {
                        Ok(()) => {
                            info!(container = id.as_ref().map(ContainerId::short), name = %name, "removed");
                            metrics.removed();
                            Event::Destroyed { member }
                        }
                        Err(error) => {
                            warn!(name = %name, %error, "a container could not be removed yet");
                            Event::DestroyFailed { member }
                        }
                    };
                    let _ = sender.send(Message::Event(event));
                });
            }
            Action::Grant { waiter, member, waited } => {
                let armed = self.members.get(&member).and_then(|held| held.armed.clone());
                if let Some(armed) = &armed {
                    self.metrics.granted(&armed.runner.language, waited);
                }
                let lease = armed.map(|armed| Lease::new(armed, member, self.sender.clone()));
                match (self.waiters.remove(&waiter), lease) {
                    // A waiter that went away drops the lease, and the drop releases it.
                    (Some(reply), Some(lease)) => drop(reply.send(Ok(lease))),
                    (_, Some(lease)) => drop(lease),
                    (_, None) => drop(self.sender.send(Message::Event(Event::Released { member }))),
                }
            }
            Action::Refuse { waiter, refusal } => {
                self.metrics.refused(refusal.as_str());
                if let Some(reply) = self.waiters.remove(&waiter) {
                    let _ = reply.send(Err(refusal));
                }
            }
        }
    }
}

async fn sleep_until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline.into()).await,
        None => std::future::pending().await,
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
