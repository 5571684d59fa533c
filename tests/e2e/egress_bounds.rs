//! Connections that end with something else, and programs and servers that hold on to what they have: each is
//! bounded, and holds up nobody else.

use std::time::Duration;

use crate::far::program::{Beside, allowed, python};
use crate::far::{FAR, Far};

#[tokio::test]
async fn connections_end_with_a_killed_daemon_and_the_next_ones_work() {
    let far = Far::start(&[]).await;
    let code = "import socket
held = [socket.create_connection(('far.example', port)) for port in (7, 80, 8003)]
print('connected')
for s in held:
    try: print('ended', s.recv(1))
    except OSError as e: print('ended', type(e).__name__)
s = socket.create_connection(('far.example', 7))
s.sendall(b'again'); print(s.recv(5).decode())";
    for traces in [true, false] {
        let setup = || if traces { far.daemon() } else { far.daemon().without_tracing() };
        let d = setup().start().await;
        let program = Beside::start(&d, &python(code), allowed(&[FAR]), "connected").await;
        let store = d.crash().await;
        let d = setup().store(&store).start().await;
        let ended = program.end(&d).await;
        let text = ended.command_stdout();
        assert!(text.contains("again") && text.matches("ended").count() == 3, "{text}");
        d.stop().await;
    }
}

#[tokio::test]
async fn ten_thousand_connections_are_bounded_and_the_next_run_has_its_own() {
    let far = Far::start(&[]).await;
    let d = far.daemon().start().await;
    let code = "import collections, errno, socket
to = (socket.gethostbyname('far.example'), 7)
held, outcomes = [], collections.Counter()
for n in range(10000):
    s = socket.socket()
    outcome = errno.errorcode.get(s.connect_ex(to), 'ok')
    outcomes[outcome] += 1
    if outcome == 'ok': held.append(s)
print(dict(outcomes))
held[0].sendall(b'x'); print(held[0].recv(1))
held[1].close()
while (s := socket.socket()).connect_ex(to): pass
print('another')";
    let s = d.session("s");
    for run in 1..=2 {
        let ran = s.python(code).with("network", allowed(&[FAR])).await;
        let ran = ran.expect_stdout("{'ok': 64, 'EADDRNOTAVAIL': 9936}\nb'x'\nanother\n");
        assert_eq!(far.connections(), 65 * run, "{}", ran.document);
    }
    d.stop().await;
}

#[tokio::test]
async fn one_that_never_reads_holds_up_nothing_else_and_is_bounded() {
    let far = Far::start(&[]).await;
    let d = far.daemon().start().await;
    let code = "import socket
def fetched():
    with socket.create_connection(('far.example', 7), 20) as s:
        s.sendall(b'x' * 1000); return len(s.recv(1000, socket.MSG_WAITALL))
# The program never reads what these send, and the far side never reads what those are sent.
unread = [socket.create_connection(('far.example', 8004)) for _ in range(20)]
print(fetched())
sent = 0
for _ in range(4):
    s = socket.create_connection(('far.example', 8003)); unread.append(s)
    s.settimeout(0.3)
    try:
        while True: sent += s.send(bytes(1 << 16))
    except TimeoutError: pass
print(sent < 100 << 20, fetched())
half = socket.create_connection(('far.example', 8005))
print(b''.join(iter(lambda: half.recv(100), b'')))
half.sendall(b'later'); half.shutdown(socket.SHUT_WR)
import urllib.request as u
while b'later' not in u.urlopen('http://far.example/halves').read(): pass
reset = socket.create_connection(('far.example', 8002)); reset.sendall(b'xy')
try: print(reset.recv(1))
except OSError as e: print(type(e).__name__)";
    let ran = d.session("s").python(code).with("network", allowed(&[FAR])).await;
    let ran = ran.expect_stdout("1000\nTrue 1000\nb'first'\nConnectionResetError\n");
    let ports = ran.document["network"].as_array().expect("`network`");
    let flooded = ports.iter().find(|entry| entry["port"] == 8004).expect("an entry");
    assert!(flooded["bytes_in"].as_u64() < Some(200 << 20), "what nobody reads is not fetched: {flooded}");
    d.stop().await;
}

#[tokio::test]
async fn a_silent_connection_and_a_peer_that_vanished_end_by_the_idle_timeout() {
    let far = Far::start(&[]).await;
    let d = far.daemon().set("egress.idle_timeout", "3s").start().await;
    // Nobody writes: neither this program nor the server.
    let code = "import socket, sys
s = socket.create_connection(('far.example', PORT))
s.sendall(b'x'); print(s.recv(1) if PORT == 7 else '')
print('waits')
try: print('ended', s.recv(1))
except OSError as e: print('ended', type(e).__name__)";
    let silent = code.replace("PORT", "8003");
    let s = d.session("s");
    let begun = std::time::Instant::now();
    let ran = s.python(&silent).with("network", allowed(&[FAR])).await.expect_success();
    assert!(ran.stdout().contains("ended"), "{}", ran.document);
    assert!(begun.elapsed() > Duration::from_millis(2900), "{}", ran.document);
    let cut = python(&code.replace("PORT", "7"));
    let program = Beside::start(&d, &cut, allowed(&[FAR]), "waits").await;
    far.vanish();
    let ended = program.end(&d).await;
    assert!(ended.document.to_string().contains("ended"), "{}", ended.document);
    d.stop().await;
}
