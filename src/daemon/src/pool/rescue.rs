//! What happens to the files of a container of an earlier daemon whose agent does not answer this one: it
//! speaks another version of the protocol, or it hangs. The pool removes such a container at the start;
//! before that somebody who knows its session may read it.
//!
//! Nothing here may know of sessions, nor keep a container for longer than the reading takes.

use std::time::Duration;

use async_trait::async_trait;
use tracing::warn;

use crate::engine::{ContainerId, Engine, VolumeName};

/// How long one container may be read at the start of the daemon, which serves nobody until then.
const WITHIN: Duration = Duration::from_secs(60);

/// A container that is about to be removed, with a `/data` in memory that ends with it.
pub struct LostContainer {
    /// The engine that has it.
    pub engine: Engine,
    /// The engine's id for it.
    pub id: ContainerId,
    /// The daemon's name for it.
    pub name: VolumeName,
}

/// Saves what such a container has.
#[async_trait]
pub trait Rescue: Send + Sync {
    /// Saves the files that only this container has, if its session had any.
    async fn rescue(&self, container: LostContainer);
}

/// Has it rescued, within a bound of time.
pub(super) async fn rescue(rescue: Option<&dyn Rescue>, container: LostContainer) {
    let Some(rescue) = rescue else { return };
    let name = container.name.clone();
    if tokio::time::timeout(WITHIN, rescue.rescue(container)).await.is_err() {
        warn!(%name, "the files of a container were not read to their end within {WITHIN:?}: some are lost");
    }
}
