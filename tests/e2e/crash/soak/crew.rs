//! Everybody who works during a soak, what they know together, and how they leave.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use futures_util::future::join_all;
use tokio::join;

use super::super::client::{Caller, Client, RunCounts};
use super::super::{OTHER, RETRY_AFTER};
use super::fault::burst_sessions;
use super::load::{Commands, Counter, Trouble};
use crate::support::{Chance, Daemon, PATIENCE, within};

pub(super) struct Crew {
    pub(super) clients: Vec<Client>,
    counters: Vec<Counter>,
    pub(super) commands: Commands,
    pub(super) trouble: Trouble,
    runs: Arc<RunCounts>,
}

impl Crew {
    /// Clients with files in sessions of two tenants, in the first languages; counters in each of the second
    /// ones; commands; and whoever makes trouble.
    pub(super) fn new([writing, counting]: [&'static [&'static str]; 2], chance: &mut Chance) -> Crew {
        let runs = Arc::<RunCounts>::default();
        let mut clients = super::super::clients(writing, chance);
        for client in &mut clients {
            client.caller = client.caller.clone().patient(&runs);
        }
        let mut caller = |token, session| (Caller::new(token, session).patient(&runs), chance.fork());
        let sessions = ["count-0", "count-1", "count-2", "count-3"];
        let counters = counting.iter().zip(sessions).enumerate().map(|(n, (language, session))| {
            let (caller, chance) = caller((n % 2 == 0).then_some(OTHER), session);
            Counter::new(caller, language, n == 0, chance)
        });
        let counters = counters.collect();
        let commands = caller(None, "commands");
        let trouble = caller(Some(OTHER), "trouble");
        Crew {
            clients,
            counters,
            commands: Commands::new(commands.0, commands.1),
            trouble: Trouble::new(trouble.0, trouble.1),
            runs,
        }
    }

    pub(super) async fn work(&mut self, d: &Daemon, enough: &dyn Fn() -> bool) {
        let clients = join_all(self.clients.iter_mut().map(|client| client.work(d, enough)));
        let counters = join_all(self.counters.iter_mut().map(|counter| counter.work(d, enough)));
        join!(clients, counters, self.commands.work(d, enough), self.trouble.work(d, enough));
    }

    /// Compares what counters and commands know with what there is. A daemon that was told to stop ended the
    /// commands that still ran.
    pub(super) async fn verify(&mut self, d: &Daemon, was_stopped: bool) {
        for counter in &mut self.counters {
            counter.verify(d).await;
        }
        self.commands.verify(d, was_stopped).await;
    }

    /// How many runs have ended, and how many more may have begun.
    pub(super) fn runs(&self) -> (u64, u64) {
        (self.runs.certain.load(Ordering::Relaxed), self.runs.unsure.load(Ordering::Relaxed))
    }

    /// How many appended numbers were acknowledged, each of which was found once.
    pub(super) fn counted(&self) -> u64 {
        self.counters.iter().map(|counter| counter.counted).sum()
    }

    /// What all clients with files know together.
    pub(super) fn acknowledged(&self) -> u32 {
        self.clients.iter().map(|client| client.tally.acknowledged).sum()
    }

    /// Closes all sessions, with their files.
    pub(super) async fn close(&self, d: &Daemon) {
        let counters = self.counters.iter().map(|counter| &counter.caller);
        let all = self.clients.iter().map(|client| &client.caller).chain(counters);
        for caller in all.chain([&self.commands.caller, &self.trouble.caller]) {
            let closing = async {
                loop {
                    let call = d.session(caller.session).tool("close_session").with("delete_files", true);
                    let ran = caller.call(call).await;
                    if !ran.is_error || ran.document["error"] == "session_not_found" {
                        return;
                    }
                    caller.expect_passing(&ran);
                    tokio::time::sleep(RETRY_AFTER).await;
                }
            };
            within(PATIENCE, "a session to be closed", closing).await;
        }
        for name in burst_sessions() {
            super::close(d, &name).await;
        }
    }
}
