//! PostgreSQL as the nodes see it: each statement is one step, in the order of arrival. Which rows a
//! statement may change is decided by the rules under test; what it does with contents is what
//! `paddock-ledger` does.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use paddock_cluster::ownership::{Fence, Found, Owner, Start};
use paddock_cluster::placement::NodeLoad;

use super::message::{FILES, Files, Key, Micros, Reply, Saved, Statement};
use super::route::lives;
use super::rules::{Mutation, Rules};

#[derive(Debug, Clone)]
struct NodeRow {
    start: Start,
    /// By the clock of the database.
    renewed: Micros,
    free: u32,
    draining: bool,
    has_left: bool,
}

#[derive(Debug, Clone)]
pub(crate) struct SessionRow {
    pub(crate) owner: usize,
    pub(crate) fence: Fence,
    pub(crate) files: Files,
}

/// A content in S3.
#[derive(Debug, Clone)]
struct ObjectRow {
    key: Key,
    is_stored: bool,
    touched: Micros,
    marked: Option<Micros>,
}

/// A change that the checker must know.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Change {
    Claimed { session: usize, before: Option<usize> },
    Wrote { session: usize, file: usize, before: Option<Saved>, saved: Saved },
}

pub(crate) struct Database {
    names: Vec<String>,
    nodes: Vec<Option<NodeRow>>,
    pub(crate) sessions: Vec<Option<SessionRow>>,
    contents: BTreeMap<u32, ObjectRow>,
    graves: BTreeSet<Key>,
    next_number: u64,
    last_fence: Fence,
    last_start: Start,
    /// Statements, and rows that they changed.
    pub(crate) executed: u64,
    pub(crate) changed: u64,
}

pub(crate) fn name(node: usize) -> String {
    format!("node-{node}")
}

impl Database {
    pub(crate) fn new(nodes: usize, sessions: usize) -> Database {
        Database {
            names: (0..nodes).map(name).collect(),
            nodes: vec![None; nodes],
            sessions: vec![None; sessions],
            contents: BTreeMap::new(),
            graves: BTreeSet::new(),
            next_number: 0,
            last_fence: Fence(0),
            last_start: Start(0),
            executed: 0,
            changed: 0,
        }
    }

    /// How long ago the lease of a node that has not left was renewed.
    fn age(&self, node: usize, now: Micros) -> Option<Duration> {
        let row = self.nodes[node].as_ref().filter(|row| !row.has_left)?;
        Some(Duration::from_micros(now.saturating_sub(row.renewed)))
    }

    fn found(&self, session: usize, now: Micros) -> Found {
        let Some(row) = &self.sessions[session] else { return Found::Nobody };
        Found::Row { owner: self.owner(row), row_age: self.age(row.owner, now) }
    }

    fn owner(&self, row: &SessionRow) -> Owner {
        Owner { node: self.names[row.owner].clone(), fence: row.fence }
    }

    fn loads(&self, now: Micros, rules: &Rules) -> Vec<NodeLoad> {
        let load = |(node, row): (usize, &Option<NodeRow>)| {
            let row = row.as_ref()?;
            let takes_new = !row.draining && lives(self.age(node, now), rules.terms);
            Some(NodeLoad { name: self.names[node].clone(), free: row.free, takes_new })
        };
        self.nodes.iter().enumerate().filter_map(load).collect()
    }

    /// Executes one statement of this node; `now` is the database's clock.
    pub(crate) fn execute(
        &mut self,
        node: usize,
        statement: &Statement,
        now: Micros,
        rules: &Rules,
    ) -> (Reply, Option<Change>) {
        self.executed += 1;
        let reply = match statement {
            Statement::Draw => {
                self.last_start = Start(self.last_start.0 + 1); // from a sequence
                Reply::Drawn(self.last_start)
            }
            Statement::Join { start, free } => self.join(node, *start, *free, now, rules),
            Statement::Renew { start, free, draining } => match self.node(node, *start, rules) {
                Some(row) if !row.has_left => {
                    (row.renewed, row.free, row.draining) = (now, *free, *draining);
                    self.changed += 1;
                    Reply::Ok
                }
                _ => Reply::Refused,
            },
            Statement::Leave { start } => match self.node(node, *start, rules) {
                Some(row) => {
                    row.has_left = true;
                    Reply::Ok
                }
                None => Reply::Refused,
            },
            Statement::Look { session } => {
                Reply::Looked { found: self.found(*session, now), nodes: self.loads(now, rules) }
            }
            Statement::Claim { session, seen } => return self.claim(node, *session, *seen),
            Statement::Write { session, fence, file, saved } => {
                let has_object = self.contents.contains_key(&saved.content);
                let Some(row) = self.row(node, *session, *fence, rules) else {
                    return (Reply::Refused, None);
                };
                if !has_object {
                    return (Reply::NoObject, None);
                }
                let before = row.files[*file].replace(*saved);
                self.changed += 2;
                let wrote = Change::Wrote { session: *session, file: *file, before, saved: *saved };
                return (Reply::Ok, Some(wrote));
            }
            Statement::HandOver { session, fence, to } => {
                let to_lives = self.age(*to, now).is_some_and(|age| age < rules.terms.lease);
                let fence_of_heir = self.next_fence();
                match self.row(node, *session, *fence, rules) {
                    Some(row) if to_lives => {
                        (row.owner, row.fence) = (*to, fence_of_heir);
                        self.changed += 1;
                        Reply::Ok
                    }
                    _ => Reply::Refused,
                }
            }
            Statement::Touch { content } => self.touch(*content, now, rules),
            Statement::Stored { key } => {
                let row = self.contents.get_mut(&key.content).filter(|row| row.key == *key);
                row.into_iter().for_each(|row| row.is_stored = true);
                self.changed += 1;
                Reply::Ok
            }
            Statement::Mark => self.mark(now, rules),
            Statement::Bury => self.bury(now, rules),
            Statement::Deleted { key } => {
                self.graves.remove(key);
                Reply::Ok
            }
        };
        (reply, None)
    }

    /// Every file that a row names.
    pub(crate) fn named(&self) -> impl Iterator<Item = &Saved> {
        self.sessions.iter().flatten().flat_map(|row| row.files.iter().flatten())
    }

    /// The name of a content in S3.
    pub(crate) fn key_of(&self, content: u32) -> Option<Key> {
        self.contents.get(&content).map(|row| row.key)
    }

    fn join(&mut self, node: usize, start: Start, free: u32, now: Micros, rules: &Rules) -> Reply {
        if !rules.may_join(self.nodes[node].as_ref().map(|row| row.start), start) {
            return Reply::Refused;
        }
        self.nodes[node] = Some(NodeRow { start, renewed: now, free, draining: false, has_left: false });
        self.changed += 1;
        Reply::Ok
    }

    /// The row of a node, if it is that of this start.
    fn node(&mut self, node: usize, start: Start, rules: &Rules) -> Option<&mut NodeRow> {
        self.nodes[node].as_mut().filter(|row| rules.is_of(row.start, start))
    }

    fn row(&mut self, node: usize, session: usize, fence: Fence, rules: &Rules) -> Option<&mut SessionRow> {
        let owner = self.owner(self.sessions[session].as_ref()?);
        if rules.allows(&owner, &self.names[node], fence) { self.sessions[session].as_mut() } else { None }
    }

    /// From a sequence: no fence is ever used twice.
    fn next_fence(&mut self) -> Fence {
        self.last_fence = self.last_fence.next();
        self.last_fence
    }

    fn claim(&mut self, node: usize, session: usize, seen: Option<Fence>) -> (Reply, Option<Change>) {
        if self.sessions[session].as_ref().map(|row| row.fence) != seen {
            return (Reply::Refused, None);
        }
        let fence = self.next_fence();
        let before = self.sessions[session].take();
        let files = before.as_ref().map_or([None; FILES], |row| row.files);
        self.sessions[session] = Some(SessionRow { owner: node, fence, files });
        self.changed += 1;
        let before = before.map(|row| row.owner).filter(|before| *before != node);
        (Reply::Claimed { fence, files }, Some(Change::Claimed { session, before }))
    }

    fn touch(&mut self, content: u32, now: Micros, rules: &Rules) -> Reply {
        self.changed += 1;
        self.next_number += 1;
        let number = if rules.is(Mutation::KeysComeAgain) { 0 } else { self.next_number };
        let new = ObjectRow { key: Key { content, number }, is_stored: false, touched: now, marked: None };
        let row = self.contents.entry(content).or_insert(new);
        (row.touched, row.marked) = (now, None);
        let reply = Reply::Touched { key: row.key, is_stored: row.is_stored };
        row.is_stored |= rules.is(Mutation::StoredTooEarly);
        reply
    }

    fn is_named(sessions: &[Option<SessionRow>], content: u32) -> bool {
        sessions.iter().flatten().any(|row| row.files.iter().flatten().any(|saved| saved.content == content))
    }

    fn mark(&mut self, now: Micros, rules: &Rules) -> Reply {
        for (content, row) in &mut self.contents {
            let is_old = Duration::from_micros(now.saturating_sub(row.touched)) > rules.grace;
            if row.marked.is_none() && is_old && !Self::is_named(&self.sessions, *content) {
                row.marked = Some(now);
                self.changed += 1;
            }
        }
        Reply::Ok
    }

    fn bury(&mut self, now: Micros, rules: &Rules) -> Reply {
        let is_dead = |content: u32, row: &ObjectRow| {
            let is_old = |marked| Duration::from_micros(now.saturating_sub(marked)) >= rules.grace;
            row.marked.is_some_and(is_old) && !Self::is_named(&self.sessions, content)
        };
        let dead = self.contents.iter().filter(|(content, row)| is_dead(**content, row));
        let dead: Vec<Key> = dead.map(|(_, row)| row.key).collect();
        for key in dead {
            self.contents.remove(&key.content);
            self.graves.insert(key);
            self.changed += 1;
        }
        Reply::Graves(self.graves.iter().copied().collect())
    }
}
