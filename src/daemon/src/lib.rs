//! **paddock** runs untrusted code in locked-down Docker containers that are started before the code arrives.
//! This page is the architecture. The README is for people who use paddock.
//!
//! # The picture
//!
//! ```text
//!  client ── HTTP ── api ── tools ── execution ── session ── pool ── engine ── /var/run/docker.sock
//!                               │        │           │        │        └─ create, start, exec, archive, …
//!                               │        │           │        └─ idle, armed containers of each runner
//!                               │        │         store (files on disk: the truth)     sign (links)
//!                               │        └─ commands that outlive their call
//!                             link ══ one end of its socket pair ═════════ agent (PID 1) ── job ── code
//!                               ╚════ or one hijacked exec stream ══ bridge ══╝
//! ```
//!
//! A request becomes a tool call. The call takes the turn of its session, the session leases a container, and
//! the code is one message on a stream that was open before the code arrived. Only events and the answer flow
//! back.
//!
//! # Glossary
//!
//! | word | meaning |
//! |---|---|
//! | **session** | a conversation and its `/data`; its id is the caller's `conversationId` or `session_id` |
//! | **tenant** | the name of a token: whose sessions are whose, and who may use how much |
//! | **turn** | the right of one call to work in a session; the call holds it until it drops it |
//! | **permit** | the right to one of a bounded number of something, such as running commands or open connections |
//! | **runner** | an image, and the language or the coding agent that it runs |
//! | **coding agent** | a program that does a task by itself, such as Claude Code; its runner is no language |
//! | **container** | one locked-down container, made for a runner before anybody asks for it |
//! | **lease** | a container in the hands of one session, until it is removed |
//! | **workspace** | the `/data` and the home directory of a coding agent's container, on the engine's disk |
//! | **agent** | our program inside the container. It is PID 1: it starts, limits and ends programs |
//! | **standing pair** | a socket pair that PID 1 has ready, whose one end the daemon takes out of it |
//! | **bridge** | a small process that the Engine starts in the container, to connect the agent with a daemon that cannot take the standing pair |
//! | **link** | the connection between daemon and agent; it has many streams, and outlives a broken carrier |
//! | **carrier** | what a link uses to move bytes: the stream of an exec, or one end of a socket pair |
//! | **warm part** | a process of the image that has started and imported its libraries, and waits for code |
//! | **snapshot** | the warm part of an image as files, from which containers restore it; one per engine and image |
//! | **run** | one program, from its turn to its report |
//! | **execution** | a shell command that can outlive the call that started it |
//! | **task** | an execution whose command is a coding agent |
//! | **model** | a language model that programs reach as a service, whose answers are metered |
//! | **layer** | packages of one list, in a directory that all programs with this list can read |
//! | **store**, **space** | all saved files on disk, and the part of one session |
//! | **drop folder** | a folder on the host for one conversation, whose files and those of the session follow each other |
//! | **mount** | a folder of the host that programs can read, at `/mnt/NAME` |
//! | **artifact** | a saved file that a caller can download by its link |
//!
//! # The code map
//!
//! | path | what is there |
//! |---|---|
//! | `src/proto` | the messages between daemon and agent: frames, checked paths, the multiplexer; no I/O |
//! | `src/ledger` | who owns which session and what it holds, where many machines share a store: PostgreSQL and S3; its rules are pure |
//! | `src/fuzz` | the harness that fuzzes every parser, on stable Rust; only tests use it |
//! | `src/agent` | the program in the container: PID 1, jobs, changes in `/data`, policies of files and of programs, warm parts, the bridge |
//! | [`engine`] | the client of the Docker Engine API, one file for each resource; only this module talks to Docker |
//! | [`link`] | the daemon's end of a link: streams that outlive the carrier |
//! | [`pool`] | a pure core that decides and one driver that acts; how every container is made; the proof; runners |
//! | `pool/snapshots` | snapshots of warm parts: a pure core says when one is taken, used and removed; saved, proved and kept in volumes |
//! | [`session`] | the sessions in memory, each with its `/data` and its containers |
//! | `session/gate` | a pure core decides who may work in a session, wait, close it, delete it, and which session is evicted; a driver acts |
//! | `session/lease` | the containers of sessions: noted in the store, taken over after a restart, given up |
//! | `session/workspaces` | workspaces that are kept without a container: which, and for how long, is decided by a pure core |
//! | `session/run` | one program, from its request to its report |
//! | `session/output` | what programs write: captured for the answer, passed on live, fairly between floods |
//! | `session/port` | the few operations that sessions need of pool and engine, and a fake of them for unit tests |
//! | `session/sync` | files into containers and changes out of them: differences, archives, rescue |
//! | [`egress`] | the way out: what a run may reach, and its connections; names and policy are pure, the rest resolves, dials and relays |
//! | `egress/service` | services: HTTP requests of programs, sent on with credentials that no program sees |
//! | `egress/service/model` | models: services whose answers are metered, within budgets of dollars and tokens |
//! | [`packages`] | packages beyond a runner's image: a pure core says which layers there are; a fetch fills one, in a container of its own |
//! | [`ports`] | the way in: links to servers that programs run, and the requests that are forwarded to them; all rules are pure |
//! | [`store`] | files on disk: written to one journal, synced, put in place, then acknowledged |
//! | [`drops`] | drop folders: what the host puts there is in a session before its next run, and what a run makes appears there |
//! | [`backup`] | one archive of the whole store, taken while it is in use; checked and put in its place as a whole |
//! | [`tenants`] | tokens and their limits: the file of tokens, who is served next where tenants wait, `paddock token`; all rules are pure |
//! | [`audit`] | the audit log: who did what, in a chain of hashes; `paddock audit verify` |
//! | [`telemetry`] | the daemon's spans, for a collector of OpenTelemetry |
//! | [`cluster`] | many machines: whose a session is, and requests passed to the node that has it; placement, the view of the nodes and the header of a hop are pure |
//! | [`sign`] | signed links |
//! | [`execution`] | commands that outlive their call: start, input, end, recovery after a restart |
//! | `execution/log` | what a command wrote, on disk, and the numbered events that readers get from it |
//! | [`agents`] | coding agents: how one is started at a level, and what its stream of JSON says; pure |
//! | [`diff`] | what a task changed, as a diff that git takes; made without git, and read again |
//! | [`notifications`], [`run_history`] | notifications about runs and executions for clients that listen; the last runs for the page |
//! | [`tools`] | what callers may ask for, in plain values; every check of an argument |
//! | `tools/code`, `tools/exec`, `tools/task`, `tools/answer` | one file for each tool of the three sets; what their answers contain |
//! | [`api`] | HTTP, authentication, MCP (`api/mcp`), plain files (`api/raw`), downloads, the page (`api/page`), metrics and status; only this module knows JSON-RPC |
//! | [`stdio`] | MCP on standard input and output |
//! | [`terminal`] | `paddock run`: a program from a terminal, its output and its files; `paddock health` |
//! | `terminal/task` | `paddock task`: a coding agent's task from a terminal, its diff, and its changes in a folder |
//! | `local_daemon` | connects `stdio` and `terminal` to the running daemon, or makes this process the daemon |
//! | [`services`] | what one daemon has, made once by `app`: the services that tools and `api` share |
//! | [`app`] | the only wiring: from a configuration to a running daemon, and to its end |
//! | [`degradation`] | what can fail while the daemon goes on: one table for `/ready`, `doctor`, metrics and alerts |
//! | [`metrics`] | everything that is counted or measured: one facade whose methods name events |
//! | [`doctor`] | what this host really enforces, tested in a container; no other module uses it |
//! | [`config`], [`id`], [`log`], [`trace`], [`build`], `printable`, `listener`, `stand_in_port`, [`heaps`], `holder`, `pressure`, `processors`, `signals` | leaves: settings, random names, log lines and their trace, the commit of this build, text made safe to print, listeners, a stand-in's port, the heaps of the C library, the owner of a lock, how short the processors are, on which of them the daemon's threads run, signals |
//! | [`docs`] | the API for clients, what differs from the documents, the threat model, what was tried where, how to contribute |
//!
//! Direction of `use`: `main → app → api → tools → execution → session → pool → {engine, link} → proto`;
//! `tools → packages → {session, egress, pool}`.
//! `agents`, `config`, `diff`, `id`, `sign`, `store`, `notifications`, `metrics` and `log` are used by these
//! modules and use none of them.
//!
//! # Ten questions
//!
//! | question | path of the answer |
//! |---|---|
//! | Where is an idle session evicted? | after its time: `session/gate/core/sweep.rs`; for another session: `session/gate/core/permits.rs` |
//! | What happens to output when nobody reads it? | of code: `session/output/capture.rs`; of commands: `execution/log`; live output: `session/output/live.rs` |
//! | Where does a call wait for its turn? | `session/gate/core/calls.rs`, and which call fits: `session/gate/core/state.rs` |
//! | How is a container made, and with which limits? | `pool/spec.rs` |
//! | How does the daemon know that containers are really locked down? | `pool/proof.rs` |
//! | What becomes of a running program when the daemon is killed? | `session/lease/recover.rs`, `execution/recover.rs` |
//! | When is a file really saved? | `store/journal.rs`, and the page of [`store`] |
//! | Who may call? | `api/guard.rs` |
//! | How does code reach an interpreter that has already started? | `src/agent/src/warm` |
//! | Where does a new setting go? | `config.example.toml`, then `config/raw.rs` and `config/check` |
//!
//! # How a run goes
//!
//! 1. `api` admits the request (host, origin, token) and `tools` checks every argument. Nothing has changed
//!    yet.
//! 2. `session` grants the turn of this conversation. Calls of a session take turns; commands of the same
//!    language may work beside each other. (A run that has a network is alone where the proof has seen no
//!    Landlock.) A bounded number of calls waits.
//! 3. If the session has no container of this language, it needs a permit to have one: it gets one at once,
//!    or when an idle session is evicted. Then `pool` leases it an armed container, as soon as there is one.
//!    A call waits for both no longer than `pool.wait`, first come, first served. Before the container
//!    receives anything of the session, the lease is written to the store and told to PID 1 (`Claim`).
//! 4. The session sends the files that the container lacks over the link (`Apply`). If the carrier is an exec
//!    stream and the container is empty, a large `/data` goes in one archive of the Engine API instead.
//! 5. `Run` and the code go over the same link. If the image's *warm part* is ready, the agent gives it the
//!    code: this process has started, and imported libraries, beforehand, or it was restored from a snapshot
//!    when the container started. Otherwise the agent forks a *job*
//!    (a child subreaper), which starts the image's entrypoint. Output comes back under a window for each
//!    stream. The daemon keeps the beginning and the end for the answer, and all of it in a log if it is more
//!    than a model is shown.
//! 6. The program ends, or a limit ends it. The job kills every process that the program started, and PID 1
//!    kills what a killed job left. Only then does the agent report `Ended`.
//! 7. The daemon collects the files, for one program of a session after the other. The agent walks `/data`,
//!    compares it with the state that both sides agreed on, and sends the differences. `store` makes them
//!    durable, all or nothing, and puts them in place. The daemon tells the agent to `Commit`, and the answer
//!    leaves.
//!
//! A command of `execution` goes the same way, with a shell in place of the entrypoint, a log in place of the
//! captured answer, and its input left open. The daemon appends the output to this log before it tells the
//! agent that it may forget it. Every reader gets the same numbered events from the log, even after a restart
//! of the daemon.
//!
//! The Engine API takes part in steps 3 and 4 only, and in neither if a container is ready and the files are
//! few.
//!
//! # When something ends that should not
//!
//! | what ends | what happens |
//! |---|---|
//! | the bridge | the link connects again and continues where it was; no caller notices |
//! | the container, or PID 1 | the run is `lost`; the session continues in another container with everything that was saved |
//! | the agent cannot be reached, but the container runs | the daemon pauses the container, the Engine archives `/data`, complete files are saved, and the container is removed |
//! | the store's disk is full | the answer says so and has the output; the container keeps the files, and the next call saves them; if the container has to go before, the daemon tries once more |
//! | the store's file system becomes read-only or fails | the same; `/ready` and `/health` report it until a write succeeds again, which the daemon tries every second |
//! | PostgreSQL or S3 of a store of many machines | calls that save something, or begin with a session, get `store_unavailable`; containers keep what could not be saved, and the next call saves it; once this machine's lease is over it answers for no session until it has asked for it again |
//! | the engine dies, or answers no ping | calls that need a new container are refused, files are served, runs on a direct carrier continue; idle containers are removed when the engine is back |
//! | this daemon, by a signal | running programs may finish, or a second signal ends them; all files are saved, all containers removed, workspaces kept |
//! | this daemon, by `kill -9` | the programs continue; the next daemon takes over what it finds |
//!
//! A daemon that starts examines what its owner has on the engine. A container that has today's specification
//! is armed again: it becomes idle if PID 1 says that nothing ever ran in it, and its session's if PID 1 and
//! the lease's note name the same session. The new daemon follows a run in progress to its end, includes the
//! output that no daemon had logged before, saves its files, and reports it in the next answer of that
//! session (`earlier_runs`). Workspaces that its notes name are kept, whether an earlier daemon kept them or
//! their container has ended since. An execution can be read and ended as before. If its container is gone, a
//! run or execution is reported as `lost`. A container of another specification, such as that of an earlier
//! build, is armed again only as long as a session's program runs in it. If an agent of a session's container
//! does not answer, because it speaks another version of the protocol, the engine reads the files of what was
//! in flight (`session/lease/rescue.rs`). Everything else is removed, and a sweep keeps looking for
//! containers that nobody knows. A PID 1 that hears from no daemon for `agent.orphan_after` ends itself.
//!
//! # Why it is so
//!
//! * **The container is armed before the code arrives.** An Engine exec of python takes 58 ms and each
//!   archive call 42–60 ms on two cores; a message on an open stream takes a fraction of a millisecond. So
//!   the daemon opens one stream when the container starts, and keeps it.
//! * **Where it can, the daemon takes one end of a socket pair out of PID 1** (`pidfd_getfd`): the standing
//!   pair, which PID 1 makes before anything else. It needs `CAP_SYS_PTRACE` and the engine's own kernel;
//!   otherwise (a remote engine, no root, gVisor) the stream is that of an exec, the bridge. An exec costs
//!   the machine about as much as the start of a container, and its stream passes the engine and its shim,
//!   in pieces of 32 KiB: four copies instead of one. To put, read and write, and get 100 MiB took 1,125 ms
//!   over the exec and 678 ms directly; 1,000 files took 707 and 230 ms, an `echo` in `sh` 8.1 and 5.7 ms
//!   (`make bench`, one run each).
//! * **PID 1 decides and carries; the bridge only lends its streams.** The bridge hands its standard input
//!   and output to PID 1 over a socket and waits. No byte passes through a process of its own, and code that
//!   stops the bridge stops nothing. Code can kill every process of its user except PID 1, so PID 1 keeps the
//!   state. When code kills a bridge, the daemon starts another, and the streams continue: nothing is lost or
//!   repeated.
//! * **A run is a process that existed before it.** Python takes 10 ms to start and pandas 280 to import. A
//!   child that was forked in advance, from a process that has done both, takes its run in a fraction of a
//!   millisecond. A program of the image does this, by a protocol that a stranger can implement
//!   (`runner-images/README.md`): one process for one run, or one process that forks. The child is forked
//!   ahead of the run, so no run waits for a fork. A warm part serves one run at a time; therefore every
//!   process of its job, other than the part and its waiting child, belongs to that run and dies with it. A
//!   run that finds no warm part uses the entrypoint, with the same result (`tests/e2e/alike.rs` shows it
//!   program by program).
//! * **Warm parts load one after another, and a container serves before its part is ready.** The agent starts
//!   the part after the secret is set and before any code. A session that keeps calling without a warm part
//!   comes first in the queue of loads, and after a second its runs wait for it: cold runs would take the
//!   processor that the load needs (before this rule, one conversation of a burst had 35 cold runs, 18.7 s).
//! * **Freeing memory is not on the way of an answer.** The kernel needs longer to free what a child was
//!   forked with than most programs run. So another process on the same memory, the holder, frees it after
//!   the answer. The agent kills the holder after it has seen that it is stopped and that nobody is left to
//!   wake it (before, 4 of the 9 ms of a run were waiting for this).
//! * **Output is logged as it arrives, and becomes events when it is read.** A flood costs its bytes and a
//!   count of its lines. Of many floods the daemon takes one large piece at a time, each after a pause, and
//!   flow control makes the programs wait. A line to a quiet command and back took 18.9 ms (p99) beside 64
//!   floods before, and takes 1.8 ms now, the same as alone (`make bench`).
//! * **PID 1 enforces file policies.** Landlock forbids the program every change by path. PID 1 hears of each
//!   attempt through seccomp's user notification, opens the file if the policy allows it, and hands the
//!   descriptor over. Landlock alone cannot deny `*.key` in a directory that may be written
//!   (`src/agent/src/policy`).
//! * **A coding agent is started without a shell.** At levels 1 and 2 nothing but its own program may be
//!   executed (Landlock, `src/agent/src/execute`), and a shell that starts it would have to be. Its task is
//!   in PID 1 before it begins, so a daemon that dies right afterwards loses nothing of it.
//! * **Events are counted where they happen; states are read at the scrape.** No gauge is kept up to date
//!   along the way, so none can drift. Label values are words of this program, so no caller can make a
//!   series. Runs that are scraped ten times a second take as long as others (`make bench`).
//! * **A thread writes the log.** A full disk, or a pipe that nobody reads, costs log lines, which are
//!   counted, and no run. Spans at the boundaries (request, run) put their ids into every line within them.
//! * **Live output may skip, the answer's never does.** A page or a model's client that reads slowly must not
//!   hold up a program. `paddock run` is a pipe, so it asks for all output, and the program waits for it.
//! * **An answer has two readers.** A model pays for each byte, so its text is the output (beginning and
//!   end), the files and what went wrong, each once. A program reads the document. Hosts differ in what they
//!   pass to their model, so `api::mcp::audience` chooses the form by how the client speaks;
//!   `bench/README.md` has the tokens.
//! * **An execution is opened by its id**, a random UUID, by any caller with a token of its owner's name, in
//!   any session: a client that reconnects has another session and the same work. If a call names a session
//!   too, it must be the execution's own.
//! * **A flood waits behind itself.** Where calls of several tenants wait (for permits, executions,
//!   containers and their starts, fetches of packages), the next tenant in the round is served, not the next
//!   call. A quiet tenant waits for one place to come free, and one place is kept for whoever has none.
//!   Before, a single token could hold every waiting place and every session ([`tenants::fair`]). What is
//!   saved is synced in turns too.
//! * **A tenant weighs what its token does, not what it has running.** The kernel divides processors between
//!   containers, so nine busy ones would get nine times as much as one. Those of a tenant with several are
//!   made lighter ([`tenants::weigh`]), and those of a tenant that owes CPU credits four times more; nobody
//!   waits for that, and a tenant that is alone is never weighed. The daemon writes the weights into the
//!   control groups itself where they are on its machine (`pool/weights/group.rs`): while a flood keeps the
//!   engine busy, the engine changed a weight seconds later.
//!   To let fewer programs run at a time would divide as well, but programs that wait for a network would
//!   hold places that nobody uses.
//! * **A tenant that owes leaves processors to others.** A weight says how much of a processor programs get,
//!   not how soon another gets its turn: beside light containers whose programs wake each other, the kernel
//!   let a heavy program that was hardly at work wait for 35 ms (p95; 0.1 ms on a processor without them). So
//!   the containers of tenants that owe CPU credits leave one processor or more to others, while these are
//!   at work ([`mod@tenants::confine`]), and all containers stay in one group. The daemon's own threads keep
//!   off those processors (`processors.rs`): a disk that answered there woke a thread which then waited for
//!   up to 119 ms, and the whole journal with it. A nice value, realtime priorities, a shorter slice and
//!   `cpu.idle` were tried, and did not help (`bench/README.md`).
//! * **A flood pays for what it used, before it begins more.** Weights divide what programs compute, but not
//!   what the engine and the kernel compute for their containers. So while the processors are short, programs
//!   of a tenant that has used more than its part wait for its CPU credits (`tenants::credit`): beside 64
//!   callers that run code another tenant's p95 went from 27 to 12 ms (`bench/README.md`). What is counted is
//!   use, not places, so programs that wait for a network hold nobody back. Who is held back has no place
//!   of a run or an execution yet.
//! * **The runtime makes the network of a container, not the engine.** All that a container has is a
//!   loopback. For the network `none` the engine keeps an account of that network, and before version 28 each
//!   start calls the engine's program once more: 0.1 of 0.18 s with version 20.10. A container without a
//!   network of the engine's gets its namespace and its loopback from runc; the two files of names lie in the
//!   agent's volume (`pool/loopback.rs`). The proof tries the loopback and reads the files; where it fails,
//!   the engine makes the network.
//! * **The file of tokens is looked at, not watched.** A look every 250 ms costs one `stat`, and sees what
//!   inotify does not: files behind exchanged links (a secret of Kubernetes) and of other machines. A token
//!   that is gone cuts its connections where they are counted, so no request pays for it.
//! * **A secret, not an address, makes the daemon.** PID 1 listens on an abstract socket, in a network
//!   namespace that the code shares. The first hello, before any code runs, sets the secret. It travels over
//!   standard input, and the mode of the agent's program (0111) keeps its memory closed. The secret of each
//!   container is derived from the store's key and the container's name: a stolen one opens no other
//!   container.
//! * **`/data` is a tmpfs volume**: fast, and with a hard quota of bytes and inodes on every file system. It
//!   dies with the container; therefore the store is the truth and the container a cache. It is memory: the
//!   limit of a container is that of the program plus the size of these file systems.
//! * **That of a coding agent lies on the engine's disk**, and so does its home directory, since what an
//!   agent installs takes gigabytes (`pool/disk.rs`). Where the engine's volumes take no size, PID 1 watches
//!   them: it asks the file system for its free space ten times a second, and walks only when enough was
//!   written since the last walk, or that was long ago. What git ignores is neither saved nor walked over.
//!   The disk outlives the processes of its container, so a lost container's files are saved as well.
//! * **The workspace outlives the container**, for `tasks.retention`: what git ignores is nowhere else. Its
//!   volumes and its UID are kept, and the session's next container begins over them. On disk stands what
//!   both sides agreed on last, so the changes and deletions of the store win, and what only the workspace
//!   has is found by the next collection (`session/workspaces/agreed.rs`).
//! * **Resources that the host has only once are fenced in each container**: contexts of asynchronous I/O,
//!   terminals, the handler of crashes; and traces that a run could leave for the next, such as the
//!   scheduling of PID 1 and System V IPC. Where Linux has no fence (`fcntl` locks, TCP memory with control
//!   groups 1), `doctor` measures it and says so.
//! * **One mount for all packages, and names that nobody guesses.** Containers stand before a list is known,
//!   and a mount cannot be added to one that runs. If a container were made for each list, a new session
//!   would wait for its start. So each has one read-only mount of all layers, whose directory cannot be
//!   listed ([`packages`]).
//! * **A warm part is restored, not imported, where its image can do that.** Importing takes a Python
//!   container 1.3 s of a processor and 131 MiB of its own; mapping what one clean container had imported
//!   takes milliseconds, and the page cache is shared by all. So the daemon takes a snapshot once, has the
//!   image's proof program come out alike in it, and gives it to new containers, read-only. Nothing waits for
//!   that: it gives way to callers, and a start reads the snapshots that there are beside everything else.
//!   Whatever fails leads back to importing, by turns. A part that says that its snapshot cannot be right
//!   ends its use; one that died or was late may be the fault of its container, so it takes three of them
//!   (`pool/snapshots`). A container writes a snapshot into a volume of its own; only the daemon writes the
//!   one that is used. So no container ever had write access to what others restore.
//! * **A UID for each container**, because pipes, inotify and queues are limited per user, across containers.
//! * **Containers are never used twice**: when a lease is dropped, its container is removed. A workspace is
//!   used again, but only by containers of the same session.
//!
//! # Invariants
//!
//! * A container serves one session. No other session sees its files, processes or environment.
//! * A file that an answer names is on disk, synced. A batch of changes is all or nothing, through any crash.
//! * A removed file stays removed: neither a crash nor an earlier container brings it back.
//! * When the end of a run is reported, every process that it started is dead.
//! * No two events of an execution have the same number, and an event that was read once reads the same
//!   again.
//! * A run is never retried once its code may have started: if its end is unknown, it is reported as `lost`.
//! * Every queue, buffer, body, frame and wait has a named bound; every Engine call has a deadline.
//! * Nothing that comes out of a container is trusted: names, sizes, order, exit codes.
//! * The daemon never touches containers and volumes of another owner. It leaves none of its own after its
//!   end, and none without a purpose 15 s after its start. Only four things stay: the agent's volume, which
//!   all daemons of a build share (`pool/agent.rs`), the volume of packages, if there is a layer in it
//!   (`pool/layers.rs`), the volumes of proved snapshots (`pool/snapshots`), and the volumes of workspaces
//!   that the notes of sessions name as kept.
//! * A snapshot is used only with the image, kernel, processor and agent that it was taken with, after its
//!   proof, and by a later daemon only if every byte is what the store's record says.
//! * Bad input is refused before anything changes.
//! * A server in a container learns no credential of the daemon and no cookie that it did not set. Below the
//!   daemon's own address a browser runs nothing that comes from one.
//! * No label of a metric contains the words of a caller or a program; no log line contains a secret.
//! * The page renders data as text, pictures and PDFs that run nothing, and loads nothing from other servers.
//!
//! # Deliberately absent
//!
//! * The archive API on the way of a run. It takes 42–60 ms a call, and its answers can miss data without an
//!   error. It is a tool for bulk (a large `/data` into an empty container, checked afterwards) and for
//!   rescue.
//! * Retrying a run. Nobody knows what the code did before its container was lost, and it may not bear
//!   repeating.
//! * Returning containers to the pool, and resetting images: nobody can show that they are clean.
//! * Trust in a container's name: containers are known by their id and our labels.
//! * HTTP/2: a reverse proxy has it, and no client of paddock needs it.

pub mod agents;
pub mod api;
pub mod app;
pub mod audit;
pub mod backup;
pub mod build;
pub mod cluster;
pub mod config;
pub mod degradation;
pub mod diff;
pub mod docs;
pub mod doctor;
pub mod drops;
pub mod egress;
pub mod engine;
pub mod execution;
#[cfg(test)]
mod fuzz_tests;
pub mod heaps;
mod holder;
pub mod id;
pub mod link;
mod listener;
mod local_daemon;
pub mod log;
pub mod metrics;
pub mod notifications;
pub mod packages;
pub mod pool;
pub mod ports;
mod pressure;
mod printable;
mod processors;
pub mod run_history;
pub mod services;
pub mod session;
pub mod sign;
mod signals;
mod stand_in_port;
pub mod stdio;
pub mod store;
pub mod telemetry;
pub mod tenants;
pub mod terminal;
#[cfg(test)]
mod tidy;
pub mod tools;
pub mod trace;
