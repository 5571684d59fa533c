//! One example for each rule, in the order of the module's documentation.

use std::ops::RangeInclusive;
use std::time::Duration;

use super::super::{
    Backoff, LeaseRefusal, PoolAction, PoolEvent, PoolSettings, RawPoolSettings, RunnerId, SettingsError,
    StartFailure, Uid,
};
use super::stand::{Stand, destroys, grants, started_runners, starts};
use super::usual;

const SECOND: Duration = Duration::from_secs(1);

/// A pool with runner 0 and its two idle members.
fn warm() -> Stand {
    let mut pool = Stand::new(usual());
    pool.add(0);
    pool.finish_all();
    pool
}

/// A pool without idle members: one start for each request.
fn cold() -> Stand {
    let mut pool = Stand::new(RawPoolSettings { idle_per_runner: 0, ..usual() });
    pool.add(0);
    pool
}

#[test]
fn each_runner_keeps_its_own_number_of_idle_members() {
    let mut pool = Stand::new(RawPoolSettings { max_starting: 8, ..usual() });
    assert_eq!(pool.add_with(0, 3).len(), 3);
    assert_eq!(pool.add_with(1, 0), [], "one starts when it is asked for");
    pool.finish_all();
    assert_eq!((pool.runner(0).idle, pool.runner(1).idle), (3, 0));
    assert_eq!(started_runners(&pool.request(1).1), [1]);
    pool.finish_all();
    assert_eq!((pool.runner(1).idle, pool.runner(1).leased), (0, 1), "nothing is refilled");
    assert_eq!(started_runners(&pool.add_with(1, 1)), [1], "the last number counts");
}

#[test]
fn a_kept_workspace_has_its_uid_for_itself_and_one_member_at_a_time() {
    let uid_of = |actions: &[PoolAction]| match actions {
        [PoolAction::Start { member, uid, .. }] => (*member, uid.0),
        other => panic!("{other:?}"),
    };
    let settings = RawPoolSettings { uid_range: 20_000..=20_002, max_members: 2, ..usual() };
    let mut pool = Stand::new(RawPoolSettings { idle_per_runner: 0, ..settings });
    pool.add(0);
    let (first, uid) = uid_of(&pool.request(0).1);
    pool.started(first);
    // Its session gives it up, and its workspace stays.
    assert_eq!(pool.keep(100, uid), []);
    pool.released(first);
    assert_eq!(pool.request(100).1, [], "the container is still being removed, and has the UID");
    let again = uid_of(&pool.destroyed(first));
    assert_eq!(again.1, uid);
    assert_eq!(grants(&pool.started(again.0)).len(), 1);
    pool.released(again.0);
    pool.destroyed(again.0);
    // Others get every UID but that one, however often.
    for _ in 0..4 {
        let (member, other) = uid_of(&pool.request(0).1);
        assert_ne!(other, uid);
        pool.started(member);
        pool.released(member);
        pool.destroyed(member);
    }
    assert_eq!(pool.send(PoolEvent::RunnerRemoved { runner: RunnerId(100) }), []);
    let given: Vec<u32> = std::iter::repeat_with(|| {
        let (member, other) = uid_of(&pool.request(0).1);
        pool.started(member);
        pool.released(member);
        pool.destroyed(member);
        other
    })
    .take(3)
    .collect();
    assert!(given.contains(&uid), "it is free again: {given:?}");
}

#[test]
fn the_waiters_for_a_kept_workspace_cost_no_idle_member_since_one_of_them_can_start() {
    let settings = RawPoolSettings { uid_range: 20_000..=20_009, max_members: 3, ..usual() };
    let mut pool = Stand::new(RawPoolSettings { max_starting: 8, ..settings });
    pool.add(0);
    pool.finish_all();
    let (_, first) = grants(&pool.request(0).1)[0];
    pool.finish_all();
    let uid = 20_000; // the first member's
    assert_eq!(pool.keep(100, uid), []);
    pool.released(first);
    (0..3).for_each(|_| assert_eq!(pool.request(100).1, [], "the UID is in use"));
    let actions = pool.destroyed(first);
    assert_eq!((started_runners(&actions), destroys(&actions)), (vec![100], vec![]));
    assert_eq!(pool.runner(0).idle, 2);
}

#[test]
fn a_waiter_is_starved_only_while_nothing_but_a_release_can_serve_it() {
    let settings = RawPoolSettings { idle_per_runner: 0, max_members: 2, ..usual() };
    let mut pool = Stand::new(settings);
    pool.add(0);
    let first = starts(&pool.request(0).1)[0];
    pool.started(first);
    let second = starts(&pool.request(0).1)[0];
    assert_eq!(pool.starved(), 0, "the last slot is its own");
    pool.started(second);
    let (third, _) = pool.request(0);
    pool.request(0);
    assert_eq!(pool.starved(), 2);
    pool.released(first);
    assert_eq!(pool.starved(), 1, "a slot is about to be free");
    pool.destroyed(first);
    assert_eq!(pool.starved(), 1, "it is taken, for the other waiter");
    pool.send(PoolEvent::Abandon { waiter: third });
    assert_eq!(pool.starved(), 0, "the start is now the second waiter's");
    pool.request(0);
    assert_eq!(pool.starved(), 1);
    pool.send(PoolEvent::EngineDown);
    assert_eq!(pool.starved(), 0);
}

#[test]
fn a_member_that_no_waiter_of_its_runner_needs_serves_another_runners() {
    let settings = RawPoolSettings { idle_per_runner: 1, max_members: 2, ..usual() };
    let mut pool = Stand::new(settings);
    pool.add(0);
    pool.finish_all();
    pool.request(0);
    // One is leased, one is being started for no waiter.
    pool.add(1);
    pool.request(1);
    assert_eq!((pool.members(), pool.starved()), (2, 0));
    pool.finish_all();
    assert_eq!(pool.runner(1).leased, 1);
    pool.request(1);
    assert_eq!(pool.starved(), 1);
}

#[test]
fn a_new_runner_is_warmed_within_the_bound_on_starts() {
    let mut pool = Stand::new(RawPoolSettings { idle_per_runner: 3, ..usual() });
    let first = starts(&pool.add(0));
    assert_eq!(first.len(), 2);
    assert_eq!(starts(&pool.started(first[0])).len(), 1);
    pool.finish_all();
    assert_eq!(pool.runner(0).idle, 3);
}

#[test]
fn a_request_gets_the_oldest_idle_member_at_once_and_another_is_started() {
    let mut pool = Stand::new(usual());
    let members = starts(&pool.add(0));
    pool.started(members[1]);
    pool.wait(SECOND);
    pool.started(members[0]);

    let (waiter, actions) = pool.request(0);
    assert_eq!(grants(&actions), [(waiter, members[1])]);
    assert_eq!(starts(&actions).len(), 1);
}

#[test]
fn a_released_member_is_destroyed_and_its_uid_is_not_given_away_before_it_is_gone() {
    let mut pool =
        Stand::new(RawPoolSettings { idle_per_runner: 0, max_members: 1, uid_range: 5000..=5000, ..usual() });
    pool.add(0);
    let (_, actions) = pool.request(0);
    let member = starts(&actions)[0];
    pool.started(member);
    let (_, waits) = pool.request(0);
    assert_eq!(waits, []);
    assert_eq!(pool.released(member), [PoolAction::Destroy { member }]);
    assert_eq!(pool.send(PoolEvent::DestroyFailed { member }), []);
    assert_eq!(pool.wait(SECOND / 2), [PoolAction::Destroy { member }]);
    let next = pool.destroyed(member);
    assert!(matches!(next[..], [PoolAction::Start { uid: Uid(5000), .. }]), "{next:?}");
}

#[test]
fn waiters_are_served_in_the_order_of_their_asking() {
    let mut pool = cold();
    let (first, actions) = pool.request(0);
    let one = starts(&actions)[0];
    let (second, actions) = pool.request(0);
    let other = starts(&actions)[0];
    assert_eq!(grants(&pool.started(other)), [(first, other)]);
    assert_eq!(grants(&pool.started(one)), [(second, one)]);
}

#[test]
fn a_caller_who_goes_away_leaves_an_idle_member_that_lives_out_its_time() {
    let mut pool = cold();
    let (waiter, actions) = pool.request(0);
    let member = starts(&actions)[0];
    assert_eq!(pool.send(PoolEvent::Abandon { waiter }), []);
    assert_eq!(pool.started(member), []);
    assert_eq!(pool.runner(0).idle, 1);
    assert_eq!(pool.wait(usual().idle_ttl), [PoolAction::Destroy { member }]);
    assert_eq!(pool.destroyed(member), []);
    assert_eq!(pool.members(), 0);
}

#[test]
fn a_caller_who_goes_away_as_it_is_served_gives_the_lease_back() {
    let mut pool = warm();
    let (waiter, actions) = pool.request(0);
    let (_, member) = grants(&actions)[0];
    assert_eq!(pool.send(PoolEvent::Abandon { waiter }), []);
    assert_eq!(destroys(&pool.released(member)), [member]);
    pool.finish_all();
    assert_eq!(pool.runner(0).idle, 2);
}

#[test]
fn an_old_idle_member_is_replaced_even_if_the_tick_is_late() {
    let mut pool = warm();
    pool.oversleep(usual().idle_ttl * 2);
    let (_, actions) = pool.request(0);
    assert_eq!(destroys(&actions).len(), 2);
    assert_eq!(grants(&actions), [], "what is too old is not handed out");
    assert_eq!(grants(&pool.finish_all()).len(), 1);
    assert_eq!(pool.runner(0).idle, 2);
}

#[test]
fn waiters_go_before_refills_and_refills_take_turns() {
    let mut pool = Stand::new(RawPoolSettings { max_starting: 1, ..usual() });
    let mut next = starts(&pool.add(0));
    pool.add(1);
    pool.add(2);
    let mut turns = Vec::new();
    for _ in 0..5 {
        let actions = pool.started(next[0]);
        turns.extend(started_runners(&actions));
        next = starts(&actions);
    }
    assert_eq!(turns, [1, 2, 0, 1, 2]);

    // Runner 2's last refill is under way; runner 1 runs dry and is asked once more, and then runner 0 is
    // short too.
    for runner in [1, 1, 1, 0] {
        pool.request(runner);
    }
    assert_eq!(started_runners(&pool.started(next[0])), [1]);
}

#[test]
fn an_idle_member_makes_room_for_another_runners_waiter() {
    let mut pool = Stand::new(RawPoolSettings { max_members: 2, ..usual() });
    pool.add(0);
    pool.finish_all();
    pool.add(1);
    let (waiter, actions) = pool.request(1);
    let [PoolAction::Destroy { member }] = actions[..] else { panic!("{actions:?}") };
    let member = starts(&pool.destroyed(member))[0];
    assert_eq!(grants(&pool.started(member)), [(waiter, member)]);
    assert_eq!(pool.runner(0).idle, 1);
}

#[test]
fn starts_that_fail_are_tried_again_after_growing_pauses() {
    let mut pool = Stand::new(RawPoolSettings { idle_per_runner: 1, ..usual() });
    let mut member = starts(&pool.add(0))[0];
    for pause in [500, 1000, 2000, 4000, 8000, 16_000, 30_000, 30_000] {
        assert_eq!(pool.start_failed(member), [PoolAction::Destroy { member }]);
        pool.destroyed(member);
        assert_eq!(pool.wait(Duration::from_millis(pause - 1)), []);
        member = starts(&pool.wait(Duration::from_millis(1)))[0];
    }
    pool.started(member);
    assert_eq!(pool.runner(0).consecutive_failures, 0);
}

/// Service is back soon after the engine is, however long it was away.
#[test]
fn a_start_that_the_engine_refuses_is_tried_again_after_two_seconds_at_most() {
    for failure in [StartFailure::Create, StartFailure::Start, StartFailure::Deadline] {
        let mut pool = Stand::new(RawPoolSettings { idle_per_runner: 1, ..usual() });
        let mut member = starts(&pool.add(0))[0];
        for pause in [500, 1000, 2000, 2000, 2000] {
            pool.send(PoolEvent::StartFailed { member, failure });
            pool.destroyed(member);
            assert_eq!(pool.wait(Duration::from_millis(pause - 1)), []);
            member = starts(&pool.wait(Duration::from_millis(1)))[0];
        }
    }
}

#[test]
fn the_third_failure_in_a_row_refuses_waiters_and_a_request_after_the_pause_tries_again() {
    let mut pool = cold();
    let (waiter, actions) = pool.request(0);
    let refused = |waiter| PoolAction::Refuse {
        waiter,
        refusal: LeaseRefusal::StartFailing { last: StartFailure::Arm },
    };
    let mut member = starts(&actions)[0];
    for _ in 0..2 {
        assert_eq!(pool.start_failed(member), [PoolAction::Destroy { member }]);
        member = starts(&pool.wait(SECOND))[0];
    }
    assert_eq!(pool.start_failed(member), [PoolAction::Destroy { member }, refused(waiter)]);

    let (waiter, actions) = pool.request(0);
    assert_eq!(actions, [refused(waiter)]);
    pool.wait(2 * SECOND);
    let (waiter, actions) = pool.request(0);
    let member = starts(&actions)[0];
    assert_eq!(grants(&pool.started(member)), [(waiter, member)]);
}

#[test]
fn a_container_that_starts_well_and_then_dies_is_not_restarted_without_pause() {
    let mut pool = Stand::new(usual());
    let members = starts(&pool.add(0));
    pool.started(members[0]);
    assert_eq!(
        pool.send(PoolEvent::Died { member: members[0] }),
        [PoolAction::Destroy { member: members[0] }]
    );
    assert_eq!(pool.started(members[1]), [], "the other's success does not end the pause");
    assert_eq!(starts(&pool.wait(SECOND / 2)).len(), 1);
}

#[test]
fn waiting_has_an_end_and_a_queue_has_a_length() {
    let mut pool = Stand::new(RawPoolSettings { max_members: 2, queue: 1, idle_per_runner: 0, ..usual() });
    pool.add(0);
    let (waiter, _) = pool.request(0);
    let (second, actions) = pool.request(0);
    assert_eq!(actions, [PoolAction::Refuse { waiter: second, refusal: LeaseRefusal::QueueFull }]);
    let late = PoolAction::Refuse { waiter, refusal: LeaseRefusal::WaitedTooLong { waited: 30 * SECOND } };
    assert_eq!(pool.wait(30 * SECOND), [late]);

    pool.finish_all();
    pool.request(0);
    let (_, actions) = pool.request(0);
    pool.started(starts(&actions)[0]);
    let (third, actions) = pool.request(0);
    assert_eq!(actions, [], "every slot is leased");
    assert_eq!(pool.wait(30 * SECOND), [PoolAction::Refuse { waiter: third, refusal: LeaseRefusal::Full }]);
}

#[test]
fn an_engine_that_was_down_is_not_trusted_with_what_stood_idle() {
    let mut pool = warm();
    let (_, actions) = pool.request(0);
    let (_, leased) = grants(&actions)[0];
    let starting = starts(&actions)[0];
    assert_eq!(pool.send(PoolEvent::EngineDown), []);
    assert_eq!(pool.started(starting), []);
    let (waiter, actions) = pool.request(0);
    assert_eq!(actions, [PoolAction::Refuse { waiter, refusal: LeaseRefusal::EngineUnavailable }]);

    let up = pool.send(PoolEvent::EngineUp);
    assert_eq!(destroys(&up).len(), 2);
    assert_eq!(starts(&up).len(), 2);
    assert_eq!(destroys(&pool.released(leased)), [leased], "a lease outlives the outage");
}

#[test]
fn a_leased_member_that_died_is_its_holders_until_released() {
    let mut pool = warm();
    let (_, actions) = pool.request(0);
    let (_, member) = grants(&actions)[0];
    assert_eq!(pool.send(PoolEvent::Died { member }), []);
    assert_eq!(destroys(&pool.released(member)), [member]);
}

#[test]
fn a_removed_runner_takes_its_idle_and_coming_members_with_it() {
    let mut pool = Stand::new(usual());
    let members = starts(&pool.add(0));
    pool.started(members[0]);
    let gone = pool.send(PoolEvent::RunnerRemoved { runner: super::super::RunnerId(0) });
    assert_eq!(gone, [PoolAction::Destroy { member: members[0] }]);
    assert_eq!(pool.started(members[1]), [PoolAction::Destroy { member: members[1] }]);
    let (waiter, actions) = pool.request(0);
    assert_eq!(actions, [PoolAction::Refuse { waiter, refusal: LeaseRefusal::UnknownRunner }]);
}

#[test]
fn a_shutdown_leaves_nothing_once_the_leases_are_back() {
    let mut pool = warm();
    let (_, actions) = pool.request(0);
    let (_, leased) = grants(&actions)[0];
    let actions = pool.send(PoolEvent::Shutdown);
    assert_eq!((destroys(&actions).len(), starts(&actions).len()), (1, 0));
    pool.finish_all();
    assert_eq!(pool.members(), 1);
    pool.released(leased);
    pool.finish_all();
    assert_eq!(pool.members(), 0);
    assert!(!pool.has_deadline());
}

#[test]
fn settings_that_cannot_hold_say_what_would() {
    let backoff = |first, max| Backoff { first: Duration::from_secs(first), max: Duration::from_secs(max) };
    let cases = [
        (RawPoolSettings { max_starting: 0, ..usual() }, "max_starting is 0, must be at least 1"),
        (RawPoolSettings { max_members: 0, ..usual() }, "max_members is 0, must be at least 1"),
        (RawPoolSettings { idle_ttl: SECOND / 2, ..usual() }, "idle_ttl is 500ms, must be 1s to 30days"),
        (RawPoolSettings { wait: Duration::ZERO, ..usual() }, "wait is 0s, must be 1ms to 30days"),
        (RawPoolSettings { backoff: backoff(5, 1), ..usual() }, "backoff.max is 1s, must be 5s to 30days"),
        (
            RawPoolSettings { uid_range: 0..=999, ..usual() },
            "uid_range is 0-999, must be a range within 1000-2147483647, lower end first",
        ),
        (
            RawPoolSettings { uid_range: RangeInclusive::new(3000, 2000), ..usual() },
            "uid_range is 3000-2000, must be a range within 1000-2147483647, lower end first",
        ),
        (
            RawPoolSettings { uid_range: 2000..=2009, ..usual() },
            "uid_range has 10 ids for 64 containers, must have one for each",
        ),
        (
            RawPoolSettings { queue: 0, idle_per_runner: 0, ..usual() },
            "queue is 0 while no container is kept idle, so nothing could ever run; must be at least 1, or \
             keep some idle",
        ),
    ];
    for (raw, expected) in cases {
        let error: SettingsError = PoolSettings::try_from(raw).expect_err(expected);
        assert_eq!(format!("{} {error}", error.field()), expected);
    }
}

#[test]
fn what_an_earlier_daemon_left_is_handed_out_before_anything_is_started() {
    let mut pool = Stand::new(usual());
    let uid = *usual().uid_range.start();
    let (idle, _) = pool.adopt(0, uid, false);
    let (leased, _) = pool.adopt(0, uid + 1, true);
    // One member is idle, so one start is enough; and neither UID is given again.
    let begun = pool.add(0);
    assert_eq!(starts(&begun).len(), 1);
    let (waiter, actions) = pool.request(0);
    assert_eq!(grants(&actions), [(waiter, idle)]);
    assert_eq!(destroys(&pool.released(leased)), [leased]);
}

#[test]
fn what_cannot_be_a_member_is_destroyed() {
    let mut pool = Stand::new(RawPoolSettings { max_members: 2, uid_range: 5000..=5009, ..usual() });
    assert_eq!(pool.adopt(0, 5000, true).1, []);
    let (twin, actions) = pool.adopt(0, 5000, true);
    assert_eq!(destroys(&actions), [twin]);
    let (third, actions) = pool.adopt(0, 5001, false);
    assert_eq!(destroys(&actions), [third], "every slot is taken");
    let (stranger, actions) = pool.adopt(0, 4999, false);
    assert_eq!(destroys(&actions), [stranger], "its UID is not of the range");
}
