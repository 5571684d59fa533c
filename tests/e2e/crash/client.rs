//! One client at work: it knows what must be in its part of a session, does the next thing, and takes note.
//!
//! What was answered is certain. What was on its way when the daemon was killed happened or did not, as a whole.

#[path = "archive.rs"]
mod archive;
#[path = "checks.rs"]
mod checks;

use std::collections::VecDeque;
use std::time::Duration;

use percent_encoding::{NON_ALPHANUMERIC, percent_encode};
use serde_json::{Value, json};

use self::archive::Archive;
pub(super) use self::checks::listed;
use super::tree::{Content, Step, Tree, program};
use crate::support::{Answer, Call, Chance, Daemon, Ran, Session};

/// Names of a client's files: some are directories of others, some at one time a file and at another a directory.
const NAMES: [&str; 12] = [
    "a",
    "b.csv",
    "d",
    "d/x",
    "d/y/z",
    "e/f",
    "e",
    "\u{fc}ber.txt",
    "\u{65e5}\u{672c}/\u{7d50}\u{679c} 1.csv",
    "sp ace",
    "-rf",
    ".hidden",
];

/// Who calls, and in which session.
#[derive(Clone)]
pub(super) struct Place {
    /// A token other than that of the tests.
    pub(super) token: Option<&'static str>,
    pub(super) session: &'static str,
}

impl Place {
    /// The same call by who calls here.
    pub(super) fn call<'d>(&self, call: Call<'d>) -> Call<'d> {
        match self.token {
            Some(token) => call.bearer(token),
            None => call,
        }
    }
}

pub(super) struct Client {
    pub(super) place: Place,
    /// Its directory; no other client of the session writes there.
    dir: &'static str,
    /// Whether nobody else uses the session, so that it may be closed at any time.
    alone: bool,
    languages: &'static [&'static str],
    chance: Chance,
    files: u32,
    pub(super) has: Tree,
    /// What it wanted and has no answer for.
    unsure: Option<Unsure>,
    /// What it asked for of late.
    asked: VecDeque<String>,
    /// Its session was deleted, and nothing came after that.
    deleted: bool,
    pub(super) tally: Tally,
}

/// A change that was asked for.
struct Unsure {
    after: Tree,
    /// Those of a run.
    steps: Vec<Step>,
    /// They may have been done in part, as the answer said.
    in_part: bool,
}

/// What happened, for the one who reads the test's output.
#[derive(Default, Clone, Copy, Debug)]
pub(super) struct Tally {
    pub(super) acknowledged: u32,
    pub(super) read: u32,
    pub(super) refused: u32,
    pub(super) lost: u32,
    /// Of those without an answer.
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

/// How a call came out.
enum Heard {
    Done,
    /// Nothing was done, for one of the reasons that a client tries again for.
    Refused,
    /// The run began and its end is unknown.
    Lost,
    /// The daemon was gone before it answered.
    Nothing,
}

/// Codes of calls that did nothing and may be sent again.
const AGAIN: [&str; 3] = ["max_sessions", "queue_full", "engine_unavailable"];

/// How many of its calls a client remembers for a failed test.
const ASKED: usize = 12;

/// Files that a program makes in one directory.
const MANY: u32 = 30;

/// How long a client waits before it tries again, as it was told to.
pub(super) const AGAIN_AFTER: Duration = Duration::from_millis(50);

/// It failed for a reason that passes.
#[track_caller]
pub(super) fn expect_passing(ran: &Ran) {
    let code = ran.document["error"].as_str().unwrap_or_default();
    assert!(AGAIN.contains(&code) || code == "lost", "{}", ran.document);
}

impl Client {
    pub(super) fn new(
        place: Place,
        dir: &'static str,
        alone: bool,
        languages: &'static [&'static str],
        chance: Chance,
    ) -> Client {
        let (has, tally) = (Tree::default(), Tally::default());
        Client {
            place,
            dir,
            alone,
            languages,
            chance,
            files: 0,
            has,
            unsure: None,
            asked: VecDeque::new(),
            deleted: false,
            tally,
        }
    }

    /// Works until the daemon is gone or `enough` says so.
    pub(super) async fn work(&mut self, d: &Daemon, enough: &dyn Fn() -> bool) {
        while !enough() {
            let heard = self.once(d).await;
            let heard = match heard {
                Some(heard) => heard,
                None => continue,
            };
            match heard {
                Heard::Nothing => return,
                Heard::Refused => {
                    self.tally.refused += 1;
                    tokio::time::sleep(AGAIN_AFTER).await;
                }
                Heard::Lost => {
                    self.tally.lost += 1;
                    self.settle(d).await;
                }
                Heard::Done => self.tally.acknowledged += 1,
            }
        }
    }

    /// One thing; `None` if it was one that changes nothing.
    async fn once(&mut self, d: &Daemon) -> Option<Heard> {
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
                Some(Heard::Nothing)
            }
            _ => Some(self.run(d).await),
        }
    }

    fn session<'d>(&self, d: &'d Daemon) -> Session<'d> {
        d.session(self.place.session)
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
        let path = format!("/sessions/{}/files{path}", encode(self.place.session));
        let mut request = d.request(method, &path).body(body);
        if let Some(token) = self.place.token {
            request = request.bearer(token);
        }
        if let Some(kind) = kind {
            request = request.header("content-type", kind);
        }
        request.try_send().await
    }

    fn path(&mut self) -> String {
        format!("{}/{}", self.dir, self.chance.of(&NAMES))
    }

    fn content(&mut self) -> Content {
        self.files += 1;
        let tag = format!("{:?}-{}-{}-{}", self.place.token, self.place.session.len(), self.dir, self.files);
        let tag = tag.replace(|c: char| !c.is_ascii_alphanumeric() && c != '-', "");
        let bound = match self.chance.below(20) {
            0..3 => 1,
            3..12 => 5000,
            12..18 => 100_000,
            18 => 700_000,
            _ => 3_000_000,
        };
        Content { tag, size: usize::try_from(self.chance.below(bound)).expect("small") }
    }

    /// A path that a file can be put at from outside.
    fn free_path(&mut self) -> String {
        loop {
            let path = self.path();
            if self.has.takes_file(&path) {
                return path;
            }
        }
    }

    fn begin(&mut self, what: &str, steps: Vec<Step>) {
        self.asked.push_back(format!("{what} {steps:?}"));
        if self.asked.len() > ASKED {
            self.asked.pop_front();
        }
        self.unsure = Some(Unsure { after: self.has.after(&steps), steps, in_part: false });
    }

    /// What follows from an answer, or from none.
    fn note(&mut self, heard: Heard) -> Heard {
        match heard {
            Heard::Done => {
                let unsure = self.unsure.take().expect("something was asked for");
                self.has = unsure.after;
                self.deleted = false;
            }
            Heard::Refused => self.unsure = None,
            Heard::Lost | Heard::Nothing => {}
        }
        heard
    }

    async fn upload(&mut self, d: &Daemon) -> Heard {
        let (path, content) = (self.free_path(), self.content());
        let call = self.place.call(self.session(d).upload(&path, &content.bytes()));
        self.begin("upload", vec![Step::Write(path, content)]);
        let heard = verdict(call.try_answer().await);
        self.note(heard)
    }

    async fn put(&mut self, d: &Daemon) -> Heard {
        let (path, content) = (self.free_path(), self.content());
        let body = content.bytes();
        self.begin("put", vec![Step::Write(path.clone(), content)]);
        let heard = match self.raw(d, "PUT", &path, body, None).await {
            None => Heard::Nothing,
            Some(answer) if matches!(answer.status, 200 | 201) => Heard::Done,
            Some(answer) => again(&answer),
        };
        self.note(heard)
    }

    /// Several files at once: all of them, or none.
    async fn put_tar(&mut self, d: &Daemon) -> Heard {
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
        let heard = match self.raw(d, "PUT", "", builder.end(), Some("application/x-tar")).await {
            None => Heard::Nothing,
            Some(answer) if matches!(answer.status, 200 | 201) => Heard::Done,
            Some(answer) => again(&answer),
        };
        self.note(heard)
    }

    async fn delete(&mut self, d: &Daemon) -> Heard {
        let files: Vec<_> = self.has.files().map(|(path, _)| path.clone()).collect();
        if files.is_empty() {
            return self.upload(d).await;
        }
        let path = self.chance.of(&files);
        self.begin("delete", vec![Step::Remove(path.clone())]);
        let heard = match self.raw(d, "DELETE", &path, Vec::new(), None).await {
            None => Heard::Nothing,
            Some(answer) if answer.status == 204 => Heard::Done,
            Some(answer) => again(&answer),
        };
        self.note(heard)
    }

    async fn close(&mut self, d: &Daemon) -> Heard {
        let delete = self.chance.once_in(2);
        let call = self.place.call(self.session(d).tool("close_session").with("delete_files", delete));
        let gone = delete.then(|| Step::Remove(self.dir.to_owned()));
        self.begin("close", gone.into_iter().collect());
        let heard = match call.try_answer().await.map(Ran::of) {
            None => Heard::Nothing,
            // It was closed already, or never there.
            Some(ran) if ran.document["error"] == "session_not_found" => {
                assert!(!delete || self.has.0.is_empty(), "{}: {}", self.dir, ran.document);
                Heard::Done
            }
            Some(ran) => {
                ran.expect_success();
                Heard::Done
            }
        };
        let heard = self.note(heard);
        self.deleted = delete && matches!(heard, Heard::Done);
        heard
    }

    async fn run(&mut self, d: &Daemon) -> Heard {
        let mut steps = Vec::new();
        let mut after = self.has.clone();
        for _ in 0..=self.chance.below(4) {
            let from = steps.len();
            self.plan(&after, &mut steps);
            steps[from..].iter().for_each(|step| after.apply(step));
        }
        let language = self.chance.of(self.languages);
        let call = self.place.call(self.session(d).run(language, &program(language, &steps)));
        self.begin(language, steps);
        let heard = verdict(call.try_answer().await);
        if let (Heard::Lost, Some(unsure)) = (&heard, &mut self.unsure) {
            unsure.in_part = true;
        }
        self.note(heard)
    }

    /// What a program does next to files that are as in `tree`.
    fn plan(&mut self, tree: &Tree, steps: &mut Vec<Step>) {
        let path = self.path();
        match self.chance.below(10) {
            0 if tree.get(&path).is_some() => steps.push(Step::Remove(path)),
            1 => {
                tree.room(&path, steps);
                steps.push(Step::Dir(path));
            }
            2 => {
                tree.room(&path, steps);
                let target = self.chance.of(&["a", "d", "/etc/passwd", "nowhere", "../.."]).to_owned();
                steps.push(Step::Link(target, path));
            }
            3..6 => {
                let paths: Vec<_> = tree.0.keys().filter(|path| path.contains('/')).cloned().collect();
                if paths.is_empty() {
                    return;
                }
                let from = self.chance.of(&paths);
                let apart = |a: &str, b: &str| a != b && !a.starts_with(&format!("{b}/"));
                if apart(&from, &path) && apart(&path, &from) {
                    tree.room(&path, steps);
                    steps.push(Step::Move(from, path));
                }
            }
            6 => steps.push(Step::Nap),
            7 if self.chance.once_in(2) => {
                // Many at once take a moment to be put in place.
                tree.room(&path, steps);
                let content = self.content();
                let file = |n| {
                    Step::Write(
                        format!("{path}/{n}"),
                        Content { size: content.size % 4000, ..content.clone() },
                    )
                };
                steps.push(Step::Dir(path.clone()));
                steps.extend((0..MANY).map(file));
            }
            _ => {
                tree.room(&path, steps);
                let content = self.content();
                steps.push(Step::Write(path, content));
            }
        }
    }

    pub(super) fn dir(&self) -> &'static str {
        self.dir
    }

    /// Whether its session must not be there.
    pub(super) fn is_deleted(&self) -> bool {
        self.deleted && self.unsure.is_none()
    }

    fn place(&self) -> String {
        format!("{}/ of {:?} under {:?}", self.dir, self.place.session, self.place.token)
    }
}

#[track_caller]
fn verdict(answer: Option<Value>) -> Heard {
    let Some(answer) = answer else { return Heard::Nothing };
    let ran = Ran::of(answer);
    match ran.document["error"].as_str() {
        Some("lost") => Heard::Lost,
        Some(code) if AGAIN.contains(&code) => Heard::Refused,
        _ => {
            ran.expect_success();
            Heard::Done
        }
    }
}

#[track_caller]
fn again(answer: &Answer) -> Heard {
    assert!(
        AGAIN.iter().any(|code| answer.json()["error"] == json!(code)),
        "{}: {}",
        answer.status,
        answer.text()
    );
    Heard::Refused
}
