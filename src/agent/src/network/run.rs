//! The network of one run, as PID 1 has it: whether it has one, and its connections, which die with it.
//!
//! It must never outlive its run: no connection may be made for a run that is over.

use std::cell::{Cell, RefCell};

use tokio::task::JoinSet;

/// The network of one run.
pub(crate) struct RunNetwork {
    /// The run's id, by which the daemon knows its policy.
    pub(super) id: String,
    open: Cell<bool>,
    /// A task for each connection, from the call on.
    connections: RefCell<JoinSet<()>>,
}

impl RunNetwork {
    pub(super) fn new(id: String, open: bool) -> Self {
        Self { id, open: Cell::new(open), connections: RefCell::default() }
    }

    /// Whether its programs may ask for connections now.
    pub(crate) fn is_open(&self) -> bool {
        self.open.get()
    }

    /// Runs something for as long as the run lasts.
    pub(super) fn spawn(&self, connection: impl Future<Output = ()> + 'static) {
        let mut connections = self.connections.borrow_mut();
        while connections.try_join_next().is_some() {}
        if self.is_open() {
            connections.spawn_local(connection);
        }
    }

    /// The run is over: resets its connections.
    pub(super) async fn close(&self) {
        self.open.set(false);
        let mut connections = self.connections.take();
        connections.shutdown().await;
    }
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use tokio::task::LocalSet;

    use super::*;

    #[tokio::test]
    async fn connections_end_with_their_run_and_none_begins_afterwards() {
        LocalSet::new()
            .run_until(async {
                let run = RunNetwork::new("r".to_owned(), true);
                let held = Rc::new(());
                for begun in [false, true] {
                    let hold = held.clone();
                    run.spawn(async move {
                        let _hold = hold;
                        std::future::pending::<()>().await;
                    });
                    if begun {
                        tokio::task::yield_now().await;
                    }
                }
                assert_eq!(Rc::strong_count(&held), 3);
                run.close().await;
                assert_eq!((Rc::strong_count(&held), run.is_open()), (1, false));
                let hold = held.clone();
                run.spawn(async move { drop(hold) });
                assert_eq!(Rc::strong_count(&held), 1, "it is not begun");
            })
            .await;
    }
}
