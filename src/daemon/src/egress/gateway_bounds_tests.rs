//! The bounds of what programs may ask of the gateway: bytes, time, connections, names.

use super::*;

#[tokio::test]
async fn a_run_moves_only_so_many_bytes() {
    let world = World::with(EgressBounds { bytes_per_run: 100_000, ..BOUNDS }, Names::default()).await;
    let (listener, port) = listener().await;
    let network = world.gateway.admit(RUN, policy(&["127.0.0.1"]));
    let (program, mut other) = world.connected(&listener, RUN).await;
    let flood = async { while other.write_all(&[7; 10_000]).await.is_ok() {} };
    tokio::join!(soon(flood), program.expect_reset());
    let (came_in, _) = network.bytes();
    assert!(came_in <= 100_000, "{came_in}");
    world.agent.ask(&to_loopback(RUN, port)).expect_last(BLOCKED).await;
    assert!(reasons(&network)[0].3.as_ref().unwrap().contains("bytes"), "{:?}", reasons(&network));
    assert_eq!(world.metric("paddock_egress_blocked_total{reason=\"limit\"}"), 2.0);
    assert_eq!(world.metric("paddock_egress_connections_total{outcome=\"limited\"}"), 1.0);
    // Another run has its own.
    let _other = world.gateway.admit("run_2", policy(&["127.0.0.1"]));
    world.connected(&listener, "run_2").await;
}

#[tokio::test]
async fn a_connection_on_which_nothing_moves_is_cut() {
    let idle = std::time::Duration::from_millis(300);
    let world = World::with(EgressBounds { idle, ..BOUNDS }, Names::default()).await;
    let (listener, _) = listener().await;
    let _network = world.gateway.admit(RUN, policy(&["127.0.0.1"]));
    let (program, mut other) = world.connected(&listener, RUN).await;
    let begun = std::time::Instant::now();
    for _ in 0..8 {
        tokio::time::sleep(idle / 4).await;
        other.write_all(b".").await.unwrap();
    }
    program.expect_reset().await;
    assert!(begun.elapsed() > 2 * idle, "cut while something moved, after {:?}", begun.elapsed());
}

#[tokio::test]
async fn connections_of_a_run_and_of_all_runs_are_bounded() {
    let bounds = EgressBounds { connections_per_run: 2, connections: 3, ..BOUNDS };
    let world = World::with(bounds, Names::default()).await;
    let (listener, port) = listener().await;
    let too_many = Reply::Refused(ConnectFailure::TooMany);
    let _one = world.gateway.admit("run_1", policy(&["127.0.0.1"]));
    let _two = world.gateway.admit("run_2", policy(&["127.0.0.1"]));
    let first = world.connected(&listener, "run_1").await;
    let _second = world.connected(&listener, "run_1").await;
    world.agent.ask(&to_loopback("run_1", port)).expect_last(too_many).await;
    let _third = world.connected(&listener, "run_2").await;
    world.agent.ask(&to_loopback("run_2", port)).expect_last(too_many).await;
    assert_eq!(world.metric("paddock_egress_connections_open"), 3.0);
    assert_eq!(world.metric("paddock_egress_connections_total{outcome=\"limited\"}"), 2.0);
    // One that ends makes room.
    let (program, other) = first;
    drop(other);
    program.eof().await;
    program.read_to_eof().await;
    assert_eq!(program.next().await, Inbound::Close);
    let again = async {
        loop {
            let program = world.agent.ask(&to_loopback("run_1", port));
            if program.outcome().await == Reply::Connected {
                return;
            }
        }
    };
    soon(again).await;
}

#[tokio::test]
async fn a_run_leaves_connections_to_the_runs_beside_it() {
    let bounds =
        EgressBounds { connections_per_run: 1000, connections_per_token: 1000, connections: 1000, ..BOUNDS };
    let world = World::with(bounds, Names::default()).await;
    let (listener, port) = listener().await;
    let too_many = Reply::Refused(ConnectFailure::TooMany);
    let greedy = world.gateway.admit("greedy", policy(&["127.0.0.1"]));
    let _beside = world.gateway.admit("beside", policy(&["127.0.0.1"]));
    let mut held = Vec::new();
    for _ in 0..MAX_HELD_ASKS - 2 * RESERVED_ASKS {
        held.push(world.connected(&listener, "greedy").await);
    }
    world.agent.ask(&to_loopback("greedy", port)).expect_last(too_many).await;
    let told = reasons(&greedy)[0].3.clone();
    assert_eq!(told.as_deref(), Some("the connections that are left are for the other runs of this session"));
    for _ in 0..RESERVED_ASKS {
        held.push(world.connected(&listener, "beside").await);
    }
    world.agent.ask(&to_loopback("beside", port)).expect_last(too_many).await;
    // What a run held is to be had once it is over.
    drop(greedy);
    held.push(world.connected(&listener, "beside").await);
}

#[tokio::test]
async fn connections_of_all_runs_of_a_token_are_bounded_whatever_their_containers() {
    let bounds = EgressBounds { connections_per_token: 2, ..BOUNDS };
    let world = World::with(bounds, Names::default()).await;
    let (listener, port) = listener().await;
    let (beside, link) = Agent::linked().await;
    let same_token = world.egress.gateway(&link, OWNER, Default::default(), tracing::Span::none()).open();
    let (foreign, link) = Agent::linked().await;
    let other_token =
        world.egress.gateway(&link, "another token", Default::default(), tracing::Span::none()).open();
    let _one = world.gateway.admit("run_1", policy(&["127.0.0.1"]));
    let two = same_token.admit("run_2", policy(&["127.0.0.1"]));
    let _three = other_token.admit("run_3", policy(&["127.0.0.1"]));
    let _first = world.connected(&listener, "run_1").await;
    let second = beside.ask(&to_loopback("run_2", port));
    second.expect_connected().await;
    let refused = Reply::Refused(ConnectFailure::TooMany);
    world.agent.ask(&to_loopback("run_1", port)).expect_last(refused).await;
    beside.ask(&to_loopback("run_2", port)).expect_last(refused).await;
    let told = reasons(&two)[0].3.clone();
    assert_eq!(told.as_deref(), Some("all runs of this token have as many connections as they may have"));
    assert_eq!(world.metric("paddock_egress_connections_total{outcome=\"limited\"}"), 2.0);
    assert_eq!(world.metric("paddock_egress_blocked_total{reason=\"limit\"}"), 2.0);
    // Another token has its own, and what ends makes room.
    foreign.ask(&to_loopback("run_3", port)).expect_connected().await;
    drop(two);
    second.expect_reset().await;
    let again =
        async { while world.agent.ask(&to_loopback("run_1", port)).outcome().await != Reply::Connected {} };
    soon(again).await;
}

#[tokio::test]
async fn names_that_a_run_has_resolved_are_bounded() {
    let world = World::new().await;
    let network = world.gateway.admit(RUN, policy(&["*.example"]));
    for n in 0..BOUNDS.names_per_run {
        let program = world.agent.ask(&to_name(RUN, &format!("{n}.example"), 80));
        program.expect_refused(ConnectFailure::NoAddress).await;
    }
    world.agent.ask(&to_name(RUN, "data.example", 80)).expect_last(BLOCKED).await;
    let program = world.agent.ask(&to_name(RUN, "0.example", 80));
    let refused = Reply::Refused(ConnectFailure::NoAddress);
    assert_eq!(program.outcome().await, refused, "it was resolved before");
    assert!(reasons(&network)[4].3.as_ref().unwrap().contains("names"));
}

#[tokio::test]
async fn many_programs_at_once_each_have_their_own_bytes() {
    let world = World::with(
        EgressBounds { connections_per_run: 64, connections_per_token: 64, connections: 64, ..BOUNDS },
        Names::default(),
    )
    .await;
    let (listener, port) = listener().await;
    let echo = tokio::spawn(async move {
        loop {
            let (mut socket, _) = listener.accept().await.unwrap();
            tokio::spawn(async move {
                let (mut from, mut to) = socket.split();
                let _ = tokio::io::copy(&mut from, &mut to).await;
                let _ = to.shutdown().await;
            });
        }
    });
    let _network = world.gateway.admit(RUN, policy(&["127.0.0.1"]));
    let talk = |n: u8| {
        let program = world.agent.ask(&to_loopback(RUN, port));
        async move {
            program.expect_connected().await;
            let sent = vec![n; 300_000];
            let write = async {
                program.send(&sent).await;
                program.eof().await;
            };
            let ((), heard) = tokio::join!(write, program.read_to_eof());
            assert!(heard == sent, "{} bytes came back", heard.len());
        }
    };
    futures_util::future::join_all((0..40).map(talk)).await;
    echo.abort();
}
