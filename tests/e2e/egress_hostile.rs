//! Programs that try to leave another way.
//!
//! The servers are in a network namespace of the test ([`crate::far`]), which counts every packet that
//! reaches it: where nothing may leave, the count is zero, and a connection that is allowed then shows that
//! it counts.

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::far::program::{Beside, allowed, constants, entry, python};
use crate::far::{BLOCKED, FAR, Far, PRIVATE};
use crate::support::{PATIENCE, within};

pub(crate) const TRIES: &str = include_str!("far/tries.py");
const NEARBY: &str = include_str!("far/nearby.py");

/// A run that may reach a port of the far side where nobody listens.
pub(crate) const NOBODY: &str = "far.example:9";

#[tokio::test]
async fn nothing_leaves_by_another_way() {
    let far = Far::start(&[]).await;
    let d = far.daemon().start().await;
    let s = d.session("s");
    let code = format!("{}{TRIES}", constants(&far));
    // In a run with a network, and in one without, which has no proxy to ask.
    let bare = format!("import os\nos.environ['http_proxy'] = 'http://run:x@127.0.0.1:9'\n{code}");
    for ran in [s.python(&code).with("network", allowed(&[NOBODY])).await, s.python(&bare).await] {
        let ran = ran.expect_success();
        let lines: Vec<&str> = ran.stdout().lines().collect();
        let through: Vec<_> = lines.iter().filter(|line| line.contains("went through")).collect();
        assert!(through.is_empty(), "{through:?}");
        assert_eq!((lines.last(), lines.len()), (Some(&"done"), TRIED + 1), "{}", ran.stdout());
        assert_eq!(far.packets(), 0, "{}", ran.stdout());
    }
    let reach = format!("import socket; print(socket.socket().connect_ex(('{FAR}', 9)))");
    s.python(&reach).with("network", allowed(&[NOBODY])).await.expect_success();
    assert!(far.packets() > 0, "what is allowed is counted");
    d.stop().await;
}

/// Lines of `tries.py`.
pub(crate) const TRIED: usize = 100;

#[tokio::test]
async fn a_redirect_and_an_odd_spelling_of_a_private_address_lead_nowhere() {
    let far = Far::start(&[]).await;
    let d = far.daemon().start().await;
    let code = format!(
        "{}
import requests, socket, urllib.request as u
for path in ('to-private', 'to-loopback', 'to-metadata'):
    r = requests.get(f'http://far.example/{{path}}', timeout=10)
    print(path, r.status_code, len(r.history))
    try: print(path, u.urlopen(f'http://far.example/{{path}}', timeout=10).status)
    except OSError as e: print(path, e)
for host in ('167838211', '0x0a010203', '012.01.02.03', '10.66051', '::ffff:10.1.2.3', '64:ff9b::10.1.2.3',
             '2002:a01:203::1', 'private.example', NEAR):
    # A name is resolved after the call is answered, if the program does not wait for it: then it is reset.
    waits = None if host == 'private.example' else 10
    try: print(host, 'went through', socket.create_connection((host, 80), waits))
    except OSError as e: print(host, 'failed', e)
    url = f'http://[{{host}}]/' if ':' in host else f'http://{{host}}/'
    try: print(host, 'went through', u.urlopen(url, timeout=10).status)
    except OSError as e: print(host, 'failed', e)
",
        constants(&far)
    );
    let ran = d.session("s").python(&code).with("network", allowed(&["*"])).await.expect_success();
    let output = ran.stdout();
    assert!(!output.contains("went through"), "{output}");
    for path in ["to-private", "to-metadata"] {
        assert!(output.contains(&format!("{path} 403 1\n")), "{output}");
        assert!(output.contains(&format!("{path} HTTP Error 403")), "{output}");
    }
    for (host, why) in [
        ("10.1.2.3", "a private address"),
        ("169.254.169.254", "a link-local address"),
        ("64:ff9b::a01:203", "a private address"),
        (PRIVATE, "a private address"),
        (&far.near.to_string(), "an address of this server itself"),
    ] {
        let blocked = entry(&ran, host);
        let reason = blocked["reason"].as_str().unwrap_or_default();
        assert!(blocked["allowed"] == false && reason.contains(why), "{blocked}");
    }
    assert_eq!(entry(&ran, FAR)["allowed"], true);
    d.stop().await;
}

#[tokio::test]
async fn on_443_only_a_tls_hello_with_the_name_that_was_asked_for_passes() {
    let far = Far::start(&[]).await;
    let d = far.daemon().start().await;
    let code = "import socket, ssl
context = ssl.create_default_context(cafile='/data/ca.pem')
context.check_hostname = False
def hello(name, size=100000):
    s = socket.create_connection(('far.example', 443))
    s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    to, out = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = context.wrap_bio(to, out, server_hostname=name)
    def move():
        bytes = out.read()
        for at in range(0, len(bytes), size): s.sendall(bytes[at:at + size])
    def until(do):
        while True:
            try: return do()
            except ssl.SSLWantReadError: pass
            finally: move()
            to.write(s.recv(65536)) or to.write_eof()
    until(tls.do_handshake)
    tls.write(b'GET /hello HTTP/1.0\\r\\n\\r\\n')
    answer = b''
    while b'hello from far' not in answer: answer += until(lambda: tls.read(10000))
    return True
def tried(what, do, *arguments):
    try: print(what, do(*arguments))
    except OSError as e: print(what, 'failed')
tried('whole', hello, 'far.example')
tried('in pieces', hello, 'far.example', 3)
tried('other name', hello, 'blocked.example')
tried('no name', hello, None)
def plain(bytes):
    s = socket.create_connection(('far.example', 443)); s.sendall(bytes)
    if not (answer := s.recv(100)): raise OSError('ended')
    return answer
tried('http', plain, b'GET /hello HTTP/1.0\\r\\n\\r\\n')
tried('ssh', plain, b'SSH-2.0-x\\r\\n')";
    let s = d.session("s");
    let ran = s.python(code).file("ca.pem", far.authority().as_bytes());
    let ran = ran.with("network", allowed(&[FAR])).await;
    let ran = ran.expect_stdout(
        "whole True\nin pieces True\nother name failed\nno name failed\nhttp failed\nssh failed\n",
    );
    assert_eq!(entry(&ran, FAR)["allowed"], false, "a destination of which anything was blocked");
    d.stop().await;
}

#[tokio::test]
async fn a_sibling_run_gets_nothing_of_the_network_of_another() {
    let far = Far::start(&[]).await;
    let d = far.daemon().start().await;
    let s = d.session("s");
    // It serves its sockets to anybody who asks by a Unix socket, until it is told to end.
    let giver = "import os, socket, sys
held = socket.create_connection(('far.example', 7))
held.sendall(b'a'); assert held.recv(1) == b'a'
s = socket.socket(socket.AF_UNIX); s.bind('/tmp/give'); s.listen()
print('listening', os.getpid())
for _ in range(3):
    peer, _ = s.accept()
    fresh = socket.socket()
    socket.send_fds(peer, [b'x'], [held.fileno(), fresh.fileno()])
    print('given')
s.accept()";
    for (network, own) in [(Value::Null, false), (allowed(&[NOBODY]), true)] {
        let beside = Beside::start(&d, &python(giver), allowed(&["far.example:7"]), "listening").await;
        let before = far.connections();
        let code = format!("{}OWN = {}\n{NEARBY}", constants(&far), if own { "True" } else { "False" });
        // A warm run, and a command.
        let warm = s.python(&code).with("network", network.clone()).await.expect_success();
        let config = if own { json!({ "network": network }) } else { json!({}) };
        let command =
            s.tool("execute_code").with("command", python(&code)).with("sandbox_config", config).await;
        for (ran, text) in [(&warm, warm.stdout()), (&command, command.said.as_str())] {
            assert!(["\ndone\n", "\\ndone\""].iter().any(|end| text.contains(end)), "{}", ran.document);
            assert!(!text.contains("went through"), "{text}");
        }
        assert_eq!(far.connections(), before);
        // A connection that was given on purpose still belongs to the giver, and ends with it.
        let code = "import socket, sys
s = socket.socket(socket.AF_UNIX); s.connect('/tmp/give')
_, fds, _, _ = socket.recv_fds(s, 1, 2)
held = socket.socket(fileno=fds[0])
held.sendall(b'mine'); print(held.recv(4)); print('have')
try: print('end', held.recv(1))
except OSError as e: print('end', type(e).__name__)";
        let taker = Beside::start(&d, &python(code), allowed(&[NOBODY]), "have").await;
        let last = "import socket; socket.socket(socket.AF_UNIX).connect('/tmp/give')";
        s.python(last).await.expect_success();
        let ended = beside.end(&d).await;
        assert_eq!(entry(&ended, FAR)["bytes_out"], 5, "the giver's bytes: {}", ended.document);
        let ended = taker.end(&d).await;
        assert!(ended.command_stdout().contains("end ConnectionResetError"), "{}", ended.document);
        s.python("import os; os.unlink('/tmp/give')").await;
    }
    d.stop().await;
}

/// Looks again and again until it finds something; other threads go on meanwhile.
async fn found<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let looking = async {
        loop {
            if let Some(found) = look() {
                return found;
            }
            tokio::task::yield_now().await;
        }
    };
    within(PATIENCE, what, looking).await
}

/// The process of a container whose command has this word, as this host numbers it.
fn process(container: &str, word: &str) -> Option<Pid> {
    let read = |pid: i32, file: &str| std::fs::read_to_string(format!("/proc/{pid}/{file}")).ok();
    let all = std::fs::read_dir("/proc").expect("/proc").flatten();
    let mut pids = all.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let found = pids.find(|pid| {
        read(*pid, "cgroup").is_some_and(|groups| groups.contains(container))
            && read(*pid, "cmdline").is_some_and(|command| command.contains(word))
    });
    found.and_then(Pid::from_raw)
}

#[tokio::test]
async fn while_pid_1_is_stopped_a_program_waits_and_nothing_leaks() {
    let far = Far::start(&[]).await;
    let d = far.daemon().start().await;
    let code = "import os, socket
print('ready')
while not os.path.exists('/tmp/go'): os.sched_yield()
s = socket.create_connection((ADDRESS, 7))
s.sendall(b'x'); print('reached', s.recv(1))";
    let code = format!("{}{code}", constants(&far));
    let address = far.address.to_string();
    let program = Beside::start(&d, &python(&code), allowed(&[&address]), "ready").await;
    let container = d.view().await.the_container("python").await;
    let first = process(container.as_str(), "agent").expect("PID 1");
    let own = process(container.as_str(), ".py").expect("the program");
    kill_process(first, Signal::STOP).expect("PID 1");
    std::fs::write(format!("/proc/{}/root/tmp/go", own.as_raw_nonzero()), "").expect("a file");
    // In `connect`, which is call 42 here.
    let call = format!("/proc/{}/syscall", own.as_raw_nonzero());
    let connects = || std::fs::read_to_string(&call).ok().filter(|call| call.starts_with("42 "));
    found("the program's call", connects).await;
    assert_eq!(far.packets(), 0);
    kill_process(first, Signal::CONT).expect("PID 1");
    let ended = program.end(&d).await;
    assert!(ended.command_stdout().contains("reached b'x'"), "{}", ended.document);
    d.stop().await;
}

#[tokio::test]
async fn two_runs_side_by_side_are_each_held_to_their_own_policy() {
    let far = Far::start(&[]).await;
    for traces in [true, false] {
        let d = far.daemon();
        let d = if traces { d } else { d.without_tracing() }.start().await;
        let s = d.session("s");
        // Both are at it at the same time: each waits for the other's sign.
        let code = |own: &str, other: &str| {
            format!(
                "import os, pathlib, socket
pathlib.Path('/tmp/{own}').touch()
while not os.path.exists('/tmp/{other}'): os.sched_yield()
for n in range(20):
    for host in ('{own}', '{other}'):
        try:
            with socket.create_connection((host, 7), 10) as s:
                s.sendall(b'x'); print(host, s.recv(1))
        except OSError: print(host, 'blocked')"
            )
        };
        let hosts = [FAR, BLOCKED];
        let run = |own: &'static str, other: &'static str| {
            let config = json!({ "network": { "allowed_domains": [own] } });
            let command = python(&code(own, other));
            s.tool("execute_code").with("command", command).with("sandbox_config", config)
        };
        let (one, two) = tokio::join!(run(hosts[0], hosts[1]), run(hosts[1], hosts[0]));
        for (ran, own, other) in [(&one, hosts[0], hosts[1]), (&two, hosts[1], hosts[0])] {
            let expected = format!("{own} b'x'\n{other} blocked\n").repeat(20);
            assert_eq!(ran.command_stdout(), expected, "{}", ran.document);
            assert_eq!(
                (&entry(ran, own)["allowed"], &entry(ran, other)["allowed"]),
                (&json!(true), &json!(false))
            );
        }
        d.stop().await;
    }
}
