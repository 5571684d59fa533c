//! How the oracle keeps its books: what each event changes, and what the books add up to.

use std::collections::BTreeSet;
use std::time::Instant;

use super::super::super::{CallId, Event, SessionKey, TurnKind};
use super::{Book, Inmate, Oracle, Owed, Queued, SLICE, Step, Wanting, Wish};

impl Book {
    fn new(now: Instant) -> Self {
        Self {
            in_memory: false,
            owed: None,
            inside: Vec::new(),
            queue: Vec::new(),
            lookers: Vec::new(),
            exists: false,
            closed: false,
            lost: false,
            used: now,
            looked_at: None,
            noted: None,
            just_deleted: false,
        }
    }
}

impl Oracle {
    pub(super) fn book(&mut self, key: &SessionKey, now: Instant) -> &mut Book {
        self.books.entry(key.clone()).or_insert_with(|| Book::new(now))
    }

    pub(super) fn note(&mut self, event: &Event, now: Instant) {
        match event.clone() {
            Event::Enter { key, call, kind, waits } => {
                let book = self.book(&key, now);
                let patient = |one: &&Queued| matches!(one.wish, Wish::Come { waits: true, .. });
                let before = book.queue.iter().filter(patient).count();
                book.queue.push(Queued { call, wish: Wish::Come { kind, waits }, asked: now });
                self.fresh = Some((call, before));
            }
            Event::Open { key, call, makes } => self.book(&key, now).lookers.push((call, makes)),
            Event::Close { key, call, delete } => {
                let book = self.book(&key, now);
                let cancelled: Vec<_> = book.inside.iter().map(|inmate| inmate.call).collect();
                let ends = |one: &&Queued| {
                    matches!(
                        &one.wish,
                        Wish::Come {
                            kind: TurnKind::Code(_) | TurnKind::Command(_) | TurnKind::Alone { .. },
                            ..
                        }
                    )
                };
                let ended: Vec<_> = book.queue.iter().filter(ends).map(|one| one.call).collect();
                book.queue.push(Queued { call, wish: Wish::Close { delete }, asked: now });
                self.must_cancel.extend(cancelled);
                self.must_end.extend(ended);
            }
            Event::Abandon { key, call } => {
                if let Some(book) = self.books.get_mut(&key) {
                    book.queue.retain(|one| one.call != call);
                    book.lookers.retain(|(one, _)| *one != call);
                }
                self.wants.retain(|want| want.call != call);
            }
            Event::Delay { key, call, by } => {
                let inside = self.books.get_mut(&key).into_iter().flat_map(|book| &mut book.inside);
                inside.filter(|inmate| inmate.call == call).for_each(|inmate| inmate.asked += by);
            }
            Event::Share { key, call, language } => {
                let inside = self.books.get_mut(&key).into_iter().flat_map(|book| &mut book.inside);
                for inmate in inside.filter(|inmate| inmate.call == call && inmate.language.is_none()) {
                    inmate.language = Some(language.clone());
                }
            }
            Event::Leave { key, call } => {
                let Some(book) = self.books.get_mut(&key) else { return };
                if book.inside.iter().any(|inmate| inmate.call == call) {
                    book.inside.retain(|inmate| inmate.call != call);
                    book.used = now;
                    self.wants.retain(|want| want.call != call);
                }
            }
            Event::Want { key, call, waits, .. } => {
                let inside = self.books.get(&key).map(|book| &book.inside[..]).unwrap_or_default();
                let asked = inside.iter().find(|inmate| inmate.call == call).map(|inmate| inmate.asked);
                self.fresh = Some((call, self.wants.len()));
                self.wants.push(Wanting { key, call, waits, asked });
            }
            Event::Return { key } => {
                if let Some((_, copies)) = self.permits.get_mut(&key) {
                    *copies -= 1;
                    if *copies == 0 {
                        self.permits.remove(&key);
                    }
                }
            }
            Event::PoolFull => self.may_evict_for_pool = self.terms.evicts,
            Event::Lost { key } => {
                if let Some(book) = self.books.get_mut(&key) {
                    book.lost = true;
                }
            }
            Event::Holders { .. }
            | Event::Unused { .. }
            | Event::StartSweeping
            | Event::Limit { .. }
            | Event::Tick => {}
            Event::Shutdown => (self.ending, self.last_sweep, self.looking) = (true, None, None),
            Event::Loaded { key, .. }
            | Event::LoadFailed { key }
            | Event::Tidied { key }
            | Event::Deleted { key, .. }
            | Event::NotDeleted { key }
            | Event::KeptClosed { key } => self.note_answer(&key, event, now),
        }
    }

    fn note_answer(&mut self, key: &SessionKey, event: &Event, now: Instant) {
        let Some(book) = self.books.get_mut(key) else { return };
        match (book.owed, event) {
            (Some(Owed::Load), Event::Loaded { found, closed, .. }) => {
                (book.owed, book.in_memory, book.closed, book.used) = (None, true, *closed, now);
                book.exists = *found || book.queue.iter().any(|one| matches!(one.wish, Wish::Come { .. }));
            }
            (Some(Owed::Load), Event::LoadFailed { .. }) => book.owed = None,
            (Some(Owed::Release), Event::Tidied { .. }) => (book.owed, book.lost) = (None, false),
            (Some(Owed::DropLost), Event::Tidied { .. }) => book.owed = None,
            (Some(Owed::Close { call, delete, was_closed, step: Step::Release }), Event::Tidied { .. }) => {
                book.lost = false;
                book.owed = Some(Owed::Close { call, delete, was_closed, step: Step::Next });
            }
            (Some(Owed::Close { call, delete, was_closed, step: Step::Keep }), Event::KeptClosed { .. }) => {
                book.closed = true;
                book.owed = Some(Owed::Close { call, delete, was_closed, step: Step::Answer(Some(true)) });
            }
            (
                Some(Owed::Close { call, delete, was_closed, step: Step::Delete }),
                Event::Deleted { found, .. },
            ) => {
                let step = Step::Answer(Some(*found || !was_closed));
                self.deleted(key, now);
                self.book(key, now).owed = Some(Owed::Close { call, delete, was_closed, step });
            }
            (
                Some(Owed::Close { call, delete, was_closed, step: Step::Delete }),
                Event::NotDeleted { .. },
            ) => {
                book.owed = Some(Owed::Close { call, delete, was_closed, step: Step::Answer(None) });
            }
            (Some(Owed::Expire), Event::Deleted { .. }) => self.deleted(key, now),
            (Some(Owed::Expire), Event::NotDeleted { .. }) => {
                (book.owed, book.lost) = (None, book.lost && book.in_memory);
            }
            _ => {}
        }
    }

    /// What was known of the session is known no more: only its calls stay.
    fn deleted(&mut self, key: &SessionKey, now: Instant) {
        if let Some(before) = self.books.remove(key) {
            let new = Book::new(now);
            let just_deleted = before.in_memory;
            let (queue, lookers) = (before.queue, before.lookers);
            self.books.insert(key.clone(), Book { queue, lookers, just_deleted, ..new });
        }
    }

    /// The call in the queue that comes in next, if one may now.
    pub(super) fn first_in(&self, book: &Book) -> Option<CallId> {
        if !book.in_memory || book.owed.is_some() {
            return None;
        }
        let mut passed_ordered = book.inside.iter().any(|inmate| inmate.ordered);
        for one in &book.queue {
            let ordered = Self::is_ordered(&one.wish);
            if ordered && passed_ordered {
                continue;
            }
            passed_ordered |= ordered;
            let fits = match (&one.wish, book.inside.first()) {
                (_, None) => true,
                (Wish::Close { .. }, Some(_)) => false,
                (Wish::Come { kind, .. }, Some(inmate)) => {
                    inmate.language.is_some() && Self::language(kind) == inmate.language
                }
            };
            if fits {
                return Some(one.call);
            }
        }
        None
    }

    pub(super) fn is_ordered(wish: &Wish) -> bool {
        match wish {
            Wish::Close { .. } => true,
            Wish::Come { kind, .. } => match kind {
                TurnKind::Whole | TurnKind::Code(_) => true,
                TurnKind::Command(_) => false,
                TurnKind::Alone { is_command } | TurnKind::Resumed { is_command, .. } => !is_command,
            },
        }
    }

    pub(super) fn language(kind: &TurnKind) -> Option<String> {
        match kind {
            TurnKind::Whole | TurnKind::Alone { .. } | TurnKind::Resumed { is_alone: true, .. } => None,
            TurnKind::Code(language) | TurnKind::Command(language) => Some(language.clone()),
            TurnKind::Resumed { language, .. } => Some(language.clone()),
        }
    }

    pub(super) fn rests(book: &Book) -> bool {
        book.owed.is_none() && book.inside.is_empty()
    }

    pub(super) fn is_held_by_daemon(book: &Book) -> bool {
        matches!(book.owed, Some(Owed::Load | Owed::Release | Owed::DropLost | Owed::Expire))
    }

    /// Whether nobody may look at it: it is not loaded, or may be deleted the next moment.
    pub(super) fn hides(book: &Book) -> bool {
        matches!(book.owed, Some(Owed::Load | Owed::Expire | Owed::Close { delete: true, .. }))
    }

    pub(super) fn has_waiting(book: &Book) -> bool {
        book.queue.iter().any(|one| matches!(one.wish, Wish::Come { waits: true, .. }))
    }

    pub(super) fn is_evictable(&self, key: &SessionKey, now: Instant) -> bool {
        let (since, _) = self.permits[key];
        let Some(book) = self.books.get(key).filter(|book| Self::rests(book)) else { return false };
        !Self::has_waiting(book) || now >= since + SLICE
    }

    /// Sessions that wait for a permit.
    pub(super) fn wanting(&self) -> usize {
        self.wants.iter().map(|want| &want.key).collect::<BTreeSet<_>>().len()
    }

    /// Permits that come back by what is under way.
    pub(super) fn coming(&self) -> usize {
        let comes = |key: &&SessionKey| {
            let owed = self.books.get(*key).and_then(|book| book.owed);
            matches!(owed, Some(Owed::Release | Owed::Close { .. }))
        };
        self.permits.keys().filter(comes).count()
    }

    pub(in super::super) fn owing(&self) -> Vec<SessionKey> {
        let owing = self.books.iter().filter(|(_, book)| book.owed.is_some());
        owing.map(|(key, _)| key.clone()).collect()
    }

    pub(in super::super) fn inside(&self) -> Vec<(SessionKey, Inmate)> {
        let all = self.books.iter();
        all.flat_map(|(key, book)| book.inside.iter().map(|inmate| (key.clone(), inmate.clone()))).collect()
    }

    pub(in super::super) fn waiting(&self) -> Vec<(SessionKey, CallId)> {
        let queued = self.books.iter().flat_map(|(key, book)| {
            let lookers = book.lookers.iter().map(|(call, _)| *call);
            book.queue.iter().map(|one| one.call).chain(lookers).map(|call| (key.clone(), call))
        });
        queued.chain(self.wants.iter().map(|want| (want.key.clone(), want.call))).collect()
    }
}
