//! **paddock** runs code nobody has read yet in locked-down containers that stand warm and armed before the code
//! comes. This page is the architecture; the README is the user's.
//!
//! # The picture
//!
//! ```text
//!  client ── HTTP ── api ── tools ── execution ── session ── pool ── engine ── /var/run/docker.sock
//!                               │        │           │         │        └─ create, start, exec, archive, events
//!                               │        │           │         └─ idle, armed containers of each runner; leases
//!                               │        │         store (files on disk: the truth)     sign (links)
//!                               │        └─ commands that go on by themselves; feed (who watches)
//!                             link ══ one hijacked exec stream ══ agent bridge ── agent (PID 1) ── job ── code
//!                               ╚════ or one end of its socket pair ═════════════════╝
//! ```
//!
//! A request becomes a tool call, a tool call a turn of a session, the turn leases a container, and the code is a
//! message on a stream that was open before it came. Nothing flows back up but events and the answer.
//!
//! # The code map
//!
//! | place | what is there |
//! |---|---|
//! | `src/proto` | what daemon and agent say to each other: frames, messages, checked paths, the mux; no I/O |
//! | `src/agent` | the program in the container: PID 1, jobs, what changed in `/data`, the bridge |
//! | [`engine`] | Engine API client, one file per resource; the only place that talks to Docker |
//! | [`link`] | the other end of the agent: streams that outlive the carrier they run over |
//! | [`pool`] | a pure core that decides, one driver that does; what every container is; the proof; runners |
//! | [`session`] | turns, leases, files in and out of containers, runs, eviction and expiry |
//! | [`store`] | files on disk: one journal, synced, then put in place, then acknowledged |
//! | [`sign`] | signed links |
//! | [`execution`] | commands that go on while nobody waits: their records, numbered events, and lives over restarts |
//! | [`feed`], [`recent`] | notes of what becomes of runs and executions, for whoever watches; the last runs, for whoever looks on |
//! | [`tools`] | what callers may ask for, in plain values; all checking of arguments |
//! | [`api`] | HTTP, the guard, MCP, downloads, the page, metrics and status; only here is JSON-RPC known |
//! | [`stdio`] | MCP on standard input and output, for as long as a client wants: in front of whichever daemon has the store |
//! | [`terminal`] | `paddock run`: code from a terminal, its output as it comes, its files in and out |
//! | `nearby` | the daemon that has the store, or this process in its place: where those two go |
//! | [`app`] | the only wiring: from a configuration to a running daemon and its end |
//! | [`metrics`] | what is counted and measured: one facade, whose methods name what happened |
//! | [`doctor`] | what this host's engine really enforces, tried in a container of its own; nothing else uses it |
//! | [`config`], [`id`], [`log`], [`trace`], [`build`] | leaves: settings, names and randomness, log lines and the trace that they are of, which build this is |
//!
//! Direction of `use`: `main → app → api → tools → execution → session → pool → {engine, link} → proto`; `config`, `id`,
//! `sign`, `store`, `feed`, `metrics` and `log` are used by those and use none of them.
//!
//! # How a run goes
//!
//! 1. `api` admits the request (host, origin, token), `tools` checks every argument. Nothing was touched yet.
//! 2. `session` takes the turn of this conversation: one call after the other, commands beside them as long as they are of
//!    the same language; a bounded number waits.
//! 3. If the session has no container of this language, `pool` leases one: armed already, or the next to be. Whose it
//!    is from now on is noted in the store and told to PID 1 (`Claim`) before it gets anything of the session.
//! 4. What the container lacks of the session's files is sent over the link (`Apply`); all of a large `/data` into an
//!    empty container goes by one archive instead, where the link is an exec's stream.
//! 5. `Run` goes over the same link, code behind it. The agent gives it to the image's *warm part*, if one stands: a
//!    process that has started, and imported, beforehand. If none does it forks a *job* (a child subreaper), the job
//!    the image's entrypoint. Output comes back under a window per stream; its head is kept for the answer, and all of
//!    it in a log if it is longer than an answer.
//! 6. The program ends, or a bound ends it. The job kills whatever else it started, PID 1 whatever a killed job
//!    left. Only then `Ended` is said.
//! 7. The daemon asks for the files, one program of a session after the other. The agent walks `/data`, compares with what both sides agreed on, and sends what differs. `store` makes
//!    it durable, all or nothing, and puts it in place; the agent is told to `Commit`; the answer leaves.
//!
//! A command of `execution` goes the same way, with its shell in place of the entrypoint, a recorder in place of what
//! captures an answer, and its input open. What it writes is appended to its record before the agent may forget it; the
//! record gives the same numbered events to whoever reads, also the next daemon.
//!
//! The Engine's API is in steps 3 and 4 only, and not even there if a container stands ready and the files are few.
//!
//! # When something ends that should not
//!
//! | what ends | what happens |
//! |---|---|
//! | the bridge | the link dials again and goes on where it was; nobody notices |
//! | the container, or PID 1 | the run is `lost`, the session goes on in another container with all that was saved |
//! | the agent cannot be reached, the container runs | it is paused, the engine archives `/data`, what is whole is saved, then it goes |
//! | the store's disk is full | the answer says so and has the output; the container keeps the files, the next call saves them |
//! | the engine | calls that need a new container are refused, files are served, runs on a direct carrier go on; its containers go when it is back |
//! | this daemon, by a signal | runs are drained or broken off, all files saved, all containers removed |
//! | this daemon, by `kill -9` | the programs run on; the next daemon takes over what it finds, see below |
//!
//! A daemon that starts looks at what its owner has on the engine. A container that is what it would make now is armed
//! again: idle if PID 1 says that nothing ever ran in it, its session's if PID 1 and the journal name the same. A run
//! in flight is heard to its end, with the output that no daemon had in a log before, its files are saved, and the
//! next answer of that session tells of it (`earlier_runs`); an execution is read, told and ended as before. If its
//! container is gone it is told as `lost`. All else is
//! removed, and a sweep goes on looking for what nobody knows. A PID 1 that hears no daemon for `agent.orphan_after`
//! ends itself.
//!
//! # Why it is so
//!
//! * **The exec is armed before the code comes.** An exec of python by the Engine takes 58 ms and each archive call
//!   42–60 ms on two cores; a message on an open exec stream takes a fraction of a millisecond. So one exec, the
//!   agent's bridge, is opened when the container starts and kept.
//! * **PID 1 decides and carries, the bridge only lends its streams.** The exec's program hands its standard input and
//!   output to PID 1 over a socket and waits, so that no byte passes through a process of its own, and code that
//!   stops the bridge stops nothing. Code can kill every process of its user but PID 1, so the state is there. A killed bridge is replaced and the streams go on where they were: nothing is lost or repeated.
//! * **Where it can, the daemon takes one end of a socket pair out of PID 1** (`pidfd_getfd`) and lets the exec go. The
//!   exec's stream passes the engine and its shim, in 32 KiB each: four copies where one will do. 100 MiB put, read and
//!   written, and got took 1,125 ms over the exec and 678 ms directly, 1,000 files 707 and 230 ms, an `echo` in `sh`
//!   8.1 and 5.7 ms (`make bench`, one run each). It takes `CAP_SYS_PTRACE` and the engine's own kernel; with
//!   anything else (a remote engine, no root, gVisor) everything works as before over the exec.
//! * **A run is a process that stood before it.** Python takes 10 ms to start and pandas 280 to import; a child forked
//!   beforehand from a process that has both takes its run in a fraction of a millisecond. The image's own program does
//!   it, by a protocol that a stranger can implement (`runner-images/README.md`): one process for one run, or one that
//!   forks. The child is forked ahead, so that no fork is on a run's way. One run at a time per warm part, so whatever
//!   its job has beside it and its waiting child is that run's, and dies with it; a run that finds none takes the
//!   entrypoint, and comes out alike (`tests/e2e/alike.rs` shows it program by program). The part is started after the
//!   secret is set and before anyone's code, in its turn among all that are loaded, and a container serves at once, whether
//!   it stands yet or not. What a child was forked with takes the kernel longer to free than most programs run, so another
//!   process on the same memory frees it after the answer: one that the agent saw standing stopped with nobody left to wake
//!   it, and kills (4 of 9 ms of a run were waiting for this before).
//! * **Output is recorded as it comes, and made into events for whoever reads it.** A flood costs its bytes and a count of its
//!   lines; of many floods one large piece is taken at a time, with a rest behind it, and flow control lets the programs wait.
//!   A line to a quiet command and back took 18.9 ms (p99) beside 64 floods before, 1.8 after, and 1.8 alone (`make bench`).
//! * **File policies are enforced by PID 1**: Landlock forbids the program every change by a path, and PID 1, told by seccomp's
//!   user notification, opens what may be opened and hands the descriptor over. Landlock alone cannot deny `*.key` in a directory
//!   that may be written (`src/agent/src/policy`).
//! * **What happens is counted where it happens, how things stand is asked for at the scrape.** No gauge is kept along the way, so
//!   none can drift; labels are words of this program, so nothing that a caller says makes a series. Runs scraped ten times a
//!   second take as long as others (`make bench`).
//! * **A thread writes the log.** A disk that is full, or a pipe that nobody reads, costs lines, which are counted, and no run.
//!   Spans at the boundaries (request, run) put their ids into every line within them.
//! * **Output that is shown while it comes may be left out, the answer's never is.** A page or a model's client that reads slowly
//!   must not hold a program up; `paddock run`, which is a pipe, asks for the whole of it and is waited for.
//! * **A secret, not an address, makes the daemon.** PID 1 listens on an abstract socket in a network namespace
//!   that the code shares. The first hello, before any code ran, sets the secret; it travels over stdin, and the
//!   program's mode (0111) keeps its memory closed. Each container has a secret of its own, derived from the store's key
//!   and its name: one that got out would open nothing else.
//! * **`/data` is a tmpfs volume**: a hard quota of bytes and inodes on every file system, and quick. It dies with
//!   the container; hence the store is the truth and the container a cache. It is memory: the container's limit
//!   is the program's plus what these file systems may take.
//! * **A UID for each container**, because pipes, inotify and queues are limited per user, across containers.
//! * **Containers are never used twice**: a lease that is dropped is a container that is removed.
//!
//! # Invariants
//!
//! * A container serves one session in its life. No file, process or environment is seen by another.
//! * A file that an answer names is on disk, synced. A batch of changes is all or nothing, through any crash.
//! * What is removed stays removed: neither a crash nor a container of before brings it back.
//! * When a run's end is said, every process that it started is dead.
//! * Two events of an execution never have one number, and what was read once is read the same again.
//! * A run is never tried again once its code may have started: what is not known is said to be `lost`.
//! * Every queue, buffer, body, frame and wait has a named bound; every Engine call has a deadline.
//! * What comes out of a container is not trusted: names, sizes, order, exit codes.
//! * Containers and volumes of another owner are never touched; of this owner's none is left after the end, and none
//!   without a purpose 15 s after a start.
//! * Bad input is refused before anything is touched.
//! * No label of a metric holds what a caller or a program said; no log line holds a secret.
//! * The page renders no data as anything but text, and loads nothing from elsewhere.
//!
//! # Deliberately absent
//!
//! * The archive API on the way of a run. At 42–60 ms a call, and with answers that can miss data without saying so,
//!   it is a tool for bulk (all of a large `/data` into an empty container, checked afterwards) and for rescue.
//! * Trying a run again. What code did before its container was lost is not known, and may not bear repeating.
//! * Containers given back to a pool, and reset images of any kind: nobody can show that they are clean.
//! * Any trust in a container's name: containers are known by id and by our labels.
//! * HTTP/2, TLS: a reverse proxy's business.

pub mod api;
pub mod app;
pub mod build;
pub mod config;
pub mod doctor;
pub mod engine;
pub mod execution;
pub mod feed;
pub mod id;
pub mod link;
pub mod log;
pub mod metrics;
mod nearby;
pub mod pool;
mod printable;
#[cfg(test)]
mod readme;
pub mod recent;
pub mod session;
pub mod sign;
pub mod stdio;
pub mod store;
pub mod terminal;
pub mod tools;
pub mod trace;
