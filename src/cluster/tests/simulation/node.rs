//! A node: what a daemon does about sessions of a cluster, with the rules of the crate. It sees its own clock
//! and the answers that it gets, never true time; all that it does are the actions that it returns.

mod serve;
mod upkeep;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use paddock_cluster::ownership::{Epoch, Grant, OwnerLease, Start};

use super::chance::Chance;
use super::database::name;
use super::message::{Action, Answer, Call, Caller, Files, Input, Key, Note, Reply, Saved, Statement};
use super::rules::{Mutation, Rules};

/// Sessions that a node has room for.
pub(crate) const CAPACITY: u32 = 100;
/// How long a node waits for the database, for S3, and for a peer that has a call.
const STATEMENT: Duration = Duration::from_secs(2);
const REQUEST: Duration = Duration::from_secs(3);
const PEER: Duration = Duration::from_secs(6);
/// How long an owner is believed without asking the database.
const BELIEVED: Duration = Duration::from_secs(5);
/// The longest time in which a node ends the containers of a session.
const ENDING: Duration = Duration::from_millis(1500);
/// How often a node looks for garbage.
const SWEEP: Duration = Duration::from_secs(6);

/// A session in the hands of this node.
struct Owned {
    grant: Grant,
    files: Files,
    turn: Option<Turn>,
    waiting: VecDeque<(Caller, Call)>,
    container: bool,
}

/// A write, from its program to its acknowledgement.
#[derive(Debug, Clone, Copy)]
struct Turn {
    caller: Caller,
    call: u64,
    file: usize,
    saved: Saved,
}

/// What an answer is for.
#[derive(Debug)]
enum Pending {
    Draw,
    Join {
        start: Start,
        asked: Duration,
    },
    Renew {
        asked: Duration,
    },
    Leave,
    Look {
        caller: Caller,
        call: Call,
    },
    /// With the epoch in which it was asked for.
    Claim {
        session: usize,
        epoch: Epoch,
    },
    Touch {
        session: usize,
        turn: u64,
    },
    Put {
        session: usize,
        turn: u64,
        key: Key,
    },
    Stored {
        session: usize,
        turn: u64,
    },
    Write {
        session: usize,
        turn: u64,
    },
    /// Who is to get a session of this node, which drains?
    Heir {
        session: usize,
        grant: Grant,
    },
    HandOver {
        session: usize,
    },
    Passed {
        caller: Caller,
        call: u64,
        to: usize,
    },
    Mark,
    Bury,
    Delete(Key),
    Deleted,
}

pub(crate) struct Node {
    name: String,
    /// The number of this start that was drawn last.
    start: Start,
    lease: OwnerLease,
    sessions: BTreeMap<usize, Owned>,
    claiming: BTreeMap<usize, Vec<(Caller, Call)>>,
    /// Sessions that have been dropped, whose containers have not ended yet. With a grant, they are to be
    /// handed over then.
    ending: BTreeMap<usize, Option<Grant>>,
    /// Sessions that are being handed over.
    handing_over: BTreeSet<usize>,
    /// Owners that need not be asked for, and since when.
    believed: BTreeMap<usize, (usize, Duration)>,
    pending: BTreeMap<u64, Pending>,
    next_rpc: u64,
    draining: bool,
    left: bool,
    rules: Rules,
    chance: Chance,
    /// How long ending containers takes, at least and at most, in microseconds.
    ending_takes: (u64, u64),
    now: Duration,
    /// Grows with true time; for names that must be new, and for the checker.
    tick: u64,
    out: Vec<Action>,
}

impl Node {
    pub(crate) fn new(index: usize, rules: Rules, slow_ending: bool, chance: Chance) -> Node {
        let longest = u64::try_from(ENDING.as_micros()).expect("seconds");
        Node {
            name: name(index),
            start: Start(0),
            lease: OwnerLease::new(rules.terms),
            sessions: BTreeMap::new(),
            claiming: BTreeMap::new(),
            ending: BTreeMap::new(),
            handing_over: BTreeSet::new(),
            believed: BTreeMap::new(),
            pending: BTreeMap::new(),
            next_rpc: 0,
            draining: false,
            left: false,
            rules,
            chance,
            ending_takes: (if slow_ending { longest - 1 } else { longest / 10 }, longest),
            now: Duration::ZERO,
            tick: 0,
            out: Vec::new(),
        }
    }

    /// Handles one input at this moment of its own clock, and returns what it does.
    pub(crate) fn on(&mut self, input: Input, now: Duration, tick: u64) -> Vec<Action> {
        (self.now, self.tick) = (now, tick);
        match input {
            Input::Start => self.join(),
            Input::Tick if !self.left => self.renew(),
            Input::Watch if !self.lease.may_acknowledge(now) && !self.rules.is(Mutation::ContainersLeft) => {
                self.drop_all();
            }
            Input::Tick | Input::Watch => {}
            Input::Call(caller, call) => self.call(caller, call),
            Input::Ran { session, turn } => self.ran(session, turn),
            Input::Ended { session } => self.ended(session),
            Input::Sweep => self.sweep(),
            Input::Drain => self.drain(),
            Input::Reply(rpc, reply) => {
                if let Some(pending) = self.pending.remove(&rpc) {
                    self.replied(pending, reply);
                }
            }
            Input::Timeout(rpc) => {
                if let Some(pending) = self.pending.remove(&rpc) {
                    self.timed_out(pending);
                }
            }
        }
        std::mem::take(&mut self.out)
    }

    /// Whether this node holds the session, as the checker asks at any moment of the node's clock.
    pub(crate) fn holds(&self, session: usize, now: Duration) -> bool {
        self.sessions.get(&session).is_some_and(|owned| self.lease.owns(owned.grant, now))
    }

    fn replied(&mut self, pending: Pending, reply: Reply) {
        match (pending, reply) {
            (Pending::Draw, Reply::Drawn(start)) => self.drew(start),
            // Not of a join that was given up: another number is under way.
            (Pending::Join { start, asked }, Reply::Ok) if start == self.start => self.renewed(asked),
            (Pending::Join { .. }, Reply::Ok | Reply::Refused) => {}
            (Pending::Renew { asked }, Reply::Ok) => self.renewed(asked),
            // The row says that it has left: only a new daemon of this name can come back.
            (Pending::Renew { .. }, Reply::Refused) => {}
            (Pending::Leave, Reply::Ok | Reply::Refused) => {
                (self.left, self.draining) = (true, true);
                self.lease.give_up();
                self.note(Note::Left);
            }
            (Pending::Look { caller, call }, Reply::Looked { found, nodes }) => {
                self.looked(caller, call, &found, &nodes);
            }
            (Pending::Claim { session, epoch }, Reply::Claimed { fence, files }) => {
                self.claimed(session, Grant { fence, epoch }, files);
            }
            (Pending::Claim { session, .. }, _) => self.not_claimed(session),
            (Pending::Touch { session, turn }, Reply::Touched { key, is_stored }) => {
                self.touched(session, turn, key, is_stored);
            }
            (Pending::Put { session, turn, key }, Reply::Ok) => self.put(session, turn, key),
            (Pending::Stored { session, turn }, Reply::Ok) => self.write(session, turn),
            (Pending::Write { session, turn }, Reply::NoObject) => self.touch(session, turn),
            (Pending::Write { session, turn }, Reply::Ok) => self.written(session, turn),
            (Pending::Write { session, turn }, Reply::Refused) => self.lost(session, turn, Answer::Later),
            (Pending::Heir { session, grant }, Reply::Looked { nodes, .. }) => {
                self.hand_to(session, grant, &nodes)
            }
            (Pending::HandOver { session }, _) => self.handed_over(session),
            (Pending::Passed { caller, call, to }, Reply::Answered(answer)) => {
                if answer != Answer::Done {
                    self.doubt(to);
                }
                self.answer(caller, call, answer);
            }
            (Pending::Mark, Reply::Ok) => {
                let rpc = self.ask(Pending::Bury, STATEMENT);
                self.out.push(Action::Database(rpc, Statement::Bury));
            }
            (Pending::Bury, Reply::Graves(graves)) => self.delete(graves),
            (Pending::Delete(key), Reply::Ok) => {
                let rpc = self.ask(Pending::Deleted, STATEMENT);
                self.out.push(Action::Database(rpc, Statement::Deleted { key }));
            }
            (Pending::Deleted, Reply::Ok) => {}
            (pending, reply) => unreachable!("{pending:?} is answered by {reply:?}"),
        }
    }

    fn timed_out(&mut self, pending: Pending) {
        match pending {
            Pending::Look { caller, call } => self.answer(caller, call.id, Answer::Later),
            Pending::Claim { session, .. } => self.not_claimed(session),
            // Nothing names the object: the caller may try again.
            Pending::Touch { session, turn }
            | Pending::Put { session, turn, .. }
            | Pending::Stored { session, turn } => self.lost(session, turn, Answer::Later),
            Pending::Write { session, turn } => self.unknown(session, turn),
            Pending::Passed { caller, call, to } => {
                self.doubt(to);
                self.answer(caller, call, Answer::Unknown);
            }
            Pending::Leave => self.leave_if_empty(),
            Pending::Heir { session, .. } | Pending::HandOver { session } => self.handed_over(session),
            Pending::Draw
            | Pending::Join { .. }
            | Pending::Renew { .. }
            | Pending::Mark
            | Pending::Bury
            | Pending::Delete(_)
            | Pending::Deleted => {}
        }
    }

    fn note(&mut self, note: Note) {
        self.out.push(Action::Note(note));
    }

    fn after(&mut self, time: Duration, input: Input) {
        self.out.push(Action::After(time, input));
    }

    fn answer(&mut self, to: Caller, id: u64, answer: Answer) {
        self.out.push(Action::Answer { to, id, answer });
    }

    fn ask(&mut self, pending: Pending, wait: Duration) -> u64 {
        self.next_rpc += 1;
        self.pending.insert(self.next_rpc, pending);
        self.after(wait, Input::Timeout(self.next_rpc));
        self.next_rpc
    }
}

/// The number of the node of this name.
fn index_of(name: &str) -> usize {
    name.strip_prefix("node-").and_then(|number| number.parse().ok()).expect("a node's name")
}
