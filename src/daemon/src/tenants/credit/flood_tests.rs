//! Floods: callers that want their programs to run all the time, beside a tenant that has credits.

use super::tests::{LONG, MS, least, short, tenant};
use super::*;

/// Callers of one tenant that want their programs to run all the time.
struct Callers {
    of: TenantShare,
    count: usize,
    /// How long each program computes.
    takes: Duration,
    /// Whether each needs a container.
    new: bool,
    running: Vec<(CreditId, Duration)>,
    waiting: Vec<CreditId>,
    ended: usize,
    refused: usize,
}

impl Callers {
    fn new(of: TenantShare, count: usize, takes: Duration, new: bool) -> Self {
        Self { of, count, takes, new, running: Vec::new(), waiting: Vec::new(), ended: 0, refused: 0 }
    }

    fn begins(&mut self, core: &mut CreditCore, id: CreditId, now: Instant) {
        if self.new {
            core.container(self.of.id, id, now);
        }
        core.sent(self.of.id, id, now);
        self.running.push((id, Duration::ZERO));
    }

    fn ask(&mut self, core: &mut CreditCore, now: Instant) {
        while self.running.len() + self.waiting.len() < self.count {
            match core.ask(self.of, self.new, LONG, now) {
                (id, true) => self.begins(core, id, now),
                (id, false) => self.waiting.push(id),
            }
        }
    }

    /// Ten milliseconds in which each of the first programs has a processor, on so many.
    fn go_on(&mut self, core: &mut CreditCore, filled: &Filled, processors: usize, now: Instant) {
        let take = |waiting: &mut Vec<CreditId>, told: &[CreditId]| -> Vec<CreditId> {
            waiting.extract_if(.., |id| told.contains(id)).collect()
        };
        self.refused += take(&mut self.waiting, &filled.refused).len();
        for id in take(&mut self.waiting, &filled.begin) {
            self.begins(core, id, now);
        }
        for (id, had) in self.running.iter_mut().take(processors) {
            *had += MS * 10;
            core.used(self.of.id, *id, 0.01, now);
        }
        let before = self.running.len();
        self.running.retain(|(id, had)| {
            if *had >= self.takes {
                core.end(self.of.id, *id, now);
            }
            *had < self.takes
        });
        self.ended += before - self.running.len();
    }
}

/// How many programs of these callers end in so many seconds on two processors, beside the tenant 0, and how
/// many are refused. Somebody looks at the processors four times a second, and sees them as they are.
fn ended(core: &mut CreditCore, mut callers: Callers, seconds: u32) -> (usize, usize) {
    let begun = Instant::now();
    for step in 0..seconds * 100 {
        let now = begun + MS * 10 * step;
        core.heard(tenant(0, 1), now);
        if step.is_multiple_of(25) {
            core.ease(core.ease);
        }
        callers.ask(core, now);
        let filled = core.fill(now);
        callers.go_on(core, &filled, 2, now);
    }
    (callers.ended, callers.refused)
}

fn flood(takes: Duration, new: bool) -> Callers {
    Callers::new(tenant(1, 1), 64, takes, new)
}

#[test]
fn a_flood_has_a_part_of_the_processors_that_is_smaller_the_longer_they_are_short() {
    let now = Instant::now();
    // The flood has an eighth of two processors, and what it had saved; and each second a late one begins.
    let (least, _) = ended(&mut short(now), flood(MS * 250, false), 10);
    assert!((24..=36).contains(&least), "{least}");
    let mut core = short(now);
    core.ease((0..2).fold(Ease::of_programs(), |ease, _| ease.after(true, Some(1.0))));
    let (more, _) = ended(&mut core, flood(MS * 250, false), 10);
    assert!((40..=48).contains(&more), "{more}");
    let mut core = short(now);
    core.ease(Ease::of_programs());
    let (all, _) = ended(&mut core, flood(MS * 250, false), 10);
    assert!((75..=80).contains(&all), "they are not short: {all}");
}

#[test]
fn containers_are_paid_for() {
    let (new, _) = ended(&mut short(Instant::now()), flood(MS * 10, true), 10);
    assert!((14..=24).contains(&new), "a quarter of a second each: {new}");
    let (known, _) = ended(&mut short(Instant::now()), flood(MS * 10, false), 10);
    assert!(known > 400, "{known}");
}

#[test]
fn more_callers_do_not_have_more_and_those_whose_patience_is_over_are_refused() {
    let many = Callers { count: 400, ..flood(MS * 250, false) };
    let (all, refused) = ended(&mut short(Instant::now()), many, 40);
    assert!((50..=75).contains(&all) && refused > 500, "{all} {refused}");
}

#[test]
fn one_that_has_spent_its_credits_goes_on_with_its_part_unless_it_floods() {
    // Three callers, which want a whole processor beside a tenant that leaves its own unused.
    let few = Callers { count: 3, ..flood(MS * 300, false) };
    let (few, _) = ended(&mut short(Instant::now()), few, 20);
    assert!((64..=78).contains(&few), "one of two processors, and what was saved: {few}");
    let (many, _) = ended(&mut short(Instant::now()), flood(MS * 300, false), 20);
    assert!((36..=48).contains(&many), "half a processor, and what was saved: {many}");
}

#[test]
fn two_floods_have_all_that_there_is() {
    let now = Instant::now();
    let mut core = CreditCore::new(2);
    core.ease(least());
    let mut both = [(1, 1), (2, 3)].map(|(id, weight)| Callers::new(tenant(id, weight), 64, MS * 250, false));
    both.iter().for_each(|one| core.heard(one.of, now));
    for step in 0..2000 {
        let at = now + MS * 10 * step;
        // Each has as many processors as it wants: the credits are what divides them.
        both.iter_mut().for_each(|one| one.ask(&mut core, at));
        let filled = core.fill(at);
        both.iter_mut().for_each(|one| one.go_on(&mut core, &filled, 2, at));
    }
    let [one, three] = both.map(|callers| callers.ended);
    assert!((40..=60).contains(&one) && (115..=150).contains(&three), "{one} {three}");
}
