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
    /// What it was last given: 0 if that is not known.
    pub(super) weighs: u64,
    /// To how many processors it is confined, if that is known.
    confined: Option<Option<usize>>,
    /// The engine is not asked again before.
    again: Option<Instant>,
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
            confined: is_new.then_some(None),
            again: None,
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

    /// Whether it is as it was made.
    pub(super) fn is_whole(&self) -> bool {
        self.weighs == WHOLE && self.confined == Some(None)
    }

    /// Lets its programs run only on the last processors, so many; on all, without a number. False if only
    /// the engine can do it.
    pub(super) fn confine(&mut self, last: Option<usize>) -> bool {
        if self.confined == Some(last) {
            return true;
        }
        let Some(group) = self.group().filter(|group| group.processors().is_some()) else { return false };
        let confined = group.confine(last);
        debug!(container = self.id.short(), ?last, ?confined, "confined");
        match confined {
            Ok(()) => self.confined = Some(last),
            Err(_) => self.group = GroupSearch::None,
        }
        true
    }

    /// Whether the engine may be asked for something now.
    pub(super) fn may_ask(&self, now: Instant) -> bool {
        self.again.is_none_or(|again| again <= now)
    }

    /// The engine has done what it was asked for.
    pub(super) fn was_given(&mut self, weight: Option<u64>, confined: Option<Option<usize>>) {
        self.weighs = weight.unwrap_or(self.weighs);
        self.confined = confined.or(self.confined);
    }

    /// The engine has done nothing, or nobody knows what.
    pub(super) fn was_refused(&mut self, again: Instant) {
        (self.weighs, self.confined, self.again) = (0, None, Some(again));
    }
}
