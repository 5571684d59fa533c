//! The last runs of each owner and how they ended, for the page: which code ran, never what it printed.
//!
//! In memory only, a bounded number for each owner. It must never show one owner the runs of another.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

/// Runs that are remembered for each owner.
pub const KEPT: usize = 100;

/// Characters of a title: what a line of the page has room for.
const TITLE: usize = 80;

/// The first line of a text that is not blank, or its beginning: what people know their code by.
pub fn title(text: &str) -> String {
    // Code can be one line of megabytes, or begin with as many blank ones.
    let end = text.char_indices().nth(TITLE * 10).map_or(text.len(), |(at, _)| at);
    let first = text[..end].lines().map(str::trim).find(|line| !line.is_empty());
    first.unwrap_or_default().chars().take(TITLE).collect()
}

/// One run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PastRun {
    /// Its id.
    pub id: String,
    /// The id of its session.
    pub session: String,
    /// The language of its code.
    pub language: String,
    /// The first line of its code, see [`title`].
    pub title: String,
    /// When it got its turn.
    pub began: SystemTime,
    /// `running`, or how it ended, in one word.
    pub status: &'static str,
    /// Its exit code, once it has ended.
    pub exit_code: Option<i32>,
    /// How long the program took, once it has ended.
    pub took: Option<Duration>,
}

/// All of them, by owner, the newest first.
#[derive(Debug, Default)]
pub struct RunHistory(Mutex<HashMap<String, VecDeque<PastRun>>>);

impl RunHistory {
    fn all(&self) -> MutexGuard<'_, HashMap<String, VecDeque<PastRun>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a run that begins.
    pub fn begun(&self, owner: &str, run: PastRun) {
        let mut all = self.all();
        let runs = all.entry(owner.to_owned()).or_default();
        runs.truncate(KEPT - 1);
        runs.push_front(run);
    }

    /// Notes how a run ended, if it is still remembered.
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

    /// The runs of an owner, or of one of its sessions, the newest first.
    pub fn list(&self, owner: &str, session: Option<&str>) -> Vec<PastRun> {
        let is_of = |run: &&PastRun| session.is_none_or(|session| run.session == session);
        self.all().get(owner).into_iter().flatten().filter(is_of).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(id: usize, session: &str) -> PastRun {
        PastRun {
            id: id.to_string(),
            session: session.to_owned(),
            language: "python".to_owned(),
            title: String::new(),
            began: SystemTime::UNIX_EPOCH,
            status: "running",
            exit_code: None,
            took: None,
        }
    }

    #[test]
    fn a_title_is_the_first_line_that_is_not_blank() {
        let blank = "\n".repeat(10_000) + "late";
        let long = "é".repeat(10_000);
        for (text, is) in [
            ("", ""),
            (" \n\t\r\n", ""),
            ("\n  import os  \nprint()", "import os"),
            ("# a\u{202e}b\r\n", "# a\u{202e}b"),
            (blank.as_str(), ""),
            (long.as_str(), &long[..160]),
        ] {
            assert_eq!(title(text), is);
        }
    }

    #[test]
    fn each_owner_has_its_own_newest_first_and_not_too_many() {
        let history = RunHistory::default();
        for id in 0..KEPT + 5 {
            history.begun("a", run(id, if id % 2 == 0 { "even" } else { "odd" }));
        }
        history.begun("b", run(7, "even"));
        history.ended("a", "104", "completed", Some(0), Some(Duration::from_millis(3)));
        history.ended("a", "0", "completed", Some(0), None); // forgotten by now
        let all = history.list("a", None);
        assert_eq!((all.len(), all[0].id.as_str(), all[0].status), (KEPT, "104", "completed"));
        assert_eq!((all[1].id.as_str(), all[1].status), ("103", "running"));
        assert!(history.list("a", Some("odd")).iter().all(|run| run.session == "odd"));
        assert_eq!((history.list("b", None).len(), history.list("c", None).len()), (1, 0));
    }
}
