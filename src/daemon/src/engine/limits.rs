//! The bounds of calls and answers, in time and bytes, each with its reason.
//!
//! Every wait and every buffer of the module has its bound here. No bound may ever be "no limit": a stopped
//! engine accepts connections and then stays silent for ever.

use std::time::Duration;

/// The bounds of one [`Engine`](super::Engine). `Default` is right for an engine on the same machine or
/// network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EngineLimits {
    /// To make a connection. A Unix socket takes microseconds, a distant TCP handshake a second or two.
    pub connect: Duration,
    /// For a call that only reads the engine's state: inspect, list, ping, info. It takes milliseconds on an
    /// idle engine; a busy one holds a container's lock while it starts it.
    pub read: Duration,
    /// For a call that changes state: create, start, kill, pause, remove. It takes 10 to 210 ms on an idle
    /// engine, and many times that when dozens run at once, since they queue in the engine and the runtime.
    pub change: Duration,
    /// For a whole archive, in either direction.
    pub archive: Duration,
    /// For the next piece of an archive: after such a silence it will not come any more.
    pub archive_idle: Duration,
    /// For the head of a stream's answer: exec start and events.
    pub stream_head: Duration,
    /// The longest JSON answer about one object, in bytes.
    pub answer_bytes: usize,
    /// The longest JSON list, in bytes. A container's entry has about 2 KiB, so this is thousands of
    /// containers.
    pub list_bytes: usize,
    /// The longest line of the event stream, in bytes. An event has all labels, and an exec's event its argv,
    /// which the kernel bounds at 128 KiB.
    pub event_bytes: usize,
    /// The longest wait between two attempts to connect a lost event stream; the first is 100 ms.
    pub events_longest_wait: Duration,
    /// How many idle connections are kept. More calls at once are no error; their connections are closed
    /// afterwards.
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
            events_longest_wait: Duration::from_secs(2),
            idle_connections: 8,
        }
    }
}

/// The most bytes of a failing answer's body that are read: the message is one line, and the rest is not
/// needed.
pub(super) const ERROR_BYTES: usize = 16 << 10;

/// The most bytes of an answer's head. The largest real one contains a path's stat and is under 8 KiB.
pub(super) const HEAD_BYTES: usize = 64 << 10;

/// An idle connection is closed after this time, before a proxy or firewall on the way forgets it.
pub(super) const IDLE_CONNECTION: Duration = Duration::from_secs(30);

/// On TCP, the silence after which the peer is probed, and the time between probes. Without probes, a peer
/// that vanished would leave an event stream open for hours.
pub(super) const KEEPALIVE: Duration = Duration::from_secs(15);

/// The first wait before a lost event stream is opened again: an engine that restarts is back in 0.3 to 0.9
/// s.
pub(super) const EVENTS_FIRST_WAIT: Duration = Duration::from_millis(100);
