//! The daemon is killed again and again under a mixed load, and nothing that it acknowledged is lost.
//!
//! ```text
//!  start ─► compare every session with its clients' models ─► no leftovers on engine ─► load ─► kill -9 ─┐
//!    ▲                                                                                                   │
//!    └───────────────────────────────────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! `CRASH_KILLS` is the number of kills, `CRASH_SEED` determines what the clients do and when the kills come.

#[path = "crash/client.rs"]
mod client;
#[path = "crash/engine.rs"]
mod engine;
#[path = "crash/soak.rs"]
mod soak;
#[path = "crash/tree.rs"]
mod tree;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use tokio::join;

use self::client::{Caller, Client, RETRY_AFTER, Tally, listed};
use self::tree::{look, seen, sha256};
use crate::support::{Chance, Daemon, PATIENCE, Setup, Store, View, within};

/// A daemon that has started, and has answered for every file, has removed everything without a purpose
/// within this time.
const TIDY: Duration = Duration::from_secs(15);

/// The languages that the engine has images for.
const LANGUAGES: usize = 3;

/// The token whose SHA-256 the configuration has under another name.
const OTHER: &str = "test";
const OTHER_SHA256: &str = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";

/// Two owners have a session of the same id; one session has two clients; two sessions are closed and deleted
/// at times.
fn clients(languages: &'static [&'static str], chance: &mut Chance) -> Vec<Client> {
    let all = [
        (None, "same", "one", false),
        (None, "same", "two", false),
        (Some(OTHER), "same", "one", true),
        (None, "alone", "one", true),
        (Some(OTHER), "o/\u{fc} 1", "one", false),
    ];
    let all = all.map(|(token, session, dir, alone)| {
        Client::new(Caller::new(token, session), dir, alone, languages, chance.fork())
    });
    all.into()
}

fn setup(store: &Store) -> Setup {
    let other = toml::toml! { name = "other" };
    let mut other = other;
    other.insert("sha256".into(), OTHER_SHA256.into());
    Daemon::with()
        .set("auth.tokens", vec![toml::Value::from(other)])
        .set("shutdown.drain", "2s")
        .set("limits.output", "1MB") // the listing of all files must not be cut
        .env("SANDBOX_LOG_LEVEL", "debug")
        .store(store)
}

/// When the next kill comes.
#[derive(Debug)]
enum Kill {
    /// This long after the load began.
    After(Duration),
    /// This long after the nth line with this text since then.
    At(&'static str, u64, Duration),
}

/// Log lines at the boundaries of operations that must not be torn.
const LINES: [&str; 13] = [
    " journalled ",
    " journalled ",
    " action=\"Start ",
    " action=\"Destroy ",
    " ended session_id=",
    " armed language=",
    " tool called",
    " request method=PUT",
    " request method=POST",
    " answer method=",
    " session closed",
    " containers released",
    " removed container=",
];

/// Log lines of a start.
const START_LINES: [&str; 5] = [
    "[STORE]",
    "confined as they must be",
    "live on",
    "a session has its container again",
    "removed a leftover",
];

impl Kill {
    fn draw(chance: &mut Chance) -> Kill {
        if chance.once_in(3) {
            return Kill::After(Duration::from_millis(chance.below(2000)));
        }
        let later = Duration::from_micros(if chance.once_in(2) { 0 } else { chance.below(5000) });
        Kill::At(chance.of(&LINES), 1 + chance.below(4), later)
    }

    async fn wait(&self, d: &Daemon) {
        match self {
            Kill::After(time) => tokio::time::sleep(*time).await,
            Kill::At(what, nth, later) => {
                let nth_line = async {
                    let mut mark = d.log.mark();
                    for _ in 0..*nth {
                        mark = d.log.mark_behind(mark, what).await;
                    }
                };
                // Not every line comes in every round.
                let _ = tokio::time::timeout(Duration::from_secs(3), nth_line).await;
                tokio::time::sleep(*later).await;
            }
        }
    }
}

/// Everything is as the clients expect, seen by a program inside, by listings and by links. The calls wait
/// until the restart is complete.
async fn verify(d: &Daemon, clients: &mut [Client], language: &str) {
    let mut sessions = BTreeMap::<_, Vec<&mut Client>>::new();
    for client in clients {
        sessions.entry((client.caller.token, client.caller.session)).or_default().push(client);
    }
    join_all(sessions.into_values().map(|clients| verify_session(d, clients, language))).await;
}

async fn verify_session(d: &Daemon, mut clients: Vec<&mut Client>, language: &str) {
    let caller = clients[0].caller.clone();
    let session = d.session(caller.session);
    let call = |call| caller.call(call);
    if clients.iter().all(|client| client.is_deleted()) {
        call(session.tool("list_artifacts")).await.expect_error("session_not_found");
    }
    let looking = async {
        loop {
            let ran = caller.run(session.run(language, look(language))).await.expect("an answer");
            if ran.document["success"] == true {
                return ran;
            }
            caller.expect_passing(&ran);
            tokio::time::sleep(RETRY_AFTER).await;
        }
    };
    let ran = within(PATIENCE, "the service to return", looking).await;
    let trees = seen(ran.stdout());
    for name in trees.keys() {
        assert!(
            clients.iter().any(|client| client.dir() == name),
            "{name:?} in {:?}: {trees:?}",
            caller.session
        );
    }
    let listing = call(session.tool("list_artifacts").with("limit", 1000)).await;
    for client in &mut clients {
        client.compare(&trees);
        let files: BTreeMap<_, _> = listed(&listing, client.dir()).into_iter().collect();
        let expected: Vec<_> = client.has.files().map(|(path, _)| path).collect();
        assert_eq!(files.keys().collect::<Vec<_>>(), expected, "the listing of {:?}", caller.session);
        for (path, sha) in client.has.files() {
            let body = d.fetch(&files[path]).await.expect(200).body;
            assert_eq!(sha256(&body), *sha, "{path:?} of {:?} by its link", caller.session);
        }
    }
}

/// Soon after a start of the daemon, nothing on the engine is without a purpose: every container is leased,
/// or idle, or was taken over as idle.
async fn expect_tidy(d: &Daemon, view: &View, warm: usize, within: Duration) {
    let begun = Instant::now();
    let leases = d.store.path().join("leases");
    let idle = warm * LANGUAGES + idle_taken_over(&d.log.text());
    while let Some(why) = view.purposeless(&leases, idle).await {
        assert!(begun.elapsed() < within, "after {within:?}: {why}\n{}", d.log.text());
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// How many containers this daemon took over that no session had: those of the daemon before, one of which it
/// may have been replacing.
fn idle_taken_over(log: &str) -> usize {
    let lived_on = log.lines().find_map(|line| line.split_once(" live on containers=")).map(|(_, of)| of);
    let lived_on = lived_on.and_then(|of| of.split(' ').next()?.trim().parse().ok()).unwrap_or(0_usize);
    lived_on.saturating_sub(log.matches("a session has its container again").count())
}

/// After the last daemon has stopped, nothing remains that belongs to no session.
#[track_caller]
fn expect_clean(store: &Store) {
    for folder in ["tmp", "leases"] {
        let left = std::fs::read_dir(store.path().join(folder)).into_iter().flatten().flatten();
        let left: Vec<_> = left.map(|entry| entry.path()).collect();
        assert!(left.is_empty(), "{left:?}");
    }
}

fn number(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).ok().map_or(otherwise, |text| text.parse().expect("a number"))
}

fn tell(clients: &[Client], what: &str) -> Tally {
    let mut tally = Tally::default();
    clients.iter().for_each(|client| tally.add(client.tally));
    eprintln!("{what}: {tally:?}");
    tally
}

#[tokio::test]
async fn no_kill_loses_anything_that_was_acknowledged() {
    let mut chance = Chance::from_env("CRASH_SEED");
    let kills = number("CRASH_KILLS", 20);
    let store = Store::new();
    let mut clients = clients(&["sh", "sh", "python"], &mut chance);
    let begun = Instant::now();
    let mut killed = 0;
    while killed < kills {
        let warm = usize::from(chance.once_in(3));
        let max = if chance.once_in(3) { 3 } else { 10 };
        let setup =
            setup(&store).set("pool.idle", i64::try_from(warm).expect("small")).set("sessions.max", max);
        if killed > 0 && chance.once_in(4) {
            let (at, later) = (chance.of(&START_LINES), Duration::from_millis(chance.below(40)));
            eprintln!("{killed}: at its start, {at:?} and {later:?}");
            setup.clone().crash_at(at, later).await;
            killed += 1;
        }
        let d = setup.start().await;
        let up = Instant::now();
        let language = if chance.once_in(4) { "python" } else { "sh" };
        verify(&d, &mut clients, language).await;
        expect_tidy(&d, &d.view().await, warm, TIDY).await;
        let ready = up.elapsed();
        let kill = Kill::draw(&mut chance);
        let load = join_all(clients.iter_mut().map(|client| client.work(&d, &|| false)));
        let killing = async {
            kill.wait(&d).await;
            d.kill();
        };
        join!(load, killing);
        d.crash().await;
        eprintln!(
            "{killed}: {kill:?}, warm {warm}, max {max}; ready after {ready:?}, killed after {:?}",
            up.elapsed()
        );
        killed += 1;
    }
    let d = setup(&store).start().await;
    for language in ["sh", "python"] {
        verify(&d, &mut clients, language).await;
    }
    expect_tidy(&d, &d.view().await, 0, TIDY).await;
    d.stop().await;
    expect_clean(&store);
    let tally = tell(&clients, &format!("{killed} kills in {:?}", begun.elapsed()));
    assert!(u64::from(tally.acknowledged) > kills && tally.happened + tally.did_not > 0, "{tally:?}");
}
