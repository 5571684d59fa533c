//! A process that forks one for each run: a child of it waits, takes one, and is told of when it ended.
//!
//! It must never take a process of a run for one that waits.

use std::cell::{Cell, RefCell};
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::time::Duration;

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use rustix::pipe::{PipeFlags, pipe_with};
use tokio::net::UnixStream;
use tokio::sync::{Notify, mpsc};

use super::PATIENCE;
use super::words::Word;
use crate::process::{Input, Process, in_memory};
use crate::pump::Reports;
use crate::spawn::{self, Report};
use crate::tree::{self, Tree};

/// A child that waits takes its run sooner than this, on any machine that is not at its end.
const AT_ONCE: Duration = Duration::from_millis(20);

/// A process that forks one for each run.
pub(crate) struct Forker {
    job: i32,
    part: i32,
    line: Rc<UnixStream>,
    /// The child that waits.
    waiting: Cell<Option<i32>>,
    /// The run that it has.
    run: RefCell<Option<Forked>>,
    /// Whether a child said that it has the run, this one or the last.
    taken: Cell<bool>,
    /// That changed, or there is no run any more.
    news: Notify,
}

/// A run that has a forked process.
struct Forked {
    /// The child that waited when it was given, until one says that it has it.
    pid: i32,
    told: mpsc::UnboundedSender<Report>,
}

impl Forker {
    /// A part that stands under a job, and says so next.
    pub(super) fn new(job: i32, part: i32, line: Rc<UnixStream>) -> Rc<Self> {
        let (waiting, run) = (Cell::new(None), RefCell::new(None));
        Rc::new(Self { job, part, line, waiting, run, taken: Cell::new(false), news: Notify::new() })
    }

    /// Whether a run has it.
    pub(super) fn is_busy(&self) -> bool {
        self.run.borrow().is_some()
    }

    /// Whether a child waits.
    pub(super) fn is_ready(&self) -> bool {
        self.waiting.get().is_some() && !self.is_busy()
    }

    /// It is gone: whoever waits for its run is told that this is over.
    pub(super) fn let_go(&self) {
        self.run.replace(None);
        self.news.notify_waiters();
    }

    /// The processes of the run that it has, or had until now.
    pub(crate) fn living(&self, tree: &Tree) -> Vec<i32> {
        // A child of the part itself is one that waits, or is just being made: those of a run that lose their parent
        // come to the job.
        let run = self.run.borrow().as_ref().map(|run| run.pid);
        let mut living = tree.below(self.job, |pid| pid == self.part);
        for child in tree.children(self.part).iter().filter(|child| Some(**child) == run) {
            living.push(*child);
            living.extend(tree.below(*child, |_| false));
        }
        living
    }

    /// Whether its job is known to have no process but the part, whose children only wait: nothing is left of a run. The
    /// part is the oldest child and is never reaped while it serves.
    pub(crate) fn is_alone(&self) -> bool {
        !self.is_busy() && tree::children(self.job).is_some_and(|children| children == [self.part])
    }

    /// Gives the run to the child that waits. What comes back was not run.
    pub(super) async fn give(self: &Rc<Self>, env: &[u8], input: Input) -> Result<Process, Input> {
        let Ok(process) = self.send(env, &input) else { return Err(input) };
        let taken = async {
            while !self.taken.get() && self.is_busy() {
                self.news.notified().await;
            }
        };
        tokio::pin!(taken);
        let mut late = tokio::time::timeout(AT_ONCE, &mut taken).await.is_err();
        if late {
            spawn::wake_all(); // the code before may have stopped it
            late = tokio::time::timeout(PATIENCE, taken).await.is_err();
        }
        if late {
            tree::kill(&tree::descendants(self.job));
            while self.is_busy() {
                self.news.notified().await;
            }
        }
        if self.taken.get() { Ok(process) } else { Err(input) }
    }

    fn send(self: &Rc<Self>, env: &[u8], input: &Input) -> io::Result<Process> {
        let waiting = self.waiting.get().ok_or(io::ErrorKind::NotFound)?;
        let run = in_memory("run", &[env, &input.code])?;
        let nothing = match input.stdin {
            Some(_) => None,
            None => Some(OwnedFd::from(std::fs::File::open("/dev/null")?)),
        };
        let stdin = input.stdin.as_ref().or(nothing.as_ref()).ok_or(io::ErrorKind::NotFound)?;
        let (out, stdout) = pipe_with(PipeFlags::CLOEXEC)?;
        let (err, stderr) = pipe_with(PipeFlags::CLOEXEC)?;
        let (told, reports) = mpsc::unbounded_channel();
        send(&self.line, [run.as_fd(), stdin.as_fd(), stdout.as_fd(), stderr.as_fd()])?;
        // Only now: a child that was not given the run waits on.
        self.waiting.set(None);
        self.taken.set(false);
        self.run.replace(Some(Forked { pid: waiting, told }));
        Ok(Process {
            job: self.job,
            reports: Reports::of_part(reports),
            dead: None,
            warm: true,
            forker: Some(self.clone()),
            outputs: Some([out, err]),
        })
    }

    /// Takes in what the part says.
    pub(super) fn hear(&self, word: Word) -> Result<(), String> {
        let (mut run, taken) = (self.run.borrow_mut(), self.taken.get());
        match (word, run.as_mut()) {
            (Word::Stands(pid), _) => self.waiting.set(Some(pid)),
            (Word::Took(pid), Some(run)) if !taken => {
                run.pid = pid;
                self.taken.set(true);
                self.news.notify_waiters();
                let _ = run.told.send(Report::Started(pid));
            }
            (Word::Ended { pid, code, cpu_us, max_rss_kib }, Some(one)) if taken && one.pid == pid => {
                // As wait(2) has it: a signal in the lower byte, a code in the next.
                let status = if code < 0 { -code } else { code << 8 };
                let _ = one.told.send(Report::Ended { status, cpu_us, max_rss_kib, leftovers: 0 });
                *run = None;
            }
            // One that was given a run and died before it took it: the next would run what nobody watches.
            (Word::Ended { pid, .. }, given) if given.as_ref().is_none_or(|run| taken || run.pid != pid) => {
                if self.waiting.get() == Some(pid) {
                    self.waiting.set(None);
                }
            }
            (word, _) => return Err(format!("out of turn it said {word:?}")),
        }
        Ok(())
    }
}

/// One byte with descriptors.
fn send(line: &UnixStream, descriptors: [BorrowedFd<'_>; 4]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    control.push(SendAncillaryMessage::ScmRights(&descriptors));
    sendmsg(line, &[IoSlice::new(b"r")], &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}
