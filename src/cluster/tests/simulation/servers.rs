//! The ways of statements, requests and answers through the network, and what they do where they arrive.

use super::database::Change;
use super::message::{Answer, Caller, Reply, Request, Statement};
use super::world::{Event, World, drifted};

impl World {
    pub(super) fn toward_database(&mut self, node: usize, start: u32, rpc: u64, statement: Statement) {
        let delay = self.network.toward_database(node, &mut self.chance);
        self.trace_way(delay, || format!("node {node} to the database: {statement:?}"));
        if let Some(delay) = delay {
            self.push(self.now + delay, Event::Database { from: (node, start), rpc, statement });
        }
    }

    /// A statement is executed, also one of a node that has died since.
    pub(super) fn at_database(&mut self, from: (usize, u32), rpc: u64, statement: &Statement) {
        if self.network.database_away > 0 {
            return;
        }
        // A statement that is sent twice on one connection is executed twice in a row.
        let times = if self.network.is_doubled(&mut self.chance) { 2 } else { 1 };
        for _ in 0..times {
            let clock = drifted(self.now, self.plan.drift[self.plan.nodes]);
            let clock = (clock + 1_000_000_000).saturating_add_signed(self.clock_set);
            let (reply, change) = self.database.execute(from.0, statement, clock, &self.rules);
            self.trace(|| format!("database: node {} {statement:?}: {reply:?}", from.0));
            if let Some(change) = change {
                self.changed(from.0, change);
            }
            let delay = self.network.back_from_database(from.0, &mut self.chance);
            self.trace_way(delay, || format!("database to node {}: {reply:?}", from.0));
            if let Some(delay) = delay {
                self.reply(from, rpc, reply, delay);
            }
        }
    }

    fn changed(&mut self, node: usize, change: Change) {
        match change {
            Change::Claimed { session, before } => {
                self.summary.claims += 1;
                let Some(before) = before else { return };
                self.summary.takeovers += 1;
                let clock = self.own_clock(before);
                let machine = &self.machines[before];
                let holds = machine.node.as_ref().is_some_and(|node| node.holds(session, clock));
                if holds && !machine.paused && self.plan.clocks_are_good() {
                    self.checker
                        .fail(format!("node {node} takes session {session} from node {before}, which lives"));
                }
            }
            Change::Wrote { session, file, before, saved } => {
                let fence = self.database.sessions[session].as_ref().map(|row| row.fence);
                if let Some(fence) = fence {
                    self.checker.wrote(session, fence, file, before, saved, &self.database, &self.objects);
                }
            }
        }
    }

    pub(super) fn toward_objects(&mut self, node: usize, start: u32, rpc: u64, request: Request) {
        // A client of S3 repeats a request that it has heard nothing of: the copies arrive in any order.
        let times = if self.network.is_doubled(&mut self.chance) { 2 } else { 1 };
        for _ in 0..times {
            let delay = self.network.with_objects(node, &mut self.chance);
            self.trace_way(delay, || format!("node {node} to S3: {request:?}"));
            if let Some(delay) = delay {
                let request = request.clone();
                self.push(self.now + delay, Event::Objects { from: (node, start), rpc, request });
            }
        }
    }

    pub(super) fn at_objects(&mut self, from: (usize, u32), rpc: u64, request: &Request) {
        if self.network.objects_away > 0 {
            return;
        }
        let reply = self.objects.execute(request);
        if let Request::Delete(key) = request {
            self.checker.deletes(*key, &self.database);
        }
        let delay = self.network.with_objects(from.0, &mut self.chance);
        self.trace_way(delay, || format!("S3 to node {}: {reply:?} to {request:?}", from.0));
        if let Some(delay) = delay {
            self.reply(from, rpc, reply, delay);
        }
    }

    /// An answer leaves a node, for a client or for the node that has passed the call on.
    pub(super) fn answers(&mut self, node: usize, to: Caller, id: u64, answer: Answer) {
        match to {
            Caller::Client(client) => {
                let at = self.now + self.chance.between(100, 2_000);
                let event = super::client::ClientEvent::Answer(id, answer);
                self.push(at, Event::Client { client, event });
            }
            Caller::Node { node: to, start, rpc } => {
                let delay = self.network.between_peers(node, to, &mut self.chance);
                self.trace_way(delay, || format!("node {node} to node {to}: {answer:?} to call {id}"));
                if let Some(delay) = delay {
                    self.reply((to, start), rpc, Reply::Answered(answer), delay);
                }
            }
        }
    }
}
