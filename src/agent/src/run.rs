//! One run: its program, its output, its bounds, its end.
//!
//! ```text
//!  starting ─► running ─► ending (killed, or the program is dead) ─► swept ─► drained ─► Ended
//! ```
//!
//! `Ended` is said only when no process of the run lives and every byte it wrote was sent. It must never wait
//! for an end of file: a program may close its streams and live, or leave them open and die. A run goes on when its
//! daemon goes, and is told to the next; only a daemon that is there and lets go of it ends it.

use std::io::Write;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::{Duration, Instant};

use paddock_proto::message::{self, Limit, Outcome, Request, RunEnd, RunSpec};
use paddock_proto::{Channel, Event, Inbound};
use rustix::fs::{MemfdFlags, SeekFrom, memfd_create, seek};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::Signal;
use tokio::sync::Notify;

use crate::bounds;
use crate::collect;
use crate::container::Container;
use crate::feed::Feed;
use crate::link::Stream;
use crate::outlet::Outlet;
use crate::policy;
use crate::process::{self, Input, Process, Reads};
use crate::pump::Pump;
use crate::spawn::{self, Report};
use crate::tree;

/// How long a job may take to kill the rest of its run before PID 1 does it over its head: the code may have
/// stopped the job.
const JOB_PATIENCE: Duration = Duration::from_millis(1500);

/// The longest time that a run may be given to end by itself.
const LONGEST_GRACE_MS: u64 = 60_000;

/// How often a warm part that has a run is told to go on, in case it was stopped.
const AWAKE: Duration = Duration::from_millis(250);

/// Answers a [`Request::Run`] on `stream`.
pub(crate) async fn serve(container: Rc<Container>, stream: Stream, spec: RunSpec) {
    if container.runs.borrow().contains_key(&spec.id) {
        let what = format!("there is a run {} already", spec.id);
        stream.event(&Event::Failed { what }).await;
        stream.close().await;
        return;
    }
    if let Some(what) = spec.files.as_ref().and_then(policy::missing) {
        stream.event(&Event::Unsupported { what }).await;
        stream.close().await;
        return;
    }
    // Known from here on: whoever wants its end need not wait until it has its code.
    let outlet = Outlet::new(stream);
    container.runs.borrow_mut().insert(spec.id.clone(), outlet.clone());
    let Some((reads, writes)) = receive(&outlet.stream(), spec.input).await else {
        forget(&container, &spec.id);
        return;
    };
    if !matches!(spec.input, message::Input::Code { .. }) {
        outlet.event(&Event::Begun).await;
    }
    let before = container.counters.read();
    let beside = container.begun.get();
    container.begun.set(beside + 1);
    let alone = container.runs.borrow().len() == 1;
    let begun = Instant::now();
    let mut end = match process::begin(&container, &spec, reads).await {
        Ok(process) => execute(&container, &outlet, &spec, process, writes.map(Feed::start)).await,
        Err(error) => not_started(error.raw_os_error().unwrap_or(0)),
    };
    end.wall_us = u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX);
    // A program that was refused something and ends well has coped; one that leaves processes behind, as a fork
    // bomb does, has not: the bound is what ended them.
    if end.limit.is_none() && (end.outcome != Outcome::Exited(0) || end.leftovers > 0) {
        let alone = alone && container.begun.get() == beside + 1;
        end.limit =
            container.counters.read().limit_since(before).filter(|limit| alone || is_its_own(*limit, &end));
    }
    loop {
        outlet.event(&Event::Ended(end.clone())).await;
        let stream = outlet.stream();
        let over = settle(&container, &stream).await;
        stream.close().await;
        if over || !stream.is_orphaned() {
            break;
        }
        // The daemon went before it had everything: the next one is told again.
        outlet.attached(&stream).await;
    }
    forget(&container, &spec.id);
}

fn forget(container: &Container, id: &str) {
    container.runs.borrow_mut().remove(id);
    container.warm.is_quieter();
}

/// Does with a run that has ended what its daemon wants; whether it wants no more.
async fn settle(container: &Container, stream: &Stream) -> bool {
    loop {
        match stream.request().await {
            Ok(Request::Collect) => return collect::serve(container, stream).await,
            Ok(Request::Commit) => return true,
            // An input that came too late.
            Err(Inbound::Data(..) | Inbound::Eof(_)) => {}
            Ok(_) | Err(_) => return false,
        }
    }
}

/// Answers a [`Request::Attach`] on `stream`.
pub(crate) async fn attach(container: &Container, stream: Stream, id: &str) {
    let outlet = container.runs.borrow().get(id).cloned();
    let (stream, what) = match outlet {
        None => (stream, format!("there is no run {id}")),
        Some(outlet) => match outlet.attach(stream) {
            Ok(()) => return,
            Err(stream) => (stream, format!("the run {id} is followed already")),
        },
    };
    stream.event(&Event::Failed { what }).await;
    stream.close().await;
}

/// Answers a [`Request::End`] on `stream`.
pub(crate) async fn end(container: &Container, stream: Stream, id: &str, grace_ms: u64) {
    let outlet = container.runs.borrow().get(id).cloned();
    let event = match outlet {
        None => Event::Failed { what: format!("there is no run {id}") },
        Some(outlet) => {
            outlet.end_by(Instant::now() + Duration::from_millis(grace_ms.min(LONGEST_GRACE_MS)));
            Event::Ending
        }
    };
    stream.event(&event).await;
    stream.close().await;
}

/// What the program reads, as far as it has to be there before it starts; and where to write what comes while it runs.
async fn receive(stream: &Stream, input: message::Input) -> Option<(Reads, Option<OwnedFd>)> {
    let with_stdin = match input {
        message::Input::Nothing => return Some((Reads::Nothing, None)),
        message::Input::Open => {
            let (reading, writing) = pipe_with(PipeFlags::CLOEXEC).ok()?;
            return Some((Reads::Pipe(reading), Some(writing)));
        }
        message::Input::Code { stdin } => stdin,
    };
    let mut code = Vec::new();
    let file = || memfd_create("stdin", MemfdFlags::CLOEXEC).ok().map(std::fs::File::from);
    let mut stdin = if with_stdin { Some(file()?) } else { None };
    let mut open = 1 + usize::from(with_stdin);
    while open > 0 {
        match stream.recv().await {
            Inbound::Data(Channel::Code, bytes) => code.extend_from_slice(&bytes),
            Inbound::Data(Channel::Stdin, bytes) => stdin.as_mut()?.write_all(&bytes).ok()?,
            Inbound::Eof(_) => open -= 1,
            Inbound::Data(..) | Inbound::Message(_) | Inbound::Close | Inbound::Reset => return None,
        }
    }
    if let Some(stdin) = &stdin {
        seek(stdin, SeekFrom::Start(0)).ok()?;
    }
    Some((Reads::Code(Input { code, stdin: stdin.map(OwnedFd::from) }), None))
}

/// Whether a bound of the container that was hit while several runs were under way can have ended this one.
fn is_its_own(limit: Limit, end: &RunEnd) -> bool {
    if limit == Limit::Pids {
        return end.leftovers > 0;
    }
    match end.outcome {
        Outcome::Signaled(signal) => signal == libc::SIGKILL,
        Outcome::Exited(code) => code == 128 + libc::SIGKILL,
        Outcome::NotStarted(_) => true,
    }
}

fn not_started(errno: i32) -> RunEnd {
    RunEnd {
        outcome: Outcome::NotStarted(errno),
        limit: None,
        warm: false,
        wall_us: 0,
        cpu_us: 0,
        max_rss_kib: 0,
        stdout_bytes: 0,
        stderr_bytes: 0,
        leftovers: 0,
        survivors: 0,
    }
}

async fn execute(
    container: &Container,
    outlet: &Rc<Outlet>,
    spec: &RunSpec,
    process: Process,
    feed: Option<Feed>,
) -> RunEnd {
    let over = Rc::new(Notify::new());
    let mut run = Running { process, main: None, limit: None, kill_at: None, give_up: None };
    let pumps = run.process.outputs.take().map(|[out, err]| {
        [(out, Channel::Stdout), (err, Channel::Stderr)]
            .map(|(fd, channel)| Pump::start(fd, channel, outlet.clone(), spec.output_cap, over.clone()))
    });
    let mut end = not_started(0);
    let mut listening = true;
    // Stopped by the code, the part would not tell of its end.
    let part = run.process.forker.as_ref().map(|forker| forker.part());
    let mut awake = tokio::time::interval(AWAKE);
    let mut look = tokio::time::interval(bounds::LOOK);
    let wall = tokio::time::sleep(Duration::from_millis(spec.wall_ms));
    tokio::pin!(wall);
    loop {
        let (kill_at, give_up) = (run.kill_at, run.give_up);
        let is_full = feed.as_ref().is_some_and(|feed| !feed.has_room());
        tokio::select! {
            report = run.process.reports.next() => match report {
                Some(Report::Started(main)) => {
                    run.main = Some(main);
                    if run.limit.is_some() {
                        // It was told to end before it began: with the grace that it has.
                        let signal = if run.kill_at.is_some() { Signal::TERM } else { Signal::KILL };
                        tree::signal(&[main], signal);
                    }
                }
                Some(Report::Failed(errno)) => end.outcome = Outcome::NotStarted(errno),
                Some(Report::Ended { status, cpu_us, max_rss_kib, leftovers }) => {
                    if !run.process.reports.failed {
                        end.outcome = outcome(status);
                        run.limit = run.limit.or_else(|| bounds::behind(&spec.limits, status, cpu_us));
                    }
                    (end.cpu_us, end.max_rss_kib, end.leftovers) = (cpu_us, max_rss_kib, leftovers);
                    break;
                }
                // The job was killed: by the code, by PID 1 below, or for memory. One that could not even fork has
                // said so.
                None => {
                    if !run.process.reports.failed {
                        end.outcome = Outcome::Signaled(libc::SIGKILL);
                    }
                    break;
                }
            },
            () = &mut wall, if run.limit.is_none() => run.end(Limit::Wall),
            () = over.notified(), if run.limit.is_none() => run.end(Limit::Output),
            inbound = outlet.inbound(), if listening && !is_full => match (inbound, &feed) {
                (Inbound::Data(Channel::Stdin, bytes), Some(feed)) => feed.give(bytes),
                (Inbound::Eof(Channel::Stdin), Some(feed)) => feed.end(),
                (Inbound::Reset, _) => { listening = false; run.end(Limit::Cancelled); }
                _ => listening = false,
            },
            () = room(feed.as_ref()), if is_full => {}
            when = outlet.told_to_end() => run.end_by(when),
            () = sleep_until(kill_at), if kill_at.is_some() => run.end(Limit::Cancelled),
            _ = look.tick(), if run.limit.is_none() && bounds::are_looked_at(&spec.limits) => {
                if let Some(limit) = bounds::broken(&spec.limits, &run.process.living()) {
                    run.end(limit);
                }
            }
            _ = awake.tick(), if part.is_some() => part.into_iter().for_each(spawn::wake),
            () = sleep_until(give_up), if give_up.is_some() => {
                tree::kill(&[run.process.job]);
                run.give_up = None;
            }
        }
    }
    (end.limit, end.warm) = (run.limit, run.process.warm);
    if let Some(dead) = &run.process.dead
        && tokio::time::timeout(JOB_PATIENCE, dead.wait()).await.is_err()
    {
        tree::kill(&[run.process.job]); // said its last word and lingers: stopped by the code
        dead.wait().await;
    }
    let forker = run.process.forker.as_ref();
    if let Some(forker) = forker {
        forker.free_now(container.counters.memory_is_short()); // the next run must find room
    }
    let (swept, survivors) = container.reaper.sweep(container.bridge.get(), forker.map(Rc::as_ref)).await;
    if let Some(forker) = forker {
        forker.free_soon();
    }
    end.leftovers += swept;
    end.survivors = survivors;
    if let Some([out, err]) = pumps {
        (end.stdout_bytes, end.stderr_bytes) = (out.finish().await, err.finish().await);
    }
    end
}

async fn room(feed: Option<&Feed>) {
    match feed {
        Some(feed) => feed.room().await,
        None => std::future::pending().await,
    }
}

async fn sleep_until(when: Option<Instant>) {
    match when {
        Some(when) => tokio::time::sleep_until(when.into()).await,
        None => std::future::pending().await,
    }
}

fn outcome(status: i32) -> Outcome {
    if libc::WIFSIGNALED(status) {
        Outcome::Signaled(libc::WTERMSIG(status))
    } else {
        Outcome::Exited(libc::WEXITSTATUS(status))
    }
}

struct Running {
    process: Process,
    main: Option<i32>,
    limit: Option<Limit>,
    /// It was asked to end, and is killed then.
    kill_at: Option<Instant>,
    give_up: Option<Instant>,
}

impl Running {
    /// Begins the end: the program is killed, its job does the rest and is watched while it does.
    fn end(&mut self, why: Limit) {
        if self.limit.is_some() && self.kill_at.is_none() {
            return;
        }
        self.limit = self.limit.or(Some(why));
        self.kill_at = None;
        self.give_up = Some(Instant::now() + JOB_PATIENCE);
        spawn::wake_all();
        if let Some(main) = self.main {
            // Its job may be dead or stopped already: all of its tree at once.
            let mut all = self.process.living();
            all.push(main);
            tree::kill(&all);
        }
    }

    /// Asks it to end, and has it killed then.
    fn end_by(&mut self, when: Instant) {
        if when <= Instant::now() {
            return self.end(Limit::Cancelled);
        }
        match self.limit {
            None => {
                self.limit = Some(Limit::Cancelled);
                tree::signal(&self.process.living(), Signal::TERM);
                spawn::wake_all(); // one that was stopped hears it as well
                self.kill_at = Some(when);
            }
            Some(_) => self.kill_at = self.kill_at.map(|before| before.min(when)),
        }
    }
}
