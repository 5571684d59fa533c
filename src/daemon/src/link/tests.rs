//! A link whose carriers break, against an agent of a few lines.

use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::{Bytes, BytesMut};
use paddock_proto::frame::Frame;
use paddock_proto::message::{Hello, HelloReply, VERSION};
use paddock_proto::{Channel, Event, Inbound, Kind};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

use super::*;

/// Dials a pretended agent that survives its carriers; each carrier dies after so many bytes down.
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
            return; // the carrier dies with whatever is under way
        }
    }
}

fn terms() -> Terms {
    Terms { secret: [7; 32], orphan_after: Duration::from_secs(60) }
}

#[tokio::test]
async fn a_stream_does_not_notice_that_its_carriers_break() {
    let dialed = Arc::new(AtomicUsize::new(0));
    let mux = Arc::new(Mutex::new(Mux::new(Role::Agent)));
    let fake = Fake { mux, dialed: dialed.clone(), bytes_per_carrier: 100_000 };
    let (link, greeting) = Link::open(fake, terms()).await.unwrap();
    assert!(!greeting.ran);
    let stream = link.request(&Request::Collect).unwrap();
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
async fn an_agent_that_cannot_be_reached_is_said_so() {
    let error = Link::open(Never, terms()).await.err().unwrap();
    assert_eq!(error.to_string(), "the container's agent could not be reached: no such container");
}

/// Answers the hello rightly and then talks nonsense.
struct Liar;

impl Dial for Liar {
    fn dial(&self) -> Pin<Box<dyn Future<Output = Result<Carrier, DialError>> + Send + '_>> {
        Box::pin(async {
            let (ours, mut theirs) = tokio::io::duplex(4096);
            tokio::spawn(async move {
                let reply = HelloReply {
                    version: VERSION,
                    ran: true,
                    claim: Some([7; 32]),
                    runs: vec!["r".to_owned()],
                    resume: Default::default(),
                    direct: None,
                };
                let mut out = BytesMut::new();
                Frame { stream: 0, kind: Kind::Message, payload: message::encode(&reply) }.encode(&mut out);
                Frame { stream: 9, kind: Kind::Message, payload: message::encode(&Event::Applied) }
                    .encode(&mut out);
                let _ = theirs.write_all(&out).await;
                let mut rest = Vec::new();
                let _ = theirs.read_to_end(&mut rest).await;
            });
            let (from, to) = tokio::io::split(ours);
            Ok((Box::new(from) as Box<_>, Box::new(to) as Box<_>))
        })
    }
}

#[tokio::test]
async fn an_agent_that_breaks_the_protocol_is_not_dialed_again() {
    let (link, greeting) = Link::open(Liar, terms()).await.unwrap();
    assert_eq!(greeting, Greeting { ran: true, claim: Some([7; 32]), runs: vec!["r".to_owned()] });
    assert!(matches!(link.lost().await, LinkError::Protocol(ProtocolError::UnknownStream(9))));
    assert!(link.request(&Request::Collect).is_err());
}
