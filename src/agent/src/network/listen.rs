//! The way out where PID 1 cannot be told of the `connect`s of programs, as in gVisor: it listens at the
//! addresses that its resolver gave for names.
//!
//! ```text
//!  program ── getaddrinfo ──► resolver ── a listener for each port (egress.listen_ports) at 127.64.x.y
//!     └────── connect ──► the kernel connects it ─► accept ── Ask::Connect ──► daemon: may it?
//!     ◄═════════════════ its own connection ══ traffic ══ a stream ══ daemon dials
//! ```
//!
//! What differs from a `connect` that is stopped ([`connect`](super::connect)):
//!
//! - The program is connected before the daemon has decided. A connection that is blocked, or cannot be made,
//!   is reset at once.
//! - Only names are captured, and only on these ports. An address, or another port, fails with the kernel's
//!   own error, and the daemon hears nothing of it. Programs that know proxies reach both.
//! - **A connection does not say which run it comes from.** So PID 1 serves one only while a single run is
//!   under way in the container, and resets all others. The table of sockets (/proc/net/tcp) would not say
//!   it for sure: between two looks a descriptor can change hands. While several runs are under way, the
//!   resolver answers that it cannot answer now. What waits to be accepted when a run ends could come from
//!   that run, so every listener is then closed, which resets what waits, and made anew.
//! - A server of the container's own on all addresses (0.0.0.0) and one of these ports excludes a listener
//!   there, whichever comes first. That is why none of the usual ports of people's own servers is among the
//!   defaults. Another run of the session can take an address of 127.64.0.0/10 itself, on a port where
//!   nobody listens.
//!
//! Listeners exist only while a run with a network is under way, at most [`MAX_LISTENERS`]. It must never
//! serve a connection that could come from another run than the one it asks for.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use paddock_proto::limits::MAX_LISTEN_PORTS;
use paddock_proto::message::{Ask, Host};
use rustix::net::sockopt;
use rustix::process::{Resource, getrlimit};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::Notify;
use tokio::task::spawn_local;

use super::connect::{given_up, reply};
use super::{Network, traffic};

/// Listeners at one time. PID 1 has descriptors for them, for the connections, and for starting programs;
/// where it may have few, a quarter of them at most.
const MAX_LISTENERS: usize = 256;

/// Connections of one listener that may wait to be accepted.
const BACKLOG: u32 = 64;

/// The pause before the next attempt to accept a connection, when no descriptor is left.
const PAUSE: Duration = Duration::from_millis(50);

/// The listeners of a container.
#[derive(Default)]
pub(super) struct Listeners {
    /// On which ports it listens for each name.
    ports: RefCell<Vec<u16>>,
    /// The name that was looked up last is the last one.
    open: RefCell<VecDeque<NameListeners>>,
    is_served: Cell<bool>,
    /// There are other listeners than before.
    changed: Notify,
}

/// The listeners of one name.
struct NameListeners {
    name: String,
    address: Ipv4Addr,
    listeners: Vec<(u16, TcpListener)>,
}

/// A connection that a program has made.
struct Accepted {
    program: TcpStream,
    name: String,
    port: u16,
}

impl Listeners {
    /// The ports that a daemon gives; it may be another daemon than before.
    pub(super) fn set_ports(&self, ports: &[u16]) {
        self.ports.replace(ports.iter().copied().take(MAX_LISTEN_PORTS).collect());
    }

    /// Listens at the address of a name; whether there is a listener.
    fn listen(&self, name: &str, address: Ipv4Addr) -> bool {
        let mut open = self.open.borrow_mut();
        let known = open.iter().position(|one| one.address == address);
        let mut one = match known.and_then(|at| open.remove(at)) {
            Some(one) => one,
            None => NameListeners { name: name.to_owned(), address, listeners: Vec::new() },
        };
        let ports = self.ports.borrow();
        let count =
            |open: &VecDeque<NameListeners>| open.iter().map(|one| one.listeners.len()).sum::<usize>();
        while count(&open) + ports.len() > most() && open.pop_front().is_some() {}
        for port in ports.iter().filter(|_| ports.len() <= most()) {
            if one.listeners.iter().all(|(known, _)| known != port)
                && let Ok(listener) = bind(address, *port)
            {
                one.listeners.push((*port, listener));
            }
        }
        let is_there = !one.listeners.is_empty();
        if is_there {
            open.push_back(one);
        }
        self.changed.notify_one();
        is_there
    }

    /// Closes every listener, and resets what waits to be accepted there. With `again` they are made anew.
    pub(super) fn reset(&self, again: bool) {
        let mut closed = self.open.take();
        if again {
            for one in &mut closed {
                let ports: Vec<u16> = one.listeners.drain(..).map(|(port, _)| port).collect();
                let made = ports.iter().filter_map(|port| Some((*port, bind(one.address, *port).ok()?)));
                one.listeners.extend(made);
            }
            closed.retain(|one| !one.listeners.is_empty());
            self.open.replace(closed);
        }
        self.changed.notify_one();
    }

    /// The next connection, on whichever listener it is.
    async fn accept(&self) -> io::Result<Accepted> {
        loop {
            tokio::select! {
                accepted = poll_fn(|context| self.poll_accept(context)) => return accepted,
                () = self.changed.notified() => {}
            }
        }
    }

    fn poll_accept(&self, context: &mut Context<'_>) -> Poll<io::Result<Accepted>> {
        for one in self.open.borrow().iter() {
            for (port, listener) in &one.listeners {
                if let Poll::Ready(accepted) = listener.poll_accept(context) {
                    let (name, port) = (one.name.clone(), *port);
                    return Poll::Ready(accepted.map(|(program, _)| Accepted { program, name, port }));
                }
            }
        }
        Poll::Pending
    }

    #[cfg(test)]
    fn addresses(&self) -> Vec<Ipv4Addr> {
        self.open.borrow().iter().map(|one| one.address).collect()
    }
}

/// The most listeners that this process may have.
fn most() -> usize {
    let descriptors = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    usize::try_from(descriptors / 4).unwrap_or(usize::MAX).min(MAX_LISTENERS)
}

fn bind(address: Ipv4Addr, port: u16) -> io::Result<TcpListener> {
    let socket = TcpSocket::new_v4()?;
    // Connections of the listener before it may still be there.
    socket.set_reuseaddr(true)?;
    socket.bind(SocketAddr::from((address, port)))?;
    socket.listen(BACKLOG)
}

impl Network {
    /// From now on connections to the address reach the name; false if they do not, for now.
    pub(super) fn listen_for(self: &Rc<Self>, name: &str, address: Ipv4Addr) -> bool {
        if self.only_run().is_none() || !self.listeners.listen(name, address) {
            return false;
        }
        if !self.listeners.is_served.replace(true) {
            let network = self.clone();
            spawn_local(async move { network.serve_listeners().await });
        }
        true
    }

    /// Serves for as long as the container lives.
    async fn serve_listeners(self: Rc<Self>) {
        loop {
            match self.listeners.accept().await {
                Ok(accepted) => self.serve_accepted(accepted),
                Err(_) => tokio::time::sleep(PAUSE).await, // out of descriptors
            }
            tokio::task::consume_budget().await;
        }
    }

    /// Serves a connection for the only run that it can come from. Nothing runs between the moment at which
    /// it is accepted and this. A connection that is not served is reset.
    fn serve_accepted(self: &Rc<Self>, Accepted { program, name, port }: Accepted) {
        let _ = sockopt::set_socket_linger(&program, Some(Duration::ZERO));
        let _ = sockopt::set_tcp_nodelay(&program, true);
        let Some(run) = self.only_run() else { return };
        let ask = Ask::Connect { run: run.id.clone(), host: Host::Name(name), port };
        let Some(daemon) = self.open(&run, &ask) else { return };
        let of = run.clone();
        run.spawn(async move {
            let replied = tokio::select! {
                replied = reply(&daemon, true) => replied,
                () = given_up(&program) => return,
                () = of.over() => return,
            };
            if replied.is_ok() {
                traffic::carry(program, daemon, of.over()).await;
            }
        });
    }
}

#[cfg(test)]
mod tests;
