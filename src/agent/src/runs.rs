//! The runs of this container: those whose end no daemon has heard yet, and how many there ever were.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use tokio::sync::Notify;

use crate::outlet::Outlet;

/// All runs of a container.
#[derive(Default)]
pub(crate) struct Runs {
    unheard: RefCell<BTreeMap<String, Rc<Outlet>>>,
    begun: Cell<u64>,
    removed: Notify,
}

impl Runs {
    /// The run of this id, if no daemon has heard its end.
    pub(crate) fn get(&self, id: &str) -> Option<Rc<Outlet>> {
        self.unheard.borrow().get(id).cloned()
    }

    /// From now on a daemon can attach to this run and end it.
    pub(crate) fn insert(&self, id: String, outlet: Rc<Outlet>) {
        self.unheard.borrow_mut().insert(id, outlet);
    }

    /// A daemon heard this run's end.
    pub(crate) fn remove(&self, id: &str) {
        self.unheard.borrow_mut().remove(id);
        self.removed.notify_waiters();
    }

    /// The ids of those whose end no daemon has heard.
    pub(crate) fn ids(&self) -> Vec<String> {
        self.unheard.borrow().keys().cloned().collect()
    }

    /// How many there are whose end no daemon has heard.
    pub(crate) fn len(&self) -> usize {
        self.unheard.borrow().len()
    }

    /// Counts a run whose program starts now; how many started before.
    pub(crate) fn begin(&self) -> u64 {
        self.begun.replace(self.begun.get() + 1)
    }

    /// How many programs ever started here.
    pub(crate) fn begun(&self) -> u64 {
        self.begun.get()
    }

    /// Resolves when there is no run whose end is unheard.
    pub(crate) async fn none(&self) {
        // Single-threaded: nothing runs between the look and the wait.
        while self.len() > 0 {
            self.removed.notified().await;
        }
    }
}
