//! Who is in a session: programs of one language, any number of them, or one who has it whole.
//!
//! A program that fits beside those that are in does not wait for whoever wants all of it: an upload that waits for a server
//! of five minutes must not hold up an `echo`. It must never let in two who do not fit.

use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// The room of one session.
#[derive(Default)]
pub(super) struct Room {
    state: Mutex<State>,
    left: Notify,
}

#[derive(Default)]
struct State {
    /// Of what language those are that are in.
    language: String,
    programs: usize,
    whole: bool,
}

/// Who has the room whole.
pub(super) struct Whole(Arc<Room>);

/// A program that is in.
pub(super) struct Shared(Arc<Room>);

impl Room {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All of it, if nobody is in.
    pub(super) fn try_whole(self: &Arc<Self>) -> Option<Whole> {
        let mut state = self.state();
        if state.whole || state.programs > 0 {
            return None;
        }
        state.whole = true;
        Some(Whole(self.clone()))
    }

    /// A place for a program, if nobody is in that it does not fit beside.
    pub(super) fn try_shared(self: &Arc<Self>, language: &str) -> Option<Shared> {
        let mut state = self.state();
        if state.whole || (state.programs > 0 && state.language != language) {
            return None;
        }
        language.clone_into(&mut state.language);
        state.programs += 1;
        Some(Shared(self.clone()))
    }

    /// Waits for all of it.
    pub(super) async fn whole(self: &Arc<Self>) -> Whole {
        self.wait(|| self.try_whole()).await
    }

    /// Waits for a place for a program.
    pub(super) async fn shared(self: &Arc<Self>, language: &str) -> Shared {
        self.wait(|| self.try_shared(language)).await
    }

    async fn wait<T>(&self, enter: impl Fn() -> Option<T>) -> T {
        loop {
            let mut left = pin!(self.left.notified());
            left.as_mut().enable();
            if let Some(place) = enter() {
                return place;
            }
            left.await;
        }
    }
}

impl Whole {
    /// Programs of `language` may come in beside the one that this is for.
    pub(super) fn share(self, language: &str) -> Shared {
        let mut state = self.0.state();
        language.clone_into(&mut state.language);
        state.programs += 1;
        drop(state);
        Shared(self.0.clone())
    }
}

impl Drop for Whole {
    fn drop(&mut self) {
        self.0.state().whole = false;
        self.0.left.notify_waiters();
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.0.state().programs -= 1;
        self.0.left.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn who_fits_is_in_and_who_does_not_waits() {
        let room = Arc::new(Room::default());
        let first = room.try_shared("sh").unwrap();
        let second = room.shared("sh").await;
        assert!(room.try_shared("python").is_none() && room.try_whole().is_none());
        let waiting = tokio::spawn({
            let room = room.clone();
            async move { room.whole().await }
        });
        tokio::task::yield_now().await;
        // Beside those that are in, in front of whoever waits.
        drop(room.try_shared("sh").unwrap());
        drop((first, second));
        let whole = waiting.await.unwrap();
        assert!(room.try_shared("sh").is_none() && room.try_whole().is_none());
        let shared = whole.share("python");
        assert!(room.try_whole().is_none() && room.try_shared("sh").is_none());
        drop(room.try_shared("python").unwrap());
        drop(shared);
        drop(room.try_whole().unwrap());
        drop(room.try_shared("sh").unwrap());
    }
}
