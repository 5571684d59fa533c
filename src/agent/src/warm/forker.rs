//! A warm part that forks a child for each run. The child waits and takes a run, and the part reports when
//! the child has ended.
//!
//! The part's children are the waiting child, the children of runs, and the holders of their memory. Code can
//! make more children of the part (`CLONE_PARENT`), and the part may fork its next child at any time. So an
//! unknown child that exists for longer than [`GRACE`] counts as a child that code has made. PID 1 must never
//! take a process of a run for the waiting child.

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

use super::holder::MemoryHolder;
use super::line::{PATIENCE, PartLine, PartMessage};
use crate::network::{PartRun, Place, RunNetwork};
use crate::program::{CodeInput, in_memory};
use crate::report::{Report, Reports};
use crate::sys;
use crate::tree::{self, ProcessIdentity, Tree};

/// A child that waits takes its run sooner than this, unless the machine is overloaded.
const AT_ONCE: Duration = Duration::from_millis(20);

/// The memory of a run is freed this long after its end: its answer, and the part's next child, go first.
const FREED_AFTER: Duration = Duration::from_millis(3);

/// A child that the part is just forking says that it waits sooner than this.
const GRACE: Duration = Duration::from_millis(150);

/// A part that forks a process for each run.
pub(crate) struct Forker {
    job: i32,
    part: i32,
    line: PartLine,
    /// The child that waits, and the holder of its memory.
    waiting: Cell<Option<(ProcessIdentity, Option<MemoryHolder>)>>,
    /// The holder of the memory of the current run, or of the last one.
    holder: Cell<Option<MemoryHolder>>,
    /// Holders of earlier runs, which stood still when those were over and were killed.
    killed: RefCell<Vec<MemoryHolder>>,
    /// The run that it has.
    run: RefCell<Option<ForkedRun>>,
    /// Whether a child said that it took the current run, or the last one.
    taken: Cell<bool>,
    /// Whose the `connect`s of its processes are.
    owner: Rc<PartRun>,
    /// The part said something, or is gone.
    news: Notify,
}

/// A run that was given to a forked process.
struct ForkedRun {
    /// The child that waited when the run was given; from `took` on, the child that said so.
    pid: i32,
    reports: mpsc::UnboundedSender<Report>,
}

impl Forker {
    /// A part that stands under a job; its first message is heard next.
    pub(super) fn new(job: i32, part: i32, line: PartLine, owner: Rc<PartRun>) -> Rc<Self> {
        let (waiting, holder, taken) = (Cell::new(None), Cell::new(None), Cell::new(false));
        let (killed, run, news) = (RefCell::default(), RefCell::default(), Notify::new());
        Rc::new(Self { job, part, line, waiting, holder, killed, run, taken, owner, news })
    }

    /// The job that it runs under.
    pub(super) fn job(&self) -> i32 {
        self.job
    }

    /// Whether it has a run.
    pub(super) fn is_busy(&self) -> bool {
        self.run.borrow().is_some()
    }

    /// Whether a child waits.
    pub(super) fn is_ready(&self) -> bool {
        self.waiting.get().is_some() && !self.is_busy()
    }

    /// It is gone: no report of its run comes any more, and all waiters look again.
    pub(super) fn let_go(&self) {
        self.run.replace(None);
        self.owner.take_back();
        self.news.notify_waiters();
    }

    /// The processes of the run that it has, or had until `ended`.
    pub(crate) fn living(&self, tree: &Tree, ended: Option<Instant>) -> Vec<i32> {
        // Processes of a run that lose their parent come to the job.
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

    /// Whether the kernel says that nothing is left of a run. It costs less than a [`Tree`].
    pub(crate) fn is_alone(&self) -> bool {
        // The part is the oldest child of its job and is never reaped while it serves. A child of its own
        // that is reaped meanwhile may hide the next one in the list, but not in two looks.
        let children = || tree::children(self.part);
        !self.is_busy()
            && tree::children(self.job).is_some_and(|children| children == [self.part])
            && children()
                .is_some_and(|before| Some(&before) == children().as_ref() && self.are_its_own(&before))
    }

    /// Whether these children of the part are its own: the waiting child, holders, and dead processes. The
    /// holder of the last run counts while it is stopped, since every process that could resume it is dead;
    /// earlier holders were killed.
    pub(crate) fn are_its_own(&self, children: &[i32]) -> bool {
        let mut killed = self.killed.borrow_mut();
        killed.retain(|holder| children.iter().any(|child| holder.is(*child)));
        children.iter().all(|child| {
            self.waits(*child)
                || killed.iter().any(|holder| holder.is(*child))
                || self.holder.get().is_some_and(|holder| holder.is(*child) && holder.is_still())
                || tree::is_dead(*child)
        })
    }

    /// Kills the holder of the last run before the run's end is reported: if `is_short` says that the next
    /// run needs the memory, or if the holder has more than memory.
    pub(crate) fn free_now(&self, is_short: impl FnOnce() -> bool) {
        let Some(holder) = self.holder.get() else { return };
        if is_short() || !holder.has_memory_only() {
            self.holder.set(None);
            holder.kill();
        }
    }

    /// Kills the holder of the last run some time after the run's end.
    pub(crate) fn free_soon(self: &Rc<Self>) {
        let Some(holder) = self.holder.get() else { return };
        let this = self.clone();
        spawn_local(async move {
            tokio::time::sleep(FREED_AFTER).await;
            if this.holder.get() == Some(holder) {
                this.free();
            }
        });
    }

    fn free(&self) {
        if let Some(holder) = self.holder.take() {
            holder.kill();
            self.killed.borrow_mut().push(holder);
        }
    }

    /// Whether it is the child that waits, or the holder of its memory.
    fn waits(&self, child: i32) -> bool {
        let Some((waiting, holder)) = self.waiting.get() else { return false };
        waiting.is(child) || holder.is_some_and(|holder| holder.is(child))
    }

    /// The process that forks.
    pub(crate) fn part(&self) -> i32 {
        self.part
    }

    /// Resolves when the part says something, or is gone.
    pub(crate) async fn news(&self) {
        self.news.notified().await;
    }

    /// Gives the run to the child that waits: the reports of the program, and the reading ends of its
    /// outputs. An input that comes back was not run.
    pub(super) async fn give(
        self: &Rc<Self>,
        env: &[u8],
        run: &Rc<RunNetwork>,
        input: CodeInput,
    ) -> Result<(Reports, [OwnedFd; 2]), CodeInput> {
        let Ok(given) = self.send(env, run, &input) else { return Err(input) };
        let taken = async {
            while !self.taken.get() && self.is_busy() {
                self.news.notified().await;
            }
        };
        tokio::pin!(taken);
        let mut late = tokio::time::timeout(AT_ONCE, &mut taken).await.is_err();
        if late {
            sys::continue_all(); // earlier code may have stopped it
            late = tokio::time::timeout(PATIENCE, taken).await.is_err();
        }
        if late {
            tree::kill(&tree::descendants(self.job));
            while self.is_busy() {
                self.news.notified().await;
            }
        }
        if self.taken.get() { Ok(given) } else { Err(input) }
    }

    fn send(
        &self,
        env: &[u8],
        network: &Rc<RunNetwork>,
        input: &CodeInput,
    ) -> io::Result<(Reports, [OwnedFd; 2])> {
        let (waiting, holder) = self.waiting.get().ok_or(io::ErrorKind::NotFound)?;
        let run = in_memory("run", &[env, &input.code])?;
        let nothing = match input.stdin {
            Some(_) => None,
            None => Some(OwnedFd::from(std::fs::File::open("/dev/null")?)),
        };
        let stdin = input.stdin.as_ref().or(nothing.as_ref()).ok_or(io::ErrorKind::NotFound)?;
        let (out, stdout) = pipe_with(PipeFlags::CLOEXEC)?;
        let (err, stderr) = pipe_with(PipeFlags::CLOEXEC)?;
        let (sender, reports) = mpsc::unbounded_channel();
        // Only a run with a network is worth the look.
        let alone = network.is_open() && self.is_alone();
        send(&self.line, [run.as_fd(), stdin.as_fd(), stdout.as_fd(), stderr.as_fd()])?;
        // Only now: a child that was not given the run waits on.
        self.waiting.set(None);
        self.free();
        self.holder.set(holder);
        self.taken.set(false);
        let place = Place { job: self.job, part: self.part, child: waiting.pid(), alone };
        self.owner.give(network, Some(place));
        self.run.replace(Some(ForkedRun { pid: waiting.pid(), reports: sender }));
        Ok((Reports::of_part(reports), [out, err]))
    }

    /// Takes in what the part says.
    ///
    /// # Errors
    /// What it said, if it cannot have said that now.
    pub(super) fn hear(&self, message: PartMessage) -> Result<(), String> {
        let (mut run, taken) = (self.run.borrow_mut(), self.taken.get());
        match (message, run.as_mut()) {
            (PartMessage::Stands { pid, holder }, _) => {
                let holder = holder.and_then(|holder| MemoryHolder::of(self.part, holder));
                self.waiting.set(ProcessIdentity::look(pid).map(|child| (child, holder)));
            }
            (PartMessage::Took(pid), Some(run)) if !taken => {
                run.pid = pid;
                self.owner.taken_by(pid);
                self.taken.set(true);
                let _ = run.reports.send(Report::Started(pid));
            }
            (PartMessage::Ended { pid, code, cpu_us, max_rss_kib }, Some(one)) if taken && one.pid == pid => {
                // As wait(2) has it: a signal in the lower byte, a code in the next.
                let status = if code < 0 { -code } else { code << 8 };
                let _ = one.reports.send(Report::Ended { status, cpu_us, max_rss_kib, leftovers: 0 });
                *run = None;
                self.owner.take_back();
            }
            // A child that dies before it took the run that it was given is an error (below): the next child
            // would take that run, and nobody would watch it.
            (PartMessage::Ended { pid, .. }, given)
                if given.as_ref().is_none_or(|run| taken || run.pid != pid) =>
            {
                if let Some((_, holder)) = self.waiting.get().filter(|(waiting, _)| waiting.pid() == pid) {
                    self.waiting.set(None);
                    holder.into_iter().for_each(MemoryHolder::kill);
                }
            }
            (message, _) => return Err(format!("out of turn it said {message:?}")),
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
