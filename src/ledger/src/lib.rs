//! **paddock-ledger**: who owns which session, and what it holds, for daemons on many machines.
//!
//! ```text
//!  claim    database: whose is it? ─► rules ─► the row changes hands, if it is still as it was read
//!  publish  database: which contents are missing? ─► S3: put those ─► database, one statement: if node and
//!           fence are those of the row, the files of the session are these from now on ─► acknowledge
//!  sweep    database: contents that no file has named for a day go into a list ─► S3: delete those
//! ```
//!
//! PostgreSQL has the order of all writes: one row for each node, each session, and each file of a session.
//! S3 has the contents, each under a name made of its hash, and never changed. [`rules`] says who may own and
//! acknowledge what; everything else here carries it out.
//!
//! It must never acknowledge what one of the two servers does not have, and never change a session whose row
//! names another owner or fence.

mod database;
mod error;
mod http;
mod lines;
mod manifest;
mod nodes;
mod objects;
mod schema;
mod sessions;
mod stored;
mod sweep;

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::watch;

pub use error::LedgerError;
pub use manifest::{Change, Content, FileKind, FileRow, Hash, Source};
pub use nodes::NodeRow;
pub use objects::{AWS_NAMES, ObjectsConfig};
pub use paddock_cluster::ownership as rules;
pub use rules::{Grant, Owner, Terms};
pub use sessions::{Claim, OwnedSession, OwnerRow, SessionKey};
pub use stored::TenantStored;

use database::Database;
use objects::Objects;
use rules::OwnerLease;

/// What a node needs to use a ledger.
#[derive(Debug, Clone)]
pub struct LedgerConfig {
    /// `postgres://user:password@host:port/database?sslmode=require`.
    pub url: String,
    /// Where contents are.
    pub objects: ObjectsConfig,
    /// This node.
    pub node: Node,
    /// How long leases hold. All nodes must have the same.
    pub terms: Terms,
    /// How long a content that no file names is kept.
    pub grace: Duration,
}

impl LedgerConfig {
    /// Whether these addresses and settings can be used at all; connects to nothing.
    ///
    /// # Errors
    /// The setting, and what is wrong with it.
    pub fn check(url: &str, objects: &ObjectsConfig) -> Result<(), (&'static str, String)> {
        let checked = Database::new(url).and_then(|_| Objects::open(objects)).map(drop);
        checked.map_err(|error| {
            if let LedgerError::Setting { setting, problem } = error {
                (setting, problem)
            } else {
                ("store.url", error.to_string())
            }
        })
    }
}

/// One node, as it introduces itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// Its name: no two nodes that live may have the same.
    pub name: String,
    /// Random, and the same after a restart of the same daemon: tells it from another one of the same name.
    pub id: String,
    /// Where other nodes reach it; empty if they do not.
    pub address: String,
}

/// What a node says of itself with each renewal.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Announced {
    address: String,
    free: i32,
}

/// Whether this node may acknowledge anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// Its lease holds.
    Holds,
    /// Its lease has ended: what it owned may be another node's, and what runs here for a session must end.
    Ended,
    /// The same for good: a later start of a daemon has joined under this node's name.
    Replaced,
}

/// A ledger that this node takes part in. Clones are the same ledger.
#[derive(Clone)]
pub struct Ledger {
    shared: Arc<Shared>,
}

struct Shared {
    database: Database,
    objects: Objects,
    node: Node,
    terms: Terms,
    grace: Duration,
    /// The number of this start, once it has joined.
    start: AtomicI64,
    lease: Mutex<OwnerLease>,
    announced: Mutex<Announced>,
    standing: watch::Sender<Standing>,
    /// The zero of this node's clock.
    began: Instant,
}

impl Ledger {
    /// Connects to both servers, makes the tables if they are missing, joins as this node, and keeps the
    /// lease until the last clone is dropped, or until [`Ledger::leave`].
    ///
    /// # Errors
    /// A server cannot be reached or used, or another node that lives has this name.
    pub async fn open(config: LedgerConfig) -> Result<Self, LedgerError> {
        let LedgerConfig { url, objects, node, terms, grace } = config;
        let database = Database::new(&url)?;
        let objects = Objects::open(&objects)?;
        schema::make(&database).await?;
        objects.probe().await?;
        let announced = Announced { address: node.address.clone(), free: 0 };
        let shared = Arc::new(Shared {
            database,
            objects,
            node,
            terms,
            grace,
            start: AtomicI64::new(0),
            lease: Mutex::new(OwnerLease::new(terms)),
            announced: Mutex::new(announced),
            standing: watch::Sender::new(Standing::Ended),
            began: Instant::now(),
        });
        shared.join().await?;
        tokio::spawn(nodes::keep(Arc::downgrade(&shared)));
        tokio::spawn(sweep::keep(Arc::downgrade(&shared)));
        Ok(Self { shared })
    }

    /// Whether both servers can be used with these settings, without taking part: for a look before a start.
    ///
    /// # Errors
    /// What is wrong with which of the two.
    pub async fn look(config: &LedgerConfig) -> Result<Vec<NodeRow>, LedgerError> {
        let database = Database::new(&config.url)?;
        let objects = Objects::open(&config.objects)?;
        objects.probe().await?;
        schema::look(&database).await?;
        nodes::all(&database).await
    }

    /// This node.
    #[must_use]
    pub fn node(&self) -> &Node {
        &self.shared.node
    }

    /// How long leases hold.
    #[must_use]
    pub fn terms(&self) -> Terms {
        self.shared.terms
    }

    /// Whether this node may acknowledge anything now.
    #[must_use]
    pub fn may_acknowledge(&self) -> bool {
        let now = self.shared.now();
        self.shared.lease().may_acknowledge(now)
    }

    /// Whether a claim is still this node's: only then may it answer for the session. Asks nobody.
    #[must_use]
    pub fn owns(&self, grant: Grant) -> bool {
        let now = self.shared.now();
        self.shared.lease().owns(grant, now)
    }

    /// Follows whether this node may acknowledge anything. It may be told late that the lease has ended, by
    /// up to a fifth of the lease; [`Ledger::owns`] never is.
    #[must_use]
    pub fn standing(&self) -> watch::Receiver<Standing> {
        self.shared.standing.subscribe()
    }

    /// From the next renewal on, other nodes see this address and this many sessions that would still fit.
    pub fn announce(&self, address: &str, free: u32) {
        let free = i32::try_from(free).unwrap_or(i32::MAX);
        *self.shared.announced() = Announced { address: address.to_owned(), free };
    }
}

impl Shared {
    /// This node's clock.
    fn now(&self) -> Duration {
        self.began.elapsed()
    }

    /// The number of this start; 0 before it has joined, which no start has.
    fn start(&self) -> i64 {
        self.start.load(Ordering::Relaxed)
    }

    fn lease(&self) -> MutexGuard<'_, OwnerLease> {
        self.lease.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn announced(&self) -> MutexGuard<'_, Announced> {
        self.announced.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
