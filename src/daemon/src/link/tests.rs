//! A link whose carriers break, against an agent of a few lines.

use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::{Bytes, BytesMut};
use paddock_proto::frame::Frame;
use paddock_proto::limits::MAX_STREAMS;
use paddock_proto::message::{Ask, CollectRules, Hello, HelloReply, Reply, VERSION};
use paddock_proto::{Channel, Event, Inbound, Kind};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

use super::keeper::{REDIAL_PAUSE, REPLACED_AT_ONCE};
use super::*;

/// Dials a pretended agent that survives its carriers; each carrier breaks after so many bytes to the agent.
struct Fake {
    mux: Arc<Mutex<Mux>>,
    dialed: Arc<AtomicUsize>,
    bytes_per_carrier: usize,
}

impl Dial for Fake {
    fn dial(&self) -> Pin<Box<dyn Future<Output = Result<Carrier, DialError>> + Send + '_>> {
        self.dialed.fetch_add(1, Ordering::Relaxed);
        let (ours, theirs) = tokio::io::duplex(4096);
        tokio::spawn(echo(self.mux.clone(), theirs, self.bytes_per_carrier));
        let (from, to) = tokio::io::split(ours);
        Box::pin(async { Ok((Box::new(from) as Box<_>, Box::new(to) as Box<_>)) })
    }
}

/// Answers every data frame with the same data.
async fn echo(mux: Arc<Mutex<Mux>>, mut carrier: DuplexStream, budget: usize) {
    let mut input = BytesMut::new();
    let hello: Hello = loop {
        if let Some(frame) = Frame::decode(&mut input).unwrap() {
            break message::decode(&frame.payload).unwrap();
        }
        if carrier.read_buf(&mut input).await.unwrap_or(0) == 0 {
            return;
        }
    };
    let mut out = BytesMut::new();
    {
        let mut mux = mux.lock().unwrap();
        let reply = HelloReply {
            version: VERSION,
            ran: false,
            claim: None,
            runs: Vec::new(),
            resume: mux.resume_points(),
            direct: None,
        };
        Frame { stream: 0, kind: Kind::Message, payload: message::encode(&reply) }.encode(&mut out);
        mux.resume(&hello.resume).unwrap();
    }
    let mut seen = 0;
    loop {
        {
            let mut mux = mux.lock().unwrap();
            mux.on_bytes(&mut input, |_| {}).unwrap();
            while let Some(id) = mux.accept() {
                assert_eq!(id, 1);
            }
            while mux.is_readable(1) && mux.has_room(1, 65536) {
                match mux.take(1) {
                    Some(Inbound::Data(channel, bytes)) => mux.send(1, Kind::Data(channel), bytes),
                    Some(Inbound::Close) => mux.send(1, Kind::Close, Bytes::new()),
                    Some(Inbound::Reset) | None => break,
                    Some(_) => {}
                }
            }
            mux.transmit(&mut out, 4096);
        }
        if carrier.write_all(&out.split()).await.is_err() {
            return;
        }
        match tokio::time::timeout(Duration::from_millis(20), carrier.read_buf(&mut input)).await {
            Ok(Ok(n)) if n > 0 => seen += n,
            Ok(_) => return,
            Err(_) => {}
        }
        if seen > budget {
            return; // the carrier breaks with whatever is under way
        }
    }
}

fn terms() -> HelloTerms {
    HelloTerms { secret: [7; 32], orphan_after: Duration::from_secs(60), listen_ports: vec![] }
}

#[tokio::test]
async fn a_stream_survives_the_break_of_its_carriers() {
    let dialed = Arc::new(AtomicUsize::new(0));
    let mux = Arc::new(Mutex::new(Mux::new(Role::Agent)));
    let fake = Fake { mux, dialed: dialed.clone(), bytes_per_carrier: 100_000 };
    let (link, greeting) = Link::open(fake, terms()).await.unwrap();
    assert!(!greeting.ran);
    let stream = link.request(&Request::Collect(CollectRules::All)).unwrap();
    let sent: Vec<u8> = (0..1_000_000u32).flat_map(u32::to_le_bytes).collect();
    let write = async {
        stream.data(Channel::File, sent.clone().into()).await.unwrap();
        stream.close().await.unwrap();
    };
    let read = async {
        let mut got = Vec::new();
        while let Incoming::Data(_, bytes) = stream.next().await.unwrap() {
            got.extend_from_slice(&bytes);
        }
        got
    };
    let ((), got) = tokio::join!(write, read);
    assert!(got == sent, "{} of {} bytes, or others", got.len(), sent.len());
    assert!(dialed.load(Ordering::Relaxed) > 10, "only {} carriers", dialed.load(Ordering::Relaxed));
}

struct Never;

impl Dial for Never {
    fn dial(&self) -> Pin<Box<dyn Future<Output = Result<Carrier, DialError>> + Send + '_>> {
        Box::pin(async { Err(DialError::Failed("no such container".to_owned())) })
    }
}

#[tokio::test]
async fn an_agent_that_cannot_be_reached_is_an_error() {
    let error = Link::open(Never, terms()).await.err().unwrap();
    assert_eq!(error.to_string(), "the container's agent could not be reached: no such container");
}

/// Answers the hello and closes the carrier, for so many dials; then it cannot be reached any more.
struct ShortLived {
    carriers: u32,
    dialed: watch::Sender<u32>,
}

/// More dials than any wait of a test leaves time for: beyond it the keeper dials without pause.
const MANY_DIALS: u32 = 1000;

impl Dial for ShortLived {
    fn dial(&self) -> Pin<Box<dyn Future<Output = Result<Carrier, DialError>> + Send + '_>> {
        self.dialed.send_modify(|dialed| *dialed += 1);
        let dialed = *self.dialed.borrow();
        assert!(dialed < MANY_DIALS, "dialed without pause");
        Box::pin(async move {
            if dialed > self.carriers {
                return Err(DialError::Failed("the engine restarts".to_owned()));
            }
            let (ours, mut theirs) = tokio::io::duplex(1 << 16);
            tokio::spawn(async move {
                let _ = theirs.write_all(&greeting(Vec::new())).await;
            });
            let (from, to) = tokio::io::split(ours);
            Ok((Box::new(from) as Box<_>, Box::new(to) as Box<_>))
        })
    }
}

#[tokio::test(start_paused = true)]
async fn a_container_whose_carriers_break_at_once_is_redialed_with_pauses_after_a_while() {
    let dialed = watch::Sender::new(0);
    let mut dials = dialed.subscribe();
    let begun = tokio::time::Instant::now();
    let (_link, _) = Link::open(ShortLived { carriers: MANY_DIALS, dialed }, terms()).await.unwrap();
    // The first carrier, and the carriers that replace it without a pause.
    dials.wait_for(|dialed| *dialed > REPLACED_AT_ONCE).await.unwrap();
    assert!(begun.elapsed() < REDIAL_PAUSE, "a pause where the first carriers are replaced at once");
    dials.wait_for(|dialed| *dialed > REPLACED_AT_ONCE + 10).await.unwrap();
    let waited = begun.elapsed();
    assert!((REDIAL_PAUSE * 10..REDIAL_PAUSE * 11).contains(&waited), "ten dials within {waited:?}");
}

#[tokio::test(start_paused = true)]
async fn a_container_that_cannot_be_dialed_is_tried_again_with_pauses_and_then_given_up() {
    let dialed = watch::Sender::new(0);
    let dials = dialed.subscribe();
    let begun = tokio::time::Instant::now();
    let (link, _) = Link::open(ShortLived { carriers: 1, dialed }, terms()).await.unwrap();
    let lost = tokio::time::timeout(10 * REDIAL_FOR, link.lost()).await.expect("it is given up");
    assert_eq!(lost.to_string(), "the container's agent could not be reached: the engine restarts");
    let waited = begun.elapsed();
    assert!((REDIAL_FOR..REDIAL_FOR + 2 * REDIAL_PAUSE).contains(&waited), "given up after {waited:?}");
    let tried = REDIAL_FOR.as_millis() / REDIAL_PAUSE.as_millis();
    assert!(u128::from(*dials.borrow()).abs_diff(tried) <= 3, "{} dials, not {tried}", *dials.borrow());
}

/// The agent's answer to a hello.
fn greeting(runs: Vec<String>) -> BytesMut {
    let reply = HelloReply {
        version: VERSION,
        ran: true,
        claim: Some([7; 32]),
        runs,
        resume: Default::default(),
        direct: None,
    };
    let mut out = BytesMut::new();
    Frame { stream: 0, kind: Kind::Message, payload: message::encode(&reply) }.encode(&mut out);
    out
}

/// Answers the hello, and then sends the same frames once or for ever.
#[derive(Clone, Default)]
struct Liar {
    runs: Vec<String>,
    says: Vec<Frame>,
    for_ever: bool,
}

impl Dial for Liar {
    fn dial(&self) -> Pin<Box<dyn Future<Output = Result<Carrier, DialError>> + Send + '_>> {
        let Self { runs, says, for_ever } = self.clone();
        Box::pin(async move {
            let (ours, theirs) = tokio::io::duplex(1 << 16);
            tokio::spawn(async move {
                let (mut from, mut to) = tokio::io::split(theirs);
                let _ = to.write_all(&greeting(runs)).await;
                // Read on until the daemon has opened a stream, which the frames below are about.
                let mut heard = BytesMut::new();
                while Frame::decode(&mut heard).is_ok_and(|frame| frame.is_none_or(|frame| frame.stream == 0))
                {
                    if from.read_buf(&mut heard).await.unwrap_or(0) == 0 {
                        return;
                    }
                }
                let mut frames = BytesMut::new();
                says.iter().for_each(|frame| frame.encode(&mut frames));
                let mut nowhere = tokio::io::sink();
                let reading = tokio::io::copy(&mut from, &mut nowhere);
                let writing = async {
                    while to.write_all(&frames).await.is_ok() && for_ever {}
                    std::future::pending::<()>().await;
                };
                tokio::select! { _ = reading => {}, () = writing => {} }
            });
            let (from, to) = tokio::io::split(ours);
            Ok((Box::new(from) as Box<_>, Box::new(to) as Box<_>))
        })
    }
}

/// Why a link is lost whose agent sends these frames.
async fn lost_to(says: &[(StreamId, Kind, &[u8])], for_ever: bool) -> LinkError {
    let frame = |(stream, kind, payload): &(StreamId, Kind, &[u8])| Frame {
        stream: *stream,
        kind: *kind,
        payload: Bytes::copy_from_slice(payload),
    };
    let liar = Liar { says: says.iter().map(frame).collect(), for_ever, ..Liar::default() };
    let (link, _) = Link::open(liar, terms()).await.unwrap();
    let _stream = link.request(&Request::Collect(CollectRules::All)).unwrap();
    let lost = tokio::time::timeout(Duration::from_secs(60), link.lost()).await.expect("the link is lost");
    assert!(link.request(&Request::Collect(CollectRules::All)).is_err());
    lost
}

#[tokio::test]
async fn an_agent_that_breaks_the_protocol_is_not_dialed_again() {
    let liar = Liar { runs: vec!["r".to_owned()], ..Liar::default() };
    let (_link, greeting) = Link::open(liar, terms()).await.unwrap();
    assert_eq!(greeting, Greeting { ran: true, claim: Some([7; 32]), runs: vec!["r".to_owned()] });
    let applied = message::encode(&Event::Applied);
    let lost = lost_to(&[(9, Kind::Message, &applied)], false).await;
    assert!(matches!(lost, LinkError::Protocol(ProtocolError::UnknownStream(9))), "{lost}");
}

#[tokio::test]
async fn an_agent_that_sends_too_many_stray_frames_loses_its_link() {
    for (kind, payload) in [(Kind::Reset, &[][..]), (Kind::Credit, &[0; 8]), (Kind::Credit, &[0; 60_000])] {
        let lost = lost_to(&[(1, kind, payload)], true).await;
        assert!(matches!(lost, LinkError::Protocol(ProtocolError::Stray)), "{kind:?}: {lost}");
    }
}

#[tokio::test]
async fn a_stream_of_the_agent_that_begins_with_no_ask_costs_it_its_link() {
    let applied = message::encode(&Event::Applied);
    for (kind, payload) in [
        (Kind::Message, &applied[..]),
        (Kind::Message, b""),
        (Kind::Data(Channel::Net), b"GET /"),
        (Kind::Eof(Channel::Net), b""),
        (Kind::Close, b""),
    ] {
        let lost = lost_to(&[(2, kind, payload)], false).await;
        assert!(matches!(lost, LinkError::Protocol(ProtocolError::Malformed("ask"))), "{kind:?}: {lost}");
    }
    let lost = lost_to(&[(2, Kind::Reset, b"")], false).await;
    assert!(matches!(lost, LinkError::Protocol(ProtocolError::UnknownStream(2))), "{lost}");
}

fn ask(name: &str) -> Ask {
    Ask::Name { run: None, name: name.to_owned() }
}

/// A link to an agent that follows the protocol, and the agent's mux; the carriers take so many bytes each.
async fn honest(bytes_per_carrier: usize) -> (Link, Arc<Mutex<Mux>>) {
    let mux = Arc::new(Mutex::new(Mux::new(Role::Agent)));
    let fake = Fake { mux: mux.clone(), dialed: Arc::default(), bytes_per_carrier };
    (Link::open(fake, terms()).await.unwrap().0, mux)
}

/// What the agent reads next on a stream.
async fn heard(mux: &Mutex<Mux>, id: StreamId) -> Inbound {
    let read = async {
        loop {
            if let Some(inbound) = mux.lock().unwrap().take(id) {
                return inbound;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), read).await.expect("something arrives")
}

#[tokio::test]
async fn what_programs_ask_for_is_reset_where_nobody_accepts_it() {
    let (link, mux) = honest(usize::MAX).await;
    let open = || mux.lock().unwrap().open(message::encode(&ask("a.example"))).unwrap();
    let id = open();
    assert_eq!(heard(&mux, id).await, Inbound::Reset);
    let asks = link.asks();
    let (accepted, waiting) = (open(), open());
    let stream = asks.accept().await.unwrap();
    assert_eq!(stream.ask(), &ask("a.example"));
    stream.reply(Reply::Allowed).await.unwrap();
    assert_eq!(heard(&mux, accepted).await, Inbound::Message(message::encode(&Reply::Allowed)));
    // Nobody accepts any more: what waits is reset, what was accepted goes on.
    drop(asks);
    assert_eq!(heard(&mux, waiting).await, Inbound::Reset);
    let id = open();
    assert_eq!(heard(&mux, id).await, Inbound::Reset);
    stream.write(Bytes::from_static(b"x")).await.unwrap();
    assert_eq!(heard(&mux, accepted).await, Inbound::Data(Channel::Net, Bytes::from_static(b"x")));
    drop(stream);
    assert_eq!(heard(&mux, accepted).await, Inbound::Reset);
}

#[tokio::test]
async fn a_connection_survives_the_break_of_its_carriers() {
    let (link, mux) = honest(200_000).await;
    let asks = link.asks();
    let id = mux.lock().unwrap().open(message::encode(&ask("a.example"))).unwrap();
    let stream = asks.accept().await.unwrap();
    let sent: Vec<u8> = (0..500_000u32).flat_map(u32::to_le_bytes).collect();
    let down = async {
        stream.write(sent.clone().into()).await.unwrap();
        stream.eof().await.unwrap();
    };
    let up = async {
        let mut pieces = sent.chunks(50_000);
        let mut piece = pieces.next();
        let mut read = Vec::new();
        let mut is_eof = false;
        while piece.is_some() || !is_eof {
            {
                let mut agent = mux.lock().unwrap();
                if let Some(bytes) = piece
                    && agent.has_room(id, bytes.len())
                {
                    agent.send(id, Kind::Data(Channel::Net), Bytes::copy_from_slice(bytes));
                    piece = pieces.next();
                    if piece.is_none() {
                        agent.send(id, Kind::Eof(Channel::Net), Bytes::new());
                    }
                }
                match agent.take(id) {
                    Some(Inbound::Data(_, bytes)) => read.extend_from_slice(&bytes),
                    Some(Inbound::Eof(_)) => is_eof = true,
                    None => {}
                    Some(other @ (Inbound::Message(_) | Inbound::Close | Inbound::Reset)) => {
                        panic!("{other:?}")
                    }
                }
            }
            tokio::task::yield_now().await;
        }
        read
    };
    let read = async {
        let mut read = Vec::new();
        while let NetInput::Data(bytes) = stream.read().await.unwrap() {
            read.extend_from_slice(&bytes);
        }
        read
    };
    let ((), at_agent, at_daemon) = tokio::join!(down, up, read);
    assert!(at_agent == sent, "{} of {} bytes, or others", at_agent.len(), sent.len());
    assert!(at_daemon == sent, "{} of {} bytes, or others", at_daemon.len(), sent.len());
}

#[tokio::test]
async fn a_connection_carries_nothing_but_its_bytes() {
    let (link, mux) = honest(usize::MAX).await;
    let asks = link.asks();
    for (kind, payload) in [
        (Kind::Data(Channel::Net), &b""[..]),
        (Kind::Data(Channel::Stdout), b"x"),
        (Kind::Eof(Channel::Stdin), b""),
        (Kind::Message, b"x"),
    ] {
        let id = mux.lock().unwrap().open(message::encode(&ask("a.example"))).unwrap();
        mux.lock().unwrap().send(id, kind, Bytes::from_static(payload));
        let stream = asks.accept().await.unwrap();
        let read = stream.read().await;
        assert!(matches!(read, Err(LinkError::Protocol(ProtocolError::Malformed(_)))), "{kind:?}: {read:?}");
    }
    assert!(link.fault().is_none());
}

#[tokio::test]
async fn an_agent_that_names_more_runs_than_it_can_have_is_refused() {
    for runs in [vec![String::new(); MAX_STREAMS + 1], vec!["x".repeat(4096)]] {
        let opened = Link::open(Liar { runs, ..Liar::default() }, terms()).await;
        assert!(matches!(opened.err(), Some(LinkError::Refused)));
    }
}

/// What a stream receives from an agent that sends this frame on it.
async fn receives(kind: Kind, payload: Bytes) -> Result<Incoming, LinkError> {
    let liar = Liar { says: vec![Frame { stream: 1, kind, payload }], ..Liar::default() };
    let (link, _) = Link::open(liar, terms()).await.unwrap();
    let stream = link.request(&Request::Collect(CollectRules::All)).unwrap();
    stream.next().await
}

#[tokio::test]
async fn a_sentence_of_an_agent_is_cut_and_empty_data_is_refused() {
    let what = "\u{e9}".repeat(50_000);
    match receives(Kind::Message, message::encode(&Event::Failed { what })).await {
        Ok(Incoming::Event(Event::Failed { what })) => assert_eq!(what, "\u{e9}".repeat(1024)),
        other => panic!("{other:?}"),
    }
    let nothing = receives(Kind::Data(Channel::Stdout), Bytes::new()).await;
    assert!(matches!(nothing, Err(LinkError::Protocol(ProtocolError::Malformed("data")))), "{nothing:?}");
}

#[path = "dials_tests.rs"]
mod dials;

#[path = "standing_tests.rs"]
mod standing;
