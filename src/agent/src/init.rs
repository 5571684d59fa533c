//! PID 1: sets itself up, listens, and serves the daemon that knows the secret.
//!
//! It must never start a program before the secret is set, nor outlive its daemon by more than the daemon
//! allowed.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener as StdListener};
use std::rc::Rc;
use std::time::{Duration, Instant};

use paddock_proto::limits::SOCKET_NAME;
use paddock_proto::message::Claim;
use paddock_proto::{Event, Request};
use rustix::process::{DumpableBehavior, set_dumpable_behavior};
use tokio::net::UnixListener;
use tokio::task::{LocalSet, spawn_local};

use crate::carrier::Carrier;
use crate::complain::complain;
use crate::container::Container;
use crate::direct::Standing;
use crate::foreign::Brief;
use crate::hello::{HELLO_WITHIN, greet, take_over};
use crate::network::{Proxy, Resolver};
use crate::{apply, baseline, collect, intercept, meter, probe, run_stream, tree, warm};

/// Connections that have not sent their hello yet; only code in the container could make more.
const MAX_STRANGERS: usize = 8;

/// For another attempt to make a standing pair.
const RENEWED_AFTER: Duration = Duration::from_millis(250);

pub(crate) fn main() -> std::io::Result<()> {
    // The program's mode makes it so already; this is for a copy with another mode.
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    std::env::set_current_dir("/")?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    LocalSet::new().block_on(&runtime, serve())
}

async fn serve() -> std::io::Result<()> {
    // First of all: a daemon looks for it as soon as this program runs.
    let standing = Standing::first();
    let listener = StdListener::bind_addr(&SocketAddr::from_abstract_name(SOCKET_NAME)?)?;
    listener.set_nonblocking(true)?;
    let listener = UnixListener::from_std(listener)?;
    let container = Rc::new(Container::new());
    // Before any code, which could take the ports, or all descriptors.
    intercept::separates();
    match Resolver::bind().await {
        Ok(resolver) => resolver.serve(container.network.clone()),
        Err(error) => complain(&format!("there is no resolver in this container: {error}")),
    }
    match Proxy::bind().await {
        Ok(proxy) => proxy.serve(container.network.clone()),
        Err(error) => complain(&format!("there is no proxy in this container: {error}")),
    }
    spawn_local(container.reaper.clone().serve());
    spawn_local(accept_streams(container.clone()));
    match standing {
        Ok((standing, ours)) => drop(spawn_local(stand(container.clone(), standing, ours))),
        Err(error) => complain(&format!("every daemon needs an exec to reach this container: {error}")),
    }
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

/// Serves the daemon that takes the standing pair, with a new one ready for the next.
async fn stand(container: Rc<Container>, mut standing: Standing, mut ours: Carrier) {
    loop {
        tokio::select! {
            greeted = greet(&container, ours) => {
                if let Some((carrier, rest)) = greeted {
                    // Its daemon shares this kernel, which tells bridges from processes of this container.
                    container.tells_bridges.set(true);
                    take_over(&container, carrier, rest);
                }
            }
            // A daemon that took the pair may have died before its hello.
            () = container.bridged.notified() => {}
        }
        ours = loop {
            match standing.renew() {
                Ok(ours) => break ours,
                Err(_) => tokio::time::sleep(RENEWED_AFTER).await, // out of descriptors: code holds them
            }
        };
    }
}

async fn accept_carriers(container: Rc<Container>, listener: UnixListener) {
    loop {
        let Ok((socket, _)) = listener.accept().await else {
            tokio::time::sleep(Duration::from_millis(50)).await; // out of descriptors: code holds them
            continue;
        };
        // Code may have sent sockets over it that nobody will ever read, and closing those can wait.
        let socket = Brief::new(socket);
        // A bridge has no parent in here, and code can make no process without one. Before the secret is
        // set there is no code: if the first bridge was recognised (or the daemon took a standing pair),
        // every one is, and no other process' descriptors are touched. Where the runtime hides which
        // process connects, a few strangers are heard at a time, so that a flood of them keeps no daemon
        // out for long.
        let is_bridge =
            socket.peer_cred().ok().and_then(|peer| peer.pid()).is_some_and(tree::is_from_outside);
        let may_be_one = !container.tells_bridges.get() && container.strangers.get() < MAX_STRANGERS;
        if is_bridge || may_be_one {
            container.strangers.set(container.strangers.get() + 1);
            let container = container.clone();
            spawn_local(async move {
                let hello = async {
                    let carrier = Carrier::receive(socket).await.ok()?;
                    greet(&container, carrier).await
                };
                let greeted = tokio::time::timeout(HELLO_WITHIN, hello).await;
                container.strangers.set(container.strangers.get() - 1);
                if let Some((carrier, rest)) = greeted.ok().flatten() {
                    if is_bridge {
                        container.tells_bridges.set(true);
                    }
                    container.bridged.notify_waiters();
                    take_over(&container, carrier, rest);
                }
            });
        }
    }
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
                Ok(Request::Run(spec)) => run_stream::serve(container, stream, spec).await,
                Ok(Request::Attach(id)) => run_stream::attach(&container, stream, &id).await,
                Ok(Request::End { id, grace_ms }) => run_stream::end(&container, stream, &id, grace_ms).await,
                Ok(Request::Claim(claim)) => {
                    stream.event(&claimed(&container, claim)).await;
                    stream.close().await;
                }
                Ok(Request::Collect(rules)) => {
                    collect::serve(&container, &stream, rules).await;
                    stream.close().await;
                }
                Ok(Request::Apply) => apply::serve(&container, &stream).await,
                Ok(Request::Base) => baseline::tell(&container, &stream).await,
                Ok(Request::Settle) => baseline::settle(&container, &stream).await,
                Ok(Request::Warm(spec)) => warm::serve(&container.warm, stream, spec).await,
                Ok(Request::Dial { port }) => container.dials.serve(stream, port).await,
                Ok(Request::Meter) => meter::serve(&container, &stream).await,
                Ok(Request::Probe(quotas)) => {
                    stream.event(&Event::Probed(Box::new(probe::look(quotas)))).await;
                    stream.close().await;
                }
                // Not a beginning: dropping the stream resets it.
                Ok(Request::Commit | Request::Put(_) | Request::Remove(_) | Request::Agreed(_)) | Err(_) => {}
            }
        });
    }
}
