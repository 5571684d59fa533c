//! The mux against an oracle: whatever the carrier does, each stream gives exactly what was sent, in order.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

/// Two muxes and a carrier that can lose whatever is under way.
struct Pair {
    daemon: Mux,
    agent: Mux,
    down: BytesMut,
    up: BytesMut,
    /// What has arrived and is not yet a frame.
    at_agent: BytesMut,
    at_daemon: BytesMut,
}

impl Pair {
    fn new() -> Self {
        Self {
            daemon: Mux::new(Role::Daemon),
            agent: Mux::new(Role::Agent),
            down: BytesMut::new(),
            up: BytesMut::new(),
            at_agent: BytesMut::new(),
            at_daemon: BytesMut::new(),
        }
    }

    /// Moves at most `n` bytes each way.
    fn pump(&mut self, n: usize) {
        self.daemon.transmit(&mut self.down, 4096);
        self.agent.transmit(&mut self.up, 4096);
        for mux in [&self.daemon, &self.agent] {
            assert!(!mux.streams.keys().any(|id| mux.owes_credit(*id)), "a credit was left behind");
        }
        self.at_agent.extend_from_slice(&self.down.split_to(n.min(self.down.len())));
        self.agent.on_bytes(&mut self.at_agent, |_| {}).unwrap();
        self.at_daemon.extend_from_slice(&self.up.split_to(n.min(self.up.len())));
        self.daemon.on_bytes(&mut self.at_daemon, |_| {}).unwrap();
    }

    fn cut(&mut self) {
        for bytes in [&mut self.down, &mut self.up, &mut self.at_agent, &mut self.at_daemon] {
            bytes.clear();
        }
        let (d, a) = (self.daemon.resume_points(), self.agent.resume_points());
        self.daemon.resume(&a).unwrap();
        self.agent.resume(&d).unwrap();
    }
}

#[derive(Debug, Clone)]
enum Step {
    Open,
    Down(usize, Vec<u8>),
    Up(usize, Vec<u8>),
    Pump(usize),
    Cut,
    ReadDown(usize),
    ReadUp(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let data = proptest::collection::vec(any::<u8>(), 0..2000);
    prop_oneof![
        1 => Just(Step::Open),
        4 => (any::<usize>(), data.clone()).prop_map(|(i, d)| Step::Down(i, d)),
        4 => (any::<usize>(), data).prop_map(|(i, d)| Step::Up(i, d)),
        6 => (1..5000usize).prop_map(Step::Pump),
        1 => Just(Step::Cut),
        3 => any::<usize>().prop_map(Step::ReadDown),
        3 => any::<usize>().prop_map(Step::ReadUp),
    ]
}

fn read(mux: &mut Mux, id: StreamId, into: &mut BTreeMap<StreamId, Vec<u8>>) {
    while mux.is_readable(id) {
        match mux.take(id) {
            Some(Inbound::Data(Channel::File, bytes)) => {
                into.entry(id).or_default().extend_from_slice(&bytes)
            }
            Some(Inbound::Message(first)) if first.is_empty() => {}
            other => panic!("stream {id} gave {other:?}"),
        }
    }
}

proptest! {
    #[test]
    fn nothing_is_lost_repeated_or_reordered(steps in proptest::collection::vec(step(), 1..120)) {
        let mut pair = Pair::new();
        let mut ids = Vec::new();
        let (mut sent_down, mut sent_up) = (BTreeMap::<_, Vec<u8>>::new(), BTreeMap::<_, Vec<u8>>::new());
        let (mut got_down, mut got_up) = (BTreeMap::new(), BTreeMap::new());
        for step in steps {
            let pick = |i: usize| (!ids.is_empty()).then(|| ids[i % ids.len()]);
            match step {
                Step::Open => {
                    let id = pair.daemon.open(Bytes::new()).unwrap();
                    ids.push(id);
                }
                Step::Down(i, data) => if let Some(id) = pick(i) && pair.daemon.has_room(id, data.len()) {
                    sent_down.entry(id).or_default().extend_from_slice(&data);
                    pair.daemon.send(id, Kind::Data(Channel::File), data.into());
                },
                // the agent can only answer on a stream that it has heard of
                Step::Up(i, data) => if let Some(id) = pick(i)
                    && pair.agent.streams.contains_key(&id) && pair.agent.has_room(id, data.len()) {
                    sent_up.entry(id).or_default().extend_from_slice(&data);
                    pair.agent.send(id, Kind::Data(Channel::File), data.into());
                },
                Step::Pump(n) => pair.pump(n),
                Step::Cut => pair.cut(),
                Step::ReadDown(i) => if let Some(id) = pick(i) && pair.agent.streams.contains_key(&id) {
                    read(&mut pair.agent, id, &mut got_down);
                },
                Step::ReadUp(i) => if let Some(id) = pick(i) { read(&mut pair.daemon, id, &mut got_up); },
            }
            for mux in [&pair.daemon, &pair.agent] {
                for stream in mux.streams.values() {
                    prop_assert!(stream.out_cost <= WINDOW);
                    prop_assert!(stream.received - stream.consumed <= WINDOW as u64);
                }
            }
        }
        for _ in 0..2000 {
            pair.pump(1 << 20);
            for id in &ids {
                if pair.agent.streams.contains_key(id) { read(&mut pair.agent, *id, &mut got_down); }
                read(&mut pair.daemon, *id, &mut got_up);
            }
        }
        sent_down.retain(|_, v| !v.is_empty());
        sent_up.retain(|_, v| !v.is_empty());
        got_down.retain(|_, v| !v.is_empty());
        got_up.retain(|_, v| !v.is_empty());
        prop_assert_eq!(got_down, sent_down);
        prop_assert_eq!(got_up, sent_up);
    }

    #[test]
    fn hostile_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let mut mux = Mux::new(Role::Daemon);
        mux.open(Bytes::new()).unwrap();
        let _ = mux.on_bytes(&mut BytesMut::from(&bytes[..]), |_| {});
    }
}

/// One finished exchange, cut wherever `cut_at` pumps have passed; both sides must forget the stream.
fn exchange(cut_at: usize) -> Pair {
    let mut pair = Pair::new();
    let id = pair.daemon.open(Bytes::from_static(b"do")).unwrap();
    let (mut answered, mut finished) = (false, false);
    for round in 0..200 {
        if round == cut_at {
            pair.cut();
        }
        pair.pump(7);
        if !answered && pair.agent.streams.contains_key(&id) && pair.agent.is_readable(id) {
            assert_eq!(pair.agent.take(id), Some(Inbound::Message(Bytes::from_static(b"do"))));
            pair.agent.send(id, Kind::Message, Bytes::from_static(b"done"));
            answered = true;
        }
        if answered && pair.agent.is_readable(id) {
            match pair.agent.take(id) {
                Some(Inbound::Message(commit)) => assert_eq!(&commit[..], b"commit"),
                Some(Inbound::Close) => {
                    pair.agent.send(id, Kind::Close, Bytes::new());
                    pair.agent.finish(id);
                }
                Some(Inbound::Reset) => {}
                other => panic!("{other:?}"),
            }
        }
        if !finished && pair.daemon.is_readable(id) {
            assert_eq!(pair.daemon.take(id), Some(Inbound::Message(Bytes::from_static(b"done"))));
            pair.daemon.send(id, Kind::Message, Bytes::from_static(b"commit"));
            pair.daemon.send(id, Kind::Close, Bytes::new());
            pair.daemon.finish(id);
            finished = true;
        }
    }
    assert!(finished, "cut at {cut_at}");
    pair
}

#[test]
fn what_was_queued_before_a_reset_arrives_before_it() {
    let mut pair = Pair::new();
    let id = pair.agent.open(Bytes::from_static(b"ask")).unwrap();
    pair.pump(usize::MAX);
    pair.daemon.send(id, Kind::Message, Bytes::from_static(b"connected"));
    pair.pump(usize::MAX);
    for _ in 0..3 {
        pair.daemon.send(id, Kind::Data(Channel::Net), Bytes::from(vec![7; 3000]));
    }
    pair.daemon.reset(id);
    assert!(pair.daemon.is_pressing());
    // More than one call of `transmit` can take.
    (0..9).for_each(|_| pair.pump(usize::MAX));
    assert_eq!(pair.agent.take(id), Some(Inbound::Message(Bytes::from_static(b"connected"))));
    for _ in 0..3 {
        assert_eq!(pair.agent.take(id), Some(Inbound::Data(Channel::Net, Bytes::from(vec![7; 3000]))));
    }
    assert_eq!(pair.agent.take(id), Some(Inbound::Reset));
    assert!(!pair.daemon.is_pressing());
}

#[test]
fn what_was_queued_before_a_reset_does_not_go_over_another_carrier() {
    let mut pair = Pair::new();
    let id = pair.agent.open(Bytes::from_static(b"ask")).unwrap();
    pair.pump(usize::MAX);
    // The first is lost on its way, so the second would come behind a gap.
    pair.daemon.send(id, Kind::Data(Channel::Net), Bytes::from_static(b"first"));
    pair.daemon.transmit(&mut pair.down, 4096);
    pair.daemon.send(id, Kind::Data(Channel::Net), Bytes::from_static(b"second"));
    pair.daemon.reset(id);
    pair.cut();
    pair.pump(usize::MAX);
    assert_eq!(pair.agent.take(id), Some(Inbound::Reset));
}

#[test]
fn a_finished_stream_is_forgotten_wherever_the_carrier_broke() {
    for cut_at in 0..60 {
        let pair = exchange(cut_at);
        assert_eq!((pair.daemon.open_streams(), pair.agent.open_streams()), (0, 0), "cut at {cut_at}");
    }
}

#[test]
fn a_sender_over_its_window_is_found_out() {
    let mut mux = Mux::new(Role::Daemon);
    let id = mux.open(Bytes::new()).unwrap();
    let mut wire = BytesMut::new();
    for _ in 0..5 {
        let payload = vec![0; crate::limits::MAX_PAYLOAD].into();
        Frame { stream: id, kind: Kind::Data(Channel::Stdout), payload }.encode(&mut wire);
    }
    assert_eq!(mux.on_bytes(&mut wire, |_| {}), Err(ProtocolError::WindowExceeded(id)));
}

#[test]
fn a_flood_on_one_stream_does_not_hold_up_another() {
    let mut mux = Mux::new(Role::Agent);
    let mut wire = BytesMut::new();
    for id in [1, 3] {
        Frame { stream: id, kind: Kind::Message, payload: Bytes::new() }.encode(&mut wire);
    }
    mux.on_bytes(&mut wire, |_| {}).unwrap();
    while mux.has_room(1, 60_000) {
        mux.send(1, Kind::Data(Channel::Stdout), vec![b'y'; 60_000].into());
    }
    mux.send(3, Kind::Data(Channel::Stdout), Bytes::from_static(b"hello"));
    let mut out = BytesMut::new();
    mux.transmit(&mut out, 100_000);
    let mut streams = Vec::new();
    while let Some(frame) = Frame::decode(&mut out).unwrap() {
        streams.push(frame.stream);
    }
    assert!(streams[..2].contains(&3), "{streams:?}");
}

#[test]
fn whoever_has_news_is_told_and_the_rest_of_a_frame_waits() {
    let mut wire = BytesMut::new();
    for id in [1, 1, 3, 3, 1, 5] {
        Frame { stream: id, kind: Kind::Message, payload: Bytes::from_static(b"news") }.encode(&mut wire);
    }
    let cut = wire.split_off(wire.len() - 1);
    let (mut mux, mut told) = (Mux::new(Role::Agent), Vec::new());
    mux.on_bytes(&mut wire, |id| told.push(id)).unwrap();
    assert_eq!((told, mux.is_readable(5)), (vec![1, 3, 1], true), "5 is not known yet");
    wire.extend_from_slice(&cut);
    let mut told = Vec::new();
    mux.on_bytes(&mut wire, |id| told.push(id)).unwrap();
    assert_eq!((told, wire.len()), (vec![5], 0));
}

#[test]
fn a_reader_knows_when_its_consumption_is_worth_telling() {
    let mut mux = Mux::new(Role::Agent);
    let mut wire = BytesMut::new();
    let payload = Bytes::from(vec![0; crate::limits::CHUNK]);
    for kind in [Kind::Data(Channel::File), Kind::Data(Channel::File), Kind::Data(Channel::File), Kind::Close]
    {
        Frame { stream: 1, kind, payload: payload.clone() }.encode(&mut wire);
    }
    mux.on_bytes(&mut wire, |_| {}).unwrap();
    let mut owed = Vec::new();
    for _ in 0..4 {
        mux.take(1).unwrap();
        owed.push(mux.owes_credit(1));
        if mux.owes_credit(1) {
            let mut out = BytesMut::new();
            assert!(mux.transmit(&mut out, 1) && out[8] == 3, "a credit goes out");
        }
    }
    assert_eq!(owed, [false, true, false, true]);
}

#[test]
fn a_payload_holds_nothing_but_itself() {
    let mut wire = BytesMut::with_capacity(1 << 20);
    for _ in 0..100 {
        Frame { stream: 1, kind: Kind::Message, payload: Bytes::from_static(b"small") }.encode(&mut wire);
    }
    let at = wire.as_ptr() as usize;
    while let Some(frame) = Frame::decode(&mut wire).unwrap() {
        let payload = frame.payload.as_ptr() as usize;
        assert!(!(at..at + (1 << 20)).contains(&payload), "it would keep the whole buffer in memory");
    }
}

#[test]
fn what_the_peer_may_not_say() {
    let cases: [(Frame, ProtocolError); 4] = [
        (Frame { stream: 1, kind: Kind::Message, payload: Bytes::new() }, ProtocolError::UnknownStream(1)),
        (Frame { stream: 0, kind: Kind::Message, payload: Bytes::new() }, ProtocolError::UnknownStream(0)),
        (Frame { stream: 2, kind: Kind::Reset, payload: Bytes::new() }, ProtocolError::UnknownStream(2)),
        (Frame { stream: 3, kind: Kind::Close, payload: Bytes::new() }, ProtocolError::UnknownStream(3)),
    ];
    for (frame, want) in cases {
        let mut wire = BytesMut::new();
        frame.encode(&mut wire);
        assert_eq!(Mux::new(Role::Daemon).on_bytes(&mut wire, |_| {}), Err(want), "{frame:?}");
    }
    let mut mux = Mux::new(Role::Daemon);
    let id = mux.open(Bytes::new()).unwrap();
    let mut wire = BytesMut::new();
    let payload = Bytes::copy_from_slice(&99u64.to_le_bytes());
    Frame { stream: id, kind: Kind::Credit, payload }.encode(&mut wire);
    assert_eq!(mux.on_bytes(&mut wire, |_| {}), Err(ProtocolError::BadCredit(id)));
}

#[path = "mux_stray_tests.rs"]
mod stray;

#[test]
fn a_stream_that_never_reached_the_peer_is_not_reset_there() {
    // Given up before anything was sent.
    let mut pair = Pair::new();
    let id = pair.daemon.open(Bytes::from_static(b"x")).unwrap();
    pair.daemon.finish(id);
    pair.pump(usize::MAX);
    // Given up after it was sent, on a carrier that breaks before it arrives.
    let id = pair.daemon.open(Bytes::from_static(b"y")).unwrap();
    pair.daemon.transmit(&mut pair.down, usize::MAX);
    pair.daemon.finish(id);
    pair.cut();
    pair.pump(usize::MAX);
    assert_eq!(pair.agent.accept(), None);
    // One that did arrive is.
    let id = pair.daemon.open(Bytes::from_static(b"z")).unwrap();
    pair.pump(usize::MAX);
    pair.daemon.finish(id);
    pair.pump(usize::MAX);
    assert_eq!(
        (pair.agent.accept(), pair.agent.take(id)),
        (Some(id), Some(Inbound::Message(Bytes::from_static(b"z"))))
    );
    assert_eq!(pair.agent.take(id), Some(Inbound::Reset));
}

#[path = "mux_held_tests.rs"]
mod held;
