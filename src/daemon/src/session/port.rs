//! What sessions need of the pool, of the engine and of a container's agent, in as few operations as there
//! are uses.
//!
//! ```text
//!  ContainerPool ── lease ──► Container ─┬─ link       the agent: requests and their streams
//!                                        ├─ warm part  how far it has come
//!                                        └─ engine     status, pause, archives in and out
//! ```
//!
//! Everything above this file runs in unit tests against a container that the test plays. The link itself
//! needs no trait here, because it has one at its lower end ([`Dial`](crate::link::Dial)): a test puts a
//! scripted agent there, so that windows, resets and lost carriers are the real ones, and a frame of a run
//! passes no dynamic call. Dynamic calls happen when a container is leased, filled or rescued. It must never
//! offer what only a test would call.

#[cfg(test)]
pub(in crate::session) mod fake;

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;
use paddock_proto::limits::DATA_DIR;
use paddock_proto::message::Claim;
use tokio::io::AsyncRead;
use tokio::sync::watch;

use crate::engine::{ContainerId, ContainerStatus, Engine, EngineError};
use crate::link::{Incoming, Link, LinkError, Stream};
use crate::pool::core::LeaseRefusal;
use crate::pool::{self, Bounds, DataPlace, Lease, LostContainer, Pool, Runner, WarmStage};
use crate::session::sync::DataBounds;
use crate::tenants::TenantShare;

/// The agent must send its next message, and accept the next bytes, within this time; else its container is
/// given up.
pub(in crate::session) const SILENCE: Duration = Duration::from_secs(30);

/// An archive on its way into a container.
pub(in crate::session) type TarStream = BoxStream<'static, std::io::Result<Bytes>>;

/// An archive on its way out of a container: untrusted in every byte.
pub(in crate::session) type TarSource = Box<dyn AsyncRead + Send + Unpin>;

/// Where containers come from.
#[async_trait]
pub(in crate::session) trait ContainerPool: Send + Sync {
    /// Waits for an armed container that runs `language`, for a tenant. A caller that drops the future leaves
    /// the queue.
    async fn lease(&self, language: &str, tenant: TenantShare) -> Result<Box<dyn Container>, LeaseRefusal>;

    /// Waits for an armed container over the kept workspace of the container of this name, which it has too.
    /// The workspace is kept again when it is dropped, until [`Container::keep_workspace`] says otherwise.
    async fn lease_over(
        &self,
        workspace: &str,
        tenant: TenantShare,
    ) -> Result<Box<dyn Container>, LeaseRefusal>;

    /// Removes a kept workspace.
    fn discard(&self, workspace: &str);

    /// Whether containers of this language keep the programs of one run out of the memory of another; false
    /// as long as that is not known.
    fn separates_runs(&self, language: &str) -> bool;

    /// How many callers of [`ContainerPool::lease`] can only be served after another container is given up.
    /// It takes every container into account that was given up before this call.
    async fn starved(&self) -> usize;

    /// Changes whenever that number does, until the pool ends.
    fn starved_changes(&self) -> watch::Receiver<usize>;
}

/// A container whose `/data` the engine can read, whether or not its agent answers.
#[async_trait]
pub(in crate::session) trait Readable: Send + Sync {
    /// The daemon's name for it: the same in every life of the daemon.
    fn name(&self) -> &str;

    /// The bounds of its `/data`, where that lies on a disk; `None` where it ends with the container.
    fn on_disk(&self) -> Option<DataBounds>;

    /// What the engine says that the container does.
    async fn status(&self) -> Result<ContainerStatus, EngineError>;

    /// Freezes every process in it.
    async fn pause(&self) -> Result<(), EngineError>;

    /// Packs `/data`, in at most `cap` bytes, with names that are relative to it.
    async fn pack_data(&self, cap: u64) -> Result<TarSource, EngineError>;
}

/// A leased container. Dropping it destroys the container, and keeps its workspace if it was told to.
#[async_trait]
pub(in crate::session) trait Container: Readable {
    /// The engine's id for it, shortened as log lines have it.
    fn short_id(&self) -> &str;

    /// What its processes run as.
    fn uid(&self) -> u32;

    /// The image that it was made from.
    fn runner(&self) -> &Runner;

    /// The way to its agent.
    fn link(&self) -> &Link;

    /// How far its warm part has come.
    fn warm_stage(&self) -> WarmStage;

    /// Resolves when the warm part stands, or is known not to come.
    fn warm_settled(&self) -> BoxFuture<'static, ()>;

    /// Asks for the warm part before others: a conversation goes on in the container without it.
    fn want_warm(&self);

    /// Notes for the order in which warm parts are loaded that a run has ended here.
    fn note_used(&self);

    /// This tenant has it, which an earlier daemon had leased it to.
    fn belongs_to(&mut self, tenant: TenantShare);

    /// Whether its workspace stays when it is dropped, where that lies on a disk.
    fn keep_workspace(&self, keeps: bool);

    /// Whether an earlier daemon made it, in another way than this one would: programs that run in it go on,
    /// and no other begins once they have ended.
    fn is_outdated(&self) -> bool;

    /// Unpacks an archive into `/data`, as root.
    async fn unpack_data(&self, tar: TarStream) -> Result<(), EngineError>;
}

/// A container of an earlier daemon that says to which session it belongs.
pub(in crate::session) struct FoundContainer {
    pub(in crate::session) container: Box<dyn Container>,
    /// The session, as its agent was told.
    pub(in crate::session) claim: Claim,
    /// Runs whose end no daemon has acknowledged.
    pub(in crate::session) runs: Vec<String>,
}

impl From<pool::AdoptedContainer> for FoundContainer {
    fn from(pool::AdoptedContainer { lease, claim, runs }: pool::AdoptedContainer) -> Self {
        Self { container: Box::new(lease), claim, runs }
    }
}

#[async_trait]
impl ContainerPool for Pool {
    async fn lease(&self, language: &str, tenant: TenantShare) -> Result<Box<dyn Container>, LeaseRefusal> {
        Ok(Box::new(Pool::lease(self, language, tenant).await?))
    }

    async fn lease_over(
        &self,
        workspace: &str,
        tenant: TenantShare,
    ) -> Result<Box<dyn Container>, LeaseRefusal> {
        let name = workspace.parse().map_err(|_| LeaseRefusal::NoWorkspace)?;
        Ok(Box::new(Pool::lease_over(self, &name, tenant).await?))
    }

    fn discard(&self, workspace: &str) {
        if let Ok(name) = workspace.parse() {
            Pool::discard(self, name);
        }
    }

    fn separates_runs(&self, language: &str) -> bool {
        Pool::separates_runs(self, language)
    }

    async fn starved(&self) -> usize {
        Pool::starved(self).await
    }

    fn starved_changes(&self) -> watch::Receiver<usize> {
        Pool::starved_changes(self)
    }
}

/// A container that an engine has: how it is read does not depend on who has it.
trait OnEngine: Send + Sync {
    /// The engine, and its id for the container.
    fn place(&self) -> (&Engine, &ContainerId);

    /// See [`Readable::name`].
    fn own_name(&self) -> &str;

    /// See [`Readable::on_disk`].
    fn bounds_on_disk(&self) -> Option<DataBounds>;
}

impl OnEngine for Lease {
    fn place(&self) -> (&Engine, &ContainerId) {
        (&self.engine, &self.id)
    }

    fn own_name(&self) -> &str {
        self.name.as_str()
    }

    fn bounds_on_disk(&self) -> Option<DataBounds> {
        let Bounds { data, data_inodes, place, .. } = self.runner.bounds;
        (place != DataPlace::Memory).then_some(DataBounds { bytes: data, entries: data_inodes })
    }
}

impl OnEngine for LostContainer {
    fn place(&self) -> (&Engine, &ContainerId) {
        (&self.engine, &self.id)
    }

    fn own_name(&self) -> &str {
        self.name.as_str()
    }

    fn bounds_on_disk(&self) -> Option<DataBounds> {
        None
    }
}

#[async_trait]
impl<T: OnEngine> Readable for T {
    fn name(&self) -> &str {
        self.own_name()
    }

    fn on_disk(&self) -> Option<DataBounds> {
        self.bounds_on_disk()
    }

    async fn status(&self) -> Result<ContainerStatus, EngineError> {
        let (engine, id) = self.place();
        engine.container_inspect(id).await.map(|detail| detail.state.status)
    }

    async fn pause(&self) -> Result<(), EngineError> {
        let (engine, id) = self.place();
        engine.container_pause(id).await
    }

    async fn pack_data(&self, cap: u64) -> Result<TarSource, EngineError> {
        let (engine, id) = self.place();
        // The names in an archive of `/data/.` are relative to it.
        let archive = engine.archive_get(id, &format!("{DATA_DIR}/."), cap).await?;
        Ok(Box::new(archive.into_async_read()))
    }
}

#[async_trait]
impl Container for Lease {
    fn short_id(&self) -> &str {
        self.id.short()
    }

    fn uid(&self) -> u32 {
        self.uid.0
    }

    fn runner(&self) -> &Runner {
        &self.runner
    }

    fn link(&self) -> &Link {
        &self.link
    }

    fn warm_stage(&self) -> WarmStage {
        self.warm.stage()
    }

    fn warm_settled(&self) -> BoxFuture<'static, ()> {
        let part = self.warm.clone();
        Box::pin(async move {
            part.settled().await;
        })
    }

    fn want_warm(&self) {
        self.warm.wanted();
    }

    fn note_used(&self) {
        self.warm.used();
    }

    fn belongs_to(&mut self, tenant: TenantShare) {
        Lease::belongs_to(self, tenant);
    }

    fn keep_workspace(&self, keeps: bool) {
        Lease::keep_workspace(self, keeps);
    }

    fn is_outdated(&self) -> bool {
        self.is_outdated
    }

    async fn unpack_data(&self, tar: TarStream) -> Result<(), EngineError> {
        self.engine.archive_put_stream(&self.id, DATA_DIR, tar).await
    }
}

/// The agent's next message, within [`SILENCE`].
pub(in crate::session) async fn next(stream: &Stream) -> Result<Incoming, LinkError> {
    tokio::time::timeout(SILENCE, stream.next()).await.unwrap_or(Err(LinkError::Silent(SILENCE)))
}

/// Waits until the agent has accepted what is sent, within [`SILENCE`].
pub(in crate::session) async fn accepted(
    sending: impl Future<Output = Result<(), LinkError>>,
) -> Result<(), LinkError> {
    tokio::time::timeout(SILENCE, sending).await.unwrap_or(Err(LinkError::Silent(SILENCE)))
}
