//! How a session gets a container: it is admitted, waits for the pool, and is noted on disk and told to the
//! agent.
//!
//! It must never give a container anything of a session before both the note and the agent name the session
//! that owns it.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use paddock_proto::message::Claim;
use paddock_proto::{Event, Request};
use tokio::time::Instant;
use tracing::{error_span, info, warn};

use super::notes::{LeaseNote, LeaseNotes, RunNote};
use super::usage_notes::{NotedNetwork, UsageNotes};
use super::{Leased, Leases};
use crate::egress::{Egress, Gateway};
use crate::link::{Incoming, Link, LinkError};
use crate::metrics::Metrics;
use crate::pool::core::LeaseRefusal;
use crate::session::error::SessionError;
use crate::session::gate::Gate;
use crate::session::gate::turn::Turn;
use crate::session::port::{self, Container, ContainerPool};
use crate::session::registry::Session;
use crate::session::sync::baseline::Baseline;
use crate::session::sync::{DataBounds, salvage};
use crate::session::workspaces::Workspaces;

/// Gets containers for sessions.
pub(in crate::session) struct Lessor {
    pub(in crate::session) pool: Arc<dyn ContainerPool>,
    pub(in crate::session) notes: LeaseNotes,
    pub(in crate::session) usage: UsageNotes,
    pub(in crate::session) workspaces: Arc<Workspaces>,
    pub(in crate::session) gate: Gate,
    pub(in crate::session) metrics: Metrics,
    pub(in crate::session) data: DataBounds,
    pub(in crate::session) egress: Arc<Egress>,
    /// How long a call may wait for its turn and its container together.
    pub(in crate::session) wait: Duration,
}

impl Lessor {
    /// Makes sure that the session of this turn may have containers, waiting for that until the turn's
    /// deadline.
    pub(in crate::session) async fn admit(
        &self,
        turn: &Turn,
        leases: &mut Leases,
    ) -> Result<(), SessionError> {
        if leases.permit.is_none() {
            leases.permit = Some(self.gate.permit(turn).await?);
        }
        Ok(())
    }

    /// Makes sure that the session, which is admitted, has a container of this language whose agent can be
    /// reached. It waits for one until `deadline`. Returns whether it took one now.
    pub(in crate::session) async fn lease(
        &self,
        session: &Session,
        leases: &mut Leases,
        language: &str,
        deadline: Instant,
    ) -> Result<bool, SessionError> {
        if let Some(leased) = leases.by_language.get_mut(language)
            && let Some(fault) = leased.container.link().fault()
        {
            info!(session_id = %session.id, %fault, "a container has ended; another is taken");
            self.save_what_is_left(session, leased).await;
            leases.by_language.remove(language);
        }
        // No program begins in a container of another version, unless one that runs there has it still.
        if let Some(leased) = leases.resting(language).filter(|leased| leased.container.is_outdated()) {
            leased.save_unsaved(session).await;
            leases.by_language.remove(language);
        }
        if leases.by_language.contains_key(language) {
            return Ok(false);
        }
        let over = self.over_workspace(session, language, deadline).await?;
        let (container, baseline) = match over {
            Some(over) => over,
            None => {
                let tenant = self.gate.share(&session.owner);
                let container = self.wait(self.pool.lease(language, tenant), deadline).await?;
                (container, Baseline::fresh())
            }
        };
        let is_new = baseline.is_fresh;
        let note = LeaseNote {
            owner: session.owner.clone(),
            session: session.id.as_str().to_owned(),
            language: language.to_owned(),
            runs: Vec::new(),
            unsaved: false,
            kept_since_ms: None,
        };
        let note = self.notes.write(container.name(), note);
        if is_new {
            claim(container.link(), session.claim()).await?;
        }
        let gateway = self.gateway(session, &*container).open();
        let leased = Leased::new(container, baseline, note, (self.data, gateway));
        let leased = leased.kept_by(self.workspaces.keeper(session, language));
        self.keep(session, leases, language, leased);
        Ok(true)
    }

    /// A container over the workspace that is kept for this session, if there is one, and what it has of the
    /// session's files. Until then its note says that it is kept: a daemon that dies meanwhile leaves it so.
    async fn over_workspace(
        &self,
        session: &Session,
        language: &str,
        deadline: Instant,
    ) -> Result<Option<(Box<dyn Container>, Baseline)>, SessionError> {
        let Some(kept) = self.workspaces.continuing(session, language) else { return Ok(None) };
        let tenant = self.gate.share(&session.owner);
        let container = match self.wait(self.pool.lease_over(kept.name(), tenant), deadline).await {
            Ok(container) => container,
            Err(LeaseRefusal::NoWorkspace) => {
                kept.cannot();
                return Ok(None);
            }
            Err(refusal) => return Err(refusal.into()),
        };
        let settled = async {
            claim(container.link(), session.claim()).await?;
            kept.settle(&session.space, container.link()).await
        };
        match settled.await {
            Ok(baseline) => {
                info!(session_id = %session.id, name = kept.name(), "a session has its workspace again");
                kept.done();
                Ok(Some((container, baseline)))
            }
            Err(error) => {
                // The session's files are in the store: it is better served by a new container than by none.
                let (session_id, name) = (&session.id, kept.name());
                warn!(%session_id, name, %error, "a workspace cannot be used again");
                container.keep_workspace(false);
                drop(container);
                kept.cannot();
                Ok(None)
            }
        }
    }

    /// The way out of a container of this session, not yet open.
    pub(super) fn gateway(&self, session: &Session, container: &dyn Container) -> Gateway {
        // It outlives the run that leased the container, and must not keep the span of that run open.
        let (session_id, container_id) = (&session.id, container.short_id());
        let span = error_span!(parent: None, "network", %session_id, container = container_id);
        self.egress.gateway(container.link(), &session.owner, session.approved.clone(), span)
    }

    /// Lets programs that an earlier daemon started reach as much of what they asked for as this daemon's
    /// configuration allows. Their connections ended with that daemon; the next ones work. What they have
    /// used of their bounds stays used.
    pub(super) fn admit_again(&self, gateway: &Gateway, note: &LeaseNote) -> HashMap<String, NotedNetwork> {
        let admit = |run: &RunNote| match self.egress.grant(run.network.as_ref()?, &note.owner) {
            Ok(grant) => {
                let network = gateway.admit_again(&run.id, grant.policy, self.usage.read(&run.id));
                Some((run.id.clone(), self.usage.of(&run.id, network)))
            }
            Err(error) => {
                warn!(run_id = run.id, %error, "a run of an earlier daemon has no network any more");
                None
            }
        };
        note.runs.iter().filter_map(admit).collect()
    }

    /// Puts a container into the hands of its session.
    pub(super) fn keep(&self, session: &Session, leases: &mut Leases, language: &str, leased: Leased) {
        self.gate.watch(session, leased.container.link().lost());
        session.can_dial(leased.container.link().dials());
        leases.by_language.insert(language.to_owned(), leased);
    }

    /// Saves the files of a container that was lost, before it is given up: those of other programs that are
    /// in it, and those that the store did not take before.
    async fn save_what_is_left(&self, session: &Session, leased: &mut Leased) {
        if !leased.note.has_runs() {
            return leased.save_unsaved(session).await;
        }
        if let Err(error) = salvage::salvage(&session.space, &*leased.container, self.data).await {
            warn!(session_id = %session.id, %error, "the files of a lost container could not be saved");
        }
    }

    /// Waits for a container until `deadline`. While the pool has no slot for it, sessions that rest are
    /// evicted ([`eviction`](super::eviction)).
    async fn wait(
        &self,
        lease: impl Future<Output = Result<Box<dyn Container>, LeaseRefusal>>,
        deadline: Instant,
    ) -> Result<Box<dyn Container>, LeaseRefusal> {
        let mut granted = pin!(lease);
        if let Ok(granted) = tokio::time::timeout_at(deadline, &mut granted).await {
            return granted;
        }
        // Asked before this call leaves the queue of the pool. The pool waits equally long, and may
        // answer the call at this moment. It does not count the call any more then: its answer must be taken.
        let starved = tokio::select! {
            biased;
            granted = &mut granted => return granted,
            starved = self.pool.starved() => starved,
        };
        let refusal = match starved {
            // The wait for other sessions to rest is part of it.
            0 => LeaseRefusal::WaitedTooLong { waited: self.wait },
            _ => LeaseRefusal::Full,
        };
        self.metrics.refused(refusal.as_str());
        Err(refusal)
    }
}

/// Tells the agent which session owns its container.
async fn claim(link: &Link, claim: Claim) -> Result<(), LinkError> {
    let stream = link.request(&Request::Claim(claim))?;
    match port::next(&stream).await? {
        Incoming::Event(Event::Claimed) => Ok(()),
        Incoming::Event(_) | Incoming::Data(..) | Incoming::End => Err(LinkError::Refused),
    }
}
