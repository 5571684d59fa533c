//! After a restart: containers of an earlier daemon go back to their sessions, and what runs in them is
//! followed to its end.
//!
//! ```text
//!  notes ─┬─ container lives, its agent names the same session ─► leased again ─► its runs are followed
//!         │                                      of another version: until nothing runs in it any more
//!         ├─ container lived, its agent did not answer ─► read (`rescue`); its runs are reported lost
//!         ├─ container is gone, its workspace is there ─► kept; its runs are reported lost
//!         └─ both are gone ─► its runs are reported lost
//! ```
//!
//! It must never run anything again, nor believe a container whose claim is not that of the noted session.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::Display;
use std::sync::Arc;

use paddock_proto::Request;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::Leased;
use super::notes::{LeaseNote, RunNote};
use super::rescue::LostFiles;
use super::usage_notes::NotedNetwork;
use crate::link::LinkError;
use crate::pool::Adopted;
use crate::session::error::SessionError;
use crate::session::gate::message::TurnKind;
use crate::session::gate::turn::Turn;
use crate::session::output::capture::Capture;
use crate::session::port::FoundContainer;
use crate::session::registry::Session;
use crate::session::run::finish::salvaged;
use crate::session::run::follow::{Control, OutputSink};
use crate::session::run::report::{Recovered, RunReport};
use crate::session::sessions::Sessions;
use crate::session::sync::baseline::Baseline;
use crate::session::sync::{Collected, salvage};

/// A run that an earlier daemon started, in a container that its session has again.
pub struct ResumableRun {
    session: Arc<Session>,
    language: String,
    run: RunNote,
    /// Its way out, if it has one.
    network: Option<NotedNetwork>,
    /// Its turn, unless it must wait for one because programs of another language were under way as well.
    turn: Option<Turn>,
}

impl ResumableRun {
    /// The run's id.
    pub fn id(&self) -> &str {
        &self.run.id
    }

    /// The session that it runs in.
    pub fn session(&self) -> &Arc<Session> {
        &self.session
    }

    /// Follows the run to its end, and passes its output to `sink`. A call that closes the session cancels
    /// `cancel`, which must be the token that `control` obeys.
    ///
    /// # Errors
    /// A [`SessionError`] means that its session has no turn or no container for it any more.
    pub async fn follow(
        self,
        sessions: &Sessions,
        cancel: &CancellationToken,
        control: Control,
        sink: &mut dyn OutputSink,
    ) -> Result<RunReport, SessionError> {
        let Self { session, language, run, turn, network } = self;
        let turn = match turn {
            Some(turn) => turn,
            None => sessions.gate.enter(&session.key, sessions.turn_of_resumed(&language, &run)).await?,
        };
        let following = sessions.runs().resume(&turn, &language, (&run, network), control, sink);
        turn.unless_closed(cancel, following).await.0
    }
}

impl Sessions {
    /// Gives containers of an earlier daemon back to their sessions. Code that runs in them is followed in
    /// tasks of its own, with a turn in its session; the commands that run are returned. To be called once,
    /// before anything is served.
    pub async fn adopt(self: &Arc<Self>, adopted: Adopted, lost: &LostFiles) -> Vec<ResumableRun> {
        let Adopted { containers, workspaces } = adopted;
        let workspaces = workspaces.iter().map(ToString::to_string).collect();
        let found = containers.into_iter().map(FoundContainer::from).collect();
        self.recover(found, workspaces, lost.take()).await
    }

    /// `workspaces` are those that the engine still has of noted containers that are gone, and `saved` what
    /// was read out of such containers before they went.
    pub(in crate::session) async fn recover(
        self: &Arc<Self>,
        found: Vec<FoundContainer>,
        mut workspaces: BTreeSet<String>,
        mut saved: BTreeMap<String, Collected>,
    ) -> Vec<ResumableRun> {
        let notes = &self.runs().lessor().notes;
        let mut noted: HashMap<_, _> = notes.read().into_iter().collect();
        self.workspaces().keep_lists(|name| noted.contains_key(name));
        let mut resumable = Vec::new();
        for found in found {
            let name = found.container.name().to_owned();
            let Some(note) = noted.remove(&name) else {
                warn!(
                    container = name,
                    "no note names the session of an earlier daemon's container; it is removed"
                );
                continue;
            };
            if note.kept_since_ms.is_some() {
                // The earlier daemon died before it had removed the container, or while it began over the
                // workspace.
                found.container.keep_workspace(true);
                drop(found);
                self.workspaces().found(&name, note);
                continue;
            }
            match self.give_back(&note, found).await {
                Ok(runs) => resumable.extend(runs),
                Err(error) => {
                    let session_id = &note.session;
                    warn!(container = name, session_id, %error, "a container is not taken over");
                    self.report_lost(&note, &error, None).await;
                    notes.forget(&name);
                }
            }
        }
        for (container, note) in noted {
            let saved = saved.remove(&container);
            self.report_lost(&note, &"its container is gone, or did not answer", saved).await;
            if workspaces.remove(&container) {
                self.workspaces().found(&container, note);
            } else {
                notes.forget(&container);
            }
        }
        let is_resumed = |id: &str| resumable.iter().any(|run| run.id() == id);
        self.runs().lessor().usage.keep_only(is_resumed);
        let (commands, code): (Vec<_>, Vec<_>) = resumable.into_iter().partition(|run| run.run.is_command);
        for run in code {
            let sessions = self.clone();
            tokio::spawn(async move { sessions.follow_code(run).await });
        }
        commands
    }

    /// Reports the code that was in flight in a container that its session cannot have again.
    async fn report_lost(&self, note: &LeaseNote, why: &(dyn Display + Sync), saved: Option<Collected>) {
        let Ok(id) = note.session.parse() else { return };
        let what_became = saved.as_ref().map_or("", salvaged);
        let why = &format!("{why}{what_became}");
        let mut saved = saved.unwrap_or_default();
        for run in note.runs.iter().filter(|run| !run.is_command) {
            warn!(session_id = %id, run_id = run.id, %why, "a run was lost with its container");
            if let Ok(session) = self.get(&note.owner, &id).await {
                // Nobody knows which run made which file: the first one tells of all.
                let Collected { changed, not_saved, .. } = std::mem::take(&mut saved);
                let lost = Recovered::lost(run.id.clone(), why);
                session.report(Recovered { changed, not_saved, ..lost });
            }
        }
    }

    /// Gives a container back to the session that its note names, and returns the runs that are in flight
    /// there.
    async fn give_back(
        &self,
        note: &LeaseNote,
        found: FoundContainer,
    ) -> Result<Vec<ResumableRun>, SessionError> {
        let FoundContainer { mut container, claim, runs } = found;
        let id = note.session.parse().map_err(|_| LinkError::Refused)?;
        let session = self.get(&note.owner, &id).await?;
        if claim != session.claim() {
            return Err(LinkError::Refused.into());
        }
        container.belongs_to(self.gate.share(&session.owner));
        let mut networks;
        {
            let leases = &mut *session.work().await;
            let lessor = self.runs().lessor();
            if leases.permit.is_none() {
                leases.permit = Some(self.gate.free_permit(&session).await?);
            }
            let (space, link) = (&session.space, container.link());
            let baseline = match Baseline::ask(space, link, &Request::Base, lessor.data).await {
                Ok(baseline) => baseline,
                Err(error) => {
                    leases.drop_resting(&note.language);
                    if (!note.runs.is_empty() || note.unsaved)
                        && let Err(error) = salvage::salvage(space, &*container, lessor.data).await
                    {
                        warn!(session_id = %session.id, %error, "files of a container could not be saved");
                    }
                    return Err(error.into());
                }
            };
            let kept = lessor.notes.write(container.name(), note.clone());
            let name = container.name().to_owned();
            let gateway = lessor.gateway(&session, &*container);
            networks = lessor.admit_again(&gateway, note);
            let leased = Leased::new(container, baseline, kept, (lessor.data, gateway.open()));
            let mut leased = leased.kept_by(self.workspaces().keeper(&session, &note.language));
            leased.list(&session.space).await;
            if leased.container.is_outdated() && runs.is_empty() {
                // Nothing runs in it, and nothing more shall.
                info!(name, session_id = %session.id, "a container of a session is outdated, and given up");
                leased.save_unsaved(&session).await;
                drop(leased);
                leases.drop_resting(&note.language);
                return Ok(Vec::new());
            }
            info!(name, session_id = %session.id, runs = runs.len(), "a session has its container again");
            lessor.keep(&session, leases, &note.language, leased);
        }
        let mut in_flight = Vec::new();
        for id in runs {
            // A run that the note does not have can have the longest wall time that there is.
            let noted = note.runs.iter().find(|run| run.id == id).cloned();
            let longest = self.bounds().longest;
            let run = noted.unwrap_or(RunNote { id, timeout: longest, is_command: false, network: None });
            let kind = self.turn_of_resumed(&note.language, &run);
            let turn = self.gate.try_enter(&session.key, kind).await.ok();
            let (session, language) = (session.clone(), note.language.clone());
            let network = networks.remove(&run.id);
            in_flight.push(ResumableRun { session, language, run, turn, network });
        }
        Ok(in_flight)
    }

    fn turn_of_resumed(&self, language: &str, run: &RunNote) -> TurnKind {
        let is_alone = run.network.is_some() && !self.separates_runs(language);
        TurnKind::Resumed { language: language.to_owned(), is_command: run.is_command, is_alone }
    }

    /// Follows code that runs in the container of a session, and keeps its end for the session's next call.
    async fn follow_code(&self, run: ResumableRun) {
        let (session, id) = (run.session.clone(), run.run.id.clone());
        let cancel = self.ending.child_token();
        let mut capture = Capture::new(session.space.clone(), &id, self.bounds().shown(), None);
        let control = Control::end_only(&cancel);
        let followed = run.follow(self, &cancel, control, &mut capture).await;
        let logged = capture.finish().await.logged;
        let recovered = match followed {
            Ok(report) => Recovered {
                run_id: report.run_id,
                end: report.end,
                logged,
                changed: report.changed,
                not_saved: report.not_saved,
                unsaved: report.unsaved.map(|unsaved| unsaved.to_string()),
            },
            Err(error) => Recovered::lost(id, &error),
        };
        info!(
            session_id = %session.id,
            run_id = recovered.run_id,
            exit_code = recovered.end.exit_code(),
            files = recovered.changed.len(),
            "a run of an earlier daemon ended"
        );
        session.report(recovered);
    }
}

#[cfg(test)]
mod tests;
