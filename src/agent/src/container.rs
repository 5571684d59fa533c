//! What PID 1 knows of its container. No behaviour lives here.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::{Duration, Instant};

use paddock_proto::message::Claim;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use crate::counters::CgroupFiles;
use crate::fingerprint::Baseline;
use crate::link::Link;
use crate::meter::Meter;
use crate::network::Network;
use crate::ports::Dials;
use crate::reap::Reaper;
use crate::runs::Runs;
use crate::warm::Warm;

/// PID 1 ends itself after this long without a daemon, until a daemon gives another time.
const ORPHAN_AFTER: Duration = Duration::from_secs(600);

/// Everything PID 1 knows.
pub(crate) struct Container {
    pub(crate) reaper: Rc<Reaper>,
    /// What both sides agree on. A task that looks at it for a while keeps what it was when the task began.
    pub(crate) baseline: RefCell<Rc<Baseline>>,
    pub(crate) runs: Rc<Runs>,
    /// The session it belongs to.
    pub(crate) claim: Cell<Option<Claim>>,
    pub(crate) link: Rc<Link>,
    pub(crate) network: Rc<Network>,
    pub(crate) warm: Rc<Warm>,
    pub(crate) dials: Dials,
    pub(crate) counters: CgroupFiles,
    pub(crate) meter: Meter,
    /// The process whose streams carry the link, where the daemon has no socket of its own.
    pub(crate) bridge: Cell<Option<i32>>,
    pub(crate) secret: Cell<Option<[u8; 32]>>,
    /// Whether this runtime shows which connection is a bridge's: known from the first daemon on.
    pub(crate) tells_bridges: Cell<bool>,
    /// Tells that a daemon has come over a bridge.
    pub(crate) bridged: Notify,
    /// The daemon's mux that the streams belong to.
    pub(crate) peer: Cell<u64>,
    pub(crate) orphan_after: Cell<Duration>,
    pub(crate) last_heard: Cell<Instant>,
    pub(crate) strangers: Cell<usize>,
    pub(crate) carrier: RefCell<Option<JoinHandle<()>>>,
}

impl Container {
    /// Nothing ran, and no daemon was heard.
    pub(crate) fn new() -> Self {
        let (reaper, runs, link) = (Rc::<Reaper>::default(), Rc::<Runs>::default(), Link::new());
        let network = Network::new(link.clone());
        Self {
            baseline: RefCell::default(),
            claim: Cell::new(None),
            link,
            warm: Warm::new(reaper.clone(), runs.clone(), network.clone()),
            network,
            dials: Dials::default(),
            reaper,
            runs,
            counters: CgroupFiles::open(),
            meter: Meter::default(),
            bridge: Cell::new(None),
            secret: Cell::new(None),
            tells_bridges: Cell::new(false),
            bridged: Notify::new(),
            peer: Cell::new(0),
            orphan_after: Cell::new(ORPHAN_AFTER),
            last_heard: Cell::new(Instant::now()),
            strangers: Cell::new(0),
            carrier: RefCell::default(),
        }
    }
}
