//! Programs whose connections go through an upstream proxy, over a real link; the proxy is the test's own.

use std::time::Duration;

use paddock_proto::message::{Ask, ConnectFailure, Host as AskedHost, Reply};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::super::request::NetworkRequest;
use super::super::settings::{EgressBounds, EgressSettings};
use super::super::test_world::*;
use super::super::upstream_proxy::tests::{FAR, answering};
use super::*;

const RUN: &str = "run_1";
const OK: &[u8] = b"HTTP/1.1 200 OK\r\n\r\n";
const BLOCKED: Reply = Reply::Refused(ConnectFailure::Blocked);

fn behind(proxy: SocketAddr, resolves: bool) -> EgressSettings {
    EgressSettings {
        upstream_proxy: Some(format!("http://me:secret@{proxy}").parse().unwrap()),
        upstream_resolves: resolves,
        ..settings(BOUNDS)
    }
}

fn names() -> Names {
    let far = FAR.map(|text| text.parse().unwrap());
    let proxy = "127.0.0.1".parse().unwrap();
    let near = "10.1.2.3".parse().unwrap();
    let both = vec!["2606:2800:220:1::1".parse().unwrap(), far[0], far[1]];
    Names(
        [
            ("far.example", both),
            ("one.example", vec![far[0]]),
            ("proxy.example", vec![proxy]),
            ("near.example", vec![near]),
        ]
        .into(),
    )
}

fn to_address(text: &str, port: u16) -> Ask {
    Ask::Connect { run: RUN.to_owned(), host: AskedHost::Address(text.parse().unwrap()), port }
}

#[tokio::test]
async fn the_judged_address_is_asked_of_the_proxy_and_private_ones_are_dialled() {
    let (at, mut asked) = answering(&[OK]).await;
    let world = World::of(&behind(at, false), names()).await;
    let network = world.gateway.admit(RUN, policy(&["*.example", "127.0.0.1", FAR[1]]));
    let program = world.agent.ask(&to_name(RUN, "one.example", 5432));
    program.expect_connected().await;
    let (request, mut proxy) = soon(asked.recv()).await.unwrap();
    assert!(request.starts_with("CONNECT 93.184.216.34:5432 HTTP/1.1\r\n"), "{request}");
    program.send(b"ping").await;
    let mut heard = [0; 4];
    soon(proxy.read_exact(&mut heard)).await.unwrap();
    proxy.write_all(b"pong").await.unwrap();
    drop(proxy);
    assert_eq!((&heard, program.read_to_eof().await), (b"ping", b"pong".to_vec()));
    // An address as it stands.
    world.agent.ask(&to_address(FAR[1], 80)).expect_connected().await;
    assert!(soon(asked.recv()).await.unwrap().0.starts_with("CONNECT 93.184.216.35:80 "));
    // What is private, and what is forbidden, the proxy never hears of.
    let (listener, port) = listener().await;
    let _near = world.connected(&listener, RUN).await;
    let program = world.agent.ask(&to_name(RUN, "near.example", port));
    program.expect_refused(ConnectFailure::Blocked).await;
    assert!(asked.try_recv().is_err());
    let ledger = network.ledger();
    assert_eq!((ledger[0].bytes_in, ledger[0].bytes_out), (4, 4), "the proxy's own bytes are not the run's");
}

#[tokio::test]
async fn another_address_is_tried_where_the_proxy_cannot_reach_one() {
    let (at, mut asked) = answering(&[b"HTTP/1.1 503 x\r\n\r\n", OK]).await;
    let world = World::of(&behind(at, false), names()).await;
    let _network = world.gateway.admit(RUN, policy(&["far.example"]));
    world.agent.ask(&to_name(RUN, "far.example", 80)).expect_connected().await;
    for address in FAR {
        let (request, _) = soon(asked.recv()).await.unwrap();
        assert!(request.starts_with(&format!("CONNECT {address}:80 ")), "IPv4 first: {request}");
    }
}

#[tokio::test]
async fn no_program_is_connected_with_the_proxy_itself() {
    let (at, mut asked) = answering(&[OK]).await;
    let with = |url: String| EgressSettings {
        upstream_proxy: Some(url.parse().unwrap()),
        hosts: vec![("cache.example".parse().unwrap(), vec![at.ip()])],
        ..settings(BOUNDS)
    };
    for url in [format!("http://{at}"), format!("http://proxy.example:{}", at.port())] {
        let world = World::of(&with(url), names()).await;
        // `private` has its address, and the policy names it.
        let network = world.gateway.admit(RUN, policy(&["127.0.0.1", "::ffff:127.0.0.1", "*.example"]));
        for ask in [
            to_address("127.0.0.1", at.port()),
            to_address("::ffff:127.0.0.1", at.port()),
            to_name(RUN, "proxy.example", at.port()),
            to_name(RUN, "cache.example", at.port()),
        ] {
            let program = world.agent.ask(&ask);
            program.expect_refused(ConnectFailure::Blocked).await;
        }
        let told: Vec<_> = network.ledger().into_iter().filter_map(|entry| entry.reason).collect();
        assert!(told.iter().all(|reason| reason == "the upstream proxy of this server"), "{told:?}");
        assert!(asked.try_recv().is_err());
        // Another port of that machine is what it is without a proxy.
        let (listener, _) = listener().await;
        world.connected(&listener, RUN).await;
    }
}

#[tokio::test]
async fn a_proxy_that_resolves_is_told_names_and_nothing_that_must_be_near() {
    let (at, mut asked) = answering(&[OK]).await;
    let mut settings = behind(at, true);
    settings.bounds.names_per_run = 16;
    settings.hosts = vec![("fixed.example".parse().unwrap(), vec![FAR[1].parse().unwrap()])];
    settings.rules.private.push("db.lan".parse().unwrap());
    let (listener, port) = listener().await;
    let names = Names([("db.lan", vec!["127.0.0.1".parse().unwrap()])].into());
    let world = World::of(&settings, names).await;
    let allowed =
        ["*.example", "*.lan", "*.internal", "localhost", "intranet", "10.0.0.1", "169.254.169.254"];
    let allowed_domains = allowed.map(str::to_owned).to_vec();
    let request = NetworkRequest { allowed_domains, ..NetworkRequest::default() };
    let network = world.gateway.admit(RUN, settings.rules.policy(&request).unwrap().into());
    world.agent.ask(&to_name(RUN, "unknown.example", 443)).expect_connected().await;
    assert!(soon(asked.recv()).await.unwrap().0.starts_with("CONNECT unknown.example:443 HTTP/1.1\r\n"));
    world.agent.ask(&to_name(RUN, "fixed.example", 443)).expect_connected().await;
    assert!(soon(asked.recv()).await.unwrap().0.starts_with("CONNECT 93.184.216.35:443 HTTP/1.1\r\n"));
    let near = ["localhost", "intranet", "printer.lan", "metadata.google.internal"];
    for name in near {
        let program = world.agent.ask(&to_name(RUN, name, 80));
        program.expect_refused(ConnectFailure::Blocked).await;
    }
    for ip in ["10.0.0.1", "169.254.169.254"] {
        world.agent.ask(&to_address(ip, 80)).expect_last(BLOCKED).await;
    }
    assert!(asked.try_recv().is_err());
    assert!(network.ledger()[2].reason.as_deref().is_some_and(|reason| reason.contains("near network")));
    // What `private` has by its name is resolved here.
    world.agent.ask(&to_name(RUN, "db.lan", port)).expect_connected().await;
    soon(listener.accept()).await.unwrap();
    assert!(asked.try_recv().is_err());
}

#[tokio::test]
async fn what_is_wrong_with_the_proxy_is_told_and_its_password_is_not() {
    for (answer, failure, said) in [
        (&b"HTTP/1.1 407 x\r\n\r\n"[..], ConnectFailure::Unreachable, "credentials"),
        (b"HTTP/1.1 403 x\r\n\r\n", ConnectFailure::Blocked, "refuses this destination (403)"),
        (b"HTTP/1.1 502 x\r\n\r\n", ConnectFailure::Unreachable, "could not reach it (502)"),
        (b"", ConnectFailure::TimedOut, "did not answer in time"),
    ] {
        let (at, _asked) = answering(&[answer]).await;
        let bounds = EgressBounds { connect: Duration::from_millis(800), ..BOUNDS };
        let world = World::of(&EgressSettings { bounds, ..behind(at, false) }, names()).await;
        let network = world.gateway.admit(RUN, policy(&["one.example"]));
        let program = world.agent.ask(&to_name(RUN, "one.example", 80));
        assert_eq!(program.reply().await, Reply::Allowed);
        program.expect_last(Reply::Refused(failure)).await;
        let entry = network.ledger().remove(0);
        let reason = entry.reason.unwrap();
        assert!(entry.allowed && reason.contains(said) && !reason.contains("secret"), "{reason}");
        assert_eq!(world.metric("paddock_egress_connections_total{outcome=\"failed\"}"), 1.0);
    }
}

#[test]
fn names_of_near_networks_are_known_by_their_end() {
    for (name, near) in [
        ("localhost", true),
        ("a.localhost", true),
        ("server", true),
        ("db.corp", true),
        ("1.0.0.10.in-addr.arpa", true),
        ("hidden.onion", true),
        ("example.com", false),
        ("local.example.com", false),
        ("corp.com", false),
    ] {
        assert_eq!(is_near(&name.parse().unwrap()), near, "{name}");
    }
}

#[tokio::test]
async fn services_take_the_same_ways_and_a_near_one_needs_no_entry() {
    let (at, mut asked) = answering(&[OK, OK, OK, b"HTTP/1.1 407 x\r\n\r\n"]).await;
    let way = |resolves, private: &[&str]| {
        let private = private.iter().map(|text| text.parse().unwrap()).collect();
        ProxyWay::new(format!("http://{at}").parse().unwrap(), resolves, private)
    };
    let resolver = Resolver::new(Vec::new(), names());
    let name = |text: &str| Host::Name(text.parse().unwrap());
    let reach = async |way: &ProxyWay, host: Host, port| {
        way.reach_service(&resolver, &host, port, BOUNDS.connect).await.map(drop).map_err(|e| e.to_string())
    };
    let (plain, by_name) = (way(false, &[]), way(true, &["proxy.example"]));
    for (way, host, told) in [
        (&plain, name("one.example"), "93.184.216.34:443"),
        (&plain, Host::Address(FAR[1].parse().unwrap()), "93.184.216.35:443"),
        (&by_name, name("unknown.example"), "unknown.example:443"),
    ] {
        assert_eq!(reach(way, host, 443).await, Ok(()));
        let request = soon(asked.recv()).await.unwrap().0;
        assert!(request.starts_with(&format!("CONNECT {told} HTTP/1.1\r\n")), "{request}");
    }
    let failed = reach(&plain, name("one.example"), 443).await.unwrap_err();
    assert!(failed.contains("egress.upstream_proxy (407)"), "{failed}");
    let _ = soon(asked.recv()).await;
    // The proxy never hears of what is near: an address that is not public, a name of `private`, a near name.
    let (listener, port) = listener().await;
    for (way, host) in [(&plain, name("proxy.example")), (&by_name, name("proxy.example"))] {
        assert_eq!(reach(way, host, port).await, Ok(()));
        soon(listener.accept()).await.unwrap();
    }
    assert_eq!(reach(&by_name, name("db.internal"), port).await, Err("its name has no address".to_owned()));
    assert!(asked.try_recv().is_err());
}
