//! Connections to servers in a container, against an agent of a few lines.

use paddock_proto::limits::MAX_DIALS;
use paddock_proto::message::ConnectFailure;

use super::*;

/// Dials, and answers on the agent's side; the stream is the link's first.
async fn dial(
    dials: &Dials,
    mux: &Mutex<Mux>,
    kind: Kind,
    payload: Bytes,
) -> Result<DialStream, PortDialError> {
    let answer = async {
        while mux.lock().unwrap().open_streams() == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        mux.lock().unwrap().send(1, kind, payload);
    };
    tokio::join!(dials.dial(8000), answer).0
}

fn reply(reply: Reply) -> Bytes {
    message::encode(&reply)
}

#[tokio::test]
async fn bytes_go_both_ways_until_the_link_is_closed() {
    let (link, mux) = honest(usize::MAX).await;
    let dials = link.dials();
    let stream = dial(&dials, &mux, Kind::Message, reply(Reply::Connected)).await.unwrap();
    stream.write(Bytes::from_static(b"hello")).await.unwrap();
    assert_eq!(stream.read().await.unwrap(), NetInput::Data(Bytes::from_static(b"hello")));
    assert!(!dials.is_lost());
    drop(link);
    assert!(stream.read().await.is_err(), "neither keeps the link open");
    assert!(dials.is_lost() && matches!(dials.dial(8000).await, Err(PortDialError::Link(_))));
}

#[tokio::test]
async fn a_remembered_way_to_servers_keeps_no_memory_of_a_closed_link() {
    let (link, _mux) = honest(usize::MAX).await;
    let (dials, state) = (link.dials(), Arc::downgrade(&link.shared));
    drop(link);
    let is_gone = async {
        while state.strong_count() > 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), is_gone).await.expect("its memory is given back");
    assert!(dials.is_lost() && matches!(dials.dial(8000).await, Err(PortDialError::Link(_))));
}

#[tokio::test]
async fn an_agent_that_does_not_connect_says_why() {
    for why in [ConnectFailure::Refused, ConnectFailure::Blocked, ConnectFailure::TooMany] {
        let (link, mux) = honest(usize::MAX).await;
        let dialed = dial(&link.dials(), &mux, Kind::Message, reply(Reply::Refused(why))).await;
        assert!(matches!(dialed, Err(PortDialError::Refused(said)) if said == why), "{why:?}");
    }
    for (kind, payload) in [
        (Kind::Message, reply(Reply::Allowed)),
        (Kind::Message, Bytes::from_static(b"\xff")),
        (Kind::Data(Channel::Net), Bytes::from_static(b"x")),
        (Kind::Eof(Channel::Net), Bytes::new()),
        (Kind::Close, Bytes::new()),
    ] {
        let (link, mux) = honest(usize::MAX).await;
        let dialed = dial(&link.dials(), &mux, kind, payload).await;
        assert!(matches!(dialed, Err(PortDialError::Link(_))), "{kind:?}");
    }
}

#[tokio::test]
async fn there_are_no_more_than_the_bound() {
    let (link, _mux) = honest(usize::MAX).await;
    let dials = link.dials();
    let mut dialing: Vec<_> = (0..MAX_DIALS).map(|_| Box::pin(dials.dial(1))).collect();
    for one in &mut dialing {
        assert!(futures_util::poll!(one).is_pending());
    }
    let more = dials.clone().dial(1).await;
    assert!(matches!(more, Err(PortDialError::Refused(ConnectFailure::TooMany))));
    dialing.pop();
    assert!(futures_util::poll!(Box::pin(dials.dial(1))).is_pending(), "a place is free again");
}
