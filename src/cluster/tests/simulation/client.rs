//! Clients: one for each session, which calls any node, one call after the other, and tries again where it is
//! told to.

use super::message::{Answer, Call, Caller, FILES, Micros, Work};
use super::plan::SECOND;
use super::world::{Event, World};

/// How long a client waits for an answer.
const PATIENCE: Micros = 8 * SECOND;

pub(super) enum ClientEvent {
    Next,
    Answer(u64, Answer),
    GivesUp(u64),
}

pub(super) struct Client {
    session: usize,
    calls: u64,
    /// The call that it waits for, and when that began.
    waiting: Option<(u64, Micros)>,
    /// When a call was first done that began after the last fault.
    pub(super) answered_after_faults: Option<Micros>,
}

impl Client {
    pub(super) fn new(session: usize) -> Client {
        Client { session, calls: 0, waiting: None, answered_after_faults: None }
    }
}

impl World {
    pub(super) fn client(&mut self, index: usize, event: ClientEvent) {
        match event {
            ClientEvent::Next => self.next_call(index),
            ClientEvent::Answer(id, answer) => self.client_hears(index, id, answer),
            ClientEvent::GivesUp(id) => self.client_hears(index, id, Answer::Unknown),
        }
    }

    fn next_call(&mut self, index: usize) {
        let up: Vec<usize> =
            (0..self.machines.len()).filter(|at| self.machines[*at].node.is_some()).collect();
        if up.is_empty() {
            return self.client_later(index, SECOND / 2);
        }
        let to = up[self.chance.index(up.len())];
        let file = self.chance.index(FILES);
        let content = u32::try_from(self.chance.between(0, self.plan.contents)).expect("a small number");
        let is_read = self.chance.index(3) == 0;
        let client = &mut self.clients[index];
        client.calls += 1;
        let id = client.calls;
        client.waiting = Some((id, self.now));
        let work = if is_read { Work::Read { file } } else { Work::Write { file, content } };
        let call = Call { id, session: client.session, work, hops: 0 };
        self.trace(|| format!("client of session {index} calls node {to}: {call:?}"));
        self.push(self.now + PATIENCE, Event::Client { client: index, event: ClientEvent::GivesUp(id) });
        let delay = self.chance.between(100, 2_000);
        self.call_after(delay, to, Caller::Client(index), call);
    }

    fn client_hears(&mut self, index: usize, id: u64, answer: Answer) {
        self.trace(|| format!("client of session {index} hears {answer:?} to call {id}"));
        let client = &mut self.clients[index];
        let Some((_, began)) = client.waiting.take_if(|(waiting, _)| *waiting == id) else { return };
        let pause = match answer {
            Answer::Done => {
                self.summary.done += 1;
                if began >= self.plan.faults_end {
                    client.answered_after_faults.get_or_insert(self.now);
                }
                self.chance.between(SECOND / 50, self.plan.think)
            }
            Answer::Later => {
                self.summary.later += 1;
                self.chance.between(SECOND / 5, SECOND / 2)
            }
            Answer::Unknown => {
                self.summary.unknown += 1;
                self.chance.between(SECOND / 50, SECOND / 2)
            }
        };
        self.client_later(index, pause);
    }

    fn client_later(&mut self, client: usize, pause: Micros) {
        self.push(self.now + pause, Event::Client { client, event: ClientEvent::Next });
    }
}
