//! The relay between a client and daemons that the test plays, on a store's socket.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, DuplexStream, Lines};
use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinHandle;

use super::*;
use crate::config::Overrides;

/// Complete, so that the relay sends it as it is.
const INITIALIZE: &str = concat!(
    r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-03-26","#,
    r#""capabilities":{},"clientInfo":{"name":"test","version":"1"}}}"#
);
const CALL: &str = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#;
const NEXT: &str = r#"{"jsonrpc":"2.0","id":2,"method":"tools/list"}"#;

/// A client whose relay runs.
struct Client {
    input: mpsc::Sender<Vec<u8>>,
    output: Lines<BufReader<DuplexStream>>,
    running: JoinHandle<Result<(), AppError>>,
}

impl Client {
    fn say(&self, message: &str) {
        self.input.try_send(format!("{message}\n").into_bytes()).unwrap();
    }

    async fn hear(&mut self) -> Value {
        serde_json::from_str(&self.output.next_line().await.unwrap().unwrap()).unwrap()
    }

    async fn leave(mut self) {
        drop(self.input);
        assert_eq!(self.output.next_line().await.unwrap(), None);
        self.running.await.unwrap().unwrap();
    }
}

/// A daemon's end of a connection. It reads no byte further than the test says.
struct Peer(UnixStream);

impl Peer {
    async fn read(&mut self) -> String {
        let mut line = Vec::new();
        loop {
            match self.0.read_u8().await.unwrap() {
                b'\n' => return String::from_utf8(line).unwrap(),
                byte => line.push(byte),
            }
        }
    }

    /// Waits until a message has arrived, and leaves it unread.
    async fn has_unread(&self) {
        while rustix::io::ioctl_fionread(&self.0).unwrap() == 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    async fn answer(&mut self, id: i64) {
        let answer = json!({ "jsonrpc": "2.0", "id": id, "result": { "id": id } });
        self.0.write_all(format!("{answer}\n").as_bytes()).await.unwrap();
    }
}

/// The daemons of one store.
struct Daemons {
    store: TempDir,
    listener: UnixListener,
}

impl Daemons {
    fn new() -> Self {
        let store = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(store.path().join("daemon.sock")).unwrap();
        Self { store, listener }
    }

    /// The next daemon.
    async fn next(&self) -> Peer {
        let mut peer = Peer(self.listener.accept().await.unwrap().0);
        assert_eq!(peer.read().await.len(), CLIENT);
        peer
    }

    /// A client that has initialized with the first daemon.
    async fn client(&self) -> (Client, Peer) {
        let root = self.store.path().to_str().unwrap().to_owned();
        let env = BTreeMap::from([("SANDBOX_ROOT".to_owned(), root)]);
        let config = Config::load(None, &env, &Overrides::default()).unwrap().config;
        let (input, messages) = mpsc::channel(AHEAD);
        let (out, output) = tokio::io::duplex(1 << 20);
        let mut relay = StdioRelay {
            name: "0".repeat(CLIENT),
            local: LocalDaemon::new(config, Metrics::default()),
            max: 1 << 20,
            begun: VecDeque::new(),
            pending: PendingRequests::default(),
            unsent: VecDeque::new(),
            ended: 0,
            input: messages,
            out,
        };
        let ends = StopSignals { begun: CancellationToken::new(), at_once: CancellationToken::new() };
        let running = tokio::spawn(async move { relay.run(&ends).await });
        let mut client = Client { input, output: BufReader::new(output).lines(), running };
        client.say(INITIALIZE);
        let mut peer = self.next().await;
        assert_eq!(peer.read().await, INITIALIZE);
        peer.answer(0).await;
        assert_eq!(client.hear().await["result"]["id"], 0);
        (client, peer)
    }

    /// The next daemon receives the first messages again, then this call, and answers it.
    async fn expect(&self, call: &str, id: i64, client: &mut Client) -> Peer {
        let mut peer = self.next().await;
        assert_eq!((peer.read().await, peer.read().await), (INITIALIZE.to_owned(), call.to_owned()));
        peer.answer(0).await;
        peer.answer(id).await;
        let answer = client.hear().await;
        assert_eq!((&answer["id"], &answer["result"]["id"]), (&json!(id), &json!(id)), "{answer}");
        peer
    }
}

#[tokio::test]
async fn a_call_that_arrives_as_the_daemon_dies_goes_to_the_next_one() {
    // Which of the two the relay notices first is left to chance.
    for _ in 0..20 {
        let daemons = Daemons::new();
        let (mut client, first) = daemons.client().await;
        drop(first);
        client.say(CALL);
        let _second = daemons.expect(CALL, 1, &mut client).await;
        client.leave().await;
    }
}

#[tokio::test]
async fn a_call_that_the_dead_daemon_had_not_read_goes_to_the_next_one() {
    let daemons = Daemons::new();
    let (mut client, first) = daemons.client().await;
    client.say(CALL);
    first.has_unread().await;
    drop(first);
    let _second = daemons.expect(CALL, 1, &mut client).await;
    client.leave().await;
}

#[tokio::test]
async fn a_call_that_the_dead_daemon_may_have_begun_is_answered_and_not_sent_again() {
    let daemons = Daemons::new();
    let (mut client, mut first) = daemons.client().await;
    client.say(CALL);
    assert_eq!(first.read().await, CALL);
    // Of two calls, only the last that was not read has certainly not begun.
    client.say(NEXT);
    first.has_unread().await;
    drop(first);
    let answer = client.hear().await;
    assert_eq!((&answer["id"], &answer["error"]["code"]), (&json!(1), &json!(-32603)), "{answer}");
    assert!(answer["error"]["message"].as_str().unwrap().contains("is unknown"), "{answer}");
    let _second = daemons.expect(NEXT, 2, &mut client).await;
    client.leave().await;
}

#[tokio::test]
async fn a_call_that_no_daemon_takes_is_refused() {
    let daemons = Daemons::new();
    let (mut client, first) = daemons.client().await;
    client.say(CALL);
    first.has_unread().await;
    drop(first);
    for _ in 1..MOST_ENDED {
        drop(daemons.next().await);
    }
    let answer = client.hear().await;
    assert_eq!((&answer["id"], &answer["error"]["code"]), (&json!(1), &json!(-32603)), "{answer}");
    assert!(answer["error"]["message"].as_str().unwrap().contains("did not begin"), "{answer}");
    client.say(NEXT);
    let _another = daemons.expect(NEXT, 2, &mut client).await;
    client.leave().await;
}
