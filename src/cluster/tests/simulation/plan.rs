//! What one seed does: how many nodes and sessions there are, how bad the network is, and which faults happen
//! when. Everything follows from the number of the seed.

use super::chance::Chance;
use super::message::Micros;

pub(crate) const SECOND: Micros = 1_000_000;
/// When the last fault has ended, and the network loses and delays nothing more.
pub(crate) const FAULTS_END: Micros = 30 * SECOND;
/// How soon after that each session must have answered: a client's wait for a message that was sent before (8
/// s), in which a takeover may be judged, and a second try. The longest wait in 10,000 seeds is 8.7 s.
pub(crate) const BOUND: Micros = 15 * SECOND;
/// The latest message is later than others by less than this: see `paddock_cluster::garbage`.
const LATEST: Micros = 8 * SECOND;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The node is killed, and started again in the end.
    Kill(usize),
    /// The whole machine stands still.
    Pause(usize),
    /// Nothing reaches the database from this node.
    CutFromDatabase(usize),
    /// Statements of this node are executed, but no answer comes back.
    DeafToDatabase(usize),
    CutFromPeers(usize),
    CutFromObjects(usize),
    DatabaseAway,
    DatabaseSlow(Micros),
    ObjectsAway,
    /// The node is told to go, and started again in the end.
    Drain(usize),
    /// The node is told to go, and started again as soon as it has gone.
    Upgrade(usize),
    /// A node is there only from the end of this on.
    JoinsLate(usize),
    /// The database's clock is set, by so many microseconds.
    ClockSet(i64),
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Fault {
    pub(crate) at: Micros,
    pub(crate) until: Micros,
    pub(crate) kind: Kind,
}

/// How likely each message is lost, late or doubled, in a million, until the last fault has ended. A bound
/// for the time until an answer can hold only afterwards: one lost message can end a call, and any number of
/// calls in a row can lose one.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Weather {
    pub(crate) lost: u32,
    pub(crate) late: u32,
    pub(crate) doubled: u32,
}

#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) nodes: usize,
    pub(crate) sessions: usize,
    pub(crate) weather: Weather,
    pub(crate) faults: Vec<Fault>,
    /// By how many parts in a million each node's clock is fast; the last one is the database's.
    pub(crate) drift: Vec<i64>,
    /// Ending containers always takes as long as it may.
    pub(crate) slow_ending: bool,
    /// Whether nodes look for garbage: they do so every few seconds here, and every hour in the daemon.
    pub(crate) sweeps: bool,
    /// How many contents there are: few, so that they repeat.
    pub(crate) contents: u64,
    /// The longest time between two calls of a session.
    pub(crate) think: Micros,
    pub(crate) faults_end: Micros,
    pub(crate) end: Micros,
}

impl Plan {
    pub(crate) fn of(chance: &mut Chance) -> Plan {
        let nodes = chance.index(5) + 2;
        let levels = [0, 0, 500, 5_000, 30_000];
        let mut level = || levels[chance.index(levels.len())];
        let weather = Weather { lost: level(), late: level(), doubled: level() };
        let mut faults: Vec<Fault> = (0..chance.index(9)).map(|_| Plan::fault(chance, nodes)).collect();
        if chance.index(3) == 0 {
            let until = chance.between(SECOND, FAULTS_END);
            faults.push(Fault { at: 0, until, kind: Kind::JoinsLate(nodes - 1) });
        }
        if chance.index(10) == 0 {
            let at = chance.between(SECOND, FAULTS_END);
            let by = if chance.index(2) == 0 { 3_600_000_000 } else { -2_000_000 };
            faults.push(Fault { at, until: at + 1, kind: Kind::ClockSet(by) });
        }
        if chance.index(6) == 0 {
            faults.extend(Plan::upgrade_of_all(chance, nodes));
        }
        Plan {
            nodes,
            sessions: chance.index(6) + 2,
            weather,
            faults,
            drift: (0..=nodes).map(|_| [-10_000, -100, 0, 100, 10_000][chance.index(5)]).collect(),
            slow_ending: chance.index(2) == 0,
            sweeps: true,
            contents: [3, 1_000_000][chance.index(2)],
            think: [SECOND / 5, 2 * SECOND][chance.index(2)],
            faults_end: FAULTS_END,
            end: FAULTS_END + BOUND,
        }
    }

    /// No faults and a good network: for figures. `faults_end` is the moment from which waits are counted.
    pub(crate) fn calm(nodes: usize, sessions: usize, think: Micros) -> Plan {
        Plan {
            nodes,
            sessions,
            weather: Weather::default(),
            faults: Vec::new(),
            drift: vec![0; nodes + 1],
            slow_ending: false,
            sweeps: false,
            contents: 1_000_000_000,
            think,
            faults_end: SECOND,
            end: 31 * SECOND,
        }
    }

    /// A calm cluster in which one node is killed at this moment for good, and waits are counted from then.
    pub(crate) fn with_death(mut self, at: Micros) -> Plan {
        self.end = at + 20 * SECOND;
        self.faults = vec![Fault { at, until: self.end + 1, kind: Kind::Kill(0) }];
        self.faults_end = at;
        self
    }

    /// One node after the other is upgraded: each gets sessions of the next.
    fn upgrade_of_all(chance: &mut Chance, nodes: usize) -> Vec<Fault> {
        let mut at = chance.between(SECOND, 4 * SECOND);
        let mut next = |node| {
            let fault = Fault { at, until: at + 5 * SECOND, kind: Kind::Upgrade(node) };
            at += chance.between(SECOND, 4 * SECOND);
            fault
        };
        (0..nodes).map(&mut next).collect()
    }

    fn fault(chance: &mut Chance, nodes: usize) -> Fault {
        let node = chance.index(nodes);
        let kind = match chance.index(13) {
            0 | 1 => Kind::Kill(node),
            2 => Kind::Pause(node),
            3 | 4 => Kind::CutFromDatabase(node),
            5 => Kind::DeafToDatabase(node),
            6 => Kind::CutFromPeers(node),
            7 => Kind::CutFromObjects(node),
            8 => Kind::DatabaseAway,
            9 => Kind::DatabaseSlow(chance.between(SECOND / 10, 4 * SECOND)),
            10 => Kind::ObjectsAway,
            11 => Kind::Upgrade(node),
            _ => Kind::Drain(node),
        };
        let at = chance.between(SECOND, FAULTS_END - SECOND);
        let until = (at + chance.between(SECOND / 10, 20 * SECOND)).min(FAULTS_END);
        Fault { at, until, kind }
    }

    /// Whether clocks keep their promise, so that leases and takeovers exclude each other. If the database's
    /// clock is set, only the fences hold.
    pub(crate) fn clocks_are_good(&self) -> bool {
        !self.faults.iter().any(|fault| matches!(fault.kind, Kind::ClockSet(_)))
    }

    /// How much later than others a late message comes.
    pub(crate) fn lateness(chance: &mut Chance) -> Micros {
        chance.between(SECOND / 10, LATEST)
    }
}
