//! The way out of a container that is no container: an agent of a few lines at the end of a real link, the
//! programs that it speaks for, and real servers on loopback.

use std::collections::HashMap;
use std::future::Future;
use std::net::IpAddr;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use paddock_proto::frame::Frame;
use paddock_proto::limits::BATCH;
use paddock_proto::message::{
    self, Ask, ConnectFailure, Hello, HelloReply, Host as AskedHost, Reply, VERSION,
};
use paddock_proto::mux::{Mux, Role};
use paddock_proto::{Channel, Inbound, Kind, StreamId};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tracing::Span;

use super::approval::AskBounds;
use super::gateway::{Egress, Gateway};
use super::host_name::HostName;
use super::policy::{EgressRules, NetworkMode, NetworkPolicy};
use super::request::NetworkRequest;
use super::resolve::Lookup;
use super::settings::{EgressBounds, EgressSettings};
use crate::link::{Carrier, Dial, DialError, HelloTerms, Link};
use crate::metrics::{DaemonState, Metrics};

/// Longer than anything here takes.
const SOON: Duration = Duration::from_secs(20);

/// Waits for what must happen soon.
pub(super) async fn soon<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(SOON, what).await.expect("it happens soon")
}

pub(super) const BOUNDS: EgressBounds = EgressBounds {
    connections_per_run: 8,
    connections_per_token: 12,
    connections: 16,
    connect: Duration::from_secs(5),
    idle: Duration::from_secs(30),
    bytes_per_run: 1 << 40,
    names_per_run: 4,
    requests_per_run: 8,
    ask: AskBounds { questions: 2, within: Duration::from_secs(60) },
};

/// The token that the session of a container belongs to.
pub(super) const OWNER: &str = "a token";

/// Name servers that know these names.
#[derive(Default)]
pub(super) struct Names(pub(super) HashMap<&'static str, Vec<IpAddr>>);

#[async_trait]
impl Lookup for Names {
    async fn addresses(&self, name: &HostName) -> Vec<IpAddr> {
        self.0.get(name.as_str()).cloned().unwrap_or_default()
    }
}

fn rules() -> EgressRules {
    EgressRules {
        mode: NetworkMode::Open,
        allow: Vec::new(),
        deny: Vec::new(),
        private: vec!["127.0.0.1".parse().unwrap()],
        own_addresses: Vec::new(),
        ask: false,
    }
}

/// What an operator decides who allows 127.0.0.1 as a private address, and has these bounds.
pub(super) fn settings(bounds: EgressBounds) -> EgressSettings {
    EgressSettings {
        rules: rules(),
        hosts: Vec::new(),
        services: Vec::new(),
        bounds,
        upstream_proxy: None,
        upstream_resolves: false,
        ca_bundle: None,
        listen_ports: Vec::new(),
    }
}

/// A policy that allows these; of private addresses only 127.0.0.1.
pub(super) fn policy(allowed: &[&str]) -> Arc<NetworkPolicy> {
    let allowed_domains = allowed.iter().map(|text| (*text).to_owned()).collect();
    Arc::new(rules().policy(&NetworkRequest { allowed_domains, ..NetworkRequest::default() }).unwrap())
}

/// A listener on loopback, and its port.
pub(super) async fn listener() -> (TcpListener, u16) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    (listener, port)
}

/// An ask for a connection to this name.
pub(super) fn to_name(run: &str, name: &str, port: u16) -> Ask {
    Ask::Connect { run: run.to_owned(), host: AskedHost::Name(name.to_owned()), port }
}

/// An ask for a connection to 127.0.0.1.
pub(super) fn to_loopback(run: &str, port: u16) -> Ask {
    Ask::Connect { run: run.to_owned(), host: AskedHost::Address([127, 0, 0, 1].into()), port }
}

/// The daemon's side and the container's.
pub(super) struct World {
    pub(super) egress: Arc<Egress>,
    pub(super) metrics: Metrics,
    pub(super) link: Link,
    pub(super) agent: Agent,
    pub(super) gateway: Gateway,
}

impl World {
    pub(super) async fn new() -> Self {
        Self::with(BOUNDS, Names::default()).await
    }

    pub(super) async fn with(bounds: EgressBounds, names: Names) -> Self {
        Self::of(&settings(bounds), names).await
    }

    pub(super) async fn of(settings: &EgressSettings, names: Names) -> Self {
        let metrics = Metrics::default();
        let egress = Egress::new(settings, names, metrics.clone());
        let (agent, link) = Agent::linked().await;
        let gateway = egress.gateway(&link, OWNER, Arc::default(), Span::none()).open();
        Self { egress, metrics, link, agent, gateway }
    }

    /// The value of a metric; its name comes with its labels.
    pub(super) fn metric(&self, name: &str) -> f64 {
        let text = self.metrics.text(&DaemonState::default());
        let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        value.unwrap_or_else(|| panic!("no {name} in {text}")).parse().unwrap()
    }

    /// A connection of a run that was admitted, and the other side of it.
    pub(super) async fn connected(&self, listener: &TcpListener, run: &str) -> (Program, TcpStream) {
        let program = self.agent.ask(&to_loopback(run, listener.local_addr().unwrap().port()));
        program.expect_connected().await;
        (program, soon(listener.accept()).await.unwrap().0)
    }
}

/// PID 1 of a container that is none. Clones are handles on the same.
#[derive(Clone)]
pub(super) struct Agent {
    mux: Arc<Mutex<Mux>>,
    news: Arc<Notify>,
    transmit: Arc<Notify>,
}

impl Agent {
    /// An agent, and the daemon's end of the link to it.
    pub(super) async fn linked() -> (Self, Link) {
        let agent = Self {
            mux: Arc::new(Mutex::new(Mux::new(Role::Agent))),
            news: Arc::default(),
            transmit: Arc::default(),
        };
        let terms =
            HelloTerms { secret: [7; 32], orphan_after: Duration::from_secs(60), listen_ports: vec![] };
        let (link, _) = Link::open(agent.clone(), terms).await.unwrap();
        (agent, link)
    }

    /// A program asks for something.
    pub(super) fn ask(&self, ask: &Ask) -> Program {
        self.open(message::encode(ask))
    }

    /// Opens a stream with any first message.
    pub(super) fn open(&self, first: Bytes) -> Program {
        let id = self.mux.lock().unwrap().open(first).unwrap();
        self.transmit.notify_one();
        Program { id, agent: self.clone() }
    }

    async fn carry(self, mut carrier: DuplexStream) {
        let mut input = BytesMut::new();
        let _hello: Hello = loop {
            if let Some(frame) = Frame::decode(&mut input).unwrap() {
                break message::decode(&frame.payload).unwrap();
            }
            carrier.read_buf(&mut input).await.unwrap();
        };
        let reply = HelloReply {
            version: VERSION,
            ran: false,
            claim: None,
            runs: Vec::new(),
            resume: Default::default(),
            direct: None,
        };
        let mut out = BytesMut::new();
        Frame { stream: 0, kind: Kind::Message, payload: message::encode(&reply) }.encode(&mut out);
        let (mut from, mut to) = tokio::io::split(carrier);
        let reading = async {
            loop {
                self.mux.lock().unwrap().on_bytes(&mut input, |_| {}).unwrap();
                self.news.notify_waiters();
                self.transmit.notify_one();
                if from.read_buf(&mut input).await.unwrap_or(0) == 0 {
                    return;
                }
            }
        };
        let writing = async {
            loop {
                while self.mux.lock().unwrap().transmit(&mut out, BATCH) || !out.is_empty() {
                    if to.write_all(&out.split()).await.is_err() {
                        return;
                    }
                }
                self.transmit.notified().await;
            }
        };
        tokio::select! { () = reading => {}, () = writing => {} }
    }
}

impl Dial for Agent {
    fn dial(&self) -> Pin<Box<dyn Future<Output = Result<Carrier, DialError>> + Send + '_>> {
        let (ours, theirs) = tokio::io::duplex(1 << 20);
        tokio::spawn(self.clone().carry(theirs));
        let (from, to) = tokio::io::split(ours);
        Box::pin(async { Ok((Box::new(from) as Box<_>, Box::new(to) as Box<_>)) })
    }
}

/// One stream of the agent: what a program has of its connection. Dropping it does nothing.
pub(super) struct Program {
    id: StreamId,
    agent: Agent,
}

impl Program {
    /// What the daemon sends next.
    pub(super) async fn next(&self) -> Inbound {
        soon(async {
            loop {
                let mut news = pin!(self.agent.news.notified());
                news.as_mut().enable();
                if let Some(inbound) = self.agent.mux.lock().unwrap().take(self.id) {
                    self.agent.transmit.notify_one();
                    return inbound;
                }
                news.await;
            }
        })
        .await
    }

    pub(super) async fn reply(&self) -> Reply {
        let inbound = self.next().await;
        let Inbound::Message(bytes) = inbound else { panic!("{inbound:?} in place of a reply") };
        message::decode(&bytes).unwrap()
    }

    /// What comes of it; the daemon says before that it is allowed, if that takes time.
    pub(super) async fn outcome(&self) -> Reply {
        match self.reply().await {
            Reply::Allowed => self.reply().await,
            reply @ (Reply::Connected | Reply::Refused(_)) => reply,
        }
    }

    pub(super) async fn expect_connected(&self) {
        assert_eq!(self.outcome().await, Reply::Connected);
    }

    /// Expects that there is no connection, for this reason.
    pub(super) async fn expect_refused(&self, why: ConnectFailure) {
        assert_eq!(self.outcome().await, Reply::Refused(why));
        assert_eq!(self.next().await, Inbound::Close);
    }

    /// Expects an answer after which the stream is closed.
    pub(super) async fn expect_last(&self, reply: Reply) {
        assert_eq!(self.reply().await, reply);
        assert_eq!(self.next().await, Inbound::Close);
    }

    /// Sends, and waits for room.
    pub(super) async fn send(&self, bytes: &[u8]) {
        for piece in bytes.chunks(64 * 1024) {
            self.queue(Kind::Data(Channel::Net), Bytes::copy_from_slice(piece)).await;
        }
    }

    pub(super) async fn eof(&self) {
        self.queue(Kind::Eof(Channel::Net), Bytes::new()).await;
    }

    pub(super) async fn close(&self) {
        self.queue(Kind::Close, Bytes::new()).await;
    }

    pub(super) async fn queue(&self, kind: Kind, payload: Bytes) {
        soon(async {
            loop {
                let mut news = pin!(self.agent.news.notified());
                news.as_mut().enable();
                {
                    let mut mux = self.agent.mux.lock().unwrap();
                    if mux.has_room(self.id, payload.len()) {
                        mux.send(self.id, kind, payload.clone());
                        self.agent.transmit.notify_one();
                        return;
                    }
                }
                news.await;
            }
        })
        .await;
    }

    /// Resets the connection.
    pub(super) fn reset(&self) {
        self.agent.mux.lock().unwrap().reset(self.id);
        self.agent.transmit.notify_one();
    }

    /// Everything that comes until the other side's half ends.
    pub(super) async fn read_to_eof(&self) -> Vec<u8> {
        let mut all = Vec::new();
        loop {
            let inbound = self.next().await;
            if inbound == Inbound::Eof(Channel::Net) {
                return all;
            }
            let Inbound::Data(Channel::Net, bytes) = inbound else {
                panic!("{inbound:?} after {} bytes", all.len());
            };
            all.extend_from_slice(&bytes);
        }
    }

    /// Expects that the connection is reset, whatever came before.
    pub(super) async fn expect_reset(&self) {
        while let Inbound::Data(..) = {
            let next = self.next().await;
            assert!(matches!(next, Inbound::Data(..) | Inbound::Reset), "{next:?}");
            next
        } {}
    }
}
