//! The last runs of each owner and how they came out, for people who look on: what ran, never what it said.
//!
//! In memory only, a bounded number for each owner. It must never tell one owner of another's.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

/// Runs of each owner that are remembered.
pub const KEPT: usize = 100;

/// One run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ran {
    /// Its name.
    pub id: String,
    /// The session that it is of.
    pub session: String,
    /// What it is written in.
    pub language: String,
    /// When it had its turn.
    pub began: SystemTime,
    /// `running`, or how it ended, in a word.
    pub status: &'static str,
    /// Its exit code, once it has ended.
    pub exit_code: Option<i32>,
    /// What the program took, once it has ended.
    pub took: Option<Duration>,
}

/// All of them, by owner, the newest first.
#[derive(Debug, Default)]
pub struct Recent(Mutex<HashMap<String, VecDeque<Ran>>>);

impl Recent {
    fn all(&self) -> MutexGuard<'_, HashMap<String, VecDeque<Ran>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One began.
    pub fn begun(&self, owner: &str, run: Ran) {
        let mut all = self.all();
        let runs = all.entry(owner.to_owned()).or_default();
        runs.truncate(KEPT - 1);
        runs.push_front(run);
    }

    /// It came out like this.
    pub fn ended(
        &self,
        owner: &str,
        id: &str,
        status: &'static str,
        exit_code: Option<i32>,
        took: Option<Duration>,
    ) {
        let mut all = self.all();
        let run = all.get_mut(owner).and_then(|runs| runs.iter_mut().find(|run| run.id == id));
        if let Some(run) = run {
            (run.status, run.exit_code, run.took) = (status, exit_code, took);
        }
    }

    /// The runs of an owner, or of one session of theirs; the newest first.
    pub fn list(&self, owner: &str, session: Option<&str>) -> Vec<Ran> {
        let is_of = |run: &&Ran| session.is_none_or(|session| run.session == session);
        self.all().get(owner).into_iter().flatten().filter(is_of).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(id: usize, session: &str) -> Ran {
        Ran {
            id: id.to_string(),
            session: session.to_owned(),
            language: "python".to_owned(),
            began: SystemTime::UNIX_EPOCH,
            status: "running",
            exit_code: None,
            took: None,
        }
    }

    #[test]
    fn each_owner_has_its_own_newest_first_and_not_too_many() {
        let recent = Recent::default();
        for id in 0..KEPT + 5 {
            recent.begun("a", run(id, if id % 2 == 0 { "even" } else { "odd" }));
        }
        recent.begun("b", run(7, "even"));
        recent.ended("a", "104", "completed", Some(0), Some(Duration::from_millis(3)));
        recent.ended("a", "0", "completed", Some(0), None); // forgotten by now
        let all = recent.list("a", None);
        assert_eq!((all.len(), all[0].id.as_str(), all[0].status), (KEPT, "104", "completed"));
        assert_eq!((all[1].id.as_str(), all[1].status), ("103", "running"));
        assert!(recent.list("a", Some("odd")).iter().all(|run| run.session == "odd"));
        assert_eq!((recent.list("b", None).len(), recent.list("c", None).len()), (1, 0));
    }
}
