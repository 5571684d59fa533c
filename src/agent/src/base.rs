//! What both sides agree on, told to a daemon that does not know it: one that took over, or one that brought the
//! session's files by another way than this link.
//!
//! It must never send content, nor change anything in `/data`.

use std::rc::Rc;

use paddock_proto::Event;

use crate::container::Container;
use crate::link::Stream;
use crate::stamp::Base;
use crate::walk::Walk;

/// Answers [`Request::Base`](paddock_proto::Request::Base).
pub(crate) async fn tell(container: &Container, stream: &Stream) {
    let entries: Vec<_> = container.base.borrow().iter().map(|(path, stamp)| stamp.entry(path)).collect();
    let count = entries.len() as u64;
    for entry in entries {
        stream.event(&Event::Changed(entry)).await;
    }
    stream.event(&Event::Collected { entries: count }).await;
    stream.close().await;
}

/// Answers [`Request::Settle`](paddock_proto::Request::Settle).
pub(crate) async fn settle(container: &Container, stream: &Stream) {
    let walk = Walk::run().await;
    walk.forced.restore();
    // Every time of change was set by whoever unpacked: a program that writes moves it to now, however soon.
    container.base.replace(Rc::new(walk.found.into_iter().collect::<Base>()));
    tell(container, stream).await;
}
