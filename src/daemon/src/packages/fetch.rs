//! One fetch: the runner's own command brings the packages into a container as locked down as a run's, and
//! what it left there goes into the volume of layers.
//!
//! ```text
//!  lease a container of the fetcher ─► run the command, with egress to the registry alone
//!       ─► collect ═══ LayerTar ═══► the engine unpacks ─► the mark
//! ```
//!
//! A fetch is the daemon's, not a caller's: nothing of a session reaches its container, nor anything of a
//! caller but the checked list. It must never report a layer that the engine has not taken to its end.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{Either, select};
use paddock_proto::message::{CollectRules, Input, Limit, Outcome, RunEnd, RunLimits, RunSpec};
use paddock_proto::{Channel, Event, Request};
use serde::Deserialize;
use tokio::sync::{RwLock, mpsc};
use tracing::{debug, error_span};

use super::layer_tar::{LayerBounds, LayerTar};
use super::list::PackageList;
use super::shelf::Layer;
use crate::egress::{Egress, PolicyRefusal, RefusalKind, RunNetwork};
use crate::link::{Incoming, LinkError, Stream};
use crate::pool::core::LeaseRefusal;
use crate::pool::{LayerError, Layers, Lease, PackageLabels, Pool, Registry, Runner, fetcher_of};
use crate::session::{meter, new_run_id};
use crate::tenants::{ProgramCredit, TenantShare, Tenants};

/// Bytes of each of its streams that are read: a line, or a sentence.
const SAID: usize = 64 * 1024;
/// Bytes that it may write to one stream.
const OUTPUT: u64 = 1 << 20;
/// Characters of its last words in an error.
const SHOWN: usize = 2000;
/// Pieces of an archive that may wait for the engine.
const AHEAD: usize = 8;
/// Time for the agent to send the next piece of what was fetched, and for the engine to take it.
const SILENCE: Duration = Duration::from_secs(30);
/// Exit codes of a fetch command: the list is wrong; what it needs is out of reach.
const WRONG: i32 = 65;
const UNAVAILABLE: i32 = 69;
/// What all fetches together count as, where egress counts by the name of a token. No token has this name.
const OWNER: &str = "(packages)";

/// The kinds of failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FetchFault {
    /// The list asks for what cannot be had.
    List,
    /// The packages take more than they may.
    TooLarge,
    /// There is no room for them: on the engine's disk, or among the layers that are in use.
    NoRoom,
    /// The configuration gives programs no network.
    NoNetwork,
    /// No container came in time.
    NoContainer,
    /// The engine gives no containers.
    NoEngine,
    /// The registry is out of reach, or the fetch broke off: it may work the next time.
    Failed,
}

impl FetchFault {
    /// The word for metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::List => "list",
            Self::TooLarge => "too_large",
            Self::NoRoom => "no_room",
            Self::NoNetwork => "no_network",
            Self::NoContainer => "no_container",
            Self::NoEngine => "no_engine",
            Self::Failed => "failed",
        }
    }
}

/// Why there are no packages; everybody who waited for the same fetch gets it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct FetchError {
    /// The kind.
    pub fault: FetchFault,
    /// A sentence.
    pub message: String,
}

impl FetchError {
    pub(super) fn new(fault: FetchFault, message: impl Into<String>) -> Self {
        Self { fault, message: message.into() }
    }
}

impl From<LinkError> for FetchError {
    fn from(error: LinkError) -> Self {
        Self::new(FetchFault::Failed, format!("the container that fetched the packages was lost: {error}"))
    }
}

impl From<LayerError> for FetchError {
    fn from(error: LayerError) -> Self {
        if error.is_full() {
            return Self::new(FetchFault::NoRoom, "the disk of the container engine is full");
        }
        Self::new(FetchFault::Failed, format!("the packages could not be put on the engine: {error}"))
    }
}

impl From<LeaseRefusal> for FetchError {
    fn from(refusal: LeaseRefusal) -> Self {
        let fault = match refusal {
            LeaseRefusal::QueueFull | LeaseRefusal::WaitedTooLong { .. } | LeaseRefusal::Full => {
                FetchFault::NoContainer
            }
            LeaseRefusal::UnknownRunner
            | LeaseRefusal::NoWorkspace
            | LeaseRefusal::EngineUnavailable
            | LeaseRefusal::StartFailing { .. }
            | LeaseRefusal::ShuttingDown => FetchFault::NoEngine,
        };
        Self::new(fault, format!("no container to fetch packages in: {refusal}"))
    }
}

impl From<PolicyRefusal> for FetchError {
    fn from(refusal: PolicyRefusal) -> Self {
        let how = "the operator can allow the registry in [egress], or name an index in [packages]";
        let fault = match refusal.kind() {
            RefusalKind::NetworkUnavailable | RefusalKind::UnsupportedPolicy => FetchFault::NoNetwork,
            RefusalKind::InvalidArgument => FetchFault::Failed,
        };
        Self::new(fault, format!("packages cannot be fetched: {refusal}; {how}"))
    }
}

/// Where packages come from.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct IndexSettings {
    /// The operator's index of Python packages (PEP 503); `None`: PyPI.
    pub python: Option<url::Url>,
    /// The operator's npm registry; `None`: npm's.
    pub npm: Option<url::Url>,
    /// Further destinations that the operator's indexes send to.
    pub hosts: Vec<String>,
}

impl IndexSettings {
    /// The operator's index of a registry.
    pub fn of(&self, registry: Registry) -> Option<&url::Url> {
        match registry {
            Registry::PyPi => self.python.as_ref(),
            Registry::Npm => self.npm.as_ref(),
        }
    }

    /// What a fetch reaches, and whether the operator named it.
    pub fn destinations(&self, registry: Registry) -> (Vec<String>, bool) {
        let Some(index) = self.of(registry) else {
            let default: &[&str] = match registry {
                Registry::PyPi => &["pypi.org:443", "files.pythonhosted.org:443"],
                Registry::Npm => &["registry.npmjs.org:443"],
            };
            return (default.iter().map(|host| (*host).to_owned()).collect(), false);
        };
        let own = format!(
            "{}:{}",
            index.host_str().unwrap_or_default(),
            index.port_or_known_default().unwrap_or_default()
        );
        ([own].into_iter().chain(self.hosts.iter().cloned()).collect(), true)
    }
}

/// Fetches packages.
pub(super) struct Fetcher {
    pub(super) pool: Pool,
    pub(super) layers: Layers,
    pub(super) egress: Arc<Egress>,
    /// Who pays for a fetch.
    pub(super) tenants: Arc<Tenants>,
    pub(super) index: IndexSettings,
    pub(super) bounds: LayerBounds,
    pub(super) timeout: Duration,
    /// Held by everybody who writes into the volume; exclusively by who removes what has no purpose there.
    pub(super) writing: RwLock<()>,
}

/// The last line of a fetch's standard output.
#[derive(Deserialize)]
struct Lock {
    locked: Vec<String>,
}

impl Fetcher {
    /// Fetches a list for programs of this runner into this directory among the layers, in the turn of the
    /// tenant that asked for it, which pays for the container and its processor.
    pub(super) async fn fetch(
        &self,
        tenant: TenantShare,
        runner: &Runner,
        list: &PackageList,
        directory: &str,
    ) -> Result<Layer, FetchError> {
        let Some(PackageLabels { registry, fetch }) = &runner.packages else {
            return Err(FetchError::new(FetchFault::List, "the runner has no packages"));
        };
        let (hosts, is_configured) = self.index.destinations(*registry);
        let policy = self.egress.grant_registry(&hosts, is_configured)?;
        let lease = self.pool.lease(&fetcher_of(&runner.language), tenant).await?;
        let credit = self.tenants.begin_work(tenant);
        credit.took_container();
        let id = new_run_id();
        let span = error_span!("fetch", run_id = id, language = runner.language);
        let gateway = self.egress.gateway(&lease.link, OWNER, Arc::default(), span).open();
        let network = gateway.admit(&id, policy);
        let argv = fetch.iter().chain(list.entries()).cloned().collect();
        let stream = lease.link.request(&Request::Run(self.spec(&lease, id, argv, *registry)))?;
        // What it computes is charged while it goes on, and while its files are collected.
        let metered = pin!(async {
            if credit.is_counted() {
                meter(&lease.link, &credit).await;
            }
        });
        let bringing = pin!(self.bring(&stream, (runner, directory), &network, &credit));
        let brought = match select(bringing, metered).await {
            Either::Left((brought, _)) => brought,
            Either::Right(((), bringing)) => bringing.await,
        };
        debug!(
            packages = list.entries().join(" "),
            charged_us = u64::try_from(credit.charged().as_micros()).unwrap_or(u64::MAX),
            "a fetch was charged to its tenant"
        );
        brought
    }

    /// Waits for the command, and moves what it fetched into the volume.
    async fn bring(
        &self,
        stream: &Stream,
        (runner, directory): (&Runner, &str),
        network: &RunNetwork,
        credit: &ProgramCredit,
    ) -> Result<Layer, FetchError> {
        let (end, said) = self.follow(stream).await?;
        credit.used(Duration::from_micros(end.metered_us));
        let locked = locked(&end, &said, self.timeout).map_err(|error| match blocked(network) {
            // What was blocked explains more than what the installer made of it.
            Some(blocked) => FetchError::new(FetchFault::NoNetwork, format!("{blocked}; {error}")),
            None => error,
        })?;
        stream.say(&Request::Collect(CollectRules::All)).await?;
        self.put(stream, runner, directory, locked).await
    }

    fn spec(&self, lease: &Lease, id: String, argv: Vec<String>, registry: Registry) -> RunSpec {
        let index = self.index.of(registry).map(|url| ("SANDBOX_INDEX".to_owned(), url.to_string()));
        let more: Vec<_> = index.into_iter().collect();
        RunSpec {
            id,
            argv,
            env: lease.runner.environment(&more),
            cwd: paddock_proto::limits::DATA_DIR.to_owned(),
            wall_ms: u64::try_from(self.timeout.as_millis()).unwrap_or(u64::MAX),
            output_cap: OUTPUT,
            input: Input::Nothing,
            limits: RunLimits { disk: lease.runner.disk_limit(), ..RunLimits::default() },
            warm: false,
            files: None,
            execute: None,
            network: true,
        }
    }

    /// Waits for the end of the command, and keeps the beginning of what it writes.
    async fn follow(&self, stream: &Stream) -> Result<(RunEnd, Said), FetchError> {
        let mut said = Said::default();
        loop {
            match stream.next().await? {
                Incoming::Data(channel @ (Channel::Stdout | Channel::Stderr), piece) => {
                    let whole = if channel == Channel::Stdout { &mut said.out } else { &mut said.err };
                    let room = SAID.saturating_sub(whole.len()).min(piece.len());
                    whole.extend_from_slice(&piece[..room]);
                }
                Incoming::Event(Event::Ended(end)) => return Ok((end, said)),
                Incoming::Event(Event::Begun | Event::Listens { .. }) => {}
                Incoming::Event(Event::Unsupported { what }) => {
                    return Err(FetchError::new(
                        FetchFault::Failed,
                        format!("the fetch did not start: {what}"),
                    ));
                }
                Incoming::Event(_) | Incoming::Data(..) | Incoming::End => {
                    return Err(LinkError::Refused.into());
                }
            }
        }
    }

    /// Moves what was fetched into the volume.
    async fn put(
        &self,
        stream: &Stream,
        runner: &Runner,
        directory: &str,
        locked: Vec<String>,
    ) -> Result<Layer, FetchError> {
        let _writing = self.writing.read().await;
        let (out, pieces) = mpsc::channel(AHEAD);
        let failed = out.clone();
        let taking = async move {
            let mut tar = LayerTar::begin(out, directory.to_owned(), self.bounds).await?;
            let taken = tokio::time::timeout(self.timeout.max(SILENCE), tar.take_all(stream)).await;
            taken.unwrap_or(Err(LinkError::Silent(SILENCE).into()))?;
            tar.finish(directory, locked).await
        };
        // An archive that breaks off must not look like one that ended.
        let taking = async move {
            let taken = taking.await;
            if taken.is_err() {
                let _ = failed.send(Err(std::io::Error::other("the packages broke off"))).await;
            }
            taken
        };
        let pieces = futures_util::stream::unfold(pieces, async |mut pieces| {
            pieces.recv().await.map(|piece| (piece, pieces))
        });
        let (taken, written) = tokio::join!(taking, self.layers.write(&runner.image_id, pieces));
        // Where the engine refused, what could not be given to it is only the consequence.
        match (taken, written) {
            (Ok(layer), Ok(())) => Ok(layer),
            (Err(error), _) if error.message != "the engine gave up" => Err(error),
            (_, Err(error)) => Err(error.into()),
            (Err(error), Ok(())) => Err(error),
        }
    }
}

/// The destination that a fetch was kept from, in words.
fn blocked(network: &RunNetwork) -> Option<String> {
    let blocked = network.ledger().into_iter().find(|destination| !destination.allowed)?;
    let reason = blocked.reason.unwrap_or_default();
    Some(format!("{}:{} was blocked: {reason} (see [egress] and packages.hosts)", blocked.host, blocked.port))
}

/// What a command wrote.
#[derive(Default)]
struct Said {
    out: Vec<u8>,
    err: Vec<u8>,
}

/// The packages that a fetch brought, if it ended well.
fn locked(end: &RunEnd, said: &Said, timeout: Duration) -> Result<Vec<String>, FetchError> {
    let failed = |fault, message: String| Err(FetchError::new(fault, message));
    match end.limit {
        Some(Limit::Wall) => {
            let seconds = timeout.as_secs();
            return failed(
                FetchFault::Failed,
                format!("the packages were not there after {seconds} seconds (packages.timeout)"),
            );
        }
        Some(Limit::Disk | Limit::FileSize) => {
            let message =
                "the packages take more room than a fetch has (packages.max_bytes, packages.max_files)";
            return failed(FetchFault::TooLarge, message.to_owned());
        }
        Some(limit) => {
            return failed(FetchFault::Failed, format!("the fetch was ended by a limit ({limit:?})"));
        }
        None => {}
    }
    let words = String::from_utf8_lossy(&said.err);
    let words: String = words.trim().chars().take(SHOWN).collect();
    match end.outcome {
        Outcome::Exited(0) => {
            let out = String::from_utf8_lossy(&said.out);
            let line = out.lines().next_back().unwrap_or_default();
            let lock: Result<Lock, _> = serde_json::from_str(line);
            match lock {
                Ok(Lock { locked }) => Ok(locked),
                Err(_) => failed(FetchFault::Failed, "the fetch did not say what it brought".to_owned()),
            }
        }
        Outcome::Exited(WRONG) => failed(FetchFault::List, words),
        Outcome::Exited(UNAVAILABLE) => failed(FetchFault::Failed, words),
        Outcome::Exited(code) => {
            failed(FetchFault::Failed, format!("the fetch ended with code {code}: {words}"))
        }
        Outcome::Signaled(signal) => failed(FetchFault::Failed, format!("signal {signal} ended the fetch")),
        Outcome::NotStarted(errno) => {
            failed(FetchFault::Failed, format!("the fetch did not start (errno {errno})"))
        }
    }
}
