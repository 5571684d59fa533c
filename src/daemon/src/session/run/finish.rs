//! The end of a run: what the program changed is saved, or rescued, and its container is kept or given up.
//!
//! It must never report before every changed file is saved, nor keep a container in which something may still
//! run.

use std::fmt::Display;

use paddock_proto::{Request, message};
use tokio::time::Instant;
use tracing::warn;

use super::report::{RunEnd, RunReport, Unsaved};
use super::start::StartedRun;
use crate::link::LinkError;
use crate::metrics::Metrics;
use crate::session::gate::turn::Turn;
use crate::session::lease::{Leased, Leases};
use crate::session::port;
use crate::session::sync::{Collected, DataBounds, SyncError, delta, salvage, sum};
use crate::store::StoreError;

/// Added to the report of a lost run whose files could be saved all the same.
const SALVAGED: &str = "; the files that it had made until then were saved";

/// Added to the report of a lost run whose container could not be read to its end.
const PARTLY_SALVAGED: &str =
    "; of the files that it had made until then, those that could still be read were saved";

/// Added to the report of a lost run whose files the store did not take.
const NOT_SALVAGED: &str = "; the files that it had made until then are lost: ";

/// What the report of a lost run says about the files that were saved of it.
pub(in crate::session) fn salvaged(collected: &Collected) -> &'static str {
    if collected.is_partial { PARTLY_SALVAGED } else { SALVAGED }
}

/// What the end of a run works with.
pub(super) struct Finish<'a> {
    pub(super) turn: &'a Turn,
    pub(super) language: &'a str,
    /// The run's id.
    pub(super) id: &'a str,
    pub(super) started: &'a StartedRun,
    pub(super) data: DataBounds,
    pub(super) metrics: &'a Metrics,
}

impl Finish<'_> {
    /// Saves what the program changed, after its end or after the loss of the link to it, and reports the
    /// run.
    pub(super) async fn report(&self, begun: Instant, end: Result<message::RunEnd, LinkError>) -> RunReport {
        let mut report = RunReport::lost(self.id, begun.elapsed(), self.started.phases);
        let ended = Instant::now();
        if let Some(network) = &self.started.network {
            network.end();
            report.network = network.ledger();
            report.models = network.model_usage();
        }
        let leases = &mut *self.turn.work().await;
        let keep = match end {
            Ok(end) => self.after_end(leases, end, &mut report).await,
            Err(error) => {
                self.rescue(leases, &mut report, &error).await;
                false
            }
        };
        if let Some(leased) = self.leased(leases) {
            leased.note.end(self.id);
            leased.container.note_used();
        }
        let is_used_up = |leased: &mut Leased| {
            leased.container.is_outdated() && !leased.note.has_runs() && !leased.note.has_unsaved()
        };
        if !keep || self.leased(leases).is_some_and(is_used_up) {
            leases.drop_lease(self.language, &self.started.container);
        }
        report.phases.files_out = ended.elapsed();
        report
    }

    /// The run's container, if the session still has it.
    fn leased<'b>(&self, leases: &'b mut Leases) -> Option<&'b mut Leased> {
        leases.named(self.language, &self.started.container)
    }

    /// Saves what the program changed, after its end. Returns whether its container is kept.
    async fn after_end(&self, leases: &mut Leases, end: message::RunEnd, report: &mut RunReport) -> bool {
        let has_warm = |leased: &mut Leased| !leased.container.runner().warm.is_empty();
        report.is_cold = !end.warm && self.leased(leases).is_some_and(has_warm);
        let is_clean = end.survivors == 0;
        report.ended(end);
        match self.save(leases).await {
            Ok(collected) => {
                let (files, bytes) = sum(&collected.changed);
                self.metrics.files_out(files, bytes);
                let keep = is_clean && !collected.is_container_behind;
                if let Some(leased) = self.leased(leases) {
                    leased.list(&self.turn.session().space).await;
                }
                self.note_unsaved(leases, false);
                report.saved(collected);
                keep
            }
            // The container still has everything; the next call saves it, if there is room then.
            Err(SyncError::Store(error)) => {
                let session_id = &self.turn.session().id;
                warn!(%session_id, run_id = self.id, is_kept = is_clean, %error, "files could not be saved");
                self.note_unsaved(leases, !matches!(error, StoreError::Pending(_)));
                report.unsaved = Some(Unsaved { error, is_kept: is_clean });
                is_clean
            }
            // The program ran, but what it left could not be fetched: that is not a success.
            Err(error @ (SyncError::Link(_) | SyncError::NotTaken(_) | SyncError::Unread { .. })) => {
                self.rescue(leases, report, &error).await;
                false
            }
        }
    }

    /// The agent is out of reach: the engine takes the files out of the container, if that still runs.
    async fn rescue(&self, leases: &mut Leases, report: &mut RunReport, why: &(dyn Display + Sync)) {
        let mut outcome = String::new();
        if let Some(leased) = self.leased(leases) {
            let space = &self.turn.session().space;
            match salvage::salvage(space, &*leased.container, self.data).await {
                Ok(Some(collected)) => {
                    outcome = salvaged(&collected).to_owned();
                    report.saved(collected);
                }
                Ok(None) => {}
                // They will be in place. Whether the container was read to its end, the error does not say.
                Err(StoreError::Pending(_)) => outcome = PARTLY_SALVAGED.to_owned(),
                Err(error) => outcome = format!("{NOT_SALVAGED}{error}"),
            }
        }
        report.end = RunEnd::Lost(format!("{why}{outcome}"));
    }

    /// Notes whether the container has files that the store could not take.
    fn note_unsaved(&self, leases: &mut Leases, unsaved: bool) {
        if let Some(leased) = self.leased(leases) {
            leased.note.set_unsaved(unsaved);
        }
    }

    async fn save(&self, leases: &mut Leases) -> Result<Collected, SyncError> {
        let leased = self.leased(leases).ok_or(LinkError::Closed)?;
        let (space, stream) = (&self.turn.session().space, &self.started.stream);
        let rules = self.data.rules(leased.container.runner());
        port::accepted(stream.say(&Request::Collect(rules))).await?;
        delta::collect(space, stream, &mut leased.baseline, self.data).await
    }
}
