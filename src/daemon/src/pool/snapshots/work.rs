//! What the keeper of snapshots has under way, and the removal of what nobody knows.
//!
//! It must never remove anything while a snapshot is being taken, whose volume nobody knows yet, or compared
//! with its digest, in a container that nobody knows.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use paddock_proto::message::Machine;
use tokio::sync::Mutex;
use tokio::task::JoinSet;
use tracing::debug;

use super::core::SnapshotCore;
use super::outcome::TakeError;
use super::volume::SnapshotVolumes;
use super::{Snapshot, SnapshotRecords};
use crate::engine::VolumeName;

/// The pause before volumes are tried again that containers still mount.
pub(super) const SWEEP_AGAIN: Duration = Duration::from_secs(3);

/// What a task of the keeper has done.
pub(super) enum Done {
    Taken(String, Result<Snapshot, TakeError>),
    Removed(VolumeName, bool),
    /// Whether nothing is left that nobody knows.
    Swept(bool),
    Looked(Result<Machine, TakeError>),
}

/// What the keeper has under way.
pub(super) struct Work {
    pub(super) core: SnapshotCore,
    /// Why runners have no snapshot, by their names.
    pub(super) without: BTreeMap<String, String>,
    /// The runners among these whose last snapshot failed: to be taken, to be restored, or to be as it was
    /// saved.
    pub(super) failing: BTreeSet<String>,
    pub(super) tasks: JoinSet<Done>,
    pub(super) volumes: SnapshotVolumes,
    /// A snapshot is being taken: its volume is not known yet, and nothing is swept.
    pub(super) is_taking: bool,
    /// A snapshot is being compared with its digest: what reads it is not swept.
    pub(super) is_checking: bool,
    /// There may be something that nobody knows.
    pub(super) is_untidy: bool,
    /// When to sweep again, since a container still had what is to go.
    pub(super) sweep_at: Option<Instant>,
    /// When to look at the machine again.
    pub(super) look_at: Option<Instant>,
    /// Held by a sweep.
    pub(super) sweeping: Arc<Mutex<()>>,
}

impl Work {
    /// What is known, for the next daemon.
    pub(super) fn records(&self) -> SnapshotRecords {
        let snapshots = self.core.snapshots().cloned().collect();
        let unsupported = self.core.unsupported().clone();
        SnapshotRecords { snapshots, without: self.without.clone(), unsupported }
    }

    /// Removes what nobody knows: of an earlier daemon, of a failed attempt, or of calls whose answer never
    /// came.
    pub(super) fn sweep(&mut self) {
        self.sweep_at = None;
        if self.is_taking || self.is_checking {
            self.is_untidy = true;
            return;
        }
        let known: BTreeSet<_> = self.core.snapshots().map(|snapshot| snapshot.volume.clone()).collect();
        let volumes = self.volumes.clone();
        let Ok(alone) = self.sweeping.clone().try_lock_owned() else {
            self.sweep_at = Some(Instant::now() + SWEEP_AGAIN); // one is under way
            return;
        };
        self.is_untidy = false;
        self.tasks.spawn(async move {
            let _alone = alone;
            let swept = volumes.sweep(&known).await;
            if let Err(error) = &swept {
                debug!(%error, "what an earlier daemon left of snapshots could not be looked at");
            }
            Done::Swept(swept.unwrap_or(false))
        });
    }

    /// The snapshot that was taken is known now, or there is none.
    pub(super) fn ended_taking(&mut self) {
        self.is_taking = false;
        if self.is_untidy {
            self.sweep();
        }
    }
}
