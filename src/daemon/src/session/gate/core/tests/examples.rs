//! One example for each rule about calls and permits, in the order of the module's documentation.

use std::time::Duration;

use super::super::super::message::{Denial, ReleaseReason};
use super::super::{Event, GateBounds, NOTE_USE, SLICE, TurnKind};
use super::stand::{Stand, cancelled, code, command, denied, entered, granted, key, released};
use super::usual;
use crate::tenants::TenantShare;

const SECOND: Duration = Duration::from_secs(1);

fn gate() -> Stand {
    Stand::new(usual())
}

#[test]
fn a_call_comes_in_once_its_session_is_loaded_and_the_next_one_at_once() {
    let mut gate = gate();
    let (first, actions) = gate.ask(0, code("sh"));
    assert_eq!(entered(&actions), [], "the session is not loaded yet");
    assert_eq!(entered(&gate.finish_all()), [first]);
    gate.leave(0, first);
    let (second, actions) = gate.ask(0, TurnKind::Whole);
    assert_eq!(entered(&actions), [second], "by its own event");
}

#[test]
fn ordered_calls_come_in_one_after_the_other() {
    let mut gate = gate();
    let first = gate.enter(0, code("sh"));
    let (second, actions) = gate.ask(0, code("sh"));
    let (third, _) = gate.ask(0, TurnKind::Whole);
    assert_eq!(entered(&actions), [], "beside code of its own language, too");
    assert_eq!(entered(&gate.leave(0, first)), [second]);
    assert_eq!(entered(&gate.leave(0, second)), [third]);
}

#[test]
fn a_command_comes_in_beside_programs_of_its_language_before_calls_that_want_the_whole_session() {
    let mut gate = gate();
    let server = gate.enter(0, command("sh"));
    let (upload, _) = gate.ask(0, TurnKind::Whole);
    let (echo, actions) = gate.ask(0, command("sh"));
    assert_eq!(entered(&actions), [echo]);
    let (python, actions) = gate.ask(0, command("python"));
    assert_eq!(entered(&actions), [], "of another language");
    gate.leave(0, server);
    assert_eq!(entered(&gate.leave(0, echo)), [upload], "the oldest, once nobody is in");
    assert_eq!(entered(&gate.leave(0, upload)), [python]);
}

#[test]
fn code_comes_in_beside_commands_of_its_language() {
    let mut gate = gate();
    gate.enter(0, command("sh"));
    let first = gate.enter(0, code("sh"));
    let (second, _) = gate.ask(0, code("sh"));
    assert_eq!(entered(&gate.leave(0, first)), [second]);
}

#[test]
fn a_call_that_shares_the_session_lets_in_programs_of_its_language() {
    let mut gate = gate();
    let whole = gate.enter(0, TurnKind::Whole);
    let (other, _) = gate.ask(0, command("python"));
    let (beside, _) = gate.ask(0, command("sh"));
    let shared = gate.send(Event::Share { key: key(0), call: whole, language: "sh".to_owned() });
    assert_eq!(entered(&shared), [beside]);
    let (next, _) = gate.ask(0, code("sh"));
    assert!(gate.waits(next), "the sharing call is still the ordered call that is in");
    gate.leave(0, beside);
    assert_eq!(entered(&gate.leave(0, whole)), [other]);
}

#[test]
fn a_program_that_must_be_alone_waits_for_all_others_and_they_for_it() {
    let mut gate = gate();
    let command_of = |is_command| TurnKind::Alone { is_command };
    let server = gate.enter(0, command("sh"));
    let (alone, actions) = gate.ask(0, command_of(true));
    assert_eq!(entered(&actions), []);
    let (beside, actions) = gate.ask(0, command("sh"));
    assert_eq!(entered(&actions), [beside], "a program that fits comes in at once");
    gate.leave(0, beside);
    assert_eq!(entered(&gate.leave(0, server)), [alone]);
    let [(other, _), (also, _)] = [gate.ask(0, command_of(false)), gate.ask(0, command("sh"))];
    assert!(gate.waits(other) && gate.waits(also));
    assert_eq!(entered(&gate.leave(0, alone)), [other], "the oldest is next");
    assert_eq!(entered(&gate.leave(0, other)), [also]);
    let language = "sh".to_owned();
    let resumed = TurnKind::Resumed { language, is_command: true, is_alone: true };
    let (denied_now, actions) = gate.try_ask(0, resumed);
    assert_eq!(denied(&actions), [(denied_now, Denial::Busy)]);
}

#[test]
fn as_many_calls_wait_in_a_session_as_may_and_a_call_that_need_not_wait_is_not_counted() {
    let mut gate = gate();
    gate.enter(0, command("sh"));
    for _ in 0..usual().queue {
        gate.ask(0, TurnKind::Whole);
    }
    let (late, actions) = gate.ask(0, TurnKind::Whole);
    assert_eq!(denied(&actions), [(late, Denial::QueueFull(usual().queue))]);
    let (fits, actions) = gate.ask(0, command("sh"));
    assert_eq!(entered(&actions), [fits]);
    let (other, actions) = gate.ask(1, TurnKind::Whole);
    assert_eq!((denied(&actions), gate.waits(other)), (vec![], true), "another session has its own queue");
}

#[test]
fn while_a_session_is_loaded_one_more_call_waits() {
    let mut gate = Stand::new(GateBounds { queue: 0, ..usual() });
    let (first, _) = gate.ask(0, code("sh"));
    let (second, actions) = gate.ask(0, code("sh"));
    assert_eq!(denied(&actions), [(second, Denial::QueueFull(1))]);
    assert_eq!(entered(&gate.finish_all()), [first]);
}

#[test]
fn a_wait_ends_at_the_calls_deadline_and_lets_the_next_one_in() {
    let mut gate = gate();
    gate.enter(0, command("sh"));
    gate.wait(SECOND);
    let (whole, _) = gate.ask(0, TurnKind::Whole);
    gate.wait(SECOND);
    let (code, _) = gate.ask(0, code("sh"));
    assert_eq!(gate.wait(usual().wait - SECOND - SECOND / 2), []);
    let actions = gate.wait(SECOND);
    assert_eq!(denied(&actions), [(whole, Denial::TurnTooLate)]);
    assert_eq!(entered(&actions), [code], "it waited behind the call that went");
}

#[test]
fn calls_whose_time_is_over_at_the_same_moment_are_all_denied() {
    let mut gate = gate();
    gate.enter(0, command("sh"));
    let [(whole, _), (code, _)] = [gate.ask(0, TurnKind::Whole), gate.ask(0, code("sh"))];
    let actions = gate.wait(usual().wait);
    assert_eq!(denied(&actions), [(whole, Denial::TurnTooLate), (code, Denial::TurnTooLate)]);
    assert_eq!(entered(&actions), [], "the second one could come in once the first one is gone");
}

#[test]
fn a_call_whose_time_is_over_is_denied_even_if_its_turn_comes_at_that_moment() {
    let mut gate = super::super::Core::new(usual());
    let (now, mut stand) = (std::time::Instant::now(), Stand::new(usual()));
    let [first, second] = [stand.call(), stand.call()];
    let enter = |call| Event::Enter { key: key(0), call, kind: code("sh"), waits: true };
    let _ = gate.on(enter(first), now);
    let _ = gate.on(Event::Loaded { key: key(0), found: false, closed: false }, now);
    let _ = gate.on(enter(second), now);
    let actions = gate.on(Event::Leave { key: key(0), call: first }, now + usual().wait);
    assert_eq!((entered(&actions), denied(&actions)), (vec![], vec![(second, Denial::TurnTooLate)]));
}

#[test]
fn a_call_that_does_not_wait_is_told_that_others_are_in_its_way() {
    let mut gate = gate();
    let first = gate.enter(0, code("sh"));
    let (second, actions) = gate.try_ask(0, code("sh"));
    assert_eq!(denied(&actions), [(second, Denial::Busy)]);
    gate.leave(0, first);
    let (third, actions) = gate.try_ask(0, code("sh"));
    assert_eq!(entered(&actions), [third]);
}

#[test]
fn a_call_that_does_not_wait_waits_for_the_daemons_own_chores() {
    let mut gate = gate();
    let (first, actions) = gate.try_ask(0, code("sh"));
    assert_eq!(denied(&actions), [], "the session is being loaded");
    assert_eq!(entered(&gate.finish_all()), [first]);
    gate.want(0, first);
    gate.leave(0, first);
    gate.send(Event::Lost { key: key(0) });
    let (second, actions) = gate.try_ask(0, code("sh"));
    assert_eq!(denied(&actions), [], "a lost container is being dropped");
    assert_eq!(entered(&gate.finish_all()), [second]);
}

#[test]
fn a_call_that_is_told_of_others_in_its_way_is_in_nobodys_way_itself() {
    let mut gate = gate();
    let (first, _) = gate.ask(0, command("sh"));
    let (impatient, _) = gate.try_ask(0, TurnKind::Whole);
    let [(behind, _), (late, _)] = [gate.try_ask(0, code("sh")), gate.ask(0, code("sh"))];
    let actions = gate.finish_all();
    assert_eq!(denied(&actions), [(impatient, Denial::Busy)]);
    assert_eq!(entered(&actions), [first, behind]);
    assert_eq!(entered(&gate.leave(0, behind)), [late]);
}

#[test]
fn a_call_that_goes_away_holds_up_nobody() {
    let mut gate = gate();
    let first = gate.enter(0, command("sh"));
    let (whole, _) = gate.ask(0, TurnKind::Whole);
    let (next, _) = gate.ask(0, code("sh"));
    assert_eq!(entered(&gate.abandon(0, whole)), [next]);
    gate.leave(0, next);
    assert_eq!(gate.leave(0, first), []);
}

#[test]
fn the_store_is_told_of_a_use_once_a_second_and_that_a_closed_session_is_open() {
    let mut gate = gate();
    let noted = |actions: &[super::super::Action]| {
        actions.iter().any(|action| matches!(action, super::super::Action::Enter { note: true, .. }))
    };
    let (first, _) = gate.ask(0, command("sh"));
    assert!(noted(&gate.finish_all()));
    gate.wait(NOTE_USE);
    assert!(!noted(&gate.ask(0, command("sh")).1));
    gate.wait(SECOND / 100);
    let (third, actions) = gate.ask(0, command("sh"));
    assert!(noted(&actions));
    for call in [first, third] {
        gate.leave(0, call);
    }
    for (_, inmate) in gate.oracle.inside() {
        gate.leave(0, inmate.call);
    }
    gate.close(0, false);
    gate.finish_all();
    assert!(noted(&gate.ask(0, command("sh")).1), "it was closed this moment");
}

#[test]
fn permits_are_granted_in_the_order_of_asking_one_for_each_that_comes_back() {
    let mut gate = gate();
    let [a, b] = [gate.work(0, code("sh")), gate.work(1, code("sh"))];
    let [c, d] = [gate.enter(2, code("sh")), gate.enter(3, code("sh"))];
    assert_eq!((granted(&gate.want(2, c)), granted(&gate.want(3, d))), (vec![], vec![]), "both are at work");
    let actions = gate.leave(1, b);
    assert_eq!(released(&actions), [(key(1), ReleaseReason::Evicted)], "one rests now");
    assert_eq!(granted(&gate.finish_all()), [c]);
    assert_eq!(released(&gate.leave(0, a)), [(key(0), ReleaseReason::Evicted)]);
    assert_eq!(granted(&gate.finish_all()), [d]);
    assert_eq!((gate.counts().permits, gate.counts().wanting), (2, 0));
}

#[test]
fn a_session_that_has_a_permit_is_granted_it_again_and_keeps_it_until_the_last_is_returned() {
    let mut gate = gate();
    let first = gate.work(0, command("sh"));
    let second = gate.enter(0, command("sh"));
    assert_eq!(granted(&gate.want(0, second)), [second]);
    gate.send(Event::Return { key: key(0) });
    assert!(gate.has_permit(0));
    gate.send(Event::Return { key: key(0) });
    assert!(!gate.has_permit(0) && gate.is_in(0, first));
}

#[test]
fn calls_of_one_session_that_wait_for_a_permit_get_it_together() {
    let mut gate = Stand::new(GateBounds { permits: 1, ..usual() });
    let busy = gate.work(0, code("sh"));
    let [one, other] = [gate.enter(1, command("sh")), gate.enter(1, command("sh"))];
    gate.want(1, one);
    gate.want(1, other);
    gate.leave(0, busy);
    assert_eq!(granted(&gate.finish_all()), [one, other]);
}

#[test]
fn a_session_that_rests_keeps_its_permit_until_somebody_waits_and_the_least_recently_used_goes() {
    let mut gate = Stand::new(GateBounds { permits: 3, ..usual() });
    let calls = [0, 1, 2].map(|of| gate.work(of, code("sh")));
    for of in [1, 0, 2] {
        gate.wait(SECOND);
        assert_eq!(gate.leave(of, calls[usize::from(of)]), []);
    }
    assert_eq!(gate.counts().permits, 3);
    let new = gate.enter(3, code("sh"));
    assert_eq!(released(&gate.want(3, new)), [(key(1), ReleaseReason::Evicted)]);
    assert_eq!(granted(&gate.finish_all()), [new]);
}

#[test]
fn no_more_sessions_are_evicted_than_calls_wait() {
    let mut gate = Stand::new(GateBounds { permits: 3, ..usual() });
    let calls = [0, 1, 2].map(|of| gate.work(of, code("sh")));
    for of in [0, 1, 2] {
        gate.leave(of, calls[usize::from(of)]);
    }
    let [one, other] = [gate.enter(3, code("sh")), gate.enter(4, code("sh"))];
    assert_eq!(released(&gate.want(3, one)).len(), 1);
    assert_eq!(released(&gate.want(4, other)).len(), 1, "the first waiter's is on its way already");
    assert_eq!(granted(&gate.finish_all()), [one, other]);
    assert!(gate.has_permit(2), "nobody waits for the third");
}

#[test]
fn a_waiter_that_goes_away_costs_no_session_its_containers() {
    let mut gate = Stand::new(GateBounds { permits: 1, ..usual() });
    let busy = gate.work(0, code("sh"));
    let gone = gate.enter(1, code("sh"));
    gate.want(1, gone);
    gate.abandon(1, gone);
    assert_eq!(gate.leave(0, busy), []);
    assert!(gate.has_permit(0), "nobody waits");
}

#[test]
fn a_call_that_leaves_its_session_wants_no_permit_any_more() {
    let mut gate = Stand::new(GateBounds { permits: 1, ..usual() });
    let busy = gate.work(0, code("sh"));
    let gone = gate.enter(1, code("sh"));
    gate.want(1, gone);
    gate.leave(1, gone);
    assert_eq!((gate.leave(0, busy), gate.counts().wanting), (vec![], 0));
    assert!(gate.has_permit(0) && !gate.has_deadline());
}

#[test]
fn a_session_is_evicted_before_its_own_next_call_comes_in_once_its_slice_is_over() {
    let mut gate = Stand::new(GateBounds { permits: 1, ..usual() });
    let first = gate.work(0, code("sh"));
    let (second, _) = gate.ask(0, code("sh"));
    let other = gate.enter(1, code("sh"));
    gate.want(1, other);
    gate.wait(SLICE - SECOND);
    let actions = gate.leave(0, first);
    assert_eq!((entered(&actions), released(&actions)), (vec![second], vec![]), "it is spared");
    let (third, _) = gate.ask(0, code("sh"));
    gate.wait(SECOND);
    let actions = gate.leave(0, second);
    assert_eq!(released(&actions), [(key(0), ReleaseReason::Evicted)]);
    assert_eq!(entered(&actions), [], "its containers go first");
    let actions = gate.finish_all();
    assert_eq!((granted(&actions), entered(&actions)), (vec![other], vec![third]));
}

#[test]
fn a_wait_for_a_permit_ends_at_the_calls_one_deadline_and_the_queue_has_its_bound() {
    let mut gate = Stand::new(GateBounds { permits: 1, permit_queue: 1, ..usual() });
    gate.work(0, code("sh"));
    let holds = gate.enter(1, code("sh"));
    gate.wait(SECOND);
    let (waits, _) = gate.ask(1, code("sh"));
    gate.wait(SECOND * 60);
    gate.leave(1, holds);
    assert!(gate.is_in(1, waits));
    gate.want(1, waits);
    let more = gate.enter(2, code("sh"));
    assert_eq!(denied(&gate.want(2, more)), [(more, Denial::PermitQueueFull(1))]);
    assert_eq!(denied(&gate.wait(SECOND * 29)), []);
    assert_eq!(
        denied(&gate.wait(SECOND)),
        [(waits, Denial::PermitTooLate)],
        "90 s after it asked for its turn"
    );
}

#[test]
fn a_free_permit_is_granted_even_if_the_time_to_wait_is_over() {
    let mut gate = Stand::new(GateBounds { permits: 1, ..usual() });
    let first = gate.enter(0, code("sh"));
    gate.wait(usual().wait * 2);
    assert_eq!(granted(&gate.want(0, first)), [first]);
    let second = gate.enter(1, code("sh"));
    gate.wait(usual().wait);
    gate.leave(0, first);
    assert_eq!(denied(&gate.want(1, second)), [(second, Denial::PermitTooLate)]);
    assert!(gate.has_permit(0), "nobody is evicted for a call that could do nothing with it");
}

#[test]
fn the_time_for_which_a_call_was_held_back_does_not_count() {
    let mut gate = Stand::new(GateBounds { permits: 1, ..usual() });
    let first = gate.enter(0, code("sh"));
    assert_eq!(granted(&gate.want(0, first)), [first]);
    let held = gate.enter(1, code("sh"));
    gate.wait(usual().wait);
    gate.send(Event::Delay { key: key(1), call: held, by: usual().wait });
    assert!(denied(&gate.want(1, held)).is_empty(), "it waits as long as any other call");
    assert_eq!(denied(&gate.wait(usual().wait)), [(held, Denial::PermitTooLate)]);
}

#[test]
fn nobody_waits_or_is_evicted_where_the_configuration_says_so() {
    let mut gate = Stand::new(GateBounds { permits: 1, evicts: false, ..usual() });
    let first = gate.work(0, code("sh"));
    gate.leave(0, first);
    let second = gate.enter(1, code("sh"));
    assert_eq!(denied(&gate.want(1, second)), [(second, Denial::NoEviction)]);
    assert_eq!(gate.send(Event::PoolFull), []);
    assert!(gate.has_permit(0));
}

#[test]
fn a_container_of_an_earlier_daemon_gets_a_free_permit_and_evicts_nobody() {
    let mut gate = Stand::new(GateBounds { permits: 1, ..usual() });
    for of in [0, 1] {
        gate.open(of, true);
        gate.finish_all();
    }
    let [first, second] = [gate.call(), gate.call()];
    let want = |of, call| Event::Want { key: key(of), call, waits: false, tenant: TenantShare::default() };
    assert_eq!(granted(&gate.send(want(0, first))), [first]);
    let actions = gate.send(want(1, second));
    assert_eq!((denied(&actions), released(&actions)), (vec![(second, Denial::PermitTooLate)], vec![]));
}

#[test]
fn a_session_that_rests_is_evicted_for_a_container_that_cannot_be_started() {
    let mut gate = gate();
    let [rests, _works] = [gate.work(0, code("sh")), gate.work(1, code("python"))];
    assert_eq!(gate.send(Event::PoolFull), [], "nobody rests");
    gate.leave(0, rests);
    let actions = gate.send(Event::PoolFull);
    assert_eq!(released(&actions), [(key(0), ReleaseReason::Evicted)]);
    gate.finish_all();
    assert_eq!(gate.send(Event::PoolFull), [], "nobody else rests");
}

#[test]
fn a_session_that_comes_to_rest_is_counted_if_it_can_be_evicted() {
    let mut gate = gate();
    let (first, second) = (gate.enter(0, code("sh")), gate.work(1, code("sh")));
    gate.leave(0, first);
    assert_eq!(gate.rests(), 0, "it has no permit");
    let (next, _) = gate.ask(1, code("sh"));
    gate.leave(1, second);
    assert_eq!(gate.rests(), 0, "the next call is in");
    gate.leave(1, next);
    assert_eq!(gate.rests(), 1);
    // A container of an earlier daemon.
    let call = gate.call();
    gate.send(Event::Want { key: key(0), call, waits: false, tenant: TenantShare::default() });
    assert_eq!(gate.rests(), 2);
}

#[test]
fn a_lost_container_is_dropped_once_its_session_rests() {
    let mut gate = gate();
    let first = gate.work(0, code("sh"));
    assert_eq!(gate.send(Event::Lost { key: key(0) }), [], "a call is in");
    let (second, _) = gate.ask(0, code("sh"));
    assert_eq!(entered(&gate.leave(0, first)), [second], "the next call sees to it itself");
    let actions = gate.leave(0, second);
    assert_eq!(actions, [super::super::Action::DropLost { key: key(0) }]);
    gate.finish_all();
    assert!(!gate.has_permit(0));
}

#[test]
fn a_turn_that_begins_while_somebody_waits_to_close_is_cancelled_at_once() {
    let mut gate = gate();
    let first = gate.enter(0, code("sh"));
    let (upload, _) = gate.ask(0, TurnKind::Whole);
    gate.close(0, false);
    let actions = gate.leave(0, first);
    assert_eq!((entered(&actions), cancelled(&actions)), (vec![upload], vec![upload]));
}
