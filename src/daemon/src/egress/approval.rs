//! Approval: a destination that a run may not reach is put to the client of its caller, who may allow it.
//!
//! ```text
//!  reach ─ not allowed ─► RunApproval ─ Question ─► the call's way to its client (MCP elicitation)
//!                            │  ▲                        │
//!                            │  └─────── yes, no ◄───────┘
//!                            └─► Approved   of the session: what was allowed in it
//! ```
//!
//! A question is asked only where a yes could change something: never for what a deny list has, for an
//! address that is not public, or beyond `egress.allow` in mode `restricted`. Nothing is resolved before the
//! answer, since a name that is looked up can itself carry data out. No answer in time is a no, and so are a
//! client that cannot be asked and a call that is answered already.
//!
//! It must never allow more than the one destination that was shown, nor ask more often than
//! `egress.prompts` in one run.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tracing::info;

use super::host_name::{Host, HostName};

/// Destinations that one session may have allowed.
const MAX_APPROVED: usize = 256;

/// A destination: what is asked for and allowed, never a pattern.
type Place = (Host, u16);

/// One question to the client of a call: may its program connect there?
#[derive(Debug)]
pub struct Question {
    host: Host,
    port: u16,
    answer: oneshot::Sender<bool>,
}

impl Question {
    /// The destination as a person reads it: `api.example.com:443`, `[2001:db8::1]:80`.
    pub fn destination(&self) -> String {
        match &self.host {
            Host::Address(address) => std::net::SocketAddr::new(*address, self.port).to_string(),
            Host::Name(name) => format!("{}:{}", name.as_str(), self.port),
        }
    }

    /// What a person is asked.
    pub fn message(&self) -> String {
        format!(
            "A program in the sandbox wants to connect to {}, which its call did not allow. Allow it for the \
             rest of this session?",
            self.destination()
        )
    }

    /// Answers it.
    pub fn answer(self, is_allowed: bool) {
        let _ = self.answer.send(is_allowed); // a program that does not wait any more needs no answer
    }

    /// Resolves when nobody waits for the answer any more.
    pub async fn abandoned(&mut self) {
        self.answer.closed().await;
    }
}

/// The way from a run to the client of its call.
#[derive(Debug, Clone)]
pub struct Asker(mpsc::Sender<Question>);

/// The other end of it. When it is dropped, everything that is asked is answered with no.
#[derive(Debug)]
pub struct Questions(mpsc::Receiver<Question>);

/// Both ends.
pub fn questions() -> (Asker, Questions) {
    let (sender, receiver) = mpsc::channel(1);
    (Asker(sender), Questions(receiver))
}

impl Questions {
    /// The next question; `None` when no run is left that could ask.
    pub async fn next(&mut self) -> Option<Question> {
        self.0.recv().await
    }
}

/// What was allowed in one session, for all its runs, as long as the daemon has the session in memory.
#[derive(Debug, Default)]
pub struct Approved(Mutex<Vec<Place>>);

impl Approved {
    fn add(&self, place: Place) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() < MAX_APPROVED && !all.contains(&place) {
            all.push(place);
        }
    }

    fn has(&self, place: &Place) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).contains(place)
    }

    fn has_name(&self, name: &HostName) -> bool {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.iter().any(|(host, _)| matches!(host, Host::Name(own) if own == name))
    }
}

/// How much one run may ask.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AskBounds {
    /// Questions of one run.
    pub questions: usize,
    /// How long one waits for its answer.
    pub within: Duration,
}

/// What came of a question, or why none was asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Decision {
    /// The destination is allowed in this session.
    Yes,
    /// It was put to the client, and is not allowed.
    No,
    /// This run has asked as often as it may.
    AskedEnough,
    /// There is nobody to ask.
    Nobody,
}

/// The questions of one run.
pub(super) struct RunApproval {
    asker: Option<Asker>,
    approved: Arc<Approved>,
    bounds: AskBounds,
    /// One question at a time: a person reads them.
    asked: tokio::sync::Mutex<Asked>,
}

#[derive(Default)]
struct Asked {
    questions: usize,
    refused: HashSet<Place>,
}

impl RunApproval {
    pub(super) fn new(asker: Option<Asker>, approved: Arc<Approved>, bounds: AskBounds) -> Self {
        Self { asker, approved, bounds, asked: tokio::sync::Mutex::default() }
    }

    /// Whether a name has to be looked up, although no list allows it: it was allowed in the session, or may
    /// yet be.
    pub(super) fn may_need(&self, name: &HostName) -> bool {
        let can_ask = self.asker.as_ref().is_some_and(|asker| !asker.0.is_closed());
        can_ask || self.approved.has_name(name)
    }

    /// Puts a destination to the client, unless the session has its answer. The caller has checked that a yes
    /// may count for it.
    pub(super) async fn decide(&self, run: &str, host: &Host, port: u16) -> Decision {
        let place = (host.clone(), port);
        if self.approved.has(&place) {
            return Decision::Yes;
        }
        let Some(asker) = &self.asker else { return Decision::Nobody };
        let mut asked = self.asked.lock().await;
        if self.approved.has(&place) {
            return Decision::Yes;
        }
        if asked.refused.contains(&place) {
            return Decision::No;
        }
        if asked.questions >= self.bounds.questions {
            return Decision::AskedEnough;
        }
        let (answer, answered) = oneshot::channel();
        let question = Question { host: host.clone(), port, answer };
        let destination = question.destination();
        let waiting = async {
            // Its other end reads one after the other.
            asker.0.send(question).await.ok()?;
            Some(answered.await.unwrap_or(false))
        };
        // It counts also if the program goes away while it waits.
        asked.questions += 1;
        let answer = tokio::time::timeout(self.bounds.within, waiting).await.unwrap_or(Some(false));
        let Some(is_allowed) = answer else {
            asked.questions -= 1;
            return Decision::Nobody;
        };
        info!(run_id = run, destination, is_allowed, "the caller was asked for a connection");
        if is_allowed {
            self.approved.add(place);
            return Decision::Yes;
        }
        asked.refused.insert(place);
        Decision::No
    }
}

#[cfg(test)]
#[path = "approval_tests.rs"]
mod tests;
