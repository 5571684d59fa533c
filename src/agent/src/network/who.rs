//! Which run a process belongs to that a warm part forked, by the process tree.
//!
//! ```text
//!  job ─► part ─► child that has the run ─► its processes            belong to the run
//!   │       └───► child that waits, holders, the part itself         belong to none
//!   └───► orphans: to the run if nothing was left of an earlier one when it was given,
//!                  or if they are in the session that its child leads
//! ```
//!
//! A process cannot choose its parent, and joins no session but by being forked in it. It must never take a
//! process of an earlier run for one of this: who is not known for sure belongs to none.

use super::run::RunNetwork;
use crate::tree;
use std::cell::RefCell;
use std::rc::Rc;

/// The deepest tree of processes that is looked through.
const MAX_DEPTH: usize = 1024;

/// Whose the programs of one filter are.
pub(crate) enum Owner {
    /// A run's own.
    Run(Rc<RunNetwork>),
    /// A warm part's, and of what it forks.
    Part(Rc<PartRun>),
}

/// The run that a warm part has.
#[derive(Default)]
pub(crate) struct PartRun(RefCell<Option<GivenRun>>);

struct GivenRun {
    run: Rc<RunNetwork>,
    /// `None` where the part itself became the program: all of its job is the run's.
    place: Option<Place>,
}

/// Where the processes of a forked run are in the process tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) job: i32,
    pub(crate) part: i32,
    /// The child of the part that has the run.
    pub(crate) child: i32,
    /// Whether no process of an earlier run was left when it was given.
    pub(crate) alone: bool,
}

impl PartRun {
    /// The part has this run now; with `place` the run is a child's.
    pub(crate) fn give(&self, run: &Rc<RunNetwork>, place: Option<Place>) {
        self.0.replace(Some(GivenRun { run: run.clone(), place }));
    }

    /// Another child than the one that waited took the run.
    pub(crate) fn taken_by(&self, child: i32) {
        if let Some(Place { child: taker, .. }) = self.0.borrow_mut().as_mut().and_then(|g| g.place.as_mut())
        {
            *taker = child;
        }
    }

    /// Its run is over.
    pub(crate) fn take_back(&self) {
        self.0.take();
    }

    fn run_of(&self, process: impl FnOnce() -> Option<i32>) -> Option<Rc<RunNetwork>> {
        let now = self.0.borrow();
        let now = now.as_ref().filter(|now| now.run.is_open())?;
        let is_its = match &now.place {
            None => true,
            Some(place) => belongs(&|pid| tree::parentage(pid), process()?, *place),
        };
        is_its.then(|| now.run.clone())
    }
}

impl Owner {
    /// The run that has a network and that the process belongs to, if there is one. The process is asked for
    /// only where that is needed.
    pub(super) fn run_of(&self, process: impl FnOnce() -> Option<i32>) -> Option<Rc<RunNetwork>> {
        match self {
            Self::Run(run) => run.is_open().then(|| run.clone()),
            Self::Part(part) => part.run_of(process),
        }
    }
}

/// Parent and session of a process.
type Parentage = (i32, i32);

/// Whether a process belongs to the run at this place.
fn belongs(look: &dyn Fn(i32) -> Option<Parentage>, process: i32, place: Place) -> bool {
    let Place { job, part, child, alone } = place;
    let mut chain: Vec<(i32, Parentage)> = Vec::new();
    let mut at = process;
    while at != job && at != part {
        let Some(parentage) = look(at).filter(|_| at > 1 && chain.len() < MAX_DEPTH) else { return false };
        chain.push((at, parentage));
        at = parentage.0;
    }
    let (Some((oldest, _)), Some((_, (_, session)))) = (chain.last(), chain.first()) else { return false };
    let is_its = if at == part { *oldest == child } else { alone || *session == child };
    // A process whose parent is the same before and after has had that parent in between. From the oldest to
    // the youngest, this proves each in turn: the numbers looked at above were of these processes.
    is_its && chain.iter().rev().all(|(pid, parentage)| look(*pid) == Some(*parentage))
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::collections::HashMap;

    use super::*;

    const PLACE: Place = Place { job: 10, part: 11, child: 20, alone: false };

    /// (process, parent, session)
    const TREE: [(i32, i32, i32); 12] = [
        (10, 1, 10),
        (11, 10, 11),
        (20, 11, 20), // has the run
        (21, 20, 20),
        (22, 21, 22), // a session of its own
        (30, 11, 30), // waits
        (31, 11, 20), // made with CLONE_PARENT
        (40, 10, 20), // an orphan
        (41, 40, 41),
        (50, 10, 49), // an orphan of another session
        (60, 1, 60),  // another job
        (61, 60, 61),
    ];

    fn found(process: i32, place: Place) -> bool {
        let table: HashMap<i32, Parentage> = TREE.iter().map(|(pid, up, s)| (*pid, (*up, *s))).collect();
        belongs(&|pid| table.get(&pid).copied(), process, place)
    }

    #[test]
    fn descendants_of_the_child_and_orphans_of_its_session_are_the_runs() {
        for (process, its) in [
            (20, true),
            (21, true),
            (22, true),
            (40, true),
            (41, false),
            (50, false),
            (30, false),
            (31, false),
            (10, false),
            (11, false),
            (60, false),
            (61, false),
            (1, false),
            (0, false),
            (99, false),
        ] {
            assert_eq!(found(process, PLACE), its, "{process}");
        }
    }

    #[test]
    fn where_nothing_was_left_of_an_earlier_run_every_orphan_is_this_runs() {
        let place = Place { alone: true, ..PLACE };
        for (process, its) in [(41, true), (50, true), (30, false), (31, false), (11, false), (61, false)] {
            assert_eq!(found(process, place), its, "{process}");
        }
    }

    #[test]
    fn a_number_that_changes_hands_meanwhile_proves_nothing() {
        // 21's parent dies after the first look, and another process has its number.
        let looks = Cell::new(0);
        let look = |pid: i32| {
            looks.set(looks.get() + 1);
            match (pid, looks.get()) {
                (21, 1) => Some((19, 19)),
                (21, _) => Some((10, 19)),
                (19, _) => Some((20, 20)),
                (20, _) => Some((11, 20)),
                _ => None,
            }
        };
        assert!(!belongs(&look, 21, PLACE));
    }

    #[test]
    fn a_chain_without_an_end_is_nobodys() {
        assert!(!belongs(&|pid| Some((pid ^ 1, 20)), 200, Place { alone: true, ..PLACE }));
    }
}
