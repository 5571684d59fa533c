//! Who is in a session, and who waits.
//!
//! ```text
//!  order   one call after the other: code, uploads, closing           (programs of `execution` have none)
//!  room    programs of one language, any number of them   |   or one who has it whole: an upload, another language, closing
//!  work    the containers, and files on their way: for as long as that takes, never while a program runs
//! ```
//!
//! They are taken in this order. It must never let a program of another language, or a change of the files from
//! outside, in beside one that runs.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use tokio::sync::{Mutex, MutexGuard, OwnedMutexGuard};

use super::leases::Work;
use super::room::{Room, Shared, Whole};
use super::{Session, SessionError, Sessions};

/// Who may be in a session now.
#[derive(Default)]
pub(super) struct Places {
    order: Arc<Mutex<()>>,
    room: Arc<Room>,
    work: Mutex<Work>,
    waiting: AtomicUsize,
}

/// A call's place in its session, until it is dropped.
pub struct Turn {
    pub(super) session: Arc<Session>,
    /// There until it is dropped.
    place: Option<Place>,
    _order: Option<OwnedMutexGuard<()>>,
    /// When the call began to wait: for its turn, and from then on for a container.
    pub(super) since: Instant,
}

enum Place {
    Whole(Whole),
    Shared { _place: Shared },
}

/// What a turn is for.
#[derive(Debug, Clone, Copy)]
enum For<'a> {
    /// A change of the files, or closing.
    All,
    /// A program of this language.
    Program(&'a str),
}

impl Places {
    /// The containers, and files on their way.
    pub(super) async fn work(&self) -> MutexGuard<'_, Work> {
        self.work.lock().await
    }

    /// Waits until nobody is in; nobody is let in until this is dropped.
    pub(super) async fn emptied(&self) -> Whole {
        self.room.whole().await
    }

    /// The containers of a session that nobody is in.
    pub(super) fn resting(&self) -> Option<(Whole, MutexGuard<'_, Work>)> {
        Some((self.room.try_whole()?, self.work.try_lock().ok()?))
    }

    pub(super) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    async fn enter(&self, what: For<'_>) -> Place {
        match what {
            For::All => Place::Whole(self.room.whole().await),
            For::Program(language) => Place::Shared { _place: self.room.shared(language).await },
        }
    }

    fn try_enter(&self, language: &str) -> Option<Place> {
        self.room.try_shared(language).map(|place| Place::Shared { _place: place })
    }
}

/// A place among those that wait for a turn.
struct Waiting<'a>(&'a AtomicUsize);

impl<'a> Waiting<'a> {
    fn enter(places: &'a Places, queue: usize) -> Result<Self, SessionError> {
        // The one at work has left the count already, so `queue` counts only who waits; the one that finds the
        // turn free passes through it.
        let before = places.waiting.fetch_add(1, Ordering::Relaxed);
        let place = Self(&places.waiting);
        if before >= queue.max(1) { Err(SessionError::QueueFull(before)) } else { Ok(place) }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Turn {
    /// The session whose turn it is.
    pub fn session(&self) -> &Arc<Session> {
        &self.session
    }

    /// Lets programs of `language` in beside the one that this is for.
    #[must_use]
    pub fn for_program(mut self, language: &str) -> Self {
        self.place = match self.place.take() {
            Some(Place::Whole(whole)) => Some(Place::Shared { _place: whole.share(language) }),
            shared => shared,
        };
        self
    }

    /// The containers, and files on their way.
    pub(super) async fn work(&self) -> MutexGuard<'_, Work> {
        self.session.places.work().await
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.session.touch();
        // The place is given up first: a session that rests may be evicted for another, before its own next call comes in.
        self.place = None;
        self.session.admission.make_room();
    }
}

impl Sessions {
    /// Waits for the turn of a call that changes the files of `session`; of the one that has its place now, if it was deleted
    /// meanwhile.
    ///
    /// # Errors
    /// [`SessionError::QueueFull`], [`SessionError::TurnTooLate`], and the store's.
    pub async fn turn(&self, session: &Arc<Session>) -> Result<Turn, SessionError> {
        self.wait(session, For::All, true).await
    }

    /// Waits for the turn of a call that runs a program of `language`, after the calls that came before it.
    ///
    /// # Errors
    /// As [`Sessions::turn`].
    pub async fn turn_to_run(&self, session: &Arc<Session>, language: &str) -> Result<Turn, SessionError> {
        self.wait(session, For::Program(language), true).await
    }

    /// Waits for a place for a program of `language`, beside others of that language.
    ///
    /// # Errors
    /// As [`Sessions::turn`].
    pub async fn place(&self, session: &Arc<Session>, language: &str) -> Result<Turn, SessionError> {
        self.wait(session, For::Program(language), false).await
    }

    async fn wait(
        &self,
        session: &Arc<Session>,
        what: For<'_>,
        in_order: bool,
    ) -> Result<Turn, SessionError> {
        let (mut session, begun) = (session.clone(), Instant::now());
        let deadline = begun + self.bounds.wait;
        loop {
            let waiting = Waiting::enter(&session.places, self.bounds.queue)?;
            let entering = async {
                let order =
                    if in_order { Some(session.places.order.clone().lock_owned().await) } else { None };
                (order, session.places.enter(what).await)
            };
            let entered = tokio::time::timeout_at(deadline.into(), entering).await;
            drop(waiting);
            let (order, place) = entered.map_err(|_| SessionError::TurnTooLate(self.bounds.wait))?;
            if !session.closing.is_gone() {
                if matches!(what, For::Program(_)) {
                    self.metrics.queued(begun.elapsed());
                }
                let turn = Turn { session, place: Some(place), _order: order, since: begun };
                turn.session.begin_turn().await;
                return Ok(turn);
            }
            session = self.get(&session.owner, &session.id).await?;
        }
    }

    /// The turn of a call that runs a program of `language`, if no call has it or waits for it.
    ///
    /// # Errors
    /// [`SessionError::Busy`], and the store's.
    pub async fn try_turn_to_run(
        &self,
        session: &Arc<Session>,
        language: &str,
    ) -> Result<Turn, SessionError> {
        let mut session = session.clone();
        loop {
            let order = session.places.order.clone().try_lock_owned().map_err(|_| SessionError::Busy)?;
            let place = session.places.try_enter(language).ok_or(SessionError::Busy)?;
            if !session.closing.is_gone() {
                let turn = Turn { session, place: Some(place), _order: Some(order), since: Instant::now() };
                turn.session.begin_turn().await;
                return Ok(turn);
            }
            session = self.get(&session.owner, &session.id).await?;
        }
    }

    /// A place for a program of `language` that runs already; `None` if programs of another language have theirs.
    pub(super) fn place_now(&self, session: &Arc<Session>, language: &str, in_order: bool) -> Option<Turn> {
        let order = if in_order { Some(session.places.order.clone().try_lock_owned().ok()?) } else { None };
        let place = session.places.try_enter(language)?;
        session.touch();
        Some(Turn { session: session.clone(), place: Some(place), _order: order, since: Instant::now() })
    }

    /// Waits until `session` is nobody's, after the calls that came before.
    pub(super) async fn whole(&self, session: &Session) -> (OwnedMutexGuard<()>, Whole) {
        let order = session.places.order.clone().lock_owned().await;
        (order, session.places.emptied().await)
    }
}
