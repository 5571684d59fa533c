//! All of a saved `/data` into a container that has nothing yet, in one call of the engine's archive API.
//!
//! Worth it from some size on, and where the agent's stream goes through the engine as well: the call costs tens of
//! milliseconds before the first byte, and carries more bytes a second than an exec. Only before any code ran there: the engine unpacks as root, and a link that code
//! had made could lead it elsewhere. What arrived is checked against the manifest before anyone relies on it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use paddock_proto::Request;
use paddock_proto::limits::DATA_DIR;
use paddock_proto::message::Entry;
use tracing::{debug, warn};

use super::leases::Known;
use super::{SessionBounds, SessionError, carry, recover};
use crate::pool::Armed;
use crate::store::{Space, tar};

/// From so many bytes on the archive is quicker; measured by `make bench`.
const FROM_BYTES: u64 = 8 << 20;

/// Brings everything in, if the container is empty and it is worth it; else nothing happens. What is then known of it
/// is what it says it has: whatever did not arrive is brought in by the usual way. The files that were sent, and their
/// bytes.
///
/// # Errors
/// The link's.
pub(super) async fn bring_all(
    space: &Arc<Space>,
    armed: &Armed,
    known: &mut Known,
    bounds: &SessionBounds,
) -> Result<(u64, u64), SessionError> {
    // Only that, and not that nothing is known of it: one that was taken over can be empty of what both agree on, and
    // full of what code made and nobody saved yet.
    if !std::mem::take(&mut known.fresh) || armed.link.is_direct() {
        return Ok((0, 0));
    }
    let entries: Vec<Entry> = {
        let manifest = space.manifest();
        let bytes: u64 = manifest.files().map(|(_, size)| size).sum();
        if bytes < FROM_BYTES {
            return Ok((0, 0));
        }
        manifest.lacking(&BTreeMap::new()).put.into_iter().map(|held| held.entry).collect()
    };
    let begun = Instant::now();
    let (count, brought) = (entries.len(), carry::sum(&entries));
    let archive = tar::pack(space.clone(), entries, tar::For::Container(armed.uid.0));
    if let Err(error) = armed.engine.archive_put_stream(&armed.id, DATA_DIR, archive).await {
        // What it left half done is told by the container itself.
        warn!(%error, name = %armed.name, "an archive was not taken; the files go by the agent's stream");
    }
    *known = recover::told(space, &armed.link, &Request::Settle, bounds).await?;
    debug!(entries = count, ms = begun.elapsed().as_millis(), "brought in by an archive");
    Ok(brought)
}
