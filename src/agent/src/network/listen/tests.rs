//! Programs that connect to the address of a name, with a daemon of the test's at the other end of the link.

use std::io::ErrorKind;
use std::net::TcpListener as StdListener;
use std::sync::atomic::{AtomicU32, Ordering};

use bytes::BytesMut;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::LocalSet;

use super::super::tests::{BLOCKED, ECHO, LATE_REFUSAL, behaviour, daemon, spec};
use super::*;
use crate::carrier::Carrier;
use crate::link::Link;

const NAME: &str = "allowed.example";
const ADDRESS: Ipv4Addr = Ipv4Addr::new(127, 64, 0, 1);

type Asks = Rc<RefCell<Vec<Ask>>>;

/// A port that nobody has, at which the daemon behaves in this way.
fn free(wanted: u16) -> u16 {
    static TRIED: AtomicU32 = AtomicU32::new(0);
    loop {
        let tried = (std::process::id() * 64 + TRIED.fetch_add(1, Ordering::Relaxed)) % 2000;
        let port = 10_000 + u16::try_from(tried * 8).expect("small") + wanted;
        assert_eq!(behaviour(port), wanted);
        if StdListener::bind(("0.0.0.0", port)).is_ok() {
            return port;
        }
    }
}

/// A container's network that listens on these ports; what its daemon is asked.
fn network(ports: &[u16]) -> (Rc<Network>, Asks) {
    let pair =
        socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).expect("a pair");
    let asks = Asks::default();
    spawn_local(daemon(pair.0, asks.clone()));
    let (link, carrier) = (Link::new(), Carrier::direct(pair.1).expect("a carrier"));
    let carried = link.clone();
    spawn_local(async move { carried.carry(carrier, BytesMut::new()).await });
    let network = Network::new(link);
    network.listen_on(ports);
    (network, asks)
}

async fn connect(port: u16) -> io::Result<TcpStream> {
    TcpStream::connect((ADDRESS, port)).await
}

/// How the program learns that there is no connection: the reset may come before it looks at its `connect`.
async fn end_of(connected: io::Result<TcpStream>) -> Option<ErrorKind> {
    let ended = async { connected?.read(&mut [0]).await };
    ended.await.err().map(|error| error.kind())
}

async fn echoes(stream: &mut TcpStream) -> bool {
    let mut back = [0; 5];
    stream.write_all(b"hello").await.is_ok()
        && stream.read_exact(&mut back).await.is_ok()
        && back == *b"hello"
}

async fn locally(test: impl Future<Output = ()>) {
    LocalSet::new().run_until(test).await;
}

#[tokio::test]
async fn the_only_run_reaches_a_name_by_its_address_until_its_end() {
    locally(async {
        let port = free(ECHO);
        let (network, asks) = network(&[port]);
        let run = network.begin(&mut spec(true));
        assert!(network.listen_for(NAME, ADDRESS) && network.listen_for(NAME, ADDRESS));
        let mut stream = connect(port).await.expect("it listens");
        assert!(echoes(&mut stream).await);
        stream.shutdown().await.expect("it is connected");
        assert_eq!(stream.read(&mut [0]).await.expect("a good end"), 0);
        let asked = Ask::Connect { run: "r1".to_owned(), host: Host::Name(NAME.to_owned()), port };
        assert_eq!(*asks.borrow(), [asked]);
        network.end(&run).await;
        let refused = connect(port).await.expect_err("nobody listens any more");
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    })
    .await;
}

#[tokio::test]
async fn what_the_daemon_refuses_is_reset() {
    locally(async {
        let ports = [free(BLOCKED), free(LATE_REFUSAL)];
        let (network, asks) = network(&ports);
        let run = network.begin(&mut spec(true));
        assert!(network.listen_for(NAME, ADDRESS));
        for port in ports {
            assert_eq!(end_of(connect(port).await).await, Some(ErrorKind::ConnectionReset));
        }
        assert_eq!(asks.borrow().len(), 2);
        network.end(&run).await;
    })
    .await;
}

#[tokio::test]
async fn a_connection_that_could_be_another_runs_is_reset_and_never_asked_for() {
    locally(async {
        let port = free(ECHO);
        let (network, asks) = network(&[port]);
        let run = network.begin(&mut spec(true));
        assert!(network.listen_for(NAME, ADDRESS));
        for has_network in [false, true] {
            let beside = network.begin(&mut spec(has_network));
            assert!(!network.listen_for(NAME, ADDRESS), "the resolver gives no address meanwhile");
            assert_eq!(end_of(connect(port).await).await, Some(ErrorKind::ConnectionReset));
            // Made while both are under way, and accepted only after the end of one.
            let late = std::net::TcpStream::connect((ADDRESS, port)).expect("the kernel connects it");
            network.end(&beside).await;
            late.set_nonblocking(true).expect("it may");
            assert_eq!(end_of(TcpStream::from_std(late)).await, Some(ErrorKind::ConnectionReset));
            assert_eq!(*asks.borrow(), [], "beside a run with a network: {has_network}");
        }
        let mut stream = connect(port).await.expect("it listens again");
        assert!(echoes(&mut stream).await);
        network.end(&run).await;
    })
    .await;
}

#[tokio::test]
async fn nobody_listens_for_a_run_without_a_network_nor_where_a_program_does() {
    locally(async {
        let port = free(ECHO);
        let (network, _) = network(&[port]);
        let run = network.begin(&mut spec(false));
        assert!(!network.listen_for(NAME, ADDRESS));
        network.end(&run).await;
        let run = network.begin(&mut spec(true));
        let own = StdListener::bind(("0.0.0.0", port)).expect("a port");
        assert!(!network.listen_for(NAME, ADDRESS));
        drop(own);
        assert!(network.listen_for(NAME, ADDRESS));
        assert!(StdListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok(), "other addresses are free");
        network.end(&run).await;
    })
    .await;
}

#[tokio::test]
async fn with_too_many_names_the_one_not_looked_up_for_longest_is_given_up() {
    locally(async {
        let ports: Vec<u16> = (0..6).map(|_| free(ECHO)).collect();
        let (network, _) = network(&ports);
        let run = network.begin(&mut spec(true));
        let address = |n: u8| Ipv4Addr::new(127, 64, 77, n);
        let fit = u8::try_from(most() / ports.len()).expect("few");
        assert!((20..50).contains(&fit), "{fit}");
        for n in 0..fit {
            assert!(network.listen_for(&format!("{n}.example"), address(n)));
        }
        assert!(network.listen_for("0.example", address(0)), "again");
        assert!(network.listen_for("more.example", address(fit)));
        let open = network.listeners.addresses();
        assert_eq!(open.len(), usize::from(fit));
        assert!(!open.contains(&address(1)) && open.ends_with(&[address(0), address(fit)]), "{open:?}");
        network.end(&run).await;
        assert_eq!(network.listeners.addresses(), Vec::<Ipv4Addr>::new());
    })
    .await;
}
