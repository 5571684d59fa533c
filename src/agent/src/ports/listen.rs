//! Reports servers: when a program calls `listen`, the agent sends the port to the daemon.
//!
//! Nothing is decided by the call, so it goes on in the kernel at once. PID 1 notes the number of the socket
//! before that, and finds the port of this very socket in /proc/net/tcp a moment later: it holds no copy of
//! the socket, which would keep the port taken when the program closes its own. A server whose call it cannot
//! look into is not told of; it can be reached all the same.
//!
//! It must never hold up the call, nor look at the table of sockets without a pause, however often a program
//! listens.

use std::cell::{Cell, RefCell};
use std::os::fd::AsFd;
use std::rc::Rc;
use std::time::Duration;

use paddock_proto::limits::MAX_PORTS;
use tokio::task::JoinSet;

use super::table;
use crate::intercept::{Answers, CallingProcess, NotifyListener, StoppedCall};
use crate::outlet::Outlet;

/// The pauses before the looks for one socket. The call usually takes microseconds, and more where the
/// processor is busy.
const PAUSES: [Duration; 5] = [
    Duration::from_millis(2),
    Duration::from_millis(10),
    Duration::from_millis(50),
    Duration::from_millis(250),
    Duration::from_secs(1),
];

/// The least pause between two looks.
const LEAST: Duration = Duration::from_millis(10);

/// The most sockets that the agent looks for at one time. Of more it reports only some ports.
const MAX_SOUGHT: usize = 64;

/// The ports of one run.
pub(crate) struct RunPorts {
    outlet: Rc<Outlet>,
    /// The number of each socket that is looked for, and how often it was.
    sought: RefCell<Vec<(u64, usize)>>,
    has_looked: Cell<bool>,
    /// The task that looks, while there is something to look for.
    looking: RefCell<JoinSet<()>>,
    is_over: Cell<bool>,
}

impl RunPorts {
    /// Reports the servers of the run whose events `outlet` sends.
    pub(crate) fn new(outlet: Rc<Outlet>) -> Rc<Self> {
        Rc::new(Self {
            outlet,
            sought: RefCell::default(),
            has_looked: Cell::new(false),
            looking: RefCell::default(),
            is_over: Cell::new(false),
        })
    }

    /// Who answers the `listen`s of the run's programs.
    pub(crate) fn answers(self: &Rc<Self>) -> Box<dyn Answers> {
        Box::new(ListenAnswers(self.clone()))
    }

    /// The run is over: nothing is told from now on.
    pub(crate) async fn close(&self) {
        self.is_over.set(true);
        let mut looking = self.looking.take();
        looking.shutdown().await;
    }

    fn seek(self: &Rc<Self>, socket: u64) {
        let mut sought = self.sought.borrow_mut();
        if self.is_over.get() || sought.len() >= MAX_SOUGHT || sought.iter().any(|(one, _)| *one == socket) {
            return;
        }
        sought.push((socket, 0));
        let mut looking = self.looking.borrow_mut();
        while looking.try_join_next().is_some() {}
        if looking.is_empty() {
            let ports = self.clone();
            looking.spawn_local(async move { ports.look().await });
        }
    }

    /// Looks until every socket that is looked for was found, or was looked for often enough.
    async fn look(&self) {
        loop {
            let looks = self.sought.borrow().iter().map(|(_, looks)| *looks).min();
            let Some(pause) = looks.and_then(|looks| PAUSES.get(looks)) else { return };
            let is_first = !self.has_looked.replace(true);
            tokio::time::sleep(if is_first { *pause } else { LEAST.max(*pause) }).await;
            let listening = table::listening();
            let mut found = Vec::new();
            self.sought.borrow_mut().retain_mut(|(socket, looks)| {
                *looks += 1;
                let port = listening.iter().find(|one| one.socket == *socket).map(|one| one.port);
                found.extend(port);
                port.is_none() && *looks < PAUSES.len()
            });
            for port in found {
                self.outlet.listens(port).await;
            }
        }
    }
}

/// Answers the `listen`s of one run's programs.
struct ListenAnswers(Rc<RunPorts>);

impl Answers for ListenAnswers {
    fn answer(&self, listener: &NotifyListener, call: StoppedCall) {
        let fd = listener.get_ref().as_fd();
        let is_wanted = self.0.outlet.ports() < MAX_PORTS;
        #[expect(clippy::cast_possible_truncation, reason = "as the kernel takes its arguments")]
        let descriptor = call.args[0] as i32;
        let caller = CallingProcess::new(&call, fd);
        let socket = if is_wanted { caller.socket(descriptor) } else { None };
        let socket = socket.filter(|_| caller.is_waiting().is_ok());
        call.proceed(fd);
        if let Some(socket) = socket {
            self.0.seek(socket);
        }
    }
}
