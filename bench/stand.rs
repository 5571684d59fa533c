//! Everything that is measured, set up once: the daemon with a client, and a twin of its containers for each
//! language. Taking it down looks whether anything is left.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use paddock::app;
use paddock::engine::{Engine, EngineLimits};
use paddock::link::Terms;
use paddock::pool::PoolConfig;
use tempfile::TempDir;

use crate::Result;
use crate::client::Client;
use crate::daemon::{self, Daemon};
use crate::twin::Twin;

pub(crate) const LANGUAGES: [&str; 3] = ["python", "typescript", "sh"];

/// Above those of the daemon.
const FIRST_UID: u32 = 31_000;

pub(crate) struct Stand {
    pub(crate) engine: Engine,
    pub(crate) daemon: Daemon,
    pub(crate) client: Client,
    /// For files of this run: on the disk where builds are, so that saving costs what saving costs.
    pub(crate) dir: TempDir,
    twins: BTreeMap<&'static str, Twin>,
    /// Whose the twins are, and what the daemon makes.
    owners: BTreeSet<String>,
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
    pub(crate) async fn set_up() -> Result<Self> {
        let dir = tempfile::Builder::new().prefix("bench-").tempdir_in(env!("CARGO_TARGET_TMPDIR"))?;
        let config = daemon::config(dir.path())?;
        let engine = Engine::connect(&config.engine.host.parse()?, EngineLimits::default()).await?;
        let daemon = Daemon::start(dir.path(), &results()?.join("daemon.log")).await?;
        let client = Client::connect(&daemon).await?;
        let owner = paddock::id::random_hex::<16>();
        let daemons = std::fs::read(dir.path().join("store/owner"))?;
        let pool = PoolConfig {
            settings: config.pool.clone(),
            bounds: app::bounds(&config),
            owner: owner.clone(),
            terms: Terms { secret: paddock::id::random_bytes(), orphan_after: config.agent.orphan_after },
            images: config.runners.clone(),
            warm_parts: config.agent.warm_parts,
        };
        let owners = BTreeSet::from([owner, String::from_utf8(daemons)?.trim().to_owned()]);
        let mut stand = Self { engine, daemon, client, dir, twins: BTreeMap::new(), owners, sessions: 0 };
        for (language, uid) in LANGUAGES.into_iter().zip(FIRST_UID..) {
            match Twin::start(&stand.engine, &pool, language, uid).await {
                Ok(twin) => drop(stand.twins.insert(language, twin)),
                Err(error) => {
                    stand.take_down().await?;
                    return Err(error);
                }
            }
            stand.daemon.wait_for_armed(language, 1).await?;
        }
        Ok(stand)
    }

    pub(crate) fn twin(&mut self, language: &str) -> Result<&mut Twin> {
        self.twins.get_mut(language).ok_or_else(|| format!("no container for {language}").into())
    }

    /// A session that nobody has used.
    pub(crate) fn new_session(&mut self) -> String {
        self.sessions += 1;
        format!("bench-{}", self.sessions)
    }

    /// Removes everything, whatever fails on the way, and says what is left all the same.
    pub(crate) async fn take_down(self) -> Result<()> {
        drop(self.client);
        let mut faults = Vec::new();
        for (_, twin) in self.twins {
            faults.extend(twin.remove().await.err().map(|error| error.to_string()));
        }
        faults.extend(self.daemon.stop().await.err().map(|error| error.to_string()));
        for owner in &self.owners {
            let labels = [format!("paddock.owner={owner}")];
            let containers = self.engine.container_list(&labels).await?;
            let volumes = self.engine.volume_list(&labels).await?;
            faults.extend(containers.iter().map(|container| format!("left: container {}", container.id)));
            faults.extend(volumes.iter().map(|volume| format!("left: volume {}", volume.name)));
        }
        if faults.is_empty() { Ok(()) } else { Err(faults.join("; ").into()) }
    }
}
