//! Sessions over a store on disk and a pool of fake containers, for the unit tests of this folder, and of
//! executions.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use paddock_proto::RelPath;
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

use super::lease::notes::{LeaseNote, LeaseNotes, RunNote};
use super::port::FoundContainer;
use super::port::fake::{FakeContainer, FakePool, collect_file};
use super::run::follow::{Control, OutputSink};
use super::run::report::RunReport;
use super::run::request::{Program, RunRequest};
use super::{ResumableRun, Session, SessionBounds, SessionError, Sessions, Turn, TurnKind};
use crate::config::{Config, Overrides};
use crate::egress::Egress;
use crate::metrics::Metrics;
use crate::store::{Amount, Batch, Options, Quota, Space, Store};
use crate::tenants::ProgramCredit;

/// Wall time of the runs of tests.
pub(super) const TIMEOUT: Duration = Duration::from_secs(60);

/// What `/data` may hold in tests.
pub(super) const QUOTA: Quota = Quota { bytes: 32 << 20, entries: 1000, file: 32 << 20 };

/// Sessions, and what is under them.
pub(crate) struct World {
    dir: TempDir,
    pub(crate) store: Arc<Store>,
    pub(super) pool: Arc<FakePool>,
    pub(crate) sessions: Arc<Sessions>,
    pub(crate) session: Arc<Session>,
}

/// The bounds of tests: a call may wait for long, since paused time passes quickly.
pub(super) fn bounds() -> SessionBounds {
    let config = Config::load(None, &BTreeMap::new(), &Overrides::default()).unwrap().config;
    SessionBounds {
        data: QUOTA.bytes,
        data_inodes: QUOTA.entries,
        max_log: 4 << 20,
        wait: Duration::from_secs(36_000),
        ..crate::app::session_bounds(&config, Arc::default())
    }
}

/// The way out as the defaults have it.
fn egress() -> Arc<Egress> {
    let config = Config::load(None, &BTreeMap::new(), &Overrides::default()).unwrap().config;
    Egress::open(config.egress, Metrics::default())
}

/// A store in a directory of its own.
pub(super) fn store() -> (TempDir, Arc<Store>) {
    let dir = tempfile::tempdir().unwrap();
    let total = Amount { bytes: 1 << 30, entries: 1 << 30 };
    let store = Arc::new(Store::open(dir.path(), Options { quota: QUOTA, total }).unwrap());
    (dir, store)
}

impl World {
    /// A world in which a call waits for its container for as long as it may.
    pub(crate) async fn without_containers() -> Self {
        Self::new(&[]).await
    }

    /// A world after a restart of the daemon, and a command of this id, which is about to end in the session
    /// and to leave the file `out`.
    pub(crate) async fn with_a_command_in_flight(id: &str) -> (Self, ResumableRun) {
        let container = FakeContainer::scripted("c1", |script| script.collect = collect_file("out", "made"));
        let world = Self::new(&[]).await;
        let run = RunNote { id: id.to_owned(), timeout: TIMEOUT, is_command: true, network: None };
        let note = LeaseNote {
            owner: world.session.owner.clone(),
            session: world.session.id.as_str().to_owned(),
            language: "python".to_owned(),
            runs: vec![run],
            unsaved: false,
            kept_since_ms: None,
        };
        // As a daemon leaves it that is killed.
        std::mem::forget(LeaseNotes::new(world.store.folder("leases").unwrap()).write("c1", note));
        let (claim, runs) = (world.session.claim(), vec![id.to_owned()]);
        let found = FoundContainer { container: container.lease().await, claim, runs };
        let run = world.sessions.recover(vec![found], BTreeSet::new(), BTreeMap::new()).await.pop().unwrap();
        (world, run)
    }

    pub(super) async fn new(containers: &[&FakeContainer]) -> Self {
        Self::bounded(containers, bounds()).await
    }

    pub(super) async fn bounded(containers: &[&FakeContainer], bounds: SessionBounds) -> Self {
        let (dir, store) = store();
        let pool = Arc::new(FakePool::default());
        containers.iter().for_each(|container| pool.add(container));
        let sessions =
            Sessions::with_pool(store.clone(), pool.clone(), egress(), bounds, Metrics::default()).unwrap();
        let session = sessions.get("owner", &"session".parse().unwrap()).await.unwrap();
        Self { dir, store, pool, sessions, session }
    }

    pub(crate) async fn enter(&self, kind: TurnKind) -> Result<Turn, SessionError> {
        self.sessions.enter(&self.session.owner, &self.session.id, kind).await
    }

    /// The turn of a command, beside others.
    pub(super) async fn command_turn(&self) -> Turn {
        self.enter(TurnKind::Command("python".into())).await.unwrap()
    }

    pub(super) async fn turn(&self) -> Turn {
        self.enter(TurnKind::Code("python".into())).await.unwrap()
    }

    /// A turn, if the session can be entered at once.
    pub(super) async fn try_turn(&self) -> Result<Turn, SessionError> {
        let (owner, id) = (&self.session.owner, &self.session.id);
        self.sessions.try_enter(owner, id, TurnKind::Code("python".into())).await
    }

    /// Runs code with a sink that keeps nothing.
    pub(super) async fn run(&self) -> Result<RunReport, SessionError> {
        self.run_with(Control::end_only(&CancellationToken::new())).await
    }

    /// Runs code in another session.
    pub(super) async fn run_in(&self, session: &Arc<Session>) -> Result<RunReport, SessionError> {
        let kind = TurnKind::Code("python".into());
        let turn = self.sessions.enter(&session.owner, &session.id, kind).await?;
        let control = Control::end_only(&CancellationToken::new());
        self.sessions.runs().execute(&turn, &code(), ProgramCredit::default(), control, &mut Ignore).await
    }

    pub(super) async fn run_with(&self, control: Control) -> Result<RunReport, SessionError> {
        self.execute(&code(), control, &mut Ignore).await
    }

    pub(super) async fn execute(
        &self,
        request: &RunRequest,
        control: Control,
        sink: &mut dyn OutputSink,
    ) -> Result<RunReport, SessionError> {
        let turn = self.turn().await;
        self.sessions.runs().execute(&turn, request, ProgramCredit::default(), control, sink).await
    }

    /// The notes of leases, as the next daemon reads them.
    pub(super) fn notes(&self) -> Vec<(String, LeaseNote)> {
        LeaseNotes::new(self.store.folder("leases").unwrap()).read()
    }

    /// What the store has under this path.
    pub(crate) fn saved(&self, path: &str) -> Option<String> {
        saved(&self.session.space, path)
    }

    /// The text of a file beside those of sessions, such as a log or a diff, by its name.
    pub(crate) fn log_of(&self, name: &str) -> Option<String> {
        let mut dirs = vec![self.dir.path().to_owned()];
        while let Some(dir) = dirs.pop() {
            // The store removes temporary folders meanwhile.
            let Ok(entries) = std::fs::read_dir(dir) else { continue };
            for path in entries.filter_map(|entry| entry.ok().map(|entry| entry.path())) {
                if path.file_name().unwrap() == name {
                    return std::fs::read_to_string(path).ok();
                }
                dirs.extend(path.is_dir().then_some(path));
            }
        }
        None
    }

    /// Removes a file of the session, as a call does.
    pub(crate) async fn remove(&self, path: &str) {
        let mut batch = Batch::new(self.session.space.clone());
        batch.remove(RelPath::new(path).unwrap());
        batch.commit().await.unwrap();
    }

    /// Saves a file in the session, as an upload does.
    pub(crate) async fn save(&self, path: &str, content: &[u8]) {
        save(&self.session.space, path, content).await;
    }
}

pub(super) fn saved(space: &Space, path: &str) -> Option<String> {
    let path = RelPath::new(path).unwrap();
    space.manifest().get(&path)?;
    let mut content = String::new();
    space.open(&path).unwrap().read_to_string(&mut content).unwrap();
    Some(content)
}

pub(super) async fn save(space: &Arc<Space>, path: &str, content: &[u8]) {
    let mut batch = Batch::new(space.clone());
    batch.file(super::port::fake::file(path, 0));
    batch.write(content).await.unwrap();
    batch.keep();
    batch.commit().await.unwrap();
}

/// A program with code.
pub(super) fn code() -> RunRequest {
    let program = Program::Code { code: Bytes::from_static(b"print('hi')"), stdin: None };
    RunRequest::new("run_1".into(), "python".into(), program, TIMEOUT)
}

/// A command.
pub(super) fn command(interactive: bool) -> RunRequest {
    let program = Program::Command { command: "true".into(), interactive };
    RunRequest::new("run_1".into(), "python".into(), program, TIMEOUT)
}

/// A sink that keeps nothing, and says that it keeps everything.
pub(super) struct Ignore;

impl OutputSink for Ignore {
    fn resumed(&mut self, _: u64) {}

    fn take(&mut self, _: paddock_proto::OutputStream, _: Bytes) {}

    fn is_kept(&self) -> bool {
        true
    }
}
