//! The proxy of the container, for programs that know proxies: it hears the name that they mean, so that a
//! blocked one is told with its port, and answers them with a sentence.
//!
//! ```text
//!  program ── CONNECT HOST:PORT, or GET http://… ──► head: where to, and the run's credential
//!     ◄── 407 403 502 ── or ── 200, then its bytes ── traffic ══ a stream ══ daemon
//! ```
//!
//! Variables in the environment of a run tell programs of it, with a credential of the run: by that, and by
//! nothing else, it knows which run asks. Programs that know no proxies are captured by their `connect`. It
//! must never serve a connection without the credential of a run that is under way, nor hold more heads than
//! [`MAX_HEADS`].

mod answer;
mod head;
mod headers;

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::io;
use std::net::Ipv4Addr;
use std::rc::Rc;
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::{Bytes, BytesMut};
use paddock_proto::message::{Ask, Host};
use paddock_proto::{Channel, Kind};
use rustix::io::Errno;
use rustix::net::sockopt;
use rustix::rand::{GetRandomFlags, getrandom};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::spawn_local;

pub(super) use self::answer::AnswerHead;
use self::head::{Head, ProxyRequest};
use super::connect::reply;
use super::own::OwnPort;
use super::run::RunNetwork;
use super::{Network, traffic};

/// Heads that are read at one time; one more is reset.
const MAX_HEADS: usize = 64;

/// The time in which a head must arrive.
const PATIENCE: Duration = Duration::from_secs(10);

/// The user in the credential; the password is the secret.
const USER: &str = "run";

/// What programs read of proxies, each in both spellings. Node and Java do not: they are captured.
const VARIABLES: [&str; 4] = ["http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"];
const EXCEPTIONS: [&str; 2] = ["no_proxy", "NO_PROXY"];
const LOOPBACK: &str = "localhost,127.0.0.1,::1";

/// The proxy of a container, before it serves: its port is taken before any code can take it.
pub(crate) struct Proxy(TcpListener);

/// The runs that the proxy knows, by the value of `Proxy-Authorization`.
#[derive(Default)]
pub(super) struct Credentials {
    /// 0 where there is no proxy.
    port: Cell<u16>,
    runs: RefCell<HashMap<Vec<u8>, Rc<RunNetwork>>>,
}

impl Credentials {
    /// Makes a credential for a run that begins; the variables that tell its programs of the proxy, but for
    /// those that the run has itself.
    pub(super) fn admit(&self, run: &Rc<RunNetwork>, env: &[String]) -> Vec<String> {
        let mut secret = [0; 16];
        let is_made = getrandom(&mut secret, GetRandomFlags::empty()) == Ok(secret.len());
        if self.port.get() == 0 || !is_made {
            return Vec::new();
        }
        let secret: String = secret.iter().map(|byte| format!("{byte:02x}")).collect();
        let value = format!("Basic {}", BASE64_STANDARD.encode(format!("{USER}:{secret}")));
        self.runs.borrow_mut().insert(value.into_bytes(), run.clone());
        let url = format!("http://{USER}:{secret}@127.0.0.1:{}", self.port.get());
        let proxies = VARIABLES.map(|name| (name, url.as_str()));
        let all = proxies.into_iter().chain(EXCEPTIONS.map(|name| (name, LOOPBACK)));
        let is_set = |name: &str| env.iter().any(|one| one.split('=').next() == Some(name));
        all.filter(|(name, _)| !is_set(name)).map(|(name, value)| format!("{name}={value}")).collect()
    }

    /// The run is over.
    pub(super) fn forget(&self, run: &RunNetwork) {
        self.runs.borrow_mut().retain(|_, known| !std::ptr::eq(known.as_ref(), run));
    }

    fn run_of(&self, credential: &[u8]) -> Option<Rc<RunNetwork>> {
        self.runs.borrow().get(credential).filter(|run| run.is_open()).cloned()
    }
}

impl Proxy {
    /// Takes a port of loopback.
    ///
    /// # Errors
    /// The system's.
    pub(crate) async fn bind() -> io::Result<Self> {
        Ok(Self(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?))
    }

    /// Serves for as long as the container lives.
    pub(crate) fn serve(self, network: Rc<Network>) {
        let port = self.0.local_addr().map_or(0, |addr| addr.port());
        network.credentials.port.set(port);
        spawn_local(async move {
            let _own = OwnPort::note(port);
            let heads = Rc::new(Cell::new(0));
            loop {
                let Ok((program, _)) = self.0.accept().await else {
                    tokio::time::sleep(PATIENCE / 100).await; // out of descriptors
                    continue;
                };
                if heads.get() >= MAX_HEADS {
                    let _ = sockopt::set_socket_linger(&program, Some(Duration::ZERO));
                    continue;
                }
                heads.set(heads.get() + 1);
                let (network, heads) = (network.clone(), heads.clone());
                spawn_local(async move {
                    let asked = tokio::time::timeout(PATIENCE, hear(program)).await;
                    heads.set(heads.get() - 1);
                    if let Ok(Some((program, request, rest))) = asked {
                        serve(&network, program, request, rest).await;
                    }
                });
            }
        });
    }
}

/// The request of a program, and what it sent behind the head. One that is malformed is answered.
async fn hear(mut program: TcpStream) -> Option<(TcpStream, ProxyRequest, Bytes)> {
    let mut bytes = BytesMut::new();
    loop {
        if program.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
        match head::read(&bytes) {
            Head::Incomplete => {}
            Head::Bad(why) => {
                refuse(program, "400 Bad Request", why).await;
                return None;
            }
            Head::Complete(request) => {
                let rest = bytes.split_off(request.length).freeze();
                return Some((program, request, rest));
            }
        }
    }
}

/// Serves a request for the run whose credential it has.
async fn serve(network: &Rc<Network>, program: TcpStream, request: ProxyRequest, rest: Bytes) {
    let Some(run) = network.credentials.run_of(&request.credential) else {
        let why = "this proxy serves runs that have a network, with the credential of their environment";
        return refuse(program, "407 Proxy Authentication Required", why).await;
    };
    let network = network.clone();
    let (id, asking) = (run.id.clone(), run.clone());
    run.clone().spawn(async move {
        let shown = match &request.host {
            Host::Name(name) => format!("{name}:{}", request.port),
            Host::Address(address) => std::net::SocketAddr::from((*address, request.port)).to_string(),
        };
        let ask = Ask::Connect { run: id, host: request.host, port: request.port };
        let Some(daemon) = network.open(&asking, &ask) else {
            return refuse(program, "503 Service Unavailable", "too many connections are open").await;
        };
        let replied = tokio::select! {
            replied = reply(&daemon, true) => replied,
            () = run.over() => return,
        };
        if let Err(errno) = replied {
            let (status, why) = match errno {
                Errno::ACCESS => ("403 Forbidden", "is blocked: this run may not reach it"),
                Errno::TIMEDOUT => ("504 Gateway Timeout", "did not answer in time"),
                Errno::HOSTUNREACH => ("502 Bad Gateway", "has no address"),
                Errno::ADDRNOTAVAIL => ("503 Service Unavailable", "is one connection too many"),
                _ => ("502 Bad Gateway", "cannot be reached"),
            };
            return refuse(program, status, &format!("{shown} {why}")).await;
        }
        let mut program = program;
        // A tunnel carries the server's bytes as they are.
        let answer = request.forward.is_some().then(AnswerHead::default);
        let first = match request.forward {
            Some(head) => Bytes::from(head),
            None => {
                let established = b"HTTP/1.1 200 Connection established\r\n\r\n";
                if program.write_all(established).await.is_err() {
                    return;
                }
                Bytes::new()
            }
        };
        for bytes in [first, rest].into_iter().filter(|bytes| !bytes.is_empty()) {
            if !daemon.send(Kind::Data(Channel::Net), bytes).await {
                return;
            }
        }
        // From here on what breaks off is a reset, as for every other connection.
        let _ = sockopt::set_socket_linger(&program, Some(Duration::ZERO));
        traffic::carry_answer(program, daemon, answer, run.over()).await;
    });
}

/// Answers with a status and a sentence, and closes.
async fn refuse(mut program: TcpStream, status: &str, why: &str) {
    let basic =
        if status.starts_with("407") { "Proxy-Authenticate: Basic realm=\"paddock\"\r\n" } else { "" };
    let answer = format!(
        "HTTP/1.1 {status}\r\n{basic}Content-Type: text/plain; charset=utf-8\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n{why}\n",
        why.len() + 1
    );
    let _ = tokio::time::timeout(PATIENCE, async {
        program.write_all(answer.as_bytes()).await?;
        program.shutdown().await
    })
    .await;
}
