//! The network of one run, as PID 1 has it: whether it has one, and its connections, which die with it.
//!
//! What a program has sent before its end still leaves, as from any kernel, within [`DRAIN`]. It must never
//! outlive its run: no connection may be made for a run that is over.

use std::cell::{Cell, RefCell};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::JoinSet;

/// How long the end of a run waits for what its programs have sent.
const DRAIN: Duration = Duration::from_secs(1);

/// The network of one run.
pub(crate) struct RunNetwork {
    /// The run's id, by which the daemon knows its policy.
    pub(super) id: String,
    open: Cell<bool>,
    /// Woken when it is over.
    over: Notify,
    /// A task for each connection, from the call on.
    connections: RefCell<JoinSet<()>>,
}

impl RunNetwork {
    pub(super) fn new(id: String, open: bool) -> Self {
        Self { id, open: Cell::new(open), over: Notify::new(), connections: RefCell::default() }
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

    /// How many of its connections there are.
    pub(super) fn count(&self) -> usize {
        let mut connections = self.connections.borrow_mut();
        while connections.try_join_next().is_some() {}
        connections.len()
    }

    /// Resolves when the run is over: no process of it is left.
    pub(super) async fn over(&self) {
        while self.is_open() {
            self.over.notified().await; // nothing runs between the look and the wait
        }
    }

    /// The run is over: its connections end, and those that do not are reset.
    pub(super) async fn close(&self) {
        self.open.set(false);
        self.over.notify_waiters();
        let mut connections = self.connections.take();
        let ended = async { while connections.join_next().await.is_some() {} };
        let _ = tokio::time::timeout(DRAIN, ended).await;
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
