//! What a daemon says on a run's stream, and hears there: the program's input, its end, its files.
//!
//! A run goes on when its daemon goes, and is told to the next; only a daemon that is there and resets the
//! run's stream ends it. It must never report [`Event::Ended`] while a process of the run
//! lives, or a connection of it.

use std::io::Write;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use paddock_proto::limits::MAX_INPUT;
use paddock_proto::message::{self, Outcome, Request, RunSpec};
use paddock_proto::{Channel, Event, Inbound};
use rustix::fs::{MemfdFlags, SeekFrom, memfd_create, seek};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};

use crate::container::Container;
use crate::link::Stream;
use crate::outlet::Outlet;
use crate::ports::RunPorts;
use crate::program::CodeInput;
use crate::start::{ProgramInput, start};
use crate::stdin_pipe::StdinPipe;
use crate::supervise::{is_its_own, not_started, supervise};
use crate::{collect, execute, policy};

/// The longest time that a run may be given to end after SIGTERM.
const LONGEST_GRACE_MS: u64 = 60_000;

/// Answers a [`Request::Run`] on `stream`.
pub(crate) async fn serve(container: Rc<Container>, stream: Stream, mut spec: RunSpec) {
    if container.runs.get(&spec.id).is_some() {
        let what = format!("there is a run {} already", spec.id);
        stream.event(&Event::Failed { what }).await;
        stream.close().await;
        return;
    }
    let lacks_network = || spec.network.then(|| container.network.missing()).flatten();
    let lacks_execute = || spec.execute.as_ref().and_then(execute::missing);
    let lacks = spec.files.as_ref().and_then(policy::missing).or_else(lacks_execute).or_else(lacks_network);
    if let Some(what) = lacks {
        stream.event(&Event::Unsupported { what }).await;
        stream.close().await;
        return;
    }
    // Known from here on: a daemon can end it before it has its code.
    let outlet = Outlet::new(stream);
    container.runs.insert(spec.id.clone(), outlet.clone());
    let Some((input, feed)) = receive(&outlet.stream(), spec.input).await else {
        container.runs.remove(&spec.id);
        return;
    };
    if !matches!(spec.input, message::Input::Code { .. }) {
        outlet.event(&Event::Begun).await;
    }
    let before = container.counters.read();
    container.meter.begin(&container.counters);
    let begun_before = container.runs.begin();
    let alone = container.runs.len() == 1;
    let begun = Instant::now();
    let may_begin = container.network.may_begin(spec.network);
    let network = container.network.begin(&mut spec);
    let ports = RunPorts::new(outlet.clone());
    let started = match may_begin {
        true => start(&container, &spec, (&network, &ports), input).await,
        false => Err(Errno::BUSY.into()), // the daemon lets such runs take turns
    };
    let mut end = match started {
        Ok(process) => {
            let (stdin, _whole) = feed.start();
            supervise(&container, &outlet, &spec, process, stdin).await
        }
        Err(error) => not_started(error.raw_os_error().unwrap_or(0)),
    };
    ports.close().await;
    container.network.end(&network).await;
    end.wall_us = u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX);
    end.metered_us = container.meter.end(&container.counters, end.cpu_us);
    // A program that was refused something and ends well has coped. One that leaves processes behind, as a
    // fork bomb does, has not: the limit ended it.
    if end.limit.is_none() && (end.outcome != Outcome::Exited(0) || end.leftovers > 0) {
        let alone = alone && container.runs.begun() == begun_before + 1;
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
    container.runs.remove(&spec.id);
}

/// Serves the daemon's wishes after a run's end; whether it has no more of them.
async fn settle(container: &Container, stream: &Stream) -> bool {
    loop {
        match stream.request().await {
            Ok(Request::Collect(rules)) => return collect::serve(container, stream, rules).await,
            Ok(Request::Commit) => return true,
            // An input that came too late.
            Err(Inbound::Data(..) | Inbound::Eof(_)) => {}
            Ok(_) | Err(_) => return false,
        }
    }
}

/// Answers a [`Request::Attach`] on `stream`.
pub(crate) async fn attach(container: &Container, stream: Stream, id: &str) {
    let outlet = container.runs.get(id);
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
    let outlet = container.runs.get(id);
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

/// What is written into a program's standard input while it runs.
enum Feed {
    Nothing,
    /// What the daemon sends, into this end of a pipe.
    Open(OwnedFd),
    /// This, all of it.
    Whole(OwnedFd, Bytes),
}

impl Feed {
    /// Begins to write: the pipe for what is yet to come, and the pipe of an input that is there already.
    fn start(self) -> (Option<StdinPipe>, Option<StdinPipe>) {
        match self {
            Self::Nothing => (None, None),
            Self::Open(pipe) => (Some(StdinPipe::start(pipe)), None),
            Self::Whole(pipe, bytes) => {
                let pipe = StdinPipe::start(pipe);
                pipe.push(bytes);
                pipe.end();
                (None, Some(pipe))
            }
        }
    }
}

/// What the program reads, and what is written there while it runs. `None` if the daemon broke off before all
/// was there that must be there before the start.
async fn receive(stream: &Stream, input: message::Input) -> Option<(ProgramInput, Feed)> {
    let pipe = || pipe_with(PipeFlags::CLOEXEC).ok();
    let with_stdin = match input {
        message::Input::Nothing => return Some((ProgramInput::Nothing, Feed::Nothing)),
        message::Input::Open => {
            let (reading, writing) = pipe()?;
            return Some((ProgramInput::Pipe(reading), Feed::Open(writing)));
        }
        message::Input::Whole => {
            let (whole, (reading, writing)) = (receive_whole(stream).await?, pipe()?);
            return Some((ProgramInput::Pipe(reading), Feed::Whole(writing, whole)));
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
    Some((ProgramInput::Code(CodeInput { code, stdin: stdin.map(OwnedFd::from) }), Feed::Nothing))
}

/// An input that the agent has before its program starts; `None` also if it is larger than [`MAX_INPUT`].
async fn receive_whole(stream: &Stream) -> Option<Bytes> {
    let mut whole = Vec::new();
    loop {
        match stream.recv().await {
            Inbound::Data(Channel::Stdin, bytes) if whole.len() + bytes.len() <= MAX_INPUT => {
                whole.extend_from_slice(&bytes);
            }
            Inbound::Eof(Channel::Stdin) => return Some(whole.into()),
            Inbound::Data(..) | Inbound::Eof(_) | Inbound::Message(_) | Inbound::Close | Inbound::Reset => {
                return None;
            }
        }
    }
}
