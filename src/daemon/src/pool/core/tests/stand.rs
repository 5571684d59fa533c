//! A test stand for the core: a clock that the test sets, a driver that acts when the test says so, and the
//! oracle, which judges every event.

use std::time::{Duration, Instant};

use super::super::{
    MemberId, PoolAction, PoolCore, PoolEvent, PoolSettings, RawPoolSettings, RunnerId, RunnerSnapshot,
    StartFailure, Uid, WaiterId,
};
use super::oracle::Oracle;
use crate::tenants::TenantShare;

/// More ticks than any wait of a test needs: beyond it the core is spinning.
const MANY_TICKS: usize = 20_000;

pub(super) struct Stand {
    core: PoolCore,
    pub(super) oracle: Oracle,
    /// The idle containers of a runner that a test adds without a number of its own.
    idle: u32,
    now: Instant,
    last_waiter: u64,
}

impl Stand {
    pub(super) fn new(settings: RawPoolSettings) -> Self {
        let (oracle, idle) = (Oracle::new(settings.clone()), settings.idle_per_runner);
        let core = PoolCore::new(PoolSettings::try_from(settings).expect("the settings of a test hold"));
        Self { core, oracle, idle, now: Instant::now(), last_waiter: 0 }
    }

    pub(super) fn send(&mut self, event: PoolEvent) -> Vec<PoolAction> {
        let actions = self.core.on(event, self.now);
        self.oracle.judge(event, &actions, self.now, self.core.next_deadline(), &self.core.snapshot());
        actions
    }

    /// A runner with the idle containers of the settings.
    pub(super) fn add(&mut self, runner: u32) -> Vec<PoolAction> {
        self.add_with(runner, self.idle)
    }

    pub(super) fn add_with(&mut self, runner: u32, idle: u32) -> Vec<PoolAction> {
        self.send(PoolEvent::RunnerAdded { runner: RunnerId(runner), idle })
    }

    /// A container of an earlier daemon.
    pub(super) fn adopt(&mut self, runner: u32, uid: u32, leased: bool) -> (MemberId, Vec<PoolAction>) {
        let (member, runner, uid) = (self.oracle.next_member(), RunnerId(runner), Uid(uid));
        (member, self.send(PoolEvent::Adopted { member, runner, uid, leased }))
    }

    /// A workspace that is kept, as a new runner with this number.
    pub(super) fn keep(&mut self, runner: u32, uid: u32) -> Vec<PoolAction> {
        self.send(PoolEvent::WorkspaceKept { runner: RunnerId(runner), uid: Uid(uid) })
    }

    /// A request by a new waiter, which is returned.
    pub(super) fn request(&mut self, runner: u32) -> (WaiterId, Vec<PoolAction>) {
        self.last_waiter += 1;
        let waiter = WaiterId(self.last_waiter);
        (
            waiter,
            self.send(PoolEvent::Request {
                waiter,
                runner: RunnerId(runner),
                tenant: TenantShare::default(),
            }),
        )
    }

    pub(super) fn started(&mut self, member: MemberId) -> Vec<PoolAction> {
        self.send(PoolEvent::Started { member })
    }

    pub(super) fn start_failed(&mut self, member: MemberId) -> Vec<PoolAction> {
        self.send(PoolEvent::StartFailed { member, failure: StartFailure::Arm })
    }

    pub(super) fn released(&mut self, member: MemberId) -> Vec<PoolAction> {
        self.send(PoolEvent::Released { member })
    }

    pub(super) fn destroyed(&mut self, member: MemberId) -> Vec<PoolAction> {
        self.send(PoolEvent::Destroyed { member })
    }

    /// Lets every start and removal succeed, including those that follow, until none is under way.
    pub(super) fn finish_all(&mut self) -> Vec<PoolAction> {
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
    pub(super) fn wait(&mut self, time: Duration) -> Vec<PoolAction> {
        self.wait_while(time, |_| Vec::new())
    }

    /// Lets time pass, with a tick at each deadline and a driver that finishes every action at once.
    pub(super) fn wait_and_finish(&mut self, time: Duration) -> Vec<PoolAction> {
        self.wait_while(time, Self::finish_all)
    }

    fn wait_while(
        &mut self,
        time: Duration,
        between: impl Fn(&mut Self) -> Vec<PoolAction>,
    ) -> Vec<PoolAction> {
        let end = self.now + time;
        let mut all = between(self);
        for _ in 0..MANY_TICKS {
            let Some(due) = self.core.next_deadline().filter(|due| *due <= end) else {
                self.now = end;
                return all;
            };
            self.now = due;
            all.extend(self.send(PoolEvent::Tick));
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

    pub(super) fn starved(&self) -> usize {
        self.core.snapshot().starved
    }

    pub(super) fn has_deadline(&self) -> bool {
        self.core.next_deadline().is_some()
    }
}

/// The members that these actions start.
pub(super) fn starts(actions: &[PoolAction]) -> Vec<MemberId> {
    let start = |action: &PoolAction| {
        if let PoolAction::Start { member, .. } = action { Some(*member) } else { None }
    };
    actions.iter().filter_map(start).collect()
}

/// The runners that these actions start something for, in order.
pub(super) fn started_runners(actions: &[PoolAction]) -> Vec<u32> {
    let start = |action: &PoolAction| {
        if let PoolAction::Start { runner, .. } = action { Some(runner.0) } else { None }
    };
    actions.iter().filter_map(start).collect()
}

/// The members that these actions destroy.
pub(super) fn destroys(actions: &[PoolAction]) -> Vec<MemberId> {
    let destroy =
        |action: &PoolAction| if let PoolAction::Destroy { member } = action { Some(*member) } else { None };
    actions.iter().filter_map(destroy).collect()
}

/// The waiters that these actions serve, and the members that they get.
pub(super) fn grants(actions: &[PoolAction]) -> Vec<(WaiterId, MemberId)> {
    let grant = |action: &PoolAction| {
        if let PoolAction::Grant { waiter, member, .. } = action { Some((*waiter, *member)) } else { None }
    };
    actions.iter().filter_map(grant).collect()
}
