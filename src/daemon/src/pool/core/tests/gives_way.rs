//! What the daemon does for itself takes no place that a caller wants: not a free one, not an idle member's,
//! and not a session's.

use std::time::Instant;

use super::super::{
    MemberId, PoolAction, PoolCore, PoolEvent, PoolSettings, RawPoolSettings, RunnerId, WaiterId,
};
use super::usual;
use crate::tenants::TenantShare;

const CALLERS: RunnerId = RunnerId(0);
const OWN: RunnerId = RunnerId(1);

/// A pool of one runner for callers and one that gives way.
struct Shared {
    core: PoolCore,
    now: Instant,
    last_waiter: u64,
}

impl Shared {
    fn new(max_members: u32, idle: u32) -> Self {
        let settings = RawPoolSettings { max_members, ..usual() };
        let core = PoolCore::new(PoolSettings::try_from(settings).expect("settings"));
        let mut pool = Self { core, now: Instant::now(), last_waiter: 0 };
        let mut actions = pool.send(PoolEvent::RunnerAdded { runner: CALLERS, idle });
        while let Some(member) = started(&actions) {
            actions = pool.send(PoolEvent::Started { member });
        }
        pool.send(PoolEvent::RunnerAdded { runner: OWN, idle: 0 });
        pool.send(PoolEvent::GivesWay { runner: OWN });
        pool
    }

    fn send(&mut self, event: PoolEvent) -> Vec<PoolAction> {
        self.core.on(event, self.now)
    }

    fn request(&mut self, runner: RunnerId) -> Vec<PoolAction> {
        self.last_waiter += 1;
        let waiter = WaiterId(self.last_waiter);
        self.send(PoolEvent::Request { waiter, runner, tenant: TenantShare::default() })
    }

    /// A member that the daemon has for itself.
    fn take(&mut self) -> MemberId {
        let member = started(&self.request(OWN)).expect("there is a place");
        let granted = self.send(PoolEvent::Started { member });
        assert!(matches!(granted[..], [PoolAction::Grant { .. }]), "{granted:?}");
        // The driver removes such a runner with the grant.
        self.send(PoolEvent::RunnerRemoved { runner: OWN });
        member
    }
}

fn started(actions: &[PoolAction]) -> Option<MemberId> {
    actions.iter().find_map(|action| match action {
        PoolAction::Start { member, .. } => Some(*member),
        PoolAction::Destroy { .. } | PoolAction::Grant { .. } | PoolAction::Refuse { .. } => None,
    })
}

#[test]
fn an_idle_container_is_never_removed_for_it_and_no_session_is_evicted() {
    let mut pool = Shared::new(2, 2);
    assert_eq!(pool.request(OWN), [], "both places are idle containers'");
    assert_eq!((pool.core.starved(), pool.core.is_crowded()), (0, false));
    // A session has one, and another container is started in the place that is not there.
    assert!(matches!(pool.request(CALLERS)[..], [PoolAction::Grant { .. }]));
    assert_eq!((pool.core.starved(), pool.core.is_crowded()), (0, false), "nobody else waits");
}

#[test]
fn it_starts_when_nothing_else_is_starting_or_waiting() {
    let mut pool = Shared::new(3, 0);
    let first = started(&pool.request(CALLERS)).expect("a start");
    assert_eq!(pool.request(OWN), [], "a caller's is starting");
    let actions = pool.send(PoolEvent::Started { member: first });
    assert!(started(&actions).is_some(), "{actions:?}");
}

#[test]
fn callers_who_need_its_place_get_it_and_sessions_keep_theirs() {
    let mut pool = Shared::new(2, 0);
    let session = started(&pool.request(CALLERS)).expect("a start");
    pool.send(PoolEvent::Started { member: session });
    let own = pool.take();
    assert!(!pool.core.is_crowded());
    assert_eq!(pool.request(CALLERS), [], "both places are taken");
    assert!(pool.core.is_crowded(), "whoever has the daemon's own releases it");
    assert_eq!(pool.core.starved(), 0, "so no session is evicted");
    // One more caller needs a session's place.
    pool.request(CALLERS);
    assert_eq!(pool.core.starved(), 1);
    let actions = pool.send(PoolEvent::Released { member: own });
    assert_eq!(actions, [PoolAction::Destroy { member: own }]);
    assert!(started(&pool.send(PoolEvent::Destroyed { member: own })).is_some());
    assert_eq!(pool.core.starved(), 1, "the second one still does");
}
