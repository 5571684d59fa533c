//! Compares the snapshots of an earlier daemon with their digests, one after the other, beside everything
//! else that the daemon does.
//!
//! ```text
//!  record ─► remove what it does not name ─► each: read every byte, within a time ─► whole, or refused
//! ```
//!
//! No container may have a snapshot before that. It must never hold up the start: the disk may be slow.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use tokio::sync::mpsc;
use tokio_util::task::AbortOnDropHandle;
use tracing::{debug, info, warn};

use super::volume::SnapshotVolumes;
use super::{Snapshot, SnapshotRecords, SnapshotSettings, WholeSnapshots};
use crate::engine::{Engine, ImageRef, VolumeName};
use crate::metrics::Metrics;
use crate::pool::millis;

/// How long reading one snapshot may take: the largest one, from a disk that reads 9 MB a second. From a disk
/// that is slower still, restoring would take longer than importing.
const CHECK_WITHIN: Duration = Duration::from_secs(120);

/// How a comparison ended: whole, or the reason why the snapshot is not used.
pub(super) struct CheckEnd {
    pub(super) volume: VolumeName,
    pub(super) result: Result<(), String>,
}

/// A snapshot whose comparison is not over.
struct PendingCheck {
    snapshot: Snapshot,
    read: Arc<AtomicU64>,
}

/// The comparisons of one start.
pub(in crate::pool) struct SnapshotChecks {
    pending: BTreeMap<VolumeName, PendingCheck>,
    ends: mpsc::UnboundedReceiver<CheckEnd>,
    /// Those of `ends` that were refused and not told yet.
    refused: Vec<CheckEnd>,
    _reading: AbortOnDropHandle<()>,
}

impl SnapshotChecks {
    /// Begins to compare all that the record names.
    pub(in crate::pool) fn begin(
        engine: &Engine,
        owner: &str,
        settings: Option<&SnapshotSettings>,
        metrics: &Metrics,
    ) -> Self {
        let settings = settings.filter(|settings| settings.enabled);
        let records = settings.map(|settings| SnapshotRecords::read(&settings.folder)).unwrap_or_default();
        let pending: BTreeMap<_, _> = records.snapshots.into_iter().map(PendingCheck::new).collect();
        let all: Vec<_> = pending.values().map(|one| (one.snapshot.clone(), one.read.clone())).collect();
        let (sender, ends) = mpsc::unbounded_channel();
        let volumes = SnapshotVolumes { engine: engine.clone(), owner: owner.to_owned() };
        let metrics = metrics.clone();
        let reading = async move {
            // What has no purpose goes first: reading may take long.
            let named = all.iter().map(|(snapshot, _)| snapshot.volume.clone()).collect();
            if !all.is_empty()
                && let Err(error) = volumes.sweep(&named).await
            {
                debug!(%error, "what an earlier daemon left of snapshots could not be looked at");
            }
            for (snapshot, read) in all {
                let result = check(&volumes, &snapshot, &read, &metrics).await;
                let _ = sender.send(CheckEnd { volume: snapshot.volume, result });
            }
        };
        let _reading = AbortOnDropHandle::new(tokio::spawn(reading));
        Self { pending, ends, refused: Vec::new(), _reading }
    }

    /// Those that were found whole by now. The others are for [`SnapshotChecks::next`].
    pub(in crate::pool) fn whole_by_now(&mut self) -> WholeSnapshots {
        let mut whole = Vec::new();
        while let Ok(end) = self.ends.try_recv() {
            match end.result {
                Ok(()) => whole.extend(self.pending.remove(&end.volume).map(|one| one.snapshot)),
                Err(_) => self.refused.push(end),
            }
        }
        WholeSnapshots(whole)
    }

    /// The snapshots whose comparison is not over.
    pub(super) fn pending(&self) -> Vec<Snapshot> {
        self.pending.values().map(|one| one.snapshot.clone()).collect()
    }

    /// How much of a snapshot was read.
    pub(super) fn progress(&self, volume: &VolumeName) -> Arc<AtomicU64> {
        self.pending.get(volume).map(|one| one.read.clone()).unwrap_or_default()
    }

    /// The next comparison that is over. Cancel-safe; never resolves when all are.
    pub(super) async fn next(&mut self) -> CheckEnd {
        let end = match self.refused.pop() {
            Some(end) => end,
            None => match self.ends.recv().await {
                Some(end) => end,
                None => std::future::pending().await,
            },
        };
        self.pending.remove(&end.volume);
        end
    }
}

impl PendingCheck {
    fn new(snapshot: Snapshot) -> (VolumeName, Self) {
        (snapshot.volume.clone(), Self { snapshot, read: Arc::default() })
    }
}

async fn check(
    volumes: &SnapshotVolumes,
    snapshot: &Snapshot,
    read: &Arc<AtomicU64>,
    metrics: &Metrics,
) -> Result<(), String> {
    let Snapshot { volume, language, bytes, digest: expected, .. } = snapshot;
    debug!(language, %volume, bytes, "a snapshot of an earlier daemon is compared with its digest");
    let begun = Instant::now();
    let looked = async {
        let image: ImageRef = snapshot.image.parse().map_err(|error| format!("its image: {error}"))?;
        // The engine would make an empty one.
        volumes.engine.volume_inspect(volume).await.map_err(|error| error.to_string())?;
        let contents = volumes.contents(&image, volume, Some(read)).await;
        contents.map(|contents| contents.digest).map_err(|error| error.to_string())
    };
    let found = tokio::time::timeout(CHECK_WITHIN, looked).await.unwrap_or_else(|_| {
        let (seconds, read) = (CHECK_WITHIN.as_secs(), read.load(std::sync::atomic::Ordering::Relaxed));
        Err(format!("only {read} of its {bytes} bytes could be read within {seconds} s"))
    });
    match found {
        Ok(digest) if digest == *expected => {
            let ms = millis(begun.elapsed());
            info!(language, %volume, bytes, ms, "a snapshot of an earlier daemon is what was saved");
            Ok(())
        }
        Ok(digest) => {
            metrics.snapshot_poisoned();
            warn!(language, %volume, digest, expected,
                "a snapshot is not what was saved: it is refused, and its runner imports");
            Err("that of an earlier daemon was not what had been saved".to_owned())
        }
        Err(error) => {
            warn!(language, %volume, error, "a snapshot of an earlier daemon cannot be used");
            Err(format!("that of an earlier daemon cannot be used: {error}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_is_whole_at_the_end_of_the_start_is_used_and_the_rest_is_told_later() {
        let (sender, ends) = mpsc::unbounded_channel();
        let all = ["whole", "refused", "slow"].map(Snapshot::example);
        let pending = all.clone().into_iter().map(PendingCheck::new).collect();
        let _reading = AbortOnDropHandle::new(tokio::spawn(async {}));
        let mut checks = SnapshotChecks { pending, ends, refused: Vec::new(), _reading };
        let [whole, refused, slow] = all;
        let end = |of: &Snapshot, result| CheckEnd { volume: of.volume.clone(), result };
        sender.send(end(&refused, Err("no".to_owned()))).unwrap();
        sender.send(end(&whole, Ok(()))).unwrap();
        assert_eq!(checks.whole_by_now().0, [whole]);
        assert_eq!(checks.pending().len(), 2, "both are known until their ends are told");
        assert_eq!(checks.next().await.volume, refused.volume);
        assert_eq!(checks.pending(), std::slice::from_ref(&slow));
        sender.send(end(&slow, Ok(()))).unwrap();
        assert!(checks.next().await.result.is_ok() && checks.pending().is_empty());
    }
}
