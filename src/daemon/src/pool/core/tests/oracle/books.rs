//! The oracle's record: what time and each event change, in code of its own. It must never judge.

use std::time::{Duration, Instant};

use super::super::super::{LeaseRefusal, PoolEvent, RawPoolSettings, StartFailure};
use super::{CONDEMNED, Held, Oracle, Phase, Record, Waiting};

impl Oracle {
    pub(super) fn time_has_passed(&mut self, now: Instant) {
        let full = self.members.len() >= self.settings.max_members as usize;
        self.late.clear();
        for w in &self.waiters {
            if now >= w.asked + self.settings.wait {
                let refusal = match (self.runners[&w.runner].last, full) {
                    (Some(last), _) => LeaseRefusal::StartFailing { last },
                    (None, true) => LeaseRefusal::Full,
                    (None, false) => LeaseRefusal::WaitedTooLong { waited: now - w.asked },
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
            // Before the event, whatever the event is.
            member.phase = Phase::Ending { asked: true, failures, retry: None };
            self.due.insert(id);
        }
        for record in self.runners.values_mut() {
            record.failed_until = record.failed_until.filter(|at| *at > now);
            record.crashed_until = record.crashed_until.filter(|at| *at > now);
        }
    }

    pub(super) fn note(&mut self, event: PoolEvent, now: Instant) {
        match event {
            PoolEvent::RunnerAdded { runner, idle } => {
                self.runners.entry(runner).or_default().idle = idle;
            }
            // Whether a member is outdated is no business of these books: they know no replacement.
            PoolEvent::Outdated { .. } => {}
            PoolEvent::WorkspaceKept { runner, uid } => {
                self.runners.entry(runner).or_default().uid = Some(uid.0);
            }
            PoolEvent::RunnerRemoved { runner } => {
                if self.runners.remove(&runner).is_some() {
                    self.write_off(|m| m.runner == runner);
                }
            }
            PoolEvent::Adopted { member, runner, uid, leased } => {
                if self.seen.last().is_some_and(|last| *last >= member) {
                    return;
                }
                let taken = self.held().contains(&uid.0) || self.reserved().contains(&uid.0);
                let fits = !taken && self.free() > 0 && self.settings.uid_range.contains(&uid.0);
                let phase = match leased {
                    true if fits => Phase::Leased,
                    false if fits && self.up && !self.closing => Phase::Idle { armed: now },
                    true | false => CONDEMNED,
                };
                self.seen.insert(member);
                self.members.insert(member, Held { runner, uid: uid.0, phase });
            }
            PoolEvent::Request { waiter, runner, .. } => {
                if !self.waiters.iter().any(|w| w.id == waiter) {
                    self.waiters.push(Waiting { id: waiter, runner, asked: now });
                }
            }
            PoolEvent::Abandon { waiter } => {
                self.waiters.retain(|w| w.id != waiter || self.late.contains_key(&waiter));
            }
            PoolEvent::Started { member } => {
                let Some(held) = self.members.get_mut(&member) else { return };
                let Phase::Starting { wanted, died } = held.phase else { return };
                if wanted && !died {
                    held.phase = Phase::Idle { armed: now };
                    let record = self.runners.get_mut(&held.runner).expect("a wanted start has its runner");
                    (record.failures, record.last, record.failed_until) = (0, None, None);
                } else if wanted {
                    self.note(PoolEvent::StartFailed { member, failure: StartFailure::Died }, now);
                } else {
                    held.phase = CONDEMNED;
                }
            }
            PoolEvent::StartFailed { member, failure } => {
                let Some(held) = self.members.get_mut(&member) else { return };
                let Phase::Starting { wanted, .. } = held.phase else { return };
                held.phase = CONDEMNED;
                if wanted {
                    let record = self.runners.get_mut(&held.runner).expect("a wanted start has its runner");
                    record.failures += 1;
                    record.last = Some(failure);
                    let mut pause = doubled(&self.settings, record.failures);
                    if [StartFailure::Create, StartFailure::Start, StartFailure::Deadline].contains(&failure)
                    {
                        pause = pause.min(Duration::from_secs(2));
                    }
                    record.failed_until = Some(now + pause);
                }
            }
            PoolEvent::Died { member } => {
                let Some(held) = self.members.get_mut(&member) else { return };
                match &mut held.phase {
                    Phase::Starting { died, .. } => *died = true,
                    Phase::Idle { armed } => {
                        if now < *armed + self.settings.backoff.max {
                            // An adopted member can exist before its runner.
                            if let Some(record) = self.runners.get_mut(&held.runner) {
                                record.crashed_until = Some(now + self.settings.backoff.first);
                            }
                        }
                        held.phase = CONDEMNED;
                    }
                    Phase::Leased | Phase::Ending { .. } => {}
                }
            }
            PoolEvent::Released { member } => {
                if let Some(held) = self.members.get_mut(&member)
                    && held.phase == Phase::Leased
                {
                    held.phase = CONDEMNED;
                }
            }
            PoolEvent::Destroyed { member } => {
                if self.members.get(&member).is_some_and(|m| matches!(m.phase, Phase::Ending { .. })) {
                    self.members.remove(&member);
                }
            }
            PoolEvent::DestroyFailed { member } => {
                if let Some(Held { phase: Phase::Ending { asked, failures, retry }, .. }) =
                    self.members.get_mut(&member)
                    && *asked
                {
                    *failures += 1;
                    *asked = false;
                    *retry = self.up.then(|| now + doubled(&self.settings, *failures));
                }
            }
            PoolEvent::EngineDown => {
                self.up = false;
                self.write_off(|_| true);
                for held in self.members.values_mut() {
                    if let Phase::Ending { retry, .. } = &mut held.phase {
                        *retry = None;
                    }
                }
            }
            PoolEvent::EngineUp => {
                if !self.up {
                    self.up = true;
                    for record in self.runners.values_mut() {
                        let (idle, uid, passed_over) = (record.idle, record.uid, record.passed_over);
                        *record = Record { idle, uid, passed_over, ..Record::default() };
                    }
                }
            }
            PoolEvent::Tick | PoolEvent::GivesWay { .. } => {}
            PoolEvent::Shutdown => {
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
