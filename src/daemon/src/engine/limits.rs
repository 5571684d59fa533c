//! How long a call may take and how much an answer may weigh, each with its reason.
//!
//! Every wait and every buffer of the module takes its bound from here. It must never hold "no limit": a stopped
//! engine accepts connections and then says nothing, for ever.

use std::time::Duration;

/// The bounds of one [`Engine`](super::Engine). `Default` is right for an engine on the same machine or network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EngineLimits {
    /// For a connection to be made. A Unix socket takes microseconds, a distant TCP handshake a second or two.
    pub connect: Duration,
    /// For what only reads the engine's state: inspect, list, ping, info. Milliseconds at rest; a busy engine
    /// holds a container's lock while it starts it.
    pub read: Duration,
    /// For what changes state: create, start, kill, pause, remove. 10 to 210 ms at rest and many times that when
    /// dozens go at once, for they queue in the engine and the runtime.
    pub change: Duration,
    /// For a whole archive, either way.
    pub archive: Duration,
    /// For the next piece of an archive: one that stands still this long will not come.
    pub archive_idle: Duration,
    /// For the head of a stream's answer: exec start and events.
    pub stream_head: Duration,
    /// Longest JSON answer about one thing, in bytes.
    pub answer_bytes: usize,
    /// Longest JSON list, in bytes. A container's entry has about 2 KiB, so this is thousands.
    pub list_bytes: usize,
    /// Longest line of the event stream, in bytes. An event carries all labels, and for an exec its argv, which
    /// the kernel bounds at 128 KiB.
    pub event_bytes: usize,
    /// Longest wait between two attempts at a lost event stream; the first is 100 ms.
    pub events_longest_wait: Duration,
    /// Idle connections that are kept. More calls at once are no error; their connections are closed afterwards.
    pub idle_connections: usize,
}

impl Default for EngineLimits {
    fn default() -> EngineLimits {
        EngineLimits {
            connect: Duration::from_secs(5),
            read: Duration::from_secs(10),
            change: Duration::from_secs(30),
            archive: Duration::from_secs(120),
            archive_idle: Duration::from_secs(20),
            stream_head: Duration::from_secs(10),
            answer_bytes: 4 << 20,
            list_bytes: 16 << 20,
            event_bytes: 1 << 20,
            events_longest_wait: Duration::from_secs(5),
            idle_connections: 8,
        }
    }
}

/// Most of a failing answer's body that is read: the message is one line, the rest is of no use.
pub(super) const ERROR_BYTES: usize = 16 << 10;

/// Most that an answer's head may weigh. The largest real one carries a path's stat, under 8 KiB.
pub(super) const HEAD_BYTES: usize = 64 << 10;

/// An idle connection is closed after this, before anything on the way forgets it.
pub(super) const IDLE_CONNECTION: Duration = Duration::from_secs(30);

/// On TCP, silence after which the peer is probed, and the time between probes: a peer that vanished without a
/// word would otherwise hold an event stream open for hours.
pub(super) const KEEPALIVE: Duration = Duration::from_secs(15);

/// First wait before a lost event stream is opened again: an engine that restarts is back in 0.3 to 0.9 s.
pub(super) const EVENTS_FIRST_WAIT: Duration = Duration::from_millis(100);
