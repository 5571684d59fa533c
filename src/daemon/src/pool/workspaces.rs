//! Workspaces that are kept without a container: the volumes of a coding agent's container that is gone, for
//! the next container of the same session.
//!
//! ```text
//!  Lease::keep_workspace, then drop ─► container removed, volumes and UID stay ─► kept
//!                                                                        │
//!            another container, of the same name and UID, over them ◄────┤ Pool::lease_over
//!            volumes removed, UID free                              ◄────┘ Pool::discard
//! ```
//!
//! **Why the volumes, and not the stopped container.** A stopped container is bound to its image and its
//! specification: it could not be started again after an update of either, and each way in which a container
//! can end (paused, killed, out of memory, half removed) would need a way back. The volumes need none: any
//! image of the runner starts over them, in the way that every container starts, and an engine that has only
//! volumes to keep has nothing to restore after its own restart. What this costs is one create, some 10 ms of
//! the 100 ms of a start.
//!
//! To the core a kept workspace is a runner of its own, with a UID of its own and no idle containers. Which
//! session a workspace belongs to, and how long it is kept, is the session's to know. This module must never
//! start a container over a workspace that nobody asked for, nor let a second one begin beside the first.

use std::collections::HashMap;
use std::sync::Arc;

use tracing::{info, warn};

use super::container;
use super::core::{LeaseRefusal, MemberId, PoolEvent, RunnerId, Snapshot, Uid, WaiterId};
use super::disk::{DataPlace, DiskBound};
use super::driver::{DriverMessage, MemberContainer, PoolDriver};
use super::runner::Runner;
use super::spec::Plan;
use crate::engine::{Engine, VolumeName};

/// A workspace as the engine has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Workspace {
    /// The name of its volume, and of every container over it.
    pub(super) name: VolumeName,
    /// The user and group of its files.
    pub(super) uid: Uid,
    /// The runner of its containers.
    pub(super) language: String,
}

/// The workspaces that are kept, and the runner that each is to the core.
#[derive(Debug, Default)]
pub(super) struct Workspaces(HashMap<VolumeName, (RunnerId, Workspace)>);

impl Workspaces {
    /// Keeps one. False if it is kept already.
    pub(super) fn keep(&mut self, runner: RunnerId, workspace: Workspace) -> bool {
        let is_new = !self.has(&workspace.name);
        if is_new {
            self.0.insert(workspace.name.clone(), (runner, workspace));
        }
        is_new
    }

    /// Whether it is kept.
    pub(super) fn has(&self, name: &VolumeName) -> bool {
        self.0.contains_key(name)
    }

    /// The runner and the workspace of this name.
    pub(super) fn get(&self, name: &VolumeName) -> Option<&(RunnerId, Workspace)> {
        self.0.get(name)
    }

    /// The workspace that is this runner to the core.
    pub(super) fn of(&self, runner: RunnerId) -> Option<&Workspace> {
        self.0.values().find(|(id, _)| *id == runner).map(|(_, workspace)| workspace)
    }

    /// Keeps it no longer.
    pub(super) fn remove(&mut self, name: &VolumeName) -> Option<(RunnerId, Workspace)> {
        self.0.remove(name)
    }

    /// All names.
    pub(super) fn names(&self) -> impl Iterator<Item = &VolumeName> {
        self.0.keys()
    }
}

/// What a container is wanted for.
#[derive(Debug, Clone)]
pub(super) enum LeaseFrom {
    /// Any container of this runner.
    Runner(String),
    /// One over the kept workspace of this name.
    Workspace(VolumeName),
    /// One that is made in this way, for this request alone, which gives way to callers.
    Made(Arc<Runner>),
}

impl PoolDriver {
    /// The runner to ask the core for.
    pub(super) fn runner_for(
        &mut self,
        waiter: WaiterId,
        from: &LeaseFrom,
    ) -> Result<RunnerId, LeaseRefusal> {
        if let LeaseFrom::Made(runner) = from {
            let id = RunnerId(self.next_runner);
            self.next_runner += 1;
            self.by_id.insert(id, runner.clone());
            self.made.insert(waiter, id);
            self.tell(PoolEvent::RunnerAdded { runner: id, idle: 0 });
            self.tell(PoolEvent::GivesWay { runner: id });
            return Ok(id);
        }
        let runners = self.runners.borrow();
        let known = |language: &String| runners.get(language).ok_or(LeaseRefusal::UnknownRunner);
        match from {
            LeaseFrom::Runner(language) => known(language).map(|(id, _)| *id),
            LeaseFrom::Workspace(name) => {
                let (id, workspace) = self.workspaces.get(name).ok_or(LeaseRefusal::NoWorkspace)?;
                known(&workspace.language).map(|_| *id)
            }
            LeaseFrom::Made(_) => Err(LeaseRefusal::UnknownRunner), // answered above
        }
    }

    /// Keeps a workspace when its container goes.
    pub(super) fn keep(&mut self, workspace: Workspace) {
        let (runner, uid) = (RunnerId(self.next_runner), workspace.uid);
        if self.workspaces.keep(runner, workspace) {
            self.next_runner += 1;
            self.tell(PoolEvent::WorkspaceKept { runner, uid });
        }
    }

    /// Keeps a workspace no longer. If a container is over it, or is being removed from it, the volumes go
    /// with that; else they go now.
    pub(super) fn discard(&mut self, name: &VolumeName) {
        let Some((runner, workspace)) = self.workspaces.remove(name) else { return };
        if self.members.values().any(|member| member.name == *name) {
            return self.tell(PoolEvent::RunnerRemoved { runner });
        }
        let (engine, sender, removals) = (self.engine.clone(), self.sender.clone(), self.removals.clone());
        tokio::spawn(async move {
            let _permit = removals.acquire().await;
            remove_volumes(&engine, &workspace.name).await;
            let _ = sender.send(DriverMessage::VolumesGone(Some(runner)));
        });
        self.discarding += 1;
    }

    /// The state of the core, with the containers over workspaces among those of their languages.
    pub(super) fn snapshot(&self) -> Snapshot {
        let mut snapshot = self.core.snapshot();
        let runners = self.runners.borrow();
        for (&id, runner) in &self.by_id {
            if let Some((now, _)) = runners.get(&runner.language).filter(|(now, _)| *now != id) {
                snapshot.fold(id, *now);
            }
        }
        snapshot
    }

    /// What to start for this runner of the core: any container of a runner, or one over a workspace.
    pub(super) fn plan(&mut self, runner: RunnerId, uid: Uid) -> Option<(Plan, Arc<Runner>)> {
        if let Some(workspace) = self.workspaces.of(runner) {
            let (_, of) = self.runners.borrow().get(&workspace.language)?.clone();
            self.by_id.insert(runner, of.clone());
            return Some((self.blueprint.plan_over(&of, uid, workspace.name.clone()), of));
        }
        let of = self.by_id.get(&runner)?.clone();
        Some((self.blueprint.plan(&of, uid)?, of))
    }

    /// A member is gone. Its workspace may have been discarded while only its container was being removed.
    pub(super) fn removed(&mut self, member: MemberId) {
        let Some(MemberContainer { name, id, runner, leaves_volumes, .. }) = self.members.remove(&member)
        else {
            return;
        };
        if self.runners.borrow().get(&runner.language).is_none_or(|(now, _)| *now != id) {
            self.by_id.remove(&id);
        }
        if leaves_volumes && !self.workspaces.has(&name) {
            let (engine, sender) = (self.engine.clone(), self.sender.clone());
            tokio::spawn(async move {
                remove_volumes(&engine, &name).await;
                let _ = sender.send(DriverMessage::VolumesGone(None));
            });
            self.discarding += 1;
        }
    }
}

/// Removes the volumes of a workspace. What is left is removed by the next sweep.
async fn remove_volumes(engine: &Engine, name: &VolumeName) {
    let place = DataPlace::Disk(DiskBound::default());
    match container::remove_volumes(engine, name, place).await {
        Ok(()) => info!(name = %name, "a workspace was removed"),
        Err(error) => warn!(name = %name, %error, "a workspace could not be removed yet"),
    }
}
