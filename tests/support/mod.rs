//! What the end-to-end tests share: a daemon as a user starts it, requests as clients send them, and a look at the
//! engine behind it.
//!
//! Nothing in here sleeps: every wait is for a log line, an answer or an event of the engine, and has a deadline.

mod answer;
mod call;
mod chance;
mod daemon;
mod engine;
mod http;
mod image;
mod log;
mod private;
mod store;

use std::time::Duration;

pub(crate) use answer::Ran;
pub(crate) use call::{Call, Session};
pub(crate) use chance::Chance;
pub(crate) use daemon::{Daemon, Setup, TOKEN, program};
pub(crate) use engine::{View, host as engine_host};
pub(crate) use http::{Answer, Opened, Request, events};
pub(crate) use image::Image;
pub(crate) use log::{Log, field};
pub(crate) use private::PrivateEngine;
pub(crate) use store::{Cleared, Store};

/// Every tool, in the order in which they are listed.
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

/// How long anything may take that has no bound of its own: far more than it ever does.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// What `future` comes to, or a failed test that says what did not come.
pub(crate) async fn within<T>(patience: Duration, what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(patience, future).await {
        Ok(value) => value,
        Err(_) => panic!("{what}: not within {patience:?}"),
    }
}
