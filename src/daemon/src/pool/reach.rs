//! Whether the engine answers, by two signs: its event stream is open, and it answers pings.
//!
//! An engine that dies breaks the stream, which the daemon notices at once. An engine that is stopped, or
//! hangs, keeps its connections open and stays silent: only the ping notices that. This module must never
//! take one unanswered ping for an outage, since an outage costs the pool its idle containers.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{mpsc, watch as latest};
use tracing::{info, warn};

use super::core::PoolEvent;
use super::driver::DriverMessage;
use crate::engine::{Engine, EngineError};

/// The pause between two pings. One costs the engine and the daemon a fraction of a millisecond.
const EVERY: Duration = Duration::from_secs(3);

/// The pause between two pings of an engine that does not answer, so that its return is noticed soon.
const EVERY_WHILE_DOWN: Duration = Duration::from_secs(1);

/// How long an answer may take. Nothing that the engine does delays a ping, but its host may be busy.
const WITHIN: Duration = Duration::from_secs(5);

/// So many pings in a row without an answer make an outage: it is noticed after 13 s at most.
const MISSES: u32 = 2;

#[derive(Debug, Clone, Copy)]
struct LivenessSigns {
    /// The event stream is open.
    stream: bool,
    /// The engine answers pings.
    ping: bool,
}

/// Both signs, and whether the engine counts as up.
pub(super) struct Reachability {
    signs: Mutex<LivenessSigns>,
    up: latest::Sender<bool>,
    /// The driver, which receives every change.
    sender: mpsc::UnboundedSender<DriverMessage>,
}

impl Reachability {
    /// Begins with an engine that answers.
    pub(super) fn new(sender: mpsc::UnboundedSender<DriverMessage>) -> Self {
        let signs = LivenessSigns { stream: true, ping: true };
        Self { signs: Mutex::new(signs), up: latest::Sender::new(true), sender }
    }

    /// Whether the engine answers, with every change.
    pub(super) fn up(&self) -> latest::Receiver<bool> {
        self.up.subscribe()
    }

    /// Whether the engine answers.
    pub(super) fn is_up(&self) -> bool {
        *self.up.borrow()
    }

    /// The event stream broke.
    pub(super) fn lost(&self, error: &EngineError) {
        self.note(|signs| signs.stream = false, Some(error));
    }

    /// The event stream is open again, so the engine answers, whatever the last ping found.
    pub(super) fn reconnected(&self) {
        self.note(|signs| *signs = LivenessSigns { stream: true, ping: true }, None);
    }

    /// Pings the engine until the future is dropped.
    pub(super) async fn watch(&self, engine: &Engine) {
        let mut missed = 0;
        loop {
            match engine.ping_within(WITHIN).await {
                Ok(()) => {
                    missed = 0;
                    self.note(|signs| signs.ping = true, None);
                }
                Err(error) => {
                    missed += 1;
                    if missed >= MISSES {
                        self.note(|signs| signs.ping = false, Some(&error));
                    }
                    if matches!(error, EngineError::Deadline { .. }) {
                        continue; // the deadline was pause enough
                    }
                }
            }
            tokio::time::sleep(if missed >= MISSES { EVERY_WHILE_DOWN } else { EVERY }).await;
        }
    }

    fn note(&self, change: impl FnOnce(&mut LivenessSigns), error: Option<&EngineError>) {
        // The lock is held to the end, so that the driver receives the changes in their order.
        let mut signs = self.signs.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut signs);
        let now = signs.stream && signs.ping;
        // Only a change wakes the watchers, not every answered ping.
        if !self.up.send_if_modified(|up| std::mem::replace(up, now) != now) {
            return;
        }
        let event = if now {
            info!("the engine answers again");
            PoolEvent::EngineUp
        } else {
            warn!(error = error.map(tracing::field::display), "the engine does not answer");
            PoolEvent::EngineDown
        };
        let _ = self.sender.send(DriverMessage::Event(event));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused() -> EngineError {
        let host = "unix:///nowhere".parse().expect("a host");
        EngineError::Unreachable { host, source: "nobody listens".into() }
    }

    /// The events that the driver has received since the last call.
    fn received(messages: &mut mpsc::UnboundedReceiver<DriverMessage>) -> Vec<PoolEvent> {
        let next = || match messages.try_recv() {
            Ok(DriverMessage::Event(event)) => Some(event),
            Ok(_) => panic!("a message that is no event"),
            Err(_) => None,
        };
        std::iter::from_fn(next).collect()
    }

    #[test]
    fn both_signs_must_be_good_and_each_change_is_reported_once() {
        let (sender, mut messages) = mpsc::unbounded_channel();
        let reach = Reachability::new(sender);
        reach.note(|signs| signs.ping = true, None);
        assert!(reach.is_up() && received(&mut messages).is_empty());
        // It hangs, then it dies, then a new one starts.
        reach.note(|signs| signs.ping = false, Some(&refused()));
        assert_eq!((reach.is_up(), received(&mut messages)), (false, vec![PoolEvent::EngineDown]));
        reach.lost(&refused());
        reach.note(|signs| signs.ping = true, None);
        assert_eq!((reach.is_up(), received(&mut messages)), (false, vec![]));
        reach.note(|signs| signs.ping = false, Some(&refused()));
        reach.reconnected();
        assert_eq!((reach.is_up(), received(&mut messages)), (true, vec![PoolEvent::EngineUp]));
        // It only hung.
        reach.note(|signs| signs.ping = false, Some(&refused()));
        reach.note(|signs| signs.ping = true, None);
        assert_eq!(received(&mut messages), [PoolEvent::EngineDown, PoolEvent::EngineUp]);
    }
}
