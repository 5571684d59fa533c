//! Programs that ask for connections, over a real link and to real servers on loopback.

use paddock_proto::limits::{MAX_HELD_ASKS, RESERVED_ASKS};
use paddock_proto::message::{Ask, ConnectFailure, Reply};
use paddock_proto::{Channel, Inbound};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::super::ledger::Destination;
use super::super::settings::EgressBounds;
use super::super::test_world::*;
use crate::egress::RunNetwork;

const BLOCKED: Reply = Reply::Refused(ConnectFailure::Blocked);
const RUN: &str = "run_1";

fn reasons(network: &RunNetwork) -> Vec<(String, u16, bool, Option<String>)> {
    let told = |d: Destination| (d.host, d.port, d.allowed, d.reason);
    network.ledger().into_iter().map(told).collect()
}

#[tokio::test]
async fn an_allowed_destination_is_reached_and_its_bytes_are_counted() {
    let world = World::new().await;
    let (listener, port) = listener().await;
    let network = world.gateway.admit(RUN, policy(&["127.0.0.1"]));
    let (program, mut other) = world.connected(&listener, RUN).await;
    program.send(b"ping").await;
    let mut heard = [0; 4];
    soon(other.read_exact(&mut heard)).await.unwrap();
    assert_eq!(&heard, b"ping");
    other.write_all(b"pong!").await.unwrap();
    drop(other);
    assert_eq!(program.read_to_eof().await, b"pong!");
    program.eof().await;
    assert_eq!(program.next().await, Inbound::Close);
    let expected = Destination {
        host: "127.0.0.1".to_owned(),
        port,
        allowed: true,
        reason: None,
        bytes_in: 5,
        bytes_out: 4,
    };
    assert_eq!((network.ledger(), network.bytes()), (vec![expected], (5, 4)));
    for (metric, value) in [
        ("paddock_egress_connections_total{outcome=\"connected\"}", 1.0),
        ("paddock_egress_bytes_total{direction=\"in\"}", 5.0),
        ("paddock_egress_bytes_total{direction=\"out\"}", 4.0),
        ("paddock_egress_connect_seconds_count", 1.0),
    ] {
        assert_eq!(world.metric(metric), value, "{metric}");
    }
}

#[tokio::test]
async fn what_is_not_allowed_is_refused_at_once_and_told_once() {
    let world = World::new().await;
    let network = world.gateway.admit(RUN, policy(&["pypi.example"]));
    let mut told = network.blocked();
    for _ in 0..3 {
        world.agent.ask(&to_name(RUN, "API.github.example.", 443)).expect_last(BLOCKED).await;
        world.agent.ask(&to_loopback(RUN, 22)).expect_last(BLOCKED).await;
    }
    let not_allowed = Some("not in allowed_domains".to_owned());
    let expected = [
        ("api.github.example".to_owned(), 443, false, not_allowed.clone()),
        ("127.0.0.1".to_owned(), 22, false, not_allowed),
    ];
    assert_eq!(reasons(&network), expected);
    assert_eq!(told.recv().await.unwrap().host, "api.github.example");
    assert_eq!(told.recv().await.unwrap().host, "127.0.0.1");
    assert!(told.try_recv().is_err());
    assert_eq!(world.metric("paddock_egress_connections_total{outcome=\"blocked\"}"), 6.0);
    assert_eq!(world.metric("paddock_egress_blocked_total{reason=\"not_allowed\"}"), 6.0);
}

#[tokio::test]
async fn a_run_that_was_not_admitted_reaches_nothing() {
    let world = World::new().await;
    let (_listener, port) = listener().await;
    world.agent.ask(&to_loopback("run_2", port)).expect_last(BLOCKED).await;
    let name = |run: Option<&str>| Ask::Name { run: run.map(str::to_owned), name: "a.example".to_owned() };
    world.agent.ask(&name(None)).expect_last(BLOCKED).await;
    // Beside one that may.
    let network = world.gateway.admit(RUN, policy(&["127.0.0.1", "a.example"]));
    world.agent.ask(&to_loopback("run_2", port)).expect_last(BLOCKED).await;
    world.agent.ask(&name(Some("run_2"))).expect_last(BLOCKED).await;
    world.agent.ask(&name(Some(RUN))).expect_last(Reply::Allowed).await;
    world.agent.ask(&name(None)).expect_last(Reply::Allowed).await;
    drop(network);
    world.agent.ask(&name(None)).expect_last(BLOCKED).await;
    world.agent.ask(&to_loopback(RUN, port)).expect_last(BLOCKED).await;
    assert_eq!(world.metric("paddock_egress_blocked_total{reason=\"unknown_run\"}"), 6.0);
}

#[tokio::test]
async fn names_are_judged_without_a_name_server() {
    let world = World::new().await;
    let network = world.gateway.admit(RUN, policy(&["*.example.com", "db.example:5432"]));
    let long = "x".repeat(300);
    for (name, reply) in [
        ("a.example.com", Reply::Allowed),
        ("DB.example", Reply::Allowed),
        ("example.com", BLOCKED),
        ("data.of.the.run.evil.example", BLOCKED),
        ("a.example.com\0.evil.example", BLOCKED),
        ("a b", BLOCKED),
        (&long, BLOCKED),
        ("", BLOCKED),
    ] {
        let ask = Ask::Name { run: Some(RUN.to_owned()), name: name.to_owned() };
        world.agent.ask(&ask).expect_last(reply).await;
    }
    let told = reasons(&network);
    assert_eq!(told[0].0, "example.com");
    assert_eq!(
        told[2],
        ("a.example.com\\u{0}.evil.example".to_owned(), 0, false, Some("has a NUL".to_owned()))
    );
    assert!(
        told.iter().all(|(host, port, allowed, _)| host.len() <= 256 && *port == 0 && !allowed),
        "{told:?}"
    );
    assert_eq!(told.len(), 6);
}

#[tokio::test]
async fn of_the_addresses_of_a_name_only_those_that_may_be_are_dialled() {
    let (listener, port) = listener().await;
    let address = |text: &str| text.parse().unwrap();
    let names = Names(
        [
            ("two.example", vec![address("10.0.0.1"), address("127.0.0.1"), address("::1")]),
            ("private.example", vec![address("169.254.169.254"), address("10.0.0.1")]),
            ("nothing.example", vec![]),
        ]
        .into(),
    );
    let world = World::with(BOUNDS, names).await;
    let network = world.gateway.admit(RUN, policy(&["*.example"]));
    let program = world.agent.ask(&to_name(RUN, "two.example", port));
    program.expect_connected().await;
    let (_other, from) = soon(listener.accept()).await.unwrap();
    assert_eq!(from.ip(), address("127.0.0.1"));
    for (name, failure) in
        [("private.example", ConnectFailure::Blocked), ("nothing.example", ConnectFailure::NoAddress)]
    {
        let program = world.agent.ask(&to_name(RUN, name, port));
        program.expect_refused(failure).await;
    }
    let told = network.ledger();
    assert_eq!(told.iter().map(|d| d.allowed).collect::<Vec<_>>(), [true, false, true]);
    assert_eq!(told[2].reason.as_deref(), Some("the name has no address"));
    assert_eq!(world.metric("paddock_egress_blocked_total{reason=\"not_global\"}"), 1.0);
    assert_eq!(world.metric("paddock_egress_connections_total{outcome=\"failed\"}"), 1.0);
}

#[tokio::test]
async fn an_address_that_is_not_public_is_refused_at_once() {
    let world = World::new().await;
    let network = world.gateway.admit(RUN, policy(&["*"]));
    for text in ["10.1.2.3", "::ffff:10.1.2.3", "64:ff9b::a01:203", "2002:a01:203::1"] {
        let host = paddock_proto::message::Host::Address(text.parse().unwrap());
        let program = world.agent.ask(&Ask::Connect { run: RUN.to_owned(), host, port: 80 });
        assert_eq!(program.reply().await, BLOCKED, "a program that does not wait would go on: {text}");
    }
    assert!(network.ledger().iter().all(|d| !d.allowed), "{:?}", network.ledger());
}

/// As a server that refuses an upload: it answers, and closes without having read everything.
#[tokio::test]
async fn what_the_other_side_said_before_it_broke_off_arrives() {
    let world = World::new().await;
    let (listener, _) = listener().await;
    let _network = world.gateway.admit(RUN, policy(&["127.0.0.1"]));
    for _ in 0..20 {
        let (program, mut other) = world.connected(&listener, RUN).await;
        program.send(&[b'x'; 300_000]).await;
        soon(other.read_exact(&mut [0; 1000])).await.unwrap();
        other.write_all(b"413 too large").await.unwrap();
        drop(other);
        let mut heard = Vec::new();
        while let Inbound::Data(Channel::Net, bytes) = program.next().await {
            heard.extend_from_slice(&bytes);
        }
        assert_eq!(heard, b"413 too large");
    }
}

#[tokio::test]
async fn a_port_where_nobody_listens_refuses() {
    let world = World::new().await;
    let (listener, port) = listener().await;
    drop(listener);
    let network = world.gateway.admit(RUN, policy(&["127.0.0.1"]));
    let program = world.agent.ask(&to_loopback(RUN, port));
    program.expect_refused(ConnectFailure::Refused).await;
    assert_eq!(network.ledger()[0].reason.as_deref(), Some("it refused the connection"));
}

#[tokio::test]
async fn the_end_of_a_run_ends_its_connections_and_no_others() {
    let world = World::new().await;
    let (listener, _) = listener().await;
    let ends = world.gateway.admit("ends", policy(&["127.0.0.1"]));
    let stays = world.gateway.admit("stays", policy(&["127.0.0.1"]));
    let (ended, mut other) = world.connected(&listener, "ends").await;
    let (staying, mut staying_other) = world.connected(&listener, "stays").await;
    drop(ends);
    ended.expect_reset().await;
    let error = soon(other.read(&mut [0; 8])).await.unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
    staying.send(b"still here").await;
    let mut heard = [0; 10];
    soon(staying_other.read_exact(&mut heard)).await.unwrap();
    stays.end();
    staying.expect_reset().await;
    assert_eq!(stays.ledger()[0].bytes_out, 10, "what it did can still be read");
}

#[tokio::test]
async fn everything_ends_with_the_gateway_and_with_the_link() {
    let mut world = World::new().await;
    let (listener, port) = listener().await;
    let _network = world.gateway.admit(RUN, policy(&["127.0.0.1"]));
    let (program, mut other) = world.connected(&listener, RUN).await;
    world.gateway =
        world.egress.gateway(&world.link, OWNER, Default::default(), tracing::Span::none()).open();
    program.expect_reset().await;
    assert!(soon(other.read(&mut [0; 8])).await.is_err());
    world.agent.ask(&to_loopback(RUN, port)).expect_last(BLOCKED).await;
    // The last handle of the link: neither gateway nor connection keeps it.
    let _network = world.gateway.admit(RUN, policy(&["127.0.0.1"]));
    let (_program, mut other) = world.connected(&listener, RUN).await;
    drop(world.link);
    assert!(soon(other.read(&mut [0; 8])).await.is_err());
}

#[tokio::test]
async fn each_half_of_a_connection_ends_by_itself() {
    let world = World::new().await;
    let (listener, _) = listener().await;
    let _network = world.gateway.admit(RUN, policy(&["127.0.0.1"]));
    let (program, mut other) = world.connected(&listener, RUN).await;
    program.send(b"question").await;
    program.eof().await;
    let mut heard = Vec::new();
    soon(other.read_to_end(&mut heard)).await.unwrap();
    other.write_all(b"answer").await.unwrap();
    drop(other);
    assert_eq!((&heard[..], program.read_to_eof().await), (&b"question"[..], b"answer".to_vec()));
    assert_eq!(program.next().await, Inbound::Close);
    program.close().await;

    let (program, mut other) = world.connected(&listener, RUN).await;
    other.write_all(b"hello").await.unwrap();
    other.shutdown().await.unwrap();
    assert_eq!(program.read_to_eof().await, b"hello");
    program.send(b"and the same to you").await;
    program.eof().await;
    let mut heard = Vec::new();
    soon(other.read_to_end(&mut heard)).await.unwrap();
    assert_eq!(heard, b"and the same to you");
    assert_eq!(program.next().await, Inbound::Close);
}

#[tokio::test]
async fn a_reset_of_one_side_is_a_reset_of_the_other() {
    let world = World::new().await;
    let (listener, _) = listener().await;
    let _network = world.gateway.admit(RUN, policy(&["127.0.0.1"]));
    let (program, other) = world.connected(&listener, RUN).await;
    other.set_zero_linger().unwrap();
    drop(other);
    program.expect_reset().await;

    let (program, mut other) = world.connected(&listener, RUN).await;
    program.eof().await;
    assert_eq!(soon(other.read(&mut [0; 8])).await.unwrap(), 0);
    program.reset();
    let reset = soon(async {
        loop {
            if let Err(error) = other.write_all(&[0; 4096]).await {
                return error.kind();
            }
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        }
    });
    let kind = reset.await;
    assert!(matches!(kind, std::io::ErrorKind::ConnectionReset | std::io::ErrorKind::BrokenPipe), "{kind}");
}

#[tokio::test]
async fn a_program_that_never_reads_holds_up_the_other_side_and_costs_a_window() {
    let world = World::new().await;
    let (listener, _) = listener().await;
    let network = world.gateway.admit(RUN, policy(&["127.0.0.1"]));
    let (program, mut other) = world.connected(&listener, RUN).await;
    let flood = vec![7; 1 << 20];
    let stalled = async {
        let mut written = 0;
        let quiet = std::time::Duration::from_millis(500);
        while let Ok(wrote) = tokio::time::timeout(quiet, other.write(&flood)).await {
            written += wrote.unwrap();
        }
        written
    };
    let written = soon(stalled).await;
    let (came_in, _) = network.bytes();
    // The window, and one read that waits for room; the rest is in the kernel's buffers.
    let window = u64::try_from(paddock_proto::limits::WINDOW).unwrap();
    assert!(came_in <= window + 64 * 1024, "{came_in} of {written} bytes are held");
    // Nothing is lost when it reads at last.
    drop(other);
    assert_eq!(program.read_to_eof().await.len(), written);
}

#[tokio::test]
async fn after_a_reset_nothing_more_is_read_from_the_other_side() {
    let world = World::new().await;
    let (listener, _) = listener().await;
    let network = world.gateway.admit(RUN, policy(&["127.0.0.1"]));
    let window = u64::try_from(paddock_proto::limits::WINDOW).unwrap();
    let flood = vec![7; 1 << 20];
    for n in 1..=20 {
        let (program, mut other) = world.connected(&listener, RUN).await;
        let quiet = std::time::Duration::from_millis(50);
        while tokio::time::timeout(quiet, other.write(&flood)).await.is_ok() {}
        program.reset();
        soon(async { while other.write_all(&flood).await.is_ok() {} }).await;
        let (came_in, _) = network.bytes();
        assert!(came_in <= n * (window + 2 * 64 * 1024), "{came_in} bytes after {n} resets");
    }
}

#[path = "gateway_bounds_tests.rs"]
mod bounds;
