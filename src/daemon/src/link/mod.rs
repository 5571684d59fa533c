//! The daemon's end of the connection to an agent: streams that survive whatever happens to the carrier
//! beneath them.
//!
//! ```text
//!  Link::open ─► keeper task ─► take the standing pair ───────────► hello ─► carry bytes ⇄ mux
//!                   ▲            or dial (exec the bridge) ─► hello ─┘          │ carrier broke: code killed
//!                   │                                                           │ the bridge, the engine
//!                   └────────────── redial, resume ◄────────────────────────────┘ restarted, …
//!                                        │ not within REDIAL_FOR
//!                                        ▼
//!                                      lost: every stream answers LinkError
//! ```
//!
//! Requests are streams that the daemon opens, connections to servers in the container too ([`Link::dials`]);
//! what programs ask for comes on streams that the agent opens ([`Link::asks`]). The keeper lives as long as
//! a [`Link`] does. It must never redial a container whose agent broke the protocol, and must never hold the
//! mux's lock across an await.

mod asks;
mod bridge;
mod dials;
mod direct;
mod keeper;
mod raw;
mod stream;
mod take;

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use paddock_proto::message::{self, Claim, Offer};
use paddock_proto::mux::Role;
use paddock_proto::{Mux, ProtocolError, Request, StreamId};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{Notify, watch};
use tokio_util::sync::{CancellationToken, DropGuard};

pub use asks::{AskStream, Asks, NetInput};
pub use bridge::Bridge;
pub use dials::{DialStream, Dials, PortDialError};
pub use stream::{Incoming, PutPart, Stream};
pub use take::is_allowed as may_trace;

/// How long one attempt to reach the agent may take: an exec takes 60 ms, and more on a loaded engine.
pub const DIAL_WITHIN: Duration = Duration::from_secs(10);

/// How long the keeper tries to replace a broken carrier before the container is given up.
pub const REDIAL_FOR: Duration = Duration::from_secs(15);

/// Why a link or a stream of it failed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum LinkError {
    /// The bridge could not be started, or ended before its first byte.
    #[error("the container's agent could not be reached: {0}")]
    Unreachable(String),
    /// The agent did not answer the hello as the protocol says.
    #[error("the container's agent gave no valid answer to the hello")]
    Refused,
    /// The agent broke the protocol.
    #[error("the container's agent broke the protocol: {0}")]
    Protocol(#[from] ProtocolError),
    /// The agent abandoned the stream.
    #[error("the container's agent abandoned the request")]
    Reset,
    /// The agent did not answer in time.
    #[error("the container's agent did not answer within {0:?}")]
    Silent(Duration),
    /// The last handle of the link was dropped.
    #[error("the container was released")]
    Closed,
}

/// A connection to an agent: its reading and its writing side.
pub type Carrier = (Box<dyn AsyncRead + Send + Unpin>, Box<dyn AsyncWrite + Send + Unpin>);

/// Why there is no new carrier.
#[derive(Debug, Clone, thiserror::Error)]
pub enum DialError {
    /// The container does not exist or does not run: no later attempt can succeed.
    #[error("{0}")]
    Gone(String),
    /// This attempt failed; a later one may succeed.
    #[error("{0}")]
    Failed(String),
}

/// Makes carriers to one container. Implemented by [`Bridge`], and by tests that break them.
pub trait Dial: Send + Sync + 'static {
    /// Makes a new carrier. The one before is broken or about to be abandoned.
    fn dial(&self) -> Pin<Box<dyn Future<Output = Result<Carrier, DialError>> + Send + '_>>;

    /// Whether this dialer can make direct carriers, from a standing pair or from an offer.
    fn wants_direct(&self) -> bool {
        false
    }

    /// Takes the direct carrier that stands ready, so that nothing needs to be dialed. [`DialError::Gone`]:
    /// its process has ended, if it was one of this machine.
    fn standing(&self) -> Pin<Box<dyn Future<Output = Result<Carrier, DialError>> + Send + '_>> {
        Box::pin(async { Err(DialError::Failed("this dialer has no carrier that stands ready".to_owned())) })
    }

    /// Makes a direct carrier from the agent's offer, in place of the one that was dialed.
    fn direct(&self, _: Offer) -> Pin<Box<dyn Future<Output = Result<Carrier, DialError>> + Send + '_>> {
        Box::pin(async { Err(DialError::Failed("this dialer makes no direct carrier".to_owned())) })
    }
}

/// How the daemon identifies itself in the hello.
#[derive(Clone)]
pub struct HelloTerms {
    /// Known only to the daemons of this store and to PID 1 of this container.
    pub secret: [u8; 32],
    /// PID 1 ends itself after this long without a daemon.
    pub orphan_after: Duration,
    /// Ports on which PID 1 listens for each name, where it is not told of connections.
    pub listen_ports: Vec<u16>,
}

/// What a container's agent reported about itself in its first answer. The daemon does not trust it, like
/// everything that comes from a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Greeting {
    /// Whether any code has run in the container.
    pub ran: bool,
    /// The session that it belongs to.
    pub claim: Option<Claim>,
    /// The runs whose end no daemon has received.
    pub runs: Vec<String>,
}

/// A handle on an armed container's agent; clones share it. Dropping the last one closes the carrier.
#[derive(Clone)]
pub struct Link {
    shared: Arc<LinkState>,
    _keeper: Arc<DropGuard>,
}

struct LinkState {
    mux: Mutex<MuxState>,
    /// Wakes the keeper when the mux has something to send.
    transmit: Notify,
    /// Wakes whoever accepts what programs ask for.
    asked: Notify,
    lost: watch::Sender<Option<LinkError>>,
    /// Whether there is a carrier now.
    carried: watch::Sender<bool>,
    /// Whether the carrier is a direct one, or the next is to be one. Cleared when a direct carrier
    /// fails: the keeper then uses the engine's, which always works.
    direct: AtomicBool,
    /// Why a direct carrier that the agent offered could not be used.
    indirect: OnceLock<String>,
    /// Programs whose streams are open.
    programs: AtomicUsize,
}

/// The streams of a link.
struct MuxState {
    mux: Mux,
    /// Wakes the user of each stream.
    bells: HashMap<StreamId, Arc<Notify>>,
    waiting: asks::Waiting,
}

/// Counts a program while its stream is open.
struct ProgramCount(Arc<LinkState>);

impl ProgramCount {
    fn one_more(shared: Arc<LinkState>) -> Self {
        shared.programs.fetch_add(1, Ordering::Relaxed);
        Self(shared)
    }
}

impl Drop for ProgramCount {
    fn drop(&mut self) {
        self.0.programs.fetch_sub(1, Ordering::Relaxed);
    }
}

impl LinkState {
    fn lock(&self) -> MutexGuard<'_, MuxState> {
        // No code that can panic runs under this lock, so even a poisoned one holds valid data.
        self.mux.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lose(&self, why: LinkError) {
        self.lost.send_if_modified(|lost| lost.is_none() && lost.replace(why).is_none());
        self.ring_all();
    }

    fn ring_all(&self) {
        for bell in self.lock().bells.values() {
            bell.notify_waiters();
        }
        self.asked.notify_waiters();
    }

    fn fault(&self) -> Option<LinkError> {
        self.lost.borrow().clone()
    }
}

impl Link {
    /// Arms a container: dials it, says hello, and keeps a carrier up from then on. The second value is the
    /// agent's answer to the hello.
    ///
    /// # Errors
    /// [`LinkError::Unreachable`] and [`LinkError::Refused`], within [`DIAL_WITHIN`].
    pub async fn open(dialer: impl Dial, terms: HelloTerms) -> Result<(Self, Greeting), LinkError> {
        let shared = Arc::new(LinkState {
            mux: Mutex::new(MuxState {
                mux: Mux::new(Role::Daemon),
                bells: HashMap::new(),
                waiting: asks::Waiting::default(),
            }),
            transmit: Notify::new(),
            asked: Notify::new(),
            lost: watch::Sender::new(None),
            carried: watch::Sender::new(true),
            direct: AtomicBool::new(false),
            indirect: OnceLock::new(),
            programs: AtomicUsize::new(0),
        });
        let stop = CancellationToken::new();
        let guard = Arc::new(stop.clone().drop_guard());
        let keeper = keeper::Keeper::new(shared.clone(), Box::new(dialer), terms);
        let greeting = keeper.start(stop).await?;
        Ok((Self { shared, _keeper: guard }, greeting))
    }

    /// Streams that are open now, of both sides.
    pub fn open_streams(&self) -> usize {
        self.shared.lock().mux.open_streams()
    }

    /// Opens a stream with its request.
    ///
    /// # Errors
    /// The link's own fault, or too many streams.
    pub fn request(&self, request: &Request) -> Result<Stream, LinkError> {
        if let Some(fault) = self.shared.fault() {
            return Err(fault);
        }
        let mut state = self.shared.lock();
        let id = state.mux.open(message::encode(request))?;
        let bell = Arc::new(Notify::new());
        state.bells.insert(id, bell.clone());
        drop(state);
        self.shared.transmit.notify_one();
        let program = matches!(request, Request::Run(_) | Request::Attach(_))
            .then(|| ProgramCount::one_more(self.shared.clone()));
        Ok(Stream::new(raw::RawStream::new(id, self.shared.clone(), bell), self.clone(), program))
    }

    /// Programs that run in the container for this daemon now, commands too.
    pub fn programs(&self) -> usize {
        self.shared.programs.load(Ordering::Relaxed)
    }

    /// Waits until there is a carrier. It usually resolves at once, unless the bridge was killed or the
    /// container ended.
    ///
    /// # Errors
    /// The link's own fault, at the latest after [`REDIAL_FOR`].
    pub async fn ready(&self) -> Result<(), LinkError> {
        let mut carried = self.shared.carried.subscribe();
        tokio::select! {
            biased;
            fault = self.lost() => Err(fault),
            _ = carried.wait_for(|carried| *carried) => Ok(()),
        }
    }

    /// Whether bytes go to the agent without the engine in between.
    pub fn is_direct(&self) -> bool {
        self.shared.direct.load(Ordering::Relaxed)
    }

    /// Why an offered direct carrier could not be used; `None` if none was offered, or if it was used.
    pub fn why_indirect(&self) -> Option<&str> {
        self.shared.indirect.get().map(String::as_str)
    }

    /// Why the link is lost, if it is.
    pub fn fault(&self) -> Option<LinkError> {
        self.shared.fault()
    }

    /// Gives the link up because the container has ended: every stream fails now, and the keeper stops
    /// dialing.
    pub fn give_up(&self, why: &str) {
        self.shared.lose(LinkError::Unreachable(why.to_owned()));
    }

    /// Resolves when the link is lost for good. The future does not keep the link open.
    pub fn lost(&self) -> impl Future<Output = LinkError> + Send + 'static {
        let mut lost = self.shared.lost.subscribe();
        async move {
            let fault = lost.wait_for(Option::is_some).await.ok().and_then(|fault| fault.clone());
            fault.unwrap_or(LinkError::Closed)
        }
    }
}

#[cfg(test)]
mod tests;
