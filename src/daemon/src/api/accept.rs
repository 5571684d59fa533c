//! Taking connections, so many at one time: more wait in the kernel's queue.
//!
//! It must never end for a connection that could not be taken.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// After a failure: out of descriptors, most likely; others end soon.
const PAUSE: Duration = Duration::from_millis(20);

/// Takes what `accept` gives until `stop`, and serves each in a task of its own; the tasks that are left then.
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
            match accept().await {
                Ok(connection) => {
                    let serving = serve(connection);
                    tasks.spawn(async move {
                        serving.await;
                        drop(place);
                    });
                }
                Err(_) => tokio::time::sleep(PAUSE).await,
            }
        }
    };
    tokio::select! {
        () = stop.cancelled() => {}
        () = taken => {}
    }
    tasks.close();
    tasks
}
