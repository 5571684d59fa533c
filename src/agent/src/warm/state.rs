//! What there is of a warm part now, and giving it a run.
//!
//! It must never give a run to a part that has one, nor hand a run back that a part may have begun.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::{Duration, Instant};

use paddock_proto::limits::DATA_DIR;
use paddock_proto::message::{RestoreFailure, RunSpec, WarmSpec};
use tokio::sync::Notify;

use super::forker::Forker;
use super::levels::{Level, level_spec};
use super::look::LevelWords;
use super::single::Single;
use crate::intercept;
use crate::network::{Network, RunNetwork};
use crate::process::Process;
use crate::program::CodeInput;
use crate::reap::Reaper;
use crate::runs::Runs;
use crate::tree;

/// A run waits for a part that is expected to stand within this time, and for twice as long at most.
const SOON: Duration = Duration::from_millis(150);

/// The same for a part that is being restored: it stands in milliseconds, or on an overloaded machine still
/// sooner than an interpreter that is started in its place.
const RESTORED_SOON: Duration = Duration::from_secs(1);

/// How long a part that must not meet code may hold it up while it loads; ours take half of that.
const HOLDS_UP: Duration = Duration::from_secs(3);

/// What there is of a container's warm part.
pub(crate) struct Warm {
    pub(super) reaper: Rc<Reaper>,
    pub(super) runs: Rc<Runs>,
    pub(super) network: Rc<Network>,
    spec: RefCell<Option<Rc<WarmSpec>>>,
    standing: RefCell<Option<StandingPart>>,
    /// When the next one is expected to stand, where that is soon.
    due: Cell<Option<Instant>>,
    /// Whether a part loads only while no code runs, which could write to its memory: after code may have
    /// ended a part, and always where programs have no Landlock domains.
    is_wary: Cell<bool>,
    /// The job of the part that loads.
    loading: Cell<Option<i32>>,
    /// Whether the part that loads or stands is restored from a snapshot.
    is_restored: Cell<bool>,
    /// Why no part is restored any more, if no code can be the cause.
    not_restored: RefCell<Option<(String, RestoreFailure)>>,
    /// Whether the daemon has asked for a part without a snapshot.
    is_import_asked_for: Cell<bool>,
    /// Its lighter parts, the lightest first.
    levels: RefCell<Vec<Level>>,
    /// The parts that runs came for, each once, in this order: the place of a level, or the number of levels
    /// for this part.
    wanted: RefCell<Vec<usize>>,
    /// Something changed here, or in one of the levels, which share this.
    news: Rc<Notify>,
}

/// A part that waits for a run.
pub(super) enum StandingPart {
    Single(Single),
    Forks(Rc<Forker>),
}

impl Warm {
    /// No part is asked for yet.
    pub(crate) fn new(reaper: Rc<Reaper>, runs: Rc<Runs>, network: Rc<Network>) -> Rc<Self> {
        Rc::new(Self {
            reaper,
            runs,
            network,
            spec: RefCell::default(),
            standing: RefCell::default(),
            due: Cell::new(None),
            is_wary: Cell::new(!intercept::separates()),
            loading: Cell::new(None),
            is_restored: Cell::new(false),
            not_restored: RefCell::default(),
            is_import_asked_for: Cell::new(false),
            levels: RefCell::default(),
            wanted: RefCell::default(),
            news: Rc::default(),
        })
    }

    /// A level of this one, with this specification.
    fn level(&self, spec: WarmSpec) -> Rc<Self> {
        let (reaper, runs, network) = (self.reaper.clone(), self.runs.clone(), self.network.clone());
        let mut level = Self::new(reaper, runs, network);
        if let Some(own) = Rc::get_mut(&mut level) {
            own.news = self.news.clone();
        }
        level.set_spec(spec);
        level
    }

    /// Gives a run to the lightest part that has what the code imports. If none of these can take it, a part
    /// with less imports the rest. An input that comes back was not run.
    pub(crate) async fn run(
        &self,
        spec: &RunSpec,
        run: &Rc<RunNetwork>,
        mut input: CodeInput,
    ) -> Result<Process, CodeInput> {
        let (fit, others): (Vec<_>, Vec<_>) = self
            .levels
            .borrow()
            .iter()
            .enumerate()
            .map(|(at, level)| (at, level.part.clone(), level.words.suffice(&input.code)))
            .partition(|(.., suffices)| *suffices);
        for (at, level, _) in fit {
            self.want(at);
            match level.run_in_part(spec, run, input).await {
                Err(back) => input = back,
                done => return done,
            }
        }
        self.want(self.levels.borrow().len());
        match self.run_in_part(spec, run, input).await {
            Err(back) => input = back,
            done => return done,
        }
        for (at, level, _) in others.into_iter().rev() {
            self.want(at);
            match level.run_in_part(spec, run, input).await {
                Err(back) => input = back,
                done => return done,
            }
        }
        Err(input)
    }

    /// A run has come for this part: the place of a level, or the number of levels for the main part. If the
    /// part is still to be restored, it is the next one.
    pub(super) fn want(&self, at: usize) {
        let mut wanted = self.wanted.borrow_mut();
        if !wanted.contains(&at) {
            wanted.push(at);
        }
        drop(wanted);
        self.news.notify_waiters();
    }

    /// The parts that runs came for, each once, in this order.
    pub(super) fn wanted(&self) -> Vec<usize> {
        self.wanted.borrow().clone()
    }

    /// Gives a run to the part that stands, or will stand soon. An input that comes back was not run.
    async fn run_in_part(
        &self,
        spec: &RunSpec,
        run: &Rc<RunNetwork>,
        input: CodeInput,
    ) -> Result<Process, CodeInput> {
        let warm = self.spec.borrow().clone();
        let Some(warm) = warm.filter(|_| spec.cwd == DATA_DIR && !self.is_busy()) else { return Err(input) };
        let Some(standing) = self.take().await else { return Err(input) };
        let env = environment(spec, &warm);
        match standing {
            StandingPart::Single(single) => {
                let (job, death) = (single.job, single.death.clone());
                let (reports, outputs) = single.give(&env, run, input).await?;
                let (dead, outputs) = (Some(death), Some(outputs));
                Ok(Process { job, reports, dead, warm: true, forker: None, outputs })
            }
            StandingPart::Forks(forker) => {
                let (reports, outputs) = forker.give(&env, run, input).await?;
                let (job, outputs) = (forker.job(), Some(outputs));
                Ok(Process { job, reports, dead: None, warm: true, forker: Some(forker), outputs })
            }
        }
    }

    /// The part that stands now, or as soon as it is due.
    async fn take(&self) -> Option<StandingPart> {
        let begun = Instant::now();
        loop {
            if let Some(standing) = self.take_now() {
                return Some(standing);
            }
            // One that stands forks its next child as fast as one that has imported.
            let is_being_restored = self.is_restored.get() && self.standing.borrow().is_none();
            let soon = if is_being_restored { RESTORED_SOON } else { SOON };
            let due = self.due.get().filter(|due| due.saturating_duration_since(begun) < soon)?;
            let late = due.max(begun) + soon;
            tokio::time::timeout_at(late.into(), self.news.notified()).await.ok()?;
        }
    }

    fn take_now(&self) -> Option<StandingPart> {
        let mut standing = self.standing.borrow_mut();
        match &*standing {
            Some(StandingPart::Forks(forker)) => {
                forker.is_ready().then(|| StandingPart::Forks(forker.clone()))
            }
            Some(StandingPart::Single(_)) => standing.take(),
            None => None,
        }
    }

    /// Whether a part that forks has a run.
    fn is_busy(&self) -> bool {
        matches!(&*self.standing.borrow(), Some(StandingPart::Forks(forker)) if forker.is_busy())
    }

    /// Waits until no part is loading that code could write to, and ends a part that takes too long. Call
    /// this before code is started.
    pub(crate) async fn make_way(&self) {
        let late = Instant::now() + HOLDS_UP;
        for level in self.levels() {
            level.make_way_of_part(late).await;
        }
        self.make_way_of_part(late).await;
    }

    async fn make_way_of_part(&self, late: Instant) {
        while let Some(job) = self.loading.get().filter(|_| self.is_wary.get()) {
            if tokio::time::timeout_at(late.into(), self.news.notified()).await.is_err() {
                let mut all = tree::descendants(job);
                all.push(job);
                tree::kill(&all);
                return;
            }
        }
    }

    /// Keeps the specification that is asked for first; that one, if it is this.
    pub(super) fn set_spec(&self, spec: WarmSpec) -> Option<Rc<WarmSpec>> {
        if spec.restore.is_empty() {
            self.is_import_asked_for.set(true);
            self.news.notify_waiters();
        }
        let mut known = self.spec.borrow_mut();
        if known.is_some() {
            return None;
        }
        if !spec.restore.is_empty() {
            // A run that comes together with this request waits for the part.
            self.due.set(Some(Instant::now()));
            self.is_restored.set(true);
        }
        let level =
            |(at, level)| Level { part: self.level(level_spec(&spec, at)), words: LevelWords::of(level) };
        // A run that came before counted no levels.
        self.wanted.borrow_mut().clear();
        self.levels.replace(spec.levels.iter().enumerate().map(level).collect());
        Some(known.insert(Rc::new(spec)).clone())
    }

    /// The levels, the lightest first.
    pub(super) fn levels(&self) -> Vec<Rc<Self>> {
        self.levels.borrow().iter().map(|level| level.part.clone()).collect()
    }

    /// What was asked for.
    pub(super) fn spec(&self) -> Option<Rc<WarmSpec>> {
        self.spec.borrow().clone()
    }

    /// Whether the part that stands was restored; `None` while none stands.
    pub(super) fn stands(&self) -> Option<bool> {
        self.standing.borrow().as_ref().map(|_| self.is_restored.get())
    }

    /// Resolves when something here changed after this call.
    pub(super) fn news(&self) -> impl Future<Output = ()> {
        self.news.notified()
    }

    /// The next part is restored, or it imports.
    pub(super) fn set_restored(&self, is_restored: bool) {
        self.is_restored.set(is_restored);
    }

    /// No part is restored any more, for this reason.
    pub(super) fn restores_no_more(&self, why: String, failure: RestoreFailure) {
        self.is_restored.set(false);
        self.not_restored.replace(Some((why, failure)));
        self.news.notify_waiters();
    }

    /// Why this part, or one of its levels, is restored no more.
    pub(super) fn not_restored(&self) -> Option<(String, RestoreFailure)> {
        let own = self.not_restored.borrow().clone();
        own.or_else(|| self.levels.borrow().iter().find_map(|level| level.part.not_restored()))
    }

    /// Resolves once the daemon has asked for a part without a snapshot.
    pub(super) async fn import_is_asked_for(&self) {
        while !self.is_import_asked_for.get() {
            self.news().await;
        }
    }

    /// A part stands now, or none does.
    pub(super) fn set_standing(&self, standing: Option<StandingPart>) {
        self.standing.replace(standing);
        self.news.notify_waiters();
    }

    /// A part that forks said something: it stands, if it did not before, and its next child comes at once.
    pub(super) fn heard(&self, forker: &Rc<Forker>) {
        self.due.set(Some(Instant::now()));
        let mut standing = self.standing.borrow_mut();
        if standing.is_none() {
            *standing = Some(StandingPart::Forks(forker.clone()));
        }
        drop(standing);
        self.news.notify_waiters();
    }

    /// Takes back a part that waited for one run; `None` if it has its run.
    pub(super) fn take_back(&self) -> Option<StandingPart> {
        self.standing.borrow_mut().take()
    }

    /// When the next part is expected to stand, if that is known.
    pub(super) fn set_due(&self, due: Option<Instant>) {
        self.due.set(due);
    }

    /// The next part is not to be waited for: those who do look again.
    pub(super) fn is_not_due(&self) {
        self.due.set(None);
        self.news.notify_waiters();
    }

    /// The job of the part that loads now. Who waits for it looks again at the next news.
    pub(super) fn set_loading(&self, job: Option<i32>) {
        self.loading.set(job);
    }

    #[cfg(test)]
    pub(super) fn loading(&self) -> Option<i32> {
        self.loading.get()
    }

    /// Code may have ended a part.
    pub(super) fn become_wary(&self) {
        self.is_wary.set(true);
    }

    pub(super) fn is_wary(&self) -> bool {
        self.is_wary.get()
    }
}

/// The variables of a run that the part does not have already, each ended by a NUL, and a NUL behind them
/// all.
fn environment(spec: &RunSpec, warm: &WarmSpec) -> Vec<u8> {
    let mut env = Vec::new();
    for variable in spec.env.iter().filter(|variable| !warm.env.contains(variable)) {
        env.extend_from_slice(variable.as_bytes());
        env.push(0);
    }
    env.push(0);
    env
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use tokio::task::LocalSet;

    use super::*;
    use crate::foreign::Brief;
    use crate::link::Link;
    use crate::network::PartRun;

    fn restored() -> (Rc<Warm>, WarmSpec) {
        let warm = Warm::new(Rc::<Reaper>::default(), Rc::<Runs>::default(), Network::new(Link::new()));
        let (argv, restore) = (vec!["/import".to_owned()], vec!["/restore".to_owned()]);
        let spec = WarmSpec { argv, env: Vec::new(), restore, levels: Vec::new() };
        warm.set_spec(spec.clone()).expect("it is the first");
        (warm, spec)
    }

    #[test]
    fn a_run_waits_for_a_part_that_is_restored_and_not_so_long_for_one_that_stands_and_does_not_fork() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        LocalSet::new().block_on(&runtime, async {
            let (warm, _) = restored();
            let begun = Instant::now();
            assert!(warm.take().await.is_none(), "nothing stands");
            assert!(begun.elapsed() >= RESTORED_SOON, "{:?}", begun.elapsed());

            let (ours, _theirs) = UnixStream::pair().expect("a pair");
            ours.set_nonblocking(true).expect("it does not block");
            let line = Rc::new(Brief::new(tokio::net::UnixStream::from_std(ours).expect("a line")));
            // It has said nothing of a child: no process waits.
            warm.heard(&Forker::new(0, 0, line, Rc::<PartRun>::default()));
            assert_eq!(warm.stands(), Some(true));
            let begun = Instant::now();
            assert!(warm.take().await.is_none(), "no child waits");
            assert!((SOON..RESTORED_SOON).contains(&begun.elapsed()), "{:?}", begun.elapsed());
        });
    }
}
