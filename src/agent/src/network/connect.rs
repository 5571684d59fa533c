//! A program's `connect`, which the kernel has stopped, from the call to the end of the connection.
//!
//! ```text
//!  connect ─► out of the container, by TCP, of a run with a network? ── no ──► the kernel makes the call
//!    └─ yes ─► ask the daemon ─► Refused ──────────────────────────────────► the call fails
//!                └─ Allowed ──► Connected ─► join, the call succeeds ─► traffic
//!                     └──► a call that does not wait: join, "in progress" ─► Connected ─► traffic
//!                                                                              └─ Refused ─► reset
//! ```
//!
//! It must never ask for a run by anything that the program says, nor connect a socket for a call that no
//! longer waits.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::rc::Rc;
use std::time::Duration;

use paddock_proto::Inbound;
use paddock_proto::message::{self, Ask, ConnectFailure, Host, Reply};
use rustix::io::Errno;

use super::address::{self, leading_out};
use super::join::{MeetingPoint, join};
use super::names::is_reserved;
use super::run::RunNetwork;
use super::socket::ProgramSocket;
use super::who::Owner;
use super::{Network, traffic};
use crate::intercept::{Answers, CallingProcess, NotifyListener, StoppedCall};
use crate::link::Stream;

/// Between two looks at whether the caller still waits, and the daemon is there.
const LOOK: Duration = Duration::from_millis(100);

/// Without a daemon for this many looks a call fails: a daemon that is restarted is back sooner.
const LOOKS_WITHOUT_DAEMON: u32 = 100;

/// Answers the `connect`s of one program and of all that it starts.
pub(super) struct ConnectAnswers {
    pub(super) network: Rc<Network>,
    pub(super) owner: Owner,
}

/// A `connect` that leads out, and all that is needed to make it.
struct Wanted {
    socket: ProgramSocket,
    run: Rc<RunNetwork>,
    to: SocketAddr,
    host: Host,
}

impl Answers for ConnectAnswers {
    fn answer(&self, listener: &NotifyListener, call: StoppedCall) {
        let fd = listener.get_ref().as_fd();
        // A descriptor that is none, an address that cannot be read, a process that cannot be looked into:
        // the kernel has the right errors for all of them, and no way out.
        let Ok(Some(wanted)) = self.look(&CallingProcess::new(&call, fd)) else { return call.proceed(fd) };
        let ask =
            Ask::Connect { run: wanted.run.id.clone(), host: wanted.host.clone(), port: wanted.to.port() };
        let Some(daemon) = self.network.open(&wanted.run, &ask) else {
            return call.answer(fd, Err(Errno::ADDRNOTAVAIL));
        };
        let (network, listener, run) = (self.network.clone(), listener.clone(), wanted.run.clone());
        run.clone().spawn(async move {
            let pending = PendingCall { network, listener, call };
            let served = tokio::select! {
                served = pending.serve(wanted, &daemon) => served,
                () = run.over() => return, // the caller is dead
            };
            match served {
                Ok(program) => traffic::carry(program, daemon, run.over()).await,
                // The daemon's stream and the program's side, if there is one, are reset.
                Err(errno) => pending.answer(Err(errno)),
            }
        });
    }
}

impl ConnectAnswers {
    /// What the call wants, if it is not the kernel's own matter.
    fn look(&self, caller: &CallingProcess<'_>) -> Result<Option<Wanted>, Errno> {
        let [fd, address, length, ..] = caller.call.args;
        let run = self.owner.run_of(|| caller.leader().ok().map(u32::cast_signed));
        let Some(run) = run else { return Ok(None) };
        // As the kernel takes it: an `int`, and not more than its own structure.
        let length = usize::try_from(length & 0xFFFF_FFFF).unwrap_or(usize::MAX);
        if length > address::LONGEST {
            return Ok(None);
        }
        let Some(to) = leading_out(&caller.bytes(address, length)?) else { return Ok(None) };
        let Some(host) = self.host(to.ip().to_canonical()) else { return Ok(None) };
        #[expect(clippy::cast_possible_truncation, reason = "as the kernel takes its arguments")]
        let socket = ProgramSocket::copy(caller, fd as i32)?;
        // Many programs call again to learn how far it is.
        if !socket.is_tcp_for(to)? || socket.is_connected() {
            return Ok(None);
        }
        caller.is_waiting()?;
        Ok(Some(Wanted { socket, run, to, host }))
    }

    /// The name that an address stands for, or the address itself; `None` if it is reserved and has no name.
    fn host(&self, address: IpAddr) -> Option<Host> {
        match address {
            IpAddr::V4(v4) if is_reserved(v4) => {
                self.network.names.borrow().name_of(v4).map(|name| Host::Name(name.to_owned()))
            }
            address @ (IpAddr::V4(_) | IpAddr::V6(_)) => Some(Host::Address(address)),
        }
    }
}

/// A call that waits for the daemon.
struct PendingCall {
    network: Rc<Network>,
    listener: NotifyListener,
    call: StoppedCall,
}

impl PendingCall {
    fn is_waiting(&self) -> bool {
        self.call.is_waiting(self.listener.get_ref().as_fd())
    }

    fn answer(&self, result: Result<(), Errno>) {
        self.call.answer(self.listener.get_ref().as_fd(), result);
    }

    /// Sees the call to its answer, and the connection to its beginning: the program's side of it.
    ///
    /// # Errors
    /// What the call is answered with, if it is not answered yet.
    async fn serve(&self, wanted: Wanted, daemon: &Stream) -> Result<tokio::net::TcpStream, Errno> {
        let Wanted { socket, to, .. } = wanted;
        let waits = socket.waits()?;
        let patience = socket.patience().unwrap_or(Duration::MAX);
        // The daemon has been asked, and dials meanwhile.
        let point = MeetingPoint::new()?;
        let allowed = self.while_it_waits(allowed(daemon, waits));
        // As the kernel says it where a program waits only for some time.
        let connected = tokio::time::timeout(patience, allowed).await.unwrap_or(Err(Errno::INPROGRESS))?;
        if !self.is_waiting() {
            return Err(Errno::SRCH);
        }
        let program = join(&socket, to.is_ipv4(), point).await?;
        if waits {
            // The kernel's own state: a call that waited leaves none in progress.
            let _ = socket.connect(to);
            self.answer(Ok(()));
        } else {
            self.answer(Err(Errno::INPROGRESS));
        }
        // With this copy the connection would stay when the program closes its own.
        drop(socket);
        if !connected {
            tokio::select! {
                replied = reply(daemon, true) => replied?,
                () = given_up(&program) => return Err(Errno::CONNRESET),
            };
        }
        Ok(program)
    }

    /// Does something as long as the caller waits, and a daemon is there.
    async fn while_it_waits<T>(&self, act: impl Future<Output = Result<T, Errno>>) -> Result<T, Errno> {
        tokio::pin!(act);
        let mut looks = 0;
        loop {
            if let Ok(done) = tokio::time::timeout(LOOK, &mut act).await {
                return done;
            }
            looks = if self.network.link.is_carried() { 0 } else { looks + 1 };
            if looks >= LOOKS_WITHOUT_DAEMON {
                return Err(Errno::NETDOWN);
            }
            if !self.is_waiting() {
                return Err(Errno::SRCH);
            }
        }
    }
}

/// Waits until the daemon allows the connection, or with `all` until it is made; whether it is made.
async fn allowed(daemon: &Stream, all: bool) -> Result<bool, Errno> {
    Ok(matches!(reply(daemon, all).await?, Reply::Connected))
}

/// The daemon's next reply; with `connected` the first that says more than that it is allowed.
pub(super) async fn reply(daemon: &Stream, connected: bool) -> Result<Reply, Errno> {
    loop {
        let Inbound::Message(bytes) = daemon.recv().await else {
            // The daemon was replaced, and knows this connection no more; or the other side has reset it.
            return Err(if daemon.is_orphaned() { Errno::NETDOWN } else { Errno::CONNRESET });
        };
        match message::decode(&bytes).map_err(|_| Errno::NETDOWN)? {
            Reply::Refused(why) => return Err(errno(why)),
            Reply::Allowed if connected => {}
            reply @ (Reply::Allowed | Reply::Connected) => return Ok(reply),
        }
    }
}

/// Resolves when the program has ended its side of a connection without a byte: nobody waits for it.
pub(super) async fn given_up(program: &tokio::net::TcpStream) {
    if let Ok(1..) = program.peek(&mut [0]).await {
        std::future::pending().await
    }
}

/// As a kernel with a network would say it.
fn errno(why: ConnectFailure) -> Errno {
    match why {
        ConnectFailure::Blocked => Errno::ACCESS,
        ConnectFailure::NoAddress => Errno::HOSTUNREACH,
        ConnectFailure::Refused => Errno::CONNREFUSED,
        ConnectFailure::Unreachable => Errno::NETUNREACH,
        ConnectFailure::TimedOut => Errno::TIMEDOUT,
        ConnectFailure::TooMany => Errno::ADDRNOTAVAIL,
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt;
    use tokio::net::{TcpListener, TcpStream};

    use super::given_up;

    const SOON: std::time::Duration = std::time::Duration::from_secs(10);

    #[tokio::test(flavor = "current_thread")]
    async fn a_program_that_ends_its_side_without_a_byte_has_given_up() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a listener");
        let pair = async || {
            let program = TcpStream::connect(listener.local_addr().expect("it is bound")).await;
            (program.expect("a connection"), listener.accept().await.expect("its other end").0)
        };
        let (program, ours) = pair().await;
        drop(program);
        tokio::time::timeout(SOON, given_up(&ours)).await.expect("it has given up");
        let (mut program, ours) = pair().await;
        program.write_all(b"x").await.expect("it is connected");
        program.shutdown().await.expect("it is connected");
        ours.readable().await.expect("there is a byte");
        let moment = std::time::Duration::from_millis(50);
        assert!(tokio::time::timeout(moment, given_up(&ours)).await.is_err(), "it waits for an answer");
    }
}
