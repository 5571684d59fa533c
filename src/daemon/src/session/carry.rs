//! Files between the store and a container: in what it lacks, out what changed.
//!
//! Whatever comes out was written by the code. It must never take more than the bounds say, nor believe a size,
//! a name or an order that the agent's words do not keep.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use paddock_proto::limits::{MAX_NAME, MAX_PATH};
use paddock_proto::message::{Entry, EntryKind, SkipReason};
use paddock_proto::{Channel, Event, Request};
use tokio::sync::mpsc;

use super::leases::Known;
use super::{SessionBounds, SessionError};
use crate::link::{Incoming, Link, LinkError, Part, Stream};
use crate::store::{Batch, Held, Space, StoreError, blocking};

/// The agent works or it is given up: between two words of it no more than this passes.
pub(super) const SILENCE: Duration = Duration::from_secs(30);

/// Bytes that are read of the store in a row and sent in a row.
const LOAD: usize = 256 * 1024;

/// Loads that wait to be sent, beside the one being read and the one being sent.
const LOADS: usize = 2;

/// What an entry counts in a load, whatever its length; also the least that is read of a file at once.
const ENTRY: usize = 256;

/// What is kept of what was not saved: an answer names fewer.
const MAX_NOT_SAVED: usize = 256;

/// Bytes of the longest path that an agent skips: a directory as deep as any that is carried, and a name in it.
const MAX_SKIPPED: usize = MAX_PATH + 1 + MAX_NAME;

pub(super) const OVER_QUOTA: &str = "the session's quota is used up";

/// The next word of the agent, within [`SILENCE`].
pub(super) async fn next(stream: &Stream) -> Result<Incoming, LinkError> {
    tokio::time::timeout(SILENCE, stream.next()).await.unwrap_or(Err(LinkError::Silent(SILENCE)))
}

/// What is sent is taken within [`SILENCE`], or the agent does not work.
pub(super) async fn taken(sending: impl Future<Output = Result<(), LinkError>>) -> Result<(), LinkError> {
    tokio::time::timeout(SILENCE, sending).await.unwrap_or(Err(LinkError::Silent(SILENCE)))
}

/// How many files there are, and their bytes.
pub(super) fn sum<'a>(entries: impl IntoIterator<Item = &'a Entry>) -> (u64, u64) {
    entries.into_iter().fold((0, 0), |(files, bytes), entry| match entry.kind {
        EntryKind::File(size) => (files + 1, bytes + size),
        EntryKind::Dir | EntryKind::Link(_) => (files, bytes),
    })
}

/// Makes a container as the store is; `known` says what it has, before and after. The files that went, and their bytes.
pub(super) async fn bring_in(
    space: &Arc<Space>,
    link: &Link,
    known: &mut Known,
) -> Result<(u64, u64), SessionError> {
    let (difference, after) = {
        let manifest = space.manifest();
        let generation = manifest.generation();
        if known.generation == generation {
            return Ok((0, 0));
        }
        (manifest.lacking(&known.paths), Known { paths: manifest.known(), generation, fresh: false })
    };
    if difference.remove.is_empty() && difference.put.is_empty() {
        *known = after;
        return Ok((0, 0));
    }
    let stream = link.request(&Request::Apply)?;
    for path in difference.remove {
        taken(stream.say(&Request::Remove(path))).await?;
    }
    let brought = sum(difference.put.iter().map(|held| &held.entry));
    send(space, &stream, difference.put).await?;
    taken(stream.close()).await?;
    match next(&stream).await? {
        Incoming::Event(Event::Applied) => {
            *known = after;
            Ok(brought)
        }
        Incoming::Event(Event::Failed { what }) => Err(SessionError::BringIn(what)),
        Incoming::Event(_) | Incoming::Data(..) | Incoming::End => Err(LinkError::Refused.into()),
    }
}

/// Sends entries, while a thread of its own reads what comes next; no more than a few [`LOAD`]s wait in memory.
async fn send(space: &Arc<Space>, stream: &Stream, put: Vec<Held>) -> Result<(), SessionError> {
    let (ahead, loads) = mpsc::channel(LOADS);
    let space = space.clone();
    let reading = blocking(move || {
        let mut load = Load { parts: Vec::new(), bytes: 0, ahead };
        for held in put {
            if !load.read(&space, held.entry)? {
                return Ok(()); // nobody listens any more: the stream broke, and says so itself
            }
        }
        load.send();
        Ok(())
    });
    let sending = async {
        let mut loads = loads; // dropped with this, also when it fails: the thread must not wait for ever
        while let Some(parts) = loads.recv().await {
            taken(stream.put(parts)).await?;
        }
        Ok::<(), LinkError>(())
    };
    let (read, sent) = tokio::join!(reading, sending);
    sent?;
    Ok(read?)
}

/// What is being read ahead of the wire.
struct Load {
    parts: Vec<Part>,
    bytes: usize,
    ahead: mpsc::Sender<Vec<Part>>,
}

impl Load {
    /// Adds an entry and, of a file, its content. False once nobody takes it.
    fn read(&mut self, space: &Space, entry: Entry) -> Result<bool, StoreError> {
        let (path, size) =
            (entry.path.clone(), if let EntryKind::File(size) = entry.kind { size } else { 0 });
        self.parts.push(Part::Entry(entry));
        self.bytes += ENTRY;
        if size > 0 {
            let what = || format!("cannot read {path:?} from the store");
            let file = space.open(&path).map_err(StoreError::io(what()))?;
            let mut left = size;
            while left > 0 {
                let want =
                    usize::try_from(left).unwrap_or(LOAD).min(LOAD.saturating_sub(self.bytes).max(ENTRY));
                let mut piece = Vec::with_capacity(want);
                let n = rustix::io::read(&file, rustix::buffer::spare_capacity(&mut piece))
                    .map_err(|error| StoreError::io(what())(error.into()))?;
                if n == 0 {
                    let short =
                        std::io::Error::new(ErrorKind::UnexpectedEof, "it is shorter than it was saved");
                    return Err(StoreError::io(what())(short));
                }
                left -= n as u64;
                self.bytes += n;
                self.parts.push(Part::Content(piece.into()));
                if self.bytes >= LOAD && !self.send() {
                    return Ok(false);
                }
            }
        }
        Ok(self.bytes < LOAD || self.send())
    }

    fn send(&mut self) -> bool {
        self.bytes = 0;
        self.ahead.blocking_send(std::mem::take(&mut self.parts)).is_ok()
    }
}

/// What a collection brought.
#[derive(Debug, Default)]
pub(super) struct Collected {
    /// Files that are new or changed, now saved.
    pub(super) changed: Vec<Entry>,
    /// What stays in the container only, and why, in words: the first of it.
    pub(super) not_saved: Vec<(Vec<u8>, &'static str)>,
}

impl Collected {
    /// Notes that this stays in the container only.
    pub(super) fn leave(&mut self, path: impl Into<Vec<u8>>, why: &'static str) {
        if self.not_saved.len() < MAX_NOT_SAVED {
            self.not_saved.push((path.into(), why));
        }
    }
}

/// Takes what changed into the store and says so to the agent. The stream must be where a collection begins.
pub(super) async fn collect(
    space: &Arc<Space>,
    stream: &Stream,
    known: &mut Known,
    bounds: &SessionBounds,
) -> Result<Collected, SessionError> {
    let mut batch = Batch::new(space.clone());
    let mut done = Collected::default();
    let mut gone = BTreeSet::new();
    let (mut refused, mut entries) = (0u64, 0u64);
    let mut agreed = true;
    loop {
        match next(stream).await? {
            // What nobody here knows of cannot go; what goes twice did not go.
            Incoming::Event(Event::Removed(path)) => {
                let is_known = known.paths.contains_key(&path) || space.manifest().get(&path).is_some();
                if is_known && !gone.insert(path.clone()) {
                    return Err(LinkError::Refused.into());
                }
                if is_known {
                    batch.remove(path);
                }
            }
            Incoming::Event(Event::Changed(entry)) => match entry.kind {
                EntryKind::Dir => batch.dir(entry),
                EntryKind::Link(_) if batch.admit(&entry).is_ok() => batch.link(entry),
                EntryKind::Link(_) => {
                    agreed = false;
                    done.leave(entry.path, OVER_QUOTA);
                }
                EntryKind::File(size) => {
                    // A sparse file, or many links to one, can be larger than all that `/data` holds.
                    let fits = batch.admit(&entry).is_ok();
                    if fits {
                        batch.file(entry.clone());
                    }
                    let (whole, taken) = receive(stream, fits.then_some(&mut batch), size).await?;
                    if !fits {
                        // The agent counts as this does and sends nothing of it; one that does is not believed long.
                        agreed &= !whole;
                        refused = refused.saturating_add(taken);
                        if refused > bounds.data {
                            return Err(LinkError::Refused.into());
                        }
                    }
                    match (fits, whole) {
                        (true, true) => batch.keep(),
                        (true, false) => {
                            batch.discard();
                            done.leave(entry.path, "it changed while it was read");
                        }
                        (false, _) => done.leave(entry.path, OVER_QUOTA),
                    }
                }
            },
            Incoming::Event(Event::Skipped { path, reason }) if path.len() <= MAX_SKIPPED => {
                done.leave(path, words(reason));
            }
            Incoming::Event(Event::Collected { .. }) => break,
            Incoming::Event(_) | Incoming::Data(..) | Incoming::End => return Err(LinkError::Refused.into()),
        }
        entries += 1;
        if entries > bounds.data_inodes.saturating_mul(3) {
            return Err(LinkError::Refused.into()); // more than /data can hold, before and after
        }
    }
    let put = batch.commit().await?;
    {
        let manifest = space.manifest();
        for path in &gone {
            path.remove_from(&mut known.paths);
        }
        for entry in &put {
            let mut path = Some(entry.path.clone());
            while let Some(at) = path {
                if let Some(held) = manifest.get(&at) {
                    known.paths.insert(at.clone(), held.generation);
                }
                path = at.parent();
            }
        }
        known.generation = manifest.generation();
    }
    if agreed {
        taken(stream.say(&Request::Commit)).await?;
    }
    taken(stream.close()).await?;
    done.changed = put.into_iter().filter(|entry| matches!(entry.kind, EntryKind::File(_))).collect();
    Ok(done)
}

/// One file's content: exactly `size` bytes, into the batch or away. Whether it was of one piece, and how many
/// bytes came.
async fn receive(
    stream: &Stream,
    mut batch: Option<&mut Batch>,
    size: u64,
) -> Result<(bool, u64), SessionError> {
    let mut left = size;
    loop {
        match next(stream).await? {
            Incoming::Data(Channel::File, piece) => {
                let piece: Bytes = piece;
                left = left.checked_sub(piece.len() as u64).ok_or(LinkError::Refused)?;
                if let Some(batch) = &mut batch {
                    batch.write(&piece).await?;
                }
            }
            Incoming::Event(Event::FileEnd { whole }) => return Ok((whole && left == 0, size - left)),
            Incoming::Event(_) | Incoming::Data(..) | Incoming::End => return Err(LinkError::Refused.into()),
        }
    }
}

fn words(reason: SkipReason) -> &'static str {
    match reason {
        SkipReason::Special => "it is no regular file",
        SkipReason::Path => "its path is too long or too deep",
        SkipReason::Unreadable => "it could not be read",
    }
}

#[cfg(test)]
mod tests;
