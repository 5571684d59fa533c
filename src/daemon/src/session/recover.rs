//! After a restart: containers of an earlier daemon go back to their sessions, and what ran in them is heard to its
//! end.
//!
//! ```text
//!  journal ─┬─ container lives, PID 1 tells the same session ─► lease ─► what it has ─► its run: output, end, files
//!           └─ container is gone ─► a run in flight is reported lost
//! ```
//!
//! It must never run anything again, nor believe a container whose claim is not the journal's.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError};
use std::time::Instant;

use paddock_proto::message::{Entry, EntryKind};
use paddock_proto::{Event, Request};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::journal::Flight;
use super::leases::{Known, Leased};
use super::output::Capture;
use super::run::{GRACE, RunEnd, listen};
use super::{Session, SessionError, Sessions, Turn, carry};
use crate::link::{Incoming, Link, LinkError};
use crate::pool::Adopted;
use crate::store::Space;

/// What became of a run that the daemon did not hear to its end in one life.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recovered {
    /// Names the run.
    pub run_id: String,
    /// How it ended, as far as that is known.
    pub end: RunEnd,
    /// Whether its output since the restart, and what was not acknowledged before, is kept as a log.
    pub logged: bool,
    /// Files that it made or changed, all saved.
    pub changed: Vec<Entry>,
}

impl Sessions {
    /// Gives containers back to their sessions. Runs in flight are followed in tasks of their own, which hold the
    /// turns of their sessions. To be called once, before anything is served.
    pub async fn adopt(self: &Arc<Self>, adopted: Vec<Adopted>) {
        let mut notes: HashMap<_, _> = self.journal.take().into_iter().collect();
        for adopted in adopted {
            let name = adopted.lease.name.as_str().to_owned();
            let Some(note) = notes.remove(&name) else {
                warn!(container = name, "a container of an earlier daemon is in no journal; it is removed");
                continue;
            };
            let run = note.run.clone();
            let Ok(id) = note.session.parse() else { continue };
            let Ok(session) = self.get(&note.owner, &id).await else { continue };
            let given = match self.give_back(&session, note.language, adopted).await {
                Ok(given) => given,
                Err(error) => {
                    warn!(container = name, session_id = %id, %error, "a session's container is not taken over");
                    if let Some(run) = run {
                        session.report(Recovered::lost(run, &error));
                    }
                    continue;
                }
            };
            info!(container = name, session_id = %id, runs = given.runs.len(), "a session has its container again");
            if !given.runs.is_empty() {
                let sessions = self.clone();
                tokio::spawn(async move { sessions.hear_out(given, run).await });
            }
        }
        for (container, note) in notes {
            let Some(run) = note.run else { continue };
            let Ok(id) = note.session.parse() else { continue };
            let Ok(session) = self.get(&note.owner, &id).await else { continue };
            warn!(container, session_id = %id, run_id = run.id, "a run was lost with its container");
            session.report(Recovered::lost(run, &"its container is gone"));
        }
    }

    async fn give_back(
        &self,
        session: &Arc<Session>,
        language: String,
        adopted: Adopted,
    ) -> Result<Given, SessionError> {
        let Adopted { lease, claim, runs } = adopted;
        if claim != session.claim() {
            return Err(LinkError::Refused.into());
        }
        let mut turn = self.turn(session).await?;
        self.admit(&mut turn).await?;
        let record = self.note(session, &language, &lease)?;
        let known = told(&session.space, &lease.link, &Request::Base).await?;
        session.watch(&lease.link);
        turn.work.leases.insert(language.clone(), Leased { lease, known, record });
        Ok(Given { turn, language, runs })
    }

    /// Follows what runs in a container that was given back.
    async fn hear_out(&self, given: Given, flight: Option<Flight>) {
        let Given { mut turn, language, runs } = given;
        for id in runs {
            // A run that the journal does not know has the longest wall time that there is.
            let timeout =
                flight.as_ref().filter(|run| run.id == id).map_or(self.bounds.longest, |run| run.timeout);
            let run = Flight { id, timeout };
            let recovered = match self.hear_one(&mut turn, &language, &run).await {
                Ok(recovered) => recovered,
                Err(error) => {
                    warn!(session_id = %turn.session.id, run_id = run.id, %error, "a run of an earlier daemon is lost");
                    turn.work.drop_lease(&language);
                    Recovered::lost(run, &error)
                }
            };
            info!(
                session_id = %turn.session.id,
                run_id = recovered.run_id,
                exit_code = recovered.end.exit_code(),
                files = recovered.changed.len(),
                "a run of an earlier daemon ended"
            );
            turn.session.report(recovered);
        }
    }

    async fn hear_one(
        &self,
        turn: &mut Turn,
        language: &str,
        run: &Flight,
    ) -> Result<Recovered, SessionError> {
        let space = turn.session.space.clone();
        let leased = turn.work.leases.get_mut(language).ok_or(LinkError::Closed)?;
        leased.record.begin(&run.id, run.timeout)?;
        let stream = leased.lease.link.request(&Request::Attach(run.id.clone()))?;
        let mut capture = Capture::new(space.clone(), &run.id, self.bounds.output);
        capture.keep_whole();
        let until = Instant::now() + run.timeout + GRACE;
        let cancel = CancellationToken::new();
        let listening = listen(&stream, until, &cancel, &mut capture);
        let heard = turn.session.unless_closed(&cancel, listening).await;
        let (_, _, logged) = capture.finish();
        let end = heard?;
        let collected = carry::collect(&space, &stream, &mut leased.known, &self.bounds).await?;
        leased.record.end();
        let survivors = end.survivors;
        let end = RunEnd::Ended { outcome: end.outcome, limit: end.limit };
        if survivors > 0 {
            turn.work.drop_lease(language);
        }
        Ok(Recovered { run_id: run.id.clone(), end, logged, changed: collected.changed })
    }
}

/// A session's container, given back; the turn is held.
struct Given {
    turn: Turn,
    language: String,
    runs: Vec<String>,
}

impl Recovered {
    fn lost(run: Flight, why: &dyn std::fmt::Display) -> Self {
        Self { run_id: run.id, end: RunEnd::Lost(why.to_string()), logged: false, changed: Vec::new() }
    }
}

impl Session {
    fn report(&self, recovered: Recovered) {
        self.news.lock().unwrap_or_else(PoisonError::into_inner).push(recovered);
    }

    /// What became of runs that a restart of the daemon fell into, told once.
    pub fn take_news(&self) -> Vec<Recovered> {
        std::mem::take(&mut self.news.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) fn has_news(&self) -> bool {
        !self.news.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }
}

/// What a container has, by its agent's word on [`Request::Base`] or [`Request::Settle`], beside what the store has.
pub(super) async fn told(space: &Arc<Space>, link: &Link, request: &Request) -> Result<Known, LinkError> {
    let stream = link.request(request)?;
    let mut known = Known::default();
    loop {
        let entry = match carry::next(&stream).await? {
            Incoming::Event(Event::Changed(entry)) => entry,
            Incoming::Event(Event::Collected { .. }) => return Ok(known),
            Incoming::Event(_) | Incoming::Data(..) | Incoming::End => return Err(LinkError::Refused),
        };
        let manifest = space.manifest();
        let same = manifest.get(&entry.path).filter(|held| agrees(&held.entry, &entry));
        let generation = same.map_or(0, |held| held.generation);
        drop(manifest);
        known.paths.insert(entry.path, generation);
    }
}

/// Content of a file is told by size and time: both sides keep the time of what they agreed on.
fn agrees(store: &Entry, container: &Entry) -> bool {
    let timed = matches!(store.kind, EntryKind::File(_));
    store.kind == container.kind && (!timed || store.mtime_ns == container.mtime_ns)
}
