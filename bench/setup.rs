//! Everything that is measured, set up once: the daemon with a client, a reference container for each
//! language, the floor; and, where the blocks need them, a second daemon whose pool is empty, and the peers.
//!
//! It must never be taken down without a look at what is left.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use futures_util::future::join_all;
use paddock::app;
use paddock::engine::{Engine, EngineLimits};
use paddock::pool::PoolConfig;
use tempfile::TempDir;

use crate::Result;
use crate::client::Client;
use crate::daemon::{self, Daemon};
use crate::floor::{Floor, FloorKind};
use crate::peers::{Peer, PeerKind};
use crate::programs::PYTHON;
use crate::reference_container::ReferenceContainer;

const LANGUAGES: [&str; 3] = ["python", "typescript", "sh"];

/// User ids of the reference containers and of the floor, above those of the daemons. Further containers of
/// the floor have the one of Python's reference container.
const FIRST_UID: u32 = 32_000;
const FLOOR_UID: u32 = 32_100;
const BARE_UID: u32 = 32_101;
/// Containers of the floor that are started or removed at one time.
const TOGETHER: usize = 4;

/// What a row takes beside the daemon, the reference containers and the floor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Need {
    EmptyPool,
    Peer(PeerKind),
}

pub(crate) struct Setup {
    pub(crate) engine: Engine,
    /// For files of this run: on the disk of the build folder, where a sync costs what it costs on a disk.
    pub(crate) dir: TempDir,
    pub(crate) floors: Vec<Floor>,
    /// The floor that has imported nothing.
    bare: Option<Floor>,
    pool: PoolConfig,
    ours: Option<(Daemon, Client)>,
    empty: Option<(Daemon, Client)>,
    /// Daemons of single blocks, by the names of their folders.
    others: Vec<(&'static str, Daemon, Client)>,
    /// The folders of all daemons that were started.
    folders: Vec<&'static str>,
    references: BTreeMap<&'static str, ReferenceContainer>,
    peers: BTreeMap<PeerKind, Peer>,
    sessions: u32,
}

/// The folder of the results.
pub(crate) fn results() -> Result<PathBuf> {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().ok_or("no target directory")?;
    let dir = target.join("bench");
    std::fs::create_dir_all(&dir)?;
    Ok(dir)
}

impl Setup {
    /// Nothing is started yet.
    pub(crate) async fn new() -> Result<Self> {
        let dir = tempfile::Builder::new().prefix("bench-").tempdir_in(env!("CARGO_TARGET_TMPDIR"))?;
        let config = daemon::config(dir.path())?;
        let engine = Engine::connect(&app::engine_host(&config)?, EngineLimits::default()).await?;
        let pool = app::pool(&config, paddock::id::random_hex::<16>(), paddock::id::random_bytes());
        Ok(Self {
            engine,
            dir,
            floors: Vec::new(),
            bare: None,
            pool,
            ours: None,
            empty: None,
            others: Vec::new(),
            folders: Vec::new(),
            references: BTreeMap::new(),
            peers: BTreeMap::new(),
            sessions: 0,
        })
    }

    /// Starts what is needed beside the daemon, its references and one floor.
    pub(crate) async fn set_up(&mut self, needs: &BTreeSet<Need>) -> Result<()> {
        self.ours = Some(self.daemon("daemon", daemon::CONFIG).await?);
        for (language, uid) in LANGUAGES.into_iter().zip(FIRST_UID..) {
            self.references
                .insert(language, ReferenceContainer::start(&self.engine, &self.pool, language, uid).await?);
            self.ours()?.0.wait_for_armed(language, 1).await?;
        }
        self.floors.push(Floor::start(&self.engine, &self.pool, FLOOR_UID, FloorKind::Heavy).await?);
        self.bare = Some(Floor::start(&self.engine, &self.pool, BARE_UID, FloorKind::Bare).await?);
        for need in needs {
            match need {
                Need::EmptyPool => self.empty = Some(self.daemon("empty", daemon::EMPTY).await?),
                Need::Peer(kind) => {
                    let image = self.reference(PYTHON.language)?.specimen.plan.container.image.clone();
                    let label = owned(&self.pool.owner);
                    let peer = Peer::start(*kind, &image, &label, &results()?).await?;
                    self.peers.insert(*kind, peer);
                }
            }
        }
        Ok(())
    }

    async fn daemon(&mut self, name: &'static str, config: &str) -> Result<(Daemon, Client)> {
        self.start(Path::new(env!("CARGO_BIN_EXE_paddock")), name, config).await
    }

    async fn start(&mut self, program: &Path, name: &'static str, config: &str) -> Result<(Daemon, Client)> {
        self.folders.push(name);
        let log = results()?.join(format!("{name}.log"));
        let daemon = Daemon::start(program, &self.dir.path().join(name), config, &log).await?;
        let client = Client::connect(&daemon).await?;
        // An older build may know no snapshots.
        if program == Path::new(env!("CARGO_BIN_EXE_paddock")) && config.contains("python =") {
            daemon.wait_for_snapshot(!config.contains("idle = 0")).await?;
        }
        Ok((daemon, client))
    }

    /// Starts a daemon for one block, with a configuration of its own.
    pub(crate) async fn other(&mut self, name: &'static str, config: &str) -> Result<(&Daemon, &mut Client)> {
        self.build(Path::new(env!("CARGO_BIN_EXE_paddock")), name, config).await
    }

    /// The folder in which the nodes of a block note whose a session is.
    pub(crate) fn owners(&self) -> PathBuf {
        self.dir.path().join(daemon::OWNERS)
    }

    /// The same of another build.
    pub(crate) async fn build(
        &mut self,
        program: &Path,
        name: &'static str,
        config: &str,
    ) -> Result<(&Daemon, &mut Client)> {
        let (daemon, client) = self.start(program, name, config).await?;
        self.others.push((name, daemon, client));
        self.others.last_mut().map(|(_, daemon, client)| (&*daemon, client)).ok_or_else(|| "no daemon".into())
    }

    /// Ends the daemon of a block, whose containers would disturb the blocks behind it.
    pub(crate) async fn end(&mut self, name: &str) -> Result<()> {
        let place = self.others.iter().position(|(other, ..)| *other == name);
        let (_, daemon, client) = self.others.remove(place.ok_or_else(|| format!("no daemon {name}"))?);
        drop(client);
        daemon.stop().await
    }

    pub(crate) fn ours(&mut self) -> Result<&mut (Daemon, Client)> {
        Ok(self.ours.as_mut().ok_or("the daemon is not up")?)
    }

    pub(crate) fn client(&mut self) -> Result<&mut Client> {
        Ok(&mut self.ours()?.1)
    }

    /// The client of the daemon whose pool is empty.
    pub(crate) fn empty(&mut self) -> Result<&mut Client> {
        Ok(&mut self.empty.as_mut().ok_or("the daemon with an empty pool is not up")?.1)
    }

    pub(crate) fn reference(&mut self, language: &str) -> Result<&mut ReferenceContainer> {
        self.references.get_mut(language).ok_or_else(|| format!("no container for {language}").into())
    }

    pub(crate) fn peer(&mut self, kind: PeerKind) -> Result<&mut Peer> {
        self.peers.get_mut(&kind).ok_or_else(|| format!("{kind:?} is not up").into())
    }

    /// Starts containers of the floor until there are this many.
    pub(crate) async fn floors(&mut self, count: usize) -> Result<()> {
        while self.floors.len() < count {
            let like = &self.references.get(PYTHON.language).ok_or("no container for Python")?.specimen;
            let some = TOGETHER.min(count - self.floors.len());
            let each = (0..some).map(|_| Floor::another(&self.engine, like));
            for floor in join_all(each).await {
                self.floors.push(floor?);
            }
        }
        Ok(())
    }

    pub(crate) fn bare(&mut self) -> Result<&mut Floor> {
        self.bare.as_mut().ok_or_else(|| "the bare floor was not started".into())
    }

    /// So many containers of the floor, and the reference container of a language.
    pub(crate) fn floors_and_reference(
        &mut self,
        count: usize,
        language: &str,
    ) -> Result<(&mut [Floor], &ReferenceContainer)> {
        let reference =
            self.references.get(language).ok_or_else(|| format!("no container for {language}"))?;
        let floors = self.floors.get_mut(..count).ok_or("too few containers of the floor")?;
        Ok((floors, reference))
    }

    /// A session that nobody has used.
    pub(crate) fn new_session(&mut self) -> String {
        self.sessions += 1;
        format!("bench-{}", self.sessions)
    }

    /// Removes everything, whatever fails on the way, and reports what a daemon should have removed and did
    /// not.
    pub(crate) async fn take_down(mut self) -> Result<()> {
        let mut faults = Vec::new();
        let mut took = |result: Result<()>| faults.extend(result.err().map(|error| error.to_string()));
        for (_, peer) in std::mem::take(&mut self.peers) {
            took(peer.stop().await);
        }
        for (_, reference) in std::mem::take(&mut self.references) {
            took(reference.remove().await);
        }
        if let Some(bare) = self.bare.take() {
            took(bare.remove().await);
        }
        while !self.floors.is_empty() {
            let some = self.floors.split_off(self.floors.len().saturating_sub(TOGETHER));
            join_all(some.into_iter().map(Floor::remove)).await.into_iter().for_each(&mut took);
        }
        let others: Vec<_> = std::mem::take(&mut self.others);
        let others = others.into_iter().map(|(_, daemon, client)| (daemon, client));
        for (daemon, client) in [self.ours.take(), self.empty.take()].into_iter().flatten().chain(others) {
            drop(client);
            took(daemon.stop().await);
        }
        // After an interruption nothing else removes what was being made.
        self.sweep(&self.pool.owner, false).await?;
        took(self.remove_kept(&self.pool.owner).await);
        for name in &self.folders {
            if let Ok(owner) = std::fs::read_to_string(self.dir.path().join(name).join("store/owner")) {
                took(self.sweep(owner.trim(), true).await);
                took(self.remove_kept(owner.trim()).await);
            }
        }
        if faults.is_empty() { Ok(()) } else { Err(faults.join("; ").into()) }
    }

    /// Removes what outlives a daemon: the layers of packages, and the snapshots of warm parts, which stay
    /// for the next daemon of the store.
    async fn remove_kept(&self, owner: &str) -> Result<()> {
        for app in ["app=paddock-packages", "app=paddock-snapshot"] {
            let labels = [app.to_owned(), format!("paddock.made-by={owner}")];
            for volume in self.engine.volume_list(&labels).await? {
                self.engine.volume_remove(&volume.name).await?;
            }
        }
        Ok(())
    }

    /// Removes everything with this owner's label. `fault`: there should have been nothing.
    async fn sweep(&self, owner: &str, fault: bool) -> Result<()> {
        let labels = [owned(owner)];
        let mut left = Vec::new();
        for container in self.engine.container_list(&labels).await? {
            self.engine.container_remove(&container.id).await?;
            left.push(format!("container {}", container.id));
        }
        for volume in self.engine.volume_list(&labels).await? {
            self.engine.volume_remove(&volume.name).await?;
            left.push(format!("volume {}", volume.name));
        }
        if fault && !left.is_empty() { Err(format!("was left: {}", left.join(", ")).into()) } else { Ok(()) }
    }
}

fn owned(owner: &str) -> String {
    format!("paddock.owner={owner}")
}
