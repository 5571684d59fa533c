//! One container in the hands of a tenant: what is seen of it, and what its control group was last given.
//!
//! It must never ask the engine for anything.

use std::path::Path;
use std::time::Instant;

use tracing::debug;

use super::group::ContainerGroup;
use super::{LOOK, MOUNTED};
use crate::engine::ContainerId;
use crate::link::Link;
use crate::pool::container::ArmedContainer;
use crate::tenants::TenantShare;
use crate::tenants::weigh::WHOLE;

pub(super) struct HeldContainer {
    pub(super) tenant: TenantShare,
    pub(super) id: ContainerId,
    link: Link,
    /// What it was last given.
    pub(super) weighs: u64,
    /// The places of the processors to which it is confined; empty if that is not known.
    confined: Option<Vec<usize>>,
    group: GroupSearch,
    /// Since when each look has seen a program.
    busy: Option<Instant>,
    /// When a program was last at work.
    pub(super) worked: Option<Instant>,
}

/// Whether this machine has the control group of a container. It is looked for once.
enum GroupSearch {
    Open,
    Found(ContainerGroup),
    /// There is none, or this process may not write there, or it has gone with its container.
    None,
}

impl HeldContainer {
    pub(super) fn new(tenant: TenantShare, armed: &ArmedContainer, is_new: bool) -> Self {
        Self {
            tenant,
            id: armed.id.clone(),
            link: armed.link.clone(),
            // What an earlier daemon gave it is not known: the first look gives it something.
            weighs: if is_new { WHOLE } else { 0 },
            confined: if is_new { None } else { Some(Vec::new()) },
            group: GroupSearch::Open,
            busy: None,
            worked: None,
        }
    }

    /// Looks whether programs are at work in it.
    pub(super) fn see(&mut self, now: Instant) {
        if matches!(self.group, GroupSearch::Open) {
            let found = ContainerGroup::of(&self.id, Path::new(MOUNTED));
            self.group = found.map_or(GroupSearch::None, GroupSearch::Found);
        }
        self.busy = (self.link.programs() > 0).then(|| self.busy.unwrap_or(now));
        if self.busy.is_some_and(|since| now.saturating_duration_since(since) >= LOOK) {
            self.worked = Some(now);
            if let Some(weighs) = self.group().and_then(|group| group.weighs().ok()) {
                self.weighs = weighs;
            }
        }
    }

    fn group(&self) -> Option<&ContainerGroup> {
        match &self.group {
            GroupSearch::Found(group) => Some(group),
            GroupSearch::Open | GroupSearch::None => None,
        }
    }

    /// Whether it can be weighed without the engine.
    pub(super) fn has_group(&self) -> bool {
        self.group().is_some()
    }

    /// How many processors its programs may run on while they are not confined, if that can be written.
    pub(super) fn processors(&self) -> Option<usize> {
        self.group().and_then(ContainerGroup::processors)
    }

    /// Weighs it in its control group: false if only the engine can do it.
    pub(super) fn weigh(&mut self, weight: u64) -> bool {
        let GroupSearch::Found(group) = &mut self.group else { return false };
        match group.weigh(weight) {
            Ok(()) => {
                debug!(container = self.id.short(), weight, "weighed");
                self.weighs = weight;
            }
            Err(error) => {
                debug!(container = self.id.short(), %error, "not weighed");
                self.group = GroupSearch::None;
            }
        }
        true
    }

    /// Lets its programs run only on the processors at these places; on all, without places. False if only
    /// the engine can do it.
    pub(super) fn confine(&mut self, places: Option<&Vec<usize>>) -> bool {
        if self.confined.as_ref() == places {
            return true;
        }
        let Some(group) = self.group().filter(|group| group.processors().is_some()) else { return false };
        let confined = group.confine(places.map(Vec::as_slice));
        debug!(container = self.id.short(), ?places, ?confined, "confined");
        let is_written = confined.is_ok();
        if is_written {
            self.confined = places.cloned();
        } else {
            self.group = GroupSearch::None;
        }
        true
    }

    /// The engine was asked for this, whether it could do it or not.
    pub(super) fn was_told(&mut self, weight: Option<u64>, confined: Option<Option<Vec<usize>>>) {
        self.weighs = weight.unwrap_or(self.weighs);
        if let Some(confined) = confined {
            self.confined = confined;
        }
    }
}
