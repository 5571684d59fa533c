//! Which workspaces are kept, and which of them is removed when: pure.
//!
//! * A workspace is kept for its session and its coding agent, one for each; a later one takes its place.
//! * At most `tasks.workspaces` are kept: with one more, the one that was kept first is removed.
//! * After `tasks.retention` it is removed; so it is when its session is deleted.
//! * While a container is being started over it, nothing removes it but that start.
//!
//! This module must never read a clock, nor touch the engine or the disk.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use crate::config::KeptWorkspaces;
use crate::session::gate::message::SessionKey;

/// One workspace without a container.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Kept {
    key: SessionKey,
    language: String,
    since: SystemTime,
    /// A container is being started over it.
    is_starting: bool,
}

/// The workspaces that are kept, by the name of their containers.
#[derive(Debug)]
pub(super) struct Books {
    /// `None`: none is ever kept.
    bounds: Option<KeptWorkspaces>,
    kept: BTreeMap<String, Kept>,
}

impl Books {
    pub(super) fn new(bounds: Option<KeptWorkspaces>) -> Self {
        Self { bounds, kept: BTreeMap::new() }
    }

    /// Whether any is ever kept.
    pub(super) fn keeps(&self) -> bool {
        self.bounds.is_some()
    }

    /// Keeps one from `since` on. Returns the names of those that are to be removed for that, which can be
    /// its own.
    pub(super) fn keep(
        &mut self,
        name: &str,
        (key, language): (SessionKey, &str),
        since: SystemTime,
    ) -> Vec<String> {
        let Some(bounds) = self.bounds else { return vec![name.to_owned()] };
        let is_same = |kept: &Kept| kept.key == key && kept.language == language && !kept.is_starting;
        let mut gone = self.take(|of, kept| of != name && is_same(kept));
        let kept = Kept { key, language: language.to_owned(), since, is_starting: false };
        self.kept.insert(name.to_owned(), kept);
        while self.kept.len() > bounds.most as usize {
            let resting = self.kept.iter().filter(|(_, kept)| !kept.is_starting);
            let oldest = resting.min_by_key(|(name, kept)| (kept.since, *name)).map(|(name, _)| name.clone());
            let Some(oldest) = oldest else { break };
            self.kept.remove(&oldest);
            gone.push(oldest);
        }
        gone
    }

    /// A container is about to be started over the workspace of this session and coding agent, if it has one:
    /// its name.
    pub(super) fn begin(&mut self, key: &SessionKey, language: &str) -> Option<String> {
        let of = |kept: &Kept| kept.key == *key && kept.language == language && !kept.is_starting;
        let (name, kept) = self.kept.iter_mut().find(|(_, kept)| of(kept))?;
        kept.is_starting = true;
        Some(name.clone())
    }

    /// No container was started over it: it is kept as before.
    pub(super) fn give_back(&mut self, name: &str) {
        if let Some(kept) = self.kept.get_mut(name) {
            kept.is_starting = false;
        }
    }

    /// It has a container, or is gone.
    pub(super) fn forget(&mut self, name: &str) {
        self.kept.remove(name);
    }

    /// The session is deleted: the names of its workspaces, which are to be removed.
    pub(super) fn delete(&mut self, key: &SessionKey) -> Vec<String> {
        self.take(|_, kept| kept.key == *key)
    }

    /// The names of those that were kept for long enough, which are to be removed.
    pub(super) fn expire(&mut self, now: SystemTime) -> Vec<String> {
        let Some(bounds) = self.bounds else { return Vec::new() };
        self.take(|_, kept| !kept.is_starting && end(kept, bounds).is_some_and(|end| end <= now))
    }

    /// How long after `now` the next one is to be removed.
    pub(super) fn next_expiry(&self, now: SystemTime) -> Option<Duration> {
        let bounds = self.bounds?;
        let resting = self.kept.values().filter(|kept| !kept.is_starting);
        let next = resting.filter_map(|kept| end(kept, bounds)).min()?;
        Some(next.duration_since(now).unwrap_or_default())
    }

    /// How many there are, and the most there may be.
    pub(super) fn counts(&self) -> (usize, usize) {
        (self.kept.len(), self.bounds.map_or(0, |bounds| bounds.most as usize))
    }

    fn take(&mut self, which: impl Fn(&str, &Kept) -> bool) -> Vec<String> {
        let taken = self.kept.iter().filter(|(name, kept)| which(name, kept));
        let taken: Vec<_> = taken.map(|(name, _)| name.clone()).collect();
        self.kept.retain(|name, _| !taken.contains(name));
        taken
    }
}

/// When it is removed; `None`: later than there are dates.
fn end(kept: &Kept, bounds: KeptWorkspaces) -> Option<SystemTime> {
    kept.since.checked_add(bounds.retention)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    fn books(most: u32) -> Books {
        Books::new(Some(KeptWorkspaces { retention: 24 * HOUR, most }))
    }

    fn key(session: &str) -> SessionKey {
        SessionKey::new("default", &session.parse().unwrap())
    }

    fn at(hours: u32) -> SystemTime {
        SystemTime::UNIX_EPOCH + HOUR * hours
    }

    fn keep(books: &mut Books, name: &str, session: &str, hours: u32) -> Vec<String> {
        books.keep(name, (key(session), "claude-code"), at(hours))
    }

    #[test]
    fn a_workspace_is_for_its_session_and_agent_alone() {
        let mut books = books(9);
        assert_eq!(keep(&mut books, "a", "s", 0), [""; 0]);
        let other = SessionKey::new("another", &"s".parse().unwrap());
        assert_eq!(books.begin(&other, "claude-code"), None, "another owner's session of the same id");
        assert_eq!(books.begin(&key("t"), "claude-code"), None);
        assert_eq!(books.begin(&key("s"), "opencode"), None);
        assert_eq!(books.begin(&key("s"), "claude-code").as_deref(), Some("a"));
        assert_eq!(books.begin(&key("s"), "claude-code"), None, "a second container over it is refused");
        books.give_back("a");
        assert_eq!(books.begin(&key("s"), "claude-code").as_deref(), Some("a"));
        books.forget("a");
        assert_eq!((books.begin(&key("s"), "claude-code"), books.counts()), (None, (0, 9)));
    }

    #[test]
    fn the_bound_removes_what_was_kept_first_and_a_later_workspace_takes_the_place_of_its_own() {
        let mut books = books(2);
        keep(&mut books, "b", "t", 1);
        keep(&mut books, "a", "s", 2);
        assert_eq!(keep(&mut books, "c", "u", 3), ["b"]);
        assert_eq!(keep(&mut books, "d", "s", 4), ["a"], "the session has another");
        assert_eq!(books.begin(&key("u"), "claude-code").as_deref(), Some("c"));
        assert_eq!(keep(&mut books, "e", "v", 5), ["d"], "the oldest is being started over");
        assert_eq!(books.counts(), (2, 2));
    }

    #[test]
    fn a_workspace_goes_after_its_retention_unless_a_container_is_being_started_over_it() {
        let mut books = books(9);
        keep(&mut books, "a", "s", 0);
        keep(&mut books, "b", "t", 1);
        assert_eq!(books.next_expiry(at(2)), Some(22 * HOUR));
        assert_eq!(books.expire(at(24) - Duration::from_secs(1)), [""; 0]);
        books.begin(&key("s"), "claude-code").unwrap();
        assert_eq!((books.expire(at(24)), books.next_expiry(at(24))), (vec![], Some(HOUR)));
        books.give_back("a");
        assert_eq!(books.next_expiry(at(30)), Some(Duration::ZERO));
        assert_eq!(books.expire(at(30)), ["a", "b"]);
        assert_eq!(books.next_expiry(at(30)), None);
    }

    #[test]
    fn a_deleted_session_takes_its_workspaces_along_and_no_other() {
        let mut books = books(9);
        keep(&mut books, "a", "s", 0);
        keep(&mut books, "b", "t", 0);
        books.keep("c", (key("s"), "opencode"), at(0));
        assert_eq!(books.delete(&key("s")), ["a", "c"]);
        assert_eq!((books.delete(&key("s")), books.counts()), (vec![], (1, 9)));
    }

    #[test]
    fn without_a_retention_nothing_is_kept_not_even_what_an_earlier_daemon_kept() {
        let mut books = Books::new(None);
        assert!(!books.keeps());
        assert_eq!(keep(&mut books, "a", "s", 0), ["a"]);
        assert_eq!((books.begin(&key("s"), "claude-code"), books.counts()), (None, (0, 0)));
    }
}
