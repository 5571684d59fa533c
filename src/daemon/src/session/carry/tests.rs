//! What is taken of a container whose agent lies.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::BytesMut;
use paddock_proto::frame::Frame;
use paddock_proto::limits::BATCH;
use paddock_proto::message::{self, HelloReply, VERSION};
use paddock_proto::mux::{Mux, Role};
use paddock_proto::{Inbound, Kind, RelPath};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::*;
use crate::config::{Config, Overrides};
use crate::link::{Carrier, Dial, DialError, Terms};
use crate::store::{Options, Quota, Store};

/// Says these on the first stream, whatever is asked on it, and hears whether they were committed.
#[derive(Clone)]
struct Says {
    events: Vec<Event>,
    committed: Arc<AtomicBool>,
}

impl Dial for Says {
    fn dial(&self) -> Pin<Box<dyn Future<Output = Result<Carrier, DialError>> + Send + '_>> {
        let (ours, mut theirs) = tokio::io::duplex(1 << 16);
        let Self { events, committed } = self.clone();
        tokio::spawn(async move {
            let reply = HelloReply {
                version: VERSION,
                ran: true,
                claim: None,
                runs: Vec::new(),
                resume: message::ResumePoints::default(),
                direct: None,
            };
            let (mut mux, mut input, mut out) = (Mux::new(Role::Agent), BytesMut::new(), BytesMut::new());
            Frame { stream: 0, kind: Kind::Message, payload: message::encode(&reply) }.encode(&mut out);
            while Frame::decode(&mut input).unwrap().is_none() {
                theirs.read_buf(&mut input).await.unwrap();
            }
            let mut events = events.into_iter().map(|event| message::encode(&event)).peekable();
            loop {
                mux.on_bytes(&mut input, |_| {}).unwrap();
                while mux.accept().is_some() {}
                while let Some(Inbound::Message(bytes)) = mux.take(1) {
                    if message::decode(&bytes) == Ok(Request::Commit) {
                        committed.store(true, Ordering::Relaxed);
                    }
                }
                while mux.resume_points().highest > 0
                    && let Some(next) = events.next_if(|next| mux.has_room(1, next.len()))
                {
                    mux.send(1, Kind::Message, next);
                }
                mux.transmit(&mut out, BATCH);
                if theirs.write_all(&out.split()).await.is_err()
                    || theirs.read_buf(&mut input).await.unwrap_or(0) == 0
                {
                    return;
                }
            }
        });
        let (from, to) = tokio::io::split(ours);
        Box::pin(async { Ok((Box::new(from) as Box<_>, Box::new(to) as Box<_>)) })
    }
}

fn bounds() -> SessionBounds {
    let config = Config::load(None, &BTreeMap::new(), &Overrides::default()).unwrap().config;
    SessionBounds { data: 1 << 20, data_inodes: 1000, ..crate::app::session_bounds(&config) }
}

/// What is made of a collection in which an agent says this, and whether it was committed.
async fn collected(events: impl IntoIterator<Item = Event>) -> (Result<Collected, SessionError>, bool) {
    let root = tempfile::tempdir().unwrap();
    let quota = Quota { bytes: 1 << 20, entries: 1000, file: 1 << 20 };
    let store = Arc::new(Store::open(root.path(), Options { quota, total: 1 << 30 }).unwrap());
    let space = store.space("o", "s").await.unwrap();
    let committed = Arc::new(AtomicBool::new(false));
    let says = Says { events: events.into_iter().collect(), committed: committed.clone() };
    let terms = Terms { secret: [7; 32], orphan_after: Duration::from_secs(60) };
    let (link, _) = Link::open(says, terms).await.unwrap();
    let stream = link.request(&Request::Collect).unwrap();
    let mut known = Known::default();
    known.paths.insert(path("known"), 1);
    let done = collect(&space, &stream, &mut known, &bounds()).await;
    (done, committed.load(Ordering::Relaxed))
}

fn path(text: &str) -> RelPath {
    RelPath::new(text).unwrap()
}

fn skipped(path: Vec<u8>) -> Event {
    Event::Skipped { path, reason: SkipReason::Path }
}

const END: Event = Event::Collected { entries: 0 };

fn is_refused(done: &(Result<Collected, SessionError>, bool)) -> bool {
    matches!(done, (Err(SessionError::Link(LinkError::Refused)), false))
}

#[tokio::test]
async fn what_was_not_saved_is_named_up_to_a_bound() {
    let many = (0..2000).map(|n| skipped(n.to_string().into_bytes()));
    let (done, _) = collected(many.chain([END])).await;
    assert_eq!(done.unwrap().not_saved.len(), MAX_NOT_SAVED);
    let longest = skipped(vec![b'x'; MAX_SKIPPED]);
    assert_eq!(collected([longest, END]).await.0.unwrap().not_saved.len(), 1);
    let longer = skipped(vec![b'x'; MAX_SKIPPED + 1]);
    assert!(is_refused(&collected([longer, END]).await));
    let endless = (0..3001).map(|_| skipped(b"x".to_vec()));
    assert!(is_refused(&collected(endless).await));
}

#[tokio::test]
async fn what_goes_was_known_and_goes_once() {
    let gone = || Event::Removed(path("known"));
    assert!(collected([gone(), END]).await.0.is_ok());
    assert!(is_refused(&collected([gone(), gone(), END]).await));
    let unknown = || Event::Removed(path("never/heard/of"));
    assert!(
        collected([unknown(), unknown(), END]).await.0.is_ok(),
        "there is nothing to do, and nothing is kept"
    );
}
