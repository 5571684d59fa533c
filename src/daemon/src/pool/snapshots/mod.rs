//! Snapshots: the warm part of an image, written into files once, from which every container restores it in
//! milliseconds instead of importing for a second.
//!
//! ```text
//!  runners, machine ─► core (pure: what to take, use, take again, remove)
//!                       │ take ─► take: save in one container, prove in two others
//!                       │ use ──► driver: new containers mount the volume; idle ones are replaced
//!                       │ remove ─► volume, when nothing mounts it
//!                       └─ record: what is there, and each digest, in the store
//! ```
//!
//! No start waits for a snapshot: containers import until there is one. After a later start all snapshots are
//! compared with their digests, beside everything else ([`check`]). A snapshot is used only for the image,
//! kernel, processor and agent that it was taken with ([`key`]), after its proof, and after a restart only if
//! every byte of it is still what the record says. When the engine was gone for a while, its machine is
//! looked at again: it may be another one. A snapshot belongs to one owner, and survives its daemon. Taking
//! one gives way to callers. What fails is logged, counted and said by `doctor`, and importing goes on.

mod check;
mod core;
mod keeper;
pub(in crate::pool) mod labels;
mod outcome;
mod ran;
mod record;
mod take;
pub(in crate::pool) mod volume;
mod work;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use paddock_proto::message::{Machine, RestoreFailure};
use sha2::{Digest, Sha256};

pub(super) use self::check::SnapshotChecks;
pub(super) use self::keeper::SnapshotKeeper;
pub use self::labels::SnapshotLabels;
pub use self::outcome::TakeOutcome;
pub use self::record::{Snapshot, SnapshotRecords, Unsupported};
use self::volume::SnapshotVolumes;
pub(super) use self::volume::{mount, unused_of_others};
use super::runner::Runner;
use super::runtimes::Runtimes;
use crate::engine::{Engine, EngineError, ImageRef, VolumeName};
use crate::id::hex;

/// Counts the ways in which a snapshot is laid out in its volume, and in which it is saved and restored. A
/// new number makes every snapshot of earlier daemons useless.
const LAYOUT: u32 = 1;

/// `agent.snapshots` and what belongs to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotSettings {
    /// The folder of the record, in the store.
    pub folder: PathBuf,
    /// Whether snapshots are taken and used. If not, those of an earlier daemon are removed.
    pub enabled: bool,
    /// The age at which a snapshot is taken again.
    pub age: Duration,
}

/// What a container has at the place of the snapshot.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum SnapshotMount {
    /// Nothing: its warm part imports.
    #[default]
    None,
    /// Its own `/data`: a snapshot is written there.
    Saving,
    /// A snapshot, read-only: its warm part is restored.
    Restored(VolumeName),
}

/// What a snapshot depends on: two snapshots of one key can stand for each other. `version` is the agent's.
pub(super) fn key(image: &ImageRef, machine: &Machine, version: &str) -> String {
    let Machine { kernel, architecture, processor } = machine;
    let parts = [image.as_str(), kernel, architecture, processor, version];
    let text = parts.map(|part| format!("{}:{part}\n", part.len())).concat();
    hex(&Sha256::digest(format!("{LAYOUT}\n{text}"))[..16])
}

/// Whether this runner can have snapshots: its image declares them, and a process can be restored in
/// containers of its runtime.
fn is_candidate(runner: &Runner, runtimes: &Runtimes) -> bool {
    runner.snapshot_labels.is_some() && !runner.warm.is_empty() && runtimes.restores(&runner.bounds.runtime)
}

/// What an earlier daemon left, as far as it is known to be whole.
#[derive(Debug, Default)]
pub(super) struct WholeSnapshots(pub(super) Vec<Snapshot>);

impl WholeSnapshots {
    /// The snapshot for new containers of this runner.
    fn of(&self, runner: &Runner, machine: &Machine, version: &str, runtimes: &Runtimes) -> SnapshotMount {
        if !is_candidate(runner, runtimes) {
            return SnapshotMount::None;
        }
        let key = key(&runner.image_id, machine, version);
        let fits = |one: &&Snapshot| one.key == key && one.language == runner.language;
        let newest = self.0.iter().filter(fits).max_by_key(|one| one.taken);
        newest.map_or(SnapshotMount::None, |one| SnapshotMount::Restored(one.volume.clone()))
    }

    /// These runners, each with its snapshot.
    pub(super) fn given_to(
        &self,
        runners: Vec<Runner>,
        machine: Option<&Machine>,
        (version, runtimes): (&str, &Runtimes),
    ) -> Vec<Runner> {
        let Some(machine) = machine else { return runners };
        let given = runners.into_iter().map(|runner| {
            let snapshot = self.of(&runner, machine, version, runtimes);
            Runner { snapshot, ..runner }
        });
        given.collect()
    }
}

/// The volumes that containers of an earlier daemon may mount: all of this owner's snapshots, whole or not,
/// used or not. A container with the files of a session must never be lost with its snapshot.
///
/// # Errors
/// The engine's, if it cannot list them.
pub(super) async fn mountable(
    engine: &Engine,
    owner: &str,
    settings: Option<&SnapshotSettings>,
) -> Result<BTreeSet<VolumeName>, EngineError> {
    let recorded = settings.map(|settings| SnapshotRecords::read(&settings.folder)).unwrap_or_default();
    let volumes = SnapshotVolumes { engine: engine.clone(), owner: owner.to_owned() };
    let mut mountable = volumes.all().await?;
    mountable.extend(recorded.snapshots.into_iter().map(|snapshot| snapshot.volume));
    Ok(mountable)
}

/// This runner as containers of earlier times may have it: without a snapshot, and with each of these.
pub(super) fn variants(runner: &Runner, mountable: &BTreeSet<VolumeName>) -> Vec<Runner> {
    let mounts = mountable.iter().map(|volume| SnapshotMount::Restored(volume.clone()));
    let mounts = std::iter::once(SnapshotMount::None).chain(mounts);
    mounts.map(|snapshot| Runner { snapshot, ..runner.clone() }).collect()
}

/// A part could not be restored, in a container in which no code has run.
#[derive(Debug, Clone)]
pub(super) struct RestoreNews {
    pub(super) language: String,
    pub(super) volume: VolumeName,
    pub(super) container: String,
    pub(super) why: String,
    pub(super) failure: RestoreFailure,
}

/// What is known of the snapshot of a runner, for people.
#[derive(Debug, Clone)]
pub enum SnapshotState {
    /// New containers restore their warm part from it.
    Used(Snapshot),
    /// They import while that of an earlier daemon is compared with its digest.
    Checking {
        /// Bytes of its files.
        bytes: u64,
        /// Bytes that were read by now.
        read: Arc<AtomicU64>,
    },
    /// They import: no snapshot is possible on this machine, for this reason.
    Unsupported(String),
    /// They import, for this reason.
    Without(String),
}

#[cfg(test)]
mod tests {
    use super::super::runtimes::RuntimeFacts;
    use super::*;

    fn machine() -> Machine {
        Machine { kernel: "6.1".into(), architecture: "x86_64".into(), processor: "model name: A".into() }
    }

    fn image(digit: char) -> ImageRef {
        format!("sha256:{}", digit.to_string().repeat(64)).parse().unwrap()
    }

    #[test]
    fn a_key_is_of_one_image_kernel_processor_and_agent() {
        let usual = key(&image('a'), &machine(), "v");
        assert_eq!(usual, key(&image('a'), &machine(), "v"));
        for other in [
            key(&image('b'), &machine(), "v"),
            key(&image('a'), &machine(), "w"),
            key(&image('a'), &Machine { kernel: "6.2".into(), ..machine() }, "v"),
            key(&image('a'), &Machine { architecture: "aarch64".into(), ..machine() }, "v"),
            key(&image('a'), &Machine { processor: "model name: B".into(), ..machine() }, "v"),
        ] {
            assert_ne!(usual, other);
        }
    }

    /// Of an engine with this default, whose runc has its kernel and whose runsc another.
    fn proved(default: &str) -> Runtimes {
        let runtimes = Runtimes::new(default);
        for (name, shares_kernel) in [("runc", true), ("runsc", false)] {
            runtimes.proved(name, RuntimeFacts { separates: true, shares_kernel, has_errnos: true });
        }
        runtimes
    }

    fn with_labels() -> Runner {
        let labels = SnapshotLabels::example();
        Runner { snapshot_labels: Some(labels), ..Runner::example("python") }
    }

    #[test]
    fn only_an_image_with_labels_and_a_warm_part_under_the_engines_own_kernel_can_have_one() {
        let can = |runner: &Runner, default: &str| is_candidate(runner, &proved(default));
        assert!(can(&with_labels(), "runc"));
        assert!(!is_candidate(&with_labels(), &Runtimes::new("runc")), "it is not proved yet");
        assert!(!can(&with_labels(), "runsc"), "the engine's default");
        assert!(!can(&Runner::example("python"), "runc"), "no labels");
        assert!(!can(&Runner { warm: Vec::new(), ..with_labels() }, "runc"));
        let mut asked = with_labels();
        asked.bounds.runtime = "runsc".into();
        assert!(!can(&asked, "runc"));
        asked.bounds.runtime = "runc".into();
        assert!(can(&asked, "runsc"));
    }

    #[test]
    fn a_runner_gets_the_newest_snapshot_of_its_key() {
        let runner = with_labels();
        let one = |name: &str, key: String, taken: u64| Snapshot {
            volume: format!("paddock-snapshot-{name}").parse().unwrap(),
            language: "python".into(),
            image: runner.image_id.to_string(),
            key,
            digest: String::new(),
            bytes: 0,
            taken,
        };
        let right = key(&runner.image_id, &machine(), "v");
        let whole = WholeSnapshots(vec![
            one("old", right.clone(), 1),
            one("new", right, 2),
            one("other-kernel", "k".into(), 3),
        ]);
        let given = |runtime: &str| {
            whole.given_to(vec![runner.clone()], Some(&machine()), ("v", &proved(runtime))).remove(0).snapshot
        };
        assert_eq!(given("runc"), SnapshotMount::Restored("paddock-snapshot-new".parse().unwrap()));
        assert_eq!(given("runsc"), SnapshotMount::None);
        let given = whole.given_to(vec![runner.clone()], None, ("v", &proved("runc")));
        assert_eq!(given.first(), Some(&runner), "the machine is not known yet");
    }

    #[test]
    fn a_container_of_an_earlier_daemon_may_mount_any_snapshot_even_one_that_is_used_no_more() {
        let runner = with_labels();
        assert_eq!(variants(&runner, &BTreeSet::new()), std::slice::from_ref(&runner));
        let volume: VolumeName = "paddock-snapshot-not-whole".parse().unwrap();
        let found = variants(&runner, &[volume.clone()].into());
        assert_eq!(found, [runner.clone(), Runner { snapshot: SnapshotMount::Restored(volume), ..runner }]);
    }
}
