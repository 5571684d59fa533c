//! Reports the baseline, the state of `/data` that daemon and agent have agreed on, to a daemon that does not
//! know it. Such a daemon has taken over this container from another one, or it has brought the session's
//! files into the container by another way than this link.
//!
//! It must never send content, nor change anything in `/data`.

use std::rc::Rc;

use paddock_proto::Event;

use crate::container::Container;
use crate::fingerprint::Baseline;
use crate::link::Stream;
use crate::walk::{DataWalk, Scope};

/// Answers [`Request::Base`](paddock_proto::Request::Base).
pub(crate) async fn tell(container: &Container, stream: &Stream) {
    let entries: Vec<_> =
        container.baseline.borrow().iter().map(|(path, fingerprint)| fingerprint.entry(path)).collect();
    let count = entries.len() as u64;
    for entry in entries {
        stream.event(&Event::Changed(entry)).await;
    }
    stream.event(&Event::Collected { entries: count }).await;
    stream.close().await;
}

/// Answers [`Request::Settle`](paddock_proto::Request::Settle).
pub(crate) async fn settle(container: &Container, stream: &Stream) {
    let walk = DataWalk::run(Scope::All).await;
    walk.forced.restore();
    // Unpacking set every time of change: a program that writes moves it to now, however soon.
    container.baseline.replace(Rc::new(walk.found.into_iter().collect::<Baseline>()));
    tell(container, stream).await;
}
