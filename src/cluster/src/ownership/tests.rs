//! Each rule, and that a lease and a takeover never overlap, whatever is late.

use proptest::prelude::*;

use super::*;

const TERMS: Terms = Terms { lease: Duration::from_secs(5), margin: Duration::from_secs(2) };

fn s(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds)
}

#[test]
fn a_lease_counts_from_before_it_was_asked_for() {
    let mut lease = OwnerLease::new(TERMS);
    assert!(!lease.may_acknowledge(s(0.0)));
    assert!(lease.renewed(s(1.0), s(3.0)));
    assert!(lease.may_acknowledge(s(5.9)));
    assert!(!lease.may_acknowledge(s(6.0)), "counted from the answer");
}

#[test]
fn an_answer_that_comes_after_the_lease_would_have_ended_grants_nothing() {
    let mut lease = OwnerLease::new(TERMS);
    assert!(!lease.renewed(s(1.0), s(6.0)));
    assert!(!lease.may_acknowledge(s(6.0)));
}

#[test]
fn renewals_keep_the_epoch_and_a_gap_ends_it() {
    let mut lease = OwnerLease::new(TERMS);
    lease.renewed(s(0.0), s(0.1));
    let grant = Grant { fence: Fence::FIRST, epoch: lease.epoch() };
    assert!(!lease.renewed(s(4.0), s(4.1)));
    assert!(!lease.renewed(s(2.0), s(4.2)), "an older answer that comes later changes nothing");
    assert!(lease.owns(grant, s(8.9)));
    // Asked for while the lease held, answered when it did not: somebody may have taken the session between.
    assert!(lease.renewed(s(8.9), s(9.1)));
    assert!(lease.may_acknowledge(s(9.1)));
    assert!(!lease.owns(grant, s(9.1)));
}

#[test]
fn a_lease_that_was_given_up_is_over() {
    let mut lease = OwnerLease::new(TERMS);
    lease.renewed(s(0.0), s(0.1));
    lease.give_up();
    assert!(!lease.may_acknowledge(s(0.2)));
    assert!(!lease.renewed(s(0.2), s(0.3)));
    assert!(!lease.may_acknowledge(s(0.3)));
}

#[test]
fn after_an_outage_nobody_is_judged_before_each_has_had_the_time_to_renew() {
    let mut lease = OwnerLease::new(TERMS);
    lease.renewed(s(0.0), s(0.0));
    for at in [2.0, 4.0, 6.0] {
        lease.renewed(s(at), s(at));
    }
    assert!(!lease.may_judge(s(7.0)));
    assert!(lease.may_judge(s(7.1)));
    lease.renewed(s(20.0), s(20.0)); // the database was away
    assert!(!lease.may_judge(s(20.0)));
}

#[test]
fn a_takeover_waits_longer_than_lease_and_margin() {
    assert!(!may_take(s(7.0), TERMS));
    assert!(may_take(s(7.001), TERMS));
}

#[test]
fn a_session_goes_to_who_may_have_it_with_a_larger_fence() {
    let row = |node: &str, row_age| {
        let owner = Owner { node: node.to_owned(), fence: Fence(7) };
        Found::Row { owner, row_age }
    };
    let mine = Claimed::Mine(Fence(8));
    assert_eq!(claim(&Found::Nobody, "a", false, TERMS), Claimed::Mine(Fence::FIRST));
    assert_eq!(claim(&row("a", Some(s(0.0))), "a", false, TERMS), mine);
    assert_eq!(claim(&row("b", Some(s(0.0))), "a", true, TERMS), Claimed::Elsewhere);
    assert_eq!(claim(&row("b", Some(s(60.0))), "a", true, TERMS), mine);
    assert_eq!(claim(&row("b", Some(s(60.0))), "a", false, TERMS), Claimed::Elsewhere);
    assert_eq!(claim(&row("b", None), "a", false, TERMS), mine);
}

#[test]
fn only_a_later_start_takes_the_row_of_a_node() {
    let (former, present) = (Start(1), Start(2));
    assert!(former.may_join(None) && present.may_join(Some(former)));
    assert!(present.may_join(Some(present)), "a join that is sent again");
    assert!(!former.may_join(Some(present)), "a join that is late");
}

#[test]
fn a_write_needs_the_node_and_the_fence_of_the_row() {
    let owner = Owner { node: "a".to_owned(), fence: Fence(7) };
    assert!(owner.allows("a", Fence(7)));
    assert!(!owner.allows("a", Fence(6)));
    assert!(!owner.allows("a", Fence(8)));
    assert!(!owner.allows("b", Fence(7)));
}

proptest! {
    /// One node renews, with any delays there and back; the database notes when. Whenever it would let
    /// another node take over, this node neither acknowledges nor owns what it had, until it asks again.
    #[test]
    fn what_may_be_taken_is_never_acknowledged(
        delays in proptest::collection::vec((0u64..9_000, 0u64..9_000, 0u64..4_000), 1..30),
    ) {
        let ms = Duration::from_millis;
        // (asked, noted, answered), in any order of noting and answering.
        let mut asked = 0;
        let mut renewals = Vec::new();
        for (there, back, pause) in delays {
            renewals.push((asked, asked + there, asked + there + back));
            asked += pause;
        }
        let last = renewals.iter().map(|(_, _, answered)| *answered).max().unwrap_or(0) + 10_000;
        let mut lease = OwnerLease::new(TERMS);
        let mut noted_at: Option<u64> = None;
        let mut grant = None;
        for now in (0..last).step_by(50) {
            let within = |at: u64| at <= now && now < at + 50;
            for (_, noted, _) in renewals.iter().filter(|(_, noted, _)| within(*noted)) {
                noted_at = noted_at.max(Some(*noted));
            }
            // Taken at this moment, before any answer of this moment is heard.
            let age = noted_at.map(|noted| ms(now.saturating_sub(noted)));
            let takeable = age.is_some_and(|age| may_take(age, TERMS));
            if takeable {
                prop_assert!(!lease.may_acknowledge(ms(now)), "at {now}");
            }
            for (asked, _, _) in renewals.iter().filter(|(_, _, answered)| within(*answered)) {
                lease.renewed(ms(*asked), ms(now));
            }
            if takeable {
                // What was claimed before the takeover stays lost, whatever came since.
                prop_assert!(grant.is_none_or(|grant| !lease.owns(grant, ms(now))), "at {now}");
            }
            let is_old = |grant: Grant| grant.epoch != lease.epoch();
            if lease.may_acknowledge(ms(now)) && grant.is_none_or(is_old) {
                grant = Some(Grant { fence: Fence::FIRST, epoch: lease.epoch() });
            }
        }
    }
}
