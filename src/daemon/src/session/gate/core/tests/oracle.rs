//! An oracle: keeps its own books of the sessions, the calls and the permits, from events and actions alone,
//! and objects to whatever breaks a rule. It must never ask the core anything but what it judges, nor share a
//! function with it.

mod books;
mod verdicts;

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use super::super::{Action, CallId, Event, GateBounds, GateCounts, SessionKey, TurnKind};

/// How long a session with waiting calls keeps its permit, as the documentation says.
const SLICE: Duration = Duration::from_secs(5);

/// How often the store is told that a session is used.
const NOTE: Duration = Duration::from_secs(1);

/// What the driver owes for a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Owed {
    Load,
    Release,
    DropLost,
    Expire,
    Close { call: CallId, delete: bool, was_closed: bool, step: Step },
}

/// How far a close is, and what must follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    Release,
    Delete,
    Keep,
    /// The containers are gone; the next step must follow at once.
    Next,
    /// The caller must be answered at once: with this, or that the store failed.
    Answer(Option<bool>),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Wish {
    Come { kind: TurnKind, waits: bool },
    Close { delete: bool },
}

#[derive(Debug, Clone)]
pub(super) struct Queued {
    pub(super) call: CallId,
    pub(super) wish: Wish,
    asked: Instant,
}

#[derive(Debug, Clone)]
pub(super) struct Inmate {
    pub(super) call: CallId,
    /// Of a program.
    pub(super) language: Option<String>,
    ordered: bool,
    asked: Instant,
}

/// One session in the books.
#[derive(Debug)]
pub(super) struct Book {
    in_memory: bool,
    pub(super) owed: Option<Owed>,
    pub(super) inside: Vec<Inmate>,
    pub(super) queue: Vec<Queued>,
    lookers: Vec<(CallId, bool)>,
    exists: bool,
    closed: bool,
    lost: bool,
    used: Instant,
    looked_at: Option<Instant>,
    noted: Option<Instant>,
    /// Its files were deleted just now: memory must follow.
    just_deleted: bool,
}

#[derive(Debug, Clone)]
pub(super) struct Wanting {
    pub(super) key: SessionKey,
    pub(super) call: CallId,
    waits: bool,
    /// When the call asked for its turn; `None` if it has none.
    asked: Option<Instant>,
}

#[derive(Debug)]
pub(super) struct Oracle {
    terms: GateBounds,
    pub(super) books: BTreeMap<SessionKey, Book>,
    /// When granted, and how often.
    pub(super) permits: BTreeMap<SessionKey, (Instant, usize)>,
    pub(super) wants: Vec<Wanting>,
    answered: BTreeSet<CallId>,
    last_sweep: Option<Instant>,
    pub(super) looking: Option<Instant>,
    pub(super) ending: bool,
    // Of the event that is being judged:
    must_cancel: BTreeSet<CallId>,
    must_end: BTreeSet<CallId>,
    /// The call that the event is about, and how many waited before it came.
    fresh: Option<(CallId, usize)>,
    may_evict_for_pool: bool,
    swept: bool,
}

impl Oracle {
    pub(super) fn new(terms: GateBounds) -> Self {
        Self {
            terms,
            books: BTreeMap::new(),
            permits: BTreeMap::new(),
            wants: Vec::new(),
            answered: BTreeSet::new(),
            last_sweep: None,
            looking: None,
            ending: false,
            must_cancel: BTreeSet::new(),
            must_end: BTreeSet::new(),
            fresh: None,
            may_evict_for_pool: false,
            swept: false,
        }
    }

    pub(super) fn judge(
        &mut self,
        event: &Event,
        actions: &[Action],
        now: Instant,
        deadline: Option<Instant>,
        counts: GateCounts,
    ) {
        self.must_cancel.clear();
        self.must_end.clear();
        (self.fresh, self.may_evict_for_pool, self.swept) = (None, false, false);
        let due = self.next_sweep().is_some_and(|at| at <= now);
        let begins = matches!(event, Event::StartSweeping) && self.last_sweep.is_none() && !self.ending;
        self.note(event, now);
        for action in actions {
            self.check(action, event, now);
        }
        assert_eq!(
            self.swept,
            (due || begins) && !self.ending,
            "a sweep is held when it is due, and only then"
        );
        self.outcome(now);
        self.outcome_of_looking(event, now);
        assert_eq!(deadline, self.earliest(), "the next deadline is the earliest thing that time brings");
        assert!(deadline.is_none_or(|at| at > now), "a deadline in the past makes the driver spin");
        let waiting = self.books.values().flat_map(|book| &book.queue);
        let waiting = waiting.filter(|one| matches!(one.wish, Wish::Come { waits: true, .. })).count();
        let expected = GateCounts {
            sessions: self.books.len(),
            permits: self.permits.len(),
            waiting,
            wanting: self.wants.len(),
        };
        assert_eq!(counts, expected);
    }

    fn next_sweep(&self) -> Option<Instant> {
        self.last_sweep.map(|last| last + self.terms.sweep.min(self.terms.ttl))
    }

    fn earliest(&self) -> Option<Instant> {
        let queued = self.books.values().flat_map(|book| &book.queue);
        let turns = queued.filter(|one| matches!(one.wish, Wish::Come { .. })).map(|one| one.asked);
        let permits = self.wants.iter().filter_map(|want| want.asked);
        turns.chain(permits).map(|asked| asked + self.terms.wait).chain(self.next_sweep()).min()
    }

    /// What must hold after every event.
    fn outcome(&mut self, now: Instant) {
        assert!(self.must_cancel.is_empty(), "not cancelled: {:?}", self.must_cancel);
        assert!(self.must_end.is_empty(), "not told that the session is closed: {:?}", self.must_end);
        for (key, book) in &self.books {
            self.outcome_of(key, book, now);
        }
        self.books.retain(|_, book| book.in_memory || book.owed.is_some());
        for (key, book) in &mut self.books {
            book.lost &= self.permits.contains_key(key) || !Self::rests(book);
        }
        for want in &self.wants {
            assert!(want.asked.is_some_and(|asked| asked + self.terms.wait > now), "{want:?} waits too long");
            assert!(want.waits && self.terms.evicts && !self.ending, "{want:?} waits for nothing");
            assert!(!self.permits.contains_key(&want.key), "{want:?} has what it waits for");
        }
        assert!(self.wants.len() <= self.terms.permit_queue, "more wait for a permit than may");
        assert!(self.permits.len() <= self.terms.permits, "more permits than there may be");
        if !self.wants.is_empty() {
            assert_eq!(self.permits.len(), self.terms.permits, "a permit is free, and somebody waits for it");
            let evictable = self.permits.keys().filter(|key| self.is_evictable(key, now)).count();
            let short = self.wanting() > self.coming();
            assert!(!short || evictable == 0, "somebody waits for a permit, and {evictable} sessions rest");
        }
    }

    /// What is to be deleted or forgotten is.
    fn outcome_of_looking(&mut self, event: &Event, now: Instant) {
        let idle = |key: &SessionKey| {
            let book = self.books.get(key);
            let idle = |book: &Book| Self::rests(book) && book.queue.is_empty() && book.lookers.is_empty();
            book.filter(|book| idle(book) && !self.permits.contains_key(key))
        };
        if let (Event::Unused { keys }, Some(looked)) = (event, self.looking) {
            for key in keys {
                assert!(self.books.contains_key(key), "the files of {key} are not deleted");
                let Some(book) = idle(key) else { continue };
                let is_used = book.used >= looked || book.looked_at.is_some_and(|at| at >= looked);
                assert!(is_used, "the files of {key} are not deleted");
            }
            self.looking = None;
        }
        if let Event::Holders { held, untold } = event {
            for key in self.books.keys().filter(|key| !held.contains(key)) {
                let Some(book) = idle(key) else { continue };
                assert!(untold.contains(key) && now - book.used < self.terms.ttl, "{key} is not forgotten");
            }
        }
    }

    fn outcome_of(&self, key: &SessionKey, book: &Book, now: Instant) {
        assert!(!book.just_deleted, "{key} is deleted and still in memory");
        if let Some(Owed::Close { step: Step::Next | Step::Answer(_), .. }) = book.owed {
            panic!("the end of {key} does not go on: {:?}", book.owed);
        }
        if !book.in_memory && book.owed.is_none() {
            let left = (book.queue.len(), book.lookers.len());
            assert_eq!(left, (0, 0), "{key} is waited for, and not loaded");
        }
        assert!(self.first_in(book).is_none(), "{:?} waits in {key}, and could be in", self.first_in(book));
        for one in &book.queue {
            let Wish::Come { waits, .. } = &one.wish else { continue };
            assert!(one.asked + self.terms.wait > now, "{one:?} waits beyond its deadline");
            assert!(*waits || Self::is_held_by_daemon(book), "{one:?} does not wait for other calls");
            assert!(!self.ending, "{one:?} waits for nothing: the gate is shut down");
        }
        let languages: BTreeSet<_> = book.inside.iter().map(|inmate| &inmate.language).collect();
        assert!(languages.len() <= 1, "{key} has programs of two languages in it: {languages:?}");
        let whole = book.inside.iter().filter(|inmate| inmate.language.is_none()).count();
        assert!(whole == 0 || book.inside.len() == 1, "{key} is somebody's, and others are in");
        assert!(book.inside.iter().filter(|inmate| inmate.ordered).count() <= 1, "two ordered calls are in");
        assert!(book.inside.is_empty() || book.owed.is_none(), "somebody is in {key} during a chore");
        assert!(book.lookers.is_empty() || Self::hides(book), "somebody could look at {key}");
        if book.in_memory && Self::rests(book) && book.queue.is_empty() {
            let has_permit = self.permits.contains_key(key);
            assert!(book.exists || has_permit, "{key} is in memory, and does not exist");
            assert!(!(has_permit && book.lost), "{key} keeps a lost container");
            assert!(!(has_permit && self.ending), "{key} keeps its containers to the end");
        }
    }
}
