//! The TLS hello of a program, judged before the other side gets a byte.

use std::net::SocketAddr;
use std::sync::Arc;

use paddock_proto::Inbound;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use super::super::approval::RunApproval;
use super::super::client_hello::tests::{hello_for, with_extension};
use super::super::dial::dial;
use super::super::gateway::Runs;
use super::super::hello_retry::tests::retry_request;
use super::super::reach::permits;
use super::super::test_world::*;
use super::*;

/// A connection to a.example:443, of which everything is real but the port.
struct Hello {
    world: World,
    program: Program,
    other: TcpStream,
    ended: tokio::task::JoinHandle<Result<(), Cut>>,
}

impl Hello {
    async fn begin() -> Self {
        let mut world = World::new().await;
        // The test serves the ask in place of the gateway.
        let asks = {
            let asks = world.link.asks();
            let (_, elsewhere) = Agent::linked().await;
            world.gateway =
                world.egress.gateway(&elsewhere, OWNER, Arc::default(), tracing::Span::none()).open();
            asks
        };
        let (listener, port) = listener().await;
        tokio::task::yield_now().await;
        let program = world.agent.ask(&to_name("run_1", "a.example", port));
        let stream = soon(asks.accept()).await.unwrap();
        let upstream = dial(&[SocketAddr::from(([127, 0, 0, 1], port))]).await.unwrap();
        let (other, _) = soon(listener.accept()).await.unwrap();
        let egress = world.egress.clone();
        let runs = Arc::<Runs>::default();
        let (of_token, over) = (Arc::new(Semaphore::new(1)), CancellationToken::new());
        let weak = Arc::downgrade(&runs);
        let asks = RunApproval::new(None, Arc::default(), egress.bounds.ask);
        let run = Run::new(
            "run_1",
            policy(&["a.example"]),
            egress.bounds,
            ("ann".into(), of_token),
            asks,
            weak,
            over,
        );
        let _permits = permits(&egress, &run).ok().expect("room");
        let open = Open { upstream, tls_name: Some("a.example".parse().unwrap()), _permits };
        let ended = tokio::spawn(async move {
            let traffic = run.ledger.connected("a.example", port);
            let account = Account::new(&run, &traffic, &egress.metrics);
            carry(&egress, &stream, open, &account).await
        });
        Self { world, program, other, ended }
    }

    /// Expects that the connection is cut for this reason, and that the other side has not received a byte.
    async fn expect_blocked(mut self, expected: BlockReason) {
        self.program.expect_reset().await;
        match soon(self.ended).await.unwrap() {
            Err(Cut::Blocked(reason)) => assert_eq!(reason, expected),
            other => panic!("{other:?}"),
        }
        let received = soon(self.other.read(&mut [0; 8])).await;
        assert_eq!(received.unwrap_err().kind(), std::io::ErrorKind::ConnectionReset);
        drop(self.world);
    }

    /// Expects that the other side receives exactly this, and then the end.
    async fn expect_received(mut self, expected: &[u8]) {
        self.program.eof().await;
        let mut received = Vec::new();
        soon(self.other.read_to_end(&mut received)).await.unwrap();
        assert!(received == expected, "{} bytes", received.len());
        drop(self.other);
        assert_eq!(self.program.read_to_eof().await, b"");
        assert_eq!(self.program.next().await, Inbound::Close);
        soon(self.ended).await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn a_hello_with_the_name_that_was_asked_for_passes_with_all_that_follows() {
    let hello = Hello::begin().await;
    let early_data = [&[23, 3, 3, 0x40, 0][..], &[7; 0x4000]].concat().repeat(12);
    let bytes = [hello_for("A.example"), early_data].concat();
    hello.program.send(&bytes).await;
    hello.expect_received(&bytes).await;
}

#[tokio::test]
async fn a_second_hello_for_another_name_ends_the_connection_and_nothing_of_it_is_sent() {
    for is_asked_for in [true, false] {
        let mut hello = Hello::begin().await;
        let first = hello_for("a.example");
        hello.program.send(&first).await;
        if is_asked_for {
            let mut received = vec![0; first.len()];
            soon(hello.other.read_exact(&mut received)).await.unwrap();
            hello.other.write_all(&retry_request()).await.unwrap();
            assert!(matches!(hello.program.next().await, Inbound::Data(..)), "the program hears of it");
        }
        hello.program.send(&hello_for("b.example")).await;
        let reason = if is_asked_for { BlockReason::TlsName } else { BlockReason::NotTls };
        if !is_asked_for {
            let mut received = vec![0; first.len()];
            let _ = soon(hello.other.read_exact(&mut received)).await; // the reset may be faster
        }
        hello.expect_blocked(reason).await;
    }
}

#[tokio::test]
async fn what_follows_the_servers_first_answer_is_not_looked_at() {
    let mut hello = Hello::begin().await;
    let first = hello_for("a.example");
    hello.program.send(&first).await;
    let mut received = vec![0; first.len()];
    soon(hello.other.read_exact(&mut received)).await.unwrap();
    hello.other.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await.unwrap();
    assert!(matches!(hello.program.next().await, Inbound::Data(..)));
    let bytes = vec![7; 200_000];
    hello.program.send(&bytes).await;
    hello.expect_received(&bytes).await;
}

#[tokio::test]
async fn a_hello_in_pieces_of_one_byte_passes_when_it_is_whole() {
    let mut hello = Hello::begin().await;
    let bytes = hello_for("a.example");
    let (last, before) = bytes.split_last().unwrap();
    for byte in before {
        hello.program.send(&[*byte]).await;
    }
    let mut byte = [0];
    let early = tokio::time::timeout(std::time::Duration::from_millis(200), hello.other.read(&mut byte));
    assert!(early.await.is_err(), "the other side received something before the hello was judged");
    hello.program.send(&[*last]).await;
    hello.expect_received(&bytes).await;
}

#[tokio::test]
async fn a_program_that_sends_nothing_may_go_again() {
    Hello::begin().await.expect_received(b"").await;
}

#[tokio::test]
async fn every_other_hello_ends_the_connection_and_nothing_is_sent() {
    for (bytes, reason) in [
        (hello_for("b.example"), BlockReason::TlsName),
        (hello_for("a.example.b.example"), BlockReason::TlsName),
        (hello_for(""), BlockReason::NoTlsName),
        (with_extension(&hello_for("a.example"), 0xfe0d, &[0; 60]), BlockReason::EncryptedHello),
        (b"GET / HTTP/1.1\r\nHost: a.example\r\n\r\n".to_vec(), BlockReason::NotTls),
        (b"\x16\x03\x01\x40\x00\x01".iter().copied().chain([0; 20_000]).collect(), BlockReason::NotTls),
    ] {
        let hello = Hello::begin().await;
        hello.program.send(&bytes).await;
        hello.expect_blocked(reason).await;
    }
}

#[tokio::test]
async fn a_hello_that_breaks_off_is_none() {
    let hello = Hello::begin().await;
    hello.program.send(&hello_for("a.example")[..100]).await;
    hello.program.eof().await;
    hello.expect_blocked(BlockReason::NotTls).await;
}
