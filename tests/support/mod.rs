//! Shared by the end-to-end tests: a daemon as a user starts it, requests as clients send them, and a view of
//! the engine behind it.
//!
//! Nothing here sleeps: every wait is for a log line, an answer or an event of the engine, and has a
//! deadline.

mod answer;
mod bad_disk;
mod call;
mod chance;
mod clock;
mod daemon;
mod engine;
mod engine_proxy;
mod fence;
mod http;
mod image;
mod log;
mod private;
mod seed;
mod shared_store;
mod store;

use std::time::Duration;

pub(crate) use answer::Ran;
pub(crate) use bad_disk::BadDisk;
pub(crate) use call::{Call, Session};
pub(crate) use chance::Chance;
pub(crate) use clock::FakeClock;
pub(crate) use daemon::{Daemon, Setup, TOKEN, program};
pub(crate) use engine::{View, host as engine_host};
pub(crate) use engine_proxy::{EngineProxy, Mode};
pub(crate) use fence::{Fence, Kind};
pub(crate) use http::{Answer, Opened, Request, events};
pub(crate) use image::Image;
pub(crate) use log::{Log, field};
pub(crate) use private::PrivateEngine;
pub(crate) use shared_store::{Kind as ServerKind, SharedServers};
pub(crate) use store::{Cleared, Store};

/// Every tool, in the order of the listing.
pub(crate) const TOOLS: [&str; 14] = [
    "run_code",
    "run_python",
    "upload_file",
    "read_artifact",
    "list_artifacts",
    "close_session",
    "list_runners",
    "execute_code",
    "execute_code_async",
    "get_execution_output",
    "get_execution_status",
    "list_executions",
    "send_stdin",
    "cancel_execution",
];

/// The deadline of anything without a limit of its own: far longer than it ever takes.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// The result of `future`, or a failed test that names what did not come.
pub(crate) async fn within<T>(patience: Duration, what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(patience, future).await {
        Ok(value) => value,
        Err(_) => panic!("{what}: not within {patience:?}"),
    }
}
