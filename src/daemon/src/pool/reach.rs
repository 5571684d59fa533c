//! Whether the engine answers, by two signs: its event stream is open, and it answers a ping now and then.
//!
//! An engine that died breaks the stream, which is noticed at once. One that was stopped, or hangs, keeps its
//! connections open and says nothing: only the ping notices that. This must never take one unanswered ping for an
//! outage, for an outage costs the pool its idle containers.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{mpsc, watch as latest};
use tracing::{info, warn};

use super::core::Event;
use super::driver::Message;
use crate::engine::{Engine, EngineError};

/// Between two pings. One costs the engine and the daemon a fraction of a millisecond.
const EVERY: Duration = Duration::from_secs(3);

/// How long an answer may take. Nothing that the engine does holds a ping up, but its host may be busy.
const WITHIN: Duration = Duration::from_secs(5);

/// Pings without an answer, one after the other, that make an outage: noticed after 13 s at most.
const MISSES: u32 = 2;

#[derive(Debug, Clone, Copy)]
struct Signs {
    stream: bool,
    ping: bool,
}

/// What is known of the engine.
pub(super) struct Reach {
    signs: Mutex<Signs>,
    up: latest::Sender<bool>,
    /// The driver, which hears of every change.
    sender: mpsc::UnboundedSender<Message>,
}

impl Reach {
    /// An engine that answers.
    pub(super) fn new(sender: mpsc::UnboundedSender<Message>) -> Self {
        let signs = Signs { stream: true, ping: true };
        Self { signs: Mutex::new(signs), up: latest::Sender::new(true), sender }
    }

    /// Whether it answers, as it changes.
    pub(super) fn up(&self) -> latest::Receiver<bool> {
        self.up.subscribe()
    }

    /// Whether it answers.
    pub(super) fn is_up(&self) -> bool {
        *self.up.borrow()
    }

    /// The event stream broke.
    pub(super) fn lost(&self, error: &EngineError) {
        self.note(|signs| signs.stream = false, Some(error));
    }

    /// The event stream is open again: whoever opens one answers.
    pub(super) fn reconnected(&self) {
        self.note(|signs| *signs = Signs { stream: true, ping: true }, None);
    }

    /// Pings the engine until it is dropped.
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
                        continue; // that was wait enough
                    }
                }
            }
            tokio::time::sleep(EVERY).await;
        }
    }

    fn note(&self, change: impl FnOnce(&mut Signs), error: Option<&EngineError>) {
        // Held to the end: the driver hears of changes in their order.
        let mut signs = self.signs.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut signs);
        let now = signs.stream && signs.ping;
        // Whoever watches is woken by changes alone: a ping that is answered is none.
        if !self.up.send_if_modified(|up| std::mem::replace(up, now) != now) {
            return;
        }
        let event = if now {
            info!("the engine answers again");
            Event::EngineUp
        } else {
            warn!(error = error.map(tracing::field::display), "the engine does not answer");
            Event::EngineDown
        };
        let _ = self.sender.send(Message::Event(event));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused() -> EngineError {
        let host = "unix:///nowhere".parse().expect("a host");
        EngineError::Unreachable { host, source: "nobody listens".into() }
    }

    /// What the driver heard since the last time.
    fn heard(messages: &mut mpsc::UnboundedReceiver<Message>) -> Vec<Event> {
        let next = || match messages.try_recv() {
            Ok(Message::Event(event)) => Some(event),
            Ok(_) => panic!("something else"),
            Err(_) => None,
        };
        std::iter::from_fn(next).collect()
    }

    #[test]
    fn both_signs_must_be_good_and_each_change_is_told_once() {
        let (sender, mut messages) = mpsc::unbounded_channel();
        let reach = Reach::new(sender);
        reach.note(|signs| signs.ping = true, None);
        assert!(reach.is_up() && heard(&mut messages).is_empty());
        // It stands still, then it dies, then there is a new one.
        reach.note(|signs| signs.ping = false, Some(&refused()));
        assert_eq!((reach.is_up(), heard(&mut messages)), (false, vec![Event::EngineDown]));
        reach.lost(&refused());
        reach.note(|signs| signs.ping = true, None);
        assert_eq!((reach.is_up(), heard(&mut messages)), (false, vec![]));
        reach.note(|signs| signs.ping = false, Some(&refused()));
        reach.reconnected();
        assert_eq!((reach.is_up(), heard(&mut messages)), (true, vec![Event::EngineUp]));
        // It stood still only.
        reach.note(|signs| signs.ping = false, Some(&refused()));
        reach.note(|signs| signs.ping = true, None);
        assert_eq!(heard(&mut messages), [Event::EngineDown, Event::EngineUp]);
    }
}
