//! The MCP sessions of one owner that are in memory: which was heard of when, and what is at work in each.
//!
//! It must never let one go in which something is at work, nor take two requests of one id at a time.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use serde_json::Value;

/// MCP sessions of one owner in memory. Each takes some 50 KB, and many clients make one for every call and never end
/// it: of more than these the least recently used is evicted; it can be loaded from disk again.
pub(super) const SESSIONS: usize = 200;

/// How often the disk is told that a session is used.
const NOTE_USE: Duration = Duration::from_secs(3600);

/// The sessions, the one heard of last at the end.
#[derive(Default)]
pub(super) struct Heard(Mutex<VecDeque<Session>>);

/// A session in memory.
struct Session {
    id: Arc<str>,
    /// Its requests and their ids; those that are at work still can be had.
    calls: Vec<(Weak<()>, Value)>,
    /// When the disk was told that it is used.
    noted: Instant,
}

/// What follows from having heard of a session.
#[derive(Default)]
pub(super) struct Due {
    /// The disk is to be told that it is used.
    pub(super) note: bool,
    /// This one has to go for it.
    pub(super) gone: Option<Arc<str>>,
}

impl Heard {
    /// Notes a request that a call is at work for; false if one with this id is already.
    pub(super) fn ask(&self, session: &str, id: &Value, call: &Arc<()>) -> bool {
        let mut heard = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(session) = heard.iter_mut().find(|known| *known.id == *session) else { return true };
        session.calls.retain(|(call, _)| call.strong_count() > 0);
        if session.calls.iter().any(|(_, known)| known == id) {
            return false;
        }
        session.calls.push((Arc::downgrade(call), id.clone()));
        true
    }

    /// The ids of those in memory.
    pub(super) fn ids(&self) -> Vec<Arc<str>> {
        let heard = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        heard.iter().map(|session| session.id.clone()).collect()
    }

    /// Notes that a session was heard of, by a request if it was one.
    pub(super) fn hear(&self, id: &str, call: Option<(&Arc<()>, &Value)>) -> Due {
        let mut heard = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = heard.iter().position(|known| *known.id == *id).and_then(|at| heard.remove(at));
        let new = || Session { id: id.into(), calls: Vec::new(), noted: Instant::now() };
        let mut session = known.unwrap_or_else(new);
        if let Some((call, id)) = call.filter(|(_, id)| session.calls.iter().all(|(_, known)| known != *id)) {
            session.calls.push((Arc::downgrade(call), id.clone()));
        }
        let note = session.noted.elapsed() > NOTE_USE;
        if note {
            session.noted = Instant::now();
        }
        heard.push_back(session);
        let rests = |session: &Session| session.calls.iter().all(|(call, _)| call.strong_count() == 0);
        let oldest = if heard.len() > SESSIONS { heard.iter().position(rests) } else { None };
        Due { note, gone: oldest.and_then(|at| heard.remove(at)).map(|session| session.id) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_at_work_stays_and_the_oldest_that_rests_goes() {
        let heard = Heard::default();
        let (call, id) = (Arc::new(()), Value::from(7));
        assert!(heard.hear("busy", Some((&call, &id))).gone.is_none());
        for n in 1..SESSIONS {
            assert!(heard.hear(&n.to_string(), None).gone.is_none());
        }
        assert_eq!(heard.hear("more", None).gone.as_deref(), Some("1"));
        drop(call);
        assert_eq!(heard.hear("and more", None).gone.as_deref(), Some("busy"));
    }

    #[test]
    fn an_id_is_free_again_when_its_call_is_over() {
        let heard = Heard::default();
        heard.hear("s", None);
        let (call, id) = (Arc::new(()), Value::from("a"));
        assert!(heard.ask("s", &id, &call) && !heard.ask("s", &id, &Arc::new(())));
        assert!(heard.ask("s", &Value::from("b"), &call) && heard.ask("other", &id, &call));
        drop(call);
        assert!(heard.ask("s", &id, &Arc::new(())));
    }
}
