//! Everything that is measured, set up once: the daemon with a client, a twin of its containers for each language, the
//! floor; and, where the blocks want them, a second daemon whose pool is empty, and the peers. Taking it down looks
//! whether anything is left.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use futures_util::future::join_all;
use paddock::app;
use paddock::engine::{Engine, EngineLimits};
use paddock::pool::PoolConfig;
use tempfile::TempDir;

use crate::client::Client;
use crate::daemon::{self, Daemon};
use crate::floor::Floor;
use crate::peers::{Kind, Peer};
use crate::rows::{Need, PYTHON};
use crate::twin::Twin;
use crate::{Result, flood};

const LANGUAGES: [&str; 3] = ["python", "typescript", "sh"];

/// Of the twins and the floor: above those of the daemons. Further containers of the floor have the Python twin's.
const FIRST_UID: u32 = 32_000;
const FLOOR_UID: u32 = 32_100;
/// Of the floor's containers, started or removed at one time.
const TOGETHER: usize = 4;

pub(crate) struct Stand {
    pub(crate) engine: Engine,
    /// For files of this run: on the disk where builds are, so that saving costs what saving costs.
    pub(crate) dir: TempDir,
    pub(crate) floors: Vec<Floor>,
    pool: PoolConfig,
    ours: Option<(Daemon, Client)>,
    empty: Option<(Daemon, Client)>,
    /// Where commands flood.
    flooded: Option<(Daemon, Client)>,
    twins: BTreeMap<&'static str, Twin>,
    peers: BTreeMap<Kind, Peer>,
    sessions: u32,
}

/// Where the results go.
pub(crate) fn results() -> Result<PathBuf> {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().ok_or("no target directory")?;
    let dir = target.join("bench");
    std::fs::create_dir_all(&dir)?;
    Ok(dir)
}

impl Stand {
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
            pool,
            ours: None,
            empty: None,
            flooded: None,
            twins: BTreeMap::new(),
            peers: BTreeMap::new(),
            sessions: 0,
        })
    }

    /// Starts what is needed beside the daemon, its twins and one floor.
    pub(crate) async fn set_up(&mut self, needs: &BTreeSet<Need>) -> Result<()> {
        self.ours = Some(self.daemon("daemon", daemon::CONFIG).await?);
        for (language, uid) in LANGUAGES.into_iter().zip(FIRST_UID..) {
            self.twins.insert(language, Twin::start(&self.engine, &self.pool, language, uid).await?);
            self.ours()?.0.wait_for_armed(language, 1).await?;
        }
        self.floors.push(Floor::start(&self.engine, &self.pool, FLOOR_UID).await?);
        for need in needs {
            match need {
                Need::EmptyPool => self.empty = Some(self.daemon("empty", daemon::EMPTY).await?),
                Need::Peer(kind) => {
                    let image = self.twin(PYTHON.language)?.specimen.plan.container.image.clone();
                    let label = owned(&self.pool.owner);
                    let peer = Peer::start(*kind, &image, &label, &results()?).await?;
                    self.peers.insert(*kind, peer);
                }
            }
        }
        Ok(())
    }

    async fn daemon(&self, name: &str, config: &str) -> Result<(Daemon, Client)> {
        let log = results()?.join(format!("{name}.log"));
        let daemon = Daemon::start(&self.dir.path().join(name), config, &log).await?;
        let client = Client::connect(&daemon).await?;
        Ok((daemon, client))
    }

    /// One that lets many commands run.
    pub(crate) async fn flooded(&mut self) -> Result<&mut (Daemon, Client)> {
        let flooded = self.daemon(flood::NAME, flood::CONFIG).await?;
        Ok(self.flooded.insert(flooded))
    }

    pub(crate) fn ours(&mut self) -> Result<&mut (Daemon, Client)> {
        Ok(self.ours.as_mut().ok_or("the daemon is not up")?)
    }

    pub(crate) fn client(&mut self) -> Result<&mut Client> {
        Ok(&mut self.ours()?.1)
    }

    /// Of the daemon whose pool is empty.
    pub(crate) fn empty(&mut self) -> Result<&mut Client> {
        Ok(&mut self.empty.as_mut().ok_or("the daemon with an empty pool is not up")?.1)
    }

    pub(crate) fn twin(&mut self, language: &str) -> Result<&mut Twin> {
        self.twins.get_mut(language).ok_or_else(|| format!("no container for {language}").into())
    }

    pub(crate) fn peer(&mut self, kind: Kind) -> Result<&mut Peer> {
        self.peers.get_mut(&kind).ok_or_else(|| format!("{kind:?} is not up").into())
    }

    /// Sees that there are so many containers of the floor.
    pub(crate) async fn floors(&mut self, count: usize) -> Result<()> {
        while self.floors.len() < count {
            let like = &self.twins.get(PYTHON.language).ok_or("no container for Python")?.specimen;
            let some = TOGETHER.min(count - self.floors.len());
            let each = (0..some).map(|_| Floor::another(&self.engine, like));
            for floor in join_all(each).await {
                self.floors.push(floor?);
            }
        }
        Ok(())
    }

    /// A session that nobody has used.
    pub(crate) fn new_session(&mut self) -> String {
        self.sessions += 1;
        format!("bench-{}", self.sessions)
    }

    /// Removes everything, whatever fails on the way, and says what was left by those who should have.
    pub(crate) async fn take_down(mut self) -> Result<()> {
        let mut faults = Vec::new();
        let mut took = |result: Result<()>| faults.extend(result.err().map(|error| error.to_string()));
        for (_, peer) in std::mem::take(&mut self.peers) {
            took(peer.stop().await);
        }
        for (_, twin) in std::mem::take(&mut self.twins) {
            took(twin.remove().await);
        }
        while !self.floors.is_empty() {
            let some = self.floors.split_off(self.floors.len().saturating_sub(TOGETHER));
            join_all(some.into_iter().map(Floor::remove)).await.into_iter().for_each(&mut took);
        }
        for (daemon, client) in
            [self.ours.take(), self.empty.take(), self.flooded.take()].into_iter().flatten()
        {
            drop(client);
            took(daemon.stop().await);
        }
        // What was on its way when this was broken off has nobody else.
        self.sweep(&self.pool.owner, false).await?;
        for name in ["daemon", "empty", flood::NAME] {
            if let Ok(owner) = std::fs::read_to_string(self.dir.path().join(name).join("store/owner")) {
                took(self.sweep(owner.trim(), true).await);
            }
        }
        if faults.is_empty() { Ok(()) } else { Err(faults.join("; ").into()) }
    }

    /// Removes all that carries this owner's label. `fault`: there should have been nothing.
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
