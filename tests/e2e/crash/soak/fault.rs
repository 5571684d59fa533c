//! The faults of a soak, and the stage on which they happen: a private engine behind a proxy, and a disk of
//! the test's own.
//!
//! A fault must be mended when it has happened: what follows measures how soon service is back.

use std::time::Duration;

use futures_util::future::join_all;

use crate::support::{BadDisk, Chance, Daemon, EngineProxy, Mode, PATIENCE, PrivateEngine, Store, within};

const DISK: u64 = 6 << 30;
/// More than the journal takes, so that the content has sectors of its own.
const LARGE: usize = 6 << 20;
const MARK: &[u8] = b"THIS SECTOR FAILS IN A SOAK";
/// Calls of a burst.
const BURST: usize = 120;
const SLOW_REQUEST: Duration = Duration::from_millis(300);
const SLOW_SYNC: Duration = Duration::from_millis(500);

pub(super) struct Stage {
    // In this order: the disk is mounted at the store.
    pub(super) disk: BadDisk,
    pub(super) store: Store,
    pub(super) proxy: EngineProxy,
    engine: PrivateEngine,
    /// The engine without the proxy.
    pub(super) host: String,
}

impl Stage {
    pub(super) async fn set(images: &[&str]) -> Stage {
        let engine = PrivateEngine::empty().await;
        images.iter().for_each(|image| engine.load(image));
        let store = Store::new();
        let disk = BadDisk::at(store.path(), DISK);
        let host = engine.host();
        Stage { disk, store, proxy: EngineProxy::of(&host), engine, host }
    }

    /// After the last daemon: no container, no volume but the agent's, no session on the disk.
    pub(super) async fn expect_nothing_left(&self) {
        let docker = |arguments: &[&str]| {
            let done = std::process::Command::new("docker").args(["-H", &self.host]).args(arguments).output();
            String::from_utf8(done.expect("docker").stdout).expect("text")
        };
        assert_eq!(docker(&["ps", "-aq"]), "", "containers are left");
        let volumes = docker(&["volume", "ls", "-q"]);
        let others: Vec<_> = volumes.lines().filter(|name| !name.starts_with("paddock-agent-")).collect();
        assert!(others.is_empty(), "volumes are left: {others:?}");
        let names = std::fs::read_dir(self.store.path()).expect("the store").flatten();
        let sessions: Vec<_> = names.map(|entry| entry.file_name()).filter(|name| name.len() == 64).collect();
        assert!(sessions.is_empty(), "sessions are left: {sessions:?}");
    }
}

/// What goes wrong.
#[derive(Clone, Debug)]
pub(super) enum Fault {
    DaemonKilled,
    DaemonStoppedInBurst,
    EngineKilled(Duration),
    EngineRestarted,
    EngineSuspended(Duration),
    EngineRefuses(Duration),
    EngineSlow(Duration),
    ContainerdKilled,
    DiskSlow(Duration),
    DiskFull(Duration),
    SectorFails,
}

impl Fault {
    pub(super) fn name(&self) -> &'static str {
        match self {
            Fault::DaemonKilled => "the daemon is killed, and restarted",
            Fault::DaemonStoppedInBurst => "SIGTERM in a burst of calls, and a restart",
            Fault::EngineKilled(_) => "the engine is killed, and restarted",
            Fault::EngineRestarted => "the engine is restarted",
            Fault::EngineSuspended(_) => "the engine is suspended",
            Fault::EngineRefuses(_) => "the engine answers 500",
            Fault::EngineSlow(_) => "the engine is slow (300 ms each request)",
            Fault::ContainerdKilled => "containerd is killed, and restarted by the engine",
            Fault::DiskSlow(_) => "a sync takes 500 ms",
            Fault::DiskFull(_) => "the store's disk is full",
            Fault::SectorFails => "a sector fails at a write, then a `kill -9`",
        }
    }

    /// Whether it is told to stop, and ends what runs.
    pub(super) fn stops_daemon(&self) -> bool {
        matches!(self, Fault::DaemonStoppedInBurst)
    }

    /// Whether the daemon's life ends with it.
    pub(super) fn ends_daemon(&self) -> bool {
        matches!(self, Fault::DaemonKilled | Fault::DaemonStoppedInBurst)
    }

    /// Whether the daemon asks to be restarted afterwards.
    pub(super) fn wants_restart(&self) -> bool {
        matches!(self, Fault::SectorFails)
    }

    /// Lets it happen, and mends it.
    pub(super) async fn happen(&self, stage: &mut Stage, d: &Daemon) {
        match self {
            Fault::DaemonKilled => d.kill(),
            Fault::DaemonStoppedInBurst => burst(d).await,
            Fault::EngineKilled(time) => {
                stage.engine.kill();
                tokio::time::sleep(*time).await;
                stage.engine.start().await;
            }
            Fault::EngineRestarted => stage.engine.restart_with(&[]).await,
            Fault::EngineSuspended(time) => {
                stage.engine.suspend();
                tokio::time::sleep(*time).await;
                stage.engine.resume();
            }
            Fault::EngineRefuses(time) => through(stage, Mode::Refusing, *time).await,
            Fault::EngineSlow(time) => through(stage, Mode::Slow(SLOW_REQUEST), *time).await,
            Fault::ContainerdKilled => {
                let before = stage.engine.kill_containerd();
                let restarted = async {
                    while stage.engine.containerd().is_none_or(|now| now == before) {
                        tokio::time::sleep(Duration::from_millis(50)).await;
                    }
                };
                within(PATIENCE, "another containerd", restarted).await;
            }
            Fault::DiskSlow(time) => {
                stage.disk.sync_takes(SLOW_SYNC);
                tokio::time::sleep(*time).await;
                stage.disk.sync_takes(Duration::ZERO);
            }
            Fault::DiskFull(time) => {
                let filler = stage.disk.fill();
                tokio::time::sleep(*time).await;
                drop(filler);
            }
            Fault::SectorFails => {
                let mut content: Vec<u8> = b"content\n".iter().copied().cycle().take(LARGE).collect();
                content[LARGE / 2..LARGE / 2 + MARK.len()].copy_from_slice(MARK);
                stage.disk.fail_at(MARK);
                let refused = d.session("sector").upload("f", &content).await;
                refused.expect_error("quota_exceeded");
                assert!(stage.disk.failed() > 0, "no sector failed");
                stage.disk.mend();
                d.session("sector").tool("close_session").with("delete_files", true).await;
            }
        }
    }

    /// Waits for the end of the daemon.
    pub(super) async fn end(&self, d: Daemon, stage: &Stage) {
        if self.stops_daemon() {
            drop(d.stop_on(&stage.host).await);
        } else {
            drop(d.crash().await);
        }
    }
}

async fn through(stage: &Stage, mode: Mode, time: Duration) {
    stage.proxy.set(mode);
    tokio::time::sleep(time).await;
    stage.proxy.set(Mode::Through);
}

/// The names of the sessions of bursts.
pub(super) fn burst_sessions() -> impl Iterator<Item = String> {
    (0..20).map(|n| format!("burst-{n}"))
}

/// Many calls at once, and the signal in the middle of them.
async fn burst(d: &Daemon) {
    let sessions: Vec<_> = burst_sessions().map(|name| d.session(&name)).collect();
    let calls = (0..BURST).map(|n| sessions[n % sessions.len()].sh("echo burst").try_answer());
    let signal = async {
        tokio::time::sleep(Duration::from_millis(20)).await;
        d.terminate();
    };
    tokio::join!(join_all(calls), signal);
}

/// The faults to come: each kind once, then any.
pub(super) struct Deck {
    longest: Duration,
    left: Vec<u64>,
}

const KINDS: u64 = 11;
/// Those from here on end the daemon, or want it restarted.
const STEADY: u64 = 8;

impl Deck {
    pub(super) fn new(longest: Duration) -> Deck {
        Deck { longest, left: (0..KINDS).collect() }
    }

    /// The next fault. While it is `steady`, the daemon outlives it. At the `end` only what has not happened
    /// yet.
    pub(super) fn draw(&mut self, steady: bool, end: bool, chance: &mut Chance) -> Option<Fault> {
        let fits = |kind: &u64| !steady || *kind < STEADY;
        let open: Vec<_> = self.left.iter().copied().filter(fits).collect();
        if open.is_empty() && end {
            return None;
        }
        let any = if steady { STEADY } else { KINDS };
        let kind = if open.is_empty() { chance.below(any) } else { chance.of(&open) };
        self.left.retain(|left| *left != kind);
        let some = |chance: &mut Chance, most: Duration| {
            let most = u64::try_from(most.min(self.longest).as_millis()).expect("short");
            Duration::from_millis(500 + chance.below(most))
        };
        let seconds = Duration::from_secs;
        Some(match kind {
            0 => Fault::EngineKilled(some(chance, seconds(3))),
            1 => Fault::EngineRestarted,
            2 => Fault::EngineSuspended(some(chance, seconds(30))),
            3 => Fault::EngineRefuses(some(chance, seconds(15))),
            4 => Fault::EngineSlow(some(chance, seconds(6))),
            5 => Fault::ContainerdKilled,
            6 => Fault::DiskSlow(some(chance, seconds(6))),
            7 => Fault::DiskFull(some(chance, seconds(4))),
            8 => Fault::SectorFails,
            9 => Fault::DaemonStoppedInBurst,
            _ => Fault::DaemonKilled,
        })
    }
}
