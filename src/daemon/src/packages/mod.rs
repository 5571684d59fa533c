//! Packages beyond a runner's image: fetched once, by the daemon's policy, into a layer that all programs
//! with the same list share.
//!
//! ```text
//!  ["polars==1.35.2"] ─ list ─► PackageList ─ key: HMAC(image, list) ─► Shelf (pure: there? who uses it?)
//!                                                                        │ absent: one fetch for all
//!                          fetch ─► the runner's command in a container of its own, egress to the registry
//!                            │        └─ layer_tar ─► pool::Layers: one volume, mounted read-only everywhere
//!                            └─ keep ─► packages/layers.json, for the next daemon
//!  LayerUse (RAII) ─► the run: SANDBOX_PACKAGES=/opt/packages/NAME
//! ```
//!
//! The volume is mounted in every container before anybody knows a list, so a second use costs a look into a
//! map. What keeps programs from each other's layers is that a layer's name cannot be guessed, and that the
//! directory of all layers cannot be listed.
//!
//! A fetch that has begun goes on when those who waited for it have gone: the next call finds it. One that
//! still waits for its turn is given up. Nothing of a fetch that
//! failed is ever used, and the next call tries again. This must never run anything of a package, which is
//! why only wheels are fetched, and npm's scripts are not run.

mod bring;
mod fetch;
mod keep;
mod layer_tar;
mod list;
mod queue;
mod shelf;

use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use paddock_proto::limits::PACKAGES_DIR;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{info, warn};

use self::bring::BringTask;
use self::fetch::Fetcher;
pub use self::fetch::{FetchError, FetchFault, IndexSettings};
use self::keep::KeptLayers;
use self::layer_tar::LayerBounds;
use self::list::LayerKey;
pub use self::list::{ListError, PackageList};
use self::queue::{FetchQueue, QueueBounds};
use self::shelf::{Found, Layer, Shelf, ShelfBounds};
use crate::egress::Egress;
use crate::engine::ImageRef;
use crate::id::{hex, random_hex};
use crate::metrics::Metrics;
use crate::pool::{FetchBounds, Pool, Runner};
use crate::tenants::turns::FairPlaces;
use crate::tenants::{TenantShare, Tenants};

/// The most layers: the agent that removes others is told of each in its arguments.
const MAX_LAYERS: usize = 512;
/// Digits of a layer's key in its name: 128 bits that nobody guesses.
const DIGITS: usize = 16;
/// Fetches that may be under way or wait for their turn; more are refused. A quarter of them is for one
/// tenant, so that three others are served while one asks for as much as it can.
const WAITING: QueueBounds = QueueBounds { all: 64, of_tenant: 16 };
/// What a fetch takes on the disk beside its layer: archives, and what is unpacked before it is in place.
const SCRATCH: u64 = 3;
/// And what the installer itself has there, whatever the packages are.
const INSTALLER: FetchBounds = FetchBounds { bytes: 64 << 20, entries: 10_000 };
/// The pause between two looks for layers that have to go.
const SWEEP: Duration = Duration::from_secs(300);
/// How long those who waited for a fetch have to take what came.
const HANDING_OVER: Duration = Duration::from_secs(10);

/// `[packages]` of the configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PackagesSettings {
    /// Whether packages are fetched at all.
    pub enabled: bool,
    /// Bytes of one layer.
    pub layer_bytes: u64,
    /// Files and directories of one layer.
    pub layer_entries: u64,
    /// Bytes of all layers.
    pub total_bytes: u64,
    /// A layer that nobody has used for this long is removed.
    pub retention: Duration,
    /// How long a fetch may take.
    pub timeout: Duration,
    /// Fetches at one time.
    pub fetches: usize,
    /// Where packages come from.
    pub index: IndexSettings,
}

impl PackagesSettings {
    /// What the container of a fetch may take on the engine's disk; `None` if packages are off.
    pub fn fetch_bounds(&self) -> Option<FetchBounds> {
        self.enabled.then(|| FetchBounds {
            bytes: self.layer_bytes.saturating_mul(SCRATCH).saturating_add(INSTALLER.bytes),
            entries: self.layer_entries.saturating_mul(SCRATCH).saturating_add(INSTALLER.entries),
        })
    }
}

/// What those who wait for a layer hear.
type News = Option<Result<(), FetchError>>;

/// The packages of one daemon.
pub struct Packages {
    fetcher: Fetcher,
    key: [u8; 32],
    state: Mutex<State>,
    fetches: Arc<FairPlaces>,
    kept: KeptLayers,
    metrics: Metrics,
    /// Whether there may be something in the volume that has no purpose.
    is_untidy: AtomicBool,
    tasks: TaskTracker,
    ending: CancellationToken,
}

struct State {
    shelf: Shelf,
    /// Each with a sender to those who wait for it: while nobody does, it has no receivers.
    queue: FetchQueue<Arc<watch::Sender<News>>>,
}

/// A layer in the hands of a call: as long as it lives, the layer stays.
pub struct LayerUse {
    packages: Arc<Packages>,
    key: LayerKey,
    layer: Layer,
}

impl std::fmt::Debug for LayerUse {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "LayerUse({})", self.layer.directory)
    }
}

impl LayerUse {
    /// Where the packages are in a container.
    pub fn path(&self) -> String {
        format!("{PACKAGES_DIR}/{}", self.layer.directory)
    }

    /// What the layer brings, each package with its exact version.
    pub fn locked(&self) -> &[String] {
        &self.layer.locked
    }
}

impl Drop for LayerUse {
    fn drop(&mut self) {
        self.packages.state().shelf.released(&self.key, Instant::now());
    }
}

impl Packages {
    /// Opens the packages of a pool; `None` if it has none. `key` names layers, and `folder` keeps what is
    /// known of them; a program runs for `longest` at most.
    pub fn open(
        settings: &PackagesSettings,
        (pool, egress, tenants, metrics): (&Pool, &Arc<Egress>, &Arc<Tenants>, &Metrics),
        (key, folder): ([u8; 32], PathBuf),
        longest: Duration,
    ) -> Option<Arc<Self>> {
        let layers = pool.layers().cloned().filter(|_| settings.enabled)?;
        let bounds =
            ShelfBounds { bytes: settings.total_bytes, layers: MAX_LAYERS, retention: settings.retention };
        let (kept, earlier, is_untidy) = KeptLayers::open(folder);
        let shelf = Shelf::new(bounds, earlier, longest, Instant::now());
        let packages = Arc::new(Self {
            fetcher: Fetcher {
                pool: pool.clone(),
                layers,
                egress: egress.clone(),
                tenants: tenants.clone(),
                index: settings.index.clone(),
                bounds: LayerBounds { bytes: settings.layer_bytes, entries: settings.layer_entries },
                timeout: settings.timeout,
                writing: tokio::sync::RwLock::default(),
            },
            key,
            state: Mutex::new(State { shelf, queue: FetchQueue::new(WAITING) }),
            fetches: FairPlaces::new(settings.fetches),
            kept,
            metrics: metrics.clone(),
            is_untidy: AtomicBool::new(is_untidy),
            tasks: TaskTracker::new(),
            ending: CancellationToken::new(),
        });
        packages.measure();
        packages.tasks.spawn(packages.clone().upkeep());
        Some(packages)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // No code that can panic runs under this lock, so even a poisoned one holds valid data.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The layer of a list, for programs of this runner: at once if it is there, else when it has come. A
    /// fetch that has begun goes on if this is dropped. `tenant` is who asks, and its share of what tenants
    /// wait for.
    ///
    /// # Errors
    /// See [`FetchError`].
    pub async fn layer(
        self: &Arc<Self>,
        tenant: (&str, TenantShare),
        runner: &Runner,
        list: &PackageList,
    ) -> Result<LayerUse, FetchError> {
        let key = list.key(&self.key, runner.image_id.as_str());
        let mut has_waited = false;
        loop {
            let mut news = match self.want(key, tenant, runner, list)? {
                Wanted::There(layer) => {
                    self.metrics.packages_used(has_waited);
                    return Ok(layer);
                }
                Wanted::OnItsWay(news) => news,
            };
            has_waited = true;
            let result = news.wait_for(Option::is_some).await.ok().and_then(|result| result.clone());
            // The sender is gone without a word only if the daemon ends.
            result.unwrap_or_else(|| Err(ending()))?;
        }
    }

    fn want(
        self: &Arc<Self>,
        key: LayerKey,
        (tenant, share): (&str, TenantShare),
        runner: &Runner,
        list: &PackageList,
    ) -> Result<Wanted, FetchError> {
        let mut state = self.state();
        if let Some(news) = state.queue.news(&key) {
            return Ok(Wanted::OnItsWay(news.subscribe()));
        }
        if !state.shelf.is_there(&key) {
            let room = state.queue.has_room(tenant);
            room.map_err(|refusal| FetchError::new(FetchFault::NoContainer, refusal.to_string()))?;
        }
        let directory = format!("{}-{}", hex(&key[..DIGITS]), random_hex::<4>());
        let earlier = match state.shelf.want(key, &directory, Instant::now()) {
            Found::There(layer) => {
                return Ok(Wanted::There(LayerUse { packages: self.clone(), key, layer }));
            }
            // Whoever brings one has a place in the queue.
            Found::OnItsWay => return Err(ended()),
            Found::Unseen(layer) => Some(layer),
            Found::Absent => None,
        };
        let (sender, news) = watch::channel(None);
        let sender = Arc::new(sender);
        state.queue.admit(key, tenant, sender.clone());
        drop(state);
        let task = BringTask {
            packages: self.clone(),
            key,
            directory,
            earlier,
            runner: runner.clone(),
            list: list.clone(),
            tenant: share,
            sender: sender.clone(),
        };
        self.tasks.spawn(async move {
            let (packages, result) = (task.packages.clone(), tokio::spawn(task.bring()).await);
            let result = result.unwrap_or_else(|error| {
                tracing::error!(%error, "a task of the daemon failed");
                packages.state().shelf.failed(&key);
                Some(Err(ended()))
            });
            // Given up: another call may have asked for the same meanwhile, and what is noted is its fetch.
            let Some(result) = result else { return };
            let is_there = result.is_ok();
            packages.state().queue.ended(&key);
            sender.send_replace(Some(result));
            if is_there {
                // It counts as used until everybody who waited has it.
                let _ = tokio::time::timeout(HANDING_OVER, sender.closed()).await;
                packages.state().shelf.released(&key, Instant::now());
            }
            if !is_there {
                packages.is_untidy.store(true, Relaxed);
            }
            packages.clear_up().await;
        });
        Ok(Wanted::OnItsWay(news))
    }

    /// Removes what has to go, and notes what is there.
    async fn clear_up(&self) {
        let gone = self.state().shelf.sweep(Instant::now());
        for layer in &gone {
            info!(packages = layer.locked.join(" "), bytes = layer.bytes, "a layer of packages is removed");
        }
        if !gone.is_empty() {
            self.is_untidy.store(true, Relaxed);
        }
        self.save().await;
        if self.is_untidy.load(Relaxed) && self.tidy().await {
            self.save().await;
        }
        self.measure();
    }

    /// Removes what has no purpose. False if that failed: the next time it is tried again.
    async fn tidy(&self) -> bool {
        // Any image of a runner will do: nothing of it runs.
        let image: Option<ImageRef> =
            self.fetcher.pool.runners().values().map(|(_, runner)| runner.image_id.clone()).next();
        let Some(image) = image else { return false };
        let _alone = self.fetcher.writing.write().await;
        let keep = self.state().shelf.directories();
        // Set again by whoever fails from here on.
        self.is_untidy.store(false, Relaxed);
        let done = self.fetcher.layers.tidy(&image, &keep).await;
        if let Err(error) = &done {
            self.is_untidy.store(true, Relaxed);
            warn!(%error, "layers of packages without a purpose could not be removed yet");
        }
        done.is_ok()
    }

    async fn save(&self) {
        let (layers, pending) = {
            let state = self.state();
            (state.shelf.kept(Instant::now()), state.shelf.is_fetching())
        };
        self.kept.save(layers, pending || self.is_untidy.load(Relaxed)).await;
    }

    fn measure(&self) {
        let (layers, bytes) = self.state().shelf.size();
        self.metrics.packages_kept(layers, bytes);
    }

    async fn upkeep(self: Arc<Self>) {
        match self.fetcher.layers.recover().await {
            Ok(true) => {}
            Ok(false) => self.is_untidy.store(false, Relaxed),
            Err(error) => warn!(%error, "what an earlier daemon left of packages could not be looked at"),
        }
        loop {
            if self.is_untidy.load(Relaxed) || self.state().shelf.size().0 > 0 {
                self.clear_up().await;
            }
            tokio::select! {
                () = self.ending.cancelled() => return,
                () = tokio::time::sleep(SWEEP) => {}
            }
        }
    }

    /// Ends the fetches that are under way, and notes what is there.
    pub async fn close(&self) {
        self.ending.cancel();
        self.tasks.close();
        self.tasks.wait().await;
        self.save().await;
    }

    /// Removes the volume if there is nothing in it; to be called when all containers are gone.
    pub async fn forget_if_empty(&self) {
        if self.state().shelf.size().0 == 0 {
            self.fetcher.layers.forget().await;
        }
    }
}

enum Wanted {
    There(LayerUse),
    OnItsWay(watch::Receiver<News>),
}

fn ending() -> FetchError {
    FetchError::new(FetchFault::Failed, "the daemon is ending")
}

fn ended() -> FetchError {
    FetchError::new(FetchFault::Failed, "the fetch of the packages broke off; try again")
}
