//! Notifications of what becomes of runs and executions. Each owner's subscribers receive those of that owner
//! alone.
//!
//! A slow subscriber loses the oldest and learns how many. It must never tell one owner of another's, nor
//! wait for a subscriber.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::Value;
use tokio::sync::broadcast;

/// Notifications that wait for a slow subscriber; it loses older ones.
const BACKLOG: usize = 128;

/// One notification.
#[derive(Debug, Clone)]
pub struct Notification {
    /// Its JSON-RPC method.
    pub method: &'static str,
    /// Its parameters.
    pub params: Arc<Value>,
}

/// The subscribers of all owners.
#[derive(Debug, Default)]
pub struct Notifications(Mutex<HashMap<String, broadcast::Sender<Notification>>>);

impl Notifications {
    fn senders(&self) -> MutexGuard<'_, HashMap<String, broadcast::Sender<Notification>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Receives this owner's notifications from now on.
    pub fn subscribe(&self, owner: &str) -> broadcast::Receiver<Notification> {
        let mut senders = self.senders();
        senders.retain(|_, sender| sender.receiver_count() > 0);
        senders.entry(owner.to_owned()).or_insert_with(|| broadcast::Sender::new(BACKLOG)).subscribe()
    }

    /// Whether this owner has subscribers.
    pub fn has_subscribers(&self, owner: &str) -> bool {
        self.senders().get(owner).is_some_and(|sender| sender.receiver_count() > 0)
    }

    /// Subscribers of all owners.
    pub fn subscribers(&self) -> usize {
        self.senders().values().map(broadcast::Sender::receiver_count).sum()
    }

    /// Notifies this owner's subscribers; `params` is called only if there is one.
    pub fn notify(&self, owner: &str, method: &'static str, params: impl FnOnce() -> Value) {
        let sender = self.senders().get(owner).filter(|sender| sender.receiver_count() > 0).cloned();
        let Some(sender) = sender else { return };
        // The last subscriber may just have gone.
        let _ = sender.send(Notification { method, params: Arc::new(params()) });
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tokio::sync::broadcast::error::TryRecvError;

    use super::*;

    const METHOD: &str = "notifications/test";

    #[test]
    fn each_owner_receives_its_own_and_nothing_is_made_for_nobody() {
        let all = Notifications::default();
        all.notify("a", METHOD, || unreachable!("nobody subscribed"));
        let (mut a, mut b) = (all.subscribe("a"), all.subscribe("b"));
        assert!(all.has_subscribers("a") && !all.has_subscribers("c") && all.subscribers() == 2);
        all.notify("a", METHOD, || json!(1));
        assert_eq!(a.try_recv().map(|one| (one.method, (*one.params).clone())), Ok((METHOD, json!(1))));
        assert_eq!(b.try_recv().err(), Some(TryRecvError::Empty));
        drop(a);
        assert!(!all.has_subscribers("a"));
        all.notify("a", METHOD, || unreachable!("the last one has gone"));
        drop(all.subscribe("c"));
        assert_eq!(all.senders().len(), 2, "an owner whose subscribers have gone is kept: {all:?}");
    }

    #[test]
    fn a_slow_subscriber_loses_the_oldest_and_learns_how_many() {
        let all = Notifications::default();
        let mut slow = all.subscribe("a");
        for n in 0..BACKLOG + 3 {
            all.notify("a", METHOD, || json!(n));
        }
        assert_eq!(slow.try_recv().err(), Some(TryRecvError::Lagged(3)));
        assert_eq!(slow.try_recv().map(|one| (*one.params).clone()), Ok(json!(3)));
    }
}
