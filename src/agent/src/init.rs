//! PID 1: sets itself up, listens, and serves whichever daemon knows the secret.
//!
//! It must never start a program before the secret is set, nor serve two carriers at once, nor outlive its
//! daemon by more than it was told.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener as StdListener};
use std::rc::Rc;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use paddock_proto::frame::Frame;
use paddock_proto::limits::{HELLO_MS, SOCKET_NAME};
use paddock_proto::message::{self, Claim, HelloReply, VERSION};
use paddock_proto::{Event, Hello, Kind, Request};
use rustix::process::{DumpableBehavior, set_dumpable_behavior};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixListener;
use tokio::task::{LocalSet, spawn_local};

use crate::carrier::Carrier;
use crate::container::Container;
use crate::foreign::Brief;
use crate::{apply, base, collect, direct, probe, run, tree, warm};

/// Connections that have not said who they are; only code in the container could make more.
const MAX_STRANGERS: usize = 8;

pub(crate) fn main() -> std::io::Result<()> {
    // The program's mode already makes it so; this holds for copies with another mode too.
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    std::env::set_current_dir("/")?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    LocalSet::new().block_on(&runtime, serve())
}

async fn serve() -> std::io::Result<()> {
    let listener = StdListener::bind_addr(&SocketAddr::from_abstract_name(SOCKET_NAME)?)?;
    listener.set_nonblocking(true)?;
    let listener = UnixListener::from_std(listener)?;
    let container = Rc::new(Container::new());
    spawn_local(container.reaper.clone().serve());
    spawn_local(accept_streams(container.clone()));
    spawn_local(accept_carriers(container.clone(), listener));
    orphaned(&container).await;
    Ok(())
}

/// Resolves when no daemon has been heard for too long; the container then ends with PID 1.
async fn orphaned(container: &Container) {
    loop {
        let served = container.carrier.borrow().as_ref().is_some_and(|c| !c.is_finished());
        if served {
            container.last_heard.set(Instant::now());
        }
        let left = container.orphan_after.get().saturating_sub(container.last_heard.get().elapsed());
        if left.is_zero() {
            return;
        }
        tokio::time::sleep(left.min(Duration::from_secs(1))).await;
    }
}

async fn accept_carriers(container: Rc<Container>, listener: UnixListener) {
    loop {
        let Ok((socket, _)) = listener.accept().await else {
            tokio::time::sleep(Duration::from_millis(50)).await; // out of descriptors: code holds them
            continue;
        };
        // Code may have sent sockets over it that nobody will ever read, and whose close waits.
        let socket = Brief::new(socket);
        // A bridge has no parent in here, and code can make no process that has none. Before the secret is set there
        // is no code: if that bridge could be told, all can, and nobody else's descriptors are touched. A runtime that
        // hides who connects has a few places for strangers, so that a flood of them keeps no daemon out for long.
        let is_bridge = socket.peer_cred().ok().and_then(|peer| peer.pid()).is_some_and(tree::is_nobodys);
        let has_place = !container.tells_bridges.get() && container.strangers.get() < MAX_STRANGERS;
        if is_bridge || has_place {
            container.strangers.set(container.strangers.get() + 1);
            let container = container.clone();
            spawn_local(async move {
                let hello = async {
                    let carrier = Carrier::receive(socket).await.ok()?;
                    greet(&container, carrier).await
                };
                let greeted = tokio::time::timeout(Duration::from_millis(HELLO_MS), hello).await;
                container.strangers.set(container.strangers.get() - 1);
                if let Some((carrier, rest)) = greeted.ok().flatten() {
                    if is_bridge {
                        container.tells_bridges.set(true);
                    }
                    take_over(&container, carrier, rest);
                }
            });
        }
    }
}

/// Hears a hello and answers it; nothing for whoever does not know the secret.
pub(crate) async fn greet(container: &Rc<Container>, mut carrier: Carrier) -> Option<(Carrier, BytesMut)> {
    let mut input = BytesMut::new();
    let frame = loop {
        if let Some(frame) = Frame::decode(&mut input).ok()? {
            break frame;
        }
        if carrier.from.read_buf(&mut input).await.ok()? == 0 {
            return None;
        }
    };
    if frame.stream != 0 || frame.kind != Kind::Message {
        return None;
    }
    let hello: Hello = message::decode(&frame.payload).ok()?;
    let known = container.secret.get().unwrap_or(hello.secret);
    if hello.version != VERSION || !equal(&known, &hello.secret) {
        return None;
    }
    container.secret.set(Some(known));
    container.orphan_after.set(Duration::from_millis(hello.orphan_after_ms));
    if container.peer.replace(hello.link) != hello.link {
        container.link.restart();
    }
    let reply = HelloReply {
        version: VERSION,
        ran: container.begun.get() > 0,
        claim: container.claim.get(),
        runs: container.runs.borrow().keys().cloned().collect(),
        resume: container.link.resume_points(),
        direct: if hello.direct { direct::offer(container).ok() } else { None },
    };
    // The old carrier must be silent before the streams are rewound for the new one.
    if let Some(old) = container.carrier.borrow_mut().take() {
        old.abort();
    }
    container.link.resume(&hello.resume).ok()?;
    let mut out = BytesMut::new();
    Frame { stream: 0, kind: Kind::Message, payload: message::encode(&reply) }.encode(&mut out);
    carrier.to.write_all(&out).await.ok()?;
    Some((carrier, input))
}

/// From now on this carrier serves.
pub(crate) fn take_over(container: &Rc<Container>, carrier: Carrier, rest: BytesMut) {
    let link = container.link.clone();
    container.bridge.set(carrier.process());
    let carrying = spawn_local(async move {
        let _ = link.carry(carrier, rest).await;
    });
    if let Some(old) = container.carrier.borrow_mut().replace(carrying) {
        old.abort();
    }
}

/// In constant time.
fn equal(a: &[u8; 32], b: &[u8; 32]) -> bool {
    std::hint::black_box(a.iter().zip(b).fold(0, |differ, (x, y)| differ | (x ^ y))) == 0
}

/// A container belongs to one session in its life.
fn claimed(container: &Container, claim: Claim) -> Event {
    if container.claim.get().is_some_and(|holder| holder != claim) {
        return Event::Failed { what: "the container belongs to another session".to_owned() };
    }
    container.claim.set(Some(claim));
    Event::Claimed
}

async fn accept_streams(container: Rc<Container>) {
    loop {
        let stream = container.link.accept().await;
        let container = container.clone();
        spawn_local(async move {
            match stream.request().await {
                Ok(Request::Run(spec)) => run::serve(container, stream, spec).await,
                Ok(Request::Attach(id)) => run::attach(&container, stream, &id).await,
                Ok(Request::End { id, grace_ms }) => run::end(&container, stream, &id, grace_ms).await,
                Ok(Request::Claim(claim)) => {
                    stream.event(&claimed(&container, claim)).await;
                    stream.close().await;
                }
                Ok(Request::Collect) => {
                    collect::serve(&container, &stream).await;
                    stream.close().await;
                }
                Ok(Request::Apply) => apply::serve(&container, &stream).await,
                Ok(Request::Base) => base::tell(&container, &stream).await,
                Ok(Request::Settle) => base::settle(&container, &stream).await,
                Ok(Request::Warm(spec)) => warm::serve(&container, stream, spec).await,
                Ok(Request::Probe(quotas)) => {
                    stream.event(&Event::Facts(Box::new(probe::look(quotas)))).await;
                    stream.close().await;
                }
                // Not a beginning: dropping the stream resets it.
                Ok(Request::Commit | Request::Put(_) | Request::Remove(_)) | Err(_) => {}
            }
        });
    }
}
