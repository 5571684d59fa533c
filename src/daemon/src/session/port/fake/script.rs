//! What a fake agent does, step by step.

use std::time::Duration;

use bytes::Bytes;
use paddock_proto::message::{Entry, EntryKind, Outcome, RunEnd};
use paddock_proto::{Channel, Event, RelPath};

use crate::pool::DataPlace;

/// One thing that the agent does on a stream.
#[derive(Debug, Clone)]
pub(in crate::session) enum Step {
    /// Sends a message.
    Say(Event),
    /// Sends bytes.
    Write(Channel, Bytes),
    /// Does nothing for this long.
    Wait(Duration),
    /// Reads until this channel is at its end.
    UntilEof(Channel),
    /// Reads until the daemon says nothing more on this stream.
    UntilClosed,
    /// Waits until a request to end a run comes, on a stream of its own.
    UntilToldToEnd,
    /// Says nothing more on this stream.
    Close,
    /// Abandons the stream.
    Reset,
    /// The container dies: its carrier breaks, and no other can be dialed.
    Die,
    /// Neither says nor reads anything any more.
    Hang,
}

/// What the agent does on a stream that begins with, or comes to, each request.
#[derive(Debug, Clone)]
pub(in crate::session) struct Script {
    pub(in crate::session) claim: Vec<Step>,
    pub(in crate::session) apply: Vec<Step>,
    pub(in crate::session) run: Vec<Step>,
    pub(in crate::session) attach: Vec<Step>,
    pub(in crate::session) collect: Vec<Step>,
    pub(in crate::session) commit: Vec<Step>,
    pub(in crate::session) base: Vec<Step>,
    pub(in crate::session) settle: Vec<Step>,
    pub(in crate::session) end: Vec<Step>,
    pub(in crate::session) meter: Vec<Step>,
    /// Where the container has its `/data`.
    pub(in crate::session) place: DataPlace,
}

impl Default for Script {
    fn default() -> Self {
        use Step::{Say, UntilClosed, UntilEof};
        let nothing = Event::Collected { entries: 0 };
        Self {
            claim: vec![Say(Event::Claimed)],
            apply: vec![UntilClosed, Say(Event::Applied)],
            run: vec![UntilEof(Channel::Code), Say(ended())],
            attach: vec![Say(Event::Attached { heard: 0 }), Say(ended())],
            collect: vec![Say(nothing.clone())],
            commit: Vec::new(),
            base: vec![Say(nothing.clone())],
            settle: vec![Say(nothing)],
            end: vec![Say(Event::Ending)],
            meter: Vec::new(),
            place: DataPlace::Memory,
        }
    }
}

/// The end of a program that exited with 0 after a millisecond.
pub(in crate::session) fn ended() -> Event {
    Event::Ended(end_of_run())
}

pub(in crate::session) fn end_of_run() -> RunEnd {
    RunEnd {
        outcome: Outcome::Exited(0),
        limit: None,
        warm: false,
        wall_us: 1000,
        cpu_us: 1000,
        metered_us: 1000,
        max_rss_kib: 1000,
        stdout_bytes: 0,
        stderr_bytes: 0,
        leftovers: 0,
        survivors: 0,
    }
}

/// A file of `/data` as agents report it.
pub(in crate::session) fn file(path: &str, size: u64) -> Entry {
    let path = RelPath::new(path).unwrap();
    Entry { path, kind: EntryKind::File(size), mode: 0o644, mtime_ns: 1_000_000_000 }
}

/// The steps of a collection that brings this file.
pub(in crate::session) fn collect_file(path: &str, content: &'static str) -> Vec<Step> {
    vec![
        Step::Say(Event::Changed(file(path, content.len() as u64))),
        Step::Write(Channel::File, Bytes::from_static(content.as_bytes())),
        Step::Say(Event::FileEnd { whole: true }),
        Step::Say(Event::Collected { entries: 1 }),
    ]
}
