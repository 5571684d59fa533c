//! Sessions: one `/data` each, whichever languages it uses, and the containers that it has at the moment.
//!
//! ```text
//!  a call ── enter(owner, id, what for) ──► gate ──► Turn ──► run ──► output
//!                                            │         │       │
//!                 which call is in which     │         ▼       ▼
//!                 session; permits, eviction,│       lease    sync      what each container has, and lacks
//!                 idling, closing, expiry    ▼         │       │
//!                                        registry      ▼       ▼
//!                                            └─────► pool    store
//! ```
//!
//! * `gate` decides which call may be in a session, and which sessions have containers; a call names its
//!   session by owner and id, and gets a [`Turn`], which names the session that the call is in.
//! * `registry` has the sessions in memory; `sessions` is the door for the rest of the daemon.
//! * `lease` gets containers and gives them up, and takes over those of an earlier daemon. It tries once more
//!   to save files that the store could not take, before their container goes.
//! * `run` runs one program, from its turn to its report; `output` captures what it writes.
//! * `sync` brings files into a container, and what changed out of it.
//! * `workspaces` keeps what a coding agent's container has beside the session's files, when it is given up.
//! * `port` names the few operations that all of these need of the pool and the engine; unit tests play a
//!   container behind it.
//!
//! The store is the truth and a container a cache: a lease can be dropped between any two calls, and nothing
//! is lost that an answer called saved. Nothing in here may run programs of two languages of one session at a
//! time, change its files from outside while a program runs, or let a container of one session see another.

mod bounds;
mod error;
mod gate;
mod id;
mod lease;
mod output;
mod port;
mod registry;
mod run;
mod sessions;
mod sync;
#[cfg(test)]
pub(crate) mod test_world;
mod workspaces;

pub use bounds::{SessionBounds, SessionsInUse};
pub use error::SessionError;
pub use gate::message::{SessionKey, TurnKind};
pub use gate::turn::Turn;
pub use id::{IdError, SessionId};
pub use lease::recover::ResumableRun;
pub use lease::rescue::LostFiles;
pub use output::capture::CapturedOutput;
pub use output::live::{OutputBacklog, OutputFollower, OutputPiece, Pace};
pub(crate) use output::stream::excerpt;
pub use output::stream::{CapturedStream, Excerpt};
pub use registry::Session;
pub use run::Runs;
pub(crate) use run::follow::meter;
pub use run::follow::{Control, OutputSink};
pub use run::report::{Phases, Recovered, RunEnd, RunReport, Unsaved, limit_name};
pub use run::request::{PACKAGES, Program, RunPackages, RunRequest, new_run_id};
pub use sessions::Sessions;
