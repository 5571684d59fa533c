//! The sums of tenants at work, compared with a look at each of them.

use proptest::collection::vec;
use proptest::prelude::*;

use super::account::AT_WORK;
use super::tests::{LONG, MS, least, spend, tenant};
use super::*;

#[test]
fn the_others_of_a_tenant_are_all_at_work_without_it() {
    let (long_ago, operator) = (Instant::now(), TenantShare { is_operator: true, ..tenant(2, 5) });
    let now = long_ago + AT_WORK;
    let mut core = CreditCore::new(2);
    core.ease(least());
    core.heard(tenant(3, 7), long_ago);
    core.heard(tenant(0, 1), now);
    core.heard(operator, now);
    spend(&mut core, tenant(1, 3), now);
    assert!(!core.ask(tenant(1, 3), false, LONG, now).1);
    assert!(core.ask(tenant(4, 2), false, LONG, now).1);
    let sums = |all: AtWork| (all.count, all.weight, all.short, all.sparing);
    let all = core.at_work(now);
    assert_eq!(sums(all), (3, 6.0, 3.0, 2));
    for (tenant, account) in &core.accounts {
        assert_eq!(sums(all.without(account, now)), sums(core.others(*tenant, now)), "{tenant:?}");
    }
}

impl CreditCore {
    /// What [`CreditCore::fill`] does, looking at all others for each tenant anew.
    fn fill_one_by_one(&mut self, now: Instant) -> Filled {
        self.accounts.retain(|_, account| account.is_at_work(now) || !account.is_as_new());
        let mut filled = Filled::default();
        for share in self.accounts.values().map(|account| account.share).collect::<Vec<_>>() {
            self.refill(share.id, now);
            let few = self.few(share, self.others(share.id, now));
            let account = self.accounts.get_mut(&share.id).unwrap();
            filled.begin.extend(std::iter::from_fn(|| account.begin_next(few, now)));
            filled.refused.extend(account.refuse(now));
        }
        filled
    }
}

proptest! {
    #[test]
    fn all_are_filled_as_if_one_after_the_other(
        events in vec((0..4_u32, 0..12_u32, 0..200_u32, 0.0..2.0_f64), 40..300),
    ) {
        let begun = Instant::now();
        let (mut together, mut alone) = (CreditCore::new(2), CreditCore::new(2));
        let (mut now, mut ids) = (begun, Vec::new());
        together.ease(least());
        alone.ease(least());
        for (of, what, ms, seconds) in events {
            now += MS * ms;
            let share = TenantShare { is_operator: of == 3, ..tenant(of, of + 1) };
            let mut each = |act: &mut dyn FnMut(&mut CreditCore)| [&mut together, &mut alone].map(act);
            match what {
                0..3 => ids.push((share.id, each(&mut |core| {
                    let _ = core.ask(share, of % 2 == 0, LONG, now);
                }), together.last)),
                // One floods: only for such a tenant does it matter at once what became of the others.
                6 if ids.len() < 40 => for _ in 0..12 {
                    each(&mut |core| {
                        let _ = core.ask(tenant(2, 3), false, LONG, now);
                    });
                },
                3 => drop(each(&mut |core| core.heard(share, now))),
                4 => {
                    let ease = if ms % 4 == 0 { Ease::of_programs() } else { least() };
                    each(&mut |core| core.ease(ease));
                }
                5 => if let Some((tenant, _, id)) = ids.pop() {
                    each(&mut |core| core.end(tenant, CreditId(id), now));
                },
                // Most of what they have is spent by the programs that asked last.
                _ => if let Some((tenant, _, id)) = ids.iter().rev().nth(ms as usize % 8).copied() {
                    each(&mut |core| core.used(tenant, CreditId(id), seconds, now));
                },
            }
            let filled = together.fill(now);
            prop_assert_eq!(filled, alone.fill_one_by_one(now));
            let left = |core: &CreditCore| core.accounts.values().map(|one| one.left).collect::<Vec<_>>();
            prop_assert_eq!(left(&together), left(&alone));
        }
    }
}
