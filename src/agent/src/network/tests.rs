//! Programs that connect, under their filter, with a daemon of the test's at the other end of the link.
//!
//! Each test plays PID 1 in a child of its own, which has one thread, and forks the program from there.

use std::cell::RefCell;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream as StdStream, UdpSocket};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU16, Ordering::Relaxed};
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use paddock_proto::message::{self, Ask, ConnectFailure, Host, Input, Reply, RunLimits};
use paddock_proto::mux::Role;
use paddock_proto::{Channel, Inbound, Kind, Mux, StreamId};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with, socketpair};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::task::{LocalSet, spawn_local};

use super::*;
use crate::carrier::Carrier;
use crate::intercept::{Answerers, Confinement, Stops};
use crate::sys::{self, Fork};

/// Far longer than anything here takes, on an emulated processor too.
const LONG: Duration = Duration::from_secs(120);

const OUTSIDE: Ipv4Addr = Ipv4Addr::new(93, 184, 216, 34);

/// What the daemon does with a connection, by [`behaviour`].
pub(super) const ECHO: u16 = 1;
pub(super) const BLOCKED: u16 = 2;
pub(super) const LATE_REFUSAL: u16 = 3;
const CUT: u16 = 4;
const SILENT: u16 = 5;
const SINK: u16 = 6;

/// Where the resolver is, by datagram and by connection; set before the program is forked.
static PORTS: [AtomicU16; 2] = [AtomicU16::new(0), AtomicU16::new(0)];

/// What the daemon does at a port.
pub(super) fn behaviour(port: u16) -> u16 {
    port % 8
}

pub(super) fn spec(network: bool) -> RunSpec {
    RunSpec {
        id: "r1".to_owned(),
        argv: vec![],
        env: vec![],
        cwd: "/".to_owned(),
        wall_ms: 0,
        output_cap: 0,
        input: Input::Nothing,
        limits: RunLimits::default(),
        warm: false,
        files: None,
        execute: None,
        network,
    }
}

/// A daemon that answers by [`ECHO`] and the like; what it was asked.
pub(super) async fn daemon(socket: OwnedFd, asks: Rc<RefCell<Vec<Ask>>>) {
    let socket = std::os::unix::net::UnixStream::from(socket);
    socket.set_nonblocking(true).expect("it may");
    let mut socket = UnixStream::from_std(socket).expect("a socket");
    let mut mux = Mux::new(Role::Daemon);
    let (mut input, mut out) = (BytesMut::new(), BytesMut::new());
    let mut open: Vec<(StreamId, u16)> = Vec::new();
    loop {
        let mut news = Vec::new();
        mux.on_bytes(&mut input, |id| news.push(id)).expect("the protocol is kept");
        while let Some(id) = mux.accept() {
            let Some(Inbound::Message(first)) = mux.take(id) else { panic!("no first message") };
            let ask: Ask = message::decode(&first).expect("an ask");
            let port = match &ask {
                Ask::Name { name, .. } => u16::from(name != "allowed.example") * BLOCKED,
                Ask::Connect { port, .. } => behaviour(*port),
            };
            asks.borrow_mut().push(ask);
            let replies: &[Reply] = match port {
                0 => &[Reply::Allowed],
                BLOCKED => &[Reply::Refused(ConnectFailure::Blocked)],
                LATE_REFUSAL => &[Reply::Allowed, Reply::Refused(ConnectFailure::Refused)],
                SILENT => &[],
                _ => &[Reply::Allowed, Reply::Connected],
            };
            for reply in replies {
                mux.send(id, Kind::Message, message::encode(reply));
            }
            open.push((id, port));
        }
        for (id, port) in open.clone() {
            while mux.is_readable(id) {
                match mux.take(id) {
                    Some(Inbound::Data(Channel::Net, _)) if port == CUT => mux.reset(id),
                    Some(Inbound::Data(Channel::Net, _)) if port == SINK => {}
                    Some(Inbound::Data(Channel::Net, bytes)) => {
                        assert!(mux.has_room(id, bytes.len()), "the test sends little");
                        mux.send(id, Kind::Data(Channel::Net), bytes);
                    }
                    Some(Inbound::Eof(Channel::Net)) => mux.send(id, Kind::Eof(Channel::Net), Bytes::new()),
                    Some(Inbound::Close) => {
                        mux.send(id, Kind::Close, Bytes::new());
                        mux.finish(id);
                        open.retain(|(other, _)| *other != id);
                    }
                    Some(Inbound::Reset) | None => {
                        mux.finish(id);
                        open.retain(|(other, _)| *other != id);
                        break;
                    }
                    Some(other) => panic!("{other:?}"),
                }
            }
        }
        while mux.transmit(&mut out, 1 << 20) {
            socket.write_all_buf(&mut out).await.expect("PID 1 reads");
        }
        if socket.read_buf(&mut input).await.unwrap_or(0) == 0 {
            return;
        }
    }
}

/// Runs `program` as a program of a run with or without a network; what the daemon was asked. `program` tells
/// whether all was as it had to be.
fn run(network: bool, program: fn() -> bool) {
    play(network, program, |_| {});
}

fn play(network: bool, program: fn() -> bool, after: fn(&[Ask])) {
    let done = sys::in_a_child(|| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        LocalSet::new().block_on(&runtime, async {
            let pair = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
                .expect("a pair");
            let asks = Rc::new(RefCell::new(Vec::new()));
            spawn_local(daemon(pair.0, asks.clone()));
            let link = Link::new();
            let carrier = Carrier::direct(pair.1).expect("a carrier");
            let carried = link.clone();
            spawn_local(async move { carried.carry(carrier, BytesMut::new()).await });
            let net = Network::new(link);
            net.names.borrow_mut().address_of("allowed.example");
            let run = net.begin(&mut spec(network));
            let (resolver, udp, tcp) = Resolver::elsewhere().await;
            PORTS[0].store(udp, Relaxed);
            PORTS[1].store(tcp, Relaxed);
            resolver.serve(net.clone());
            let stops = Stops { connect: true, ..Stops::default() };
            let (confinement, socket) = Confinement::stopped(stops).expect("it can be made");
            let child = match sys::fork().expect("a child") {
                Fork::Child => {
                    sys::exit(i32::from(!sys::in_a_child(|| confinement.enter().is_ok() && program())))
                }
                Fork::Parent(pid) => pid,
            };
            drop(confinement);
            let connect = Some(net.answers(Owner::Run(run.clone())));
            socket.serve(Answerers { connect, ..Answerers::default() });
            let begun = Instant::now();
            let mut status = 0;
            loop {
                // SAFETY: `status` outlives the call.
                let dead = unsafe { libc::waitpid(child, &raw mut status, libc::WNOHANG) };
                if dead == child {
                    break;
                }
                assert!(begun.elapsed() < LONG, "the program does not end");
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
            net.end(&run).await;
            after(&asks.borrow());
            libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0
        })
    });
    assert!(done);
}

#[test]
fn without_domains_a_run_with_a_network_is_alone() {
    for (network, others, open, fit) in [
        (true, 0, 0, true),
        (false, 0, 0, true),
        (false, 3, 0, true),
        (true, 1, 0, false),
        (false, 1, 1, false),
        (true, 1, 1, false),
    ] {
        assert_eq!(fits(false, network, others, open), fit, "{network} {others} {open}");
        assert!(fits(true, network, others, open));
    }
}

fn errno_of(to: impl Into<SocketAddr>) -> Option<i32> {
    StdStream::connect(to.into()).err().and_then(|error| error.raw_os_error())
}

fn says(stream: &mut StdStream, text: &[u8]) -> bool {
    let mut back = vec![0; text.len()];
    stream.write_all(text).is_ok() && stream.read_exact(&mut back).is_ok() && back == text
}

#[test]
fn a_connection_carries_bytes_both_ways_to_its_end() {
    play(
        true,
        || {
            let mut stream = StdStream::connect((OUTSIDE, ECHO)).expect("it is connected");
            let mut rest = Vec::new();
            says(&mut stream, b"hello")
                && says(&mut stream, &[7; 50_000])
                && stream.shutdown(std::net::Shutdown::Write).is_ok()
                && stream.read_to_end(&mut rest).is_ok_and(|n| n == 0)
        },
        |asks| {
            let host = Host::Address(OUTSIDE.into());
            assert_eq!(asks, [Ask::Connect { run: "r1".to_owned(), host, port: ECHO }]);
        },
    );
}

#[test]
fn an_address_that_stands_for_a_name_is_asked_for_by_it_in_both_families() {
    let program = || {
        let v4 = Ipv4Addr::new(127, 64, 0, 1);
        let mut one = StdStream::connect((v4, ECHO)).expect("it is connected");
        let mut two = StdStream::connect((v4.to_ipv6_mapped(), ECHO)).expect("it is connected");
        says(&mut one, b"one") && says(&mut two, b"two")
    };
    play(true, program, |asks| {
        let ask = |port| Ask::Connect {
            run: "r1".to_owned(),
            host: Host::Name("allowed.example".to_owned()),
            port,
        };
        assert_eq!(asks, [ask(ECHO), ask(ECHO)]);
    });
}

#[test]
fn what_the_daemon_refuses_fails_as_a_kernel_says_it() {
    run(true, || {
        errno_of((OUTSIDE, BLOCKED)) == Some(libc::EACCES)
            && errno_of((OUTSIDE, LATE_REFUSAL)) == Some(libc::ECONNREFUSED)
    });
}

#[test]
fn a_call_that_does_not_wait_is_in_progress_and_then_there_or_reset() {
    run(true, || {
        let begin = |port: u16| {
            let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
            let socket = socket_with(AddressFamily::INET, SocketType::STREAM, flags, None).expect("a socket");
            let to = SocketAddr::from((OUTSIDE, port));
            let begun = rustix::net::connect(&socket, &to);
            let stream = StdStream::from(socket);
            stream.set_nonblocking(false).expect("it may");
            (begun, stream)
        };
        let (begun, mut stream) = begin(ECHO);
        assert_eq!(begun, Err(rustix::io::Errno::INPROGRESS));
        let again = || rustix::net::connect(&stream, &SocketAddr::from((OUTSIDE, ECHO)));
        assert_eq!((again(), again()), (Ok(()), Err(rustix::io::Errno::ISCONN)), "as the kernel has it");
        assert!(says(&mut stream, b"late"));
        let (begun, mut stream) = begin(LATE_REFUSAL);
        assert_eq!(begun, Err(rustix::io::Errno::INPROGRESS));
        let reset = stream.read(&mut [0]).expect_err("it is reset");
        assert_eq!(reset.kind(), std::io::ErrorKind::ConnectionReset);
        begin(BLOCKED).0 == Err(rustix::io::Errno::ACCESS)
    });
}

#[test]
fn what_the_daemon_resets_is_reset() {
    run(true, || {
        let mut stream = StdStream::connect((OUTSIDE, CUT)).expect("it is connected");
        stream.write_all(b"x").expect("room");
        stream.read(&mut [0]).is_err_and(|error| error.kind() == std::io::ErrorKind::ConnectionReset)
    });
}

#[test]
fn loopback_unix_and_datagrams_are_the_kernels_and_the_daemon_hears_nothing() {
    let program = || {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let mut stream = StdStream::connect(listener.local_addr().expect("an address")).expect("it listens");
        stream.write_all(b"x").expect("room");
        let (mut other, _) = listener.accept().expect("the connection");
        other.read_exact(&mut [0]).expect("the byte");
        let (one, two) = std::os::unix::net::UnixStream::pair().expect("a pair");
        drop((one, two));
        assert!(
            std::os::unix::net::UnixStream::connect("/nowhere")
                .is_err_and(|e| e.raw_os_error() == Some(libc::ENOENT))
        );
        // An address that stands for no name.
        assert_eq!(errno_of(([127, 64, 9, 9], 9)), Some(libc::ECONNREFUSED));
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
        socket.connect("127.0.0.1:9").is_ok()
    };
    play(true, program, |asks| assert_eq!(asks, []));
}

#[test]
fn a_run_without_a_network_asks_for_nothing_and_hears_the_kernels_own_error() {
    let program = || {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        StdStream::connect(listener.local_addr().expect("an address")).is_ok()
            && errno_of(([127, 64, 0, 1], 9)) == Some(libc::ECONNREFUSED)
    };
    play(false, program, |asks| assert_eq!(asks, []));
}

#[test]
fn a_caller_that_dies_while_it_waits_leaves_no_stream() {
    let program = || {
        if let Fork::Child = sys::fork().expect("a child") {
            let _ = StdStream::connect((OUTSIDE, SILENT));
            sys::exit(0);
        }
        std::thread::sleep(Duration::from_millis(100));
        crate::tree::kill(&crate::tree::descendants(std::process::id().cast_signed()));
        let mut stream = StdStream::connect((OUTSIDE, ECHO)).expect("it is connected");
        says(&mut stream, b"others go on")
    };
    play(true, program, |asks| assert_eq!(asks.len(), 2));
}

#[test]
fn many_connections_are_open_at_once_and_one_too_many_is_refused() {
    run(true, || {
        let mut open = Vec::new();
        let refused = loop {
            match StdStream::connect((OUTSIDE, ECHO)) {
                Ok(stream) => open.push(stream),
                Err(error) => break error.raw_os_error(),
            }
        };
        assert_eq!((open.len(), refused), (160, Some(libc::EADDRNOTAVAIL)));
        assert!(open.iter_mut().all(|stream| says(stream, b"still")));
        drop(open);
        let begun = Instant::now();
        while StdStream::connect((OUTSIDE, ECHO)).is_err() {
            assert!(begun.elapsed() < LONG / 2, "there is no room again");
            std::thread::sleep(Duration::from_millis(10));
        }
        true
    });
}

#[test]
fn a_connection_ends_when_the_program_closes_it_however_many_there_were() {
    run(true, || (0..500).all(|_| StdStream::connect((OUTSIDE, ECHO)).is_ok()));
}

/// A question for the addresses of a name of two labels.
fn question(labels: [&str; 2]) -> Vec<u8> {
    let mut message = vec![0, 7, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    for label in labels {
        message.push(u8::try_from(label.len()).expect("short"));
        message.extend_from_slice(label.as_bytes());
    }
    message.extend([0, 0, 1, 0, 1]);
    message
}

/// The code of the answer, and its last four bytes.
fn asked(labels: [&str; 2]) -> (u8, [u8; 4]) {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
    socket.set_read_timeout(Some(LONG)).expect("it may");
    socket.send_to(&question(labels), ("127.0.0.1", PORTS[0].load(Relaxed))).expect("it goes");
    let mut answer = [0; 512];
    let length = socket.recv(&mut answer).expect("an answer");
    (answer[3] & 15, *answer[..length].last_chunk().expect("long enough"))
}

#[test]
fn a_name_that_the_run_may_reach_has_an_address_and_no_other_has() {
    let program = || {
        assert_eq!(asked(["allowed", "example"]), (0, [127, 64, 0, 1]));
        assert_eq!(asked(["blocked", "example"]).0, 3);
        assert_eq!(asked(["a b", "example"]).0, 3);
        assert_eq!(asked(["my", "localhost"]), (0, [127, 0, 0, 1]));
        // By connection.
        let mut stream = StdStream::connect(("127.0.0.1", PORTS[1].load(Relaxed))).expect("it listens");
        let message = question(["allowed", "example"]);
        let length = u16::try_from(message.len()).expect("short").to_be_bytes();
        stream.write_all(&[&length[..], &message].concat()).expect("room");
        let mut answer = [0; 2];
        stream.read_exact(&mut answer).expect("a length");
        let mut answer = vec![0; usize::from(u16::from_be_bytes(answer))];
        stream.read_exact(&mut answer).expect("an answer");
        answer.ends_with(&[127, 64, 0, 1])
    };
    play(true, program, |asks| {
        let run = || Some(spec(true).id); // there is no other run
        let ask = |name: &str| Ask::Name { run: run(), name: name.to_owned() };
        let (allowed, blocked) = (ask("allowed.example"), ask("blocked.example"));
        assert_eq!(asks, [allowed.clone(), blocked, allowed]);
    });
}

#[test]
fn without_a_run_that_has_a_network_no_name_is_asked_for() {
    // A failure for the moment, as where no resolver listens.
    play(false, || asked(["allowed", "example"]).0 == 2, |asks| assert_eq!(asks, []));
}

#[test]
#[ignore = "a measurement"]
fn what_it_costs() {
    run(true, || {
        let connect = |to: SocketAddr| {
            let begun = Instant::now();
            for n in 0..1000 {
                drop(StdStream::connect(to).unwrap_or_else(|error| panic!("{n}: {error}")));
            }
            begun.elapsed().as_micros() / 1000
        };
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let local = listener.local_addr().expect("an address");
        std::thread::spawn(move || {
            for one in listener.incoming() {
                drop(one)
            }
        });
        let (near, far) = (connect(local), connect((OUTSIDE, ECHO).into()));
        eprintln!("connect, stopped and let go on: {near} us; to the daemon and back: {far} us");
        let mut stream = StdStream::connect((OUTSIDE, SINK)).expect("it is connected");
        let (begun, piece) = (Instant::now(), vec![1; 1 << 18]);
        for _ in 0..2048 {
            stream.write_all(&piece).expect("it is read");
        }
        let seconds = begun.elapsed().as_secs_f64();
        eprintln!("up: {:.0} MB/s", 2048.0 * piece.len() as f64 / 1e6 / seconds);
        true
    });
}
