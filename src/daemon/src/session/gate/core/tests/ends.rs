//! One example for each rule about how sessions begin and end, in the order of the module's documentation.

use std::time::Duration;

use super::super::super::message::{Denial, ReleaseReason};
use super::super::{Action, Event, TurnKind};
use super::stand::{Stand, cancelled, closed, code, command, denied, entered, key, released};
use super::usual;
use crate::tenants::TenantShare;

const SECOND: Duration = Duration::from_secs(1);

fn gate() -> Stand {
    Stand::new(usual())
}

/// A gate with session 0, which has files, containers and nobody in.
fn with_session() -> Stand {
    let mut gate = gate();
    gate.stored.insert(key(0), false);
    let call = gate.work(0, code("sh"));
    gate.leave(0, call);
    gate
}

#[test]
fn closing_cancels_what_runs_denies_the_programs_that_wait_and_then_drops_the_containers() {
    let mut gate = gate();
    let runs = gate.work(0, command("sh"));
    let (whole, _) = gate.ask(0, TurnKind::Whole);
    let [(waits, _), (also, _)] = [gate.ask(0, code("sh")), gate.ask(0, command("python"))];
    let (closer, actions) = gate.close(0, false);
    assert_eq!(cancelled(&actions), [runs]);
    assert_eq!(denied(&actions), [(waits, Denial::Closed), (also, Denial::Closed)]);
    assert_eq!(entered(&gate.leave(0, runs)), [whole], "a change of the files that came before is made");
    let actions = gate.leave(0, whole);
    assert_eq!(released(&actions), [(key(0), ReleaseReason::Closed)]);
    assert_eq!(gate.finish(&key(0), true).last(), Some(&Action::KeepClosed { key: key(0) }));
    assert_eq!(closed(&gate.finish_all()), [(closer, true)]);
    assert!(!gate.has_permit(0));
}

#[test]
fn a_call_that_comes_while_a_session_is_being_closed_finds_it_again_and_a_command_is_cancelled() {
    let mut gate = gate();
    let runs = gate.work(0, code("sh"));
    let (closer, _) = gate.close(0, false);
    let (later, actions) = gate.ask(0, code("sh"));
    assert_eq!(denied(&actions), []);
    let (late, actions) = gate.ask(0, command("sh"));
    assert_eq!(denied(&actions), [(late, Denial::Closed)]);
    let (busy, actions) = gate.try_ask(0, code("sh"));
    assert_eq!(denied(&actions), [(busy, Denial::Busy)]);
    gate.leave(0, runs);
    let actions = gate.finish_all();
    assert_eq!((closed(&actions), entered(&actions)), (vec![(closer, true)], vec![later]));
    assert_eq!(cancelled(&actions), [], "it is open again");
}

#[test]
fn a_program_of_an_earlier_daemon_keeps_its_place_and_is_told_to_end() {
    let mut gate = gate();
    let runs = gate.work(0, command("sh"));
    let kind = TurnKind::Resumed { language: "python".to_owned(), is_command: true, is_alone: false };
    let (resumed, _) = gate.ask(0, kind);
    let (_, actions) = gate.close(0, false);
    assert_eq!(denied(&actions), [], "its end must be heard");
    let actions = gate.leave(0, runs);
    assert_eq!((entered(&actions), cancelled(&actions)), (vec![resumed], vec![resumed]));
}

#[test]
fn a_call_that_closes_waits_without_a_deadline_and_is_not_counted() {
    let mut gate = gate();
    let runs = gate.work(0, code("sh"));
    for _ in 0..usual().queue {
        gate.ask(0, TurnKind::Whole);
    }
    let (closer, actions) = gate.close(0, false);
    assert_eq!(denied(&actions), []);
    assert_eq!(gate.counts().waiting, usual().queue);
    assert_eq!(denied(&gate.wait(usual().wait * 3)).len(), usual().queue);
    assert!(gate.waits(closer));
    gate.leave(0, runs);
    assert_eq!(closed(&gate.finish_all()), [(closer, true)]);
}

#[test]
fn a_call_that_closes_and_goes_away_closes_nothing() {
    let mut gate = gate();
    let runs = gate.work(0, code("sh"));
    let (closer, _) = gate.close(0, false);
    gate.abandon(0, closer);
    assert_eq!(gate.leave(0, runs), []);
    assert!(gate.has_permit(0));
}

#[test]
fn what_is_not_there_or_closed_already_is_not_closed_again() {
    let mut gate = gate();
    let (none, _) = gate.close(0, true);
    assert_eq!(closed(&gate.finish_all()), [(none, false)], "there is no such session");
    assert_eq!(gate.counts().sessions, 0, "and asking for it makes none");
    let mut gate = with_session();
    let [(first, _), (second, _)] = [gate.close(0, false), gate.close(0, false)];
    assert_eq!(closed(&gate.finish_all()), [(first, true), (second, false)]);
    let (deletes, _) = gate.close(0, true);
    assert_eq!(closed(&gate.finish_all()), [(deletes, true)], "its files were still there");
    assert_eq!(gate.counts().sessions, 0);
}

#[test]
fn a_session_that_was_closed_before_a_restart_is_closed() {
    let mut gate = gate();
    gate.stored.insert(key(0), true);
    let (again, _) = gate.close(0, false);
    assert_eq!(closed(&gate.finish_all()), [(again, false)]);
    let call = gate.enter(0, code("sh"));
    gate.leave(0, call);
    let (now, _) = gate.close(0, false);
    assert_eq!(closed(&gate.finish_all()), [(now, true)], "it was used meanwhile");
}

#[test]
fn a_session_with_containers_is_there_to_be_closed_whatever_the_store_says() {
    let mut gate = gate();
    gate.stored.insert(key(0), true);
    gate.open(0, true);
    gate.finish_all();
    let adopts = gate.call();
    gate.send(Event::Want { key: key(0), call: adopts, waits: false, tenant: TenantShare::default() });
    let (closer, actions) = gate.close(0, false);
    assert_eq!(released(&actions), [(key(0), ReleaseReason::Closed)]);
    assert_eq!(closed(&gate.finish_all()), [(closer, true)]);
}

#[test]
fn a_call_that_waits_in_a_deleted_session_comes_into_a_new_one_with_its_place_and_its_deadline() {
    let mut gate = with_session();
    let first = gate.enter(0, TurnKind::Whole);
    let (closer, _) = gate.close(0, true);
    gate.wait(SECOND);
    let [(waits, _), (behind, _)] = [gate.ask(0, code("sh")), gate.ask(0, code("sh"))];
    gate.leave(0, first);
    gate.finish(&key(0), true);
    let deleted = gate.finish(&key(0), true);
    assert_eq!(
        deleted,
        [
            Action::Closed { key: key(0), call: closer, found: true },
            Action::Forget { key: key(0) },
            Action::Load { key: key(0) },
        ],
        "nobody is let in before the new session is there"
    );
    assert_eq!(entered(&gate.finish_all()), [waits]);
    assert_eq!(denied(&gate.wait(usual().wait)), [(behind, Denial::TurnTooLate)], "from its first asking");
}

#[test]
fn a_session_whose_files_could_not_be_deleted_stays() {
    let mut gate = with_session();
    let (closer, _) = gate.close(0, true);
    let (waits, _) = gate.ask(0, code("sh"));
    gate.finish(&key(0), true);
    let actions = gate.finish(&key(0), false);
    assert_eq!((denied(&actions), entered(&actions)), (vec![(closer, Denial::StoreFailed)], vec![waits]));
}

#[test]
fn nobody_looks_at_a_session_that_is_being_deleted() {
    let mut gate = with_session();
    gate.close(0, true);
    let [(looks, actions), (makes, _)] = [gate.open(0, false), gate.open(0, true)];
    assert_eq!(actions, []);
    let actions = gate.finish_all();
    for call in [looks, makes] {
        assert!(
            actions.contains(&Action::Opened { key: key(0), call }),
            "one of the two makes it: {actions:?}"
        );
    }
}

#[test]
fn a_session_is_found_if_something_is_stored_or_a_call_used_it() {
    let mut gate = gate();
    let (nothing, _) = gate.open(0, false);
    assert_eq!(
        gate.finish_all(),
        [Action::NotFound { key: key(0), call: nothing }, Action::Forget { key: key(0) }]
    );
    gate.stored.insert(key(1), true);
    let (stored, _) = gate.open(1, false);
    assert_eq!(gate.finish_all(), [Action::Opened { key: key(1), call: stored }]);
    let call = gate.enter(0, code("sh"));
    let (used, actions) = gate.open(0, false);
    assert_eq!(
        actions,
        [Action::Opened { key: key(0), call: used }],
        "at once, also beside a call that is in"
    );
    gate.leave(0, call);
}

#[test]
fn a_load_that_fails_is_told_to_one_call_and_tried_again_for_the_next() {
    let mut gate = gate();
    let [(first, _), (second, _)] = [gate.open(0, true), gate.ask(0, code("sh"))];
    let actions = gate.finish(&key(0), false);
    assert_eq!(denied(&actions), [(first, Denial::StoreFailed)]);
    assert_eq!(actions.last(), Some(&Action::Load { key: key(0) }));
    assert_eq!(denied(&gate.finish(&key(0), false)), [(second, Denial::StoreFailed)]);
    assert_eq!(gate.counts().sessions, 0);
    assert!(!gate.has_deadline());
}

#[test]
fn a_session_that_rests_for_the_whole_ttl_gives_its_containers_up_and_is_forgotten() {
    let mut gate = with_session();
    gate.send(Event::StartSweeping);
    gate.finish_all();
    gate.send(Event::Unused { keys: Vec::new() });
    let before = gate.wait(usual().ttl - SECOND);
    assert_eq!(released(&before), []);
    assert_eq!(released(&gate.wait(SECOND)), [(key(0), ReleaseReason::Idle)]);
    gate.finish_all();
    assert_eq!((gate.counts().permits, gate.counts().sessions), (0, 0));
}

#[test]
fn a_sweep_comes_at_once_and_then_every_so_often() {
    let mut gate = gate();
    let first = gate.send(Event::StartSweeping);
    assert_eq!(first, [Action::AskHolders, Action::LookForUnused]);
    assert_eq!(gate.wait(usual().sweep - SECOND), []);
    assert_eq!(gate.wait(SECOND), [Action::AskHolders], "the last look is not over yet");
    gate.send(Event::Unused { keys: Vec::new() });
    assert_eq!(gate.wait(usual().sweep), first);
}

#[test]
fn a_session_is_not_forgotten_while_it_is_held_used_or_has_news() {
    let mut gate = gate();
    let calls = [0, 1, 2].map(|of| gate.enter(of, code("sh")));
    gate.leave(0, calls[0]);
    gate.leave(1, calls[1]);
    gate.held.insert(key(0));
    gate.untold.insert(key(1));
    assert_eq!(gate.say_holders(), []);
    gate.held.clear();
    assert_eq!(gate.say_holders(), [Action::Forget { key: key(0) }]);
    gate.wait(usual().ttl);
    assert_eq!(gate.say_holders(), [Action::Forget { key: key(1) }], "news are kept for so long");
    assert!(gate.is_in(2, calls[2]));
}

#[test]
fn files_expire_only_where_nobody_is_in_waits_or_came_since_the_look() {
    let mut gate = gate();
    let unused = gate.enter(0, code("sh"));
    gate.leave(0, unused);
    let [inside, held] = [gate.enter(1, code("sh")), gate.work(2, code("sh"))];
    gate.leave(2, held);
    gate.wait(SECOND);
    gate.send(Event::StartSweeping);
    gate.held.extend([0, 1, 2, 3].map(key));
    gate.finish_all();
    gate.wait(SECOND);
    gate.stored.insert(key(3), false);
    gate.open(3, false);
    gate.finish_all();
    let actions = gate.send(Event::Unused { keys: [0, 1, 2, 3, 4].map(key).into() });
    let deletes = [0, 4].map(|of| Action::Delete { key: key(of), call: None });
    assert_eq!(actions, deletes, "1 has a call in it, 2 has containers, 3 was looked at");
    let (waits, _) = gate.ask(4, code("sh"));
    assert!(gate.waits(waits), "until the files are gone");
    assert_eq!(entered(&gate.finish_all()), [waits]);
    assert!(gate.is_in(1, inside));
}

#[test]
fn a_session_that_could_not_expire_is_there_as_before() {
    let mut gate = gate();
    let call = gate.enter(0, code("sh"));
    gate.leave(0, call);
    gate.wait(SECOND);
    gate.send(Event::StartSweeping);
    gate.held.insert(key(0));
    gate.send(Event::Unused { keys: [0, 1].map(key).into() });
    let [(waits, _), (other, _)] = [gate.ask(0, code("sh")), gate.ask(1, code("sh"))];
    assert_eq!(entered(&gate.finish(&key(0), false)), [waits]);
    assert_eq!(gate.finish(&key(1), false), [Action::Load { key: key(1) }]);
    assert_eq!(entered(&gate.finish_all()), [other]);
}

#[test]
fn at_the_end_whoever_waits_is_told_and_containers_go_as_their_sessions_come_to_rest() {
    let mut gate = gate();
    let rests = gate.work(0, code("sh"));
    gate.leave(0, rests);
    let works = gate.work(1, code("sh"));
    let (waits, _) = gate.ask(1, code("sh"));
    let actions = gate.send(Event::Shutdown);
    assert_eq!(denied(&actions), [(waits, Denial::ShuttingDown)]);
    assert_eq!(released(&actions), [(key(0), ReleaseReason::Shutdown)]);
    let (late, actions) = gate.ask(2, code("sh"));
    assert_eq!(denied(&actions), [(late, Denial::ShuttingDown)]);
    gate.finish_all();
    assert!(!gate.is_quiet(), "one is at work");
    assert_eq!(released(&gate.leave(1, works)), [(key(1), ReleaseReason::Shutdown)]);
    gate.finish_all();
    assert!(gate.is_quiet() && !gate.has_deadline());
}

#[test]
fn at_the_end_whoever_waits_for_a_permit_is_told() {
    let mut gate = Stand::new(super::GateBounds { permits: 1, ..usual() });
    gate.work(0, code("sh"));
    let waits = gate.enter(1, code("sh"));
    gate.want(1, waits);
    assert_eq!(denied(&gate.send(Event::Shutdown)), [(waits, Denial::ShuttingDown)]);
    let late = gate.want(1, waits);
    assert_eq!(denied(&late), [(waits, Denial::ShuttingDown)]);
}
