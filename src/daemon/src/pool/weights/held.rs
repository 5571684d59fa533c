//! One container in the hands of a tenant: what can be seen of it, and its control group, where this machine
//! has that.
//!
//! It must never ask the engine for anything.

use std::path::Path;

use tracing::debug;

use super::core::{ContainerChange, ContainerSight, CpusetSight};
use super::group::ContainerGroup;
use crate::engine::ContainerId;
use crate::link::Link;
use crate::pool::container::ArmedContainer;

pub(super) struct HeldContainer {
    pub(super) id: ContainerId,
    link: Link,
    /// Whether this daemon made it.
    is_new: bool,
    group: GroupSearch,
}

/// Whether this machine has the control group of a container. It is looked for once.
enum GroupSearch {
    Open,
    Found(ContainerGroup),
    /// There is none, or this process may not write there, or it has gone with its container.
    None,
}

impl HeldContainer {
    pub(super) fn new(armed: &ArmedContainer, is_new: bool) -> Self {
        Self { id: armed.id.clone(), link: armed.link.clone(), is_new, group: GroupSearch::Open }
    }

    /// What can be seen of it now. Control groups are mounted at `mounted`.
    pub(super) fn see(&mut self, mounted: &Path) -> ContainerSight {
        let is_first = matches!(self.group, GroupSearch::Open);
        if is_first {
            let found = ContainerGroup::of(&self.id, self.is_new, mounted);
            self.group = found.map_or(GroupSearch::None, GroupSearch::Found);
        }
        let programs = self.link.programs();
        let GroupSearch::Found(group) = &self.group else {
            return ContainerSight { programs, ..ContainerSight::default() };
        };
        // What it was made with, and what others wrote: that matters only while programs are at work in it.
        let read = Some(group).filter(|_| is_first || programs > 0);
        ContainerSight {
            programs,
            has_group: true,
            weighs: read.and_then(|group| group.weighs().ok()),
            processors: group.processors().map(<[usize]>::len),
            cpuset: read.map_or(CpusetSight::Unread, ContainerGroup::cpuset),
        }
    }

    /// The numbers of the processors on which its programs may run while they are not confined; `None` if
    /// they cannot be confined here.
    pub(super) fn processors(&self) -> Option<&[usize]> {
        match &self.group {
            GroupSearch::Found(group) => group.processors(),
            GroupSearch::Open | GroupSearch::None => None,
        }
    }

    /// Changes it in its control group: what of the change was made.
    pub(super) fn change(&mut self, change: ContainerChange) -> ContainerChange {
        let mut made = ContainerChange::default();
        let GroupSearch::Found(group) = &mut self.group else { return made };
        let changed = change
            .weight
            .map_or(Ok(()), |weight| group.weigh(weight))
            .inspect(|()| made.weight = change.weight)
            .and_then(|()| change.confinement.map_or(Ok(()), |to| group.confine(to)))
            .inspect(|()| made.confinement = change.confinement);
        debug!(container = self.id.short(), ?change, ?changed, "weighed");
        if changed.is_err() {
            self.group = GroupSearch::None;
        }
        made
    }
}
