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

use super::journal::{Flight, Note};
use super::leases::{Known, Leased};
use super::output::Capture;
use super::run::{GRACE, RunEnd, SALVAGED, listen};
use super::{Session, SessionError, Sessions, Turn, carry, salvage};
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
    /// What it made that is not saved, and why.
    pub not_saved: Vec<(Vec<u8>, &'static str)>,
    /// Why nothing of it is saved: the store failed. The container keeps it; the next call saves it if it can.
    pub unsaved: Option<String>,
}

/// A session's containers, given back one by one; its turn is held until all that ran in them is heard.
struct Given {
    turn: Turn,
    flights: Vec<(String, Flight)>,
}

impl Sessions {
    /// Gives containers back to their sessions. Runs in flight are followed in tasks of their own, which hold the
    /// turns of their sessions. To be called once, before anything is served.
    pub async fn adopt(self: &Arc<Self>, adopted: Vec<Adopted>) {
        let mut notes: HashMap<_, _> = self.journal.read().into_iter().collect();
        let mut sessions: HashMap<(String, String), Given> = HashMap::new();
        for adopted in adopted {
            let name = adopted.lease.name.to_string();
            let Some(note) = notes.remove(&name) else {
                warn!(container = name, "a container of an earlier daemon is in no journal; it is removed");
                continue;
            };
            let key = (note.owner.clone(), note.session.clone());
            // One container that cannot be given back takes nothing from the others of its session.
            let mut given = sessions.remove(&key);
            if let Err(error) = self.give_back(&mut given, &note, adopted).await {
                warn!(container = name, session_id = note.session, %error, "a container is not taken over");
                self.journal.forget(&name);
                self.lost(note, &error).await;
            }
            sessions.extend(given.map(|given| (key, given)));
        }
        for (container, note) in notes {
            self.journal.forget(&container);
            self.lost(note, &"its container is gone, or did not answer").await;
        }
        for given in sessions.into_values().filter(|given| !given.flights.is_empty()) {
            let sessions = self.clone();
            tokio::spawn(async move { sessions.hear_out(given).await });
        }
    }

    /// Reports what was in flight in a container that cannot be had again.
    async fn lost(&self, note: Note, why: &(dyn std::fmt::Display + Sync)) {
        let Some(run) = note.run else { return };
        let Ok(id) = note.session.parse() else { return };
        warn!(session_id = %id, run_id = run.id, %why, "a run was lost with its container");
        if let Ok(session) = self.get(&note.owner, &id).await {
            session.report(Recovered::lost(run.id, why));
        }
    }

    async fn give_back(
        &self,
        given: &mut Option<Given>,
        note: &Note,
        adopted: Adopted,
    ) -> Result<(), SessionError> {
        let Adopted { lease, claim, runs } = adopted;
        let given = match given {
            Some(given) => given,
            None => {
                let id = note.session.parse().map_err(|_| LinkError::Refused)?;
                let session = self.get(&note.owner, &id).await?;
                given.insert(Given { turn: self.turn(&session).await?, flights: Vec::new() })
            }
        };
        let session = given.turn.session.clone();
        if claim != session.claim() {
            return Err(LinkError::Refused.into());
        }
        self.admit(&mut given.turn).await?;
        let known = told(&session.space, &lease.link, &Request::Base).await?;
        let record = self.journal.write(lease.name.as_str(), note.clone());
        session.watch(&lease.link);
        info!(name = %lease.name, session_id = %session.id, runs = runs.len(), "a session has its container again");
        for id in runs {
            // A run that the journal does not know can have the longest wall time that there is.
            let known = note.run.as_ref().filter(|run| run.id == id);
            let timeout = known.map_or(self.bounds.longest, |run| run.timeout);
            given.flights.push((note.language.clone(), Flight { id, timeout }));
        }
        given.turn.work.leases.insert(note.language.clone(), Leased { lease, known, record });
        Ok(())
    }

    /// Follows what runs in the containers of a session.
    async fn hear_out(&self, given: Given) {
        let Given { mut turn, flights } = given;
        let session = turn.session.clone();
        for (language, run) in flights {
            let cancel = self.ending.child_token();
            let hearing = self.hear_one(&mut turn, &language, &run, &cancel);
            let (heard, _) = session.unless_closed(&cancel, hearing).await;
            let recovered = match heard {
                Ok(recovered) => recovered,
                Err(error) => {
                    warn!(session_id = %turn.session.id, run_id = run.id, %error, "a run of an earlier daemon is lost");
                    let rescued = self.rescued(&turn, &language, run.id, &error).await;
                    turn.work.drop_lease(&language);
                    rescued
                }
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

    /// What the engine can still take out of the container of a run that is lost.
    async fn rescued(&self, turn: &Turn, language: &str, run_id: String, why: &SessionError) -> Recovered {
        let mut lost = Recovered::lost(run_id, why);
        let Some(leased) = turn.work.leases.get(language) else { return lost };
        match salvage::salvage(&turn.session.space, &leased.lease, &self.bounds).await {
            Ok(Some(collected)) => {
                lost.end = RunEnd::Lost(format!("{why}{SALVAGED}"));
                lost.changed = collected.changed;
                lost.not_saved = collected.not_saved;
            }
            Ok(None) => {}
            Err(error) => lost.unsaved = Some(error.to_string()),
        }
        lost
    }

    async fn hear_one(
        &self,
        turn: &mut Turn,
        language: &str,
        run: &Flight,
        cancel: &CancellationToken,
    ) -> Result<Recovered, SessionError> {
        let space = turn.session.space.clone();
        let leased = turn.work.leases.get_mut(language).ok_or(LinkError::Closed)?;
        leased.record.begin(&run.id, run.timeout);
        let stream = leased.lease.link.request(&Request::Attach(run.id.clone()))?;
        let mut capture = Capture::new(space.clone(), &run.id, self.bounds.output);
        match carry::next(&stream).await? {
            Incoming::Event(Event::Attached { heard }) => capture.go_on(heard),
            Incoming::Event(_) | Incoming::Data(..) | Incoming::End => return Err(LinkError::Refused.into()),
        }
        let until = Instant::now() + run.timeout + GRACE;
        let heard = listen(&stream, until, cancel, &mut capture).await;
        let (_, _, logged) = capture.finish();
        let end = heard?;
        let survivors = end.survivors;
        let end = RunEnd::Ended { outcome: end.outcome, limit: end.limit };
        let mut recovered = Recovered {
            run_id: run.id.clone(),
            end,
            logged,
            changed: Vec::new(),
            not_saved: Vec::new(),
            unsaved: None,
        };
        match carry::collect(&space, &stream, &mut leased.known, &self.bounds).await {
            Ok(collected) => {
                recovered.changed = collected.changed;
                recovered.not_saved = collected.not_saved;
            }
            Err(SessionError::Store(error)) => recovered.unsaved = Some(error.to_string()),
            Err(error) => return Err(error),
        }
        leased.record.end();
        if survivors > 0 {
            turn.work.drop_lease(language);
        }
        Ok(recovered)
    }
}

impl Recovered {
    fn lost(run_id: String, why: &dyn std::fmt::Display) -> Self {
        Self {
            run_id,
            end: RunEnd::Lost(why.to_string()),
            logged: false,
            changed: Vec::new(),
            not_saved: Vec::new(),
            unsaved: None,
        }
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
