//! Taking one snapshot: saved in a container, put into a volume, and proved in two others.
//!
//! ```text
//!  save     fresh container ─► the image's save command ─► its files into a volume
//!  proof    fresh container ─► the proof program by the entrypoint ──┐ exit code and output
//!           fresh container ─► restored part ─► the same program ────┘ must be alike
//! ```
//!
//! Each level of the part is proved as the main part is, in a container of its own. All these containers are
//! members of the pool, as locked down as every other, and are used for nothing else. They give way: they are
//! started in a place that is free while no caller waits, and released as soon as callers need it. It must
//! never report a snapshot that did not come out alike.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use paddock_proto::limits::DATA_DIR;
use paddock_proto::message::{Input, Outcome, RestoreFailure, RunLimits, RunSpec};
use paddock_proto::{Channel, Event, Request};
use tokio::io::AsyncReadExt;
use tokio_tar::Archive;
use tracing::{debug, info};

use super::super::bounds::Bounds;
use super::super::disk::{DataPlace, DiskBound};
use super::super::proof;
use super::super::runner::Runner;
use super::super::warm::WarmStage;
use super::super::{Lease, Pool};
use super::labels::SnapshotLabels;
use super::outcome::{TakeError, TakeOutcome};
use super::ran::{Ran, difference, how, last_line};
use super::record::{self, Snapshot};
use super::volume::{SNAPSHOT_BYTES, SNAPSHOT_FILES, SnapshotVolumes};
use super::{Machine, SnapshotMount, key};
use crate::link::{Incoming, LinkError};

/// How long a save command may take. Ours loads and writes three parts: 20 s on a quiet machine of two
/// processors, 41 s beside a load of 13.
pub(super) const SAVE_WITHIN: Duration = Duration::from_secs(120);
/// How long the proof program may run.
const PROOF_WITHIN: Duration = Duration::from_secs(30);
/// Bytes of the proof program, as of any code.
const PROOF_BYTES: u64 = 100_000;
/// Bytes that a snapshot is expected to have, if there was none before: those of Python with its libraries.
const EXPECTED_BYTES: u64 = 770_000_000;
/// The exit code of a save command that says that no snapshot is possible on this machine (EX_UNAVAILABLE).
const UNSUPPORTED: i32 = 69;
/// Bytes of each stream of a command that are kept, and that it may write.
const OUTPUT: usize = 256 * 1024;

/// Takes snapshots.
#[derive(Clone)]
pub(super) struct Taker {
    pub(super) pool: Pool,
    pub(super) volumes: SnapshotVolumes,
    /// What the key has beside image and machine.
    pub(super) version: String,
    /// What keeps the container of a save within its bounds on this engine's disk.
    pub(super) disk: DiskBound,
}

impl Taker {
    /// Takes a snapshot for this runner and proves it. A volume that is made and not proved is removed, if
    /// not here, then by the next sweep. `last`: the bytes of the last one.
    pub(super) async fn take(
        &self,
        runner: &Runner,
        machine: &Machine,
        last: Option<u64>,
    ) -> Result<Snapshot, TakeError> {
        self.giving_way(self.take_alone(runner, machine, last)).await
    }

    /// Looks at the machine, in a container of this runner.
    pub(super) async fn look(&self, runner: &Runner) -> Result<Machine, TakeError> {
        let looked = async {
            let lease = self.lease(cold(runner)).await?;
            Ok(proof::probe(&lease, None).await?.machine)
        };
        self.giving_way(looked).await
    }

    /// Does this until callers need the place of the container that it has.
    async fn giving_way<T>(&self, act: impl Future<Output = Result<T, TakeError>>) -> Result<T, TakeError> {
        tokio::select! {
            biased;
            () = self.pool.crowded() => {
                let why = "it gives way to a caller who needs its container's place";
                Err(TakeError::new(TakeOutcome::Busy, why))
            }
            done = act => done,
        }
    }

    async fn take_alone(
        &self,
        runner: &Runner,
        machine: &Machine,
        last: Option<u64>,
    ) -> Result<Snapshot, TakeError> {
        let Some(labels) = runner.snapshot_labels.clone() else {
            return Err(TakeError::new(TakeOutcome::Save, "the image has no labels for snapshots"));
        };
        // Said at once, and not only after the wait for a place.
        let members = self.pool.snapshot().await.map_or(usize::MAX, |now| now.members());
        if members >= self.pool.settings().max_members as usize {
            return Err(TakeError::new(TakeOutcome::Busy, "all containers are in use"));
        }
        let key = key(&runner.image_id, machine, &self.version);
        let snapshot = self.save(runner, &labels, key, last.unwrap_or(EXPECTED_BYTES)).await?;
        match self.prove(runner, &labels, &snapshot).await {
            Ok(()) => Ok(snapshot),
            Err(error) => {
                self.volumes.remove(&snapshot.volume).await;
                Err(error)
            }
        }
    }

    async fn save(
        &self,
        runner: &Runner,
        labels: &SnapshotLabels,
        key: String,
        expected: u64,
    ) -> Result<Snapshot, TakeError> {
        info!(language = runner.language, image = runner.image, "a snapshot of the warm part is taken");
        let lease = self.lease(saver(runner, self.disk)).await?;
        has_room(proof::probe(&lease, None).await?.data_free, expected, self.disk)?;
        let ran = run(&lease, runner, (labels.save.clone(), "/"), None, SAVE_WITHIN).await?;
        if ran.end.outcome != Outcome::Exited(0) || ran.end.limit.is_some() {
            let words = last_line(&ran.stderr);
            if ran.end.outcome == Outcome::Exited(UNSUPPORTED) {
                let why = words.strip_prefix(": ").unwrap_or("its save command ended with code 69");
                return Err(TakeError::new(TakeOutcome::Unsupported, why));
            }
            return Err(TakeError::new(
                TakeOutcome::Save,
                format!("its save command {}{words}", how(&ran.end)),
            ));
        }
        let (volume, contents) = self.volumes.make(&lease.id, &runner.image_id, &key).await?;
        debug!(language = runner.language, volume = %volume, bytes = contents.bytes, "a snapshot was saved");
        Ok(Snapshot {
            volume,
            language: runner.language.clone(),
            image: runner.image_id.to_string(),
            key,
            digest: contents.digest,
            bytes: contents.bytes,
            taken: record::now(),
        })
    }

    /// Runs the proof program both ways.
    async fn prove(
        &self,
        runner: &Runner,
        labels: &SnapshotLabels,
        snapshot: &Snapshot,
    ) -> Result<(), TakeError> {
        let lease = self.lease(cold(runner)).await?;
        let program = program(&lease, &labels.proof).await?;
        let expected =
            run(&lease, runner, (runner.argv.clone(), DATA_DIR), Some(program.clone()), PROOF_WITHIN).await?;
        drop(lease);
        for part in labels.parts() {
            let restored = SnapshotMount::Restored(snapshot.volume.clone());
            let alone = Runner { snapshot: restored, snapshot_labels: Some(part), idle: 0, ..runner.clone() };
            self.prove_part(alone, labels, (&program, &expected)).await?;
        }
        info!(language = runner.language, volume = %snapshot.volume, "a snapshot was proved");
        Ok(())
    }

    /// Runs the proof program in a container whose only warm part is this runner's, restored.
    async fn prove_part(
        &self,
        runner: Runner,
        labels: &SnapshotLabels,
        (program, expected): (&Bytes, &Ran),
    ) -> Result<(), TakeError> {
        let runner = &runner;
        let lease = self.lease(runner.clone()).await?;
        match lease.warm.restored().await {
            Ok(WarmStage::Stands) => {}
            Ok(WarmStage::Waiting | WarmStage::Loading | WarmStage::Absent) => {
                return Err(TakeError::new(TakeOutcome::Restore, "the restored part does not stand"));
            }
            Err((why, RestoreFailure::Unsupported)) => {
                return Err(TakeError::new(TakeOutcome::Unsupported, why));
            }
            Err((why, RestoreFailure::Said | RestoreFailure::Died)) => {
                return Err(TakeError::new(TakeOutcome::Restore, format!("it could not be restored: {why}")));
            }
        }
        let seen =
            run(&lease, runner, (runner.argv.clone(), DATA_DIR), Some(program.clone()), PROOF_WITHIN).await?;
        if !seen.end.warm {
            return Err(TakeError::new(
                TakeOutcome::Restore,
                "the restored part did not run the proof program",
            ));
        }
        let alike = (expected.end.outcome, &expected.stdout, &expected.stderr, expected.end.limit)
            == (seen.end.outcome, &seen.stdout, &seen.stderr, seen.end.limit);
        if alike {
            return Ok(());
        }
        Err(TakeError::new(TakeOutcome::Proof, difference(&labels.proof, expected, &seen)))
    }

    async fn lease(&self, runner: Runner) -> Result<Lease, TakeError> {
        Ok(self.pool.lease_made(Arc::new(runner)).await?)
    }
}

/// The runner of a container without a warm part.
fn cold(runner: &Runner) -> Runner {
    Runner { snapshot: SnapshotMount::None, warm: Vec::new(), idle: 0, ..runner.clone() }
}

/// Refuses to take a snapshot for which the engine's disk has too little room. Where the disk itself bounds
/// `/data`, only that bound can be seen.
fn has_room(free: u64, expected: u64, disk: DiskBound) -> Result<(), TakeError> {
    // In the container that saves it and in its volume, for a moment.
    let needed = if disk == DiskBound::Hard { expected } else { 2 * expected };
    if free >= needed {
        return Ok(());
    }
    let why = format!(
        "the engine's disk has {free} bytes free, and taking a snapshot needs {needed} of them for a moment"
    );
    Err(TakeError::new(TakeOutcome::Disk, why))
}

/// The runner of the container that a snapshot is saved in: its `/data` is on the engine's disk, as large as
/// a snapshot may be, and is also at the place of the snapshot.
fn saver(runner: &Runner, disk: DiskBound) -> Runner {
    let mut bounds = Bounds { place: DataPlace::Disk(disk), ..runner.bounds.clone() };
    (bounds.data, bounds.data_inodes, bounds.file_size) = (SNAPSHOT_BYTES, SNAPSHOT_FILES, SNAPSHOT_BYTES);
    Runner {
        snapshot: SnapshotMount::Saving,
        mounts: Vec::new(),
        idle: 0,
        bounds,
        // Loading it would only take time; its memory is needed for what the command imports.
        ..runner.clone()
    }
}

/// Runs one command of this runner, with code if its entrypoint is to have some, warm if the part stands.
async fn run(
    lease: &Lease,
    runner: &Runner,
    (argv, cwd): (Vec<String>, &str),
    code: Option<Bytes>,
    within: Duration,
) -> Result<Ran, TakeError> {
    let spec = RunSpec {
        id: crate::id::random_hex::<8>(),
        argv,
        // That of the runner's usual containers, wherever this one has its files.
        env: runner.environment(&[]),
        cwd: cwd.to_owned(),
        wall_ms: u64::try_from(within.as_millis()).unwrap_or(u64::MAX),
        output_cap: OUTPUT as u64,
        input: if code.is_some() { Input::Code { stdin: false } } else { Input::Nothing },
        limits: RunLimits { disk: lease.runner.disk_limit(), ..RunLimits::default() },
        warm: code.is_some() && !lease.runner.warm.is_empty(),
        files: None,
        execute: None,
        network: false,
    };
    let stream = lease.link.request(&Request::Run(spec))?;
    if let Some(code) = code {
        stream.data(Channel::Code, code).await?;
        stream.eof(Channel::Code).await?;
    }
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    loop {
        match stream.next().await? {
            Incoming::Data(channel @ (Channel::Stdout | Channel::Stderr), piece) => {
                let whole = if channel == Channel::Stdout { &mut stdout } else { &mut stderr };
                let room = OUTPUT.saturating_sub(whole.len()).min(piece.len());
                whole.extend_from_slice(&piece[..room]);
            }
            Incoming::Event(Event::Ended(end)) => {
                stream.say(&Request::Commit).await?;
                return Ok(Ran { end, stdout, stderr });
            }
            Incoming::Event(Event::Begun | Event::Listens { .. }) => {}
            Incoming::Event(_) | Incoming::Data(..) | Incoming::End => return Err(LinkError::Refused.into()),
        }
    }
}

/// The text of a program in the image.
async fn program(lease: &Lease, path: &str) -> Result<Bytes, TakeError> {
    let unreadable = |why: &dyn std::fmt::Display| {
        TakeError::new(TakeOutcome::Proof, format!("its proof program {path}: {why}"))
    };
    let reader = match lease.engine.archive_get(&lease.id, path, PROOF_BYTES + 64 * 1024).await {
        Ok(reader) => reader,
        Err(error) if error.is_not_found() => return Err(unreadable(&"the image has no such file")),
        Err(error) => return Err(error.into()),
    };
    let mut archive = Archive::new(reader.into_async_read());
    let mut entries = archive.entries().map_err(|error| unreadable(&error))?;
    let first = futures_util::StreamExt::next(&mut entries).await;
    let Some(Ok(mut entry)) = first.filter(|entry| {
        entry.as_ref().is_ok_and(|entry| entry.header().entry_type() == tokio_tar::EntryType::Regular)
    }) else {
        return Err(unreadable(&"it is no regular file"));
    };
    let mut text = Vec::new();
    (&mut entry).take(PROOF_BYTES + 1).read_to_end(&mut text).await.map_err(|error| unreadable(&error))?;
    if text.len() as u64 > PROOF_BYTES {
        return Err(unreadable(&format!("it has more than {PROOF_BYTES} bytes")));
    }
    Ok(text.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_needs_room_for_both_copies_where_its_free_bytes_can_be_seen() {
        assert!(has_room(200, 100, DiskBound::Watched).is_ok());
        assert!(has_room(100, 100, DiskBound::Hard).is_ok(), "the quota of the container");
        let error = has_room(199, 100, DiskBound::Watched).unwrap_err();
        assert_eq!(error.outcome, TakeOutcome::Disk);
        assert!(
            error.why.contains("has 199 bytes free") && error.why.contains("needs 200 of them"),
            "{error}"
        );
        assert!(has_room(99, 100, DiskBound::Hard).is_err());
    }

    #[test]
    fn the_container_of_a_save_has_room_for_a_snapshot_and_nothing_of_the_host() {
        let saver = saver(&Runner::example("python"), DiskBound::Watched);
        assert_eq!((saver.bounds.data, saver.bounds.file_size), (SNAPSHOT_BYTES, SNAPSHOT_BYTES));
        assert!(saver.mounts.is_empty() && saver.idle == 0);
        assert_eq!(saver.snapshot, SnapshotMount::Saving);
    }
}
