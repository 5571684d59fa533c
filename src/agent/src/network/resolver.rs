//! The resolver of the container, on port 53 of 127.0.0.1: names that a run may reach, and no others.
//!
//! It asks the daemon whether a name may be looked up, and nobody else: no question leaves before a
//! connection is made. A datagram does not show its run: where several are under way, a name counts that any
//! of them may reach; the connection is judged by its own run anyway. It must never hold more than a bounded
//! number of questions; what is over that is dropped, as by any busy resolver.

use std::cell::Cell;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;

use paddock_proto::limits::MAX_NAME_ASKS;
use paddock_proto::message::{self, Ask};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::task::spawn_local;

use super::Network;
use super::connect::reply;
use super::dns::{Answer, LONGEST, NoQuery, Query, RecordType, is_localhost, reversed};
use super::own::OwnPort;

/// Where programs look for it (/etc/resolv.conf).
const ADDRESS: (Ipv4Addr, u16) = (Ipv4Addr::LOCALHOST, 53);

/// Programs wait 5 s for an answer, and ask again.
const WITHIN: Duration = Duration::from_secs(4);

/// Connections at one time, and questions on one of them; how long one may take to ask.
const MAX_CONNECTIONS: usize = 16;
const MAX_QUESTIONS: usize = 64;
const PATIENCE: Duration = Duration::from_secs(5);

/// Its sockets, bound before any code can take the port.
pub(crate) struct Resolver {
    udp: UdpSocket,
    tcp: TcpListener,
}

impl Resolver {
    /// Takes the port.
    ///
    /// # Errors
    /// The system's, where a user may not bind it.
    pub(crate) async fn bind() -> io::Result<Self> {
        Ok(Self { udp: UdpSocket::bind(ADDRESS).await?, tcp: TcpListener::bind(ADDRESS).await? })
    }

    /// On other ports than programs look for, and which those are.
    #[cfg(test)]
    pub(super) async fn elsewhere() -> (Self, u16, u16) {
        let any = (ADDRESS.0, 0);
        let (udp, tcp) =
            (UdpSocket::bind(any).await.expect("a port"), TcpListener::bind(any).await.expect("a port"));
        let (udp_port, tcp_port) =
            (udp.local_addr().expect("bound").port(), tcp.local_addr().expect("bound").port());
        (Self { udp, tcp }, udp_port, tcp_port)
    }

    /// Answers for as long as the container lives.
    pub(crate) fn serve(self, network: Rc<Network>) {
        let asked = Rc::new(Cell::new(0));
        network.resolves.set(true);
        let port = self.tcp.local_addr().map_or(ADDRESS.1, |addr| addr.port());
        spawn_local(datagrams(network.clone(), Rc::new(self.udp), asked.clone()));
        spawn_local(async move {
            let _own = OwnPort::note(port);
            connections(network, self.tcp, asked).await;
        });
    }
}

async fn datagrams(network: Rc<Network>, socket: Rc<UdpSocket>, asked: Rc<Cell<usize>>) {
    let mut buffer = vec![0; LONGEST];
    loop {
        let Ok((length, from)) = socket.recv_from(&mut buffer).await else {
            tokio::time::sleep(PATIENCE / 100).await;
            continue;
        };
        if from.port() == ADDRESS.1 {
            continue; // no program has that port
        }
        let message = &buffer[..length];
        match at_once(&network, message) {
            Some(answer) => send(&socket, &answer, from),
            None if asked.get() >= MAX_NAME_ASKS => {}
            None => {
                let (network, socket, message) = (network.clone(), socket.clone(), message.to_vec());
                let slot = Slot::take(&asked);
                spawn_local(async move {
                    send(&socket, &answer(&network, &message).await, from);
                    drop(slot);
                });
            }
        }
        tokio::task::consume_budget().await;
    }
}

/// An answer that finds no room in the program's socket is lost, as datagrams are.
fn send(socket: &UdpSocket, answer: &[u8], to: SocketAddr) {
    if !answer.is_empty() {
        let _ = socket.try_send_to(answer, to);
    }
}

async fn connections(network: Rc<Network>, listener: TcpListener, asked: Rc<Cell<usize>>) {
    let open = Rc::new(Cell::new(0));
    loop {
        let Ok((connection, _)) = listener.accept().await else {
            tokio::time::sleep(PATIENCE / 100).await; // out of descriptors
            continue;
        };
        if open.get() < MAX_CONNECTIONS {
            let (network, asked, slot) = (network.clone(), asked.clone(), Slot::take(&open));
            spawn_local(async move {
                let _ = talk(&network, connection, &asked).await;
                drop(slot);
            });
        }
    }
}

/// One program's questions, one after the other.
async fn talk(network: &Rc<Network>, mut connection: TcpStream, asked: &Rc<Cell<usize>>) -> io::Result<()> {
    for _ in 0..MAX_QUESTIONS {
        let question = async {
            let mut message = vec![0; usize::from(connection.read_u16().await?)];
            if message.len() > LONGEST {
                return Err(io::ErrorKind::InvalidData.into());
            }
            connection.read_exact(&mut message).await?;
            Ok::<_, io::Error>(message)
        };
        let message = tokio::time::timeout(PATIENCE, question).await??;
        let answer = match at_once(network, &message) {
            Some(answer) => answer,
            None if asked.get() >= MAX_NAME_ASKS => return Ok(()),
            None => {
                let _slot = Slot::take(asked);
                answer(network, &message).await
            }
        };
        let length = u16::try_from(answer.len()).map_err(|_| io::ErrorKind::InvalidData)?;
        let whole = [&length.to_be_bytes()[..], &answer].concat();
        tokio::time::timeout(PATIENCE, connection.write_all(&whole)).await??;
    }
    Ok(())
}

/// The answer to what needs no daemon, empty for what is not answered; `None` if the daemon must be asked.
fn at_once(network: &Network, message: &[u8]) -> Option<Vec<u8>> {
    let query = match Query::read(message) {
        Ok(query) => query,
        Err(NoQuery::Refused(answer)) => return Some(answer),
        Err(NoQuery::Ignored) => return Some(Vec::new()),
    };
    let Some(name) = query.name.as_deref() else { return Some(query.answer(Answer::NoName)) };
    if is_localhost(name) || is_own(name) {
        let is_address = query.wants == RecordType::Address;
        let address = Answer::Address(Ipv4Addr::LOCALHOST);
        return Some(query.answer(if is_address { address } else { Answer::Nothing }));
    }
    if let Some(address) = reversed(name) {
        return Some(query.answer(match network.names.borrow().name_of(address) {
            Some(name) if query.wants == RecordType::Pointer => Answer::Pointer(name),
            Some(_) => Answer::Nothing,
            None if address == Ipv4Addr::LOCALHOST => Answer::Pointer("localhost"),
            None => Answer::NoName,
        }));
    }
    // As where nobody listens: programs then say that a name cannot be resolved for the moment.
    (network.open_runs() == 0).then(|| query.answer(Answer::Failure))
}

/// Whether it is the name of this machine. Programs look that up for themselves, as git does for its commits.
fn is_own(name: &str) -> bool {
    rustix::system::uname().nodename().to_bytes().eq_ignore_ascii_case(name.as_bytes())
}

/// Asks the daemon.
async fn answer(network: &Rc<Network>, message: &[u8]) -> Vec<u8> {
    let Ok(Query { name: Some(name), .. }) = Query::read(message) else { return Vec::new() };
    let allowed = async {
        let ask = Ask::Name { run: network.only_run().map(|run| run.id.clone()), name: name.clone() };
        let stream = network.link.open(message::encode(&ask))?;
        let allowed = reply(&stream, false).await;
        stream.close().await;
        match allowed {
            Ok(_) => Some(true),
            Err(rustix::io::Errno::NETDOWN) => None,
            Err(_) => Some(false),
        }
    };
    let allowed = tokio::time::timeout(WITHIN, allowed).await.ok().flatten();
    let Ok(query) = Query::read(message) else { return Vec::new() };
    query.answer(match (allowed, query.wants) {
        (None, _) => Answer::Failure,
        (Some(false), _) => Answer::NoName,
        (Some(true), RecordType::Pointer | RecordType::Other) => Answer::Nothing,
        (Some(true), RecordType::Address) => match address(network, &name) {
            Some(address) => Answer::Address(address),
            None => Answer::Failure,
        },
    })
}

/// The address that stands for a name, if connections to it reach the name.
fn address(network: &Rc<Network>, name: &str) -> Option<Ipv4Addr> {
    let address = network.names.borrow_mut().address_of(name)?;
    (network.is_told() || network.listen_for(name, address)).then_some(address)
}

/// One of a bounded number.
struct Slot(Rc<Cell<usize>>);

impl Slot {
    fn take(of: &Rc<Cell<usize>>) -> Self {
        of.set(of.get() + 1);
        Self(of.clone())
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}
