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

use paddock_proto::message::{Entry, EntryKind};
use paddock_proto::{Event, Request};
use tracing::{info, warn};

use super::hear::{Control, Hearer};
use super::journal::{Flight, Note};
use super::leases::{Known, Leased};
use super::output::Capture;
use super::report::{RunEnd, RunReport};
use super::{Session, SessionBounds, SessionError, Sessions, Turn, carry};
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

/// A program that an earlier daemon started, in a container that its session has again.
pub struct Flying {
    session: Arc<Session>,
    language: String,
    flight: Flight,
    /// Its place, unless it has to wait for one: for programs of another language that were under way as well.
    turn: Option<Turn>,
}

impl Flying {
    /// What it was called.
    pub fn id(&self) -> &str {
        &self.flight.id
    }

    /// Whose session it is in.
    pub fn session(&self) -> &Arc<Session> {
        &self.session
    }
}

impl Sessions {
    /// Gives containers back to their sessions. Code that runs in them is followed in tasks of their own, which have their
    /// places in the sessions; the commands that run are in the answer. To be called once, before anything is served.
    pub async fn adopt(self: &Arc<Self>, adopted: Vec<Adopted>) -> Vec<Flying> {
        let mut notes: HashMap<_, _> = self.journal.read().into_iter().collect();
        let mut flying = Vec::new();
        for adopted in adopted {
            let name = adopted.lease.name.to_string();
            let Some(note) = notes.remove(&name) else {
                warn!(container = name, "a container of an earlier daemon is in no journal; it is removed");
                continue;
            };
            match self.give_back(&note, adopted).await {
                Ok(runs) => flying.extend(runs),
                Err(error) => {
                    warn!(container = name, session_id = note.session, %error, "a container is not taken over");
                    self.journal.forget(&name);
                    self.lost(note, &error).await;
                }
            }
        }
        for (container, note) in notes {
            self.journal.forget(&container);
            self.lost(note, &"its container is gone, or did not answer").await;
        }
        let (commands, code): (Vec<_>, Vec<_>) = flying.into_iter().partition(|run| run.flight.is_command);
        for run in code {
            let sessions = self.clone();
            tokio::spawn(async move { sessions.hear_out(run).await });
        }
        commands
    }

    /// Reports the code that was in flight in a container that cannot be had again.
    async fn lost(&self, note: Note, why: &(dyn std::fmt::Display + Sync)) {
        let Ok(id) = note.session.parse() else { return };
        for run in note.runs.into_iter().filter(|run| !run.is_command) {
            warn!(session_id = %id, run_id = run.id, %why, "a run was lost with its container");
            if let Ok(session) = self.get(&note.owner, &id).await {
                session.report(Recovered::lost(run.id, why));
            }
        }
    }

    async fn give_back(&self, note: &Note, adopted: Adopted) -> Result<Vec<Flying>, SessionError> {
        let Adopted { lease, claim, runs } = adopted;
        let id = note.session.parse().map_err(|_| LinkError::Refused)?;
        let session = self.get(&note.owner, &id).await?;
        if claim != session.claim() {
            return Err(LinkError::Refused.into());
        }
        {
            let work = &mut *session.places.work().await;
            self.admit(work).await?;
            let known = match told(&session.space, &lease.link, &Request::Base, &self.bounds).await {
                Ok(known) => known,
                Err(error) => {
                    work.drop_resting(&note.language);
                    return Err(error.into());
                }
            };
            let record = self.journal.write(lease.name.as_str(), note.clone());
            session.watch(&lease.link);
            info!(name = %lease.name, session_id = %session.id, runs = runs.len(), "a session has its container again");
            work.leases.insert(note.language.clone(), Leased { lease, known, record });
        }
        let mut flying = Vec::new();
        for id in runs {
            // A run that the journal does not know can have the longest wall time that there is.
            let known = note.runs.iter().find(|run| run.id == id).cloned();
            let flight = known.unwrap_or(Flight { id, timeout: self.bounds.longest, is_command: false });
            let turn = self.place_now(&session, &note.language, !flight.is_command);
            flying.push(Flying { session: session.clone(), language: note.language.clone(), flight, turn });
        }
        Ok(flying)
    }

    /// Hears a command that an earlier daemon started to its end, with `hearer` told of its output.
    ///
    /// # Errors
    /// A [`SessionError`] means that its session has no place for it any more.
    pub async fn hear_on(
        &self,
        flying: Flying,
        control: Control,
        hearer: &mut dyn Hearer,
    ) -> Result<RunReport, SessionError> {
        let Flying { session, language, flight, turn } = flying;
        let turn = match turn {
            Some(turn) => turn,
            None => self.place(&session, &language).await?,
        };
        self.resume(&turn, &language, &flight, control, hearer).await
    }

    /// Follows code that runs in the container of a session.
    async fn hear_out(&self, flying: Flying) {
        let (session, id) = (flying.session.clone(), flying.flight.id.clone());
        let cancel = self.ending.child_token();
        let mut capture = Capture::new(session.space.clone(), &id, self.bounds.output, None);
        let hearing = self.hear_on(flying, Control::end_only(&cancel), &mut capture);
        let (heard, _) = session.unless_closed(&cancel, hearing).await;
        let logged = capture.finish().logged;
        let recovered = match heard {
            Ok(report) => Recovered {
                run_id: report.run_id,
                end: report.end,
                logged,
                changed: report.changed,
                not_saved: report.not_saved,
                unsaved: report.unsaved.map(|error| error.to_string()),
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
pub(super) async fn told(
    space: &Arc<Space>,
    link: &Link,
    request: &Request,
    bounds: &SessionBounds,
) -> Result<Known, LinkError> {
    let stream = link.request(request)?;
    let mut known = Known::default();
    let mut left = bounds.data_inodes.saturating_mul(3); // what was and what is, as in a collection
    loop {
        let entry = match carry::next(&stream).await? {
            Incoming::Event(Event::Changed(entry)) => entry,
            Incoming::Event(Event::Collected { .. }) => return Ok(known),
            Incoming::Event(_) | Incoming::Data(..) | Incoming::End => return Err(LinkError::Refused),
        };
        left = left.checked_sub(1).ok_or(LinkError::Refused)?;
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
