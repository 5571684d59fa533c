//! A node serves calls: it finds the owner, claims, passes on, and takes the turns of its sessions one after
//! another. It must never acknowledge a write before object and row are there, or without its lease.

use std::time::Duration;

use paddock_cluster::ownership::{Claimed, Found, Grant};
use paddock_cluster::placement::NodeLoad;

use super::{BELIEVED, Node, Owned, PEER, Pending, REQUEST, STATEMENT, Turn};
use crate::simulation::message::{
    Action, Answer, Call, Caller, Files, Input, Key, Note, Request, Saved, Statement, Work,
};
use crate::simulation::route::Route;
use crate::simulation::rules::Mutation;

impl Node {
    pub(super) fn call(&mut self, caller: Caller, call: Call) {
        if self.left || !self.lease.may_acknowledge(self.now) {
            return self.answer(caller, call.id, Answer::Later);
        }
        let session = call.session;
        if let Some(owned) = self.sessions.get_mut(&session) {
            if self.rules.owns(&self.lease, owned.grant, self.now) && !self.draining {
                owned.waiting.push_back((caller, call));
                return self.next_turn(session);
            }
            if !self.draining {
                self.drop_session(session, Answer::Later);
            }
        }
        if self.draining && (self.sessions.contains_key(&session) || self.handing_over.contains(&session)) {
            return self.answer(caller, call.id, Answer::Later); // it is being handed over
        }
        if let Some(waiting) = self.claiming.get_mut(&session) {
            return waiting.push((caller, call));
        }
        let believed = self.believed.get(&session).filter(|(_, since)| *since + BELIEVED > self.now);
        if let Some((to, _)) = believed.filter(|_| call.hops == 0) {
            return self.pass(*to, caller, call);
        }
        let rpc = self.ask(Pending::Look { caller, call }, STATEMENT);
        self.out.push(Action::Database(rpc, Statement::Look { session }));
    }

    pub(super) fn looked(&mut self, caller: Caller, call: Call, found: &Found, nodes: &[NodeLoad]) {
        let session = call.session;
        if self.sessions.contains_key(&session) || self.claiming.contains_key(&session) {
            return self.call(caller, call);
        }
        let name = self.name.clone();
        match self.rules.route(&name, session as u64, found, nodes, call.hops > 0) {
            Route::Claim if self.draining => self.answer(caller, call.id, Answer::Later),
            Route::Claim => {
                let may_judge = self.lease.may_judge(self.now);
                if self.rules.claim(session as u64, found, nodes, &name, may_judge) == Claimed::Elsewhere {
                    return self.answer(caller, call.id, Answer::Later);
                }
                self.claiming.insert(session, vec![(caller, call)]);
                let rpc = self.ask(Pending::Claim { session, epoch: self.lease.epoch() }, STATEMENT);
                let seen = if let Found::Row { owner, .. } = found { Some(owner.fence) } else { None };
                self.out.push(Action::Database(rpc, Statement::Claim { session, seen }));
            }
            Route::Pass(to) => {
                let to =
                    to.strip_prefix("node-").and_then(|number| number.parse().ok()).expect("a node's name");
                self.believed.insert(session, (to, self.now));
                self.pass(to, caller, call);
            }
            Route::Later => self.answer(caller, call.id, Answer::Later),
        }
    }

    fn pass(&mut self, to: usize, caller: Caller, call: Call) {
        let rpc = self.ask(Pending::Passed { caller, call: call.id, to }, PEER);
        self.out.push(Action::Pass { rpc, to, call: Call { hops: call.hops + 1, ..call } });
    }

    /// A node has refused a call, or does not answer.
    pub(super) fn doubt(&mut self, node: usize) {
        self.believed.retain(|_, (owner, _)| *owner != node);
    }

    pub(super) fn claimed(&mut self, session: usize, grant: Grant, files: Files) {
        let waiting = self.claiming.remove(&session).unwrap_or_default();
        if !self.rules.owns(&self.lease, grant, self.now) || self.draining {
            return waiting
                .into_iter()
                .for_each(|(caller, call)| self.answer(caller, call.id, Answer::Later));
        }
        let (turn, container) = (None, false);
        self.sessions.insert(session, Owned { grant, files, turn, waiting: waiting.into(), container });
        self.next_turn(session);
    }

    pub(super) fn not_claimed(&mut self, session: usize) {
        for (caller, call) in self.claiming.remove(&session).unwrap_or_default() {
            self.answer(caller, call.id, Answer::Later);
        }
    }

    /// Serves what waits for the session, until a turn takes time.
    fn next_turn(&mut self, session: usize) {
        loop {
            let (now, tick, ending) = (self.now, self.tick, self.ending.contains_key(&session));
            let Some(owned) = self.sessions.get_mut(&session) else { return };
            let grant = owned.grant;
            // The container of an earlier claim has to end before another starts.
            if owned.turn.is_some() || ending {
                return;
            }
            let Some((caller, call)) = owned.waiting.pop_front() else { return };
            if !self.rules.owns(&self.lease, grant, now) {
                owned.waiting.push_front((caller, call));
                return self.drop_session(session, Answer::Later);
            }
            let (file, content) = match call.work {
                Work::Write { file, content } => (file, content),
                Work::Read { file } => {
                    let saved = owned.files[file];
                    self.note(Note::Read { session, fence: grant.fence, file, saved });
                    self.answer(caller, call.id, Answer::Done);
                    continue;
                }
            };
            let saved = Saved { content, turn: tick };
            owned.turn = Some(Turn { caller, call: call.id, file, saved });
            let starts = !std::mem::replace(&mut owned.container, true);
            if starts {
                self.note(Note::ContainerStarts { session });
            }

            let takes = Duration::from_micros(self.chance.between(2_000, 300_000));
            return self.after(takes, Input::Ran { session, turn: tick });
        }
    }

    /// The turn with this number, if the session still has it.
    fn turn(&mut self, session: usize, turn: u64) -> Option<(Grant, &mut Turn)> {
        let owned = self.sessions.get_mut(&session)?;
        let grant = owned.grant;
        owned.turn.as_mut().filter(|found| found.saved.turn == turn).map(|found| (grant, found))
    }

    pub(super) fn ran(&mut self, session: usize, number: u64) {
        if self.turn(session, number).is_some() {
            self.touch(session, number);
        }
    }

    /// Asks whether S3 has the content, and says that it is needed.
    pub(super) fn touch(&mut self, session: usize, number: u64) {
        let now = self.now;
        let Some((grant, turn)) = self.turn(session, number) else { return };
        let content = turn.saved.content;
        if !self.rules.owns(&self.lease, grant, now) {
            return self.lost(session, number, Answer::Later);
        }
        let rpc = self.ask(Pending::Touch { session, turn: number }, STATEMENT);
        self.out.push(Action::Database(rpc, Statement::Touch { content }));
    }

    pub(super) fn touched(&mut self, session: usize, number: u64, key: Key, is_stored: bool) {
        if is_stored {
            return self.write(session, number);
        }
        let rpc = self.ask(Pending::Put { session, turn: number, key }, REQUEST);
        self.out.push(Action::Objects(rpc, Request::Put(key)));
        if self.rules.is(Mutation::RowBeforeObject) {
            self.pending.remove(&rpc);
            self.write(session, number);
        }
    }

    pub(super) fn put(&mut self, session: usize, number: u64, key: Key) {
        let rpc = self.ask(Pending::Stored { session, turn: number }, STATEMENT);
        self.out.push(Action::Database(rpc, Statement::Stored { key }));
    }

    /// The content is in S3: the row may name it.
    pub(super) fn write(&mut self, session: usize, number: u64) {
        let now = self.now;
        let Some((grant, turn)) = self.turn(session, number) else { return };
        let turn = *turn;
        if !self.rules.owns(&self.lease, grant, now) {
            return self.lost(session, number, Answer::Later);
        }
        let rpc = self.ask(Pending::Write { session, turn: number }, STATEMENT);
        let (file, saved, fence) = (turn.file, turn.saved, grant.fence);
        self.out.push(Action::Database(rpc, Statement::Write { session, fence, file, saved }));
        if self.rules.is(Mutation::AcknowledgedBeforeRow) {
            self.pending.remove(&rpc);
            self.written(session, number);
        }
    }

    /// Object and row are there: acknowledges. The row has compared the fence in the step that changed it, so
    /// the write is saved and its place in the order of writes is fixed, even if the lease has ended
    /// meanwhile.
    pub(super) fn written(&mut self, session: usize, number: u64) {
        let now = self.now;
        let Some((grant, turn)) = self.turn(session, number) else { return };
        let (turn, fence) = (*turn, grant.fence);
        self.note(Note::Acknowledged { session, fence, file: turn.file, saved: turn.saved });
        self.answer(turn.caller, turn.call, Answer::Done);
        if let Some(owned) = self.sessions.get_mut(&session) {
            owned.files[turn.file] = Some(turn.saved);
            owned.turn = None;
        }
        if !self.rules.owns(&self.lease, grant, now) {
            return self.drop_session(session, Answer::Later);
        }
        if self.draining { self.hand_over(session) } else { self.next_turn(session) }
    }

    /// The session is not this node's any more, or its state is not known: the node must claim it anew.
    pub(super) fn lost(&mut self, session: usize, number: u64, answer: Answer) {
        if self.turn(session, number).is_some() {
            self.drop_session(session, answer);
        }
    }

    /// Nobody knows whether the row was written, or will be: with the next claim it can be no longer.
    pub(super) fn unknown(&mut self, session: usize, number: u64) {
        if !self.rules.is(Mutation::UnknownIsForgotten) {
            return self.lost(session, number, Answer::Unknown);
        }
        let Some((_, turn)) = self.turn(session, number) else { return };
        let turn = *turn;
        self.answer(turn.caller, turn.call, Answer::Unknown);
        if let Some(owned) = self.sessions.get_mut(&session) {
            owned.turn = None;
        }
        self.next_turn(session);
    }

    /// Continues a session that has waited for the containers of an earlier claim.
    pub(super) fn go_on(&mut self, session: usize) {
        self.next_turn(session);
    }
}
