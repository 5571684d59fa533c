//! The acting half: follows runners, machine and failures, and carries out what the core decides.
//!
//! It must never sweep while a snapshot is being taken, whose volume nobody knows yet, nor have a snapshot
//! used before it is noted.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use paddock_proto::message::{Machine, RestoreFailure};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use super::check::{CheckEnd, SnapshotChecks};
use super::core::{Candidate, SnapshotAction, SnapshotCore, SnapshotEvent, SnapshotTerms, TakeFailure};
use super::outcome::TakeError;
use super::record::RecordFile;
use super::take::Taker;
use super::volume::SnapshotVolumes;
use super::work::{Done, SWEEP_AGAIN, Work};
use super::{
    RestoreNews, Snapshot, SnapshotMount, SnapshotRecords, SnapshotSettings, SnapshotState, TakeOutcome,
    WholeSnapshots, is_candidate, key,
};
use crate::degradation::Degradation;
use crate::engine::Engine;
use crate::metrics::Metrics;
use crate::pool::disk::DiskBound;
use crate::pool::driver::DriverMessage;
use crate::pool::runtimes::Runtimes;
use crate::pool::{Pool, Runners};

/// The containers of a runner start first, and their imports have the processors for themselves.
const SETTLED: Duration = Duration::from_secs(5);

/// Keeps the snapshots of one daemon.
pub(in crate::pool) struct SnapshotKeeper {
    pub(in crate::pool) settings: SnapshotSettings,
    pub(in crate::pool) pool: Pool,
    pub(in crate::pool) engine: Engine,
    pub(in crate::pool) owner: String,
    pub(in crate::pool) version: String,
    pub(in crate::pool) runtimes: Runtimes,
    pub(in crate::pool) disk: DiskBound,
    pub(in crate::pool) whole: WholeSnapshots,
    pub(in crate::pool) checks: SnapshotChecks,
    pub(in crate::pool) runners: watch::Receiver<Arc<Runners>>,
    pub(in crate::pool) machine: watch::Sender<Option<Machine>>,
    pub(in crate::pool) news: mpsc::UnboundedReceiver<RestoreNews>,
    pub(in crate::pool) sender: mpsc::UnboundedSender<DriverMessage>,
    pub(in crate::pool) states: watch::Sender<BTreeMap<String, SnapshotState>>,
    pub(in crate::pool) metrics: Metrics,
}

impl SnapshotKeeper {
    /// Keeps them until `ending`; then nothing is left but the volumes that the record names.
    pub(in crate::pool) async fn run(mut self, ending: CancellationToken) {
        let volumes = SnapshotVolumes { engine: self.engine.clone(), owner: self.owner.clone() };
        if !self.settings.enabled {
            RecordFile::open(self.settings.folder).save(SnapshotRecords::default()).await;
            // Containers of an earlier daemon may still mount them.
            ending.run_until_cancelled(sweep_all(&volumes)).await;
            return;
        }
        let mut record = RecordFile::open(self.settings.folder.clone());
        let terms = SnapshotTerms { age: self.settings.age, settled: SETTLED };
        let mut work = Work {
            core: SnapshotCore::new(
                terms,
                (std::mem::take(&mut self.whole.0), self.checks.pending()),
                SnapshotRecords::read(&self.settings.folder).unsupported,
            ),
            without: BTreeMap::new(),
            failing: BTreeSet::new(),
            tasks: JoinSet::new(),
            volumes: volumes.clone(),
            is_taking: false,
            is_checking: !self.checks.pending().is_empty(),
            is_untidy: false,
            sweep_at: None,
            look_at: None,
            sweeping: Arc::default(),
        };
        ending.run_until_cancelled(self.follow(&mut work, &mut record)).await;
        drop(self.checks);
        work.tasks.shutdown().await;
        let known = work.core.snapshots().map(|snapshot| snapshot.volume.clone()).collect();
        if let Err(error) = volumes.sweep(&known).await {
            warn!(%error, "what was made for snapshots could not be removed");
        }
    }

    async fn follow(&mut self, work: &mut Work, record: &mut RecordFile) {
        let is_end = |event: &SnapshotEvent| matches!(event, SnapshotEvent::Taken { .. });
        work.sweep();
        let found = self.candidates();
        self.on(work, SnapshotEvent::Found(found), record).await;
        let (mut up, mut machine) = (self.pool.engine_up_changes(), self.machine.subscribe());
        loop {
            if work.sweep_at.is_some_and(|at| at <= Instant::now()) {
                work.sweep();
            }
            if work.look_at.is_some_and(|at| at <= Instant::now()) {
                self.look(work);
            }
            let deadline = work.core.next_deadline().into_iter();
            let deadline = deadline.chain(work.sweep_at).chain(work.look_at).min();
            let event = tokio::select! {
                Ok(()) = self.runners.changed() => SnapshotEvent::Found(self.candidates()),
                Ok(()) = machine.changed() => SnapshotEvent::Found(self.candidates()),
                Ok(()) = up.changed() => {
                    if *up.borrow_and_update() {
                        work.sweep();
                        // It may have another kernel now, or be on another machine.
                        self.look(work);
                    }
                    continue;
                }
                end = self.checks.next() => self.checked(work, end),
                Some(news) = self.news.recv() => {
                    self.not_restored(work, news, record).await;
                    continue;
                }
                Some(done) = work.tasks.join_next() => match done {
                    Ok(done) => match self.done(work, done, record).await {
                        Some(event) => event,
                        None => continue,
                    },
                    Err(error) => {
                        tracing::error!(%error, "a task of the daemon failed");
                        continue;
                    }
                },
                () = sleep_until(deadline) => SnapshotEvent::Tick,
            };
            let taken = is_end(&event);
            self.on(work, event, record).await;
            if taken {
                work.ended_taking();
            }
        }
    }

    /// The runners that can have snapshots on this machine.
    fn candidates(&mut self) -> BTreeMap<String, Candidate> {
        let Some(machine) = self.machine.borrow().clone() else { return BTreeMap::new() };
        let runners = self.runners.borrow_and_update().clone();
        let candidates = runners.values().filter(|(_, runner)| is_candidate(runner, &self.runtimes));
        let candidates = candidates.map(|(_, runner)| {
            let key = key(&runner.image_id, &machine, &self.version);
            (runner.language.clone(), Candidate { image: runner.image_id.to_string(), key })
        });
        candidates.collect()
    }

    async fn not_restored(&self, work: &mut Work, news: RestoreNews, record: &mut RecordFile) {
        let RestoreNews { language, volume, container, why, failure } = news;
        self.metrics.not_restored(&language, failure);
        warn!(language, %volume, container, why,
            "the warm part could not be restored from its snapshot, and imports");
        let is_used = |work: &Work| work.core.current(&language).is_some_and(|one| one.volume == volume);
        if !is_used(work) {
            return; // it is being proved, or was withdrawn already
        }
        let event =
            SnapshotEvent::NotRestored { volume: volume.clone(), container, failure, why: why.clone() };
        let actions = work.core.on(event, Instant::now());
        if !is_used(work) {
            warn!(language, %volume, "the snapshot is used no more");
            if failure != RestoreFailure::Unsupported {
                work.without.insert(language.clone(), format!("the last one could not be restored: {why}"));
                work.failing.insert(language);
            }
        }
        self.carry_out(work, actions, record).await;
    }

    fn checked(&self, work: &mut Work, CheckEnd { volume, result }: CheckEnd) -> SnapshotEvent {
        work.is_checking = !self.checks.pending().is_empty();
        let language = work.core.snapshots().find(|one| one.volume == volume).map(|one| one.language.clone());
        if let (Err(why), Some(language)) = (&result, language) {
            work.without.insert(language.clone(), why.clone());
            work.failing.insert(language);
        }
        work.is_untidy |= result.is_err();
        if work.is_untidy {
            work.sweep();
        }
        SnapshotEvent::Checked { volume, is_whole: result.is_ok() }
    }

    /// Looks at the engine's machine again, in a container.
    fn look(&self, work: &mut Work) {
        work.look_at = None;
        let runners = self.runners.borrow().clone();
        let candidate = runners.values().find(|(_, runner)| is_candidate(runner, &self.runtimes));
        let Some((_, runner)) = candidate.cloned() else { return };
        let taker = self.taker(work);
        work.tasks.spawn(async move { Done::Looked(taker.look(&runner).await) });
    }

    fn looked(&self, work: &mut Work, looked: Result<Machine, TakeError>) {
        match looked {
            Ok(machine) => {
                let is_new = self.machine.send_if_modified(|known| {
                    let is_new = known.as_ref() != Some(&machine);
                    *known = Some(machine);
                    is_new
                });
                info!(is_new, "the engine's machine was looked at again");
            }
            Err(error) => {
                debug!(%error, "the engine's machine could not be looked at yet");
                work.look_at = Some(Instant::now() + LOOK_AGAIN);
            }
        }
    }

    fn taker(&self, work: &Work) -> Taker {
        let (pool, volumes) = (self.pool.clone(), work.volumes.clone());
        Taker { pool, volumes, version: self.version.clone(), disk: self.disk }
    }

    async fn done(&self, work: &mut Work, done: Done, record: &mut RecordFile) -> Option<SnapshotEvent> {
        match done {
            Done::Taken(language, result) => {
                let result = match result {
                    Ok(snapshot) => noted(work.records(), snapshot, record).await,
                    Err(error) => Err(error),
                };
                let outcome = result.as_ref().map_or_else(|error| error.outcome, |_| TakeOutcome::Ok);
                self.metrics.snapshot_taken(&language, outcome.as_str());
                let result = match result {
                    Ok(snapshot) => {
                        let (volume, bytes) = (&snapshot.volume, snapshot.bytes);
                        info!(language, %volume, bytes, "a snapshot of the warm part was taken");
                        work.without.remove(&language);
                        work.failing.remove(&language);
                        Ok(snapshot)
                    }
                    Err(error) => {
                        work.is_untidy = true;
                        let outcome = outcome.as_str();
                        let failure = error.clone().failure();
                        if matches!(failure, TakeFailure::Failed) {
                            warn!(language, outcome, %error, "no snapshot of the warm part");
                        } else {
                            // That is no defect.
                            info!(language, outcome, %error, "no snapshot of the warm part");
                        }
                        match &failure {
                            TakeFailure::Unsupported(_) => {
                                work.without.remove(&language);
                                work.failing.remove(&language);
                            }
                            // The one in use is as good as before.
                            TakeFailure::Busy if work.core.current(&language).is_some() => {}
                            TakeFailure::Busy | TakeFailure::Failed => {
                                work.without.insert(language.clone(), error.to_string());
                                if matches!(failure, TakeFailure::Failed) {
                                    work.failing.insert(language.clone());
                                }
                            }
                        }
                        Err(failure)
                    }
                };
                Some(SnapshotEvent::Taken { language, result })
            }
            Done::Removed(volume, gone) => Some(SnapshotEvent::Removed { volume, gone }),
            Done::Swept(is_tidy) => {
                work.sweep_at = (!is_tidy).then(|| Instant::now() + SWEEP_AGAIN);
                None
            }
            Done::Looked(looked) => {
                self.looked(work, looked);
                None
            }
        }
    }

    async fn on(&self, work: &mut Work, event: SnapshotEvent, record: &mut RecordFile) {
        let actions = work.core.on(event, Instant::now());
        self.carry_out(work, actions, record).await;
    }

    async fn carry_out(&self, work: &mut Work, actions: Vec<SnapshotAction>, record: &mut RecordFile) {
        let runners = self.runners.borrow().clone();
        work.without.retain(|language, _| runners.contains_key(language));
        // What is used newly was noted before. What fails here says only that less is there than was noted.
        record.save(work.records()).await;
        for action in actions {
            self.act(work, action);
        }
        let state = |language: &String| {
            if let Some(snapshot) = work.core.current(language) {
                return SnapshotState::Used(snapshot.clone());
            }
            if let Some(Snapshot { volume, bytes, .. }) = work.core.checking(language) {
                return SnapshotState::Checking { bytes: *bytes, read: self.checks.progress(volume) };
            }
            if let Some(unsupported) = work.core.unsupported().get(language) {
                return SnapshotState::Unsupported(unsupported.why.clone());
            }
            let why = work.without.get(language).cloned();
            SnapshotState::Without(why.unwrap_or_else(|| "none has been taken yet".to_owned()))
        };
        let candidates = runners.iter().filter(|(_, (_, runner))| is_candidate(runner, &self.runtimes));
        let states: BTreeMap<_, _> =
            candidates.map(|(language, _)| (language.clone(), state(language))).collect();
        let is_missing = |(language, state): (&String, &SnapshotState)| {
            matches!(state, SnapshotState::Without(_)) && work.failing.contains(language)
        };
        self.metrics.degradations().note(Degradation::SnapshotMissing, states.iter().any(is_missing));
        self.states.send_replace(states);
    }

    fn act(&self, work: &mut Work, action: SnapshotAction) {
        match action {
            SnapshotAction::Take { language, candidate } => {
                let runner = self.runners.borrow().get(&language).map(|(_, runner)| runner.clone());
                let machine = self.machine.borrow().clone();
                let (taker, last) = (self.taker(work), work.core.current(&language).map(|last| last.bytes));
                let sweeping = work.sweeping.clone();
                work.is_taking = true;
                work.tasks.spawn(async move {
                    drop(sweeping.lock().await);
                    let result = match (runner, machine) {
                        (Some(runner), Some(machine)) if runner.image_id.as_str() == candidate.image => {
                            taker.take(&runner, &machine, last).await
                        }
                        _ => Err(TakeError {
                            outcome: TakeOutcome::Busy,
                            why: "the image was replaced".to_owned(),
                        }),
                    };
                    Done::Taken(language, result)
                });
            }
            SnapshotAction::Use { language, image, volume } => {
                let snapshot = volume.map_or(SnapshotMount::None, SnapshotMount::Restored);
                let _ = self.sender.send(DriverMessage::UseSnapshot { language, image, snapshot });
            }
            SnapshotAction::Remove(volume) => {
                let volumes = work.volumes.clone();
                work.tasks.spawn(async move {
                    let gone = volumes.remove(&volume).await;
                    Done::Removed(volume, gone)
                });
            }
        }
    }
}

/// Notes a snapshot that was taken. One that is not noted is not used: its volume would be lost with the
/// daemon, and whoever mounts it would have what nobody knows.
async fn noted(
    mut records: SnapshotRecords,
    snapshot: Snapshot,
    record: &mut RecordFile,
) -> Result<Snapshot, TakeError> {
    records.without.remove(&snapshot.language);
    records.snapshots.push(snapshot.clone());
    if record.save(records).await {
        return Ok(snapshot);
    }
    // The volume goes with the next sweep, as what is left of every failure.
    let why = "it could not be noted in the store; the log says why".to_owned();
    Err(TakeError { outcome: TakeOutcome::Store, why })
}

/// The pause before the machine is looked at again, if that could not be done.
const LOOK_AGAIN: Duration = Duration::from_secs(10);
/// How often volumes of snapshots that are switched off are tried again.
const SWEEP: Duration = Duration::from_secs(30);

/// Removes all snapshots, each once no container of an earlier daemon mounts it: a session may keep one for
/// long.
async fn sweep_all(volumes: &SnapshotVolumes) {
    while !matches!(volumes.sweep(&BTreeSet::new()).await, Ok(true)) {
        tokio::time::sleep(SWEEP).await;
    }
}

async fn sleep_until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline.into()).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_snapshot_that_cannot_be_noted_counts_as_not_taken() {
        let dir = tempfile::tempdir().unwrap();
        let snapshot = Snapshot::example("x");
        let earlier = SnapshotRecords {
            without: BTreeMap::from([("python".to_owned(), "it failed".to_owned())]),
            ..SnapshotRecords::default()
        };
        let mut record = RecordFile::open(dir.path().to_owned());
        let taken = noted(earlier.clone(), snapshot.clone(), &mut record).await;
        assert_eq!(taken.unwrap(), snapshot);
        let noted_now = SnapshotRecords { snapshots: vec![snapshot.clone()], ..SnapshotRecords::default() };
        assert_eq!(SnapshotRecords::read(dir.path()), noted_now);
        let mut record = RecordFile::open("/nowhere".into());
        let error = noted(earlier, snapshot, &mut record).await.unwrap_err();
        assert_eq!(error.outcome, TakeOutcome::Store);
    }
}
