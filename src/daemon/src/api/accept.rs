//! Taking connections, so many at one time.
//!
//! It must never end for a connection that could not be taken.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::places::{Places, Seat};

/// After a failure: out of descriptors, most likely; others end soon.
const PAUSE: Duration = Duration::from_millis(20);

/// Takes what `accept` gives until `stop`, and serves each in a task of its own; the tasks that are left then.
/// More than `places` wait in the kernel's queue.
pub(super) async fn each<S, A, T>(
    places: usize,
    stop: &CancellationToken,
    accept: impl Fn() -> A,
    serve: impl Fn(S) -> T,
) -> TaskTracker
where
    A: Future<Output = io::Result<S>>,
    T: Future<Output = ()> + Send + 'static,
{
    let (tasks, places) = (TaskTracker::new(), Arc::new(Semaphore::new(places)));
    let taken = async {
        while let Ok(place) = places.clone().acquire_owned().await {
            let serving = serve(next(&accept).await);
            tasks.spawn(async move {
                serving.await;
                drop(place);
            });
        }
    };
    until(stop, taken, &tasks).await;
    tasks
}

/// The same, where a connection that comes can take another's place: `peer` says whose it is.
pub(super) async fn seated<S, A, T>(
    places: &Arc<Places>,
    stop: &CancellationToken,
    accept: impl Fn() -> A,
    peer: impl Fn(&S) -> Option<IpAddr>,
    serve: impl Fn(S, Seat) -> T,
) -> TaskTracker
where
    A: Future<Output = io::Result<S>>,
    T: Future<Output = ()> + Send + 'static,
{
    let tasks = TaskTracker::new();
    let taken = async {
        loop {
            let connection = next(&accept).await;
            let seat = places.take(peer(&connection)).await;
            tasks.spawn(serve(connection, seat));
        }
    };
    until(stop, taken, &tasks).await;
    tasks
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

async fn until(stop: &CancellationToken, taken: impl Future<Output = ()>, tasks: &TaskTracker) {
    tokio::select! {
        () = stop.cancelled() => {}
        () = taken => {}
    }
    tasks.close();
}
