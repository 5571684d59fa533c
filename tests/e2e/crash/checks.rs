//! Checks of a client: whether what the daemon told it is true, during the load, after a restart, and at the
//! end.
//!
//! It must never report the loss of data that the daemon was allowed to forget, nor accept the loss of data
//! that it acknowledged.

use std::collections::BTreeSet;

use serde_json::Value;

use super::super::tree::{Node, Tree, look, seen, sha256};
use super::{Client, RETRY_AFTER, UnansweredChange};
use crate::support::{Daemon, PATIENCE, Ran, within};

impl Client {
    /// Reads one file by its link and compares it; false if the daemon is gone.
    pub(super) async fn read(&mut self, d: &Daemon) -> bool {
        if self.chance.once_in(3) {
            return self.look(d).await;
        }
        let call = self.caller.call(self.session(d).tool("list_artifacts").with("limit", 1000));
        let Some(ran) = self.caller.answered(call.try_answer().await) else { return false };
        let listed = listed(&ran, self.dir);
        let paths: BTreeSet<_> = self.has.files().map(|(path, _)| path).collect();
        assert_eq!(
            listed.iter().map(|(path, _)| path).collect::<BTreeSet<_>>(),
            paths,
            "{}",
            self.description()
        );
        if listed.is_empty() {
            return true;
        }
        let (path, link) = self.chance.of(&listed);
        let Some(answer) = d.link("GET", &link).try_send().await else { return true };
        let sha = sha256(&answer.expect(200).body);
        assert_eq!(
            self.has.get(&path),
            Some(&Node::File(sha)),
            "{}: {path:?} by its link",
            self.description()
        );
        true
    }

    /// Compares everything, seen from inside; false if the daemon is gone.
    async fn look(&mut self, d: &Daemon) -> bool {
        let language = self.chance.of(self.languages);
        self.deleted = false;
        let Some(ran) = self.caller.run(self.session(d).run(language, look(language))).await else {
            return false;
        };
        if ran.document["success"] == true {
            self.compare(&seen(ran.stdout()));
        } else {
            self.caller.expect_passing(&ran);
        }
        true
    }

    /// Finds out what a lost run did, in its own container if there is one, and repeats that until it is
    /// known; and until a change is in place that is saved. False if the daemon is gone: then a later look
    /// finds it out.
    pub(super) async fn settle(&mut self, d: &Daemon) -> bool {
        let of_run = self.unanswered.as_ref().and_then(|change| change.language);
        let language = of_run.unwrap_or(self.languages[0]);
        let look_at = async {
            loop {
                let ran = self.caller.run(self.session(d).run(language, look(language))).await?;
                if ran.document["success"] == true {
                    if !self.awaits_place(&seen(ran.stdout())) {
                        return Some(ran);
                    }
                } else {
                    self.caller.expect_passing(&ran);
                }
                tokio::time::sleep(RETRY_AFTER).await;
            }
        };
        let ran = within(PATIENCE, "the service to return", look_at).await;
        if let Some(ran) = &ran {
            self.compare(&seen(ran.stdout()));
        }
        ran.is_some()
    }

    /// Whether the last change is saved, and what exists is as it was before it.
    fn awaits_place(&self, seen: &std::collections::BTreeMap<String, Tree>) -> bool {
        let is = seen.get(self.dir).cloned().unwrap_or_default();
        self.unanswered
            .as_ref()
            .is_some_and(|change| change.saved && change.after != self.has && is == self.has)
    }

    /// Compares what exists with what must exist; from then on the client's model is certain.
    #[track_caller]
    pub(in super::super) fn compare(&mut self, seen: &std::collections::BTreeMap<String, Tree>) {
        let is = seen.get(self.dir).cloned().unwrap_or_default();
        let change = self.unanswered.take();
        if is != self.has {
            let Some(UnansweredChange { after, steps, in_part, .. }) = change else {
                panic!(
                    "{}: is / must be: {:#?}\nasked: {:#?}",
                    self.description(),
                    is.unlike(&self.has),
                    self.asked
                );
            };
            let within = is.is_within(&self.has, &steps);
            assert!(
                is == after || in_part && within == Ok(()),
                "{}: in part: {in_part}, {within:?}\nasked: {:#?}\nis / was: {:#?}\nis / might be: {:#?}",
                self.description(),
                self.asked,
                is.unlike(&self.has),
                is.unlike(&after)
            );
            self.tally.happened += 1;
        } else if change.is_some_and(|change| change.after != self.has) {
            self.tally.did_not += 1;
        }
        self.has = is;
        self.deleted = false; // a run in it, to compare, makes it again
    }
}

/// The files below a directory in a listing, each with its link.
#[track_caller]
pub(in super::super) fn listed(ran: &Ran, dir: &str) -> Vec<(String, String)> {
    if ran.document["error"] == "session_not_found" {
        return Vec::new();
    }
    let artifacts = ran.clone().expect_success().document["artifacts"].as_array().expect("artifacts").clone();
    let text = |value: &Value| value.as_str().expect("text").to_owned();
    let all = artifacts.iter().map(|one| (text(&one["path"]), text(&one["url"])));
    let all = all.map(|(path, url)| (path.strip_prefix("/mnt/data/").expect("in /data").to_owned(), url));
    all.filter(|(path, _)| path.starts_with(&format!("{dir}/"))).collect()
}
