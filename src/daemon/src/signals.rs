//! The signals that ask a process to stop.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// Receives signals from its creation on: none after that is missed, however late `next` is called.
pub(crate) struct Signals {
    term: Signal,
    int: Signal,
    hup: Signal,
}

impl Signals {
    /// Begins to listen. From then on these signals do not end the process.
    ///
    /// # Errors
    /// An error of the system.
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self {
            term: signal(SignalKind::terminate())?,
            int: signal(SignalKind::interrupt())?,
            hup: signal(SignalKind::hangup())?,
        })
    }

    /// The name of the next signal. Cancel safe.
    pub(crate) async fn next(&mut self) -> &'static str {
        let came = tokio::select! {
            Some(()) = self.term.recv() => "SIGTERM",
            Some(()) = self.int.recv() => "SIGINT",
            Some(()) = self.hup.recv() => "SIGHUP",
            else => "",
        };
        if came.is_empty() { std::future::pending().await } else { came }
    }
}

/// The name of the first signal, for callers that need no second.
pub(crate) async fn ended_by_signal() -> &'static str {
    match Signals::new() {
        Ok(mut signals) => signals.next().await,
        Err(_) => std::future::pending().await,
    }
}
