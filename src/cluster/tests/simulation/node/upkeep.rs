//! What a node does beside calls: it renews its lease, ends what the lease no longer covers, hands sessions
//! over when it is drained, and deletes objects that nothing names.

use std::time::Duration;

use paddock_cluster::ownership::{Grant, Start};
use paddock_cluster::placement::{self, NodeLoad};

use super::{CAPACITY, Node, Pending, REQUEST, STATEMENT, SWEEP};
use crate::simulation::message::{Action, Answer, Input, Key, Note, Request, Statement};
use crate::simulation::rules::Mutation;

impl Node {
    pub(super) fn join(&mut self) {
        let rpc = self.ask(Pending::Draw, STATEMENT);
        self.out.push(Action::Database(rpc, Statement::Draw));
        self.after(self.rules.terms.renew_every(), Input::Tick);
    }

    pub(super) fn drew(&mut self, start: Start) {
        if start < self.start || self.lease.ends().is_some() {
            return; // a later try has joined, or is about to
        }
        self.start = start;
        let rpc = self.ask(Pending::Join { start, asked: self.now }, STATEMENT);
        self.out.push(Action::Database(rpc, Statement::Join { start, free: CAPACITY }));
    }

    pub(super) fn renew(&mut self) {
        if self.lease.ends().is_none() {
            return self.join(); // nobody has heard of it yet
        }
        let wait = self.rules.terms.lease * 2; // an answer that is late must not be mistaken for a lease
        let rpc = self.ask(Pending::Renew { asked: self.now }, wait);
        let used = u32::try_from(self.sessions.len()).unwrap_or(u32::MAX);
        let (free, draining) = (CAPACITY.saturating_sub(used), self.draining);
        self.out.push(Action::Database(rpc, Statement::Renew { start: self.start, free, draining }));
        self.after(self.rules.terms.renew_every(), Input::Tick);
    }

    pub(super) fn renewed(&mut self, asked: Duration) {
        if self.left {
            return;
        }
        let new_epoch = self.rules.renewed(&mut self.lease, asked, self.now);
        if new_epoch && !self.rules.is(Mutation::EpochIgnored) {
            self.drop_all();
        }
        if let Some(ends) = self.lease.ends() {
            self.after(ends.saturating_sub(self.now), Input::Watch);
        }
    }

    pub(super) fn drop_all(&mut self) {
        let all: Vec<usize> = self.sessions.keys().copied().collect();
        all.into_iter().for_each(|session| self.drop_session(session, Answer::Unknown));
    }

    /// Forgets a session and ends its containers. `answer` is for the call whose turn it was.
    pub(super) fn drop_session(&mut self, session: usize, answer: Answer) {
        let Some(owned) = self.sessions.remove(&session) else { return };
        if let Some(turn) = owned.turn {
            self.answer(turn.caller, turn.call, answer);
        }
        for (caller, call) in owned.waiting {
            self.answer(caller, call.id, Answer::Later);
        }
        if owned.container {
            self.end_containers(session, None);
        }
    }

    fn end_containers(&mut self, session: usize, then_hand_over: Option<Grant>) {
        self.ending.insert(session, then_hand_over);
        let takes = self.chance.between(self.ending_takes.0, self.ending_takes.1);
        self.after(Duration::from_micros(takes), Input::Ended { session });
    }

    pub(super) fn ended(&mut self, session: usize) {
        let Some(then_hand_over) = self.ending.remove(&session) else { return };
        self.note(Note::ContainerEnded { session });
        match then_hand_over {
            Some(grant) => self.find_heir(session, grant),
            None => self.go_on(session),
        }
        self.leave_if_empty();
    }

    pub(super) fn drain(&mut self) {
        if self.left || std::mem::replace(&mut self.draining, true) {
            return;
        }
        self.renew();
        let idle =
            self.sessions.iter().filter(|(_, owned)| owned.turn.is_none()).map(|(session, _)| *session);
        let idle: Vec<usize> = idle.collect();
        idle.into_iter().for_each(|session| self.hand_over(session));
        self.leave_if_empty();
    }

    /// Ends what runs in the session, then gives it to another node.
    pub(super) fn hand_over(&mut self, session: usize) {
        let Some(owned) = self.sessions.remove(&session) else { return };
        for (caller, call) in owned.waiting {
            self.answer(caller, call.id, Answer::Later);
        }
        self.handing_over.insert(session);
        if let Some(then_hand_over) = self.ending.get_mut(&session)
            && !owned.container
        {
            *then_hand_over = Some(owned.grant); // the container of an earlier claim still ends
        } else if !owned.container {
            self.find_heir(session, owned.grant);
        } else if self.rules.is(Mutation::HandedOverTooEarly) {
            self.end_containers(session, None);
            self.find_heir(session, owned.grant);
        } else {
            self.end_containers(session, Some(owned.grant));
        }
    }

    fn find_heir(&mut self, session: usize, grant: Grant) {
        let rpc = self.ask(Pending::Heir { session, grant }, STATEMENT);
        self.out.push(Action::Database(rpc, Statement::Look { session }));
    }

    pub(super) fn hand_to(&mut self, session: usize, grant: Grant, nodes: &[NodeLoad]) {
        let others: Vec<NodeLoad> = nodes.iter().filter(|node| node.name != self.name).cloned().collect();
        let Some(heir) = placement::place(session as u64, &others) else { return self.handed_over(session) };
        let to = super::index_of(&heir.name);
        let rpc = self.ask(Pending::HandOver { session }, STATEMENT);
        self.out.push(Action::Database(rpc, Statement::HandOver { session, fence: grant.fence, to }));
    }

    /// The session is another node's, or will be free as soon as this one has left.
    pub(super) fn handed_over(&mut self, session: usize) {
        self.handing_over.remove(&session);
        self.leave_if_empty();
    }

    /// A drained node that has nothing left says goodbye.
    pub(super) fn leave_if_empty(&mut self) {
        let busy = |pending: &Pending| matches!(pending, Pending::Leave | Pending::Claim { .. });
        let empty = self.sessions.is_empty() && self.ending.is_empty() && self.handing_over.is_empty();
        if self.draining && !self.left && empty && !self.pending.values().any(busy) {
            let rpc = self.ask(Pending::Leave, STATEMENT);
            self.out.push(Action::Database(rpc, Statement::Leave { start: self.start }));
        }
    }

    pub(super) fn sweep(&mut self) {
        if self.left {
            return;
        }
        self.after(SWEEP, Input::Sweep);
        let rpc = self.ask(Pending::Mark, STATEMENT);
        self.out.push(Action::Database(rpc, Statement::Mark));
    }

    pub(super) fn delete(&mut self, graves: Vec<Key>) {
        for key in graves {
            let rpc = self.ask(Pending::Delete(key), REQUEST);
            self.out.push(Action::Objects(rpc, Request::Delete(key)));
        }
    }
}
