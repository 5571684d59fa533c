//! What clients, nodes, the database and S3 say to each other, and what a node does and is told.

use std::time::Duration;

use paddock_cluster::ownership::{Fence, Found, Start};
use paddock_cluster::placement::NodeLoad;

/// Microseconds of true time, which nobody in the simulation can see.
pub(crate) type Micros = u64;

/// Files that each session has.
pub(crate) const FILES: usize = 3;

/// The name of an object in S3: its content, and a number that is never used twice. The contents of writes
/// repeat, as they do where they are named by their hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    pub(crate) content: u32,
    pub(crate) number: u64,
}

/// One file of a session: its content, and the number of the turn that wrote it, for the checker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Saved {
    pub(crate) content: u32,
    pub(crate) turn: u64,
}

pub(crate) type Files = [Option<Saved>; FILES];

#[derive(Debug, Clone, Copy)]
pub(crate) enum Work {
    Write { file: usize, content: u32 },
    Read { file: usize },
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Call {
    pub(crate) id: u64,
    pub(crate) session: usize,
    pub(crate) work: Work,
    /// How often a node has passed it on.
    pub(crate) hops: u32,
}

/// Who gets the answer of a call.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Caller {
    Client(usize),
    Node { node: usize, start: u32, rpc: u64 },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answer {
    /// A write is saved, or a file was read.
    Done,
    /// Nothing was done: the caller is to try again.
    Later,
    /// Whether it was done is unknown.
    Unknown,
}

#[derive(Debug, Clone)]
pub(crate) enum Statement {
    /// Draws a number for a start of a daemon.
    Draw,
    /// A daemon has started on this machine.
    Join {
        start: Start,
        free: u32,
    },
    Renew {
        start: Start,
        free: u32,
        draining: bool,
    },
    Leave {
        start: Start,
    },
    Look {
        session: usize,
    },
    /// Changes the owner if the row still has the fence that the node has read; None: if there is no row.
    Claim {
        session: usize,
        seen: Option<Fence>,
    },
    Write {
        session: usize,
        fence: Fence,
        file: usize,
        saved: Saved,
    },
    HandOver {
        session: usize,
        fence: Fence,
        to: usize,
    },
    /// A file shall have this content: what is it named in S3, and is it there?
    Touch {
        content: u32,
    },
    Stored {
        key: Key,
    },
    /// Marks the contents that no file names.
    Mark,
    /// Buries what has been marked for long; the names in graves are to be deleted from S3.
    Bury,
    Deleted {
        key: Key,
    },
}

#[derive(Debug, Clone)]
pub(crate) enum Request {
    Put(Key),
    Delete(Key),
}

#[derive(Debug, Clone)]
pub(crate) enum Reply {
    /// It was done.
    Ok,
    /// The row names another owner or fence; or another node has the session.
    Refused,
    Drawn(Start),
    Looked {
        found: Found,
        nodes: Vec<NodeLoad>,
    },
    Claimed {
        fence: Fence,
        files: Files,
    },
    Touched {
        key: Key,
        is_stored: bool,
    },
    /// A row was to name a content that has been buried: it has to be touched again.
    NoObject,
    Graves(Vec<Key>),
    /// The answer of a call that was passed on.
    Answered(Answer),
}

/// What happens to a node.
#[derive(Debug, Clone)]
pub(crate) enum Input {
    Start,
    Call(Caller, Call),
    Reply(u64, Reply),
    Timeout(u64),
    /// It is time to renew the lease.
    Tick,
    /// The lease may have ended.
    Watch,
    /// The program of a session's turn has ended.
    Ran {
        session: usize,
        turn: u64,
    },
    /// The containers of a session have ended.
    Ended {
        session: usize,
    },
    /// It is time to look for garbage.
    Sweep,
    Drain,
}

/// What a node does.
#[derive(Debug)]
pub(crate) enum Action {
    Database(u64, Statement),
    Objects(u64, Request),
    Pass {
        rpc: u64,
        to: usize,
        call: Call,
    },
    Answer {
        to: Caller,
        id: u64,
        answer: Answer,
    },
    /// An input for itself, after a time by its own clock.
    After(Duration, Input),
    Note(Note),
}

/// What the checker is told in the moment in which it happens.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Note {
    /// A node acknowledges a write.
    Acknowledged {
        session: usize,
        fence: Fence,
        file: usize,
        saved: Saved,
    },
    /// A node answers with what it believes that a file contains.
    Read {
        session: usize,
        fence: Fence,
        file: usize,
        saved: Option<Saved>,
    },

    ContainerStarts {
        session: usize,
    },
    ContainerEnded {
        session: usize,
    },
    /// The node has handed everything over.
    Left,
}
