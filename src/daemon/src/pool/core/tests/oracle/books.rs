//! The oracle's book-keeping: what time and each event change, told in its own words. It must never judge.

use std::time::{Duration, Instant};

use super::super::super::{Event, RawPoolSettings, Refusal, StartFailure};
use super::{CONDEMNED, Held, Oracle, Phase, Record, Waiting};

impl Oracle {
    pub(super) fn time_has_passed(&mut self, now: Instant) {
        let full = self.members.len() >= self.settings.max_members as usize;
        self.late.clear();
        for w in &self.waiters {
            if now >= w.asked + self.settings.wait {
                let refusal = match (self.runners[&w.runner].last, full) {
                    (Some(last), _) => Refusal::StartFailing { last },
                    (None, true) => Refusal::Full,
                    (None, false) => Refusal::WaitedTooLong { waited: now - w.asked },
                };
                self.late.insert(w.id, refusal);
            }
        }
        self.due.clear();
        for (&id, member) in &mut self.members {
            let failures = match member.phase {
                Phase::Idle { armed } if now >= armed + self.settings.idle_ttl => 0,
                Phase::Ending { failures, retry: Some(at), .. } if now >= at => failures,
                Phase::Starting { .. } | Phase::Idle { .. } | Phase::Leased | Phase::Ending { .. } => {
                    continue;
                }
            };
            // Before the event, whatever that is.
            member.phase = Phase::Ending { asked: true, failures, retry: None };
            self.due.insert(id);
        }
        for record in self.runners.values_mut() {
            record.failed_until = record.failed_until.filter(|at| *at > now);
            record.crashed_until = record.crashed_until.filter(|at| *at > now);
        }
    }

    pub(super) fn note(&mut self, event: Event, now: Instant) {
        match event {
            Event::RunnerAdded { runner } => {
                self.runners.entry(runner).or_default();
            }
            Event::RunnerRemoved { runner } => {
                if self.runners.remove(&runner).is_some() {
                    self.write_off(|m| m.runner == runner);
                }
            }
            Event::Adopted { member, runner, uid, leased } => {
                if self.seen.last().is_some_and(|last| *last >= member) {
                    return;
                }
                let taken = self.members.values().any(|m| m.uid == uid.0);
                let fits = !taken && self.free() > 0 && self.settings.uid_range.contains(&uid.0);
                let phase = match leased {
                    true if fits => Phase::Leased,
                    false if fits && self.up && !self.closing => Phase::Idle { armed: now },
                    true | false => CONDEMNED,
                };
                self.seen.insert(member);
                self.members.insert(member, Held { runner, uid: uid.0, phase });
            }
            Event::Request { waiter, runner } => {
                if !self.waiters.iter().any(|w| w.id == waiter) {
                    self.waiters.push(Waiting { id: waiter, runner, asked: now });
                }
            }
            Event::Abandon { waiter } => {
                self.waiters.retain(|w| w.id != waiter || self.late.contains_key(&waiter));
            }
            Event::Started { member } => {
                let Some(held) = self.members.get_mut(&member) else { return };
                let Phase::Starting { wanted, died } = held.phase else { return };
                if wanted && !died {
                    held.phase = Phase::Idle { armed: now };
                    let record = self.runners.get_mut(&held.runner).expect("a wanted start has its runner");
                    (record.failures, record.last, record.failed_until) = (0, None, None);
                } else if wanted {
                    self.note(Event::StartFailed { member, failure: StartFailure::Died }, now);
                } else {
                    held.phase = CONDEMNED;
                }
            }
            Event::StartFailed { member, failure } => {
                let Some(held) = self.members.get_mut(&member) else { return };
                let Phase::Starting { wanted, .. } = held.phase else { return };
                held.phase = CONDEMNED;
                if wanted {
                    let record = self.runners.get_mut(&held.runner).expect("a wanted start has its runner");
                    record.failures += 1;
                    record.last = Some(failure);
                    record.failed_until = Some(now + doubled(&self.settings, record.failures));
                }
            }
            Event::Died { member } => {
                let Some(held) = self.members.get_mut(&member) else { return };
                match &mut held.phase {
                    Phase::Starting { died, .. } => *died = true,
                    Phase::Idle { armed } => {
                        if now < *armed + self.settings.backoff.max {
                            // An adopted one can be there before its runner.
                            if let Some(record) = self.runners.get_mut(&held.runner) {
                                record.crashed_until = Some(now + self.settings.backoff.first);
                            }
                        }
                        held.phase = CONDEMNED;
                    }
                    Phase::Leased | Phase::Ending { .. } => {}
                }
            }
            Event::Released { member } => {
                if let Some(held) = self.members.get_mut(&member)
                    && held.phase == Phase::Leased
                {
                    held.phase = CONDEMNED;
                }
            }
            Event::Destroyed { member } => {
                if self.members.get(&member).is_some_and(|m| matches!(m.phase, Phase::Ending { .. })) {
                    self.members.remove(&member);
                }
            }
            Event::DestroyFailed { member } => {
                if let Some(Held { phase: Phase::Ending { asked, failures, retry }, .. }) =
                    self.members.get_mut(&member)
                    && *asked
                {
                    *failures += 1;
                    *asked = false;
                    *retry = self.up.then(|| now + doubled(&self.settings, *failures));
                }
            }
            Event::EngineDown => {
                self.up = false;
                self.write_off(|_| true);
                for held in self.members.values_mut() {
                    if let Phase::Ending { retry, .. } = &mut held.phase {
                        *retry = None;
                    }
                }
            }
            Event::EngineUp => {
                if !self.up {
                    self.up = true;
                    for record in self.runners.values_mut() {
                        *record = Record { passed_over: record.passed_over, ..Record::default() };
                    }
                }
            }
            Event::Tick => {}
            Event::Shutdown => {
                self.closing = true;
                self.write_off(|_| true);
            }
        }
    }

    fn write_off(&mut self, whose: impl Fn(&Held) -> bool) {
        for held in self.members.values_mut().filter(|m| whose(m)) {
            match &mut held.phase {
                Phase::Starting { wanted, .. } => *wanted = false,
                Phase::Idle { .. } => held.phase = CONDEMNED,
                Phase::Leased | Phase::Ending { .. } => {}
            }
        }
    }
}

/// The pause after so many failures, by doubling step by step.
fn doubled(settings: &RawPoolSettings, failures: u32) -> Duration {
    let mut pause = settings.backoff.first;
    for _ in 1..failures {
        pause = (pause * 2).min(settings.backoff.max);
    }
    pause.min(settings.backoff.max)
}
