//! A container of a test: its agent, which follows a script over the real link, and what its engine says.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use paddock_proto::frame::Frame;
use paddock_proto::limits::BATCH;
use paddock_proto::message::{self, HelloReply, ResumePoints, VERSION};
use paddock_proto::mux::{Mux, Role};
use paddock_proto::{Channel, Inbound, Kind, Request, StreamId};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

use super::FakeLease;
use super::script::{Script, Step};
use crate::engine::ContainerStatus;
use crate::link::{Carrier, Dial, DialError, HelloTerms, Link};
use crate::pool::{Runner, WarmStage};
use crate::session::port::Container;

/// What the engine says of the container.
pub(in crate::session) struct FakeEngine {
    /// `None`: it does not answer.
    pub(in crate::session) status: Option<ContainerStatus>,
    pub(in crate::session) can_pause: bool,
    /// The archive of `/data`; `None`: it cannot be made.
    pub(in crate::session) archive: Option<Vec<u8>>,
    /// The container has ended by the time its archive is there.
    pub(in crate::session) dies_when_read: bool,
    pub(in crate::session) can_unpack: bool,
    /// What was asked of it.
    pub(in crate::session) calls: Vec<&'static str>,
    /// Bytes of the archive that was unpacked.
    pub(in crate::session) unpacked: usize,
}

/// A container of a test; clones are handles on the same.
#[derive(Clone)]
pub(in crate::session) struct FakeContainer(pub(super) Arc<Inner>);

pub(super) struct Inner {
    pub(super) name: String,
    pub(super) runner: Runner,
    script: Mutex<Script>,
    engine: Mutex<FakeEngine>,
    mux: Mutex<Mux>,
    /// Something arrived, or may be sent.
    changed: Notify,
    transmit: Notify,
    received: Mutex<Vec<Request>>,
    input: Mutex<Vec<(Channel, Bytes)>>,
    end_requests: watch::Sender<usize>,
    pub(super) warm: watch::Sender<WarmStage>,
    pub(super) is_warm_wanted: AtomicBool,
    dead: CancellationToken,
    /// Whether its lease was dropped.
    pub(super) is_given_up: AtomicBool,
    /// Whether its workspace is kept when it is.
    pub(super) keeps_workspace: AtomicBool,
    /// Whether another version of the daemon made it.
    pub(super) is_outdated: AtomicBool,
}

impl FakeContainer {
    /// A container with an honest agent.
    pub(in crate::session) fn new(name: &str) -> Self {
        Self::scripted(name, |_| {})
    }

    /// A container whose agent differs in this.
    pub(in crate::session) fn scripted(name: &str, change: impl FnOnce(&mut Script)) -> Self {
        let mut script = Script::default();
        change(&mut script);
        let runner = Runner {
            language: "python".into(),
            image: "python".into(),
            image_id: "python".parse().unwrap(),
            argv: vec!["python3".into()],
            env: Vec::new(),
            libraries: String::new(),
            stdin: true,
            typecheck: false,
            warm: Vec::new(),
            snapshot_labels: None,
            snapshot: crate::pool::SnapshotMount::None,
            volumes: Vec::new(),
            packages: None,
            fetches: false,
            coding_agent: false,
            agent_labels: crate::pool::AgentLabels::default(),
            mounts: Vec::new(),
            bounds: crate::pool::Bounds { place: script.place, ..crate::pool::Bounds::example() },
            idle: 2,
        };
        let engine = FakeEngine {
            status: Some(ContainerStatus::Running),
            can_pause: true,
            archive: None,
            dies_when_read: false,
            can_unpack: true,
            calls: Vec::new(),
            unpacked: 0,
        };
        Self(Arc::new(Inner {
            name: name.to_owned(),
            runner,
            script: Mutex::new(script),
            engine: Mutex::new(engine),
            mux: Mutex::new(Mux::new(Role::Agent)),
            changed: Notify::new(),
            transmit: Notify::new(),
            received: Mutex::default(),
            input: Mutex::default(),
            end_requests: watch::Sender::new(0),
            warm: watch::Sender::new(WarmStage::Absent),
            is_warm_wanted: AtomicBool::new(false),
            dead: CancellationToken::new(),
            is_given_up: AtomicBool::new(false),
            keeps_workspace: AtomicBool::new(false),
            is_outdated: AtomicBool::new(false),
        }))
    }

    pub(in crate::session) fn script(&self) -> MutexGuard<'_, Script> {
        self.0.script.lock().unwrap()
    }

    pub(in crate::session) fn engine(&self) -> MutexGuard<'_, FakeEngine> {
        self.0.engine.lock().unwrap()
    }

    pub(in crate::session) fn warm(&self) -> &watch::Sender<WarmStage> {
        &self.0.warm
    }

    pub(in crate::session) fn is_warm_wanted(&self) -> bool {
        self.0.is_warm_wanted.load(Relaxed)
    }

    /// Messages that the agent received, in order.
    pub(in crate::session) fn received(&self) -> Vec<Request> {
        self.0.received.lock().unwrap().clone()
    }

    /// How many messages for which this holds it received.
    pub(in crate::session) fn count(&self, is_such: impl Fn(&Request) -> bool) -> usize {
        self.0.received.lock().unwrap().iter().filter(|request| is_such(request)).count()
    }

    /// How many programs it was sent.
    pub(in crate::session) fn runs(&self) -> usize {
        self.count(|request| matches!(request, Request::Run(_)))
    }

    /// Bytes of this channel that it received.
    pub(in crate::session) fn input(&self, channel: Channel) -> Vec<u8> {
        let input = self.0.input.lock().unwrap();
        input.iter().filter(|(of, _)| *of == channel).flat_map(|(_, bytes)| bytes.to_vec()).collect()
    }

    /// Waits until the agent has received such a message.
    pub(in crate::session) async fn until(&self, is_such: impl Fn(&Request) -> bool) {
        loop {
            let mut changed = pin!(self.0.changed.notified());
            changed.as_mut().enable();
            if self.count(&is_such) > 0 {
                return;
            }
            changed.await;
        }
    }

    /// Whether its lease was dropped.
    pub(in crate::session) fn is_given_up(&self) -> bool {
        self.0.is_given_up.load(Relaxed)
    }

    /// Whether its workspace is kept after that.
    pub(in crate::session) fn keeps_workspace(&self) -> bool {
        self.0.keeps_workspace.load(Relaxed)
    }

    /// From now on it counts as made by another version of the daemon.
    pub(in crate::session) fn is_of_another_version(&self) {
        self.0.is_outdated.store(true, Relaxed);
    }

    /// Lets steps go on that wait for a request to end a run.
    pub(in crate::session) fn tell_to_end(&self) {
        self.0.end_requests.send_modify(|requests| *requests += 1);
    }

    /// Kills the container.
    pub(in crate::session) fn kill(&self) {
        self.0.dead.cancel();
    }

    /// Its link, as the pool opens it when it arms the container.
    pub(in crate::session) async fn link(&self) -> Link {
        let terms =
            HelloTerms { secret: [7; 32], orphan_after: Duration::from_secs(60), listen_ports: vec![] };
        Link::open(self.clone(), terms).await.unwrap().0
    }

    /// The container as a session holds it.
    pub(in crate::session) async fn lease(&self) -> Box<dyn Container> {
        Box::new(FakeLease::new(self.link().await, self.clone()))
    }

    fn mux(&self) -> MutexGuard<'_, Mux> {
        self.0.mux.lock().unwrap()
    }

    /// Carries bytes between the mux and one carrier.
    async fn serve(self, mut carrier: DuplexStream) {
        let (mut input, mut out) = (BytesMut::new(), BytesMut::new());
        while Frame::decode(&mut input).unwrap().is_none() {
            carrier.read_buf(&mut input).await.unwrap();
        }
        let reply = HelloReply {
            version: VERSION,
            ran: false,
            claim: None,
            runs: Vec::new(),
            resume: ResumePoints::default(),
            direct: None,
        };
        Frame { stream: 0, kind: Kind::Message, payload: message::encode(&reply) }.encode(&mut out);
        loop {
            {
                let mut mux = self.mux();
                mux.on_bytes(&mut input, |_| {}).unwrap();
                while let Some(id) = mux.accept() {
                    let (agent, dead) = (self.clone(), self.0.dead.clone());
                    tokio::spawn(dead.run_until_cancelled_owned(async move { agent.stream(id).await }));
                }
                while mux.transmit(&mut out, BATCH) {}
            }
            self.0.changed.notify_waiters();
            if carrier.write_all(&out.split()).await.is_err() {
                return;
            }
            tokio::select! {
                () = self.0.dead.cancelled() => return,
                read = carrier.read_buf(&mut input) => if read.unwrap_or(0) == 0 { return },
                () = self.0.transmit.notified() => {}
            }
        }
    }

    /// Follows the script on one stream.
    async fn stream(&self, id: StreamId) {
        loop {
            let request = match self.take(id).await {
                Inbound::Message(bytes) => message::decode::<Request>(&bytes).unwrap(),
                Inbound::Close | Inbound::Reset => return self.mux().finish(id),
                Inbound::Data(..) | Inbound::Eof(_) => continue,
            };
            let script = self.script().clone();
            let steps = match request {
                Request::Claim(_) => script.claim,
                Request::Apply => script.apply,
                Request::Run(_) => script.run,
                Request::Attach(_) => script.attach,
                Request::Collect(_) => script.collect,
                Request::Commit => script.commit,
                Request::Base => script.base,
                Request::Settle => script.settle,
                Request::Meter => script.meter,
                Request::End { .. } => {
                    self.tell_to_end();
                    script.end
                }
                Request::Put(_)
                | Request::Remove(_)
                | Request::Agreed(_)
                | Request::Probe(_)
                | Request::Warm(_)
                | Request::Dial { .. } => Vec::new(),
            };
            for step in steps {
                self.act(id, step).await;
            }
        }
    }

    async fn act(&self, id: StreamId, step: Step) {
        match step {
            Step::Say(event) => self.send(id, Kind::Message, message::encode(&event)).await,
            Step::Write(channel, mut bytes) => {
                while !bytes.is_empty() {
                    let piece = bytes.split_to(bytes.len().min(64 * 1024));
                    self.send(id, Kind::Data(channel), piece).await;
                }
            }
            Step::Wait(time) => tokio::time::sleep(time).await,
            Step::UntilEof(channel) => while self.take(id).await != Inbound::Eof(channel) {},
            Step::UntilClosed => while self.take(id).await != Inbound::Close {},
            Step::UntilToldToEnd => {
                let _ = self.0.end_requests.subscribe().wait_for(|requests| *requests > 0).await;
            }
            Step::Close => self.send(id, Kind::Close, Bytes::new()).await,
            Step::Reset => {
                self.mux().reset(id);
                self.0.transmit.notify_one();
            }
            Step::Die => {
                // What it said before still arrives.
                self.when(|mux| (!mux.is_pressing()).then_some(())).await;
                self.kill();
                std::future::pending().await
            }
            Step::Hang => std::future::pending().await,
        }
    }

    /// The next thing that arrives on a stream. A stream that the daemon gave up says nothing more.
    async fn take(&self, id: StreamId) -> Inbound {
        let inbound = self.when(|mux| mux.take(id)).await;
        match &inbound {
            Inbound::Message(bytes) => {
                self.0.received.lock().unwrap().push(message::decode(bytes).unwrap());
                self.0.changed.notify_waiters();
            }
            Inbound::Data(channel, bytes) => {
                self.0.input.lock().unwrap().push((*channel, bytes.clone()));
            }
            Inbound::Reset => std::future::pending().await,
            Inbound::Eof(_) | Inbound::Close => {}
        }
        self.0.transmit.notify_one();
        inbound
    }

    async fn send(&self, id: StreamId, kind: Kind, payload: Bytes) {
        self.when(|mux| mux.has_room(id, payload.len()).then(|| mux.send(id, kind, payload.clone()))).await;
        self.0.transmit.notify_one();
    }

    async fn when<T>(&self, mut ready: impl FnMut(&mut Mux) -> Option<T>) -> T {
        loop {
            let mut changed = pin!(self.0.changed.notified());
            changed.as_mut().enable();
            let done = ready(&mut self.mux());
            if let Some(done) = done {
                return done;
            }
            changed.await;
        }
    }
}

impl Dial for FakeContainer {
    fn dial(&self) -> Pin<Box<dyn Future<Output = Result<Carrier, DialError>> + Send + '_>> {
        Box::pin(async {
            if self.0.dead.is_cancelled() {
                return Err(DialError::Gone("it is dead".into()));
            }
            let (ours, theirs) = tokio::io::duplex(1 << 20);
            tokio::spawn(self.clone().serve(theirs));
            let (from, to) = tokio::io::split(ours);
            Ok((Box::new(from) as Box<_>, Box::new(to) as Box<_>))
        })
    }
}
