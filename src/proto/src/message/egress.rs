//! What a program asks for outside of its container, and what it is answered: the messages on streams that
//! the agent opens. A [`Reply`] also answers [`Request::Dial`](super::Request::Dial), the way in.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

/// The first message on a stream that the agent opens, agent → daemon: what a program of a run asks for. The
/// daemon must treat it as if the code in the container had written it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ask {
    /// Whether a name may be looked up. The daemon answers [`Reply::Allowed`] or [`Reply::Refused`] and
    /// closes; it asks no name server.
    Name {
        /// The run that asks, by its [`RunSpec::id`](super::RunSpec::id); `None` where PID 1 cannot know it:
        /// any run of the container that has a network then counts.
        run: Option<String>,
        /// The name as the program wrote it, without the dot at its end.
        name: String,
    },
    /// A connection. The daemon answers [`Reply::Connected`], and before it [`Reply::Allowed`] if the policy
    /// allows it and it takes time; or [`Reply::Refused`] in place of either, and closes. After `Connected`
    /// both sides send `Data(Net)`…, `Eof(Net)` when their half is at its end, and `Close` when both halves
    /// are. A reset of the stream is a reset of the connection.
    Connect {
        /// The run that asks, by its [`RunSpec::id`](super::RunSpec::id).
        run: String,
        /// Where to.
        host: Host,
        /// The TCP port.
        port: u16,
    },
}

/// The host that a program asks for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Host {
    /// A name that the program looked up before.
    Name(String),
    /// An address.
    Address(IpAddr),
}

/// What the daemon answers to an [`Ask`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reply {
    /// The policy of the run allows it; of a connection, what comes of it is told later.
    Allowed,
    /// The connection is made.
    Connected,
    /// There will be no connection.
    Refused(ConnectFailure),
}

/// Why there is no connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ConnectFailure {
    /// The policy of the run does not allow it.
    Blocked,
    /// The name does not exist, or has no address.
    NoAddress,
    /// The other side refused it.
    Refused,
    /// There is no route to the other side.
    Unreachable,
    /// The other side did not answer in time.
    TimedOut,
    /// The run has as many connections as it may have.
    TooMany,
}
