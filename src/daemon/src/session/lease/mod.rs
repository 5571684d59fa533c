//! The containers in a session's hands: what is known of each, and how they are given up.
//!
//! ```text
//!  lessor   pool grants one ─► note on disk ─► claim told to the agent ─┐
//!                                                                       ├─► Leased ─► dropped: destroyed
//!  recover  found after a restart, its note and its claim agree ────────┘
//!
//!  rescue   found after a restart, its agent does not answer: the engine reads its files
//!  eviction   the pool is full, a session rests: it is evicted
//! ```
//!
//! A container can have files that the store could not take. Before it is given up, `save` tries once more.
//! The workspace of a coding agent is kept when its lease is dropped, whatever the reason, unless the session
//! is deleted (`session/workspaces`).
//!
//! It must never give up a container in which a program runs, unless the container is lost or must not be
//! used again.

pub(in crate::session) mod eviction;
pub(in crate::session) mod lessor;
pub(in crate::session) mod notes;
pub(in crate::session) mod recover;
pub(in crate::session) mod rescue;
mod save;
pub(in crate::session) mod usage_notes;

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

use self::notes::NoteFile;
use crate::egress::Gateway;
use crate::pool::DataPlace;
use crate::session::port::Container;
use crate::session::sync::DataBounds;
use crate::session::sync::baseline::Baseline;
use crate::session::workspaces::Keeper;
use crate::store::Space;

/// The containers of one session, by language; held while files are on their way, and never while a program
/// runs.
#[derive(Default)]
pub(in crate::session) struct Leases {
    pub(in crate::session) by_language: BTreeMap<String, Leased>,
    /// The right to have containers at all: there is one as long as there are leases.
    pub(in crate::session) permit: Option<Permit>,
}

/// A session's right to have containers. Dropping it gives the right back.
pub(in crate::session) struct Permit {
    give_back: Option<Box<dyn FnOnce() + Send + Sync>>,
}

impl Permit {
    /// A right that this gives back.
    pub(in crate::session) fn new(give_back: impl FnOnce() + Send + Sync + 'static) -> Self {
        Self { give_back: Some(Box::new(give_back)) }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if let Some(give_back) = self.give_back.take() {
            give_back();
        }
    }
}

/// One container of a session, and what is known of it.
pub(in crate::session) struct Leased {
    pub(in crate::session) container: Box<dyn Container>,
    pub(in crate::session) baseline: Baseline,
    pub(in crate::session) note: NoteFile,
    /// The way out of the container.
    pub(in crate::session) gateway: Gateway,
    pub(in crate::session) cold: ColdRuns,
    /// The most that is taken out of it.
    data: DataBounds,
    /// Where the workspace outlives the container: then it does so whatever the reason of the drop.
    pub(in crate::session) keeper: Option<Keeper>,
}

impl Leases {
    /// The container of this name, if the session still has it.
    pub(in crate::session) fn named(&mut self, language: &str, name: &str) -> Option<&mut Leased> {
        self.by_language.get_mut(language).filter(|leased| leased.container.name() == name)
    }

    /// The container of a language, unless a program runs in it.
    pub(in crate::session) fn resting(&mut self, language: &str) -> Option<&mut Leased> {
        self.by_language.get_mut(language).filter(|leased| !leased.note.has_runs())
    }

    /// Gives up the container of a language, unless a program runs in it.
    pub(in crate::session) fn drop_resting(&mut self, language: &str) {
        if self.resting(language).is_some() {
            self.by_language.remove(language);
        }
        self.drop_unused_permit();
    }

    /// Gives up the container of this name.
    pub(in crate::session) fn drop_lease(&mut self, language: &str, name: &str) {
        if self.named(language, name).is_some() {
            self.by_language.remove(language);
        }
        self.drop_unused_permit();
    }

    /// Gives up these containers.
    pub(in crate::session) fn give_up(&mut self, which: impl Fn(&Leased) -> bool) {
        self.by_language.retain(|_, leased| !which(leased));
        self.drop_unused_permit();
    }

    /// From now on the workspaces go with their containers: the session is being deleted.
    pub(in crate::session) fn keep_no_workspace(&mut self) {
        for leased in self.by_language.values_mut() {
            if let Some(keeper) = leased.keeper.take() {
                keeper.give_up(leased.container.name());
            }
        }
    }

    /// A session without containers does not count as live.
    fn drop_unused_permit(&mut self) {
        if self.by_language.is_empty() {
            self.permit = None;
        }
    }
}

impl Leased {
    pub(in crate::session) fn new(
        container: Box<dyn Container>,
        baseline: Baseline,
        note: NoteFile,
        (data, gateway): (DataBounds, Gateway),
    ) -> Self {
        Self { container, baseline, note, gateway, cold: ColdRuns::default(), data, keeper: None }
    }

    /// The same, of a container whose workspace is kept if it lies on a disk.
    pub(in crate::session) fn kept_by(mut self, keeper: Option<Keeper>) -> Self {
        let is_on_disk = self.container.runner().bounds.place != DataPlace::Memory;
        self.keeper = keeper.filter(|_| is_on_disk);
        self.container.keep_workspace(false); // the drop of this decides
        self
    }

    /// Writes down what the container may have of the session's files, if its workspace is kept.
    pub(in crate::session) async fn list(&mut self, space: &Space) {
        if let Some(keeper) = &mut self.keeper {
            keeper.list(self.container.name(), &self.baseline, space).await;
        }
    }

    /// Whether its agent cannot be reached any more.
    pub(in crate::session) fn is_lost(&self) -> bool {
        self.container.link().fault().is_some()
    }
}

impl Drop for Leased {
    fn drop(&mut self) {
        if let Some(keeper) = self.keeper.take() {
            let container = &self.container;
            keeper.keep(container.name(), &mut self.note, || container.keep_workspace(true));
        }
    }
}

/// The runs of a container that began before its warm part stood.
///
/// A conversation's first second may be cold, but not its tenth run: then the conversation waits once for the
/// part, if that is loading, and leaves the container's processor to it meanwhile.
#[derive(Debug, Default)]
pub(in crate::session) struct ColdRuns {
    first: Option<Instant>,
    runs: u32,
    /// A run has waited for the part. A conversation waits only once, even if its part is never ready.
    has_waited: bool,
}

/// How long runs begin beside a warm part that is still loading.
const COLD_TIME: Duration = Duration::from_secs(1);

/// How many runs begin beside it.
const COLD_RUNS: u32 = 9;

impl ColdRuns {
    /// Notes that a run begins now without the warm part.
    pub(in crate::session) fn begin(&mut self, now: Instant) {
        self.first.get_or_insert(now);
        self.runs += 1;
    }

    /// Whether there was a run already.
    pub(in crate::session) fn has_begun(&self) -> bool {
        self.runs > 0
    }

    /// Whether the next run waits for the part, which is loading. True once at most.
    pub(in crate::session) fn is_enough(&mut self, now: Instant) -> bool {
        let is_long = self.first.is_some_and(|first| now.duration_since(first) >= COLD_TIME);
        let waits = !self.has_waited && (self.runs >= COLD_RUNS || is_long);
        self.has_waited |= waits;
        waits
    }
}

#[cfg(test)]
mod tests;
