//! The mux against a peer that sends anything: it never panics, never holds more than its windows, and makes
//! the same of the same bytes however they are cut.

use paddock_fuzz::{Target, fuzz};

use super::*;

/// What a mux may hold of each stream, and of all of them.
fn assert_bounded(mux: &Mux) {
    for role in [Role::Daemon, Role::Agent] {
        let of_role = |id: &&StreamId| (*id % 2 == 1) == (role == Role::Daemon);
        let open = mux.streams.keys().filter(of_role).count();
        assert!(open <= role.streams(), "{open} streams of {role:?}");
    }
    for (id, stream) in &mux.streams {
        let inbox: usize = stream.inbox.iter().map(Frame::cost).sum();
        assert!(inbox <= WINDOW, "stream {id} holds {inbox} bytes");
        let held = stream.received - stream.consumed;
        assert!(held <= WINDOW as u64, "stream {id}: {held} bytes are not consumed");
        let out: usize = stream.out.iter().map(Frame::cost).sum();
        assert_eq!(out, stream.out_cost, "stream {id}");
        assert!(stream.sent <= stream.out.len() && stream.reported <= stream.consumed, "stream {id}");
    }
    assert!(mux.resets.len() <= MAX_STREAMS + MAX_ASKS, "{} resets", mux.resets.len());
}

/// The bytes of the input, one after the other; zeros behind them.
struct Script<'a>(&'a [u8]);

impl Script<'_> {
    fn byte(&mut self) -> u8 {
        let (first, rest) = self.0.split_first().map_or((0, self.0), |(first, rest)| (*first, rest));
        self.0 = rest;
        first
    }
}

fn kind(byte: u8) -> Kind {
    match byte % 6 {
        0 => Kind::Message,
        1 => Kind::Data(Channel::Stdout),
        2 => Kind::Eof(Channel::Stdin),
        3 => Kind::Close,
        4 => Kind::Credit,
        _ => Kind::Reset,
    }
}

/// A frame of the peer, of three or four bytes of script: a stream, a kind, and a length, or what a credit
/// says.
fn frame(script: &mut Script<'_>) -> Frame {
    let (stream, kind, size) = (script.byte() % 12, kind(script.byte()), script.byte());
    let payload = if kind == Kind::Credit {
        // Whole frames cost nine bytes and their payload; anything else is said as well.
        Bytes::copy_from_slice(&(u64::from(size) * 9 + u64::from(script.byte() % 4)).to_le_bytes())
    } else {
        vec![7; usize::from(size) << (script.byte() % 11)].into()
    };
    Frame { stream: stream.into(), kind, payload }
}

/// One thing that this side, or its peer, does; false if the link is broken.
fn act(mux: &mut Mux, script: &mut Script<'_>) -> bool {
    let (what, id) = (script.byte() % 12, StreamId::from(script.byte() % 12));
    match what {
        0..=3 => {
            let mut wire = BytesMut::new();
            frame(script).encode(&mut wire);
            return mux.on_bytes(&mut wire, |_| {}).is_ok();
        }
        4 => {
            let _ = mux.open(Bytes::from_static(b"open"));
        }
        5 => {
            let _ = mux.take(id);
        }
        6 => mux.reset(id),
        7 => {
            let payload = vec![1; usize::from(script.byte()) << 6];
            if mux.has_room(id, payload.len()) {
                let kind =
                    if script.byte().is_multiple_of(4) { Kind::Close } else { Kind::Data(Channel::File) };
                mux.send(id, kind, payload.into());
            }
        }
        8 => {
            let _ = mux.transmit(&mut BytesMut::new(), 4096);
        }
        9 => mux.finish(id),
        10 => {
            if script.byte().is_multiple_of(2) {
                mux.hold(id);
            } else {
                mux.release(id);
            }
        }
        _ => {
            let mut streams = Vec::new();
            for _ in 0..script.byte() % 4 {
                streams.push((StreamId::from(script.byte() % 12), u64::from(script.byte()) * 9));
            }
            return mux.resume(&ResumePoints { highest: id, streams }).is_ok();
        }
    }
    true
}

#[test]
fn fuzz_mux() {
    let seeds = vec![
        vec![0, 4, 0, 0, 0, 1, 0, 5, 0, 5, 1, 9, 1, 8, 0],
        vec![1, 0, 0, 2, 0, 3, 0, 0, 0, 2, 1, 200, 11, 5, 2, 7, 2, 9, 1],
        // More than a window, in three frames.
        vec![1, 0, 0, 1, 1, 255, 10, 0, 0, 1, 1, 255, 10, 0, 0, 1, 1, 255, 10],
        // Finished while it is held, and released afterwards: what was held once counted twice.
        vec![0, 4, 0, 0, 0, 1, 1, 9, 0, 10, 1, 0, 5, 1, 7, 1, 0, 0, 9, 1, 10, 1, 1, 0, 0, 1, 1, 9, 0],
        vec![1, 0, 0, 4, 0, 3, 0, 11, 4, 1, 4, 1, 7, 4, 1, 1, 8, 0, 0, 0, 4, 4, 2, 0],
    ];
    let target = Target {
        name: "mux",
        package: env!("CARGO_MANIFEST_DIR"),
        seeds,
        words: &[&[4, 0], &[8, 0], &[0, 0, 1, 1, 255, 11], &[11, 3, 1, 1, 0]],
        longest: 600,
        // The script names twelve streams, each with a window either way.
        memory: |length| 26 * WINDOW + 512 * length,
    };
    fuzz(&target, |input| {
        let mut script = Script(input);
        let role = if script.byte().is_multiple_of(2) { Role::Daemon } else { Role::Agent };
        let mut mux = Mux::new(role);
        while !script.0.is_empty() {
            let goes_on = act(&mut mux, &mut script);
            assert_bounded(&mux);
            if !goes_on {
                return;
            }
        }
    });
}

/// All that a mux makes of these bytes: the end, what each stream gives, and what it says itself.
fn heard(
    bytes: &[u8],
    piece: usize,
    role: Role,
) -> (Result<(), ProtocolError>, Vec<(StreamId, Inbound)>, BytesMut) {
    let mut mux = Mux::new(role);
    for _ in 0..3 {
        mux.open(Bytes::new()).expect("there is room");
    }
    let (mut input, mut end) = (BytesMut::new(), Ok(()));
    for piece in bytes.chunks(piece.max(1)) {
        input.extend_from_slice(piece);
        end = mux.on_bytes(&mut input, |_| {});
        if end.is_err() {
            break;
        }
    }
    assert_bounded(&mux);
    let ids: Vec<_> = mux.streams.keys().copied().collect();
    let mut taken = Vec::new();
    for id in ids {
        while mux.is_readable(id) {
            let inbound = mux.take(id).expect("it can be read");
            let is_over = inbound == Inbound::Reset;
            taken.push((id, inbound));
            if is_over {
                break;
            }
        }
    }
    let mut said = BytesMut::new();
    mux.transmit(&mut said, 1 << 20);
    (end, taken, said)
}

#[test]
fn fuzz_mux_bytes() {
    let mut wire = BytesMut::new();
    for (stream, kind, payload) in [
        (2, Kind::Message, &b"event"[..]),
        (1, Kind::Data(Channel::Stdout), b"output"),
        (1, Kind::Credit, &[9, 0, 0, 0, 0, 0, 0, 0]),
        (4, Kind::Close, b""),
        (3, Kind::Reset, b""),
    ] {
        Frame { stream, kind, payload: Bytes::copy_from_slice(payload) }.encode(&mut wire);
    }
    let seeds = vec![[&[0, 3], &wire[..]].concat(), [&[1, 1], &wire[..]].concat()];
    let target = Target {
        name: "mux_bytes",
        package: env!("CARGO_MANIFEST_DIR"),
        seeds,
        words: &[&[0, 0, 0, 0], &[1, 0, 0, 0], &[2, 0, 0, 0], &[3], &[4], &[16]],
        longest: 1024,
        memory: |length| 64 * length + 64 * 1024,
    };
    fuzz(&target, |input| {
        let [role, piece, bytes @ ..] = input else { return };
        let role = if role.is_multiple_of(2) { Role::Daemon } else { Role::Agent };
        let whole = heard(bytes, usize::MAX, role);
        assert_eq!(heard(bytes, usize::from(*piece), role), whole, "in pieces of {piece}");
    });
}
