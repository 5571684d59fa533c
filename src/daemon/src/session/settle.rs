//! After a program's end: what it changed is saved, or rescued, and its container is kept or given up.
//!
//! It must never report before every changed file is saved, nor keep a container in which something may still run.

use std::time::{Duration, Instant};

use paddock_proto::Request;
use tracing::warn;

use super::carry::{self, Collected, sum};
use super::leases::{Leased, Work};
use super::report::{RunEnd, RunReport};
use super::run::Sent;
use super::{SessionError, Sessions, Turn, salvage};
use crate::link::LinkError;

/// What is said of a lost run whose files could be had all the same.
const SALVAGED: &str = "; the files that it had made until then were saved";

impl Sessions {
    /// After the end of a program, or of the link to it: its files are saved.
    pub(super) async fn settle(
        &self,
        turn: &Turn,
        language: &str,
        id: &str,
        sent: &Sent,
        begun: Instant,
        followed: Result<paddock_proto::message::RunEnd, LinkError>,
    ) -> RunReport {
        let session = &turn.session;
        let mut report = RunReport {
            run_id: id.to_owned(),
            end: RunEnd::Lost(String::new()),
            changed: Vec::new(),
            not_saved: Vec::new(),
            unsaved: None,
            duration: begun.elapsed(),
            phases: sent.phases,
            warm: false,
            is_cold: false,
        };
        let mut keep = false;
        let ended = Instant::now();
        let work = &mut *turn.work().await;
        match followed {
            Ok(end) => {
                report.duration = Duration::from_micros(end.wall_us);
                report.end = RunEnd::Ended { outcome: end.outcome, limit: end.limit };
                report.warm = end.warm;
                let has_warm = |leased: &mut Leased| !leased.lease.runner.warm.is_empty();
                report.is_cold = !end.warm && work.named(language, &sent.name).is_some_and(has_warm);
                match self.save(turn, work, language, sent).await {
                    Ok(collected) => {
                        let (files, bytes) = sum(&collected.changed);
                        self.metrics.files_out(files, bytes);
                        keep = end.survivors == 0;
                        report.took(collected);
                    }
                    // The container still has everything; the next call saves it, if there is room then.
                    Err(SessionError::Store(error)) => {
                        warn!(session_id = %session.id, run_id = id, %error, "files could not be saved");
                        keep = end.survivors == 0;
                        report.unsaved = Some(error);
                    }
                    // The program ran, but what it left could not be had: that is not a success.
                    Err(error) => self.rescue(turn, work, language, sent, &mut report, &error).await,
                }
            }
            Err(error) => self.rescue(turn, work, language, sent, &mut report, &error).await,
        }
        if let Some(leased) = work.named(language, &sent.name) {
            leased.record.end(id);
            leased.lease.warm.used();
        }
        if !keep {
            work.drop_lease(language, &sent.name);
        }
        report.phases.files_out = ended.elapsed();
        report
    }

    /// The container's agent is out of reach: its files are taken out by the engine, if it runs still.
    async fn rescue(
        &self,
        turn: &Turn,
        work: &mut Work,
        language: &str,
        sent: &Sent,
        report: &mut RunReport,
        why: &(dyn std::fmt::Display + Sync),
    ) {
        let mut outcome = "";
        if let Some(leased) = work.named(language, &sent.name) {
            match salvage::salvage(&turn.session.space, &leased.lease, &self.bounds).await {
                Ok(Some(collected)) => {
                    report.took(collected);
                    outcome = SALVAGED;
                }
                Ok(None) => {}
                Err(error) => report.unsaved = Some(error),
            }
        }
        report.end = RunEnd::Lost(format!("{why}{outcome}"));
    }

    async fn save(
        &self,
        turn: &Turn,
        work: &mut Work,
        language: &str,
        sent: &Sent,
    ) -> Result<Collected, SessionError> {
        let leased = work.named(language, &sent.name).ok_or(LinkError::Closed)?;
        carry::taken(sent.stream.say(&Request::Collect)).await?;
        carry::collect(&turn.session.space, &sent.stream, &mut leased.known, &self.bounds).await
    }
}
