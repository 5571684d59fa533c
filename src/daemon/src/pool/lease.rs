//! A container in the hands of one session, and what an earlier daemon left for sessions.
//!
//! Dropping a lease must never wait: it only sends a message.

use std::collections::BTreeSet;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use paddock_proto::message::Claim;
use tokio::sync::mpsc;

use super::container::ArmedContainer;
use super::core::{MemberId, PoolEvent};
use super::disk::DataPlace;
use super::driver::DriverMessage;
use super::weights::{Weighed, Weights};
use crate::engine::VolumeName;
use crate::tenants::TenantShare;

/// What an earlier daemon left for sessions.
pub struct Adopted {
    /// The containers that live.
    pub containers: Vec<AdoptedContainer>,
    /// The workspaces of [`PoolConfig::workspaces`](super::PoolConfig::workspaces) that are there, without a
    /// container.
    pub workspaces: BTreeSet<VolumeName>,
}

/// A container of an earlier daemon that belongs to a session.
pub struct AdoptedContainer {
    /// The lease of it.
    pub lease: Lease,
    /// The session that it belongs to, as the earlier daemon told PID 1.
    pub claim: Claim,
    /// The runs in it whose end no daemon has received.
    pub runs: Vec<String>,
}

/// An armed container for one session. Dropping it destroys the container, and keeps its workspace if it was
/// told to.
pub struct Lease {
    armed: Arc<ArmedContainer>,
    member: MemberId,
    sender: mpsc::UnboundedSender<DriverMessage>,
    keeps_workspace: AtomicBool,
    /// Whether this daemon made the container.
    is_new: bool,
    weights: Arc<Weights>,
    /// While a tenant has it.
    weighed: Option<Weighed>,
}

impl Lease {
    pub(super) fn new(
        armed: Arc<ArmedContainer>,
        member: MemberId,
        sender: mpsc::UnboundedSender<DriverMessage>,
        weights: Arc<Weights>,
        keeps_workspace: bool,
    ) -> Self {
        let keeps_workspace = AtomicBool::new(keeps_workspace);
        Self { armed, member, sender, keeps_workspace, is_new: true, weights, weighed: None }
    }

    /// The same, of a container that an earlier daemon made.
    pub(super) fn adopted(mut self) -> Self {
        self.is_new = false;
        self
    }

    /// A tenant has it from now on, and the daemon weighs it among the containers of all tenants. The pool
    /// does this for each container that a tenant asks it for; for a container of an earlier daemon it is
    /// left to the caller, who knows the session.
    pub fn belongs_to(&mut self, tenant: TenantShare) {
        // The former value takes the container off the scales when it is dropped.
        self.weighed = None;
        self.weighed = Some(self.weights.take(self.member, tenant, &self.armed, self.is_new));
    }

    /// Whether the volumes of the container, if they lie on a disk, stay when it is dropped, for
    /// [`Pool::lease_over`](super::Pool::lease_over). Once that was said it cannot be taken back: the pool
    /// knows of it at once.
    pub fn keep_workspace(&self, keeps: bool) {
        self.keeps_workspace.store(keeps, Ordering::Relaxed);
        if keeps {
            self.say_kept();
        }
    }

    fn say_kept(&self) {
        if self.armed.runner.bounds.place != DataPlace::Memory {
            let _ = self.sender.send(DriverMessage::KeepWorkspace(self.member));
        }
    }
}

impl Deref for Lease {
    type Target = ArmedContainer;

    fn deref(&self) -> &ArmedContainer {
        &self.armed
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if self.keeps_workspace.load(Ordering::Relaxed) {
            self.say_kept();
        }
        let _ = self.sender.send(DriverMessage::Event(PoolEvent::Released { member: self.member }));
    }
}
