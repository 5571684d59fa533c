//! The usual way of a session's files: before a program its container gets what it lacks, after it the store
//! gets what the program changed.
//!
//! Whatever comes out was written by the code. It must never take more than the bounds say, nor believe a
//! size, a name or an order that the agent's messages do not keep; and it must never tell the agent to forget
//! a change that is not saved.

use std::collections::BTreeSet;
use std::io::{self, ErrorKind};
use std::sync::Arc;

use paddock_proto::limits::{MAX_NAME, MAX_PATH};
use paddock_proto::message::{Entry, EntryKind, SkipReason};
use paddock_proto::{Channel, Event, Request};
use tokio::sync::mpsc;

use super::baseline::Baseline;
use super::{Collected, DataBounds, SyncError, sum};
use crate::link::{Incoming, Link, LinkError, PutPart, Stream};
use crate::session::port::{accepted, next};
use crate::store::{Batch, Committed, Space, blocking};

/// Bytes that are read from the store, and then sent, in one go.
const LOAD: usize = 256 * 1024;

/// Loads that wait to be sent. One more load is being read, and one more is being sent.
const LOADS: usize = 2;

/// Bytes that an entry counts in a load, whatever its length; also the least that is read of a file in one
/// go.
const ENTRY: usize = 256;

/// Bytes of the longest path that an agent reports as skipped: a directory as deep as any that is carried,
/// and a name in it.
const MAX_SKIPPED: usize = MAX_PATH + 1 + MAX_NAME;

/// Makes a container's files as the store has them; `baseline` says what the container has, before and after.
/// Returns how many files were sent, and their bytes.
///
/// # Errors
/// The link's, [`SyncError::Unread`] and [`SyncError::NotTaken`]. The baseline is then as before, and the
/// container must not be used again.
pub(in crate::session) async fn bring_in(
    space: &Arc<Space>,
    link: &Link,
    baseline: &mut Baseline,
) -> Result<(u64, u64), SyncError> {
    let (difference, after) = {
        let manifest = space.manifest();
        let generation = manifest.generation();
        if baseline.generation == generation {
            return Ok((0, 0));
        }
        (manifest.lacking(&baseline.paths), Baseline { paths: manifest.known(), generation, is_fresh: false })
    };
    if difference.remove.is_empty() && difference.put.is_empty() {
        *baseline = after;
        return Ok((0, 0));
    }
    let stream = link.request(&Request::Apply)?;
    for path in difference.remove {
        accepted(stream.say(&Request::Remove(path))).await?;
    }
    let put: Vec<Entry> = difference.put.into_iter().map(|stored| stored.entry).collect();
    let brought = sum(&put);
    send(space, &stream, put).await?;
    accepted(stream.close()).await?;
    match next(&stream).await? {
        Incoming::Event(Event::Applied) => {
            *baseline = after;
            Ok(brought)
        }
        Incoming::Event(Event::Failed { what }) => Err(SyncError::NotTaken(what)),
        Incoming::Event(_) | Incoming::Data(..) | Incoming::End => Err(LinkError::Refused.into()),
    }
}

/// Sends entries while a blocking thread reads the next ones; no more than a few [`LOAD`]s wait in memory.
async fn send(space: &Arc<Space>, stream: &Stream, put: Vec<Entry>) -> Result<(), SyncError> {
    let (ahead, loads) = mpsc::channel(LOADS);
    let space = space.clone();
    let reading = blocking(move || {
        let mut load = Load { parts: Vec::new(), bytes: 0, ahead };
        for entry in put {
            let path = entry.path.clone();
            match load.read(&space, entry) {
                Ok(true) => {}
                Ok(false) => return Ok(Ok(())), // the stream broke, and its own error is returned
                Err(source) => return Ok(Err(SyncError::Unread { path, source })),
            }
        }
        load.send();
        Ok(Ok(()))
    });
    let sending = async {
        // Dropped with this block, also after a failure: the reading thread must not wait for ever.
        let mut loads = loads;
        while let Some(parts) = loads.recv().await {
            accepted(stream.put(parts)).await?;
        }
        Ok::<(), LinkError>(())
    };
    let (read, sent) = tokio::join!(reading, sending);
    sent?;
    read?
}

/// What the blocking thread has read and not yet passed on.
struct Load {
    parts: Vec<PutPart>,
    bytes: usize,
    ahead: mpsc::Sender<Vec<PutPart>>,
}

impl Load {
    /// Adds an entry and, of a file, its content. False once the sending side is gone.
    fn read(&mut self, space: &Space, entry: Entry) -> io::Result<bool> {
        let (path, size) =
            (entry.path.clone(), if let EntryKind::File(size) = entry.kind { size } else { 0 });
        self.parts.push(PutPart::Entry(entry));
        self.bytes += ENTRY;
        if size > 0 {
            let file = space.open(&path)?;
            let mut left = size;
            while left > 0 {
                let want =
                    usize::try_from(left).unwrap_or(LOAD).min(LOAD.saturating_sub(self.bytes).max(ENTRY));
                let mut piece = Vec::with_capacity(want);
                let n = rustix::io::read(&file, rustix::buffer::spare_capacity(&mut piece))?;
                if n == 0 {
                    return Err(io::Error::new(ErrorKind::UnexpectedEof, "it is shorter than it was saved"));
                }
                left -= n as u64;
                self.bytes += n;
                self.parts.push(PutPart::Content(piece.into()));
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

/// Saves what the program changed, and tells the agent that it is saved. The agent must have been asked to
/// collect on this stream.
///
/// # Errors
/// The link's, for whatever an honest agent does not do as well; and the store's. Nothing is saved then, and
/// the agent still counts all of it as changed.
pub(in crate::session) async fn collect(
    space: &Arc<Space>,
    stream: &Stream,
    baseline: &mut Baseline,
    bounds: DataBounds,
) -> Result<Collected, SyncError> {
    let mut batch = Batch::new(space.clone());
    let mut done = Collected::default();
    let mut gone = BTreeSet::new();
    let (mut refused, mut entries) = (0u64, 0u64);
    let mut agreed = true;
    loop {
        match next(stream).await? {
            // A path that neither side had cannot be removed, and a path cannot be removed twice.
            Incoming::Event(Event::Removed(path)) => {
                let is_known = baseline.paths.contains_key(&path) || space.manifest().get(&path).is_some();
                if is_known && !gone.insert(path.clone()) {
                    return Err(LinkError::Refused.into());
                }
                if is_known {
                    batch.remove(path);
                }
            }
            Incoming::Event(Event::Changed(entry)) => match entry.kind {
                EntryKind::Dir => batch.dir(entry),
                EntryKind::Link(_) => match batch.admit(&entry) {
                    Ok(()) => batch.link(entry),
                    Err(error) => {
                        agreed = false;
                        done.leave(entry.path, error.left_out());
                    }
                },
                EntryKind::File(size) => {
                    // A sparse file, or many links to one, can be larger than all that `/data` holds.
                    let admitted = batch.admit(&entry);
                    let fits = admitted.is_ok();
                    if fits {
                        batch.file(entry.clone());
                    }
                    let (whole, taken) = receive(stream, fits.then_some(&mut batch), size).await?;
                    if !fits {
                        // An honest agent counts as this does and sends nothing of it; any other gets one
                        // quota.
                        agreed &= !whole;
                        refused = refused.saturating_add(taken);
                        if refused > bounds.bytes {
                            return Err(LinkError::Refused.into());
                        }
                    }
                    match (admitted, whole) {
                        (Ok(()), true) => batch.keep(),
                        (Ok(()), false) => {
                            batch.discard();
                            done.leave(entry.path, "it changed while it was read");
                        }
                        (Err(error), _) => done.leave(entry.path, error.left_out()),
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
        if entries > bounds.reported() {
            return Err(LinkError::Refused.into());
        }
    }
    let Committed { put, before, after, looked: _ } = batch.commit().await?;
    {
        let manifest = space.manifest();
        for path in &gone {
            path.remove_from(&mut baseline.paths);
        }
        for entry in &put {
            let mut path = Some(entry.path.clone());
            while let Some(at) = path {
                if let Some(stored) = manifest.get(&at) {
                    baseline.paths.insert(at.clone(), stored.generation);
                }
                path = at.parent();
            }
        }
    }
    // Another change may have come between: the container lacks it, and the next program must find that out.
    if baseline.generation == before {
        baseline.generation = after;
    }
    let telling = async {
        if agreed {
            accepted(stream.say(&Request::Commit)).await?;
        }
        accepted(stream.close()).await
    };
    // What is saved is saved, whether or not the agent learns of it.
    done.is_container_behind = telling.await.is_err();
    done.changed = put.into_iter().filter(|entry| matches!(entry.kind, EntryKind::File(_))).collect();
    Ok(done)
}

/// One file's content: exactly `size` bytes, into the batch or nowhere. Returns whether the file did not
/// change while it was read, and how many bytes came.
async fn receive(
    stream: &Stream,
    mut batch: Option<&mut Batch>,
    size: u64,
) -> Result<(bool, u64), SyncError> {
    let mut left = size;
    loop {
        match next(stream).await? {
            Incoming::Data(Channel::File, piece) => {
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
        SkipReason::NoRoom => "it is more than is saved of a workspace",
        SkipReason::TooMany => "there are more entries than are saved of a workspace",
    }
}

#[cfg(test)]
mod tests;
