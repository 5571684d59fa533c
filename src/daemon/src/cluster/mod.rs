//! Many machines: any node takes any call, and passes it to the node that has its session.
//!
//! ```text
//!                              node a                                    node b, the owner
//!  client ── http.addr ── guard ─ route ─┬─ here ─► tools, files, …
//!            or the socket               └─ at b ── TLS ── cluster.addr ── hop ─ guard ─ route ─► tools, …
//!                                   pass          one hop, streams both ways       ▲ token and link again
//!  peers: GET /paddock-cluster/node of each, every second ─► view: who answers, who has room
//!  owners: whose a session is, a table that all nodes share; placement: who gets a new one
//! ```
//!
//! There is nothing of this on a single machine: without `cluster.peers` no [`Cluster`] is made, no listener
//! is opened, and a call has one comparison with `None` more.
//!
//! | part | what it does |
//! |---|---|
//! | [`placement`] | which node takes a new session; pure |
//! | `locate` | where a call is served: here, or at which other node |
//! | [`owners`] | whose a session is: the interface of the table. [`in_ledger`]: that of a store of many machines |
//! | [`view`] | the other nodes as they answer; pure. `peers` asks them |
//! | [`concern`] | which session a tool call is about; pure |
//! | [`hop`] | the header of a request that is passed on, and its proof |
//! | [`keys`], [`tls`], [`wire`] | keys from `cluster.key`, TLS by them, connections that stay open |
//! | [`pass`] | a request on its way to another node, and the answer back |
//! | [`limits`] | what this node may use of the limits of tenants that hold for all nodes |
//! | [`amounts`] | what tenants have used at other nodes of limits over an hour and a day; pure |
//! | `drain` | gives the sessions of a node that drains to the others |
//! | [`ids`] | ids that say which node made them: executions, MCP sessions |
//!
//! # What holds
//!
//! * A request is passed on once. A node that receives one for a session that it does not own refuses it
//!   ([`ClusterFault::NotHere`]): the first node learned an old owner, and the client tries again. A call
//!   within an MCP session may go two ways: to the node of the MCP session, and from there, as a call of its
//!   own, to the owner of the session that it names.
//! * The owner checks everything again: token, limits, arguments, links. A node vouches for nothing but the
//!   address of the client, and for its own local user.
//! * A request that was begun at another node is never sent twice: nobody knows what it did there.
//! * An execution, an MCP session and a call that waits for its client's answer belong to the node that began
//!   them, which their ids name: no table has them, and nobody is asked on the way. While that node
//!   does not answer, they are refused ([`ClusterFault::Silent`]); once it has ended, each node answers as
//!   for an id that it does not know: `execution_not_found`, 404. MCP clients then begin a new session.
//! * Limits of tenants hold for all nodes together, with at most one more in use for each other node:
//!   [`limits`]. What is stored is counted by the ledger, every two seconds. Of bytes in an hour and dollars
//!   in a day each node tells what it has counted, and refuses when that of all nodes has reached the limit:
//!   at most what the others use before they are asked again comes on top. What a node told last counts until
//!   its hour or its day is over, whatever becomes of the node: [`amounts`].
//!
//! # What all nodes must have in common
//!
//! `cluster.key`, the tokens, `http.public_url` (the address of what stands before all of them), and the
//! limits that tools check. Links open at any node: they are signed with `files.secret` if it is set, else
//! with a key derived from `cluster.key`; links to ports and the sessions of MCP clients use derived keys
//! too.

pub mod amounts;
pub mod concern;
pub(crate) mod drain;
pub mod hop;
pub mod ids;
pub mod in_ledger;
pub mod keys;
pub mod limits;
mod locate;
pub mod owners;
pub mod pass;
mod peers;
#[cfg(feature = "conformance-fixtures")]
pub mod table;
pub mod tls;
pub mod view;
pub mod wire;

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tokio::sync::watch;

use self::hop::HopCheck;
use self::ids::NodeTag;
use self::keys::ClusterKeys;
use self::limits::{LimitParts, LimitedUse, OtherNode};
pub use self::locate::{Came, Location, Target};
use self::owners::{Node, Owners, OwnersError, SessionKey};
use self::placement::NodeLoad;
use self::tls::ClusterTls;
pub use self::view::SeenNode;
use self::view::{NodeReport, View};
use self::wire::PeerClient;
use crate::config::ClusterSettings;
use crate::metrics::Metrics;

pub(crate) use self::peers::NODE;
pub use paddock_cluster::placement;

/// How this node stands.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OwnLoad {
    /// Sessions with a container.
    pub sessions: usize,
    /// How many there may be.
    pub max: usize,
    /// Whether a new session would be served.
    pub ready: bool,
}

/// Why a request is served by no node.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ClusterFault {
    /// The table of owners.
    #[error(transparent)]
    Owners(#[from] OwnersError),
    /// The owner does not answer.
    #[error(
        "node {0} has this session and does not answer; if it stays away, another node takes the session \
         over: try again"
    )]
    Unreachable(String),
    /// The node that made an id does not answer, and is not known to have ended.
    #[error(
        "node {0} made this id and does not answer; what the id names is gone only if the node does not come \
         back: try again"
    )]
    Silent(String),
    /// The owner cannot be reached, or its connection broke before an answer.
    #[error(
        "node {0} has this session, and the connection to it broke before it answered; whether the call did \
         anything is not known"
    )]
    Broken(String),
    /// The node was asked by hop, and is not the owner.
    #[error("this node does not have the session (any more): {0} has it; try again")]
    NotHere(String),
    /// No node takes a new session.
    #[error("no node takes a new session: all of them drain or are not ready; try again later")]
    NoNode,
}

/// What one node has of its cluster.
pub struct Cluster {
    /// `cluster.name`.
    name: String,
    tag: NodeTag,
    keys: ClusterKeys,
    tls: ClusterTls,
    check: HopCheck,
    owners: Arc<dyn Owners>,
    peers: Vec<String>,
    client: PeerClient,
    view: RwLock<View>,
    instance: String,
    load: OnceLock<Box<dyn Fn() -> OwnLoad + Send + Sync>>,
    limits: Arc<LimitParts>,
    limited: OnceLock<Box<dyn LimitedUse>>,
    draining: AtomicBool,
    believed: Mutex<HashMap<SessionKey, (Node, Instant)>>,
    /// The nodes that do not answer and have ended by the table of owners.
    ended: watch::Sender<BTreeSet<String>>,
    metrics: Metrics,
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cluster({})", self.name)
    }
}

impl Cluster {
    /// A node of a cluster, which knows nobody yet.
    ///
    /// # Errors
    /// TLS cannot be set up.
    pub fn new(
        settings: &ClusterSettings,
        owners: Arc<dyn Owners>,
        metrics: Metrics,
    ) -> Result<Self, tokio_rustls::rustls::Error> {
        let keys = ClusterKeys::derive(settings.key.expose().as_bytes());
        let tls = ClusterTls::new(&keys)?;
        let instance = crate::id::random_hex::<8>();
        Ok(Self {
            name: settings.name.clone(),
            tag: NodeTag::of(&settings.name),
            check: HopCheck::new(&settings.name),
            client: wire::client(tls.clone()),
            keys,
            tls,
            owners,
            peers: settings.peers.clone(),
            view: RwLock::new(View::new(&settings.name, &instance, peers::lost_after(peers::EVERY))),
            instance,
            load: OnceLock::new(),
            limits: Arc::default(),
            limited: OnceLock::new(),
            draining: AtomicBool::new(false),
            believed: Mutex::default(),
            ended: watch::Sender::default(),
            metrics,
        })
    }

    /// The name of this node.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its tag, in the ids that it makes.
    pub fn tag(&self) -> NodeTag {
        self.tag
    }

    /// The keys that all nodes have.
    pub fn keys(&self) -> &ClusterKeys {
        &self.keys
    }

    /// TLS of the listener for peers.
    pub fn tls(&self) -> &ClusterTls {
        &self.tls
    }

    /// Takes the header of a hop from a request of a peer, and checks it; `now` is in milliseconds since
    /// 1970.
    ///
    /// # Errors
    /// The request is not to be served.
    pub fn take_hop(
        &self,
        of: (&http::Method, &http::Uri),
        headers: &mut http::HeaderMap,
        now: u64,
    ) -> Result<hop::Hop, hop::HopError> {
        let taken = self.check.take(&self.keys, of, headers, now);
        self.metrics.cluster_received(taken.as_ref().map_or_else(|refused| refused.as_str(), |_| "served"));
        taken
    }

    /// Somebody connected to the listener for peers who is none.
    pub fn refused_peer(&self, reason: &'static str) {
        self.metrics.cluster_received(reason);
    }

    /// Says how the load of this node is found out. Until then it takes nothing.
    pub fn introduce(&self, load: impl Fn() -> OwnLoad + Send + Sync + 'static) {
        let _ = self.load.set(Box::new(load));
    }

    /// What this node may use of limits that hold for all nodes.
    pub fn limits(&self) -> &Arc<LimitParts> {
        &self.limits
    }

    /// Says how the use of limits is found out. Until then this node holds nothing of them.
    pub fn divide_limits(&self, limited: impl LimitedUse + 'static) {
        let _ = self.limited.set(Box::new(limited));
    }

    /// The other nodes that live, with what they told of limits at `since` or before.
    fn others_with_limits(&self, since: Instant) -> Vec<OtherNode> {
        let (view, now) = (self.view(), Instant::now());
        let living = view.nodes().filter(|node| view.answers(node, now));
        let other = |node: &view::KnownNode| OtherNode {
            name: node.report.name.clone(),
            told: node.report.limits.clone(),
            is_fresh: node.seen >= since,
        };
        living.map(other).collect()
    }

    fn load(&self) -> OwnLoad {
        self.load.get().map(|load| load()).unwrap_or_default()
    }

    /// What this node says of itself.
    pub fn report(&self) -> NodeReport {
        let load = self.load();
        NodeReport {
            name: self.name.clone(),
            instance: self.instance.clone(),
            version: crate::build::VERSION.to_owned(),
            sessions: load.sessions as u64,
            free: u32::try_from(load.max.saturating_sub(load.sessions)).unwrap_or(u32::MAX),
            owned: self.owners.owned() as u64,
            draining: self.is_draining(),
            ready: load.ready,
            limits: self.limits.told(),
            amounts: self.limited.get().map(|limited| limited.amounts()).unwrap_or_default(),
        }
    }

    /// Whether this node was told to drain.
    pub fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }

    /// From now on this node takes no new sessions, or takes them again.
    pub fn set_draining(&self, draining: bool) {
        self.draining.store(draining, Ordering::Relaxed);
        self.metrics.cluster_draining(draining);
    }

    /// The sessions that this node owns.
    ///
    /// # Errors
    /// The table of owners does not answer.
    pub async fn owned(&self) -> Result<Vec<SessionKey>, ClusterFault> {
        Ok(self.owners.all_owned().await?)
    }

    /// Gives a session that nobody uses to the other node where it fits best; returns its name.
    ///
    /// # Errors
    /// No other node takes it, or the table of owners does not answer: the session stays here.
    pub async fn give_away(&self, key: &SessionKey) -> Result<String, ClusterFault> {
        let own = NodeLoad { name: self.name.clone(), free: 0, takes_new: false };
        let loads = self.view().loads(own, Instant::now());
        let to = placement::place(key.number(), &loads).map(|node| node.name.clone());
        let to = to.ok_or(ClusterFault::NoNode)?;
        self.owners.give(key, &to).await?;
        Ok(to)
    }

    /// The other nodes that answer.
    pub fn others(&self) -> Vec<Target> {
        let (view, now) = (self.view(), Instant::now());
        let answering = view.nodes().filter(|node| view.answers(node, now));
        let target = |node: &view::KnownNode| Target {
            name: node.report.name.clone(),
            address: node.address.to_string(),
        };
        answering.map(target).collect()
    }

    /// Returns when this node has ended. An answer for which somebody waits then never comes, and no packet
    /// says so where a machine was cut off.
    fn end_of(&self, node: &str) -> impl Future<Output = ()> + Send + use<> {
        let (mut ended, node) = (self.ended.subscribe(), node.to_owned());
        async move {
            let _ = ended.wait_for(|ended| ended.contains(&node)).await;
        }
    }

    fn view(&self) -> std::sync::RwLockReadGuard<'_, View> {
        self.view.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn view_mut(&self) -> std::sync::RwLockWriteGuard<'_, View> {
        self.view.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// All nodes as this one sees them, itself first.
    pub fn nodes(&self) -> Vec<SeenNode> {
        let (view, now) = (self.view(), Instant::now());
        let own = SeenNode {
            report: self.report(),
            address: None,
            answers: true,
            silent: Duration::ZERO,
            took: None,
        };
        let others = view.nodes().map(|node| SeenNode {
            report: node.report.clone(),
            address: Some(node.address),
            answers: view.answers(node, now),
            silent: now.saturating_duration_since(node.seen),
            took: Some(node.took),
        });
        std::iter::once(own).chain(others).collect()
    }
}

/// The time for the header of a hop: milliseconds since 1970.
pub(crate) fn now_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
