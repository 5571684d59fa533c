//! Notes of what becomes of runs and executions, for whoever watches: each owner's own.
//!
//! It must never tell one owner of another's, nor wait for someone who watches.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::Value;
use tokio::sync::broadcast;

/// Notes that wait for a slow watcher; it is told that it missed some.
const WAITING: usize = 128;

/// One note: the method and the parameters of a notification.
#[derive(Debug, Clone)]
pub struct Note {
    /// Of what kind it is.
    pub method: &'static str,
    /// What it says.
    pub params: Arc<Value>,
}

/// All notes.
#[derive(Debug, Default)]
pub struct Feed(Mutex<HashMap<String, broadcast::Sender<Note>>>);

impl Feed {
    /// What is told of this owner's from now on.
    pub fn watch(&self, owner: &str) -> broadcast::Receiver<Note> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|_, sender| sender.receiver_count() > 0);
        all.entry(owner.to_owned()).or_insert_with(|| broadcast::Sender::new(WAITING)).subscribe()
    }

    /// Whether somebody watches this owner's.
    pub fn is_watched(&self, owner: &str) -> bool {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.get(owner).is_some_and(|sender| sender.receiver_count() > 0)
    }

    /// How many watch, of all owners.
    pub fn watchers(&self) -> usize {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.values().map(broadcast::Sender::receiver_count).sum()
    }

    /// Tells whoever watches; `params` is asked only if someone does.
    pub fn tell(&self, owner: &str, method: &'static str, params: impl FnOnce() -> Value) {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let sender = all.get(owner).filter(|sender| sender.receiver_count() > 0).cloned();
        drop(all);
        let Some(sender) = sender else { return };
        let _ = sender.send(Note { method, params: Arc::new(params()) }); // the last watcher may just have gone
    }
}
