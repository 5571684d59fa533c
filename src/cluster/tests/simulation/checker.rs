//! What must be true, whatever happens. It sees everything, true time included, and shares no rule with what
//! it checks: it compares what nodes did with what the database and S3 hold in that moment.

use std::collections::{BTreeMap, BTreeSet};

use paddock_cluster::ownership::Fence;

use super::database::Database;
use super::message::{FILES, Key, Note, Saved};
use super::objects::Objects;

#[derive(Default)]
struct Session {
    /// Which turns were written to the row, each with the fence of its write.
    written: BTreeMap<u64, Fence>,
    /// The turn of the last acknowledged write of each file.
    acknowledged: [Option<u64>; FILES],
    /// Who has acknowledged with which fence.
    by: BTreeMap<Fence, usize>,
    /// Nodes that have a container of this session.
    containers: BTreeSet<usize>,
}

pub(crate) struct Checker {
    sessions: Vec<Session>,
    /// Whether leases must exclude each other; fences must in any case.
    clocks_are_good: bool,
    broken: Option<String>,
    pub(crate) acknowledged: u64,
}

impl Checker {
    pub(crate) fn new(sessions: usize, clocks_are_good: bool) -> Checker {
        let sessions = (0..sessions).map(|_| Session::default()).collect();
        Checker { sessions, clocks_are_good, broken: None, acknowledged: 0 }
    }

    /// Notes the first thing that is wrong.
    pub(crate) fn fail(&mut self, what: impl Into<String>) {
        self.broken.get_or_insert_with(|| what.into());
    }

    pub(crate) fn broken(&self) -> Option<&str> {
        self.broken.as_deref()
    }

    /// `excused`: nodes that stand still, or did a moment ago; their containers cannot end in time.
    pub(crate) fn note(
        &mut self,
        node: usize,
        note: Note,
        database: &Database,
        objects: &Objects,
        excused: &[bool],
    ) {
        match note {
            Note::Acknowledged { session, fence, file, saved } => {
                self.acknowledges(node, session, fence, file, saved, database, objects);
            }
            Note::Read { session, fence, file, saved } => {
                let row = database.sessions[session].as_ref();
                let is_owner = row.is_some_and(|row| row.owner == node && row.fence == fence);
                if self.clocks_are_good && !is_owner {
                    self.fail(format!("node {node} reads session {session} with {fence:?} after a takeover"));
                }
                let current = row.and_then(|row| row.files[file]);
                if self.clocks_are_good && current != saved {
                    self.fail(format!(
                        "node {node} reads {saved:?} in session {session}, but there is {current:?}"
                    ));
                }
            }
            Note::ContainerStarts { session } => {
                let containers = &mut self.sessions[session].containers;
                let other = containers.iter().copied().find(|other| *other != node && !excused[*other]);
                containers.insert(node);
                if let Some(other) = other
                    && self.clocks_are_good
                {
                    self.fail(format!("nodes {other} and {node} run session {session} at one time"));
                }
            }
            Note::ContainerEnded { session } => {
                self.sessions[session].containers.remove(&node);
            }

            Note::Left => {
                if let Some(session) = self.sessions.iter().position(|found| found.containers.contains(&node))
                {
                    self.fail(format!("node {node} has left with a container of session {session}"));
                }
            }
        }
    }

    #[expect(clippy::too_many_arguments, reason = "the fields of a note, and the world")]
    fn acknowledges(
        &mut self,
        node: usize,
        session: usize,
        fence: Fence,
        file: usize,
        saved: Saved,
        database: &Database,
        objects: &Objects,
    ) {
        self.acknowledged += 1;
        let row = database.sessions[session].as_ref();
        let is_owner = row.is_some_and(|row| row.owner == node && row.fence == fence);
        let known = &mut self.sessions[session];
        let other = known.by.insert(fence, node).filter(|other| *other != node);
        let written = known.written.get(&saved.turn) == Some(&fence);
        known.acknowledged[file] = known.acknowledged[file].max(Some(saved.turn));
        if let Some(other) = other {
            self.fail(format!("nodes {other} and {node} acknowledge session {session} with {fence:?}"));
        } else if !written {
            self.fail(format!(
                "node {node} acknowledges turn {} of session {session} without a row",
                saved.turn
            ));
        } else if row.and_then(|row| row.files[file]).is_none_or(|there| there.turn < saved.turn)
            || is_owner && row.and_then(|row| row.files[file]) != Some(saved)
        {
            self.fail(format!("node {node} acknowledges what session {session} has lost"));
        } else if !is_stored(saved, database, objects) && is_owner {
            self.fail(format!("node {node} acknowledges an object of session {session} that is not stored"));
        }
    }

    /// A row now names this object.
    #[expect(clippy::too_many_arguments, reason = "the fields of a change, and the world")]
    pub(crate) fn wrote(
        &mut self,
        session: usize,
        fence: Fence,
        file: usize,
        before: Option<Saved>,
        saved: Saved,
        database: &Database,
        objects: &Objects,
    ) {
        let known = &mut self.sessions[session];
        known.written.insert(saved.turn, fence);
        let lost = known.acknowledged[file].filter(|acknowledged| *acknowledged > saved.turn);
        if let Some(lost) = lost {
            self.fail(format!(
                "session {session}: turn {} replaces turn {lost}, which was acknowledged",
                saved.turn
            ));
        } else if before.is_some_and(|before| before.turn > saved.turn) {
            self.fail(format!("session {session}: turn {} replaces {before:?}", saved.turn));
        } else if !is_stored(saved, database, objects) {
            self.fail(format!("session {session}: a row names {saved:?}, which is not stored"));
        }
    }

    pub(crate) fn deletes(&mut self, key: Key, database: &Database) {
        let is_named = database.named().any(|saved| saved.content == key.content);
        if is_named && database.key_of(key.content) == Some(key) {
            self.fail(format!("{key:?} is deleted while a row names it"));
        }
    }

    /// The node has died, and its containers with it.
    pub(crate) fn died(&mut self, node: usize) {
        self.sessions.iter_mut().for_each(|session| {
            session.containers.remove(&node);
        });
    }

    /// Everything that was acknowledged is there in the end.
    pub(crate) fn end(&mut self, database: &Database, objects: &Objects) {
        for session in 0..self.sessions.len() {
            let acknowledged = self.sessions[session].acknowledged;
            for (file, turn) in acknowledged.into_iter().enumerate() {
                let saved = database.sessions[session].as_ref().and_then(|row| row.files[file]);
                if turn.is_some() && saved.map(|saved| saved.turn) < turn {
                    self.fail(format!(
                        "session {session}: turn {turn:?} was acknowledged and is lost: {saved:?}"
                    ));
                }
            }
        }
        if let Some(missing) = database.named().find(|saved| !is_stored(**saved, database, objects)) {
            self.fail(format!("a row names {missing:?}, which is not stored"));
        }
    }
}

/// Whether a node that reads this file would get its content.
fn is_stored(saved: Saved, database: &Database, objects: &Objects) -> bool {
    database.key_of(saved.content).is_some_and(|key| objects.has(key))
}
