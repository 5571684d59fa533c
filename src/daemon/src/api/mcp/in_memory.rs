//! The MCP sessions of one owner that are in memory: the order of their use, and the requests in progress in
//! each.
//!
//! It must never evict a session with a request in progress, nor take two requests of one id at a time.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use serde_json::Value;

/// MCP sessions of one owner in memory. Each takes some 50 KB, and many clients make one for every call and
/// never end it: of more than these the least recently used is evicted; it can be loaded from disk again.
pub(super) const SESSIONS: usize = 200;

/// How often the use of a session is noted on disk.
const NOTE_USE: Duration = Duration::from_secs(3600);

/// The sessions, the most recently used at the end.
#[derive(Default)]
pub(super) struct SessionsInMemory(Mutex<VecDeque<SessionInMemory>>);

/// A session in memory.
struct SessionInMemory {
    id: Arc<str>,
    /// Its requests and their ids. A request is in progress while something else holds its `Arc`.
    calls: Vec<(Weak<()>, Value)>,
    /// When its use was last noted on disk.
    noted: Instant,
}

/// What the use of a session makes necessary.
#[derive(Default)]
pub(super) struct UseNoted {
    /// The use has to be noted on disk, too.
    pub(super) note_on_disk: bool,
    /// This other session was evicted from memory.
    pub(super) evicted: Option<Arc<str>>,
}

impl SessionsInMemory {
    /// Notes a request in progress; false if one with this id is in progress already.
    pub(super) fn ask(&self, session: &str, id: &Value, call: &Arc<()>) -> bool {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(session) = all.iter_mut().find(|known| *known.id == *session) else { return true };
        session.calls.retain(|(call, _)| call.strong_count() > 0);
        if session.calls.iter().any(|(_, known)| known == id) {
            return false;
        }
        session.calls.push((Arc::downgrade(call), id.clone()));
        true
    }

    /// The ids of all.
    pub(super) fn ids(&self) -> Vec<Arc<str>> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.iter().map(|session| session.id.clone()).collect()
    }

    /// Notes that a session is used, by this request if it is one.
    pub(super) fn note_use(&self, id: &str, call: Option<(&Arc<()>, &Value)>) -> UseNoted {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = all.iter().position(|known| *known.id == *id).and_then(|at| all.remove(at));
        let new = || SessionInMemory { id: id.into(), calls: Vec::new(), noted: Instant::now() };
        let mut session = known.unwrap_or_else(new);
        if let Some((call, id)) = call.filter(|(_, id)| session.calls.iter().all(|(_, known)| known != *id)) {
            session.calls.push((Arc::downgrade(call), id.clone()));
        }
        let note_on_disk = session.noted.elapsed() > NOTE_USE;
        if note_on_disk {
            session.noted = Instant::now();
        }
        all.push_back(session);
        let rests =
            |session: &SessionInMemory| session.calls.iter().all(|(call, _)| call.strong_count() == 0);
        let oldest = if all.len() > SESSIONS { all.iter().position(rests) } else { None };
        let evicted = oldest.and_then(|at| all.remove(at)).map(|session| session.id);
        UseNoted { note_on_disk, evicted }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_recently_used_without_a_request_is_evicted() {
        let all = SessionsInMemory::default();
        let (call, id) = (Arc::new(()), Value::from(7));
        assert!(all.note_use("busy", Some((&call, &id))).evicted.is_none());
        for n in 1..SESSIONS {
            assert!(all.note_use(&n.to_string(), None).evicted.is_none());
        }
        assert_eq!(all.note_use("more", None).evicted.as_deref(), Some("1"));
        drop(call);
        assert_eq!(all.note_use("and more", None).evicted.as_deref(), Some("busy"));
    }

    #[test]
    fn an_id_is_free_again_when_its_request_is_over() {
        let all = SessionsInMemory::default();
        all.note_use("s", None);
        let (call, id) = (Arc::new(()), Value::from("a"));
        assert!(all.ask("s", &id, &call) && !all.ask("s", &id, &Arc::new(())));
        assert!(all.ask("s", &Value::from("b"), &call) && all.ask("other", &id, &call));
        drop(call);
        assert!(all.ask("s", &id, &Arc::new(())));
    }
}
