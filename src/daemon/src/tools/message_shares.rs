//! How much of large messages the calls of one session may hold while they wait and run.
//!
//! The calls of one session run one after the other, and each holds its message until it ends. The daemon
//! bounds the memory of messages that arrive (`api::body`). If waiting calls counted there, one session's
//! queue could hold all of it for minutes, and no other session's message could arrive. So a call leaves that
//! count when it takes a part of its session's share. A call that would exceed the share is refused at once.
//! This module must never refuse the only large call of a session.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{Code, Fault};
use crate::session::{SessionId, SessionKey};

/// Bytes of large messages that the calls of one session may hold together: a quarter of [`ALL`].
const SHARE: u64 = 32 << 20;

/// Bytes of large messages that the calls of all sessions may hold outside of that count. A call that finds
/// no room goes on counting among the messages that arrive.
const ALL: u64 = 128 << 20;

/// A message that has arrived, and counts among those until it is released.
pub trait ArrivedMessage: Send + Sync {
    /// Its bytes; 0 if it is so small that it does not count.
    fn bytes(&self) -> u64;
    /// Gives back what it holds among the messages that arrive.
    fn release(&self);
}

/// What each session holds of its share.
#[derive(Debug, Default)]
pub struct MessageShares(Mutex<MessageSums>);

#[derive(Debug, Default)]
struct MessageSums {
    /// By owner and session.
    sessions: HashMap<SessionKey, u64>,
    /// Of those messages that were released.
    all: u64,
}

/// The message of one call: its part of the session's share, until this is dropped.
#[derive(Debug)]
pub(super) struct HeldMessage {
    shares: Arc<MessageShares>,
    key: SessionKey,
    bytes: u64,
    is_released: bool,
}

impl MessageShares {
    /// Takes a part of the session's share for the message of a call; `None` for a small message.
    ///
    /// # Errors
    /// Other calls of the session hold so much that this one would exceed the share.
    pub(super) fn enter(
        self: &Arc<Self>,
        owner: &str,
        session: &SessionId,
        message: Option<&dyn ArrivedMessage>,
    ) -> Result<Option<HeldMessage>, Fault> {
        let Some((message, bytes)) = message.map(|message| (message, message.bytes())) else {
            return Ok(None);
        };
        if bytes == 0 {
            return Ok(None);
        }
        let key = SessionKey::new(owner, session);
        let mut sums = self.sums();
        let sum = sums.sessions.get(&key).copied().unwrap_or_default();
        if sum > 0 && sum + bytes > SHARE {
            let text = format!(
                "the calls of this session that wait or run hold {sum} bytes of messages, and this one has \
                 {bytes}; together at most {SHARE} are possible: try again when one of them has ended"
            );
            return Err(Fault::new(Code::QueueFull, text));
        }
        sums.sessions.insert(key.clone(), sum + bytes);
        let is_released = sums.all + bytes <= ALL;
        if is_released {
            sums.all += bytes;
            message.release();
        }
        drop(sums);
        Ok(Some(HeldMessage { shares: self.clone(), key, bytes, is_released }))
    }

    fn sums(&self) -> MutexGuard<'_, MessageSums> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for HeldMessage {
    fn drop(&mut self) {
        let mut sums = self.shares.sums();
        if self.is_released {
            sums.all -= self.bytes;
        }
        if let Some(sum) = sums.sessions.get_mut(&self.key) {
            *sum -= self.bytes;
            if *sum == 0 {
                sums.sessions.remove(&self.key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    struct Message(u64, AtomicBool);

    impl ArrivedMessage for Message {
        fn bytes(&self) -> u64 {
            self.0
        }

        fn release(&self) {
            self.1.store(true, Ordering::Relaxed);
        }
    }

    /// The part, and whether the message was released.
    fn enter(
        shares: &Arc<MessageShares>,
        owner: &str,
        id: &str,
        bytes: u64,
    ) -> Result<(Option<HeldMessage>, bool), Fault> {
        let message = Message(bytes, AtomicBool::new(false));
        let part = shares.enter(owner, &id.parse().unwrap(), Some(&message))?;
        Ok((part, message.1.into_inner()))
    }

    #[test]
    fn one_session_holds_its_share_and_no_more() {
        let shares = Arc::new(MessageShares::default());
        let mut held: Vec<_> = (0..32).map(|_| enter(&shares, "a", "full", 1 << 20).unwrap()).collect();
        let refused = enter(&shares, "a", "full", 70_000).unwrap_err();
        assert!(refused.code == Code::QueueFull && refused.message.contains("70000"), "{}", refused.message);
        assert!(enter(&shares, "a", "full", 0).unwrap().0.is_none(), "small messages are never refused");
        assert!(shares.enter("a", &"full".parse().unwrap(), None).unwrap().is_none());
        drop((enter(&shares, "a", "other", 1 << 20).unwrap(), enter(&shares, "b", "full", 1 << 20).unwrap()));
        held.pop();
        held.push(enter(&shares, "a", "full", 70_000).unwrap());
        held.clear();
        drop(enter(&shares, "a", "full", 2 * SHARE).unwrap());
        let sums = shares.sums();
        assert!(sums.sessions.is_empty() && sums.all == 0, "nothing is kept of sessions without calls");
    }

    #[test]
    fn a_message_is_released_while_there_is_room() {
        let shares = Arc::new(MessageShares::default());
        let first: Vec<_> = (0..4).map(|n| enter(&shares, "a", &n.to_string(), SHARE).unwrap()).collect();
        assert!(first.iter().all(|(_, is_released)| *is_released));
        let (part, is_released) = enter(&shares, "a", "more", 1).unwrap();
        assert!(part.is_some() && !is_released, "it still counts as a call that is arriving");
        drop((first, part));
        let (part, is_released) = enter(&shares, "a", "more", SHARE).unwrap();
        assert!(is_released, "there is room again");
        drop(part);
        assert_eq!(shares.sums().all, 0);
    }
}
