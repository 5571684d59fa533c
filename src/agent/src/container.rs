//! What PID 1 knows of its container. No behaviour lives here.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::{Duration, Instant};

use paddock_proto::message::Claim;
use tokio::task::JoinHandle;

use crate::counters;
use crate::link::Link;
use crate::outlet::Outlet;
use crate::reap::Reaper;
use crate::stamp::Base;
use crate::warm::Warm;

/// Until a daemon says otherwise.
const ORPHAN_AFTER: Duration = Duration::from_secs(600);

/// Everything PID 1 knows.
pub(crate) struct Container {
    pub(crate) reaper: Rc<Reaper>,
    /// What both sides agree on. Whoever looks at it over a while has it as it was when it began to.
    pub(crate) base: RefCell<Rc<Base>>,
    /// How many runs were ever started here.
    pub(crate) begun: Cell<u64>,
    /// The session it belongs to.
    pub(crate) claim: Cell<Option<Claim>>,
    /// Runs that no daemon has heard to their end.
    pub(crate) runs: RefCell<BTreeMap<String, Rc<Outlet>>>,
    pub(crate) link: Rc<Link>,
    pub(crate) warm: Warm,
    pub(crate) counters: counters::Files,
    /// The process that the carrier came by, where it did not come directly.
    pub(crate) bridge: Cell<Option<i32>>,
    pub(crate) secret: Cell<Option<[u8; 32]>>,
    /// Whether this runtime shows which connection is a bridge's: known from the first one on.
    pub(crate) tells_bridges: Cell<bool>,
    /// The daemon's mux that the streams belong to.
    pub(crate) peer: Cell<u64>,
    pub(crate) orphan_after: Cell<Duration>,
    pub(crate) last_heard: Cell<Instant>,
    pub(crate) strangers: Cell<usize>,
    pub(crate) carrier: RefCell<Option<JoinHandle<()>>>,
}

impl Container {
    /// Nothing ran, nobody was heard.
    pub(crate) fn new() -> Self {
        Self {
            reaper: Rc::default(),
            base: RefCell::default(),
            begun: Cell::new(0),
            claim: Cell::new(None),
            runs: RefCell::default(),
            link: Link::new(),
            warm: Warm::default(),
            counters: counters::Files::open(),
            bridge: Cell::new(None),
            secret: Cell::new(None),
            tells_bridges: Cell::new(false),
            peer: Cell::new(0),
            orphan_after: Cell::new(ORPHAN_AFTER),
            last_heard: Cell::new(Instant::now()),
            strangers: Cell::new(0),
            carrier: RefCell::default(),
        }
    }
}
