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
