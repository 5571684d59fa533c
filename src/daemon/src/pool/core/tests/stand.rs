//! A core on a test stand: a clock that is turned by hand, a driver that does what it is told when it is
//! told, and the oracle looking on at every event.

use std::time::{Duration, Instant};

use super::super::{
    Action, Core, Event, MemberId, PoolSettings, RawPoolSettings, RunnerId, RunnerSnapshot, StartFailure,
    Uid, WaiterId,
};
use super::oracle::Oracle;

/// More ticks than any stretch of a test needs: beyond it the core is spinning.
const MANY_TICKS: usize = 20_000;

pub(super) struct Stand {
    core: Core,
    pub(super) oracle: Oracle,
    now: Instant,
    last_waiter: u64,
}

impl Stand {
    pub(super) fn new(settings: RawPoolSettings) -> Self {
        let oracle = Oracle::new(settings.clone());
        let core = Core::new(PoolSettings::try_from(settings).expect("the settings of a test hold"));
        Self { core, oracle, now: Instant::now(), last_waiter: 0 }
    }

    pub(super) fn send(&mut self, event: Event) -> Vec<Action> {
        let actions = self.core.on(event, self.now);
        self.oracle.judge(event, &actions, self.now, self.core.next_deadline(), &self.core.snapshot());
        actions
    }

    pub(super) fn add(&mut self, runner: u32) -> Vec<Action> {
        self.send(Event::RunnerAdded { runner: RunnerId(runner) })
    }

    /// A container of an earlier daemon.
    pub(super) fn adopt(&mut self, runner: u32, uid: u32, leased: bool) -> (MemberId, Vec<Action>) {
        let (member, runner, uid) = (self.oracle.next_member(), RunnerId(runner), Uid(uid));
        (member, self.send(Event::Adopted { member, runner, uid, leased }))
    }

    /// A request by a new waiter, who is given back.
    pub(super) fn request(&mut self, runner: u32) -> (WaiterId, Vec<Action>) {
        self.last_waiter += 1;
        let waiter = WaiterId(self.last_waiter);
        (waiter, self.send(Event::Request { waiter, runner: RunnerId(runner) }))
    }

    pub(super) fn started(&mut self, member: MemberId) -> Vec<Action> {
        self.send(Event::Started { member })
    }

    pub(super) fn start_failed(&mut self, member: MemberId) -> Vec<Action> {
        self.send(Event::StartFailed { member, failure: StartFailure::Start })
    }

    pub(super) fn released(&mut self, member: MemberId) -> Vec<Action> {
        self.send(Event::Released { member })
    }

    pub(super) fn destroyed(&mut self, member: MemberId) -> Vec<Action> {
        self.send(Event::Destroyed { member })
    }

    /// Lets every start and removal under way succeed, and what follows from them, until none is.
    pub(super) fn finish_all(&mut self) -> Vec<Action> {
        let mut all = Vec::new();
        for _ in 0..MANY_TICKS {
            if let Some(&member) = self.oracle.starting().first() {
                all.extend(self.started(member));
            } else if let Some(&member) = self.oracle.being_destroyed().first() {
                all.extend(self.destroyed(member));
            } else {
                return all;
            }
        }
        panic!("starts and removals follow each other without end");
    }

    /// Lets time pass, with a tick at each deadline.
    pub(super) fn wait(&mut self, time: Duration) -> Vec<Action> {
        self.wait_while(time, |_| Vec::new())
    }

    /// Lets time pass, with a tick at each deadline and a driver that is done at once with whatever it is
    /// told.
    pub(super) fn wait_and_finish(&mut self, time: Duration) -> Vec<Action> {
        self.wait_while(time, Self::finish_all)
    }

    fn wait_while(&mut self, time: Duration, between: impl Fn(&mut Self) -> Vec<Action>) -> Vec<Action> {
        let end = self.now + time;
        let mut all = between(self);
        for _ in 0..MANY_TICKS {
            let Some(due) = self.core.next_deadline().filter(|due| *due <= end) else {
                self.now = end;
                return all;
            };
            self.now = due;
            all.extend(self.send(Event::Tick));
            all.extend(between(self));
        }
        panic!("the core asks for ticks without end");
    }

    /// Lets time pass while the driver is too busy to tick.
    pub(super) fn oversleep(&mut self, time: Duration) {
        self.now += time;
    }

    pub(super) fn runner(&self, runner: u32) -> RunnerSnapshot {
        self.core.snapshot().runners.get(&RunnerId(runner)).copied().unwrap_or_default()
    }

    pub(super) fn members(&self) -> usize {
        self.core.snapshot().members()
    }

    pub(super) fn has_deadline(&self) -> bool {
        self.core.next_deadline().is_some()
    }
}

/// The members that these actions start.
pub(super) fn starts(actions: &[Action]) -> Vec<MemberId> {
    let start =
        |action: &Action| if let Action::Start { member, .. } = action { Some(*member) } else { None };
    actions.iter().filter_map(start).collect()
}

/// The runners that these actions start something for, in order.
pub(super) fn started_runners(actions: &[Action]) -> Vec<u32> {
    let start =
        |action: &Action| if let Action::Start { runner, .. } = action { Some(runner.0) } else { None };
    actions.iter().filter_map(start).collect()
}

/// The members that these actions destroy.
pub(super) fn destroys(actions: &[Action]) -> Vec<MemberId> {
    let destroy =
        |action: &Action| if let Action::Destroy { member } = action { Some(*member) } else { None };
    actions.iter().filter_map(destroy).collect()
}

/// Who is granted what by these actions.
pub(super) fn grants(actions: &[Action]) -> Vec<(WaiterId, MemberId)> {
    let grant = |action: &Action| {
        if let Action::Grant { waiter, member, .. } = action { Some((*waiter, *member)) } else { None }
    };
    actions.iter().filter_map(grant).collect()
}
