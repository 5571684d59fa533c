//! What the oracle has to say to each action.

use std::time::Instant;

use super::super::super::super::message::{Denial, ReleaseReason};
use super::super::super::{Action, CallId, Event, SessionKey, TurnKind};
use super::{Inmate, NOTE, Oracle, Owed, Queued, Step, Wish};

impl Oracle {
    pub(super) fn check(&mut self, action: &Action, event: &Event, now: Instant) {
        match action.clone() {
            Action::Enter { key, call, since, note } => {
                assert!(!self.ending, "{call:?} comes in after the end");
                let Queued { wish, asked, .. } = self.take_first(&key, call);
                let Wish::Come { kind, .. } = &wish else { panic!("{call:?} closes the session") };
                assert_eq!(since, asked, "the time of {call:?} is right");
                assert!(asked + self.terms.wait > now, "the time of {call:?} is over");
                let language = Self::language(kind);
                let ordered = Self::is_ordered(&wish);
                let book = self.book(&key, now);
                let expected = book.closed || book.noted.is_none_or(|noted| now - noted > NOTE);
                assert_eq!(note, expected, "the store is told once a second, and when it has it as closed");
                if note {
                    (book.noted, book.closed) = (Some(now), false);
                }
                book.inside.push(Inmate { call, language, ordered, asked });
                (book.used, book.exists) = (now, true);
                if book.queue.iter().any(|one| matches!(one.wish, Wish::Close { .. })) {
                    self.must_cancel.insert(call);
                }
            }
            Action::Cancel { call, .. } => {
                assert!(self.must_cancel.remove(&call), "{call:?} is not in a session that is to be closed");
            }
            Action::Deny { key, call, why } => self.check_denial(&key, call, why, event, now),
            Action::Opened { key, call } => {
                let book = self.book(&key, now);
                let at = book.lookers.iter().position(|(one, _)| *one == call).expect("it wants to look");
                book.exists |= book.lookers.iter().any(|(_, makes)| *makes);
                book.lookers.remove(at);
                assert!(book.in_memory && book.exists && !Self::hides(book), "{key} is not to be seen");
                book.looked_at = Some(now);
                self.answer(call);
            }
            Action::NotFound { key, call } => {
                let book = self.book(&key, now);
                let at = book.lookers.iter().position(|(one, _)| *one == call).expect("it wants to look");
                assert!(book.lookers.iter().all(|(_, makes)| !*makes), "somebody makes {key}");
                assert!(book.in_memory && !book.exists && !Self::hides(book), "{key} exists");
                book.lookers.remove(at);
                self.answer(call);
            }
            Action::Closed { key, call, found } => self.check_closed(&key, call, found),
            Action::Grant { key, call } => {
                let at = self.wants.iter().position(|want| want.call == call).expect("it wants a permit");
                let want = self.wants[at].clone();
                assert_eq!(want.key, key);
                assert!(!self.ending, "a permit is granted after the end");
                let is_fresh = self.fresh.is_some_and(|(fresh, _)| fresh == call);
                let in_time = want.asked.is_some_and(|asked| asked + self.terms.wait > now);
                assert!(in_time || is_fresh, "the time of {call:?} is over");
                if !self.permits.contains_key(&key) {
                    assert!(self.permits.len() < self.terms.permits, "there is no permit to grant");
                    assert_eq!(self.wants[0].key, key, "somebody was there before");
                }
                self.wants.remove(at);
                self.permits.entry(key).or_insert((now, 0)).1 += 1;
            }
            Action::Load { key } => {
                let book = self.book(&key, now);
                assert!(
                    !book.in_memory && book.owed.is_none() && !book.just_deleted,
                    "{key} is loaded twice"
                );
                assert!(!book.queue.is_empty() || !book.lookers.is_empty(), "nobody asks for {key}");
                book.owed = Some(Owed::Load);
            }
            Action::Release { key, why } => self.check_release(&key, why, now),
            Action::DropLost { key } => {
                let book = self.book(&key, now);
                assert!(Self::rests(book) && book.queue.is_empty(), "{key} does not rest");
                assert!(std::mem::take(&mut book.lost), "nothing of {key} is lost");
                book.owed = Some(Owed::DropLost);
                assert!(self.permits.contains_key(&key));
            }
            Action::Delete { key, call: Some(call) } => {
                let (delete, was_closed) = self.next_of_close(&key, call);
                assert!(delete, "nobody wants the files of {key} deleted");
                let step = Step::Delete;
                self.book(&key, now).owed = Some(Owed::Close { call, delete, was_closed, step });
            }
            Action::Delete { key, call: None } => {
                let Event::Unused { keys } = event else { panic!("{key} is deleted for nobody") };
                assert!(keys.contains(&key) && !self.permits.contains_key(&key));
                let looked = self.looking.expect("the driver was asked to look");
                let book = self.book(&key, now);
                assert!(Self::rests(book) && book.queue.is_empty() && book.lookers.is_empty());
                let is_new = !book.in_memory;
                let is_used = book.used >= looked || book.looked_at.is_some_and(|at| at >= looked);
                assert!(is_new || !is_used, "{key} was used meanwhile");
                book.owed = Some(Owed::Expire);
            }
            Action::KeepClosed { key } => {
                let call = match self.books[&key].owed {
                    Some(Owed::Close { call, .. }) => call,
                    _ => self.first_in(&self.books[&key]).expect("somebody closes it"),
                };
                let (delete, was_closed) = self.next_of_close(&key, call);
                assert!(!delete && !was_closed, "{key} is closed already, or deleted");
                let step = Step::Keep;
                self.book(&key, now).owed = Some(Owed::Close { call, delete, was_closed, step });
            }
            Action::Forget { key } => self.check_forget(&key, event, now),
            Action::AskHolders => {
                assert!(!self.swept, "one sweep at a time");
                (self.swept, self.last_sweep) = (true, Some(now));
                let ttl = self.terms.ttl;
                for key in self.permits.keys() {
                    let Some(book) = self.books.get(key).filter(|book| Self::rests(book)) else { continue };
                    assert!(now - book.used < ttl, "{key} keeps its containers beyond its time");
                }
            }
            Action::LookForUnused => {
                assert!(self.terms.expires && self.looking.is_none() && self.swept);
                self.looking = Some(now);
            }
        }
    }

    fn answer(&mut self, call: CallId) {
        assert!(self.answered.insert(call), "{call:?} is answered twice");
    }

    /// Takes the call out of its queue; it must be the next.
    fn take_first(&mut self, key: &SessionKey, call: CallId) -> Queued {
        let book = self.books.get(key).expect("the session is known");
        assert!(book.in_memory && book.owed.is_none(), "{key} is not there to be entered");
        assert_eq!(self.first_in(book), Some(call), "somebody else is next in {key}");
        self.answer(call);
        let book = self.books.get_mut(key).expect("it is known");
        let at = book.queue.iter().position(|one| one.call == call).expect("it waits");
        book.queue.remove(at)
    }

    /// The call that closes `key` has its turn now, or its containers are gone: whether it deletes, and
    /// whether the session was closed before.
    fn next_of_close(&mut self, key: &SessionKey, call: CallId) -> (bool, bool) {
        if let Some(Owed::Close { call: closer, delete, was_closed, step }) = self.books[key].owed {
            assert!(closer == call && step == Step::Next, "{key} is being closed by another");
            return (delete, was_closed);
        }
        assert!(!self.permits.contains_key(key), "the containers of {key} go first");
        let Queued { wish: Wish::Close { delete }, .. } = self.take_first(key, call) else {
            panic!("{call:?} does not close {key}");
        };
        assert!(self.books[key].exists, "there is no {key}");
        (delete, self.books[key].closed)
    }

    fn check_closed(&mut self, key: &SessionKey, call: CallId, found: bool) {
        let book = self.books.get_mut(key).expect("the session is known");
        match book.owed {
            Some(Owed::Close { call: closer, step: Step::Answer(Some(expected)), .. }) => {
                assert_eq!((closer, found), (call, expected));
                book.owed = None;
            }
            Some(Owed::Close { call: closer, delete: false, was_closed: true, step: Step::Next }) => {
                assert_eq!((closer, found), (call, false));
                book.owed = None;
            }
            None => {
                let nothing = !book.exists || (book.closed && !self.permits.contains_key(key));
                let Queued { wish: Wish::Close { delete }, .. } = self.take_first(key, call) else {
                    panic!("{call:?} does not close {key}");
                };
                assert!(!found && nothing, "{key} is there to be closed");
                assert!(!delete || !self.books[key].exists, "the files of {key} are there to be deleted");
            }
            owed => panic!("{key} is not closed yet: {owed:?}"),
        }
    }

    fn check_release(&mut self, key: &SessionKey, why: ReleaseReason, now: Instant) {
        assert!(self.permits.contains_key(key), "{key} has no containers");
        let book = &self.books[key];
        assert!(Self::rests(book), "{key} is at work");
        match why {
            ReleaseReason::Idle => {
                assert!(now - book.used >= self.terms.ttl, "{key} has not rested for long")
            }
            ReleaseReason::Shutdown => assert!(self.ending && book.queue.is_empty()),
            ReleaseReason::Evicted => {
                let for_pool = std::mem::take(&mut self.may_evict_for_pool);
                assert!(for_pool || self.wanting() > self.coming(), "{key} is in nobody's way");
                assert!(self.terms.evicts && self.is_evictable(key, now), "{key} is to be spared");
                let others = self.permits.keys().filter(|other| self.is_evictable(other, now));
                let longest = others.map(|other| self.books[other].used).min();
                assert_eq!(longest, Some(self.books[key].used), "others rested for longer than {key}");
            }
            ReleaseReason::Closed | ReleaseReason::Deleted => {
                let call = self.first_in(book).expect("somebody closes it");
                let Queued { wish: Wish::Close { delete }, .. } = self.take_first(key, call) else {
                    panic!("{call:?} does not close {key}");
                };
                assert_eq!(delete, why == ReleaseReason::Deleted);
                let step = Step::Release;
                let book = self.books.get_mut(key).expect("it is known");
                book.owed = Some(Owed::Close { call, delete, was_closed: false, step });
                return;
            }
        }
        self.books.get_mut(key).expect("it is known").owed = Some(Owed::Release);
    }

    fn check_forget(&mut self, key: &SessionKey, event: &Event, now: Instant) {
        let book = self.books.get_mut(key).expect("the session is known");
        if std::mem::take(&mut book.just_deleted) {
            return;
        }
        assert!(book.in_memory && Self::rests(book) && book.queue.is_empty() && book.lookers.is_empty());
        assert!(!self.permits.contains_key(key), "{key} has containers");
        if let Event::Holders { held, untold } = event {
            assert!(!held.contains(key), "{key} is held");
            let is_news = untold.contains(key) && now - book.used < self.terms.ttl;
            assert!(!is_news, "{key} has news for its next caller");
        } else {
            assert!(!book.exists, "{key} exists");
        }
        book.in_memory = false;
    }

    fn check_denial(&mut self, key: &SessionKey, call: CallId, why: Denial, event: &Event, now: Instant) {
        let wait = self.terms.wait;
        let is_fresh = self.fresh.filter(|(fresh, _)| *fresh == call).map(|(_, before)| before);
        if let Some(at) = self.wants.iter().position(|want| want.call == call) {
            let want = self.wants.remove(at);
            let is_late = want.asked.is_none_or(|asked| asked + wait <= now);
            let is_taken = self.permits.len() >= self.terms.permits || !self.wants.is_empty();
            assert!(!self.permits.contains_key(key) || self.ending, "{key} has a permit");
            match why {
                Denial::ShuttingDown => assert!(self.ending),
                Denial::PermitTooLate => assert!(is_late || (is_fresh.is_some() && !want.waits && is_taken)),
                Denial::NoEviction => assert!(is_fresh.is_some() && !self.terms.evicts && is_taken),
                Denial::PermitQueueFull(waiting) => {
                    assert_eq!(is_fresh, Some(waiting));
                    assert!(waiting >= self.terms.permit_queue && want.waits && is_taken);
                }
                Denial::QueueFull(_)
                | Denial::TenantFull(_)
                | Denial::TurnTooLate
                | Denial::Busy
                | Denial::Closed
                | Denial::StoreFailed => panic!("{call:?} wants a permit, and is told {why:?}"),
            }
            return;
        }
        let fails = matches!(event, Event::LoadFailed { .. } | Event::NotDeleted { .. });
        let first_in = self.books.get(key).and_then(|book| self.first_in(book));
        let book = self.books.get_mut(key).expect("the session is known");
        if why == Denial::StoreFailed {
            assert!(fails, "the store works");
            if let Some(Owed::Close { call: closer, step: Step::Answer(None), .. }) = book.owed {
                assert_eq!(closer, call);
                book.owed = None;
                return;
            }
            let all = book.queue.iter().map(|one| one.call).chain(book.lookers.iter().map(|(one, _)| *one));
            assert_eq!(all.min(), Some(call), "the oldest is told");
            book.queue.retain(|one| one.call != call);
            book.lookers.retain(|(one, _)| *one != call);
            return self.answer(call);
        }
        let at = book.queue.iter().position(|one| one.call == call).expect("it waits");
        let Queued { wish, asked, .. } = book.queue.remove(at);
        let Wish::Come { kind, waits } = wish else { panic!("who closes a session is not told {why:?}") };
        assert!(
            first_in != Some(call)
                || matches!(why, Denial::TurnTooLate | Denial::Closed | Denial::ShuttingDown)
        );
        match why {
            Denial::QueueFull(waiting) => {
                assert_eq!(is_fresh, Some(waiting));
                let bound = self.terms.queue + usize::from(Self::is_held_by_daemon(book));
                assert!(waits && waiting >= bound, "there is room for {call:?} to wait");
            }
            Denial::TurnTooLate => assert!(asked + wait <= now, "{call:?} has time left"),
            Denial::Busy => assert!(!waits && !Self::is_held_by_daemon(book), "{call:?} can wait"),
            Denial::Closed => {
                let is_closing = book.queue.iter().any(|one| matches!(one.wish, Wish::Close { .. }));
                let is_command = matches!(kind, TurnKind::Command(_) | TurnKind::Alone { is_command: true });
                let comes_late = is_fresh.is_some() && is_command;
                assert!(is_closing && (self.must_end.remove(&call) || comes_late), "nobody closes {key}");
            }
            Denial::ShuttingDown => assert!(self.ending),
            Denial::PermitQueueFull(_)
            | Denial::TenantFull(_)
            | Denial::PermitTooLate
            | Denial::NoEviction
            | Denial::StoreFailed => {
                panic!("{call:?} waits for its turn, and is told {why:?}")
            }
        }
        self.answer(call);
    }
}
