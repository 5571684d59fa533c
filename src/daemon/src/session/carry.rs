//! Files between the store and a container: in what it lacks, out what changed.
//!
//! Whatever comes out was written by the code. It must never take more than the bounds say, nor believe a size,
//! a name or an order that the agent's words do not keep.

use std::io::Read;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use paddock_proto::message::{Entry, EntryKind, SkipReason};
use paddock_proto::{Channel, Event, Request};

use super::leases::Known;
use super::{SessionBounds, SessionError};
use crate::link::{Incoming, Link, LinkError, Stream};
use crate::store::{Batch, Held, Space, StoreError, blocking};

/// The agent works or it is given up: between two words of it no more than this passes.
pub(super) const SILENCE: Duration = Duration::from_secs(30);

/// One read of the store.
const PIECE: usize = 256 * 1024;

pub(super) const OVER_QUOTA: &str = "the session's quota is used up";

/// The next word of the agent, within [`SILENCE`].
pub(super) async fn next(stream: &Stream) -> Result<Incoming, LinkError> {
    tokio::time::timeout(SILENCE, stream.next()).await.unwrap_or(Err(LinkError::Silent(SILENCE)))
}

/// What is sent is taken within [`SILENCE`], or the agent does not work.
pub(super) async fn taken(sending: impl Future<Output = Result<(), LinkError>>) -> Result<(), LinkError> {
    tokio::time::timeout(SILENCE, sending).await.unwrap_or(Err(LinkError::Silent(SILENCE)))
}

/// Makes a container as the store is; `known` says what it has, before and after.
pub(super) async fn bring_in(space: &Arc<Space>, link: &Link, known: &mut Known) -> Result<(), SessionError> {
    let (difference, after) = {
        let manifest = space.manifest();
        let generation = manifest.generation();
        if known.generation == generation {
            return Ok(());
        }
        (manifest.lacking(&known.paths), Known { paths: manifest.known(), generation })
    };
    if difference.remove.is_empty() && difference.put.is_empty() {
        *known = after;
        return Ok(());
    }
    let stream = link.request(&Request::Apply)?;
    for path in difference.remove {
        taken(stream.say(&Request::Remove(path))).await?;
    }
    for Held { entry, .. } in difference.put {
        taken(stream.say(&Request::Put(entry.clone()))).await?;
        if let EntryKind::File(size) = entry.kind {
            send_file(space, &stream, &entry, size).await?;
        }
    }
    taken(stream.close()).await?;
    match next(&stream).await? {
        Incoming::Event(Event::Applied) => {
            *known = after;
            Ok(())
        }
        Incoming::Event(Event::Failed { what }) => Err(SessionError::BringIn(what)),
        Incoming::Event(_) | Incoming::Data(..) | Incoming::End => Err(LinkError::Refused.into()),
    }
}

async fn send_file(
    space: &Arc<Space>,
    stream: &Stream,
    entry: &Entry,
    size: u64,
) -> Result<(), SessionError> {
    let (space, path) = (space.clone(), entry.path.clone());
    let what = format!("cannot read {path:?} from the store");
    let mut file = blocking(move || space.open(&path).map_err(StoreError::io(what))).await?;
    let mut left = size;
    while left > 0 {
        let want = usize::try_from(left).unwrap_or(PIECE).min(PIECE);
        let what = format!("cannot read {:?} from the store", entry.path);
        let piece;
        (file, piece) = blocking(move || {
            let mut piece = vec![0; want];
            file.read_exact(&mut piece).map_err(StoreError::io(what))?;
            Ok((file, piece))
        })
        .await?;
        left -= piece.len() as u64;
        taken(stream.data(Channel::File, piece.into())).await?;
    }
    Ok(())
}

/// What a collection brought.
#[derive(Debug, Default)]
pub(super) struct Collected {
    /// Files that are new or changed, now saved.
    pub(super) changed: Vec<Entry>,
    /// What stays in the container only, and why, in words.
    pub(super) not_saved: Vec<(Vec<u8>, &'static str)>,
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
    let mut gone = Vec::new();
    let (mut refused, mut entries) = (0u64, 0u64);
    let mut agreed = true;
    loop {
        match next(stream).await? {
            Incoming::Event(Event::Removed(path)) => {
                gone.push(path.clone());
                batch.remove(path);
            }
            Incoming::Event(Event::Changed(entry)) => match entry.kind {
                EntryKind::Dir => batch.dir(entry),
                EntryKind::Link(_) if batch.admit(&entry).is_ok() => batch.link(entry),
                EntryKind::Link(_) => {
                    agreed = false;
                    done.not_saved.push((entry.path.into(), OVER_QUOTA));
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
                            done.not_saved.push((entry.path.into(), "it changed while it was read"));
                        }
                        (false, _) => done.not_saved.push((entry.path.into(), OVER_QUOTA)),
                    }
                }
            },
            Incoming::Event(Event::Skipped { path, reason }) => done.not_saved.push((path, words(reason))),
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
