//! The signals that ask a process to end.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// Heard from when it is made: none that comes after that is missed, however late it is asked for.
pub(crate) struct Signals {
    term: Signal,
    int: Signal,
    hup: Signal,
}

impl Signals {
    /// Begins to listen. The process does not die of these signals from then on.
    ///
    /// # Errors
    /// The system does not let it.
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self {
            term: signal(SignalKind::terminate())?,
            int: signal(SignalKind::interrupt())?,
            hup: signal(SignalKind::hangup())?,
        })
    }

    /// The name of the next one. Cancel safe.
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

/// Resolves with the first signal, for whoever needs no second.
pub(crate) async fn ended_by_signal() -> &'static str {
    match Signals::new() {
        Ok(mut signals) => signals.next().await,
        Err(_) => std::future::pending().await,
    }
}
