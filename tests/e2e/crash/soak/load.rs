//! What works beside the clients with files: counters whose every run must have happened exactly once,
//! commands that outlive their callers, and runs that hit limits.
//!
//! A caller must never take a run for certain that it has no answer for.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::Value;

use super::super::RETRY_AFTER;
use super::super::client::Caller;
use crate::exec::{bytes_of, read_all};
use crate::support::{Chance, Daemon, PATIENCE, Ran, within};

/// A file gets a new name after this many numbers, so that saving it takes the same time for ever.
const NUMBERS: usize = 300;

/// Appends numbers to a file, one each run.
pub(super) struct Counter {
    pub(super) caller: Caller,
    language: &'static str,
    /// Whether it closes its connection before the answer at times.
    hangs_up: bool,
    chance: Chance,
    file: u32,
    next: u32,
    acknowledged: BTreeSet<u32>,
    unknown: BTreeSet<u32>,
    /// The acknowledged numbers of all files.
    pub(super) counted: u64,
}

impl Counter {
    pub(super) fn new(caller: Caller, language: &'static str, hangs_up: bool, chance: Chance) -> Counter {
        let (acknowledged, unknown) = (BTreeSet::new(), BTreeSet::new());
        Counter { caller, language, hangs_up, chance, file: 1, next: 0, acknowledged, unknown, counted: 0 }
    }

    /// A program that appends a number, and removes the file before this one.
    fn program(&self, n: u32) -> String {
        let (file, old) = (format!("count-{}", self.file), format!("count-{}", self.file - 1));
        match self.language {
            "python" => format!(
                "import os\nif os.path.exists('{old}'): os.remove('{old}')\nwith open('{file}', 'a') as f: \
                 f.write('{n}\\n')"
            ),
            "typescript" => format!(
                "import {{ appendFileSync, rmSync }} from 'node:fs';\nrmSync('{old}', {{ force: true \
                 }});\nappendFileSync('{file}', '{n}\\n');"
            ),
            _ => format!("rm -f '{old}'; echo {n} >> '{file}'"),
        }
    }

    pub(super) async fn work(&mut self, d: &Daemon, enough: &dyn Fn() -> bool) {
        while !enough() {
            let n = self.next;
            self.next += 1;
            let call = d.session(self.caller.session).run(self.language, &self.program(n));
            let run = self.caller.run(call);
            let ran = if self.hangs_up && self.chance.once_in(4) {
                let patience = Duration::from_millis(self.chance.below(60));
                let Ok(ran) = tokio::time::timeout(patience, run).await else {
                    self.caller.runs.unsure.fetch_add(1, Ordering::Relaxed);
                    self.unknown.insert(n);
                    continue;
                };
                ran
            } else {
                run.await
            };
            let Some(ran) = ran else {
                self.unknown.insert(n);
                return;
            };
            match ran.document["error"].as_str() {
                None if self.caller.is_cut(&ran) => {
                    self.unknown.insert(n);
                }
                None => {
                    ran.expect_success();
                    self.acknowledged.insert(n);
                    self.counted += 1;
                }
                Some("lost" | "quota_exceeded") => {
                    self.unknown.insert(n);
                }
                Some(_) => {
                    self.caller.expect_passing(&ran);
                    tokio::time::sleep(RETRY_AFTER).await;
                }
            }
        }
    }

    /// Every acknowledged number is in the file once, and nothing else but what is unknown.
    pub(super) async fn verify(&mut self, d: &Daemon) {
        let name = format!("count-{}", self.file);
        let mut request = d.request("GET", &format!("/sessions/{}/files/{name}", self.caller.session));
        if let Some(token) = self.caller.token {
            request = request.bearer(token);
        }
        let answer = request.send().await;
        let text = if answer.status == 404 { String::new() } else { answer.expect(200).text() };
        let mut seen = BTreeSet::new();
        for line in text.lines() {
            let n: u32 = line.parse().unwrap_or_else(|_| panic!("{name} has {line:?}"));
            assert!(seen.insert(n), "{n} is in {name} twice, by {}", self.language);
        }
        let lost: Vec<_> = self.acknowledged.difference(&seen).collect();
        assert!(
            lost.is_empty(),
            "{lost:?} are not in {name} of {}, by {}",
            self.caller.session,
            self.language
        );
        seen.retain(|n| !self.acknowledged.contains(n) && !self.unknown.contains(n));
        assert!(seen.is_empty(), "{seen:?} of {} were refused, and happened", self.caller.session);
        let listing = self.caller.call(d.session(self.caller.session).tool("list_artifacts")).await;
        for one in listing.document["artifacts"].as_array().into_iter().flatten() {
            let path = one["path"].as_str().expect("a path");
            assert!(path.starts_with("/mnt/data/count-"), "{path} is of another session");
        }
        if self.acknowledged.len() > NUMBERS {
            self.file += 1;
            self.acknowledged.clear();
            self.unknown.clear();
        }
    }
}

/// A command that runs, or has run.
struct Begun {
    id: String,
    tag: String,
    lines: u64,
    cancelled: bool,
}

/// Starts commands, cancels some, and reads every line of the others.
pub(super) struct Commands {
    pub(super) caller: Caller,
    chance: Chance,
    begun: Vec<Begun>,
    tags: u32,
    pub(super) completed: u32,
    pub(super) cancelled: u32,
    pub(super) lost: u32,
    /// Those whose output a full disk did not take.
    pub(super) unkept: u32,
}

/// What is said of a command on a full disk.
const UNKEPT: &str = "its output could not be kept, so it was ended: the disk of the store is full";

/// Commands that are begun in one round.
const MOST: usize = 40;

impl Commands {
    pub(super) fn new(caller: Caller, chance: Chance) -> Commands {
        Commands {
            caller,
            chance,
            begun: Vec::new(),
            tags: 0,
            completed: 0,
            cancelled: 0,
            lost: 0,
            unkept: 0,
        }
    }

    pub(super) async fn work(&mut self, d: &Daemon, enough: &dyn Fn() -> bool) {
        let session = d.session(self.caller.session);
        while !enough() {
            if self.begun.len() >= MOST {
                tokio::time::sleep(RETRY_AFTER).await;
                continue;
            }
            self.tags += 1;
            let (tag, lines) = (format!("tag-{}", self.tags), 1 + self.chance.below(400));
            let pause = self.chance.below(9);
            let command = format!(
                "i=0; while [ $i -lt {lines} ]; do i=$((i + 1)); echo \"$i {tag}\"; done; sleep 0.{pause}"
            );
            let call = session.tool("execute_code_async").with("command", command);
            let Some(ran) = self.caller.answered(call.try_answer().await) else { return };
            // Its container may be lost before the answer, or a full disk may end it: it has an id all the
            // same.
            let is_begun = !ran.is_error || status(&ran) == "lost" || is_unkept(&ran);
            let Some(id) = ran.document["execution_id"].as_str().filter(|_| is_begun) else {
                self.caller.expect_passing(&ran);
                tokio::time::sleep(RETRY_AFTER).await;
                continue;
            };
            let id = id.to_owned();
            let cancelled = self.chance.once_in(5);
            self.begun.push(Begun { id: id.clone(), tag, lines, cancelled });
            let call = if cancelled {
                session.tool("cancel_execution")
            } else if self.chance.once_in(2) {
                session.tool("get_execution_output").with("wait", true)
            } else {
                continue;
            };
            if call.with("execution_id", id).try_answer().await.is_none() {
                return;
            }
        }
    }

    /// Waits for the end of all of them, and compares their output.
    pub(super) async fn verify(&mut self, d: &Daemon, was_stopped: bool) {
        for one in self.begun.drain(..) {
            let ended = async {
                loop {
                    let call = d.session(self.caller.session).tool("get_execution_status");
                    let ran = self.caller.call(call.with("execution_id", &*one.id)).await;
                    if status(&ran) != "running" {
                        return ran;
                    }
                    tokio::time::sleep(RETRY_AFTER).await;
                }
            };
            let ran = within(PATIENCE, "the end of a command", ended).await;
            match status(&ran) {
                "completed" => {
                    let out = bytes_of(&read_all(d, &one.id).await, "stdout");
                    let expected: String = (1..=one.lines).map(|n| format!("{n} {}\n", one.tag)).collect();
                    assert_eq!(String::from_utf8_lossy(&out), expected, "the output of {}", one.id);
                    self.completed += 1;
                }
                "cancelled" if one.cancelled || was_stopped => self.cancelled += 1,
                "lost" => self.lost += 1,
                // It was ended, since nobody could have read what it wrote.
                "failed" if is_unkept(&ran) => self.unkept += 1,
                _ => panic!("{}", ran.document),
            }
        }
    }
}

fn is_unkept(ran: &Ran) -> bool {
    ran.document["error_message"].as_str().is_some_and(|why| why.contains(UNKEPT))
}

fn status(ran: &Ran) -> &str {
    let of = |key: &str| ran.document[key].as_str();
    of("error").or(of("status")).unwrap_or_default()
}

/// Runs that hit limits, as those of unread code do.
pub(super) struct Trouble {
    pub(super) caller: Caller,
    chance: Chance,
    pub(super) ended: u32,
}

/// The pause between two of them.
const PAUSE: Duration = Duration::from_millis(300);

impl Trouble {
    pub(super) fn new(caller: Caller, chance: Chance) -> Trouble {
        Trouble { caller, chance, ended: 0 }
    }

    pub(super) async fn work(&mut self, d: &Daemon, enough: &dyn Fn() -> bool) {
        let session = d.session(self.caller.session);
        while !enough() {
            let (call, limit) = match self.chance.below(3) {
                0 => (session.sh("sleep 30").timeout(0.3), Some("wall_time")),
                1 => (session.sh("tail /dev/zero"), None),
                _ => (session.sh("yes | head -c 3000000"), None),
            };
            let Some(ran) = self.caller.run(call).await else { return };
            if self.caller.is_cut(&ran) {
                return;
            }
            if ran.document["error"].as_str().is_some_and(|code| code != "timeout") {
                self.caller.expect_passing(&ran);
            } else {
                self.ended += 1;
                if let Some(limit) = limit {
                    assert_eq!(ran.document["limit"], Value::from(limit), "{}", ran.document);
                }
            }
            tokio::time::sleep(PAUSE).await;
        }
    }
}
