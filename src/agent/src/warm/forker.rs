//! A process that forks one for each run: a child of it waits, takes one, and is told of when it ended.
//!
//! The part's children are the one that waits, who has its memory, and the run's. Code can make others (`CLONE_PARENT`),
//! and the part makes the next one whenever it likes: what is not known after [`GRACE`] is the code's. It must never take a
//! process of a run for one that waits.

use std::cell::{Cell, RefCell};
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::time::{Duration, Instant};

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use rustix::pipe::{PipeFlags, pipe_with};
use tokio::net::UnixStream;
use tokio::sync::{Notify, mpsc};
use tokio::task::spawn_local;

use super::holder::Holder;
use super::words::Word;
use super::{Line, PATIENCE};
use crate::process::{Input, Process, in_memory};
use crate::pump::Reports;
use crate::spawn::{self, Report};
use crate::tree::{self, Known, Tree};

/// A child that waits takes its run sooner than this, on any machine that is not at its end.
const AT_ONCE: Duration = Duration::from_millis(20);

/// When the kernel begins to take down the memory of a run that has ended: its answer, and the part's next child, go first.
const FREED_AFTER: Duration = Duration::from_millis(3);

/// After a run, a child that is just being made stands sooner than this.
const GRACE: Duration = Duration::from_millis(150);

/// A process that forks one for each run.
pub(crate) struct Forker {
    job: i32,
    part: i32,
    line: Line,
    /// The child that waits, and who has its memory.
    waiting: Cell<Option<(Known, Option<Holder>)>>,
    /// Who has the memory of the run that it has, or had last.
    held: Cell<Option<Holder>>,
    /// Who had that of a run before, stood still when it was over, and was killed.
    freed: RefCell<Vec<Holder>>,
    /// The run that it has.
    run: RefCell<Option<Forked>>,
    /// Whether a child said that it has the run, this one or the last.
    taken: Cell<bool>,
    /// The part said something, or is gone.
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
    pub(super) fn new(job: i32, part: i32, line: Line) -> Rc<Self> {
        let (waiting, held, taken) = (Cell::new(None), Cell::new(None), Cell::new(false));
        let (freed, run, news) = (RefCell::default(), RefCell::default(), Notify::new());
        Rc::new(Self { job, part, line, waiting, held, freed, run, taken, news })
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

    /// The processes of the run that it has, or had until `ended`.
    pub(crate) fn living(&self, tree: &Tree, ended: Option<Instant>) -> Vec<i32> {
        // Those of a run that lose their parent come to the job.
        let run = self.run.borrow().as_ref().map(|run| run.pid);
        let late = ended.is_some_and(|ended| ended.elapsed() > GRACE);
        let mut living = tree.below(self.job, |pid| pid == self.part);
        for child in tree.children(self.part) {
            if Some(*child) == run || (late && !self.waits(*child) && !tree::is_dead(*child)) {
                living.push(*child);
                living.extend(tree.below(*child, |_| false));
            }
        }
        living
    }

    /// Whether the kernel says, at less cost than a [`Tree`], that nothing is left of a run.
    pub(crate) fn is_alone(&self) -> bool {
        // The part is the oldest child of its job and is never reaped while it serves. Of its own children one that is reaped
        // meanwhile may hide the one behind it, but not twice.
        let children = || tree::children(self.part);
        !self.is_busy()
            && tree::children(self.job).is_some_and(|children| children == [self.part])
            && children()
                .is_some_and(|before| Some(&before) == children().as_ref() && self.are_its_own(&before))
    }

    /// Whether children of the part are the one that waits, who has its memory, who has that of runs, and the dead. Who has
    /// the memory of one stands still, as whoever could wake it is dead, or was killed when it did.
    pub(crate) fn are_its_own(&self, children: &[i32]) -> bool {
        let mut freed = self.freed.borrow_mut();
        let now = |holder: &Holder| children.iter().any(|child| holder.is(*child));
        freed.retain(now);
        children.iter().all(|child| {
            self.waits(*child)
                || freed.iter().any(|holder| holder.is(*child))
                || self.held.get().is_some_and(|holder| holder.is(*child) && holder.is_still())
                || tree::is_dead(*child)
        })
    }

    /// Ends who has the memory of the last run, which is not over before it is gone; where there is no hurry only if it has
    /// more than memory.
    pub(crate) fn free_now(&self, in_any_case: bool) {
        if let Some(held) = self.held.get().filter(|held| in_any_case || !held.has_memory_only()) {
            self.held.set(None);
            held.kill();
        }
    }

    /// Ends who has the memory of the last run, which is over, some time after it.
    pub(crate) fn free_soon(self: &Rc<Self>) {
        let Some(held) = self.held.get() else { return };
        let this = self.clone();
        spawn_local(async move {
            tokio::time::sleep(FREED_AFTER).await;
            if this.held.get() == Some(held) {
                this.free();
            }
        });
    }

    fn free(&self) {
        if let Some(held) = self.held.take() {
            held.kill();
            self.freed.borrow_mut().push(held);
        }
    }

    /// Whether it is the child that waits, or who has its memory.
    fn waits(&self, child: i32) -> bool {
        let Some((waiting, holder)) = self.waiting.get() else { return false };
        waiting.is(child) || holder.is_some_and(|holder| holder.is(child))
    }

    /// The process that forks.
    pub(crate) fn part(&self) -> i32 {
        self.part
    }

    /// Until the part says something.
    pub(crate) async fn news(&self) {
        self.news.notified().await;
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
        let (waiting, holder) = self.waiting.get().ok_or(io::ErrorKind::NotFound)?;
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
        self.free();
        self.held.set(holder);
        self.taken.set(false);
        self.run.replace(Some(Forked { pid: waiting.pid(), told }));
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
            (Word::Stands { pid, holder }, _) => {
                let waiting = Known::look(pid).map(|known| (known, holder));
                self.waiting.set(
                    waiting.map(|(known, holder)| {
                        (known, holder.and_then(|holder| Holder::of(self.part, holder)))
                    }),
                );
            }
            (Word::Took(pid), Some(run)) if !taken => {
                run.pid = pid;
                self.taken.set(true);
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
                if let Some((_, holder)) = self.waiting.get().filter(|(waiting, _)| waiting.pid() == pid) {
                    self.waiting.set(None);
                    holder.into_iter().for_each(Holder::kill);
                }
            }
            (word, _) => return Err(format!("out of turn it said {word:?}")),
        }
        self.news.notify_waiters();
        Ok(())
    }
}

/// One byte with descriptors.
fn send(line: &UnixStream, descriptors: [BorrowedFd<'_>; 4]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    control.push(SendAncillaryMessage::ScmRights(&descriptors));
    sendmsg(line, &[IoSlice::new(b"r")], &mut control, SendFlags::NOSIGNAL | SendFlags::DONTWAIT)?;
    Ok(())
}
