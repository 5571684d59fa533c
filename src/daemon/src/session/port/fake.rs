//! Containers that a test plays: a pool that hands them out in order, an agent that follows a script over the
//! real link, and an engine that fails where it is told to.
//!
//! ```text
//!  test ── script ──► FakeContainer ◄── duplex stream ── Link ◄── code under test
//!    ▲                     │
//!    └── what it received ─┘
//! ```
//!
//! An honest agent is the default: a test changes the one step that it is about. Everything happens in
//! memory, so that paused time moves only when all sides wait.

mod agent;
mod script;

use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::Ordering::Relaxed;

use async_trait::async_trait;
use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use tokio::sync::{Notify, watch};

pub(in crate::session) use self::agent::FakeContainer;
pub(in crate::session) use self::script::{Script, Step, collect_file, end_of_run, ended, file};
use super::{Container, ContainerPool, Readable, TarSource, TarStream};
use crate::engine::{ContainerStatus, EngineError, EngineOp};
use crate::link::Link;
use crate::pool::core::LeaseRefusal;
use crate::pool::{Bounds, DataPlace, Runner, WarmStage};
use crate::session::sync::DataBounds;
use crate::tenants::TenantShare;

/// A fake container in a session's hands.
struct FakeLease {
    link: Link,
    container: FakeContainer,
}

impl FakeLease {
    fn new(link: Link, container: FakeContainer) -> Self {
        Self { link, container }
    }
}

impl Drop for FakeLease {
    fn drop(&mut self) {
        self.container.0.is_given_up.store(true, Relaxed);
    }
}

fn refused(op: EngineOp) -> EngineError {
    EngineError::Protocol { op, what: "the test wants it so".to_owned() }
}

#[async_trait]
impl Readable for FakeLease {
    fn name(&self) -> &str {
        &self.container.0.name
    }

    fn on_disk(&self) -> Option<DataBounds> {
        let Bounds { data, data_inodes, place, .. } = self.container.0.runner.bounds;
        (place != DataPlace::Memory).then_some(DataBounds { bytes: data, entries: data_inodes })
    }

    async fn status(&self) -> Result<ContainerStatus, EngineError> {
        self.container.engine().status.ok_or_else(|| refused(EngineOp::ContainerInspect))
    }

    async fn pause(&self) -> Result<(), EngineError> {
        let mut engine = self.container.engine();
        engine.calls.push("pause");
        if engine.can_pause { Ok(()) } else { Err(refused(EngineOp::ContainerPause)) }
    }

    async fn pack_data(&self, _: u64) -> Result<TarSource, EngineError> {
        let mut engine = self.container.engine();
        engine.calls.push("pack");
        let archive = engine.archive.clone().ok_or_else(|| refused(EngineOp::ArchiveGet))?;
        if engine.dies_when_read {
            engine.status = Some(ContainerStatus::Exited);
        }
        Ok(Box::new(std::io::Cursor::new(archive)))
    }
}

#[async_trait]
impl Container for FakeLease {
    fn short_id(&self) -> &str {
        "0123456789ab"
    }

    fn uid(&self) -> u32 {
        1000
    }

    fn runner(&self) -> &Runner {
        &self.container.0.runner
    }

    fn link(&self) -> &Link {
        &self.link
    }

    fn warm_stage(&self) -> WarmStage {
        *self.container.0.warm.borrow()
    }

    fn warm_settled(&self) -> BoxFuture<'static, ()> {
        let mut warm = self.container.0.warm.subscribe();
        Box::pin(async move {
            let _ = warm.wait_for(|stage| matches!(stage, WarmStage::Stands | WarmStage::Absent)).await;
        })
    }

    fn want_warm(&self) {
        self.container.0.is_warm_wanted.store(true, Relaxed);
    }

    fn note_used(&self) {}

    fn belongs_to(&mut self, _: TenantShare) {}

    fn keep_workspace(&self, keeps: bool) {
        self.container.0.keeps_workspace.store(keeps, Relaxed);
    }

    fn is_outdated(&self) -> bool {
        self.container.0.is_outdated.load(Relaxed)
    }

    async fn unpack_data(&self, mut tar: TarStream) -> Result<(), EngineError> {
        let mut bytes = 0;
        while let Some(piece) = tar.next().await {
            bytes += piece.unwrap().len();
        }
        let mut engine = self.container.engine();
        engine.calls.push("unpack");
        engine.unpacked = bytes;
        if engine.can_unpack { Ok(()) } else { Err(refused(EngineOp::ArchivePut)) }
    }
}

/// A pool that hands out the containers of a test, in their order.
#[derive(Default)]
pub(in crate::session) struct FakePool {
    idle: Mutex<VecDeque<FakeContainer>>,
    came: Notify,
    /// The containers that were leased.
    leased: Mutex<Vec<FakeContainer>>,
    /// How many of them must be given up before nobody is starved.
    wanted_back: watch::Sender<usize>,
    /// The answer to the caller that waits, which comes while it asks how many are starved.
    pub(in crate::session) late: Mutex<Option<LeaseRefusal>>,
    refused: Mutex<Option<LeaseRefusal>>,
    /// Workspaces over which a container was wanted.
    pub(in crate::session) wanted_over: Mutex<Vec<String>>,
    /// Workspaces that were discarded.
    pub(in crate::session) discarded: Mutex<Vec<String>>,
}

impl FakePool {
    pub(in crate::session) fn add(&self, container: &FakeContainer) {
        self.idle.lock().unwrap().push_back(container.clone());
        self.came.notify_one();
    }

    /// How many containers were leased.
    pub(in crate::session) fn leased(&self) -> usize {
        self.leased.lock().unwrap().len()
    }

    /// From now on so many callers can only be served after as many containers are given up.
    pub(in crate::session) fn starve(&self, callers: usize) {
        self.wanted_back.send_replace(self.given_up() + callers);
    }

    fn given_up(&self) -> usize {
        self.leased.lock().unwrap().iter().filter(|container| container.is_given_up()).count()
    }
}

#[async_trait]
impl ContainerPool for FakePool {
    async fn lease(&self, _: &str, _: TenantShare) -> Result<Box<dyn Container>, LeaseRefusal> {
        loop {
            let next = self.idle.lock().unwrap().pop_front();
            if let Some(container) = next {
                self.leased.lock().unwrap().push(container.clone());
                return Ok(container.lease().await);
            }
            if let Some(refusal) = self.refused.lock().unwrap().take() {
                return Err(refusal);
            }
            self.came.notified().await;
        }
    }

    async fn lease_over(&self, workspace: &str, _: TenantShare) -> Result<Box<dyn Container>, LeaseRefusal> {
        self.wanted_over.lock().unwrap().push(workspace.to_owned());
        let is_it = |container: &FakeContainer| container.0.name == workspace;
        let Some(at) = self.idle.lock().unwrap().iter().position(is_it) else {
            return Err(LeaseRefusal::NoWorkspace);
        };
        let next = self.idle.lock().unwrap().remove(at).unwrap();
        self.leased.lock().unwrap().push(next.clone());
        Ok(next.lease().await)
    }

    fn discard(&self, workspace: &str) {
        self.discarded.lock().unwrap().push(workspace.to_owned());
    }

    fn separates_runs(&self, _: &str) -> bool {
        true
    }

    async fn starved(&self) -> usize {
        let late = self.late.lock().unwrap().take();
        if late.is_some() {
            *self.refused.lock().unwrap() = late;
            self.came.notify_one();
            tokio::task::yield_now().await;
        }
        let wanted_back = *self.wanted_back.borrow();
        wanted_back.saturating_sub(self.given_up())
    }

    fn starved_changes(&self) -> watch::Receiver<usize> {
        self.wanted_back.subscribe()
    }
}
