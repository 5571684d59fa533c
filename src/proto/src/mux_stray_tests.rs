//! What a peer may send without end: nothing.

use super::*;

/// Feeds a daemon that once had a stream the same frame for ever; what it makes of it.
fn for_ever(set_up: impl Fn(&mut Mux) -> StreamId, kind: Kind, payload: &[u8]) -> Option<ProtocolError> {
    let mut daemon = Mux::new(Role::Daemon);
    let id = set_up(&mut daemon);
    let frame = Frame { stream: id, kind, payload: Bytes::copy_from_slice(payload) };
    // Twice as many bytes as the peer may send, however much of them is read.
    let count = 4 * STRAY / frame.cost() as u64 + 1;
    for _ in 0..count {
        let mut wire = BytesMut::new();
        frame.encode(&mut wire);
        if let Err(error) = daemon.on_bytes(&mut wire, |_| {}) {
            return Some(error);
        }
        daemon.transmit(&mut BytesMut::new(), 1 << 20);
    }
    None
}

#[test]
fn frames_that_change_nothing_do_not_come_without_end() {
    let opened = |mux: &mut Mux| mux.open(Bytes::from_static(b"run")).unwrap();
    let reset = |mux: &mut Mux| {
        let id = opened(mux);
        mux.reset(id);
        id
    };
    let finished = |mux: &mut Mux| {
        let id = opened(mux);
        mux.send(id, Kind::Close, Bytes::new());
        mux.finish(id);
        id
    };
    let data = vec![0; 60_000];
    assert_eq!(for_ever(opened, Kind::Reset, b""), Some(ProtocolError::Stray));
    assert_eq!(for_ever(opened, Kind::Credit, &[0; 8]), Some(ProtocolError::Stray));
    assert_eq!(for_ever(reset, Kind::Reset, b""), Some(ProtocolError::Stray));
    assert_eq!(for_ever(reset, Kind::Data(Channel::Stdout), &data), Some(ProtocolError::Stray));
    assert_eq!(for_ever(reset, Kind::Credit, &[0; 8]), Some(ProtocolError::Stray));
    assert_eq!(for_ever(finished, Kind::Data(Channel::Stdout), &data), Some(ProtocolError::Stray));
}

#[test]
fn what_was_under_way_when_a_stream_was_given_up_is_no_offence() {
    let mut pair = Pair::new();
    for _ in 0..20 {
        let id = pair.daemon.open(Bytes::from_static(b"run")).unwrap();
        pair.pump(1 << 20);
        assert_eq!(pair.agent.accept(), Some(id));
        while pair.agent.has_room(id, 9000) {
            pair.agent.send(id, Kind::Data(Channel::Stdout), vec![0; 9000].into());
        }
        pair.daemon.reset(id);
        for _ in 0..200 {
            pair.pump(1 << 20);
        }
        pair.agent.finish(id);
    }
    assert_eq!((pair.daemon.open_streams(), pair.agent.open_streams()), (0, 0));
}

/// Opens a stream of the agent, whatever its own mux would say to that.
fn ask(id: StreamId) -> BytesMut {
    let mut wire = BytesMut::new();
    Frame { stream: id, kind: Kind::Message, payload: Bytes::from_static(b"ask") }.encode(&mut wire);
    wire
}

#[test]
fn streams_of_the_agent_never_keep_the_daemon_from_its_own() {
    let mut pair = Pair::new();
    for _ in 0..MAX_ASKS {
        pair.agent.open(Bytes::from_static(b"ask")).unwrap();
    }
    assert_eq!(pair.agent.open(Bytes::from_static(b"ask")), Err(ProtocolError::TooManyStreams));
    for _ in 0..MAX_STREAMS {
        pair.daemon.open(Bytes::from_static(b"run")).unwrap();
    }
    assert_eq!(pair.daemon.open(Bytes::from_static(b"run")), Err(ProtocolError::TooManyStreams));
    for _ in 0..20 {
        pair.pump(1 << 20);
    }
    let all = MAX_STREAMS + MAX_ASKS;
    assert_eq!((pair.daemon.open_streams(), pair.agent.open_streams()), (all, all));
}

#[test]
fn an_agent_that_opens_more_streams_than_it_may_is_refused_them_and_loses_its_link_if_it_goes_on() {
    let mut daemon = Mux::new(Role::Daemon);
    let ids = |range: std::ops::Range<usize>| range.map(|i| StreamId::try_from(2 * i).unwrap());
    for id in ids(1..MAX_ASKS + 1) {
        daemon.on_bytes(&mut ask(id), |_| {}).unwrap();
    }
    // Refused by a reset, as long as the resets leave.
    for id in ids(MAX_ASKS + 1..3 * MAX_ASKS) {
        daemon.on_bytes(&mut ask(id), |_| {}).unwrap();
        let mut out = BytesMut::new();
        daemon.transmit(&mut out, 1 << 20);
        let refused = Frame::decode(&mut out).unwrap().unwrap();
        assert_eq!((refused.stream, refused.kind), (id, Kind::Reset));
        assert_eq!(daemon.take(id), Some(Inbound::Reset));
    }
    assert_eq!(std::iter::from_fn(|| daemon.accept()).count(), MAX_ASKS);
    // Nothing leaves: the resets must not pile up.
    let mut last = Ok(());
    let mut tried = 0;
    for id in ids(3 * MAX_ASKS..5 * MAX_ASKS) {
        last = daemon.on_bytes(&mut ask(id), |_| {});
        if last.is_err() {
            break;
        }
        tried += 1;
    }
    assert_eq!((last, tried), (Err(ProtocolError::TooManyStreams), MAX_ASKS));
}

#[test]
fn an_agent_that_opens_and_gives_up_streams_as_fast_as_it_can_keeps_its_link() {
    let mut pair = Pair::new();
    for round in 0..50 {
        let ids: Vec<_> = std::iter::from_fn(|| pair.agent.open(Bytes::from_static(b"ask")).ok()).collect();
        assert_eq!(ids.len(), MAX_ASKS);
        // The daemon reads, and writes nothing.
        pair.agent.transmit(&mut pair.up, 1 << 20);
        pair.daemon.on_bytes(&mut pair.up, |_| {}).unwrap();
        while let Some(id) = pair.daemon.accept() {
            if round % 3 == 0 {
                pair.daemon.reset(id);
            }
        }
        ids.into_iter().for_each(|id| pair.agent.finish(id));
        if round % 7 == 0 {
            pair.cut();
        }
        if round % 5 == 0 {
            let held: Vec<_> = pair.daemon.streams.keys().copied().collect();
            held.into_iter().for_each(|id| pair.daemon.finish(id));
            pair.pump(1 << 20);
        }
    }
}
