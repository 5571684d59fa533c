//! The acting half of the pool: one task that owns the core, reports events to it and carries out its
//! actions.
//!
//! It must never decide anything that the core could decide. It keeps the objects behind the core's numbers,
//! and calls the engine in tasks of their own, whose results come back as messages.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{Semaphore, mpsc, oneshot, watch};
use tracing::{debug, info, warn};

use super::container::{self, ArmedContainer};
use super::core::{LeaseRefusal, MemberId, PoolAction, PoolCore, PoolEvent, RunnerId, Snapshot, WaiterId};
use super::leftovers::{Leftovers, Survivor};
use super::runner::Runner;
use super::snapshots::SnapshotMount;
use super::spec::Blueprint;
use super::weights::Weights;
use super::workspaces::{LeaseFrom, Workspace, Workspaces};
use super::{AdoptedContainer, AgentTerms, Lease, Runners, millis, warm};
use crate::degradation::Degradation;
use crate::engine::{ContainerId, Engine, VolumeName};
use crate::metrics::Metrics;
use crate::tenants::TenantShare;

/// A start for which nobody waits begins so much later: the run that has just got a container, in whose place
/// this one is to stand, has the processors first. The engine computes for a quarter of a second.
const UNAWAITED: Duration = Duration::from_millis(20);

/// Everything that the driver receives.
///
/// The channel is unbounded, its content is not: each message belongs to a member, a waiter or a runner, and
/// the settings bound those. A bounded channel could block a `Drop`.
pub(super) enum DriverMessage {
    /// An event for the core.
    Event(PoolEvent),
    /// A caller wants a container.
    Request {
        waiter: WaiterId,
        from: LeaseFrom,
        tenant: TenantShare,
        reply: oneshot::Sender<Result<Lease, LeaseRefusal>>,
    },
    /// The workspace of a leased container outlives it.
    KeepWorkspace(MemberId),
    /// A workspace is kept no longer.
    Discard(VolumeName),
    /// The volumes of a discarded workspace are removed, as far as that could be done: it is no runner any
    /// more, if it still was one.
    VolumesGone(Option<RunnerId>),
    /// A start has succeeded.
    Started { member: MemberId, armed: Box<ArmedContainer> },
    /// The engine reported that a container ended.
    Ended(ContainerId),
    /// All runners that the engine has images for now.
    Found(Vec<Runner>),
    /// New containers of this runner and image have this snapshot from now on.
    UseSnapshot { language: String, image: String, snapshot: SnapshotMount },
    /// Asks for the names of all members' containers, also of members that are being started or removed.
    Names(oneshot::Sender<BTreeSet<VolumeName>>),
    /// Asks for the state of the pool.
    Snapshot(oneshot::Sender<Snapshot>),
}

pub(super) struct PoolDriver {
    pub(super) engine: Engine,
    pub(super) blueprint: Arc<Blueprint>,
    pub(super) terms: AgentTerms,
    pub(super) metrics: Metrics,
    pub(super) core: PoolCore,
    pub(super) messages: mpsc::UnboundedReceiver<DriverMessage>,
    pub(super) sender: mpsc::UnboundedSender<DriverMessage>,
    pub(super) runners: watch::Sender<Arc<Runners>>,
    /// Requests that only a release can serve, see [`Snapshot::starved`].
    pub(super) starved: watch::Sender<usize>,
    /// Whether callers need the places of containers that give way.
    pub(super) crowded: watch::Sender<bool>,
    pub(super) by_id: HashMap<RunnerId, Arc<Runner>>,
    pub(super) members: HashMap<MemberId, MemberContainer>,
    pub(super) waiters: HashMap<WaiterId, oneshot::Sender<Result<Lease, LeaseRefusal>>>,
    /// One permit for each removal under way.
    pub(super) removals: Arc<Semaphore>,
    pub(super) warming: warm::Warming,
    /// The runners of requests for a container that was described with the request.
    pub(super) made: HashMap<WaiterId, RunnerId>,
    pub(super) next_runner: u32,
    pub(super) workspaces: Workspaces,
    pub(super) weights: Arc<Weights>,
    /// Removals of volumes alone that are under way.
    pub(super) discarding: usize,
    pub(super) closing: bool,
}

/// The container of a member; `armed` is `None` until it has started.
pub(super) struct MemberContainer {
    pub(super) name: VolumeName,
    /// Its runner to the core.
    pub(super) id: RunnerId,
    pub(super) runner: Arc<Runner>,
    pub(super) armed: Option<Arc<ArmedContainer>>,
    /// Whether the removal under way leaves its volumes.
    pub(super) leaves_volumes: bool,
}

impl MemberContainer {
    fn new(name: VolumeName, (id, runner): (RunnerId, Arc<Runner>)) -> Self {
        Self { name, id, runner, armed: None, leaves_volumes: false }
    }
}

impl PoolDriver {
    /// Runs until the pool was shut down and its last container is gone.
    pub(super) async fn run(mut self) {
        loop {
            let starved = self.core.starved();
            self.starved.send_if_modified(|known| std::mem::replace(known, starved) != starved);
            let crowded = self.core.is_crowded();
            self.crowded.send_if_modified(|known| std::mem::replace(known, crowded) != crowded);
            self.metrics.degradations().note(Degradation::StartsFailing, self.core.fails_to_start());
            let deadline = self.core.next_deadline();
            tokio::select! {
                message = self.messages.recv() => match message {
                    Some(message) => self.take(message),
                    None => return,
                },
                () = sleep_until(deadline) => self.tell(PoolEvent::Tick),
            }
            if self.closing && self.members.is_empty() && self.discarding == 0 {
                break;
            }
        }
        // The engine may by now have carried out what a daemon asked for that was killed shortly before this
        // one began.
        if let Ok(left) = Leftovers::find(&self.engine, &self.blueprint.owned()).await {
            left.remove_all_but(&self.workspaces.names().cloned().collect()).await;
        }
    }

    fn take(&mut self, message: DriverMessage) {
        match message {
            DriverMessage::Event(event) => {
                self.closing |= event == PoolEvent::Shutdown;
                self.tell(event);
                if let PoolEvent::Abandon { waiter } = event {
                    self.end_made(waiter);
                }
            }
            DriverMessage::Request { waiter, from, tenant, reply } => match self.runner_for(waiter, &from) {
                Ok(runner) => {
                    self.waiters.insert(waiter, reply);
                    self.tell(PoolEvent::Request { waiter, runner, tenant });
                }
                Err(refusal) => drop(reply.send(Err(refusal))),
            },
            DriverMessage::KeepWorkspace(member) => {
                if let Some(MemberContainer { name, armed: Some(armed), .. }) = self.members.get(&member) {
                    let (name, uid) = (name.clone(), armed.uid);
                    self.keep(Workspace { name, uid, language: armed.runner.language.clone() });
                }
            }
            DriverMessage::Discard(name) => self.discard(&name),
            DriverMessage::VolumesGone(runner) => {
                self.discarding -= 1;
                if let Some(runner) = runner {
                    self.tell(PoolEvent::RunnerRemoved { runner });
                }
            }
            DriverMessage::Started { member, armed } => {
                if self.members.contains_key(&member) {
                    self.watch(member, &armed);
                }
                if let Some(container) = self.members.get_mut(&member) {
                    let armed: Arc<ArmedContainer> = Arc::from(armed);
                    container.armed = Some(armed.clone());
                    // Before anybody gets it: the first run finds its part restored.
                    warm::restore(&armed, &self.warming);
                    self.tell(PoolEvent::Started { member });
                    // Only now, so that a container that this event granted to a waiter is known to be
                    // leased.
                    warm::load(&armed, &self.warming);
                }
            }
            DriverMessage::Ended(id) => {
                let ended = self.members.iter().find_map(|(member, container)| {
                    let armed = container.armed.as_ref().filter(|armed| armed.id == id)?;
                    Some((*member, armed.clone()))
                });
                if let Some((member, armed)) = ended {
                    armed.link.give_up("the container ended, or was paused");
                    self.tell(PoolEvent::Died { member });
                }
            }
            DriverMessage::Found(found) => drop(self.found(found, Vec::new())),
            DriverMessage::UseSnapshot { language, image, snapshot } => {
                self.use_snapshot(&language, &image, snapshot);
            }
            DriverMessage::Names(reply) => {
                let members = self.members.values().map(|container| &container.name);
                drop(reply.send(members.chain(self.workspaces.names()).cloned().collect()));
            }
            DriverMessage::Snapshot(reply) => drop(reply.send(self.snapshot())),
        }
    }

    /// Tells the core when this member's link is lost.
    fn watch(&self, member: MemberId, armed: &ArmedContainer) {
        let (lost, sender) = (armed.link.lost(), self.sender.clone());
        tokio::spawn(async move {
            lost.await;
            let _ = sender.send(DriverMessage::Event(PoolEvent::Died { member }));
        });
    }

    /// Makes a container of an earlier daemon a member. If it belongs to a session, the answer holds a lease
    /// of it.
    fn adopt(&mut self, member: MemberId, runner: RunnerId, survivor: Survivor) -> Option<AdoptedContainer> {
        let Survivor { armed, greeting } = survivor;
        let armed = Arc::new(armed);
        self.watch(member, &armed);
        // The image of one that is outdated may have no such part.
        if !armed.is_outdated {
            warm::restore(&armed, &self.warming);
            warm::load(&armed, &self.warming);
        }
        let container = MemberContainer::new(armed.name.clone(), (runner, armed.runner.clone()));
        self.members.insert(member, MemberContainer { armed: Some(armed.clone()), ..container });
        let leased = greeting.claim.is_some();
        self.tell(PoolEvent::Adopted { member, runner, uid: armed.uid, leased });
        let now = self.runners.borrow().get(&armed.runner.language).map(|(_, now)| now.snapshot.clone());
        if now.is_some_and(|now| now != armed.runner.snapshot) {
            self.tell(PoolEvent::Outdated { member });
        }
        let claim = greeting.claim?;
        let lease = Lease::new(armed, member, self.sender.clone(), self.weights.clone(), false).adopted();
        Some(AdoptedContainer { lease, claim, runs: greeting.runs })
    }

    /// Compares the images that the engine has now with the runners known so far, and reports the differences
    /// to the core. Containers of an earlier daemon become members before anything is started in their place.
    pub(super) fn found(&mut self, found: Vec<Runner>, survivors: Vec<Survivor>) -> Vec<AdoptedContainer> {
        let before = self.runners.borrow().clone();
        let (mut after, mut new) = (Runners::new(), Vec::new());
        for runner in found {
            match before.get(&runner.language) {
                // The same image, perhaps under another of its names. It keeps its snapshot.
                Some((id, old)) if old.is_as_found(&runner) => {
                    let runner = Runner { snapshot: old.snapshot.clone(), ..runner };
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
        // Logged only after a caller can find it.
        for (_, runner) in new.iter().filter_map(|language| after.get(language)) {
            info!(language = runner.language, image = runner.image, "runner found");
        }
        let gone: Vec<_> =
            before.values().filter(|(id, _)| !after.values().any(|(other, _)| other == id)).collect();
        for (id, runner) in gone {
            info!(language = runner.language, image = runner.image, "runner gone or replaced");
            self.tell(PoolEvent::RunnerRemoved { runner: *id });
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
            self.tell(PoolEvent::RunnerAdded { runner: *id, idle: runner.idle });
        }
        adopted
    }

    /// Containers of this runner and image are made with this snapshot from now on; idle ones that are not
    /// are replaced.
    fn use_snapshot(&mut self, language: &str, image: &str, snapshot: SnapshotMount) {
        let mut runners = (**self.runners.borrow()).clone();
        let Some((id, runner)) = runners.get_mut(language) else { return };
        if runner.image_id.as_str() != image || runner.snapshot == snapshot {
            return;
        }
        info!(language, ?snapshot, "new containers have another snapshot");
        *runner = Arc::new(Runner { snapshot: snapshot.clone(), ..(**runner).clone() });
        let id = *id;
        self.by_id.insert(id, runner.clone());
        self.runners.send_replace(Arc::new(runners));
        let outdated =
            |container: &&MemberContainer| container.id == id && container.runner.snapshot != snapshot;
        let outdated: Vec<_> = self
            .members
            .iter()
            .filter(|(_, container)| outdated(container))
            .map(|(member, _)| *member)
            .collect();
        for member in outdated {
            self.tell(PoolEvent::Outdated { member });
        }
    }

    /// A request for a container that was described with it has been answered, or was withdrawn.
    fn end_made(&mut self, waiter: WaiterId) {
        if let Some(runner) = self.made.remove(&waiter) {
            // Told as a message, since the core may be in the middle of an answer.
            let _ = self.sender.send(DriverMessage::Event(PoolEvent::RunnerRemoved { runner }));
            if !self.members.values().any(|member| member.id == runner) {
                self.by_id.remove(&runner);
            }
        }
    }

    pub(super) fn tell(&mut self, event: PoolEvent) {
        debug!(?event, "event");
        for action in self.core.on(event, Instant::now()) {
            debug!(?action, "action");
            self.act(action);
        }
        if let PoolEvent::Destroyed { member } = event {
            self.removed(member);
        }
    }

    fn act(&mut self, action: PoolAction) {
        match action {
            PoolAction::Start { member, runner, uid, is_awaited } => {
                let id = runner;
                let Some((plan, runner)) = self.plan(id, uid) else {
                    let failure = super::core::StartFailure::Create;
                    let _ =
                        self.sender.send(DriverMessage::Event(PoolEvent::StartFailed { member, failure }));
                    return;
                };
                let container = MemberContainer::new(plan.name.clone(), (id, runner.clone()));
                self.members.insert(member, container);
                let (engine, terms, sender) = (self.engine.clone(), self.terms.clone(), self.sender.clone());
                let metrics = self.metrics.clone();
                tokio::spawn(async move {
                    if !is_awaited {
                        tokio::time::sleep(UNAWAITED).await;
                    }
                    let begun = Instant::now();
                    let language = runner.language.clone();
                    let message = match container::start(&engine, plan, uid, runner, &terms).await {
                        Ok(armed) => {
                            let ms = millis(begun.elapsed());
                            metrics.armed(&language, begun.elapsed());
                            info!(language, container = armed.id.short(), uid = uid.0, ms, "armed");
                            DriverMessage::Started { member, armed: Box::new(armed) }
                        }
                        Err(error) => {
                            warn!(language, %error, "a container did not come up");
                            let failure = error.failure();
                            metrics.start_failed(&language, failure.as_str());
                            DriverMessage::Event(PoolEvent::StartFailed { member, failure })
                        }
                    };
                    let _ = sender.send(message);
                });
            }
            PoolAction::Destroy { member } => {
                let Some(container) = self.members.get_mut(&member) else {
                    let _ = self.sender.send(DriverMessage::Event(PoolEvent::Destroyed { member }));
                    return;
                };
                let (name, armed) = (container.name.clone(), container.armed.clone());
                let (place, is_kept) = (container.runner.bounds.place, self.workspaces.has(&name));
                container.leaves_volumes = is_kept;
                let (engine, sender) = (self.engine.clone(), self.sender.clone());
                let (removals, metrics) = (self.removals.clone(), self.metrics.clone());
                tokio::spawn(async move {
                    let _permit = removals.acquire().await;
                    let id = armed.map(|armed| armed.id.clone());
                    let done = if is_kept {
                        container::remove(&engine, &name, id.as_ref()).await
                    } else {
                        container::destroy(&engine, &name, id.as_ref(), place).await
                    };
                    let event = match done {
                        Ok(()) => {
                            let container = id.as_ref().map(ContainerId::short);
                            info!(container, name = %name, workspace_kept = is_kept, "removed");
                            metrics.removed();
                            PoolEvent::Destroyed { member }
                        }
                        Err(error) => {
                            warn!(name = %name, %error, "a container could not be removed yet");
                            PoolEvent::DestroyFailed { member }
                        }
                    };
                    let _ = sender.send(DriverMessage::Event(event));
                });
            }
            PoolAction::Grant { waiter, member, waited } => {
                let armed = self.members.get(&member).and_then(|container| container.armed.clone());
                let is_made = self.made.contains_key(&waiter);
                self.end_made(waiter);
                if let Some(armed) = armed.as_ref().filter(|_| !is_made) {
                    self.metrics.granted(&armed.runner.language, waited);
                    armed.warm.leased();
                }
                let over = armed.as_ref().and_then(|armed| self.workspaces.remove(&armed.name));
                if let Some((runner, _)) = &over {
                    // From now on it is a container like any other, whose lease says whether its workspace
                    // is kept. Told as a message, since the core is in the middle of an answer.
                    let gone = PoolEvent::RunnerRemoved { runner: *runner };
                    let _ = self.sender.send(DriverMessage::Event(gone));
                }
                let lease = armed.map(|armed| {
                    Lease::new(armed, member, self.sender.clone(), self.weights.clone(), over.is_some())
                });
                match (self.waiters.remove(&waiter), lease) {
                    // If the caller has gone away, the lease is dropped here, and the drop releases the
                    // container.
                    (Some(reply), Some(lease)) => drop(reply.send(Ok(lease))),
                    (_, Some(lease)) => drop(lease),
                    (_, None) => drop(self.sender.send(DriverMessage::Event(PoolEvent::Released { member }))),
                }
            }
            PoolAction::Refuse { waiter, refusal } => {
                if !self.made.contains_key(&waiter) {
                    self.metrics.refused(refusal.as_str());
                }
                self.end_made(waiter);
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
