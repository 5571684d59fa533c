//! What one daemon has: the services that tools, HTTP and the local socket share.
//!
//! [`crate::app`] makes them, once. It must hold no logic of its own.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use crate::audit::AuditLog;
use crate::cluster::Cluster;
use crate::drops::Drops;
use crate::egress::Egress;
use crate::execution::Executions;
use crate::metrics::Metrics;
use crate::notifications::Notifications;
use crate::packages::Packages;
use crate::pool::Pool;
use crate::ports::PortForwarder;
use crate::run_history::RunHistory;
use crate::session::Sessions;
use crate::sign::Signer;
use crate::store::Store;
use crate::tenants::Tenants;

/// The services of one daemon.
pub struct Services {
    /// The files of sessions on disk.
    pub store: Arc<Store>,
    /// The drop folders of sessions.
    pub drops: Arc<Drops>,
    /// The runners and their containers.
    pub pool: Pool,
    /// The sessions.
    pub sessions: Arc<Sessions>,
    /// Commands that go on while no call waits for them.
    pub executions: Arc<Executions>,
    /// What programs may reach outside of their containers.
    pub egress: Arc<Egress>,
    /// Packages beyond the images of runners; `None` if no call can ask for any.
    pub packages: Option<Arc<Packages>>,
    /// Forwards requests to servers that programs run.
    pub ports: Arc<PortForwarder>,
    /// Who may call, and how much of the daemon each may use.
    pub tenants: Arc<Tenants>,
    /// Notes who did what.
    pub audit: Arc<AuditLog>,
    /// The other nodes; `None` on a single machine.
    pub cluster: Option<Arc<Cluster>>,
    /// Signs and checks links.
    pub signer: Signer,
    /// Notifications of runs and executions, for clients that subscribe.
    pub notifications: Arc<Notifications>,
    /// The last runs, for the page.
    pub run_history: RunHistory,
    /// What is counted and measured.
    pub metrics: Metrics,
    /// Cancelled when the daemon begins to end.
    pub stopping: CancellationToken,
}
