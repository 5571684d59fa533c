//! The other end of the agent: streams over one armed container, whatever happens to the carrier.
//!
//! ```text
//!  Link::open ─► keeper task ─► dial (exec the bridge) ─► hello ─► carry bytes ⇄ mux
//!                   ▲                                      │          │ carrier broke (code killed the bridge,
//!                   │                    a direct carrier ◄┘          │  the engine restarted, …)
//!                   └────────────── redial, resume ◄──────────────────┘
//!                                        │ not within REDIAL_FOR
//!                                        ▼
//!                                      lost: every stream answers LinkError
//! ```
//!
//! The keeper lives as long as a [`Link`] does. It must never redial a container whose agent broke the
//! protocol, and must never hold the mux over an await.

mod bridge;
mod direct;
mod keeper;
mod stream;

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use paddock_proto::message::{self, Claim, Offer};
use paddock_proto::mux::Role;
use paddock_proto::{Mux, ProtocolError, Request, StreamId};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{Notify, watch};
use tokio_util::sync::{CancellationToken, DropGuard};

pub use bridge::Bridge;
pub use direct::is_allowed as may_trace;
pub use stream::{Incoming, Part, Stream};

/// How long one attempt to reach the agent may take: an exec is 60 ms, more on a loaded engine.
pub const DIAL_WITHIN: Duration = Duration::from_secs(10);

/// How long a broken carrier is tried to be replaced before the container is given up.
pub const REDIAL_FOR: Duration = Duration::from_secs(15);

/// Why a link is of no use any more.
#[derive(Debug, Clone, thiserror::Error)]
pub enum LinkError {
    /// The bridge could not be started, or ended before it had said anything.
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
    /// The agent did not do as told in time.
    #[error("the container's agent did not answer within {0:?}")]
    Silent(Duration),
    /// This side let go of the link.
    #[error("the container was released")]
    Closed,
}

/// What carries the bytes: the reading and the writing side.
pub type Carrier = (Box<dyn AsyncRead + Send + Unpin>, Box<dyn AsyncWrite + Send + Unpin>);

/// Why there is no new carrier.
#[derive(Debug, Clone, thiserror::Error)]
pub enum DialError {
    /// The container is not there or does not run: no other attempt can succeed.
    #[error("{0}")]
    Gone(String),
    /// It did not work this time.
    #[error("{0}")]
    Failed(String),
}

/// Makes carriers to one container. Implemented by [`Bridge`], and by tests that break them.
pub trait Dial: Send + Sync + 'static {
    /// A new carrier; the one before is dead or about to be abandoned.
    fn dial(&self) -> Pin<Box<dyn Future<Output = Result<Carrier, DialError>> + Send + '_>>;

    /// Whether a direct carrier may be asked for.
    fn wants_direct(&self) -> bool {
        false
    }

    /// A direct carrier in place of one that was dialed.
    fn direct(&self, _: Offer) -> Pin<Box<dyn Future<Output = Result<Carrier, DialError>> + Send + '_>> {
        Box::pin(async { Err(DialError::Failed("this dialer knows no direct carrier".to_owned())) })
    }
}

/// What the hello says besides the streams.
#[derive(Clone)]
pub struct Terms {
    /// Known to this daemon and to PID 1 of this container alone.
    pub secret: [u8; 32],
    /// PID 1 ends itself after this long without a daemon.
    pub orphan_after: Duration,
}

/// What a container's agent said of itself when it was first reached. Claimed, like all that comes from there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Greeting {
    /// Whether any code was ever run in there.
    pub ran: bool,
    /// The session that it belongs to.
    pub claim: Option<Claim>,
    /// Runs that no daemon has heard to their end.
    pub runs: Vec<String>,
}

/// A handle on an armed container's agent; clones share it. The carrier is closed with the last.
#[derive(Clone)]
pub struct Link {
    shared: Arc<Shared>,
    _keeper: Arc<DropGuard>,
}

struct Shared {
    inner: Mutex<Inner>,
    /// Something is to be sent.
    transmit: Notify,
    lost: watch::Sender<Option<LinkError>>,
    /// Whether there is a carrier now.
    carried: watch::Sender<bool>,
    /// Whether it is a direct one. Cleared when that failed: the next one is then what works everywhere.
    direct: AtomicBool,
    /// Why an offered one was not taken.
    indirect: OnceLock<String>,
}

struct Inner {
    mux: Mux,
    bells: HashMap<StreamId, Arc<Notify>>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        // No code that can panic runs under this lock; a poisoned one holds valid data.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lose(&self, why: LinkError) {
        self.lost.send_if_modified(|lost| lost.is_none() && lost.replace(why).is_none());
        self.ring_all();
    }

    fn ring_all(&self) {
        for bell in self.lock().bells.values() {
            bell.notify_waiters();
        }
    }

    fn fault(&self) -> Option<LinkError> {
        self.lost.borrow().clone()
    }
}

impl Link {
    /// Arms a container: dials, says hello, and keeps the carrier up from then on. Also what it said of itself.
    ///
    /// # Errors
    /// [`LinkError::Unreachable`] and [`LinkError::Refused`], within [`DIAL_WITHIN`].
    pub async fn open(dialer: impl Dial, terms: Terms) -> Result<(Self, Greeting), LinkError> {
        let shared = Arc::new(Shared {
            inner: Mutex::new(Inner { mux: Mux::new(Role::Daemon), bells: HashMap::new() }),
            transmit: Notify::new(),
            lost: watch::Sender::new(None),
            carried: watch::Sender::new(true),
            direct: AtomicBool::new(false),
            indirect: OnceLock::new(),
        });
        let stop = CancellationToken::new();
        let guard = Arc::new(stop.clone().drop_guard());
        let keeper = keeper::Keeper::new(shared.clone(), Box::new(dialer), terms);
        let greeting = keeper.start(stop).await?;
        Ok((Self { shared, _keeper: guard }, greeting))
    }

    /// Opens a stream with its request.
    ///
    /// # Errors
    /// The link's own fault, or too many streams.
    pub fn request(&self, request: &Request) -> Result<Stream, LinkError> {
        if let Some(fault) = self.shared.fault() {
            return Err(fault);
        }
        let mut inner = self.shared.lock();
        let id = inner.mux.open(message::encode(request))?;
        let bell = Arc::new(Notify::new());
        inner.bells.insert(id, bell.clone());
        drop(inner);
        self.shared.transmit.notify_one();
        Ok(Stream::new(id, self.clone(), bell))
    }

    /// Waits until there is a carrier: at once, but for a container that is gone, or whose bridge was killed.
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

    /// Why a direct carrier was tried and could not be had, if that was so.
    pub fn why_indirect(&self) -> Option<&str> {
        self.shared.indirect.get().map(String::as_str)
    }

    /// What the link was lost to, if it was.
    pub fn fault(&self) -> Option<LinkError> {
        self.shared.fault()
    }

    /// The container is known to have ended: every stream is told so now, and nothing is dialed any more.
    pub fn give_up(&self, why: &str) {
        self.shared.lose(LinkError::Unreachable(why.to_owned()));
    }

    /// Resolves when the link is lost for good. Waiting does not keep the link up.
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
