//! How a client calls, and what an answer means: whether it is certain that something was done.
//!
//! It must never take a failure that a caller cannot understand for one that passes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::{Value, json};

use crate::support::{Answer, Call, Ran};

/// The outcome of a call.
pub(super) enum CallOutcome {
    Done,
    /// Nothing was done, for one of the reasons that allow a retry.
    Refused,
    /// The run began, and its end is unknown.
    Lost,
    /// The change is saved, and the daemon puts it in place later. The session is as before until then.
    Saved,
    /// The daemon was gone before it answered.
    Nothing,
}

/// Error codes of calls that did nothing and may be sent again.
const RETRYABLE: [&str; 3] = ["max_sessions", "queue_full", "engine_unavailable"];

/// The token and the session of a client's calls.
#[derive(Clone)]
pub(in crate::crash) struct Caller {
    /// A token other than that of the tests.
    pub(in crate::crash) token: Option<&'static str>,
    pub(in crate::crash) session: &'static str,
    /// Whether the disk may fail too, and the daemon may stop by a signal.
    patient: bool,
    pub(in crate::crash) runs: Arc<RunCounts>,
}

/// The runs of all callers that share it, to be compared with what the daemon counted.
#[derive(Default, Debug)]
pub(in crate::crash) struct RunCounts {
    /// Those that ended.
    pub(in crate::crash) certain: AtomicU64,
    /// Those that may have begun.
    pub(in crate::crash) unsure: AtomicU64,
}

impl RunCounts {
    fn note(&self, ran: Option<&Ran>) {
        let code = ran.map_or(Some("none"), |ran| ran.document["error"].as_str());
        match code {
            Some("none" | "lost" | "quota_exceeded") => self.unsure.fetch_add(1, Ordering::Relaxed),
            Some(code) if RETRYABLE.contains(&code) => 0,
            Some(_) | None => self.certain.fetch_add(1, Ordering::Relaxed),
        };
    }
}

impl Caller {
    pub(in crate::crash) fn new(token: Option<&'static str>, session: &'static str) -> Caller {
        Caller { token, session, patient: false, runs: Arc::default() }
    }

    /// Expects failures of the disk and stops by a signal as well, and counts runs together with others.
    pub(in crate::crash) fn patient(mut self, runs: &Arc<RunCounts>) -> Caller {
        (self.patient, self.runs) = (true, runs.clone());
        self
    }

    /// Sends a run. `None` if the daemon was gone, or stopped, before it answered.
    pub(in crate::crash) async fn run(&self, call: Call<'_>) -> Option<Ran> {
        let ran = self.answered(self.call(call).try_answer().await);
        self.runs.note(ran.as_ref());
        ran
    }

    /// The result in an answer. `None` if there is no answer, or the daemon refuses since it stops.
    #[track_caller]
    pub(in crate::crash) fn answered(&self, answer: Option<Value>) -> Option<Ran> {
        answer.filter(|answer| !self.patient || answer.get("result").is_some()).map(Ran::of)
    }

    /// Expects a failure for a temporary reason.
    #[track_caller]
    pub(in crate::crash) fn expect_passing(&self, ran: &Ran) {
        let code = ran.document["error"].as_str().unwrap_or_default();
        let of_disk = self.patient && code == "quota_exceeded";
        let passes = RETRYABLE.contains(&code) || code == "lost" || of_disk || self.is_cut(ran);
        assert!(passes, "{}", ran.document);
    }

    /// Whether the daemon ended a run since it stops, and saved what there was by then.
    pub(in crate::crash) fn is_cut(&self, ran: &Ran) -> bool {
        self.patient && ran.document["limit"] == "cancelled"
    }

    #[track_caller]
    pub(super) fn verdict(&self, ran: Option<Ran>) -> CallOutcome {
        let Some(ran) = ran else { return CallOutcome::Nothing };
        if self.is_cut(&ran) {
            return CallOutcome::Lost;
        }
        match ran.document["error"].as_str() {
            Some("lost") => CallOutcome::Lost,
            Some("quota_exceeded") if self.patient => of_full_disk(&ran.document),
            Some(code) if RETRYABLE.contains(&code) => CallOutcome::Refused,
            _ => {
                ran.expect_success();
                CallOutcome::Done
            }
        }
    }

    #[track_caller]
    pub(super) fn refusal(&self, answer: &Answer) -> CallOutcome {
        let document = answer.json();
        let error = document["error"].clone();
        if RETRYABLE.iter().any(|code| error == json!(code)) {
            return CallOutcome::Refused;
        }
        if self.patient && error == json!("quota_exceeded") {
            return of_full_disk(&document);
        }
        assert!(self.patient && answer.status == 503, "{}: {}", answer.status, answer.text());
        CallOutcome::Nothing
    }

    /// The same call with this caller's token.
    pub(in crate::crash) fn call<'d>(&self, call: Call<'d>) -> Call<'d> {
        match self.token {
            Some(token) => call.bearer(token),
            None => call,
        }
    }
}

/// What became of a change that the disk refused: whether it took a part of it is found out later.
fn of_full_disk(document: &Value) -> CallOutcome {
    let is_saved = document["message"].as_str().is_some_and(|why| why.contains("cannot be put in place yet"));
    if is_saved { CallOutcome::Saved } else { CallOutcome::Lost }
}
