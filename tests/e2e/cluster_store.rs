//! Many machines as one: daemons that know each other, each with a store of its own, over one PostgreSQL and
//! one S3 server. Whose a session is, the rows of the ledger say.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::{Daemon, PATIENCE, Setup, SharedServers, program, within};

/// The sessions of a node that dies answer elsewhere within this time.
const TAKEOVER: Duration = Duration::from_secs(10);
/// A call that waits for the end of a lease takes longer.
const LEASE: Duration = Duration::from_secs(5);
/// How many sessions there are: enough for each of three nodes to have some.
const SESSIONS: usize = 9;

/// What the nodes of one test have in common.
pub(crate) struct Common {
    url: String,
    objects: String,
    addresses: [String; 3],
}

impl Common {
    pub(crate) fn new() -> Common {
        let (url, objects) = SharedServers::of_process().fresh();
        let [.., one, two, three] = uuid::Uuid::new_v4().into_bytes();
        let address = |node: u8| format!("127.{}.{}.{}:7946", one | 1, two, (three & 0xfc) | node);
        Common { url, objects, addresses: [1, 2, 3].map(address) }
    }

    pub(crate) fn node(&self, name: &str) -> Setup {
        let at = usize::from(name.as_bytes()[0] - b'a');
        let peers: Vec<_> = self.addresses.iter().map(String::as_str).collect();
        let setup = Daemon::with()
            .set("store.url", self.url.as_str())
            .set("store.objects", self.objects.as_str())
            .set("cluster.peers", peers)
            .set("cluster.key", "0123456789abcdef0123456789abcdef")
            .set("cluster.name", name)
            .set("cluster.addr", self.addresses[at].as_str());
        let aws = SharedServers::of_process().aws();
        aws.iter().fold(setup, |setup, (name, value)| setup.env(name, value))
    }

    /// Three nodes, each of which knows the other two.
    async fn three(&self) -> [Daemon; 3] {
        let (a, b, c) = tokio::join!(self.node("a").start(), self.node("b").start(), self.node("c").start());
        for node in [&a, &b, &c] {
            within(PATIENCE, "each node to know two others", async {
                while status(node.store.path()).is_none_or(|said| said.matches(" up ").count() != 3) {
                    tokio::time::sleep(Duration::from_millis(100)).await; // as an operator who looks again
                }
            })
            .await;
        }
        [a, b, c]
    }
}

/// What `paddock cluster status` prints; `None` if it fails.
fn status(store: &Path) -> Option<String> {
    command(store, "status")
}

/// `paddock cluster` for the daemon of a store.
fn command(store: &Path, word: &str) -> Option<String> {
    let ran = Command::new(program())
        .args(["cluster", word])
        .env_clear()
        .env("SANDBOX_ROOT", store)
        .stdin(Stdio::null())
        .output()
        .expect("the command");
    ran.status.success().then(|| String::from_utf8_lossy(&ran.stdout).into_owned())
}

/// Makes the sessions, each through another node than the last.
async fn fill(nodes: &[Daemon; 3]) {
    for n in 0..SESSIONS {
        let session = nodes[n % 3].session(&format!("s{n}"));
        session.upload("f", format!("file {n}\n").as_bytes()).await.expect_success();
        session.sh("mkdir -p d && cp f d/g").await.expect_success();
    }
}

/// Every session has its files, by way of this node, before `by`.
async fn all_answer(node: &Daemon, since: Instant, by: Duration) {
    for n in 0..SESSIONS {
        loop {
            let answer = node.session(&format!("s{n}")).sh("cat f d/g").try_answer().await;
            let answer = answer.expect("the node answers");
            let ran = &answer["result"]["structuredContent"];
            if ran["success"] == true {
                assert_eq!(ran["stdout"], format!("file {n}\nfile {n}\n"));
                break;
            }
            assert!(since.elapsed() < by, "session {n} after {:?}: {answer}", since.elapsed());
            tokio::time::sleep(Duration::from_millis(100)).await; // as a caller that calls again
        }
    }
}

#[tokio::test]
async fn sessions_of_a_killed_node_answer_elsewhere_with_every_file() {
    let common = Common::new();
    let [a, b, c] = {
        let nodes = common.three().await;
        fill(&nodes).await;
        nodes
    };
    let before = Instant::now();
    all_answer(&b, before, PATIENCE).await;
    let store = a.crash().await;
    let killed = Instant::now();
    all_answer(&b, killed, TAKEOVER).await;
    eprintln!("all sessions answered {:.1?} after the kill", killed.elapsed());
    all_answer(&c, killed, TAKEOVER * 2).await;
    drop(store);
    b.stop().await;
    c.stop().await;
}

#[tokio::test]
async fn a_node_that_drains_hands_its_sessions_over_and_none_of_them_waits() {
    let common = Common::new();
    let nodes = common.three().await;
    fill(&nodes).await;
    let [a, b, c] = nodes;
    assert!(command(a.store.path(), "drain").is_some_and(|said| said.contains("draining")));
    a.log.line("every session was handed over").await;
    let own = status(a.store.path()).expect("the status");
    assert!(own.lines().any(|line| line.starts_with("a ") && line.contains("draining")), "{own}");
    // While it still runs, and after it has gone: nobody waits for the end of a lease.
    all_answer(&b, Instant::now(), LEASE).await;
    a.stop().await;
    let stopped = Instant::now();
    all_answer(&b, stopped, LEASE).await;
    b.stop().await;
    c.stop().await;
}

#[tokio::test]
async fn a_daemon_whose_name_a_later_start_has_taken_ends_and_says_why() {
    let common = Common::new();
    let a = common.node("a").start().await;
    a.session("s").sh("true").await.expect_success();
    let taken = "update paddock_nodes set start = nextval('paddock_starts') where name = 'a'";
    SharedServers::of_process().in_database(&common.url, taken).expect("the row of the node");
    let (code, log) = a.end().await;
    assert_eq!(code, Some(1));
    assert!(log.text().contains("another daemon has joined as node \"a\""), "{}", log.text());
}
