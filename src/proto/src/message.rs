//! The messages: one enum for each direction, coded by postcard inside [`crate::Kind::Message`] frames.
//!
//! Every stream begins with a [`Request`]; the documentation of each request says what follows on the stream.
//! Units are in the names. The daemon must treat every [`Event`] as if the code in the container had written
//! it.

mod egress;
mod run;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

pub use self::egress::{Ask, ConnectFailure, Host, Reply};
pub use self::run::{DiskLimit, Input, Limit, Outcome, RunEnd, RunLimits, RunSpec};
use crate::limits::PAGE;
use crate::path::RelPath;
pub use crate::probe::{Allowed, Charged, Filled, Inside, Machine, Outside, ProbeReport, Quotas, Taken};
use crate::target::LinkTarget;
use crate::{ProtocolError, StreamId};

/// The version of the protocol. A daemon and the agents that it puts into containers always have the same
/// one. After an upgrade a daemon also finds agents of earlier builds: it follows what runs there if their
/// version is its own, and otherwise has the engine read their files. So every change of a message, or of
/// what one means, makes a new version; a test notices changed messages.
pub const VERSION: u32 = 16;

/// The first frame of every carrier, daemon → agent, on stream 0.
#[derive(Clone, Serialize, Deserialize)]
pub struct Hello {
    /// [`VERSION`].
    pub version: u32,
    /// Set by the first hello, before any other code has run; every later hello must have the same.
    pub secret: [u8; 32],
    /// Names the daemon's mux. The same mux resumes its streams; another mux starts without any, and takes
    /// over what still runs with [`Request::Attach`].
    pub link: u64,
    /// PID 1 ends itself after this long without a daemon.
    pub orphan_after_ms: u64,
    /// Ports on which programs reach a name by its address where the kernel does not tell PID 1 of their
    /// `connect`s; at most [`MAX_LISTEN_PORTS`](crate::limits::MAX_LISTEN_PORTS).
    pub listen_ports: Vec<u16>,
    /// What the daemon has received of its open streams.
    pub resume: ResumePoints,
    /// Whether the daemon can take an [`Offer`].
    pub direct: bool,
}

/// A carrier without the engine in between: one end of a socket pair, which a daemon on the same kernel can
/// take out of PID 1 (`pidfd_getfd(2)`). The daemon's hello on it makes it the carrier; until then the old
/// carrier stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Offer {
    /// Its number in PID 1.
    pub fd: i32,
    /// The first bytes that can be read from it: they prove that it is this one.
    pub token: [u8; 16],
}

/// The agent's answer to a [`Hello`], on stream 0.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HelloReply {
    /// [`VERSION`].
    pub version: u32,
    /// True once any program was started in this container.
    pub ran: bool,
    /// The session that this container belongs to, see [`Request::Claim`].
    pub claim: Option<Claim>,
    /// Runs whose end no daemon has heard yet, by [`RunSpec::id`].
    pub runs: Vec<String>,
    /// What the agent has received of its open streams.
    pub resume: ResumePoints,
    /// Made for this hello, if the daemon can take one; valid for [`HELLO_MS`](crate::limits::HELLO_MS).
    pub direct: Option<Offer>,
}

/// Names a session to PID 1: the same for the same session, and useless for finding out which session it is.
pub type Claim = [u8; 32];

/// How much one side has received of each of its streams.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResumePoints {
    /// The highest stream that the peer ever opened towards this side.
    pub highest: StreamId,
    /// (stream, bytes of counted frames received whole).
    pub streams: Vec<(StreamId, u64)>,
}

/// The first message on a stream, daemon → agent: what the stream is for. Some requests follow another on the
/// same stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Request {
    /// Run a program. The daemon sends what `spec.input` says; the agent answers [`Event::Begun`],
    /// `Data(Stdout|Stderr)`…, [`Event::Ended`]. The daemon then sends [`Request::Collect`] on the same
    /// stream, or [`Request::Commit`] if it wants no files. When either is done the agent forgets the run;
    /// until then it tells the run to the next daemon.
    Run(RunSpec),
    /// Take over a run that an earlier daemon started, by its [`RunSpec::id`]: the agent answers
    /// [`Event::Attached`], then the output and each [`Event::Listens`] that no daemon has acknowledged and
    /// all that follows, as on the run's own stream; or [`Event::Failed`].
    Attach(String),
    /// End a run by its [`RunSpec::id`], on another stream than the run's, so that nothing on the run's
    /// stream delays it: [`Event::Ending`], or [`Event::Failed`] if there is no such run. With a grace all of
    /// its processes get SIGTERM, and are killed when the grace is over. If it is asked again, the shorter
    /// grace holds. Its files are still collected.
    End {
        /// Which run.
        id: String,
        /// Milliseconds; 0: the run is killed at once.
        grace_ms: u64,
    },
    /// This container belongs to this session from now on: [`Event::Claimed`], or [`Event::Failed`] if it is
    /// another session's. The daemon says it before anything of a session reaches the container.
    Claim(Claim),
    /// Report what changed in `/data` since the last [`Request::Commit`]: [`Event::Changed`] (for a file
    /// followed by `Data(File)`… and [`Event::FileEnd`]), [`Event::Removed`], [`Event::Skipped`], and one
    /// [`Event::Collected`]. The daemon then sends [`Request::Commit`], or closes to leave it uncommitted.
    Collect(CollectRules),
    /// On a collecting stream: what was reported is saved, and the next collection compares with it. On a
    /// run's stream after its end: the daemon has heard the end.
    Commit,
    /// Bring changes in: any number of [`Request::Put`], [`Request::Remove`] and [`Request::Agreed`], then
    /// `Close`; the agent answers one [`Event::Applied`] or [`Event::Failed`].
    Apply,
    /// On an applying stream: make this entry; for a file `Data(File)`… of exactly its size follows.
    Put(Entry),
    /// On an applying stream: remove this path (a directory with everything below it).
    Remove(RelPath),
    /// On an applying stream, in a container that began over the `/data` of an earlier one: both sides agreed
    /// on this entry there. It becomes part of the baseline, whether `/data` still has it so or not; if not,
    /// the next collection reports the difference.
    Agreed(Entry),
    /// Report the baseline, which is what both sides last agreed on: an [`Event::Changed`] for every entry,
    /// without content, and one [`Event::Collected`].
    Base,
    /// What is in `/data` now came from the daemon by another way: take it as the baseline. Answered as
    /// [`Request::Base`].
    Settle,
    /// Look at the container's confinement: [`Event::Probed`]. With quotas the probe also tries to exceed
    /// them, and frees again what it took.
    Probe(Option<Quotas>),
    /// Keep the image's warm part standing from now on: [`Event::Warm`] when it stands for the first time, or
    /// [`Event::Failed`]. Where it cannot be restored from its snapshot, the answer is
    /// [`Event::NotRestored`], before that or later, as long as the daemon keeps the stream open: the part
    /// imports its libraries once it is asked for again, without a command that restores it. Each time that
    /// it is asked for, it is answered.
    Warm(WarmSpec),
    /// Tell what the container uses of the processors while runs of it go on: [`Event::Used`] now and then,
    /// until the daemon closes the stream. It is a stream of its own, so that output which nobody reads yet
    /// delays no figure, and figures take no room of the output.
    Meter,
    /// Connect to a server that a program runs on this port of loopback. The agent answers
    /// [`Reply::Connected`], or [`Reply::Refused`] and closes: `Refused` where nothing listens, `Blocked` for
    /// a port of its own, `TooMany` where it has [`MAX_DIALS`](crate::limits::MAX_DIALS) of them. Then as
    /// after [`Ask::Connect`].
    Dial {
        /// The TCP port.
        port: u16,
    },
}

/// What a collection is to report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum CollectRules {
    /// Everything that changed: `/data` itself has the bounds of what is saved.
    All,
    /// `/data` may hold far more than is saved. An entry that git would ignore and that was not in the last
    /// committed state is left out, and so is a new one beyond these bounds.
    Workspace {
        /// Bytes of all files, in whole pages.
        bytes: u64,
        /// Files, directories and links.
        entries: u64,
    },
}

/// What the agent says on a stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Event {
    /// The program and everything that it started is dead; all its output was sent before.
    Ended(RunEnd),
    /// An entry of `/data` is new or different.
    Changed(Entry),
    /// The content of the file that was announced last has ended. `whole` is false if the file changed while
    /// it was read; the daemon must then not save it.
    FileEnd {
        /// Whether exactly the announced bytes were sent, from an unchanged file.
        whole: bool,
    },
    /// An entry of the last committed state is gone.
    Removed(RelPath),
    /// An entry that cannot be carried; it stays in the container only.
    Skipped {
        /// Its path, as bytes, since the name itself may be what is wrong.
        path: Vec<u8>,
        /// Why.
        reason: SkipReason,
    },
    /// The end of a collection.
    Collected {
        /// All entries, changed or not.
        entries: u64,
    },
    /// All changes of an apply stream are in place.
    Applied,
    /// The container belongs to the session that claimed it.
    Claimed,
    /// The run is taken over.
    Attached {
        /// Bytes of output, both streams together, that an earlier daemon acknowledged and that are not sent
        /// again.
        heard: u64,
    },
    /// The agent has the run, and tells it to every daemon from now on. Sent only for runs that read no code.
    Begun,
    /// The run was told to end.
    Ending,
    /// A program of the run listens on this TCP port of loopback: told once for each port, and of the first
    /// [`MAX_PORTS`](crate::limits::MAX_PORTS) ports of a run. Sent only for runs that read no code.
    Listens {
        /// The port.
        port: u16,
    },
    /// The container used the processors for so much longer since that was told last, on any stream.
    Used {
        /// Microseconds.
        cpu_us: u64,
    },
    /// What a probe saw.
    Probed(Box<ProbeReport>),
    /// The request could not be done at all.
    Failed {
        /// What was tried, and the system's error.
        what: String,
    },
    /// The warm part stands.
    Warm {
        /// Whether it was restored from a snapshot. If not, it has imported its libraries.
        restored: bool,
    },
    /// The warm part cannot be restored from its snapshot in this container. It imports its libraries from
    /// now on, once it is asked for without a snapshot. Never sent of what happened after a run had begun in
    /// the container, since its code may be the cause.
    NotRestored {
        /// What the part said, or how it ended: printable ASCII, at most
        /// [`MAX_REASON`](crate::limits::MAX_REASON) bytes.
        why: String,
        /// Of what kind that is.
        failure: RestoreFailure,
    },
    /// The run's [`RunSpec::files`], [`RunSpec::execute`] or [`RunSpec::network`] is not possible in this
    /// container; its program was never started.
    Unsupported {
        /// What is missing.
        what: String,
    },
}

/// Why a warm part cannot be restored from its snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum RestoreFailure {
    /// The part said that this snapshot cannot be restored.
    Said,
    /// The part said that this machine can restore none.
    Unsupported,
    /// It died without a word, or again and again, was late, or said that this container cannot restore it
    /// now. That says little of the snapshot.
    Died,
}

impl RestoreFailure {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Said, Self::Unsupported, Self::Died];

    /// A stable word.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Said => "said",
            Self::Unsupported => "unsupported",
            Self::Died => "died",
        }
    }
}

/// The warm part of an image; its protocol is a page of its own (runner-images/README.md).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WarmSpec {
    /// Program and arguments, as of a [`RunSpec`].
    pub argv: Vec<String>,
    /// The environment that programs have, as `NAME=value`.
    pub env: Vec<String>,
    /// The command that restores the part from the snapshot at [`SNAPSHOT_DIR`](crate::limits::SNAPSHOT_DIR),
    /// which takes the place of `argv`; empty where the container has none.
    pub restore: Vec<String>,
    /// Lighter parts of the same snapshot, the lightest first; none where `restore` is empty.
    pub levels: Vec<WarmLevel>,
}

/// A lighter warm part, which has loaded less of what programs use. It takes the programs that need no more,
/// by a look at their code.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WarmLevel {
    /// The command that restores it.
    pub restore: Vec<String>,
    /// What a program may import, as the import statement names it (`os.path`).
    pub modules: Vec<String>,
    /// Words that a program must not contain.
    pub never: Vec<String>,
}

/// One entry of `/data`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Where.
    pub path: RelPath,
    /// What.
    pub kind: EntryKind,
    /// Permission bits, at most `0o777`.
    pub mode: u32,
    /// Modification time in nanoseconds since the epoch.
    pub mtime_ns: i64,
}

/// The kinds of entry that are carried. Two names of one file are carried as two files.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum EntryKind {
    /// A directory.
    Dir,
    /// A regular file of this many bytes.
    File(u64),
    /// A symbolic link. Its mode and its time mean nothing and are not kept.
    Link(LinkTarget),
}

impl EntryKind {
    /// Pages of `/data` that its content takes, as tmpfs counts them.
    pub fn pages(&self) -> u64 {
        match self {
            Self::File(size) => size.div_ceil(PAGE),
            Self::Link(target) => target.pages(),
            Self::Dir => 0,
        }
    }
}

/// Why an entry is not carried.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum SkipReason {
    /// Neither a regular file, nor a directory, nor a symbolic link.
    Special,
    /// Its path breaks a rule of [`RelPath`].
    Path,
    /// It could not be read, or changed while it was read.
    Unreadable,
    /// It is beyond the bounds of [`CollectRules::Workspace`].
    NoRoom,
    /// There is more in `/data` than a collection looks at.
    TooMany,
}

/// Codes a message for a [`crate::Kind::Message`] frame.
pub fn encode<T: Serialize>(message: &T) -> Bytes {
    // postcard fails only on a full buffer or an unsized sequence; a growing Vec and derived types have
    // neither.
    postcard::to_stdvec(message).map(Bytes::from).unwrap_or_default()
}

/// Reads a message back.
///
/// # Errors
/// [`ProtocolError::Malformed`] if the bytes are not one.
pub fn decode<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, ProtocolError> {
    match postcard::take_from_bytes(bytes) {
        Ok((message, [])) => Ok(message),
        _ => Err(ProtocolError::Malformed("message")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_with_something_behind_it_is_malformed() {
        let mut bytes = encode(&Request::Collect(CollectRules::All)).to_vec();
        assert_eq!(decode::<Request>(&bytes), Ok(Request::Collect(CollectRules::All)));
        bytes.push(0);
        assert_eq!(decode::<Request>(&bytes), Err(ProtocolError::Malformed("message")));
    }

    #[test]
    fn a_length_that_lies_costs_nothing() {
        // Removed(path) with a path of 2^60 bytes announced and none there.
        let lie = [4u8, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x10];
        assert_eq!(decode::<Event>(&lie), Err(ProtocolError::Malformed("message")));
    }
}
