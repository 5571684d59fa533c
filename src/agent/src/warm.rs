//! The image's warm part: kept standing, given one run at a time, started again when it is gone.
//!
//! ```text
//!  keep ─► job ─► the part ── ready ──────► one process, one run: its job is the run's
//!   ▲                 └────── ready PID ──► it forks: the child is the run's, the part and its job go on
//!   └── gone, or its run over: the next one, later each time when it never stood
//! ```
//!
//! The protocol is a page for strangers (runner-images/README.md). A part is as untrusted as the code: what it says
//! is bounded and checked, and whatever is not understood ends it. It must never have more than one run at work, so
//! that whatever else its job has is that run's; nor hold up a run for a part that is not about to stand. A part closes
//! its memory to others once it stands, not before: code that ends one must not find the next one as it loads, see
//! [`Warm::make_way`].

mod forker;
mod holder;
mod single;
mod words;

use std::cell::{Cell, RefCell};
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::{Duration, Instant};

use paddock_proto::Event;
use paddock_proto::limits::DATA_DIR;
use paddock_proto::message::{RunSpec, WarmSpec};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use tokio::io::AsyncReadExt;
use tokio::net::UnixStream;
use tokio::net::unix::pipe;
use tokio::sync::Notify;
use tokio::task::spawn_local;

pub(crate) use self::forker::Forker;
use self::single::Single;
use self::words::{Word, Words};
use crate::complain;
use crate::container::Container;
use crate::foreign::Brief;
use crate::link::Stream;
use crate::process::{Input, Process, in_memory, prepare};
use crate::pump::Reports;
use crate::spawn::{self, Report};
use crate::tree;

/// How long a part may take until it stands.
const READY_WITHIN: Duration = Duration::from_secs(30);
/// A run waits for a part that is expected to stand within this time, and for twice as long at most.
const SOON: Duration = Duration::from_millis(150);
/// After a part that stood and died, and after each that never stood twice as long as before, up to the second.
const PAUSES: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(30)];
/// How long a part that must not meet code may hold it up while it loads; ours take half of that.
const HOLDS_UP: Duration = Duration::from_secs(3);
/// How long a part that is to end may take, and how long one may take to read what it waits for.
const PATIENCE: Duration = Duration::from_millis(1500);

/// PID 1's end of what a part says and is told; the part, and code that has its memory, can send sockets over it.
type Line = Rc<Brief<UnixStream>>;

/// What there is of a container's warm part.
#[derive(Default)]
pub(crate) struct Warm {
    spec: RefCell<Option<Rc<WarmSpec>>>,
    standing: RefCell<Option<Standing>>,
    /// When the next one is expected to stand, where that is soon.
    due: Cell<Option<Instant>>,
    /// Whether code may have ended a part: from then on none loads while code runs, which could write to it as it does.
    is_wary: Cell<bool>,
    /// The job of the part that loads.
    loading: Cell<Option<i32>>,
    /// Something changed.
    news: Notify,
}

/// What waits for a run.
enum Standing {
    Single(Single),
    Forks(Rc<Forker>),
}

impl Warm {
    /// Gives a run to what stands, if that is there, or will be soon. What comes back was not run.
    pub(crate) async fn run(&self, spec: &RunSpec, input: Input) -> Result<Process, Input> {
        let warm = self.spec.borrow().clone();
        let Some(warm) = warm.filter(|_| spec.cwd == DATA_DIR && !self.is_busy()) else { return Err(input) };
        let Some(standing) = self.take().await else { return Err(input) };
        let mut env = Vec::new();
        for variable in spec.env.iter().filter(|variable| !warm.env.contains(variable)) {
            env.extend_from_slice(variable.as_bytes());
            env.push(0);
        }
        env.push(0);
        match standing {
            Standing::Single(single) => single.give(&env, input).await,
            Standing::Forks(forker) => forker.give(&env, input).await,
        }
    }

    /// What stands now, or as soon as it is due.
    async fn take(&self) -> Option<Standing> {
        let begun = Instant::now();
        loop {
            if let Some(standing) = self.take_now() {
                return Some(standing);
            }
            let due = self.due.get().filter(|due| due.saturating_duration_since(begun) < SOON)?;
            let late = due.max(begun) + SOON;
            tokio::time::timeout_at(late.into(), self.news.notified()).await.ok()?;
        }
    }

    fn take_now(&self) -> Option<Standing> {
        let mut standing = self.standing.borrow_mut();
        match &*standing {
            Some(Standing::Forks(forker)) => forker.is_ready().then(|| Standing::Forks(forker.clone())),
            Some(Standing::Single(_)) => standing.take(),
            None => None,
        }
    }

    /// Whether it has a run already, for a part that forks.
    fn is_busy(&self) -> bool {
        matches!(&*self.standing.borrow(), Some(Standing::Forks(forker)) if forker.is_busy())
    }

    /// Waits until no part is loading that code could write to, and ends a part that takes too long. Call this before
    /// code is started.
    pub(crate) async fn make_way(&self) {
        let late = Instant::now() + HOLDS_UP;
        while let Some(job) = self.loading.get().filter(|_| self.is_wary.get()) {
            if tokio::time::timeout_at(late.into(), self.news.notified()).await.is_err() {
                let mut all = tree::descendants(job);
                all.push(job);
                tree::kill(&all);
                return;
            }
        }
    }

    /// To be called when a run is over.
    pub(crate) fn is_quieter(&self) {
        self.news.notify_waiters();
    }

    fn tell(&self, standing: Option<Standing>) {
        self.standing.replace(standing);
        self.news.notify_waiters();
    }
}

/// Answers a [`paddock_proto::Request::Warm`] on `stream`.
pub(crate) async fn serve(container: &Rc<Container>, stream: Stream, spec: WarmSpec) {
    let warm = &container.warm;
    if warm.spec.borrow().is_none() {
        warm.spec.replace(Some(Rc::new(spec)));
        spawn_local(keep(container.clone()));
    }
    let stands = async {
        while warm.standing.borrow().is_none() {
            warm.news.notified().await;
        }
    };
    let event = match tokio::time::timeout(READY_WITHIN, stands).await {
        Ok(()) => Event::Warm,
        Err(_) => Event::Failed { what: format!("the warm part does not stand after {READY_WITHIN:?}") },
    };
    stream.event(&event).await;
    stream.close().await;
}

/// Keeps a part standing, for as long as the container lives.
async fn keep(container: Rc<Container>) {
    let Some(spec) = container.warm.spec.borrow().clone() else { return };
    let warm = &container.warm;
    let (mut pause, mut usual) = (Duration::ZERO, None);
    loop {
        tokio::time::sleep(pause).await;
        while warm.is_wary.get() && !container.runs.borrow().is_empty() {
            warm.news.notified().await;
        }
        let begun = Instant::now();
        warm.due.set(usual.map(|usual| begun + usual));
        let mut stood = None;
        let end = stand(&container, &spec, || stood = Some(begun.elapsed())).await;
        warm.tell(None);
        warm.due.set(None);
        warm.is_wary.set(warm.is_wary.get() || (end.is_err() && container.begun.get() > 0));
        usual = stood.or(usual);
        pause = match (end, stood) {
            (Ok(()), _) => Duration::ZERO,
            (Err(why), Some(_)) => {
                complain(&format!("the warm part is gone: {why}"));
                PAUSES[0]
            }
            (Err(why), None) => {
                complain(&format!("the warm part does not come to stand: {why}"));
                (pause * 2).clamp(PAUSES[0], PAUSES[1])
            }
        };
    }
}

/// One part, from its start to its end; well if it had its one run.
async fn stand(container: &Container, spec: &WarmSpec, stood: impl FnOnce()) -> Result<(), String> {
    let system = |error: io::Error| error.to_string();
    let (line, theirs) = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
        .map_err(|error| system(error.into()))?;
    let stdin = in_memory("stdin", &[]).map_err(system)?;
    let theirs_in = stdin.try_clone().map_err(system)?;
    let (program, outputs) = prepare(&spec.argv, &spec.env, "/", theirs_in, Some(theirs)).map_err(system)?;
    let (job, reports) = spawn::start(&program).map_err(system)?;
    let death = container.reaper.watch(job);
    container.warm.loading.set(Some(job));
    drop(program);
    let line = std::os::unix::net::UnixStream::from(line);
    line.set_nonblocking(true).map_err(system)?;
    let line = Rc::new(Brief::new(UnixStream::from_std(line).map_err(system)?));
    let mut reports = Reports::of_job(reports);
    let mut words = Words::new(line.clone());
    let first = tokio::time::timeout(READY_WITHIN, async {
        let mut part = None;
        loop {
            tokio::select! {
                biased;
                report = reports.next() => match report {
                    Some(Report::Started(pid)) => part = Some(pid),
                    other => return Err(format!("it ended: {other:?}")),
                },
                word = words.next(), if part.is_some() => match (word?, part) {
                    (word @ (Word::Ready | Word::Stands { .. }), Some(part)) => return Ok((word, part)),
                    (word, _) => return Err(format!("out of turn it said {word:?}")),
                },
            }
        }
    });
    let first = first.await.unwrap_or_else(|_| Err(format!("not within {READY_WITHIN:?}")));
    container.warm.loading.set(None);
    let ended = match first {
        Ok((Word::Ready, part)) => {
            stood();
            container.warm.due.set(None);
            let single = Single { job, part, death: death.clone(), reports, line, stdin, outputs };
            container.warm.tell(Some(Standing::Single(single)));
            death.wait().await;
            let waits = container.warm.standing.borrow_mut().take();
            return if waits.is_none() { Ok(()) } else { Err("it died while it waited".to_owned()) };
        }
        Ok((word, part)) => {
            stood();
            outputs.into_iter().for_each(|output| drop(spawn_local(discard(output))));
            let forker = Forker::new(job, part, line);
            let why = fork(container, &forker, word, &mut words, &mut reports).await;
            forker.let_go();
            Err(why)
        }
        Err(why) => Err(why),
    };
    container.warm.tell(None);
    tree::kill(&tree::descendants(job));
    if tokio::time::timeout(PATIENCE, death.wait()).await.is_err() {
        tree::kill(&[job]); // stopped by the code
        death.wait().await;
        container.reaper.sweep(None, None).await;
    }
    ended
}

/// Serves runs by a part that forks; why it does no more.
async fn fork(
    container: &Container,
    forker: &Rc<Forker>,
    first: Word,
    words: &mut Words,
    reports: &mut Reports,
) -> String {
    let warm = &container.warm;
    let mut word = first;
    loop {
        if let Err(why) = forker.hear(word) {
            return why;
        }
        // The next child comes at once.
        warm.due.set(Some(Instant::now()));
        if warm.standing.borrow().is_none() {
            warm.tell(Some(Standing::Forks(forker.clone())));
        }
        warm.news.notify_waiters();
        word = tokio::select! {
            biased;
            word = words.next() => match word {
                Ok(word) => word,
                Err(why) => return why,
            },
            report = reports.next() => return format!("it ended: {report:?}"),
        };
    }
}

/// What a part that forks, or a child that waits, writes to where no run listens.
async fn discard(output: OwnedFd) {
    let Ok(mut pipe) = pipe::Receiver::from_owned_fd(output) else { return };
    let mut bytes = [0; 4096];
    while pipe.read(&mut bytes).await.is_ok_and(|n| n > 0) {}
}
