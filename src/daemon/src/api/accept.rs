//! Accepts connections, a bounded number at a time. A failure to accept one must never end the loop.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::connections::{ConnectionPermit, ConnectionPermits};
use super::server::Ending;

/// The pause after a failure: most likely the process is out of descriptors, and other connections end soon.
const PAUSE: Duration = Duration::from_millis(20);

/// Accepts connections until `stop`, and serves each in a task of its own. Beyond `max`, connections wait in
/// the kernel's queue. The result tracks the tasks that still run.
pub(super) async fn each<S, A, T>(
    max: usize,
    stop: &CancellationToken,
    accept: impl Fn() -> A,
    serve: impl Fn(S) -> T,
) -> TaskTracker
where
    A: Future<Output = io::Result<S>>,
    T: Future<Output = ()> + Send + 'static,
{
    let (tasks, permits) = (TaskTracker::new(), Arc::new(Semaphore::new(max)));
    let accepting = async {
        while let Ok(permit) = permits.clone().acquire_owned().await {
            let serving = serve(next(&accept).await);
            tasks.spawn(async move {
                serving.await;
                drop(permit);
            });
        }
    };
    until(stop, accepting, &tasks).await;
    tasks
}

/// The same, but a new connection can take the permit of another one. `peer` tells a connection's peer.
pub(super) async fn with_permits<S, A, T>(
    permits: &Arc<ConnectionPermits>,
    stop: &CancellationToken,
    accept: impl Fn() -> A,
    peer: impl Fn(&S) -> Option<IpAddr>,
    serve: impl Fn(S, ConnectionPermit) -> T,
) -> TaskTracker
where
    A: Future<Output = io::Result<S>>,
    T: Future<Output = ()> + Send + 'static,
{
    let tasks = TaskTracker::new();
    let accepting = async {
        loop {
            let connection = next(&accept).await;
            let permit = permits.take(peer(&connection)).await;
            tasks.spawn(serve(connection, permit));
        }
    };
    until(stop, accepting, &tasks).await;
    tasks
}

/// Serves the connections of one listener until the end, and those that are left then until they drain.
/// `serve` gets the token that ends new work, and the one that ends a connection at once.
pub(super) async fn until_drained<T>(
    permits: &Arc<ConnectionPermits>,
    listener: TcpListener,
    ending: Ending,
    serve: impl Fn((TcpStream, SocketAddr), ConnectionPermit, CancellationToken, CancellationToken) -> T,
) where
    T: Future<Output = ()> + Send + 'static,
{
    let (stop, abort) = (&ending.stop, CancellationToken::new());
    let of_peer = |(_, peer): &(TcpStream, SocketAddr)| Some(peer.ip());
    let connection = |stream, permit| serve(stream, permit, stop.clone(), abort.clone());
    let connections = with_permits(permits, stop, || listener.accept(), of_peer, connection).await;
    drop(listener);
    if !ending.drained(connections.wait()).await {
        abort.cancel();
        connections.wait().await;
    }
}

/// The next connection.
async fn next<S, A: Future<Output = io::Result<S>>>(accept: &impl Fn() -> A) -> S {
    loop {
        match accept().await {
            Ok(connection) => return connection,
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
}

async fn until(stop: &CancellationToken, accepting: impl Future<Output = ()>, tasks: &TaskTracker) {
    tokio::select! {
        () = stop.cancelled() => {}
        () = accepting => {}
    }
    tasks.close();
}
