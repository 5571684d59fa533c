//! All of a saved `/data` into a container that has nothing yet, by one call of the engine's archive API.
//!
//! The call takes tens of milliseconds before its first byte, and then carries more bytes a second than an
//! exec does. So it is worth it from some size on, and only where the agent's stream goes through the engine
//! as well. It is used only before any code ran in the container: the engine unpacks as root, and a link that
//! code had made could lead it elsewhere. It must never rely on what the engine says that it unpacked: the
//! agent's own list is compared with the manifest.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use paddock_proto::Request;
use paddock_proto::message::Entry;
use tracing::{debug, warn};

use super::baseline::Baseline;
use super::{DataBounds, sum};
use crate::link::LinkError;
use crate::session::port::Container;
use crate::store::{Space, tar};

/// From this many bytes on the archive is quicker than the agent's stream; measured by `make bench`.
const FROM_BYTES: u64 = 8 << 20;

/// Brings everything in, if the container is empty and it is worth it; otherwise does nothing. The baseline
/// is then what the agent reports, and the usual way brings in whatever did not arrive. Returns how many
/// files were sent, and their bytes.
///
/// # Errors
/// The link's.
pub(in crate::session) async fn bring_all(
    space: &Arc<Space>,
    container: &dyn Container,
    baseline: &mut Baseline,
    bounds: DataBounds,
) -> Result<(u64, u64), LinkError> {
    // An empty baseline would not be enough: a container that was taken over from an earlier daemon can agree
    // with the store on nothing, and still be full of what code made.
    if !std::mem::take(&mut baseline.is_fresh) || container.link().is_direct() {
        return Ok((0, 0));
    }
    let entries: Vec<Entry> = {
        let manifest = space.manifest();
        let bytes: u64 = manifest.files().map(|(_, size)| size).sum();
        if bytes < FROM_BYTES {
            return Ok((0, 0));
        }
        manifest.lacking(&BTreeMap::new()).put.into_iter().map(|stored| stored.entry).collect()
    };
    let begun = Instant::now();
    let (count, brought) = (entries.len(), sum(&entries));
    let archive = tar::pack(space.clone(), entries, tar::ArchiveRecipient::Container(container.uid()));
    if let Err(error) = container.unpack_data(Box::pin(archive)).await {
        // The agent's list shows what the call left half done.
        let name = container.name();
        warn!(%error, name, "an archive was not taken; the files go by the agent's stream");
    }
    *baseline = Baseline::ask(space, container.link(), &Request::Settle, bounds).await?;
    debug!(entries = count, ms = begun.elapsed().as_millis(), "brought in by an archive");
    Ok(brought)
}

#[cfg(test)]
mod tests;
