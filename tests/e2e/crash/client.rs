//! One client under load: it knows what must be in its part of a session, does the next thing, and updates
//! its model.
//!
//! An answered call is certain. A call in progress when the daemon was killed happened as a whole or not at
//! all.

#[path = "archive.rs"]
mod archive;
#[path = "caller.rs"]
mod caller;
#[path = "checks.rs"]
mod checks;
#[path = "plan.rs"]
mod plan;

use std::collections::VecDeque;
use std::time::Duration;

use percent_encoding::{NON_ALPHANUMERIC, percent_encode};

use self::archive::Archive;
use self::caller::CallOutcome;
pub(super) use self::caller::{Caller, RunCounts};
pub(super) use self::checks::listed;
use super::tree::{Step, Tree, program};
use crate::support::{Answer, Chance, Daemon, Session};

pub(super) struct Client {
    pub(super) caller: Caller,
    /// Its directory; no other client of the session writes there.
    dir: &'static str,
    /// Whether no other client uses the session, so that it may be closed at any time.
    alone: bool,
    languages: &'static [&'static str],
    chance: Chance,
    files: u32,
    pub(super) has: Tree,
    /// The change that it requested last and has no answer for.
    unanswered: Option<UnansweredChange>,
    /// Its latest requests.
    asked: VecDeque<String>,
    /// Whether its session was deleted, with no call after that.
    deleted: bool,
    pub(super) tally: Tally,
}

/// A requested change.
struct UnansweredChange {
    after: Tree,
    /// The steps of a run.
    steps: Vec<Step>,
    /// Whether only some may have been done, as the answer said.
    in_part: bool,
    /// Whether it is saved, so that it happens for certain.
    saved: bool,
    /// The language of a run: its container may keep what could not be saved, for its next run.
    language: Option<&'static str>,
}

/// Totals, for the reader of the test's output.
#[derive(Default, Clone, Copy, Debug)]
pub(super) struct Tally {
    pub(super) acknowledged: u32,
    pub(super) read: u32,
    pub(super) refused: u32,
    pub(super) lost: u32,
    /// Changes without an answer.
    pub(super) happened: u32,
    pub(super) did_not: u32,
}

impl Tally {
    pub(super) fn add(&mut self, other: Tally) {
        self.acknowledged += other.acknowledged;
        self.read += other.read;
        self.refused += other.refused;
        self.lost += other.lost;
        self.happened += other.happened;
        self.did_not += other.did_not;
    }
}

/// How many of its requests a client remembers for the message of a failed test.
const REMEMBERED: usize = 12;

/// How long a client waits before it retries, as the daemon tells it to.
pub(super) const RETRY_AFTER: Duration = Duration::from_millis(50);

impl Client {
    pub(super) fn new(
        caller: Caller,
        dir: &'static str,
        alone: bool,
        languages: &'static [&'static str],
        chance: Chance,
    ) -> Client {
        let (has, tally) = (Tree::default(), Tally::default());
        Client {
            caller,
            dir,
            alone,
            languages,
            chance,
            files: 0,
            has,
            unanswered: None,
            asked: VecDeque::new(),
            deleted: false,
            tally,
        }
    }

    /// Works until the daemon is gone or `enough` returns true.
    pub(super) async fn work(&mut self, d: &Daemon, enough: &dyn Fn() -> bool) {
        while !enough() {
            let outcome = self.once(d).await;
            let outcome = match outcome {
                Some(outcome) => outcome,
                None => continue,
            };
            match outcome {
                CallOutcome::Nothing => return,
                CallOutcome::Refused => {
                    self.tally.refused += 1;
                    tokio::time::sleep(RETRY_AFTER).await;
                }
                CallOutcome::Lost | CallOutcome::Saved => {
                    self.tally.lost += 1;
                    if !self.settle(d).await {
                        return;
                    }
                }
                CallOutcome::Done => self.tally.acknowledged += 1,
            }
        }
    }

    /// Does one thing; `None` if it changes nothing.
    async fn once(&mut self, d: &Daemon) -> Option<CallOutcome> {
        match self.chance.below(20) {
            0..6 => Some(self.upload(d).await),
            6 => Some(self.put(d).await),
            7 => Some(self.put_tar(d).await),
            8 => Some(self.delete(d).await),
            9 if self.alone => Some(self.close(d).await),
            9..12 => {
                if self.read(d).await {
                    self.tally.read += 1;
                    return None;
                }
                Some(CallOutcome::Nothing)
            }
            _ => Some(self.run(d).await),
        }
    }

    fn session<'d>(&self, d: &'d Daemon) -> Session<'d> {
        d.session(self.caller.session)
    }

    /// The answer of a raw request.
    async fn raw(
        &self,
        d: &Daemon,
        method: &str,
        path: &str,
        body: Vec<u8>,
        kind: Option<&str>,
    ) -> Option<Answer> {
        let encode = |text: &str| percent_encode(text.as_bytes(), NON_ALPHANUMERIC).to_string();
        let path: Vec<_> = path.split('/').filter(|part| !part.is_empty()).map(encode).collect();
        let path: String = path.iter().flat_map(|part| ["/", part]).collect();
        let path = format!("/sessions/{}/files{path}", encode(self.caller.session));
        let mut request = d.request(method, &path).body(body);
        if let Some(token) = self.caller.token {
            request = request.bearer(token);
        }
        if let Some(kind) = kind {
            request = request.header("content-type", kind);
        }
        request.try_send().await
    }

    fn begin(&mut self, what: &str, steps: Vec<Step>) {
        self.asked.push_back(format!("{what} {steps:?}"));
        if self.asked.len() > REMEMBERED {
            self.asked.pop_front();
        }
        let after = self.has.after(&steps);
        let change = UnansweredChange { after, steps, in_part: false, saved: false, language: None };
        self.unanswered = Some(change);
    }

    /// Updates the model after an answer, or after none.
    fn note(&mut self, outcome: CallOutcome) -> CallOutcome {
        match outcome {
            CallOutcome::Done => {
                let change = self.unanswered.take().expect("something was asked for");
                self.has = change.after;
                self.deleted = false;
            }
            CallOutcome::Refused => self.unanswered = None,
            CallOutcome::Saved => self.unanswered.as_mut().expect("something was asked for").saved = true,
            CallOutcome::Lost | CallOutcome::Nothing => {}
        }
        outcome
    }

    async fn upload(&mut self, d: &Daemon) -> CallOutcome {
        let (path, content) = (self.free_path(), self.content());
        let call = self.caller.call(self.session(d).upload(&path, &content.bytes()));
        self.begin("upload", vec![Step::Write(path, content)]);
        let ran = self.caller.answered(call.try_answer().await);
        let outcome = self.caller.verdict(ran);
        self.note(outcome)
    }

    async fn put(&mut self, d: &Daemon) -> CallOutcome {
        let (path, content) = (self.free_path(), self.content());
        let body = content.bytes();
        self.begin("put", vec![Step::Write(path.clone(), content)]);
        let outcome = match self.raw(d, "PUT", &path, body, None).await {
            None => CallOutcome::Nothing,
            Some(answer) if matches!(answer.status, 200 | 201) => CallOutcome::Done,
            Some(answer) => self.caller.refusal(&answer),
        };
        self.note(outcome)
    }

    /// Puts several files at once: all of them, or none.
    async fn put_tar(&mut self, d: &Daemon) -> CallOutcome {
        let (mut after, mut steps) = (self.has.clone(), Vec::new());
        let mut builder = Archive::default();
        for _ in 0..=self.chance.below(4) {
            let (path, mut content) = (self.free_path(), self.content());
            content.size %= 200_000;
            if after.takes_file(&path) {
                builder.file(&path, &content.bytes());
                steps.push(Step::Write(path, content));
                after = self.has.after(&steps);
            }
        }
        self.begin("put a tar", steps);
        let outcome = match self.raw(d, "PUT", "", builder.end(), Some("application/x-tar")).await {
            None => CallOutcome::Nothing,
            Some(answer) if matches!(answer.status, 200 | 201) => CallOutcome::Done,
            Some(answer) => self.caller.refusal(&answer),
        };
        self.note(outcome)
    }

    async fn delete(&mut self, d: &Daemon) -> CallOutcome {
        let files: Vec<_> = self.has.files().map(|(path, _)| path.clone()).collect();
        if files.is_empty() {
            return self.upload(d).await;
        }
        let path = self.chance.of(&files);
        self.begin("delete", vec![Step::Remove(path.clone())]);
        let outcome = match self.raw(d, "DELETE", &path, Vec::new(), None).await {
            None => CallOutcome::Nothing,
            Some(answer) if answer.status == 204 => CallOutcome::Done,
            Some(answer) => self.caller.refusal(&answer),
        };
        self.note(outcome)
    }

    async fn close(&mut self, d: &Daemon) -> CallOutcome {
        let delete = self.chance.once_in(2);
        let call = self.caller.call(self.session(d).tool("close_session").with("delete_files", delete));
        let gone = delete.then(|| Step::Remove(self.dir.to_owned()));
        self.begin("close", gone.into_iter().collect());
        let outcome = match self.caller.answered(call.try_answer().await) {
            None => CallOutcome::Nothing,
            // The session was closed already, or never existed.
            Some(ran) if ran.document["error"] == "session_not_found" => {
                assert!(!delete || self.has.0.is_empty(), "{}: {}", self.dir, ran.document);
                CallOutcome::Done
            }
            Some(ran) => self.caller.verdict(Some(ran)),
        };
        let outcome = self.note(outcome);
        self.deleted = delete && matches!(outcome, CallOutcome::Done);
        outcome
    }

    async fn run(&mut self, d: &Daemon) -> CallOutcome {
        let mut steps = Vec::new();
        let mut after = self.has.clone();
        for _ in 0..=self.chance.below(4) {
            let from = steps.len();
            self.plan(&after, &mut steps);
            steps[from..].iter().for_each(|step| after.apply(step));
        }
        let language = self.chance.of(self.languages);
        let call = self.session(d).run(language, &program(language, &steps));
        self.begin(language, steps);
        if let Some(change) = &mut self.unanswered {
            change.language = Some(language);
        }
        let ran = self.caller.run(call).await;
        let outcome = self.caller.verdict(ran);
        if let (CallOutcome::Lost | CallOutcome::Saved, Some(change)) = (&outcome, &mut self.unanswered) {
            change.in_part = true;
        }
        self.note(outcome)
    }

    pub(super) fn dir(&self) -> &'static str {
        self.dir
    }

    /// Whether its session must not exist.
    pub(super) fn is_deleted(&self) -> bool {
        self.deleted && self.unanswered.is_none()
    }

    fn description(&self) -> String {
        format!("{}/ of {:?} under {:?}", self.dir, self.caller.session, self.caller.token)
    }
}
