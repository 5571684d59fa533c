//! What a container has of its session's files, as both sides agreed on it last.
//!
//! It must never count a file as up to date that the store has otherwise: what is in doubt gets generation 0,
//! which no stored entry has, and is sent again.

use std::collections::BTreeMap;

use paddock_proto::message::{Entry, EntryKind};
use paddock_proto::{Event, RelPath, Request};

use super::DataBounds;
use crate::link::{Incoming, Link, LinkError};
use crate::session::port;
use crate::store::Space;

/// What a container has of the session's files.
#[derive(Debug, Default)]
pub(in crate::session) struct Baseline {
    /// The store's generation of each path that the container has; 0 if the store has it otherwise.
    pub(in crate::session) paths: BTreeMap<RelPath, u64>,
    /// Nothing was ever brought in, and no code ran: only then may the engine unpack an archive there.
    pub(in crate::session) is_fresh: bool,
    /// The store's generation when both sides were last equal: while it stands, there is nothing to compare.
    pub(in crate::session) generation: u64,
}

impl Baseline {
    /// Of a container that nothing was brought into yet.
    pub(in crate::session) fn fresh() -> Self {
        Self { is_fresh: true, ..Self::default() }
    }

    /// Asks the agent what its container has, by [`Request::Base`] or [`Request::Settle`], and compares that
    /// with the store.
    pub(in crate::session) async fn ask(
        space: &Space,
        link: &Link,
        request: &Request,
        bounds: DataBounds,
    ) -> Result<Self, LinkError> {
        let stream = link.request(request)?;
        let mut baseline = Self::default();
        let mut left = bounds.reported();
        loop {
            let entry = match port::next(&stream).await? {
                Incoming::Event(Event::Changed(entry)) => entry,
                Incoming::Event(Event::Collected { .. }) => return Ok(baseline),
                Incoming::Event(_) | Incoming::Data(..) | Incoming::End => return Err(LinkError::Refused),
            };
            left = left.checked_sub(1).ok_or(LinkError::Refused)?;
            let manifest = space.manifest();
            let same = manifest.get(&entry.path).filter(|stored| agrees(&stored.entry, &entry));
            let generation = same.map_or(0, |stored| stored.generation);
            drop(manifest);
            baseline.paths.insert(entry.path, generation);
        }
    }
}

/// Size and time tell whether two files have one content: both sides keep the time of what they agreed on.
pub(in crate::session) fn agrees(store: &Entry, container: &Entry) -> bool {
    let is_timed = matches!(store.kind, EntryKind::File(_));
    store.kind == container.kind && (!is_timed || store.mtime_ns == container.mtime_ns)
}

#[cfg(test)]
mod tests;
