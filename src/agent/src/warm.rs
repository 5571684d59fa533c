//! The image's warm part: kept standing, given one run at a time, started again when it is gone.
//!
//! ```text
//!  keep ─► job ─► the part ── ready ──────► one process, one run: its job is the run's (single)
//!   ▲                 └────── ready PID ──► it forks: the child is the run's, the rest goes on (forker)
//!   └── gone, or its run over: the next one, later each time when it never stood
//! ```
//!
//! Where the container has a snapshot of the part, the part is restored from it instead of importing, until
//! that fails ([`restoring`]). It then imports when the daemon asks for that. The snapshot may have lighter
//! parts, the [`levels`]: they stand beside it, and a [`look`] at the code says which is enough for a run.
//! What a container's code may have done is never told to the daemon as the snapshot's fault.
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
    let is_restore = !spec.restore.is_empty();
    if let Some(spec) = warm.set_spec(spec) {
        spawn_local(levels::keep_levels(warm.clone(), spec));
    }
    let within = keep::READY_WITHIN;
    let late = tokio::time::Instant::now() + within + keep::RESTORED_WITHIN;
    let not_restored = || warm.not_restored().filter(|_| is_restore);
    let mut stood = false;
    loop {
        if let Some((why, failure)) = not_restored() {
            stream.event(&Event::NotRestored { why, failure }).await;
            break;
        }
        if let Some(restored) = warm.stands().filter(|_| !stood) {
            stream.event(&Event::Warm { restored }).await;
            stood = true;
            if !restored {
                break;
            }
        } else if stood {
            // A part that stands may still turn out to be none, until code runs.
            tokio::select! {
                () = warm.news() => {}
                _ = stream.recv() => break,
            }
        } else if tokio::time::timeout_at(late, warm.news()).await.is_err() {
            let what = format!("the warm part does not stand after {within:?}");
            stream.event(&Event::Failed { what }).await;
            break;
        }
    }
    stream.close().await;
}
