//! One simulated world: true time, the queue of what happens next, and everything that takes part. Two worlds
//! of one seed do the same, event by event.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use super::chance::Chance;
use super::checker::Checker;
use super::client::{Client, ClientEvent};
use super::database::Database;
use super::message::{Action, Call, Caller, Input, Micros, Reply, Request, Statement};
use super::network::Network;
use super::node::Node;
use super::objects::Objects;
use super::plan::{Fault, Plan};
use super::rules::{Mutation, Rules};
use super::summary::Summary;

/// What happens at a moment of true time.
pub(super) enum Event {
    /// To a node, if it has not been started again since.
    Node {
        node: usize,
        start: u32,
        input: Input,
    },
    Database {
        from: (usize, u32),
        rpc: u64,
        statement: Statement,
    },
    Objects {
        from: (usize, u32),
        rpc: u64,
        request: Request,
    },
    Client {
        client: usize,
        event: ClientEvent,
    },
    Begins(Fault),
    Ends(Fault),
    /// The network is good from now on.
    Clears,
    /// A daemon starts again on this machine, unless one runs.
    StartsAgain(usize),
}

struct Entry {
    at: Micros,
    number: u64,
    event: Event,
}

impl PartialEq for Entry {
    fn eq(&self, other: &Entry) -> bool {
        self.number == other.number
    }
}
impl Eq for Entry {}
impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Entry) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Entry {
    fn cmp(&self, other: &Entry) -> std::cmp::Ordering {
        (self.at, self.number).cmp(&(other.at, other.number))
    }
}

/// A machine, with or without a daemon that runs.
pub(super) struct Machine {
    pub(super) node: Option<Node>,
    /// How often a daemon was started here.
    pub(super) start: u32,
    pub(super) paused: bool,
    /// When it last stood still.
    pub(super) paused_until: Micros,
    pub(super) backlog: Vec<(u32, Input)>,
    /// The start that is to be replaced by the next one as soon as it has left.
    pub(super) upgrading: Option<u32>,
    /// What its clock showed at the beginning.
    offset: Micros,
    /// By how many parts in a million its clock is fast.
    drift: i64,
}

pub(crate) struct World {
    pub(super) now: Micros,
    number: u64,
    queue: BinaryHeap<Reverse<Entry>>,
    pub(super) plan: Plan,
    pub(super) rules: Rules,
    pub(super) chance: Chance,
    pub(super) network: Network,
    pub(super) machines: Vec<Machine>,
    pub(super) clients: Vec<Client>,
    pub(super) database: Database,
    pub(super) objects: Objects,
    pub(super) checker: Checker,
    pub(super) summary: Summary,
    /// What the database's clock shows beyond true time.
    pub(super) clock_set: i64,
    /// Whether what happens is printed.
    traced: bool,
}

impl World {
    pub(crate) fn new(seed: u64, mutation: Option<Mutation>) -> World {
        let mut chance = Chance::new(seed);
        let plan = Plan::of(&mut chance);
        World::of(plan, chance, mutation)
    }

    pub(crate) fn of(plan: Plan, mut chance: Chance, mutation: Option<Mutation>) -> World {
        let rules = Rules::new(mutation);
        let machines = (0..plan.nodes).map(|node| Machine {
            node: None,
            start: 0,
            paused: false,
            paused_until: 0,
            backlog: Vec::new(),
            upgrading: None,
            offset: chance.between(0, 1_000_000_000_000),
            drift: plan.drift[node],
        });
        let machines = machines.collect();
        let mut world = World {
            now: 0,
            number: 0,
            queue: BinaryHeap::new(),
            rules,
            network: Network::new(plan.nodes, plan.weather),
            machines,
            clients: (0..plan.sessions).map(Client::new).collect(),
            database: Database::new(plan.nodes, plan.sessions),
            objects: Objects::default(),
            checker: Checker::new(plan.sessions, plan.clocks_are_good()),
            summary: Summary::default(),
            clock_set: 0,
            traced: false,
            chance,
            plan,
        };
        world.begin();
        world
    }

    fn begin(&mut self) {
        let late = self.late_joiners();
        for node in (0..self.plan.nodes).filter(|node| !late.contains(node)) {
            self.start_node(node);
        }
        for fault in self.plan.faults.clone() {
            self.push(fault.at, Event::Begins(fault));
            self.push(fault.until, Event::Ends(fault));
        }
        self.push(self.plan.faults_end, Event::Clears);
        for client in 0..self.clients.len() {
            let at = self.chance.between(0, 2_000_000);
            self.push(at, Event::Client { client, event: ClientEvent::Next });
        }
    }

    /// Prints what happens, for a reader who wants to know why a seed breaks.
    pub(crate) fn traced(mut self) -> World {
        self.traced = true;
        self
    }

    pub(super) fn trace(&self, what: impl FnOnce() -> String) {
        if self.traced {
            eprintln!("{:>10.6} {}", Duration::from_micros(self.now).as_secs_f64(), what());
        }
    }

    /// Prints what the network does to a message, if it is lost or late.
    pub(super) fn trace_way(&self, delay: Option<Micros>, message: impl FnOnce() -> String) {
        match delay {
            None => self.trace(|| format!("lost: {}", message())),
            Some(delay) if delay >= super::network::LATE => {
                self.trace(|| format!("late by {:.1} s: {}", delay as f64 / 1e6, message()));
            }
            Some(_) => {}
        }
    }

    /// Runs the world to its end; an error says what was broken, and when.
    pub(crate) fn run(mut self) -> Result<Summary, String> {
        while let Some(Reverse(entry)) = self.queue.pop() {
            if entry.at > self.plan.end {
                break;
            }
            self.now = entry.at;
            self.summary.events += 1;
            self.happens(entry.event);
            if let Some(broken) = self.checker.broken() {
                return Err(format!("at {:.6} s: {broken}", Duration::from_micros(self.now).as_secs_f64()));
            }
        }
        self.checker.end(&self.database, &self.objects);
        for (session, client) in self.clients.iter().enumerate() {
            match client.answered_after_faults {
                Some(at) => {
                    self.summary.longest_wait = self.summary.longest_wait.max(at - self.plan.faults_end)
                }
                None => self.checker.fail(format!("session {session} does not answer after the faults")),
            }
        }
        if let Some(broken) = self.checker.broken() {
            return Err(format!("in the end: {broken}"));
        }
        self.summary.acknowledged = self.checker.acknowledged;
        (self.summary.statements, self.summary.rows_changed) =
            (self.database.executed, self.database.changed);
        (self.summary.requests, self.summary.deleted) = (self.objects.requests, self.objects.deleted);
        Ok(self.summary)
    }

    pub(super) fn push(&mut self, at: Micros, event: Event) {
        self.number += 1;
        self.queue.push(Reverse(Entry { at, number: self.number, event }));
    }

    fn happens(&mut self, event: Event) {
        match event {
            Event::Node { node, start, input } => self.input(node, start, input),
            Event::Database { from, rpc, statement } => self.at_database(from, rpc, &statement),
            Event::Objects { from, rpc, request } => self.at_objects(from, rpc, &request),
            Event::Client { client, event } => self.client(client, event),
            Event::Clears => self.network.clears(),
            Event::StartsAgain(node) => self.start_if_down(node),
            Event::Begins(fault) => {
                self.trace(|| format!("begins {:?}", fault.kind));
                self.begins(fault.kind);
            }
            Event::Ends(fault) => {
                self.trace(|| format!("ends {:?}", fault.kind));
                self.ends(fault.kind);
            }
        }
    }

    /// What the clock of a machine shows.
    pub(super) fn own_clock(&self, node: usize) -> Duration {
        let machine = &self.machines[node];
        Duration::from_micros(machine.offset + drifted(self.now, machine.drift))
    }

    pub(super) fn start_node(&mut self, node: usize) {
        let (slow_ending, sweeps) = (self.plan.slow_ending, self.plan.sweeps);
        let chance = self.chance.fork();
        let machine = &mut self.machines[node];
        machine.start += 1;
        machine.backlog.clear();
        machine.node = Some(Node::new(node, self.rules, slow_ending, chance));
        let start = machine.start;
        self.input(node, start, Input::Start);
        if sweeps {
            let first = self.now + self.chance.between(1_000_000, 6_000_000);
            self.push(first, Event::Node { node, start, input: Input::Sweep });
        }
    }

    pub(super) fn start_if_down(&mut self, node: usize) {
        if self.machines[node].node.is_none() {
            self.start_node(node);
        }
    }

    pub(super) fn stop_node(&mut self, node: usize) {
        self.machines[node].node = None;
        self.checker.died(node);
    }

    pub(super) fn input(&mut self, index: usize, start: u32, input: Input) {
        let (now, tick) = (self.own_clock(index), self.number);
        let machine = &mut self.machines[index];
        if machine.start != start {
            return;
        }
        if machine.paused {
            return machine.backlog.push((start, input));
        }
        let Some(node) = &mut machine.node else { return };
        let drift = machine.drift;
        for action in node.on(input, now, tick) {
            self.acts(index, start, drift, action);
        }
    }

    fn acts(&mut self, node: usize, start: u32, drift: i64, action: Action) {
        match action {
            Action::Database(rpc, statement) => self.toward_database(node, start, rpc, statement),
            Action::Objects(rpc, request) => self.toward_objects(node, start, rpc, request),
            Action::Pass { rpc, to, call } => {
                self.summary.passed += 1;
                let caller = Caller::Node { node, start, rpc };
                let delay = self.network.between_peers(node, to, &mut self.chance);
                self.trace_way(delay, || format!("node {node} to node {to}: {call:?}"));
                if let Some(delay) = delay {
                    self.call_after(delay, to, caller, call);
                }
            }
            Action::Answer { to, id, answer } => self.answers(node, to, id, answer),
            Action::After(time, input) => {
                let time = u64::try_from(time.as_micros()).expect("minutes");
                // A little later than the machine's clock says, never earlier.
                let at = self.now + until_shown(time, drift) + 2;
                self.push(at, Event::Node { node, start, input });
            }
            Action::Note(note) => {
                self.trace(|| format!("node {node} {note:?}"));
                let excused: Vec<bool> =
                    self.machines.iter().map(|machine| self.is_excused(machine)).collect();
                self.checker.note(node, note, &self.database, &self.objects, &excused);
                if let super::message::Note::Left = note {
                    self.summary.left += 1;
                    self.stop_node(node);
                    if self.machines[node].upgrading == Some(start) {
                        let at = self.now + self.chance.between(50_000, 1_000_000);
                        self.push(at, Event::StartsAgain(node));
                    }
                }
            }
        }
    }

    fn is_excused(&self, machine: &Machine) -> bool {
        machine.paused || machine.paused_until + 2_000_000 > self.now
    }

    /// A call arrives at a node after this time. A node that does not run refuses the connection.
    pub(super) fn call_after(&mut self, delay: Micros, to: usize, caller: Caller, call: Call) {
        if call.hops > 1 {
            self.checker.fail(format!("a call takes {} hops", call.hops));
        }
        let machine = &self.machines[to];
        if machine.node.is_none() {
            return self.answers(to, caller, call.id, super::message::Answer::Later);
        }
        let start = machine.start;
        self.push(self.now + delay, Event::Node { node: to, start, input: Input::Call(caller, call) });
    }

    pub(super) fn reply(&mut self, (node, start): (usize, u32), rpc: u64, reply: Reply, delay: Micros) {
        self.push(self.now + delay, Event::Node { node, start, input: Input::Reply(rpc, reply) });
    }
}

/// How long it takes until a clock that is fast by so many parts in a million has gone on by this time.
fn until_shown(time: Micros, parts: i64) -> Micros {
    let shown_in_a_second = i128::from(1_000_000 + parts);
    u64::try_from(i128::from(time) * 1_000_000 / shown_in_a_second).expect("clocks go forward")
}

/// What a clock that is fast by so many parts in a million shows of this time.
pub(super) fn drifted(time: Micros, parts: i64) -> Micros {
    let by = i128::from(time) * i128::from(parts) / 1_000_000;
    u64::try_from(i128::from(time) + by).expect("times are not negative")
}
