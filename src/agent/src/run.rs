//! One run: its program, its output, its bounds, its end.
//!
//! ```text
//!  starting ─► running ─► ending (killed, or the program is dead) ─► swept ─► drained ─► Ended
//! ```
//!
//! `Ended` is said only when no process of the run lives and every byte it wrote was sent. It must never wait
//! for an end of file: a program may close its streams and live, or leave them open and die. A run goes on when its
//! daemon goes, and is told to the next; only a daemon that is there and lets go of it ends it.

use std::ffi::CString;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::{Duration, Instant};

use paddock_proto::message::{Limit, Outcome, Request, RunEnd, RunSpec};
use paddock_proto::{Channel, Event, Inbound};
use rustix::fs::{MemfdFlags, SeekFrom, memfd_create, seek};
use rustix::pipe::{PipeFlags, pipe_with};
use tokio::sync::Notify;

use crate::container::Container;
use crate::counters::Counters;
use crate::link::Stream;
use crate::outlet::Outlet;
use crate::pump::{Pump, Reports};
use crate::spawn::{self, EXTRA_FD, Program, Report};
use crate::{collect, tree};

/// How long a job may take to kill the rest of its run before PID 1 does it over its head: the code may have
/// stopped the job.
const JOB_PATIENCE: Duration = Duration::from_millis(1500);

/// How long PID 1 itself tries, before it says that some survive (and the daemon kills the container).
const SWEEP_PATIENCE: Duration = Duration::from_secs(5);

/// Between two looks at what has not died yet.
const SWEEP_PAUSE: Duration = Duration::from_millis(2);

/// Answers a [`Request::Run`] on `stream`.
pub(crate) async fn serve(container: Rc<Container>, stream: Stream, spec: RunSpec) {
    let Some((code, stdin)) = receive(&stream, spec.stdin).await else { return };
    if container.runs.borrow().contains_key(&spec.id) {
        let what = format!("there is a run {} already", spec.id);
        stream.event(&Event::Failed { what }).await;
        stream.close().await;
        return;
    }
    let outlet = Outlet::new(stream);
    container.runs.borrow_mut().insert(spec.id.clone(), outlet.clone());
    container.ran.set(true);
    let before = Counters::read();
    let begun = Instant::now();
    let mut end = match prepare(&spec, code, stdin) {
        Ok((program, out, err)) => execute(&container, &outlet, &spec, program, [out, err]).await,
        Err(error) => not_started(error.raw_os_error().unwrap_or(0)),
    };
    end.wall_us = u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX);
    // A program that was refused something and ends well has coped; one that leaves processes behind, as a fork
    // bomb does, has not: the bound is what ended them.
    if end.limit.is_none() && (end.outcome != Outcome::Exited(0) || end.leftovers > 0) {
        end.limit = Counters::read().limit_since(before);
    }
    loop {
        outlet.event(&Event::Ended(end.clone())).await;
        let stream = outlet.stream();
        let saved = spec.collect && collect::serve(&container, &stream).await;
        stream.close().await;
        if saved || !stream.is_orphaned() {
            break;
        }
        // The daemon went before it had everything: the next one is told again.
        outlet.attached(&stream).await;
    }
    container.runs.borrow_mut().remove(&spec.id);
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

/// The code and the program's input, each into a file in memory.
async fn receive(stream: &Stream, with_stdin: bool) -> Option<(OwnedFd, Option<OwnedFd>)> {
    let file = |name| memfd_create(name, MemfdFlags::CLOEXEC).ok();
    let (code, stdin) = (file("code")?, if with_stdin { Some(file("stdin")?) } else { None });
    let (mut code, mut stdin) = (std::fs::File::from(code), stdin.map(std::fs::File::from));
    let mut open = 1 + usize::from(with_stdin);
    while open > 0 {
        match stream.recv().await {
            Inbound::Data(Channel::Code, bytes) => code.write_all(&bytes).ok()?,
            Inbound::Data(Channel::Stdin, bytes) => stdin.as_mut()?.write_all(&bytes).ok()?,
            Inbound::Eof(_) => open -= 1,
            Inbound::Data(..) | Inbound::Message(_) | Inbound::Close | Inbound::Reset => return None,
        }
    }
    let rewound = |file: std::fs::File| {
        seek(&file, SeekFrom::Start(0)).ok()?;
        Some(OwnedFd::from(file))
    };
    let stdin = match stdin {
        Some(file) => Some(rewound(file)?),
        None => None,
    };
    Some((rewound(code)?, stdin))
}

fn prepare(
    spec: &RunSpec,
    code: OwnedFd,
    stdin: Option<OwnedFd>,
) -> std::io::Result<(Program, OwnedFd, OwnedFd)> {
    let c = |text: &str| CString::new(text).map_err(|_| std::io::Error::from_raw_os_error(libc::EINVAL));
    let mut env = spec.env.iter().map(|v| c(v)).collect::<Result<Vec<_>, _>>()?;
    if stdin.is_some() {
        env.push(c(&format!("SANDBOX_STDIN_FD={EXTRA_FD}"))?);
    }
    let argv = spec.argv.iter().map(|a| c(a)).collect::<Result<Vec<_>, _>>()?;
    let name = spec.argv.first().map_or("", String::as_str);
    let paths = if name.contains('/') {
        vec![c(name)?]
    } else {
        let path = spec.env.iter().find_map(|v| v.strip_prefix("PATH="));
        let path = path.unwrap_or("/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
        path.split(':').map(|dir| c(&format!("{dir}/{name}"))).collect::<Result<Vec<_>, _>>()?
    };
    let (out, out_end) = pipe_with(PipeFlags::CLOEXEC)?;
    let (err, err_end) = pipe_with(PipeFlags::CLOEXEC)?;
    let program = Program {
        paths,
        argv,
        env,
        cwd: c(&spec.cwd)?,
        stdin: code,
        stdout: out_end,
        stderr: err_end,
        extra: stdin,
    };
    Ok((program, out, err))
}

fn not_started(errno: i32) -> RunEnd {
    RunEnd {
        outcome: Outcome::NotStarted(errno),
        limit: None,
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
    program: Program,
    outputs: [OwnedFd; 2],
) -> RunEnd {
    let (job, reports) = match spawn::start(&program) {
        Ok(started) => started,
        Err(error) => return not_started(error.raw_os_error().unwrap_or(0)),
    };
    let mut dead = container.reaper.watch(job);
    drop(program);
    let over = Rc::new(Notify::new());
    let [out, err] = outputs;
    let pumps = [(out, Channel::Stdout), (err, Channel::Stderr)]
        .map(|(fd, channel)| Pump::start(fd, channel, outlet.clone(), spec.output_cap, over.clone()));

    let mut reports = Reports::new(reports);
    let mut run = Running { job, main: None, limit: None, give_up: None };
    let mut end = not_started(0);
    let mut listening = true;
    let wall = tokio::time::sleep(Duration::from_millis(spec.wall_ms));
    tokio::pin!(wall);
    loop {
        let give_up = run.give_up;
        tokio::select! {
            report = reports.next() => match report {
                Some(Report::Started(main)) => {
                    run.main = Some(main);
                    outlet.event(&Event::Started).await;
                    if run.limit.is_some() {
                        tree::kill(&[main]);
                    }
                }
                Some(Report::Failed(errno)) => end.outcome = Outcome::NotStarted(errno),
                Some(Report::Ended { status, cpu_us, max_rss_kib, leftovers }) => {
                    if !reports.failed {
                        end.outcome = outcome(status);
                    }
                    (end.cpu_us, end.max_rss_kib, end.leftovers) = (cpu_us, max_rss_kib, leftovers);
                    break;
                }
                // The job was killed: by the code, by PID 1 below, or for memory. One that could not even fork has
                // said so.
                None => {
                    if !reports.failed {
                        end.outcome = Outcome::Signaled(libc::SIGKILL);
                    }
                    break;
                }
            },
            () = &mut wall, if run.limit.is_none() => run.end(Limit::Wall),
            () = over.notified(), if run.limit.is_none() => run.end(Limit::Output),
            request = outlet.request(), if listening => match request {
                Ok(Request::Cancel) => run.end(Limit::Cancelled),
                Err(Inbound::Reset) => { listening = false; run.end(Limit::Cancelled); }
                _ => listening = false,
            },
            () = sleep_until(give_up), if give_up.is_some() => {
                tree::kill(&[job]);
                run.give_up = None;
            }
        }
    }
    end.limit = run.limit;
    if tokio::time::timeout(JOB_PATIENCE, &mut dead).await.is_err() {
        tree::kill(&[job]); // said its last word and lingers: stopped by the code
        let _ = dead.await;
    }
    let (swept, survivors) = sweep(container).await;
    end.leftovers += swept;
    end.survivors = survivors;
    let [out, err] = pumps;
    (end.stdout_bytes, end.stderr_bytes) = (out.finish().await, err.finish().await);
    end
}

/// Kills what no job owns, until nothing is left; how many that were, and how many would not die.
async fn sweep(container: &Container) -> (u32, u32) {
    let begun = Instant::now();
    let mut seen = std::collections::BTreeSet::new();
    // The code may have stopped the bridge, which nobody here is the parent of.
    spawn::wake_all();
    loop {
        let strays = container.reaper.strays();
        if strays.is_empty() || begun.elapsed() > SWEEP_PATIENCE {
            let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
            return (count(seen.len()), count(strays.len()));
        }
        seen.extend(strays.iter().copied());
        tree::kill(&strays);
        tokio::time::sleep(SWEEP_PAUSE).await;
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
    job: i32,
    main: Option<i32>,
    limit: Option<Limit>,
    give_up: Option<Instant>,
}

impl Running {
    /// Begins the end: the program is killed, its job does the rest and is watched while it does.
    fn end(&mut self, why: Limit) {
        if self.limit.is_some() {
            return;
        }
        self.limit = Some(why);
        self.give_up = Some(Instant::now() + JOB_PATIENCE);
        spawn::wake_all();
        if let Some(main) = self.main {
            // Its job may be dead or stopped already: all of its tree at once.
            let mut all = tree::descendants(self.job);
            all.push(main);
            tree::kill(&all);
        }
    }
}
