//! The way out of the container, for every program and by its run's policy: PID 1's half of egress.
//!
//! ```text
//!  program ── getaddrinfo ──► resolver, 127.0.0.1:53 ── Ask::Name ────────► daemon: may it know the name?
//!     │   ◄── 127.64.x.y ──── (dns, names)
//!     └────── connect ──► stopped by its filter (intercept) ─► connect ── Ask::Connect ─► daemon: may it?
//!     ◄═══════ its own socket, connected on loopback (socket, join) ══ traffic ══ a stream ══ daemon dials
//! ```
//!
//! Programs that know proxies find one in their environment (proxy), with a credential of their run: it hears
//! the name that they mean, and can say in a sentence what is blocked.
//!
//! Where PID 1 is not told of `connect`s (gVisor has no user notification), it listens at the addresses that
//! stand for names instead (listen): for a few ports, and for one run at a time.
//!
//! The container has no network but `lo`, and the daemon decides, resolves and dials. This half only says
//! which run asks (who, run) and carries bytes. So if something here fails, or is passed by, nothing gets
//! out.
//!
//! - The address is read once, and the program's own socket is connected by PID 1: nothing can be swapped in
//!   between. The socket stays the program's: its number, its flags, its place in an epoll set.
//! - **Most calls go on in the kernel** (`SECCOMP_USER_NOTIF_FLAG_CONTINUE`): of Unix sockets, to loopback,
//!   of anything but TCP, of a run without a network, of a process that cannot be looked into or belongs to
//!   no run for sure. The kernel reads the address again, and it may be another by then. That is harmless:
//!   every `connect` that the kernel makes in here can reach `lo` only, whatever its address. The program
//!   could make each of them by `sendto` with `MSG_FASTOPEN` as well, which is not stopped. And nothing on
//!   `lo` lets it out: PID 1 listens for one connection at a time and serves only the socket that it
//!   connected itself (join; where it cannot, see listen), and the resolver passes on nothing but names. So
//!   the errors of a run without a network are the kernel's own, as without a filter.
//! - Which run asks: a program that PID 1 started for a run has a listener of its own; of a warm part's the
//!   process tree tells (who). The processes of a run cannot be looked into by another's (Landlock), nor
//!   their descriptors taken (`pidfd_getfd` is refused to programs). They share `/data` and `/tmp`, though:
//!   code that one run writes there, and another executes, has the network of the other.
//! - **Without Landlock a run that has a network is alone in its container**: no program of another run could
//!   be kept out of its memory. The daemon lets such runs take turns, and PID 1 starts no run that breaks
//!   this rule ([`Network::may_begin`]). A warm part loads only while no code runs then (`Warm::is_wary`).
//! - A run's connections are reset before its end is told (run).
//!
//! Limits and differences:
//!
//! - A `connect` that waits gets no signal meanwhile but one that kills it. One that does not wait, waits for
//!   the daemon's decision all the same, a fraction of a millisecond, and is then in progress; if there is no
//!   connection in the end, it is reset.
//! - `getpeername` shows an address on loopback. SO_SNDTIMEO bounds a call that waits (EINPROGRESS), and the
//!   connection is given up then.
//! - UDP does not leave, nor MPTCP, nor what connects by `sendto` with `MSG_FASTOPEN`.
//!
//! PID 1 must never look a name up, decide what a run may reach, or hold more than a bounded number of
//! connections; how many of a run, the daemon says. No run gets all the streams of the link ([`share`]).

mod address;
mod connect;
mod dns;
mod join;
mod listen;
mod names;
mod own;
mod proxy;
mod resolver;
mod run;
mod socket;
mod traffic;
mod trust;
mod who;

use std::cell::{Cell, OnceCell, RefCell};
use std::rc::Rc;

use paddock_proto::limits::{CA_FILE, MAX_CONNECT_ASKS};
use paddock_proto::message::{self, Ask, RunSpec};
use paddock_proto::share;
use rustix::process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};

use self::connect::ConnectAnswers;
use self::listen::Listeners;
use self::names::Names;
pub(crate) use self::own::is_own;
use self::proxy::Credentials;
pub(crate) use self::proxy::Proxy;
pub(crate) use self::resolver::Resolver;
pub(crate) use self::run::RunNetwork;
pub(crate) use self::traffic::carry;
pub(crate) use self::who::{Owner, PartRun, Place};
use crate::intercept::{self, Answers};
use crate::link::{Link, Stream};

/// The network of a container.
pub(crate) struct Network {
    link: Rc<Link>,
    names: RefCell<Names>,
    credentials: Credentials,
    /// Whether its resolver serves.
    resolves: Cell<bool>,
    /// What PID 1 lacks to be told of `connect`s; looked for when a program needs to know.
    untold: OnceCell<Option<String>>,
    /// Where it listens in that case.
    listeners: Listeners,
    /// The runs under way.
    runs: RefCell<Vec<Rc<RunNetwork>>>,
}

impl Network {
    pub(crate) fn new(link: Rc<Link>) -> Rc<Self> {
        Rc::new(Self {
            link,
            names: RefCell::default(),
            credentials: Credentials::default(),
            resolves: Cell::new(false),
            untold: OnceCell::new(),
            listeners: Listeners::default(),
            runs: RefCell::default(),
        })
    }

    /// Whether a run may begin beside those under way: where nothing keeps the programs of one run out of the
    /// memory of another, a run that has a network must be alone.
    pub(crate) fn may_begin(&self, network: bool) -> bool {
        fits(intercept::separates(), network, self.runs.borrow().len(), self.open_runs())
    }

    /// A run begins; call [`Network::end`] before its end is told. One that has a network gets the variables
    /// that tell its programs of the proxy, and of the certificates to trust.
    pub(crate) fn begin(&self, spec: &mut RunSpec) -> Rc<RunNetwork> {
        let run = Rc::new(RunNetwork::new(spec.id.clone(), spec.network));
        if self.open_runs() == 0 {
            self.names.borrow_mut().make_room();
        }
        self.runs.borrow_mut().push(run.clone());
        if spec.network {
            spec.env.extend(self.credentials.admit(&run, &spec.env));
            spec.env.extend(trust::variables(CA_FILE, &spec.env));
        }
        run
    }

    /// A run is over: its connections are reset.
    pub(crate) async fn end(&self, run: &RunNetwork) {
        self.runs.borrow_mut().retain(|known| !std::ptr::eq(known.as_ref(), run));
        self.credentials.forget(run);
        self.listeners.reset(self.open_runs() > 0);
        run.close().await;
    }

    /// Runs under way that have a network.
    fn open_runs(&self) -> usize {
        self.runs.borrow().iter().filter(|run| run.is_open()).count()
    }

    /// Opens a stream for a connection of this run; `None` where other runs need the streams that are left.
    fn open(&self, run: &RunNetwork, ask: &Ask) -> Option<Stream> {
        let others: Vec<usize> = {
            let runs = self.runs.borrow();
            let others = runs.iter().filter(|known| known.is_open() && !std::ptr::eq(known.as_ref(), run));
            others.map(|other| other.count()).collect()
        };
        let may = share::may_open(MAX_CONNECT_ASKS, run.count(), &others);
        may.then(|| self.link.open(message::encode(ask))).flatten()
    }

    /// The run under way that has a network, if there is no other run: then it is known who asks.
    fn only_run(&self) -> Option<Rc<RunNetwork>> {
        let runs = self.runs.borrow();
        let [run] = runs.as_slice() else { return None };
        run.is_open().then(|| run.clone())
    }

    /// The ports on which it listens for each name, where PID 1 is not told of `connect`s.
    pub(crate) fn listen_on(&self, ports: &[u16]) {
        self.listeners.set_ports(ports);
    }

    /// Whether the kernel stops each `connect` of a program and tells PID 1 of it.
    pub(crate) fn is_told(&self) -> bool {
        self.untold.get_or_init(lacks_news).is_none()
    }

    /// Who answers the `connect`s of a program.
    pub(crate) fn answers(self: &Rc<Self>, owner: Owner) -> Box<dyn Answers> {
        Box::new(ConnectAnswers { network: self.clone(), owner })
    }
}

impl Network {
    /// What this container lacks for programs to reach the network; `None` if it lacks nothing.
    pub(crate) fn missing(&self) -> Option<String> {
        let what = "the network needs port 53 of 127.0.0.1, which PID 1 could not take";
        (!self.resolves.get()).then(|| what.to_owned())
    }
}

/// Whether a run, with or without a network, may be in a container beside so many others, of which so many
/// have a network.
fn fits(separates: bool, network: bool, others: usize, open: usize) -> bool {
    separates || others == 0 || (!network && open == 0)
}

/// What PID 1 lacks to be told of the `connect`s of programs; `None` if it lacks nothing.
pub(crate) fn lacks_news() -> Option<String> {
    if let Some(what) = intercept::blind() {
        return Some(what);
    }
    if !intercept::can_notify() {
        return Some("seccomp's user notification, which this kernel or runtime does not allow".to_owned());
    }
    // Of its own descriptors a process may always take copies, if it may at all.
    let copied = pidfd_open(getpid(), PidfdFlags::empty())
        .and_then(|this| pidfd_getfd(&this, 0, PidfdGetfdFlags::empty()));
    match copied {
        Ok(_) | Err(rustix::io::Errno::BADF) => None,
        Err(errno) => Some(format!("pidfd_getfd, which is not allowed here: {errno}")),
    }
}

#[cfg(test)]
#[expect(unsafe_code, reason = "waitpid of one child has no safe form")]
mod tests;
