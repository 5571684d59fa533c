//! Faults begin and end.

use super::message::Input;
use super::plan::Kind;
use super::world::{Event, World};

impl World {
    /// Nodes that are not there in the beginning.
    pub(super) fn late_joiners(&self) -> Vec<usize> {
        let joins = |kind| if let Kind::JoinsLate(node) = kind { Some(node) } else { None };
        self.plan.faults.iter().filter_map(|fault| joins(fault.kind)).collect()
    }

    pub(super) fn begins(&mut self, kind: Kind) {
        match kind {
            Kind::Kill(node) => self.stop_node(node),
            Kind::Pause(node) => self.machines[node].paused = true,
            Kind::CutFromDatabase(node) => self.network.ways[node].toward_database += 1,
            Kind::DeafToDatabase(node) => self.network.ways[node].back_from_database += 1,
            Kind::CutFromPeers(node) => self.network.ways[node].peers += 1,
            Kind::CutFromObjects(node) => self.network.ways[node].objects += 1,
            Kind::DatabaseAway => self.network.database_away += 1,
            Kind::ObjectsAway => self.network.objects_away += 1,
            Kind::DatabaseSlow(by) => self.network.database_slow = by,
            Kind::Drain(node) => {
                let start = self.machines[node].start;
                self.input(node, start, Input::Drain);
            }
            Kind::Upgrade(node) => {
                let start = self.machines[node].start;
                self.machines[node].upgrading = Some(start);
                self.input(node, start, Input::Drain);
            }
            Kind::ClockSet(by) => self.clock_set += by,
            Kind::JoinsLate(_) => {}
        }
    }

    pub(super) fn ends(&mut self, kind: Kind) {
        match kind {
            Kind::Kill(node) | Kind::JoinsLate(node) => self.start_if_down(node),
            Kind::Pause(node) => self.wakes(node),
            Kind::CutFromDatabase(node) => self.network.ways[node].toward_database -= 1,
            Kind::DeafToDatabase(node) => self.network.ways[node].back_from_database -= 1,
            Kind::CutFromPeers(node) => self.network.ways[node].peers -= 1,
            Kind::CutFromObjects(node) => self.network.ways[node].objects -= 1,
            Kind::DatabaseAway => self.network.database_away -= 1,
            Kind::ObjectsAway => self.network.objects_away -= 1,
            Kind::DatabaseSlow(_) => self.network.database_slow = 0,
            Kind::Drain(node) => {
                // The operator who drained the node kills it, if it has not ended by itself.
                self.stop_node(node);
                self.start_node(node);
            }
            Kind::Upgrade(node) => {
                if self.machines[node].upgrading.take() == Some(self.machines[node].start) {
                    self.stop_node(node); // it has not left by itself
                }
                self.start_if_down(node);
            }
            Kind::ClockSet(_) => {}
        }
    }

    /// The machine goes on. Timers and messages that have piled up come in any order, within a moment.
    fn wakes(&mut self, node: usize) {
        let now = self.now;
        let machine = &mut self.machines[node];
        (machine.paused, machine.paused_until) = (false, now);
        for (start, input) in std::mem::take(&mut machine.backlog) {
            let at = now + self.chance.between(0, 50_000);
            self.push(at, Event::Node { node, start, input });
        }
    }
}
