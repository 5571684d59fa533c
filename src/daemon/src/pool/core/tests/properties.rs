//! Whatever happens, in whatever order, no rule is broken, and in the end the pool comes to rest.

use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};

use super::super::{Backoff, MemberId, PoolEvent, RawPoolSettings, RunnerId, StartFailure, WaiterId};
use super::stand::Stand;
use crate::tenants::TenantShare;

const RUNNERS: u32 = 4;

/// The number of the first kept workspace: no runner has it.
const FIRST_KEPT: u32 = 100;

/// One thing that happens. An [`Index`] picks among the members or waiters that fit at that moment; nothing
/// happens if none fits.
#[derive(Debug, Clone)]
enum Step {
    Add(u32),
    /// With a UID at this distance from the first of the range.
    Adopt(u32, u32, bool),
    Remove(u32),
    /// The workspace of a member, or of a container that is gone, with a UID at this distance from the first.
    Keep(Index, u32),
    RequestKept(Index),
    Discard(Index),
    Request(u32),
    Abandon(Index),
    Start(Index, bool),
    Release(Index),
    Destroy(Index, bool),
    Die(Index),
    /// An event that may fit no member at all.
    Stray(fn(MemberId) -> PoolEvent, Index),
    /// By a waiter that waits, was answered or never existed.
    StrayAbandon(u64),
    /// A waiter that still waits asks again.
    AskTwice(Index, u32),
    EngineDown,
    EngineUp,
    Wait(Duration),
    Oversleep(Duration),
    Shutdown,
}

fn time() -> impl Strategy<Value = Duration> {
    prop_oneof![(0..2_000_u64), (0..70_000_u64)].prop_map(Duration::from_millis)
}

/// A failure of the engine, or of a container.
fn failure(index: Index) -> StartFailure {
    if index.index(2) == 0 { StartFailure::Arm } else { StartFailure::Create }
}

fn stray() -> impl Strategy<Value = fn(MemberId) -> PoolEvent> {
    let kinds: Vec<fn(MemberId) -> PoolEvent> = vec![
        |member| PoolEvent::Started { member },
        |member| PoolEvent::StartFailed { member, failure: StartFailure::Deadline },
        |member| PoolEvent::Died { member },
        |member| PoolEvent::Released { member },
        |member| PoolEvent::Destroyed { member },
        |member| PoolEvent::DestroyFailed { member },
    ];
    select(kinds)
}

fn step() -> impl Strategy<Value = Step> {
    let index = any::<Index>;
    let runner = 0..RUNNERS;
    prop_oneof![
        8 => runner.clone().prop_map(Step::Request),
        8 => (index(), prop::bool::weighted(0.7)).prop_map(|(i, ok)| Step::Start(i, ok)),
        6 => (index(), prop::bool::weighted(0.8)).prop_map(|(i, ok)| Step::Destroy(i, ok)),
        5 => index().prop_map(Step::Release),
        4 => time().prop_map(Step::Wait),
        2 => time().prop_map(Step::Oversleep),
        2 => index().prop_map(Step::Abandon),
        2 => index().prop_map(Step::Die),
        2 => (stray(), index()).prop_map(|(kind, i)| Step::Stray(kind, i)),
        1 => (0..40_u64).prop_map(Step::StrayAbandon),
        1 => (index(), runner.clone()).prop_map(|(i, r)| Step::AskTwice(i, r)),
        2 => runner.clone().prop_map(Step::Add),
        2 => (runner.clone(), 0..14_u32, any::<bool>())
            .prop_map(|(r, uid, leased)| Step::Adopt(r, uid, leased)),
        1 => runner.prop_map(Step::Remove),
        3 => (index(), 0..14_u32).prop_map(|(i, uid)| Step::Keep(i, uid)),
        4 => index().prop_map(Step::RequestKept),
        1 => index().prop_map(Step::Discard),
        1 => Just(Step::EngineDown),
        2 => Just(Step::EngineUp),
    ]
}

/// Mostly an open pool; sometimes a pool that closes on the way.
fn steps() -> impl Strategy<Value = Vec<Step>> {
    (vec(step(), 0..120), prop::option::weighted(0.2, any::<Index>())).prop_map(|(mut steps, shutdown)| {
        if let Some(at) = shutdown {
            steps.insert(at.index(steps.len() + 1), Step::Shutdown);
        }
        steps
    })
}

fn settings() -> impl Strategy<Value = RawPoolSettings> {
    (
        0..4_u32,
        1..4_u32,
        1..60_u64,
        1..8_u32,
        100..10_000_u64,
        1..10_u32,
        0..3_u32,
        100..500_u64,
        500..5_000_u64,
    )
        .prop_map(|(idle, starting, ttl, queue, wait, members, spare_uids, first, max)| {
            RawPoolSettings {
                idle_per_runner: idle,
                max_starting: starting,
                idle_ttl: Duration::from_secs(ttl),
                queue,
                wait: Duration::from_millis(wait),
                uid_range: 20_000..=20_000 + members - 1 + spare_uids,
                backoff: Backoff { first: Duration::from_millis(first), max: Duration::from_millis(max) },
                max_members: members,
            }
        })
}

/// Keeps a workspace, if there are UIDs beside those of members for it.
fn keep(stand: &mut Stand, (uids, spare): (u32, usize), member: Index, distance: u32) {
    let (held, reserved) = (stand.oracle.held(), stand.oracle.reserved());
    let uid =
        if held.is_empty() || distance.is_multiple_of(2) { 20_000 + distance } else { *member.get(&held) };
    let uid = 20_000 + (uid - 20_000) % uids;
    let number = FIRST_KEPT + stand.oracle.kept().last().map_or(0, |last| last.0 - FIRST_KEPT + 1);
    if reserved.len() < spare && !reserved.contains(&uid) {
        stand.keep(number, uid);
    }
}

fn perform(stand: &mut Stand, uids: (u32, usize), step: Step) {
    let pick = |from: Vec<MemberId>, i: Index| (!from.is_empty()).then(|| *i.get(&from));
    let event = match step {
        Step::Add(runner) => {
            stand.add(runner);
            None
        }
        Step::Adopt(runner, uid, leased) => {
            stand.adopt(runner, 20_000 + uid, leased);
            None
        }
        Step::Remove(runner) => Some(PoolEvent::RunnerRemoved { runner: RunnerId(runner) }),
        Step::Keep(i, distance) => {
            keep(stand, uids, i, distance);
            None
        }
        Step::RequestKept(i) => {
            let kept = stand.oracle.kept();
            if !kept.is_empty() {
                stand.request(i.get(&kept).0);
            }
            None
        }
        Step::Discard(i) => {
            let kept = stand.oracle.kept();
            (!kept.is_empty()).then(|| PoolEvent::RunnerRemoved { runner: *i.get(&kept) })
        }
        Step::Request(runner) => {
            stand.request(runner);
            None
        }
        Step::Abandon(i) => {
            let waiting = stand.oracle.waiting();
            (!waiting.is_empty()).then(|| PoolEvent::Abandon { waiter: *i.get(&waiting) })
        }
        Step::Start(i, true) => pick(stand.oracle.starting(), i).map(|member| PoolEvent::Started { member }),
        Step::Start(i, false) => pick(stand.oracle.starting(), i)
            .map(|member| PoolEvent::StartFailed { member, failure: failure(i) }),
        Step::Release(i) => pick(stand.oracle.leased(), i).map(|member| PoolEvent::Released { member }),
        Step::Destroy(i, true) => {
            pick(stand.oracle.being_destroyed(), i).map(|member| PoolEvent::Destroyed { member })
        }
        Step::Destroy(i, false) => {
            pick(stand.oracle.being_destroyed(), i).map(|member| PoolEvent::DestroyFailed { member })
        }
        Step::Die(i) => pick(stand.oracle.living(), i).map(|member| PoolEvent::Died { member }),
        // Members that live, that are gone and that never existed.
        Step::Stray(kind, i) => Some(kind(MemberId(i.index(60) as u64))),
        Step::StrayAbandon(waiter) => Some(PoolEvent::Abandon { waiter: WaiterId(waiter) }),
        Step::AskTwice(i, runner) => {
            stand.send(PoolEvent::Tick);
            let waiting = stand.oracle.waiting();
            (!waiting.is_empty()).then(|| PoolEvent::Request {
                waiter: *i.get(&waiting),
                runner: RunnerId(runner),
                tenant: TenantShare::default(),
            })
        }
        Step::EngineDown => Some(PoolEvent::EngineDown),
        Step::EngineUp => Some(PoolEvent::EngineUp),
        Step::Shutdown => Some(PoolEvent::Shutdown),
        Step::Wait(time) => {
            stand.wait(time);
            None
        }
        Step::Oversleep(time) => {
            stand.oversleep(time);
            None
        }
    };
    if let Some(event) = event {
        stand.send(event);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(768))]

    #[test]
    fn no_rule_is_ever_broken_and_the_pool_comes_to_rest(settings in settings(), steps in steps()) {
        let idle_per_runner = settings.idle_per_runner as usize;
        let max_members = settings.max_members as usize;
        let longest = settings.idle_ttl + settings.backoff.max + settings.wait;
        let uids = settings.uid_range.clone().count();
        let uids = (u32::try_from(uids).expect("few"), uids - max_members);
        let closing = steps.iter().any(|step| matches!(step, Step::Shutdown));
        let mut stand = Stand::new(settings);
        stand.add(0);
        stand.add(1);
        for step in steps {
            perform(&mut stand, uids, step);
        }

        // From here on everything succeeds, and there are no requests.
        stand.send(PoolEvent::EngineUp);
        for _ in 0..3 {
            stand.wait_and_finish(longest);
            for member in stand.oracle.leased() {
                stand.released(member);
            }
        }
        stand.finish_all();
        for runner in stand.oracle.kept() {
            stand.send(PoolEvent::RunnerRemoved { runner });
        }
        stand.finish_all();
        let runners = stand.oracle.known_runners();
        let idle: Vec<usize> = runners.iter().map(|r| stand.oracle.idle_of(*r)).collect();
        if closing {
            prop_assert_eq!(idle.iter().sum::<usize>(), 0);
        } else if idle_per_runner * runners.len() <= max_members {
            prop_assert!(idle.iter().all(|n| *n == idle_per_runner), "idle: {:?}", idle);
        } else {
            prop_assert_eq!(idle.iter().sum::<usize>(), max_members);
            prop_assert!(idle.iter().all(|n| *n <= idle_per_runner), "idle: {:?}", idle);
        }

        stand.send(PoolEvent::Shutdown);
        stand.finish_all();
        prop_assert_eq!(stand.members(), 0);
        prop_assert!(!stand.has_deadline(), "a closed pool wants nothing more");
    }
}
