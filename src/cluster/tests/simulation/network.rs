//! The network between nodes, database and S3: which ways are cut, and what becomes of each message.

use super::chance::Chance;
use super::message::Micros;
use super::plan::{Plan, Weather};

/// How often each way of a node is cut now: faults of the same kind may overlap.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Ways {
    pub(super) toward_database: u32,
    pub(super) back_from_database: u32,
    pub(super) peers: u32,
    pub(super) objects: u32,
}

/// A message that takes this long is late: none does in good weather.
pub(super) const LATE: Micros = 100_000;

pub(super) struct Network {
    pub(super) ways: Vec<Ways>,
    pub(super) database_away: u32,
    pub(super) objects_away: u32,
    /// By how much each answer of the database is slowed down.
    pub(super) database_slow: Micros,
    weather: Weather,
}

impl Network {
    pub(super) fn new(nodes: usize, weather: Weather) -> Network {
        let ways = vec![Ways::default(); nodes];
        Network { ways, database_away: 0, objects_away: 0, database_slow: 0, weather }
    }

    /// From now on no message is lost or late.
    pub(super) fn clears(&mut self) {
        (self.weather.lost, self.weather.late) = (0, 0);
    }

    /// When a message arrives that usually takes between these times; None: it is lost.
    fn passes(&self, usual: (Micros, Micros), chance: &mut Chance) -> Option<Micros> {
        if chance.per_million(self.weather.lost) {
            return None;
        }
        let late = if chance.per_million(self.weather.late) { Plan::lateness(chance) } else { 0 };
        Some(chance.between(usual.0, usual.1) + late)
    }

    pub(super) fn toward_database(&self, node: usize, chance: &mut Chance) -> Option<Micros> {
        if self.ways[node].toward_database > 0 { None } else { self.passes((200, 2_000), chance) }
    }

    pub(super) fn back_from_database(&self, node: usize, chance: &mut Chance) -> Option<Micros> {
        if self.ways[node].back_from_database > 0 || self.ways[node].toward_database > 0 {
            return None;
        }
        let slow = if self.database_slow > 0 { chance.between(0, self.database_slow) } else { 0 };
        Some(self.passes((200, 2_000), chance)? + slow)
    }

    pub(super) fn with_objects(&self, node: usize, chance: &mut Chance) -> Option<Micros> {
        if self.ways[node].objects > 0 { None } else { self.passes((2_000, 40_000), chance) }
    }

    pub(super) fn between_peers(&self, one: usize, other: usize, chance: &mut Chance) -> Option<Micros> {
        let is_cut = self.ways[one].peers > 0 || self.ways[other].peers > 0;
        if is_cut { None } else { self.passes((100, 1_000), chance) }
    }

    pub(super) fn is_doubled(&self, chance: &mut Chance) -> bool {
        chance.per_million(self.weather.doubled)
    }
}
