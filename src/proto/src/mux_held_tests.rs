//! What a mux holds for a peer that has not heard it, and what it keeps of streams that are over.

use super::*;

/// An eighth of a window.
const PIECE: usize = WINDOW / 8;

/// Output of the agent's, taken by the daemon; what the agent would say again to another.
fn unheard_after(release: bool) -> usize {
    let mut pair = Pair::new();
    let id = pair.daemon.open(Bytes::from_static(b"run")).unwrap();
    pair.pump(1000);
    assert_eq!(pair.agent.accept(), Some(id));
    pair.daemon.hold(id);
    for _ in 0..6 {
        assert!(pair.agent.has_room(id, PIECE));
        pair.agent.send(id, Kind::Data(Channel::Stdout), Bytes::from(vec![7; PIECE]));
        pair.pump(10 * PIECE);
        assert!(matches!(pair.daemon.take(id), Some(Inbound::Data(..))));
        pair.pump(1000);
    }
    assert!(!pair.agent.has_room(id, 2 * PIECE), "what is held takes of the window");
    if release {
        pair.daemon.release(id);
        pair.pump(1000);
    }
    let (_, out) = pair.agent.into_unheard().next().unwrap();
    out.iter().map(|frame| frame.payload.len()).sum()
}

#[test]
fn what_is_held_is_not_acknowledged_and_kept_by_the_peer() {
    assert_eq!(unheard_after(false), 6 * PIECE);
    assert_eq!(unheard_after(true), 0);
}

#[test]
fn what_was_held_of_a_stream_that_is_finished_is_not_counted_twice() {
    let mut pair = Pair::new();
    let id = pair.daemon.open(Bytes::from_static(b"run")).unwrap();
    pair.pump(1000);
    assert_eq!(pair.agent.accept(), Some(id));
    pair.daemon.hold(id);
    pair.agent.send(id, Kind::Data(Channel::Stdout), Bytes::from_static(b"held"));
    pair.pump(1000);
    assert!(matches!(pair.daemon.take(id), Some(Inbound::Data(..))));
    pair.daemon.send(id, Kind::Close, Bytes::new());
    pair.daemon.finish(id);
    pair.daemon.release(id);
    pair.agent.send(id, Kind::Data(Channel::Stdout), Bytes::from_static(b"more"));
    pair.pump(1000);
    let stream = &pair.daemon.streams[&id];
    assert_eq!(stream.consumed, stream.received);
}

#[test]
fn a_new_daemon_is_told_something_before_a_whole_window_of_what_was_not_heard() {
    let mut pair = Pair::new();
    let id = pair.daemon.open(Bytes::from_static(b"run")).unwrap();
    pair.pump(1000);
    assert_eq!(pair.agent.accept(), Some(id));
    while pair.agent.has_room(id, 1) {
        let size = if pair.agent.has_room(id, PIECE) { PIECE } else { 1 };
        pair.agent.send(id, Kind::Data(Channel::Stdout), Bytes::from(vec![7; size]));
    }
    let (_, unheard) = std::mem::replace(&mut pair, Pair::new()).agent.into_unheard().next().unwrap();
    let id = pair.daemon.open(Bytes::from_static(b"attach")).unwrap();
    pair.pump(1000);
    assert_eq!(pair.agent.accept(), Some(id));
    // The longest that it can be.
    let first = crate::message::encode(&crate::Event::Attached { heard: u64::MAX });
    pair.agent.send(id, Kind::Message, first);
    let mut left: usize = unheard.iter().map(|frame| frame.payload.len()).sum();
    for frame in unheard {
        pair.agent.send(id, frame.kind, frame.payload);
    }
    for _ in 0..200 {
        pair.pump(WINDOW); // fails where the daemon refuses it
    }
    assert!(matches!(pair.daemon.take(id), Some(Inbound::Message(_))));
    while let Some(Inbound::Data(_, bytes)) = pair.daemon.take(id) {
        left -= bytes.len();
    }
    assert_eq!(left, 0);
}

#[test]
fn what_is_left_of_a_stream_that_is_over_goes_with_what_comes_next() {
    let mut pair = Pair::new();
    let id = pair.daemon.open(Bytes::from_static(b"run")).unwrap();
    assert!(pair.daemon.is_pressing());
    pair.pump(1000);
    assert!(!pair.daemon.is_pressing(), "sent, and not acknowledged yet");
    assert_eq!(pair.agent.accept(), Some(id));
    assert!(matches!(pair.agent.take(id), Some(Inbound::Message(_))));
    pair.agent.send(id, Kind::Message, Bytes::from_static(b"ended"));
    assert!(pair.agent.is_pressing());
    pair.pump(1000);
    assert!(matches!(pair.daemon.take(id), Some(Inbound::Message(_))));
    pair.daemon.send(id, Kind::Message, Bytes::from_static(b"saved"));
    pair.daemon.send(id, Kind::Close, Bytes::new());
    pair.daemon.finish(id);
    assert!(pair.daemon.is_pressing(), "the other has not said all: it waits for this");
    pair.pump(1000);
    assert!(matches!(pair.agent.take(id), Some(Inbound::Message(_))));
    pair.agent.send(id, Kind::Close, Bytes::new());
    assert!(pair.agent.is_pressing(), "somebody could want to know that it has said all");
    pair.agent.finish(id);
    assert!(!pair.agent.is_pressing());
    // Streams that are over take nothing of what there may be at a time.
    for _ in 0..10 * crate::limits::MAX_STREAMS {
        let id = pair.daemon.open(Bytes::from_static(b"next")).unwrap();
        pair.pump(1000);
        assert_eq!(pair.agent.accept(), Some(id));
        for side in [&mut pair.agent, &mut pair.daemon] {
            side.send(id, Kind::Close, Bytes::new());
            side.finish(id);
        }
        pair.pump(1000);
        assert!(pair.daemon.open_streams() <= 2 && pair.agent.open_streams() <= 2);
    }
}

#[test]
fn streams_that_are_over_never_take_the_room_of_all_others() {
    let mut pair = Pair::new();
    let most = crate::limits::MAX_STREAMS * 3 / 4;
    let ids: Vec<_> = (0..most).map(|_| pair.agent.open(Bytes::from_static(b"ask")).unwrap()).collect();
    // As a link does it: only what is pressing goes.
    let exchange = |pair: &mut Pair| {
        while pair.agent.is_pressing() || pair.daemon.is_pressing() {
            pair.pump(1 << 20);
        }
    };
    exchange(&mut pair);
    for id in ids {
        assert_eq!(pair.daemon.accept(), Some(id));
        assert!(matches!(pair.daemon.take(id), Some(Inbound::Message(_))));
        for side in [&mut pair.daemon, &mut pair.agent] {
            side.send(id, Kind::Close, Bytes::new());
            side.finish(id);
        }
    }
    exchange(&mut pair);
    for side in [&pair.daemon, &pair.agent] {
        assert!(side.open_streams() < most, "{}", side.open_streams());
    }
}
