//! The image's warm part: kept standing, given one run at a time, started again when it is gone.
//!
//! ```text
//!  keep ─► job ─► the part ── ready ──────► one process, one run: its job is the run's (single)
//!   ▲                 └────── ready PID ──► it forks: the child is the run's, the rest goes on (forker)
//!   └── gone, or its run over: the next one, later each time when it never stood
//! ```
//!
//! Where the container has a snapshot of the part, the part is restored from it instead of importing, until
//! that fails ([`restoring`]). The snapshot may have lighter parts, the [`levels`]: they stand beside it, and
//! a [`look`] at the code says which is enough for a run. What a container's code may have done is never told to the daemon as the
//! snapshot's fault.
//!
//! The protocol is a page for strangers (runner-images/README.md). A part is as untrusted as the code: what
//! it says is bounded and checked, and a part that says anything else is ended. PID 1 must never give it more
//! than one run at a time, so that whatever else its job has belongs to that run; nor hold up a run for a
//! part that is not about to stand. A part closes its memory to others once it stands, not before: code that
//! ends one must not find the next one as it loads, see [`Warm::make_way`].

pub(crate) mod forker;
mod holder;
mod keep;
mod levels;
mod line;
mod look;
mod restoring;
mod single;
mod state;

use std::rc::Rc;

use paddock_proto::Event;
use paddock_proto::message::WarmSpec;
use tokio::task::spawn_local;

pub(crate) use self::state::Warm;
use crate::link::Stream;

/// Answers a [`paddock_proto::Request::Warm`] on `stream`.
pub(crate) async fn serve(warm: &Rc<Warm>, stream: Stream, spec: WarmSpec) {
    if let Some(spec) = warm.set_spec(spec) {
        spawn_local(levels::keep_levels(warm.clone(), spec));
    }
    let mut told = false;
    let within = keep::READY_WITHIN;
    let late = tokio::time::Instant::now() + within + keep::RESTORED_WITHIN;
    let event = loop {
        tell_if_not_restored(warm, &stream, &mut told).await;
        if let Some(restored) = warm.stands() {
            break Event::Warm { restored };
        }
        if tokio::time::timeout_at(late, warm.news()).await.is_err() {
            break Event::Failed { what: format!("the warm part does not stand after {within:?}") };
        }
    };
    let is_restored = event == Event::Warm { restored: true };
    stream.event(&event).await;
    // A part that stands may still turn out to be none, until code runs.
    while is_restored && !told {
        tokio::select! {
            () = warm.news() => tell_if_not_restored(warm, &stream, &mut told).await,
            _ = stream.recv() => break,
        }
    }
    stream.close().await;
}

async fn tell_if_not_restored(warm: &Warm, stream: &Stream, told: &mut bool) {
    if let Some((why, said)) = warm.not_restored().filter(|_| !*told) {
        *told = true;
        stream.event(&Event::NotRestored { why, said }).await;
    }
}
