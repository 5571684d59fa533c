//! Every bound of the protocol, with its reason. The daemon and the agent both enforce each bound, because
//! neither trusts the other.

/// The payload of one frame, in bytes. Large enough for a command and the environment of a run in one
/// message.
pub const MAX_PAYLOAD: usize = 320 * 1024;

/// Bytes of one argument or one variable of a program, as execve(2) takes them (`MAX_ARG_STRLEN`, without the
/// NUL).
pub const MAX_ARGUMENT: usize = 128 * 1024 - 1;

/// Bytes of an input that the agent has before its program starts ([`Input::Whole`]): the agent keeps what
/// the program has not read, in the container's memory.
///
/// [`Input::Whole`]: crate::message::Input::Whole
pub const MAX_INPUT: usize = 1024 * 1024;

/// Bytes of one stream that the peer has not read yet. At least one whole frame must fit, or a large message
/// could never be sent; more only costs memory, since the carrier is local.
pub const WINDOW: usize = 512 * 1024;

/// Bytes of the window that a sender leaves free: a new daemon is sent one message before everything that the
/// previous daemon had not acknowledged.
pub const SLACK: usize = 64;

/// Bytes of frames that change nothing (frames of closed streams, credits for what was acknowledged, resets)
/// that a peer may send for each stream that was ever opened: a whole window can be in flight when a stream
/// is given up, and closes, resets and credits are sent again after each reconnect. Nothing else would bound
/// them, since they take no window.
pub const STRAY: u64 = WINDOW as u64 + 1024;

/// Streams of the daemon that are open at once on one link: the executions of a session, and file transfers.
pub const MAX_STREAMS: usize = 256;

/// Streams of the agent that are open at once on one link: more than one run may hold, so that runs beside
/// it have some too ([`share`](crate::share)). They are counted apart from the daemon's, so that no program
/// can keep the daemon from its own requests.
pub const MAX_ASKS: usize = 192;

/// Names that are asked for at once: the daemon answers them without asking anybody.
pub const MAX_NAME_ASKS: usize = 16;

/// Streams that PID 1 opens at once for what its runs connect to.
pub const MAX_CONNECT_ASKS: usize = MAX_ASKS - MAX_NAME_ASKS;

/// Connections that the daemon holds at once for all runs of a container. Fewer than PID 1 opens streams, so
/// that the daemon refuses first: it can tell the run.
pub const MAX_HELD_ASKS: usize = MAX_CONNECT_ASKS - 16;

/// Streams that stay free for each run of a container, and for one that is yet to begin.
pub const RESERVED_ASKS: usize = 16;

/// Ports on which PID 1 listens for each name, where it has to
/// ([`Hello::listen_ports`](crate::Hello::listen_ports)): a listener for each costs a descriptor.
pub const MAX_LISTEN_PORTS: usize = 16;

/// Connections to servers of programs that the daemon may have open at once in one container
/// ([`Request::Dial`](crate::Request::Dial)): half of [`MAX_STREAMS`], so that there is always room for its
/// other requests.
pub const MAX_DIALS: usize = MAX_STREAMS / 2;

/// Ports of one run that are announced ([`Event::Listens`](crate::Event::Listens)): nobody looks at more of
/// them, and each costs an event.
pub const MAX_PORTS: usize = 50;

/// Data is cut into pieces of this size, a pipe's default capacity, so that streams take turns often.
pub const CHUNK: usize = 64 * 1024;

/// Bytes given to the carrier at a time: at most this much of one stream comes before the next frame of
/// another.
pub const BATCH: usize = 256 * 1024;

/// Bytes taken from the carrier at a time; a link has one such buffer, and room for one frame beside it.
pub const READ: usize = 256 * 1024;

/// The longest name of one path component, in bytes (Linux' own `NAME_MAX`).
pub const MAX_NAME: usize = 255;

/// The longest path below `/data`, in bytes. Under `PATH_MAX`, with room for the store's own prefix.
pub const MAX_PATH: usize = 2048;

/// The longest target of a symbolic link, in bytes: `PATH_MAX` without its NUL, as `symlink(2)` takes.
pub const MAX_TARGET: usize = 4095;

/// Directories deep below `/data`. Walks recurse this far, on both sides.
pub const MAX_DEPTH: usize = 64;

/// `/data` counts in pages of this many bytes.
pub const PAGE: u64 = 4096;

/// How long an unauthenticated connection may take to say who it is, in milliseconds.
pub const HELLO_MS: u64 = 5_000;

/// The number of the descriptor in PID 1 that is the daemon's end of its standing pair: below the least
/// limit of open files that a container can have.
pub const STANDING_FD: i32 = 63;

/// What can be read from [`STANDING_FD`] first. It is no secret: it tells the pair from anything that PID 1
/// of an older build may have under this number.
pub const STANDING_TOKEN: [u8; 16] = *b"paddock standing";

/// The name of the agent's abstract socket (in the container's own network namespace).
pub const SOCKET_NAME: &[u8] = b"paddock-agent";

/// Where the agent's volume is mounted in every container.
pub const AGENT_DIR: &str = "/.paddock";

/// The agent's program inside [`AGENT_DIR`].
pub const AGENT_PROGRAM: &str = "/.paddock/agent";

/// The certificates that programs trust, a PEM file in [`AGENT_DIR`]. It is there only where an operator gave
/// certificates.
pub const CA_FILE: &str = "/.paddock/ca.pem";

/// The directory that belongs to the session; also reachable by [`DATA_ALIASES`].
pub const DATA_DIR: &str = "/data";

/// Other mounts of the same volume, as other systems name it.
pub const DATA_ALIASES: [&str; 2] = ["/mnt/data", "/workspace"];

/// The directory below [`DATA_DIR`] that is the coding agents' own: their conversations.
pub const AGENTS_DIR: &str = ".agent";

/// Where a container whose [`DATA_DIR`] lies on a disk has a second volume there, for [`HOME_DIR`].
pub const HOMES_DIR: &str = "/home";

/// The home directory of such a container: packages and caches, which are no files of the session.
pub const HOME_DIR: &str = "/home/agent";

/// One more mount of [`DATA_DIR`] in such a container: below [`HOMES_DIR`], so that one archive gives both
/// volumes their owner.
pub const HOME_DATA_DIR: &str = "/home/workspace";

/// Every name of [`DATA_DIR`] that a container can have beside it.
pub const DATA_NAMES: [&str; 3] = [DATA_ALIASES[0], DATA_ALIASES[1], HOME_DATA_DIR];

/// Where the snapshot of an image's warm part is mounted, in containers that have one.
pub const SNAPSHOT_DIR: &str = "/warm";

/// Bytes of a warm part's reason why it cannot be restored.
pub const MAX_REASON: usize = 200;

/// Where the layers of packages are mounted in containers that can have some. Each entry of it is one layer.
pub const PACKAGES_DIR: &str = "/opt/packages";
