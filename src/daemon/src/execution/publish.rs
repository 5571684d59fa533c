//! Notifications of an execution's events, for the subscribers of its owner.
//!
//! Of a flood subscribers receive the numbers, and can read its events.

use std::sync::Arc;

use serde_json::{Value, json};

use super::log::event::ExecutionEvent;
use super::log::index::AppendedEvents;
use crate::notifications::Notifications;
use crate::session::SessionId;

/// The JSON-RPC method.
const METHOD: &str = "notifications/execution";

/// Publishes the events of one execution.
pub(super) struct EventPublisher {
    notifications: Arc<Notifications>,
    execution: String,
    owner: String,
    session: SessionId,
}

impl EventPublisher {
    /// Of this execution, in this owner's session.
    pub(super) fn new(
        notifications: Arc<Notifications>,
        execution: String,
        (owner, session): (String, SessionId),
    ) -> Self {
        Self { notifications, execution, owner, session }
    }

    /// Whether somebody subscribes.
    pub(super) fn is_wanted(&self) -> bool {
        self.notifications.has_subscribers(&self.owner)
    }

    /// Notifies subscribers of events.
    pub(super) fn publish(&self, appended: &AppendedEvents) {
        if !appended.is_empty() {
            self.notifications.notify(&self.owner, METHOD, || self.params(appended));
        }
    }

    fn params(&self, appended: &AppendedEvents) -> Value {
        json!({
            "execution_id": self.execution,
            "session_id": self.session.as_str(),
            "first_seq": appended.first,
            "last_seq": appended.last,
            "events": appended.events.iter().map(ExecutionEvent::json).collect::<Vec<_>>(),
        })
    }
}
